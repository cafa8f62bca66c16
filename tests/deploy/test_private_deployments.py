"""What leaves a site, what the server's files and log tell, and what is charged for it."""

import json
import logging
import struct
from dataclasses import replace

import numpy as np
import pytest
from in_memory import ADAMAP, PRIVATE, SECURE, SUMS, deploy, spoken

from fedprior.channels.randomized_response import OneBit
from fedprior.core.check import PrivacyError
from fedprior.core.files import read_json
from fedprior.sites.document import Document

SCORE = 0.7182818284590452  # one that is recognized wherever it is written


@pytest.mark.parametrize("changes", [PRIVATE, SUMS])
def test_simulated_noise_is_for_rehearsals(tmp_path, federation, agreement_of, changes):
    with pytest.raises(PrivacyError, match=r"privacy\.noise must be secure, got simulated"):
        deploy(tmp_path, federation, *changes, agreement_of=agreement_of)


def test_a_rehearsal_is_not_passed_off_as_the_real_thing(network):
    net = network(*PRIVATE, rehearsal=True)
    text = net.document.to_json()
    with pytest.raises(PrivacyError, match="must be secure"):
        Document.from_json(text.replace('"rehearsal": true', '"rehearsal": false'))


def test_secure_noise_needs_its_library(tmp_path, federation, agreement_of, monkeypatch):
    monkeypatch.setattr("fedprior.privacy.secure.find_spec", lambda name: None)
    with pytest.raises(PrivacyError, match="needs OpenDP"):
        deploy(tmp_path, federation, *SECURE, agreement_of=agreement_of)


def test_secure_noise_is_new_every_time(network, tmp_path):
    net = network(*SECURE, root=tmp_path / "a").play()
    first, second = net.state(), network(*SECURE, root=tmp_path / "b").play().state()
    assert any((first[name] != second[name]).any() for name in first)
    assert [line["noise"] for line in net.reserved()] == ["secure"] * 3
    assert [line["first"] for line in net.reserved()] == [0, 1, 2]


def test_who_took_part_is_not_told(network, caplog):
    """Neither in the log, which lands in a database of Flower's, nor in files that may be shown."""
    net = network(*SECURE, share_scores=True)

    def hook(asked, deliver):
        answer = deliver()
        return None if asked.do == "round" and asked.round == 1 and asked.node == 100 else answer

    net.grid.hook = hook
    with caplog.at_level(logging.DEBUG, "flwr"):
        net.play()
    assert len(net.faults()) == 1
    shown = [net.run / "progress.json", net.folder.metrics, net.folder.summary]
    texts = {path.name: path.read_text() for path in shown} | {"log": caplog.text}
    for name, text in texts.items():
        assert "client-" not in text, name
        for word in ("answered", '"clients"', "left_out", "no answer", "deadline"):
            assert word not in text, (name, word)
    assert not net.folder.clients.exists()
    assert not (net.part / "answers.jsonl").exists()
    assert json.loads(net.folder.summary.read_text())["scores_withheld"]


def test_in_the_clear_it_is_told(network, caplog):
    """The test above would see it."""
    net = network(*ADAMAP, share_scores=True)
    net.grid.hook = lambda asked, deliver: (
        None if asked.round == 1 and asked.node == 100 else deliver()
    )
    with caplog.at_level(logging.DEBUG, "flwr"):
        net.play()
    assert "client-0, client-1: no answer" in caplog.text
    assert "answered" in (net.run / "progress.json").read_text()
    assert '"clients"' in net.folder.metrics.read_text()
    assert net.folder.clients.exists()


@pytest.mark.parametrize("changes", [ADAMAP, SECURE, SUMS])
def test_nothing_else_leaves_a_site(network, changes):
    """Of every answer: facts and arrays by name, and uploads no longer than the clip."""
    net = network(*changes, rehearsal=True).play()
    agreement, masked = net.agreement, changes == SUMS
    for asked, answer in net.grid.answers:
        found, own = spoken(answer), asked.facts["clients"]
        facts = {
            "hello": {"clients", "masks"} if masked else {"clients"},
            "round": {"failed_clients"},
            "unmask": {"failed_clients"},
            "finish": {"scores"},
        }[asked.do]
        assert found.facts.keys() == facts | {"nonce"}
        assert not any(found.facts.get(name) for name in ("failed_clients", "scores"))
        numbers = {str(about["number"]) for about in own.values()}
        places = {place.split("/")[1] for place in found.arrays}
        if asked.do == "round":
            assert places == ({"upload", "sealed"} if masked else {"upload"})
        assert {place.split("/")[0] for place in found.arrays} <= numbers
        for place, array in found.arrays.items():
            if place.endswith("upload") and changes == SECURE:
                assert np.linalg.norm(array) <= agreement.channel.longest(agreement.length)


def finished(net):
    """(site, facts, bytes) of the sites' last answers."""
    return [
        (asked.node - 100, spoken(answer).facts, answer.content.array_records["content"]["bytes"])
        for asked, answer in net.grid.answers
        if asked.do == "finish"
    ]


@pytest.mark.parametrize("share", [True, False])
def test_scores_leave_a_site_only_where_it_says_so(network, share):
    net = network(*ADAMAP, share_scores=share).play()
    for site, facts, content in finished(net):
        own = read_json(net.sites[site] / "scores.json")
        assert own.pop("agreement") == net.document.token
        assert own.pop("metric") == "accuracy"
        assert own.pop("metrics")  # which stay with the site
        assert set(own) == {"adamap", "local"}
        assert facts["scores"] == (own if share else {})
        for name in net.clients.clients[list(net.groups[site])]:
            assert (str(name).encode() in content.data) == share
    methods = json.loads(net.folder.summary.read_text())["methods"]
    assert set(methods) == ({"adamap", "local"} if share else set())
    assert net.folder.clients.exists() == share


def test_scores_leave_a_site_where_the_agreement_says_so(network, monkeypatch):
    """For a mean with noise, which is charged; single ones are written nowhere at the server."""
    monkeypatch.setattr("fedprior.sites.results.score", lambda *given: SCORE)
    release = ("privacy.release_scores=true", "privacy.score_epsilon=0.5")
    net = network(*SECURE, *release).play()
    told = [facts["scores"]["fedavg"] for _, facts, _ in finished(net)]
    assert {score for own in told for score in own.values()} == {SCORE}
    summary = json.loads(net.folder.summary.read_text())
    assert summary["methods"] == {}
    (mean,) = summary["released_scores"]
    assert mean["epsilon"] == 0.5
    assert mean["mean"] is not None
    charged = net.reserved()
    assert len(charged) == 4
    assert charged[-1]["event"]["mechanism"] == "response"
    for path in net.run.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert repr(SCORE).encode() not in content, path
        assert not any(struct.pack(kind, SCORE) in content for kind in ("<d", "<f")), path


def test_scores_and_secure_sums_do_not_go_together(tmp_path, federation, agreement_of):
    release = ("privacy.release_scores=true", "privacy.score_epsilon=0.5")
    with pytest.raises(PrivacyError, match="release_scores must be false with secure_sums"):
        deploy(tmp_path, federation, *SUMS, *release, rehearsal=True, agreement_of=agreement_of)


class TestLocalChannels:
    """Noise that a client draws itself, for nobody's eyes: not from a seed that others know."""

    @pytest.fixture
    def local(self, agreement_of):
        channel = OneBit(epsilon=0.5, low=-1.0, high=1.0, noise="secure")
        return lambda document: replace(agreement_of(document), channel=channel)

    CHANGES = (*PRIVATE, "privacy.relation=replace-one")

    def test_a_run(self, network, local):
        net = network(*self.CHANGES, rehearsal=True, agreement_of=local).play()
        assert not net.faults()
        assert [(line["view"], line["noise"]) for line in net.reserved()] == [
            ("local", "secure")
        ] * 3
        for asked, answer in net.grid.answers:
            if asked.do == "round":
                for upload in spoken(answer).arrays.values():
                    assert (
                        len(np.unique(upload)) == 2
                    )  # the middle, and one coordinate with its bit

    def test_every_answer_is_drawn_anew_and_is_a_turn(self, network, local):
        from test_curious_server import Curious, refused

        net, different = network(*self.CHANGES, rehearsal=True, agreement_of=local), 0
        for client in range(5):
            server = Curious(net, net.site_of(client))
            own = {"name": f"client-{client}", "number": client}
            answers = [server.round(0, **own).arrays[f"{client}/upload"] for _ in range(3)]
            different += len({upload.tobytes() for upload in answers}) > 1
            assert net.memory(client)[1]["taken"] == 3
            refused(server, server.round(0, **own), "AskedTooOften", "has taken part 3 times")
            refused(server, server.round(1, **own), "AskedTooOften", "at most 3 times")
        # Three answers of a client are the same with probability 1 / 30^2: all of them, 1e-15.
        assert different

    def test_simulated_draws_are_known_to_the_server(self, network, local):
        """Which is why they are for rehearsals: the test above would see it."""
        from test_curious_server import Curious

        def simulated(document):
            channel = replace(local(document).channel, noise="simulated")
            return replace(local(document), channel=channel)

        server = Curious(network(*self.CHANGES, rehearsal=True, agreement_of=simulated))
        uploads = [server.round(0).arrays["0/upload"] for _ in range(2)]
        np.testing.assert_array_equal(*uploads)


def test_a_round_without_clients_is_charged_and_has_its_noise(network):
    """A private run does not stop for want of clients: that would tell of them."""
    net = network(*SECURE)

    def hook(asked, deliver):
        return None if asked.do == "round" and asked.round == 1 else deliver()

    net.grid.hook = hook
    net.play()
    assert len(net.reserved()) == 3
    assert json.loads(net.folder.summary.read_text())["runs"][0]["rounds"] == 3
    assert [entry["clients"] for entry in net.checkpoint().facts["history"]][1] == 0


def test_a_population_pays_together_with_its_run(tmp_path, network):
    from fedprior.privacy.opening import begin_ledger, read

    path = tmp_path / "population.jsonl"
    begin_ledger(path, epsilon=50, delta=1e-2)
    net = network(*SECURE, f"privacy.ledger={path}").play()
    shared = [line for line in read(path)[1] if line["kind"] == "reserve"]
    assert len(shared) == len(net.reserved()) == 3
    assert "population.jsonl" not in net.document.to_json()  # what a site has no need to know
