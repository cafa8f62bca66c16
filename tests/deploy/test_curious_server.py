"""A server that asks for more than was agreed on: the client refuses, and only the type leaves."""

import time
from dataclasses import replace

import numpy as np
import pytest
from in_memory import ADAMAP, MATRIX, SUMS, Asked, carried, spoken

from fedprior.core.files import read_json
from fedprior.deploy import client_app, wire
from fedprior.exchange import trees
from fedprior.privacy import masks
from fedprior.sites import requests
from fedprior.sites.run import EveryoneFailed

SECRET = "patient Ada Lovelace"


class Curious:
    """A server that sends what it likes to one site."""

    def __init__(self, net, site=0):
        self.net, self.site, self.nonce = net, site, 0
        self.state = net.agreement.initial_state()
        self.answer = None

    def __call__(self, do, clients=(), arrays=None, **facts):
        """What the site answers: facts and arrays."""
        self.nonce += 1
        clients = {} if clients == () else clients
        told = {"do": do, "nonce": str(self.nonce), "token": self.net.document.token}
        told |= {"clients": clients, "deadline": 600.0, **facts}
        payload = wire.content(self.state if arrays is None else arrays, told)
        message = carried(wire.request(100 + self.site, payload, seconds=600))
        self.answer = self.net.grid.deliver(Asked(100 + self.site, message, None))
        found = spoken(self.answer)
        assert found.facts["nonce"] == str(self.nonce)
        return found

    def round(self, round, accepted=None, state=None, name="client-0", number=0, **facts):
        about = {name: {"number": number, "accepted": accepted}}
        return self("round", about, state, round=round, **facts)

    def other_state(self):
        import jax

        return jax.tree.map(lambda leaf: leaf + 1, self.state)

    @property
    def bytes(self):
        return wire.read(self.answer, most=2**30)[1]


def refused(server, found, kind, words):
    """Nothing is sent but the type of the error; the site knows why."""
    assert not found.arrays
    failed = found.facts.get("failed") or list(found.facts["failed_clients"].values())
    assert failed in (kind, [kind])
    known = {"nonce", "failed", "failed_clients"}
    assert found.facts.keys() <= known
    last = server.net.errors(server.site).splitlines()[-1]
    assert f" {kind}: " in last
    assert words in last


@pytest.fixture
def curious(network):
    """A curious server, and a site that has answered round 0."""
    server = Curious(network(*ADAMAP))
    assert "0/upload" in server.round(0).arrays
    return server


def test_another_agreement(curious):
    found = curious.round(1, token="0" * 32)
    refused(curious, found, "NotAccepted", "is not the one that was accepted here")


@pytest.mark.parametrize("accepted", [True, False])
def test_a_document_that_the_server_brings_along(network, accepted):
    """A site that has accepted none takes none from the server, nor another than its own."""
    server = Curious(network(*ADAMAP, rehearsal=True))
    given = server.net.document
    other = replace(given, run="0" * 32)
    if not accepted:
        (server.net.sites[0] / "agreement.json").unlink()
    more = {"document": other.to_json(), "token": other.token, "simulation": "/tmp/elsewhere"}
    refused(server, server.round(0, **more), "NotAccepted", "accepted here")
    refused(server, server("hello", **more), "NotAccepted", "accepted here")
    if not accepted:
        refused(server, server("hello"), "NotAccepted", "accepted here")


def test_a_document_that_changed_at_the_site(curious):
    """Not by the server: whoever edits the file has not accepted it."""
    path = curious.net.sites[0] / "agreement.json"
    path.write_text(path.read_text().replace('"deadline": 600.0', '"deadline": 60.0'))
    refused(curious, curious.round(1), "NotAccepted", "accepted here")
    path.write_text("{}")
    assert curious.round(1).facts["failed"] == "ValueError"


def test_another_version_of_the_code(curious, monkeypatch):
    monkeypatch.setattr("fedprior.sites.document.code_hash", lambda: "0" * 32)
    refused(curious, curious.round(1), "ValueError", "for another version of fedprior")


@pytest.mark.parametrize("do", ["memory", "samples", "", None, 3, "__class__", "_hello"])
def test_a_request_that_no_agreement_provides_for(curious, do):
    refused(curious, curious(do), "UnknownRequest", "there is no request")


@pytest.mark.parametrize(
    "facts",
    [
        {"clients": None},
        {"clients": ["client-0"]},
        {"clients": {"client-0": None}},
        {"clients": {"client-0": {}}},
        {"clients": {"client-0": {"number": "0", "accepted": None}}},
        {"clients": {"client-0": {"number": True, "accepted": None}}},
        {"clients": {"client-0": {"number": -1, "accepted": None}}},
        {"clients": {"client-0": {"number": 5, "accepted": None}}},  # there are five, from 0
        {"clients": {"client-0": {"number": 10**30, "accepted": None}}},
        {"clients": {"\ud800": {"number": 0, "accepted": None}}},
        {"clients": {"../client-0": {"number": 0, "accepted": None}}},
        {"round": None},
        {"round": -1},
        {"round": "x"},
        {"round": float("nan")},
        {"round": 1.5},
        {"deadline": 0.0},
        {"deadline": -5.0},
        {"deadline": float("inf")},
        {"deadline": None},
        {"token": "../../../../etc"},
        {"token": None},
        {"token": ["0"]},
        {"do": ["round"]},
        {"do": "\ud800"},
    ],
)
def test_requests_that_are_no_requests(network, facts):
    """The client answers with a type, and is ready for the next request."""
    server = Curious(network(*ADAMAP))
    good = {"clients": {"client-0": {"number": 0, "accepted": None}}, "round": 0}
    found = server(**{"do": "round", **good, **facts})
    assert not found.arrays
    assert found.facts.keys() <= {"nonce", "failed", "failed_clients"}
    failed = found.facts.get("failed") or list(found.facts["failed_clients"].values())
    assert failed
    assert "0/upload" in server.round(0).arrays


def test_another_state_in_the_same_round(curious):
    again = curious.round(0)
    assert "0/upload" in again.arrays  # an answer that got lost may be asked for again
    found = curious.round(0, state=curious.other_state())
    refused(curious, found, "AskedTooOften", "with another state")


def test_the_same_round_again_gives_the_same_answer_or_none(curious):
    """Whatever the server says that it accepted: another memory would give another message."""
    first = curious.round(0).arrays["0/upload"]
    np.testing.assert_array_equal(curious.round(0).arrays["0/upload"], first)
    found = curious.round(0, accepted=0)
    refused(curious, found, "AskedTooOften", "accepted round 0 before round 0 was played")
    later = curious.round(2, accepted=0).arrays["0/upload"]
    for accepted in (2, 5):
        assert not curious.round(2, accepted=accepted).arrays
    np.testing.assert_array_equal(curious.round(2, accepted=0).arrays["0/upload"], later)


def test_a_round_before_the_last_one(curious):
    assert curious.round(2).arrays
    refused(curious, curious.round(1), "AskedTooOften", "round 1 is before round 2")


def test_more_rounds_than_were_agreed_on(curious):
    refused(curious, curious.round(3, accepted=0), "AskedTooOften", "one of the 3")


def test_more_turns_than_the_matrix_rule_allows(network):
    server = Curious(network(*MATRIX, rehearsal=True))
    assert server.round(0).arrays
    refused(server, server.round(1), "AskedTooOften", "must wait 2 rounds")
    assert server.round(2).arrays
    refused(server, server.round(4), "AskedTooOften", "one of the 4")
    assert server.net.memory(0)[1]["taken"] == 2


def test_what_the_server_says_it_accepted(curious):
    refused(curious, curious.round(2, accepted=1), "ValueError", "not after round 1")
    assert curious.round(1, accepted=0).arrays
    refused(curious, curious.round(2, accepted=None), "ValueError", "that it accepted none")


def test_another_number_for_a_client(curious):
    found = curious.round(1, number=3)
    refused(curious, found, "AnotherSeat", "client client-0 has number 0, not 3")
    found = curious.round(1, name="client-1", number=0)
    refused(curious, found, "AnotherSeat", "not 0")
    found = curious.round(1, name="client-4", number=4)
    refused(curious, found, "ValueError", "one of client-0, client-1")


def test_a_state_of_another_model(curious):
    found = curious.round(1, state={"x": np.ones(3)})
    refused(curious, found, "ValueError", "belongs to another model")


def test_an_agreement_is_for_one_run(network, tmp_path):
    """A server that has lost its folder, or says so, cannot begin again with the same agreement."""
    net = network(*ADAMAP).play()
    net.run.rename(tmp_path / "lost")
    with pytest.raises(EveryoneFailed):
        net.play()
    assert len(net.faults()) == 5
    assert "now says that it accepted none" in net.errors(0)


def finish(server, state=None, names=("client-0", "client-1"), accepted=None, **more):
    about = {name: {"number": int(name[-1]), "accepted": accepted} for name in names}
    return server("finish", about, state, model={"method": "adamap", **more})


def test_the_run_ends_once(network):
    server = Curious(network(*ADAMAP))
    assert finish(server).facts["scores"] == {}
    site = server.net.sites[0]
    before = (site / "scores.json").read_bytes()
    refused(server, finish(server, server.other_state()), "AskedTooOften", "another state")
    assert (site / "scores.json").read_bytes() == before
    assert finish(server).facts["scores"] == {}  # the same again


def test_a_site_makes_models_of_the_clients_that_take_part(network):
    """One of them may have been forgotten by the server."""
    server = Curious(network(*ADAMAP))
    assert "failed" not in finish(server, names=("client-1",)).facts
    scores = read_json(server.net.sites[0] / "scores.json")
    assert set(scores["adamap"]) == {"client-1"}


def test_a_model_says_what_was_agreed_on_whatever_the_server_says(network):
    from fedprior.reporting import model_file
    from fedprior.reporting.model import SITE_MODEL

    server = Curious(network(*ADAMAP))
    lies = {"config": {"privacy": {"epsilon": 0.1}}, "classes": ["x"], "num_clients": 9, "seed": 5}
    finish(server, **lies, rounds=3, guarantee=None)
    facts = model_file.read(server.net.sites[0] / SITE_MODEL).facts
    document = server.net.document
    assert facts["config"] == document.config
    assert tuple(facts["classes"]) == document.classes
    assert (facts["num_clients"], facts["seed"], facts["rounds"]) == (5, 0, 3)


@pytest.mark.parametrize("place", ["samples", "attempt", "memory", "agreement", "log", "key"])
def test_words_of_an_error_stay_at_the_site(network, monkeypatch, place):
    """A message of Flower's own would carry them: so nothing may be raised, wherever it breaks."""
    net = network(*ADAMAP)
    server = Curious(net)

    def fail(*given, **named):
        raise ValueError(f"{SECRET}: not a number")

    def broken_agreement(document):
        raise ValueError(f"{SECRET} has no agreement")

    if place == "samples":
        monkeypatch.setattr(trees, "read", fail)
    elif place == "attempt":
        monkeypatch.setattr(requests.client_side, "attempt", fail)
    elif place == "memory":
        monkeypatch.setattr("fedprior.sites.asked.memories.held", fail)
    elif place == "agreement":
        net.grid.app = client_app.client_app(broken_agreement)
    elif place == "log":
        monkeypatch.setattr(requests.client_side, "attempt", fail)
        monkeypatch.setattr("fedprior.sites.folder.time.strftime", fail)
    else:
        monkeypatch.setattr("fedprior.sites.keys.sign", fail)
    found = server.round(0)
    assert not found.arrays
    assert SECRET.encode() not in server.bytes
    assert SECRET.encode() not in server.answer.deflate()
    if place not in ("log", "key"):
        assert SECRET in net.errors(0)


def test_a_client_that_hangs_gives_up_in_time(network, monkeypatch):
    """Its node is free for the next round, and the uploads of its neighbors are not lost."""
    net, whole = network(*ADAMAP), requests._upload
    server = Curious(net)
    server.round(0)  # compiled

    def upload(asked, name):
        if name == "client-1":
            time.sleep(60)
        return whole(asked, name)

    monkeypatch.setattr(requests, "_upload", upload)
    about = {f"client-{k}": {"number": k, "accepted": None} for k in (0, 1)}
    found = server("round", about, round=1, deadline=2.0)
    assert list(found.arrays) == ["0/upload"]
    assert found.facts["failed_clients"] == {"client-1": "TimeoutError"}


class TestMasks:
    """What a server may ask of a client whose upload it has, masked."""

    @pytest.fixture
    def server(self, network):
        server = Curious(network(*SUMS, rehearsal=True))
        own = server("hello", arrays={}).facts["masks"]
        self.keys = {k: masks.new_key() for k in range(5)}  # of the others: it plays their part
        publics = {k: masks.public_key(key).hex() for k, key in self.keys.items()}
        server.members = publics | {k: own[f"client-{k}"] for k in (0, 1)}
        return server

    def upload(self, server, attempt="a", members=None, round=0, **more):
        members = server.members if members is None else members
        given = {str(k): key for k, key in members.items()}
        return server.round(round, attempt=attempt, members=given, **more)

    def sealed(self, server, attempt="a", round=0, alive=(0, 2, 3, 4)):
        """What all who are alive have sealed for client 0."""
        context = f"{server.net.document.token} {round} {attempt}".encode()
        members = {k: bytes.fromhex(key) for k, key in server.members.items()}
        own = masks.Attempt(members=members, context=context, threshold=3)
        blobs = {}
        for k in alive:
            if k > 1:
                blobs[k] = own.mask(np.zeros(2, np.int64), key=self.keys[k], own=k)[1][0]
        return blobs

    def unmask(self, server, found, attempt="a", alive=(0, 2, 3, 4), round=0, named=None):
        blobs = self.sealed(server, attempt, round, alive)
        blobs[0] = found.arrays["0/sealed/0"].tobytes()
        given = {str(k): np.frombuffer(blob, np.uint8) for k, blob in blobs.items()}
        members = {str(k): key for k, key in server.members.items()}
        about = {"client-0": {"number": 0, "accepted": None}}
        told = {"round": round, "attempt": attempt, "members": members}
        return server("unmask", about, {"sealed": {"0": given}}, **told, alive=named or list(alive))

    def test_once_as_agreed(self, server):
        found = self.upload(server)
        assert found.arrays["0/upload"].dtype == np.uint64
        shares = self.unmask(server, found)
        assert list(shares.arrays) == ["0/revealed"]
        again = self.unmask(server, found)  # the same question again has the same answer
        np.testing.assert_array_equal(again.arrays["0/revealed"], shares.arrays["0/revealed"])

    def test_before_any_upload(self, server):
        found = self.upload(server, attempt="b")
        (server.net.sites[0] / "memory" / server.net.document.token / "0.attempt.json").unlink()
        assert not self.unmask(server, found, attempt="b").arrays

    def test_another_attempt(self, server):
        found = self.upload(server)
        refused(server, self.unmask(server, found, attempt="b"), "AskedTooOften", "another upload")
        refused(server, self.unmask(server, found, round=1), "AskedTooOften", "another upload")

    def test_the_masks_of_an_upload_that_was_replaced(self, server):
        found = self.upload(server)
        self.upload(server, attempt="b")
        refused(server, self.unmask(server, found), "AskedTooOften", "another upload")

    def test_another_set_of_clients(self, server):
        found = self.upload(server)
        assert self.unmask(server, found).arrays
        refused(
            server, self.unmask(server, found, alive=(0, 2, 3)), "AskedTooOften", "of other clients"
        )

    def test_fewer_than_the_noise_was_planned_for(self, server):
        found = self.upload(server)
        refused(server, self.unmask(server, found, alive=(0, 2)), "ValueError", "at least 3")
        assert self.unmask(server, found).arrays  # it may still ask for what was agreed on

    def test_without_the_client_itself(self, server):
        found = self.upload(server)
        refused(server, self.unmask(server, found, alive=(2, 3, 4)), "ValueError", "not alive")

    def test_a_set_that_is_no_set(self, server):
        found = self.upload(server)
        for alive in ([0, 0, 2, 3], [0, 2, 9], ["0", "2", "3"], [[0], [2], [3]]):
            assert not self.unmask(server, found, named=alive).arrays
        assert self.unmask(server, found).arrays

    def test_the_same_attempt_twice(self, server):
        """Two uploads under one mask would expose the difference of their units."""
        self.upload(server)
        refused(server, self.upload(server), "AskedTooOften", "was sent before")

    def test_the_same_attempt_after_another_one(self, server):
        """Forgetting the first would allow it a second time."""
        self.upload(server)
        assert self.upload(server, attempt="b").arrays
        refused(server, self.upload(server), "AskedTooOften", "was sent before")

    def test_another_number_of_members(self, server):
        few = {k: server.members[k] for k in (0, 2, 3)}
        refused(server, self.upload(server, members=few), "ValueError", "must be 5")
        many = server.members | {9: server.members[3]}
        refused(server, self.upload(server, members=many), "ValueError", "must be 5")

    def test_a_key_in_the_place_of_its_own(self, server):
        replaced = server.members | {0: masks.public_key(masks.new_key()).hex()}
        refused(server, self.upload(server, members=replaced), "ValueError", "wrong key")
        unsafe = server.members | {3: "00" * 32}
        refused(server, self.upload(server, members=unsafe, attempt="b"), "ValueError", "unsafe")

    def test_members_that_are_no_members(self, server):
        for members in ({"x": "00"}, dict.fromkeys(range(5), 5), dict.fromkeys(range(5), "zz")):
            assert not self.upload(server, members=members).arrays
        assert self.upload(server).arrays

    def test_a_single_upload_looks_like_noise(self, server):
        """Every mask has 64 bits a unit: nothing of a small number is left to see."""
        first = self.upload(server).arrays["0/upload"]
        second = self.upload(server, attempt="b").arrays["0/upload"]
        assert (first != second).all()
        high = np.concatenate([first, second]) >> np.uint64(32)  # two alike: once in 10^7 times
        assert len(np.unique(high)) == high.size
