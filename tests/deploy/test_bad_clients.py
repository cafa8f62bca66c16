"""Clients that send anything: it is refused by name, and the run goes on with the others."""

import json
import pickle

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from in_memory import ADAMAP, ADAPED, PRIVATE, SUMS, changed, equal, resent

from fedprior.core import tree
from fedprior.core.files import read_json
from fedprior.deploy import wire
from fedprior.deploy.nodes import FlowerNodes
from fedprior.sites import keys
from fedprior.sites.roster import Roster
from fedprior.sites.run import EveryoneFailed


def upload(change):
    """Client 4 sends another upload than it should, signed as its own."""

    def spoil(net, answer):
        return changed(
            answer, key=net.sites[2], arrays=lambda own: {"4/upload": change(own["4/upload"])}
        )

    return spoil


def weight(value):
    return upload(lambda own: np.append(own[:-1], np.float32(value)))


def signed(payload):
    return lambda net, answer: resent(
        answer, payload, keys.sign(net.sites[2] / "node.key", payload)
    )


def told(change):
    return lambda net, answer: changed(answer, key=net.sites[2], facts=change)


def bare(**records):
    """A message of another app."""
    return lambda net, answer: Message(RecordDict(records), reply_to=net.grid.sent[-1].message)


REFUSED = "RefusedUpload: an upload must "
FORGERIES = {
    "NaN": (upload(lambda own: own * np.nan), REFUSED + "be finite"),
    "infinity": (upload(lambda own: own + np.inf), REFUSED + "be finite"),
    "shape": (upload(lambda own: own[:-1]), REFUSED + "have shape"),
    "matrix": (upload(lambda own: own[None]), REFUSED + "have shape"),
    "nothing": (upload(lambda own: own[:0]), REFUSED + "have shape"),
    "double": (upload(lambda own: own.astype(np.float64)), REFUSED + "be a float32 array"),
    "whole": (upload(lambda own: own.astype(np.int32)), REFUSED + "be a float32 array"),
    "large": (upload(lambda own: np.zeros(2**20, np.float32)), "BadMessage"),
    "debt": (weight(-1), "RefusedUpload: a weight must be in"),
    "greed": (weight(1e6), "RefusedUpload: a weight must be in"),
    "empty": (lambda net, answer: changed(answer, key=net.sites[2], arrays=lambda own: {}), None),
    "another name": (
        lambda net, answer: changed(
            answer, key=net.sites[2], arrays=lambda own: {"4/memory": own["4/upload"]}
        ),
        REFUSED + "be a float32 array, got NoneType",
    ),
    "garbage": (signed(b"\x00garbage" * 50), "BadMessage"),
    "no bytes": (signed(b""), "BadMessage"),
    "a pickle": (signed(pickle.dumps(np.zeros(3))), "BadMessage"),
    "JSON": (signed(b'{"4/upload": [1, 2]}'), "BadMessage"),
    "no nonce": (told(lambda facts: {}), "an answer to another request"),
    "old nonce": (told(lambda facts: {"nonce": "0" * 32}), "an answer to another request"),
    "a reason": (told(lambda facts: {**facts, "failed": "x" * 10**5}), "x" * 80),
    "reasons": (told(lambda facts: {**facts, "failed": {"a": [1]}}), "{'a': [1]}"),
    "unsigned": (lambda net, answer: changed(answer, signature=b""), "NotSigned"),
    "half signed": (lambda net, answer: changed(answer, signature=b"\x30\x01"), "NotSigned"),
    "signed by another": (lambda net, answer: changed(answer, key=net.sites[0]), "NotSigned"),
    "signed before": (
        lambda net, answer: changed(answer, facts=lambda facts: {**facts, "more": 1}),
        "NotSigned",
    ),
    "no records": (bare(), "BadMessage"),
    "no bytes in it": (bare(content=ArrayRecord()), "BadMessage"),
    "no array": (
        bare(content=ConfigRecord({"bytes": b"x"}), signature=ConfigRecord({"bytes": b""})),
        "BadMessage",
    ),
    "Flower's own array": (
        bare(content=ArrayRecord([np.zeros(3)]), signature=ConfigRecord({"bytes": "text"})),
        "BadMessage",
    ),
    "an error": (
        lambda net, answer: Message(
            Error(code=2, reason="secret"), reply_to=net.grid.sent[-1].message
        ),
        "Flower's error 2",
    ),
}


def spoiling(net, spoil, *, round=1, node=102, do="round"):
    """A grid on which a node sends something else in one round."""

    def hook(asked, deliver):
        answer = deliver()
        if (asked.do, asked.round, asked.node) != (do, round, node):
            return answer
        return spoil(net, answer)

    net.grid.hook = hook


def test_every_forgery_is_refused_by_name(network):
    """One in each round: client 4 is as absent, and the others are not disturbed."""
    forgeries = dict(enumerate(FORGERIES.items()))
    net = network(*ADAMAP, f"training.rounds={len(forgeries) + 1}")

    def hook(asked, deliver):
        answer = deliver()
        if asked.do != "round" or asked.node != 102 or asked.round not in forgeries:
            return answer
        return forgeries[asked.round][1][0](net, answer)

    net.grid.hook = hook
    net.play()
    equal(net.state(), net.debug(absent=dict.fromkeys(forgeries, (4,))).state)
    said = {fault["round"]: fault for fault in net.faults()}
    assert len(said) == len(net.faults())
    for round, (name, (_, reason)) in forgeries.items():
        if reason is None:  # nobody said anything wrong, there was just no upload
            assert round not in said, name
            continue
        assert said[round]["who"] == "client-4", name
        assert said[round]["reason"].startswith(reason), name
        assert len(said[round]["reason"]) < 200
    assert "secret" not in json.dumps(net.faults())


def test_a_message_without_content_is_no_answer(network):
    """Flower's own classes do not make one, but a rogue can."""
    net = network(*ADAMAP)
    pull = net.grid.pull_messages

    def pulled(ids):
        found = pull(ids)
        for message in found:
            if net.grid.sent[-1].round == 1 and message.metadata.src_node_id == 102:
                message.__dict__["_content"] = None
        return found

    net.grid.pull_messages = pulled
    net.play()
    assert {"round": 1, "who": "client-4", "reason": "BadMessage"} in net.faults()


def test_a_long_message_is_clipped_again(network):
    """The state moves by no more than one client may move it, whatever it sends."""
    net = network(*PRIVATE, rehearsal=True)
    spoiling(net, upload(lambda own: 100 * own / np.linalg.norm(own)), round=2)  # the last one
    net.play()
    honest = net.debug().state
    found, wanted = net.state(), tree.names(honest)
    apart = [np.ravel(found[name] - np.asarray(leaf)) for name, leaf in wanted.items()]
    moved = float(np.linalg.norm(np.concatenate(apart)))
    clip, clients = 0.5, 5
    assert 0 < moved <= 2 * clip / clients * 1.001
    assert not net.faults()
    assert net.checkpoint().facts["accepted"]["4"] == 2


def test_a_client_answers_for_another_one(network):
    """With its own key, in the name of a client elsewhere: that one's own upload counts."""
    net = network(*ADAMAP)

    def spoil(net, answer):
        more = {"0/upload": np.zeros(16, np.float32), "9/upload": np.zeros(16, np.float32)}
        return changed(answer, key=net.sites[2], arrays=lambda own: own | more)

    spoiling(net, spoil)
    net.play()
    equal(net.state(), net.debug().state)
    assert [(fault["who"], fault["reason"]) for fault in net.faults()] == [
        ("client-4", "it answered for client 0"),
        ("client-4", "it answered for client 9"),
    ]


def test_a_neighbor_at_the_same_site_that_was_not_asked(network):
    """It is not in the cohort; its site sends an upload in its name."""
    net = network(*ADAPED)
    drawn = {round: set(net.agreement.draw(round).tolist()) for round in range(3)}
    round, client, site = next(
        (round, client, site)
        for round, own in drawn.items()
        for site, group in enumerate(net.groups)
        for client in group
        if client not in own and own & set(group)  # its neighbor is asked
    )

    def spoil(net, answer):
        more = {f"{client}/upload": np.ones(16, np.float32)}
        return changed(answer, key=net.sites[site], arrays=lambda own: own | more)

    spoiling(net, spoil, round=round, node=100 + site)
    net.play()
    equal(net.state(), net.debug().state)
    (fault,) = net.faults()
    assert fault["reason"] == f"it answered for client {client}"


def test_many_strangers_do_not_fill_the_disk(network):
    net = network(*ADAMAP)
    many = {f"{'n' * 1000}{k}/upload": np.zeros(0, np.float32) for k in range(500)}
    spoiling(net, lambda net, answer: changed(answer, key=net.sites[2], arrays=lambda own: many))
    net.play()
    assert 0 < (net.part / "faults.jsonl").stat().st_size < 2000


def test_an_answer_twice_counts_once(network):
    net = network(*ADAMAP)
    spoiling(net, lambda net, answer: [answer, answer])
    net.play()
    equal(net.state(), net.debug().state)


def test_an_answer_of_an_earlier_round(network):
    net, kept = network(*ADAMAP), []

    def hook(asked, deliver):
        answer = deliver()
        if asked.do == "round" and asked.node == 102:
            kept.append(answer)
            if asked.round == 1:
                return resent(answer, *wire.read(kept[0], most=2**20)[1:])  # all but its address
        return answer

    net.grid.hook = hook
    net.play()
    equal(net.state(), net.debug(absent={1: (4,)}).state)
    assert [fault["reason"] for fault in net.faults()] == ["an answer to another request"]


def test_a_node_that_claims_the_clients_of_another(network):
    """It greets in their name, before and after them; requests still go to the right place."""
    net = network(*ADAMAP)

    def hook(asked, deliver):
        answer = deliver()
        if asked.do == "hello" and asked.node in (102, 103):
            everyone = [str(name) for name in net.clients.clients]
            return changed(answer, key=net.sites[2], facts=lambda own: own | {"clients": everyone})
        return answer

    net.grid.nodes = {103: net.grid.nodes[102], **net.grid.nodes}
    net.grid.hook = hook
    net.play()
    equal(net.state(), net.debug().state)
    said = {fault["reason"] for fault in net.faults()}
    assert said == {"client 'client-0' (and 3 others) is not on the roster with that key"}


@pytest.mark.parametrize(
    "facts",
    [
        {"clients": 5},
        {"clients": None},
        {"clients": [["client-4"], {"a": 1}, None, "client-4"]},
        {"clients": {"client-4": 1}},
        {"clients": ["x" * 10**5] * 3},
        {"clients": [f"client {k}" for k in range(10**4)]},
        {"clients": ["client-4"], "masks": "no keys"},
        {"clients": ["client-4"], "masks": {"client-4": "xyz"}},
        {"clients": ["client-4"], "masks": {"client-4": 5}},
        {"clients": ["client-4"], "masks": {"client-4": "00"}},
    ],
)
def test_a_greeting_may_say_anything(network, facts):
    """Whatever one node says, the others are known, and the list of faults stays short."""
    net = network(*SUMS, rehearsal=True)
    spoil = lambda net, answer: changed(  # noqa: E731
        answer, key=net.sites[2], facts=lambda own: {"nonce": own["nonce"], **facts}
    )
    spoiling(net, spoil, do="hello", round=None)
    nodes = FlowerNodes(net.grid, net.document, Roster.read(net.app / "roster.json"))
    said = nodes.greet()
    assert nodes.present >= {"client-0", "client-1", "client-2", "client-3"}
    assert nodes.masks.keys() == {0, 1, 2, 3}
    assert len(json.dumps(said)) < 1000
    assert nodes.greet() == []


def test_scores_may_be_anything(network):
    """A client can spoil its own score, and neither another's nor the end of the run."""
    net = network(*ADAMAP, share_scores=True)
    scores = {"adamap": {"client-4": "good", "client-0": 0.0}, "../../x": {"client-4": 1.0}}
    spoil = lambda net, answer: changed(  # noqa: E731
        answer, key=net.sites[2], facts=lambda own: own | {"scores": scores}
    )
    spoiling(net, spoil, do="finish", round=None)
    net.play()
    summary = json.loads(net.folder.summary.read_text())
    assert set(summary["methods"]) == {"adamap", "local"}
    known = [read_json(site / "scores.json")["adamap"] for site in net.sites[:2]]
    mean = np.mean([score for own in known for score in own.values()])
    assert summary["methods"]["adamap"]["mean"] == pytest.approx(mean)


def test_a_clear_round_in_which_everybody_fails_ends_the_run(network):
    net = network(*ADAMAP)

    def hook(asked, deliver):
        if asked.do == "round" and asked.round == 1:
            return Message(Error(code=2, reason="no"), reply_to=asked.message)
        return deliver()

    net.grid.hook = hook
    with pytest.raises(EveryoneFailed, match=r"round 2: none of 5 clients .*/faults\.jsonl"):
        net.play()
    assert len(net.faults()) == 3
    net.grid.hook = lambda asked, deliver: deliver()
    net.play()
    equal(net.state(), net.debug().state)


def test_a_clear_run_does_not_rush_through_rounds_without_anybody(network):
    net = network(*ADAMAP)

    def hook(asked, deliver):
        if asked.do == "round" and asked.round == 0:
            net.grid.offline = set(net.grid.nodes)  # after this round all nodes are gone
        return deliver()

    net.grid.hook = hook
    with pytest.raises(EveryoneFailed, match="no client is present after"):
        net.play()
    net.grid.offline = set()
    net.play()
    equal(net.state(), net.debug().state)


def test_what_flower_cannot_put_together_is_no_answer(network):
    """A rogue's objects need not even be a message; pulling them raises inside Flower."""
    net = network(*ADAMAP)
    pull, thrown = net.grid.pull_messages, []

    def pulled(ids):
        if not thrown and net.grid.sent[-1].round == 1:
            thrown.append(True)
            raise AttributeError("'RecordDict' object has no attribute 'metadata'")
        return pull(ids)

    net.grid.pull_messages = pulled
    net.play()
    equal(net.state(), net.debug().state)
