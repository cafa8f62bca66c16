"""Secure sums: the server learns the sum of those who are there, or nothing."""

import numpy as np
import pytest
from in_memory import SECURE_SUMS, SUMS, changed, equal, spoken

from fedprior.exchange import client as client_side

ALONE = ((0,), (1,), (2,), (3,), (4,))  # every client at a site of its own; three are enough


def dropping(net, *rounds):
    """`{"round": (0, 1)}`: in this round, these clients do not answer this request."""

    def hook(asked, deliver):
        gone = rounds[asked.round].get(asked.do, ()) if asked.round is not None else ()
        return None if asked.node - 100 in gone else deliver()

    net.grid.hook = hook


DROPPED = (  # what they do not answer, and who is missing from the sum
    ({"round": (0,)}, (0,)),
    ({"round": (1, 3)}, (1, 3)),  # as many as may be
    ({"unmask": (0, 4)}, ()),  # their uploads are in the sum
    ({"round": (2,), "unmask": (3,)}, (2,)),
    ({"unmask": (1,)}, ()),
    ({"round": (4,), "unmask": (0,)}, (4,)),
)


@pytest.mark.parametrize("rounds", [DROPPED[:3], DROPPED[3:]])
def test_clients_that_drop_out(network, rounds):
    net = network(*SUMS, rehearsal=True, groups=ALONE)
    dropping(net, *(gone for gone, _ in rounds))
    net.play()
    absent = {round: absent for round, (_, absent) in enumerate(rounds)}
    equal(net.state(), net.debug(absent=absent).state)
    history = net.checkpoint().facts["history"]
    assert [entry["clients"] for entry in history] == [5 - len(own) for own in absent.values()]


@pytest.mark.parametrize(
    "rounds",
    [
        ({"round": (0, 1, 2)}, {"unmask": (0, 1, 2)}),
        ({"round": (0,), "unmask": (1, 2)}, {"round": (0, 1), "unmask": (2,)}),
    ],
)
def test_one_fewer_than_the_noise_was_planned_for(network, rounds):
    """Nothing is released, but the round was charged: uploads have left their clients."""
    net = network(*SUMS, rehearsal=True, groups=ALONE)
    dropping(net, *rounds, {})
    net.play()
    sent = {a.round: a.packed.arrays for a in net.grid.sent if a.do == "round"}
    for later in (sent[1], sent[2]):
        assert all((later[name] == leaf).all() for name, leaf in sent[0].items())
    assert not all((net.state()[name] == leaf).all() for name, leaf in sent[0].items())
    assert [entry["clients"] for entry in net.checkpoint().facts["history"]] == [0, 0, 5]
    assert sorted(line["first"] for line in net.reserved()) == [0, 1, 2]
    assert set(net.checkpoint().facts["accepted"].values()) == {2}


def test_clients_that_were_never_there(network):
    """They have no key, and are absent like any other."""
    net = network(*SUMS, rehearsal=True, groups=ALONE)
    net.grid.offline = {100, 103}
    net.play()
    absent = dict.fromkeys(range(3), (0, 3))
    equal(net.state(), net.debug(absent=absent).state)


def test_too_few_are_there(network):
    net = network(*SUMS, rehearsal=True, groups=ALONE)
    net.grid.offline = {100, 102, 103}
    net.play()
    equal(net.state(), net.agreement.initial_state())
    assert len(net.reserved()) == 3
    assert {asked.do for asked in net.grid.sent} == {"hello", "finish"}  # nobody lost a turn


def test_a_client_that_comes_later(network):
    net = network(*SUMS, rehearsal=True, groups=ALONE)
    net.grid.offline = {104}

    def hook(asked, deliver):
        if asked.round == 0:
            net.grid.offline = set()
        return deliver()

    net.grid.hook = hook
    net.play()
    equal(net.state(), net.debug(absent={0: (4,)}).state)


def test_what_the_server_sees_of_one_client(network):
    """Not the upload that the client has made: neither its units nor anything near them."""
    net = network(*SUMS, rehearsal=True).play()
    agreement, channel = net.agreement, net.agreement.channel
    state, facts = agreement.initial_state(), net.document.facts
    for asked, answer in net.grid.answers:
        if asked.do != "round" or asked.round != 0:
            continue
        for name, about in asked.facts["clients"].items():
            number = about["number"]
            rows = net.clients.train.client(number)
            own = facts.client_data(np.asarray(rows.x), np.asarray(rows.y))
            learned = client_side.attempt(agreement, state, None, own, number, 0)
            clear = client_side.masked_units(agreement, learned, number, 0)
            seen = spoken(answer).arrays[f"{number}/upload"]
            away = (seen - clear.astype(np.uint64)).view(np.int64)
            assert (np.abs(away.astype(float)) > 2.0**40).mean() > 0.9, name
            assert np.abs(clear).max() < 2**24
    assert channel.fewest == 3


def spoil(net, do, *changes, client=4):
    """In each round, a client sends something else."""

    def hook(asked, deliver):
        answer = deliver()
        if (asked.do, asked.node) != (do, 100 + client) or asked.round >= len(changes):
            return answer
        return changed(answer, key=net.sites[client], arrays=changes[asked.round])

    net.grid.hook = hook


FORMS = (
    lambda own: {},
    lambda own: own | {"4/upload": own["4/upload"].astype(np.float32)},
    lambda own: own | {"4/upload": own["4/upload"][:-1]},
    lambda own: {place: blob for place, blob in own.items() if not place.endswith("sealed/0")},
    lambda own: own | {"4/sealed/0": np.zeros(3)},
    lambda own: own | {"4/upload": own["4/upload"].view(np.int64)},
)


@pytest.mark.parametrize("forms", [FORMS[:3], FORMS[3:]])
def test_a_masked_upload_of_another_form_is_refused(network, forms):
    net = network(*SUMS, rehearsal=True, groups=ALONE)
    spoil(net, "round", *forms)
    net.play()
    equal(net.state(), net.debug(absent=dict.fromkeys(range(3), (4,))).state)


SHARES = (
    lambda own: {"4/revealed": own["4/revealed"][:-1]},
    lambda own: {"4/revealed": own["4/revealed"] ^ 1},
    lambda own: {"4/revealed": own["4/revealed"].astype(np.int64)},
    lambda own: {"4/revealed": np.zeros(0, np.uint8)},
    lambda own: {"4/revealed": own["4/revealed"][None]},
    lambda own: {},
)


@pytest.mark.parametrize("shares", [SHARES[:3], SHARES[3:]])
def test_a_damaged_share_does_not_spoil_the_others(network, shares):
    net = network(*SUMS, rehearsal=True, groups=ALONE)
    spoil(net, "unmask", *shares)
    net.play()
    equal(net.state(), net.debug().state)


def test_shares_that_nobody_can_open_cost_a_round(network):
    """A client can spoil a sum, as it can by what it sends; the run goes on."""
    net = network(*SUMS, rehearsal=True, groups=ALONE)

    def for_one(own):
        return own | {"4/sealed/0": own["4/sealed/0"] ^ 1}

    def for_all(own):
        return {place: blob ^ 1 if "sealed" in place else blob for place, blob in own.items()}

    spoil(net, "round", for_one, for_all)
    net.play()
    assert [fault["round"] for fault in net.faults()] == [0, 1, 1, 1, 1, 1]
    assert net.faults()[0] == {"round": 0, "who": "client-0", "reason": "ValueError"}
    assert [entry["clients"] for entry in net.checkpoint().facts["history"]] == [5, 0, 5]


def test_keys_survive_a_restart_of_the_server(network):
    """Also those of clients that are not there any more."""
    from test_kills import killed

    net = network(*SUMS, rehearsal=True, groups=ALONE)
    assert killed(net, "run.Deployment._progress", "after")
    net.grid.offline = {103}
    net.play()
    equal(net.state(), net.debug(absent={1: (3,), 2: (3,)}).state)


def test_secure_noise_in_shares(network):
    """The sum has noise of its own every time; the ledger says whom the clients trust."""
    net = network(*SECURE_SUMS, groups=ALONE).play()
    assert [entry["clients"] for entry in net.checkpoint().facts["history"]] == [5, 5, 5]
    assert [(line["view"], line["noise"]) for line in net.reserved()] == [("masked", "secure")] * 3
    assert all(np.isfinite(leaf).all() for leaf in net.state().values())
