"""A server that is killed at any moment, and resumed: the same bits, and every attempt charged."""

import json
from pkgutil import resolve_name

import pytest
from in_memory import ADAMAP, MATRIX, PRIVATE, SECURE, SECURE_SUMS, SUMS, Killed, equal

from fedprior.core.files import read_json
from fedprior.sites import run as runs

# Places in a round, in their order: what is called, and whether the end comes before or after it.
PLACES = [
    ("run.server.open_round", "before"),
    ("run.server.open_round", "after"),
    ("run.Deployment._forget", "after"),
    ("node 101", "before"),  # after the first node has answered
    ("node 102", "after"),  # after all have, before anybody looks
    ("unmask 101", "before"),
    ("unmask 102", "after"),
    ("run.server.admit", "after"),
    ("run.server.release_round", "before"),
    ("run.server.release_round", "after"),
    ("run.server.release_sum", "before"),
    ("run.server.release_sum", "after"),
    ("run.Deployment._note_answers", "after"),
    ("run.Deployment.save", "before"),
    ("run.Deployment.save", "after"),  # from here on, the round has been played
    ("ledger.commit", "after"),
    ("run.Deployment._progress", "after"),
]
END = [
    ("run.Deployment.finish", "before"),
    ("run.model_file.write_state", "after"),
    ("run.Deployment._scores", "after"),
    ("run.summary_of", "after"),
]
FULL = {"run": "fedprior.sites.run", "ledger": "fedprior.privacy.ledger.Ledger"}


def places(*, masked=False, private=True):
    """Those that a run of this kind comes to."""
    others = ("admit", "release_round") if masked else ("unmask", "release_sum")
    others += () if private else ("ledger",)
    return [(place, when) for place, when in PLACES if not any(each in place for each in others)]


def killing(net, patch, place, when):
    """End the server at the next call of what `place` names."""
    if " " in place:
        return killed_at_node(net, *place.split(), when)
    module, _, name = place.partition(".")
    target = f"{FULL[module]}.{name}"
    owner, _, name = target.rpartition(".")
    whole = getattr(resolve_name(owner), name)

    def call(*given, **named):
        if when == "before":
            raise Killed
        whole(*given, **named)
        raise Killed

    patch.setattr(target, call)
    return None


def killed_at_node(net, do, node, when):
    wanted = (do.replace("node", "round"), int(node))

    def hook(asked, deliver):
        if (asked.do, asked.node) != wanted:
            return deliver()
        if when == "after":
            deliver()
        raise Killed

    net.grid.hook = hook


def killed(net, place, when):
    """Play until the end comes at a place; False where the run does not get there."""
    with pytest.MonkeyPatch.context() as patch:
        killing(net, patch, place, when)
        try:
            net.play()
        except Killed:
            return True
        finally:
            net.grid.hook = lambda asked, deliver: deliver()
    return False


def consistent(net, like=None):
    """Checkpoint, ledger and clients agree on what happened so far."""
    file = net.part / "checkpoint.safetensors"
    rounds, accepted = 0, {}
    if file.is_file():
        facts = net.checkpoint().facts
        rounds, accepted = facts["round"], facts["accepted"]
        if like is not None:
            found = {
                name.removeprefix("state/"): leaf
                for name, leaf in net.checkpoint().arrays.items()
                if name.startswith("state/")
            }
            equal(found, like(rounds).state)
    for client in range(5):
        held = net.sites[net.site_of(client)] / "memory" / net.document.token / f"{client}.memory"
        if held.is_file():
            kept, turns = net.memory(client)
            assert accepted.get(str(client)) in kept.values()
            assert turns["last"] == kept["pending"]
    return rounds


@pytest.mark.parametrize("name", ["adamap", "central", "matrix", "sums"])
def test_a_run_that_is_killed_everywhere(network, name):
    """One after another, at all places of a round; what each leaves behind is as it should be."""
    changes = {
        "adamap": ADAMAP,
        "central": PRIVATE,
        "matrix": MATRIX,
        "sums": SUMS,
    }[name]
    net = network(*changes, rehearsal=True)
    known = {}

    def like(rounds):
        return known.setdefault(rounds, net.debug(rounds=rounds))

    for place, when in [*places(masked=name == "sums", private=name != "adamap"), *END]:
        assert killed(net, place, when), place
        rounds = consistent(net, like)
        if name != "adamap":
            paid = [line["first"] + k for line in net.reserved() for k in range(line["rounds"])]
            assert set(range(rounds)) <= set(paid)
            assert len(paid) == len(set(paid))  # the same release again costs nothing
    net.play()
    equal(net.state(), like(net.document.training.rounds).state)
    assert not any(path.suffix == ".tmp" for path in net.run.rglob("*"))


def test_answers_that_were_lost_in_a_killed_round(network):
    """A client plays a round, nobody hears of it, the server dies, the round is played again."""
    net = network(*ADAMAP)

    def hook(asked, deliver):
        if asked.do == "round" and asked.round == 1:
            answer = deliver()
            if asked.node == 102:
                raise Killed
            return None if asked.node == 100 else answer
        return deliver()

    net.grid.hook = hook
    with pytest.raises(Killed):
        net.play()
    consistent(net)
    assert net.memory(0)[0] == {"settled": 0, "pending": 1}
    net.grid.hook = lambda asked, deliver: deliver()
    net.play()
    equal(net.state(), net.debug().state)


def test_a_killed_round_whose_clients_differ_when_it_is_played_again(network):
    """Client 4 took part in the attempt that was lost, and is absent from the one that counts."""
    net = network(*ADAMAP)
    assert killed(net, "run.Deployment.save", "before")
    net.grid.hook = lambda asked, deliver: (
        None if (asked.do, asked.round, asked.node) == ("round", 0, 102) else deliver()
    )
    net.play()
    equal(net.state(), net.debug(absent={0: (4,)}).state)


def test_every_attempt_with_secure_noise_is_charged(network):
    net = network(*SECURE)
    attempts, open_round = [], runs.server.open_round

    def counted(agreement, number, **more):
        drawn = open_round(agreement, number, **more)
        attempts.append(number)
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.server, "open_round", counted)
        for place, when in places():
            assert killed(net, place, when), place
            assert len(net.reserved()) == len(attempts) >= consistent(net)
    assert len(attempts) > 10
    net.play()
    summary = json.loads(net.folder.summary.read_text())
    assert summary["runs"][0]["rounds"] == 3
    assert summary["privacy"][0]["rounds"] == len(net.reserved())
    assert summary["privacy"][0]["noise"] == "secure"


def test_a_run_whose_attempts_have_used_up_its_budget(network):
    """Noise for three rounds: lost ones are not given back, and the run ends before the third."""
    net = network(*PRIVATE, "privacy.noise=secure")
    for _ in range(2):
        assert killed(net, "run.server.release_round", "after")
    net.play()
    (end,) = json.loads(net.folder.summary.read_text())["runs"]
    assert (end["rounds"], end["planned"], end["ended_by"]) == (1, 3, "budget")
    assert len(net.reserved()) == 3


def test_a_ledger_that_was_put_back(network, tmp_path):
    """A server that restores a ledger from before the last round does not continue on it."""
    from fedprior.core.check import PrivacyError

    net = network(*SECURE)
    assert killed(net, "run.Deployment._progress", "after")
    path = net.folder.ledger(net.document.method, 0)
    before = path.read_bytes()
    assert killed(net, "run.server.open_round", "after")
    assert killed(net, "run.Deployment._forget", "after")
    path.write_bytes(before)
    with pytest.raises(PrivacyError, match="truncated or replaced"):
        net.play()


def test_two_servers_do_not_play_one_run(network, monkeypatch):
    from fedprior.core import lock
    from fedprior.deploy import server_app

    net = network(*ADAMAP)
    monkeypatch.setattr(server_app, "_WAIT", 0.0)
    with lock.owned(net.run), pytest.raises(ValueError, match="in use by process"):
        net.play()


def test_the_folder_of_another_agreement(network):
    from fedprior.deploy.app_folder import write_agreement

    net = network(*ADAMAP)
    assert killed(net, "run.Deployment._progress", "after")
    cards = {site.name: read_json(site / "card.json") for site in net.sites}
    write_agreement(net.app, net.config, cards, deadline=600)
    with pytest.raises(ValueError, match="is the folder of another agreement"):
        net.play()


def test_a_finished_run_is_not_played_again(network):
    """Its model is sent once more, for sites that were away at the end."""
    net = network(*ADAMAP).play()
    sent, summary = len(net.grid.sent), net.folder.summary.read_bytes()
    model = net.sites[0] / "model" / "model.safetensors"
    model.unlink()
    net.play()
    assert {asked.do for asked in net.grid.sent[sent:]} == {"hello", "finish"}
    assert net.folder.summary.read_bytes() == summary
    assert model.is_file()


def test_clients_of_secure_sums_count_every_attempt(network):
    """A second upload of a round has new noise: it is another turn, of which there are three."""
    net = network(*SECURE_SUMS)
    assert killed(net, "unmask 101", "before")
    assert net.memory(0)[1]["taken"] == 1
    net.play()
    assert {net.memory(client)[1]["taken"] for client in range(5)} == {3}
    history = net.checkpoint().facts["history"]
    assert [entry["clients"] for entry in history] == [5, 5, 0]
    assert {fault["reason"] for fault in net.faults()} == {"AskedTooOften"}
    assert len(net.reserved()) == 4
