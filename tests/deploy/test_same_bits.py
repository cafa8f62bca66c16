"""A deployment gives the very bits of `debug`, whatever happens to single answers."""

import jax
import numpy as np
import pytest
from flwr.app import Error, Message
from in_memory import ADAMAP, ADAPED, MATRIX, PRIVATE, SMALL, SUMS, MemoryGrid, Network, equal

from fedprior.core import tree
from fedprior.core.files import read_json
from fedprior.deploy import client_app
from fedprior.deploy.app_folder import write_app
from fedprior.exchange import trees
from fedprior.reporting import config as configs
from fedprior.reporting import federations
from fedprior.sites.document import Document

RUNS = {
    "adamap": ADAMAP,
    "adaped": ADAPED,
    "gathered": (
        'methods=["mixture-clustering"]',
        "training.cohort=poisson",
        "training.sampling_rate=0.6",
    ),
    "central": (
        *PRIVATE,
        'methods=["fedavg-fine-tuning"]',
        "training.cohort=poisson",
        "training.sampling_rate=0.8",
    ),
    "matrix": MATRIX,
    "sums": (*SUMS, "training.cohort=fixed", "training.cohort_size=4", "privacy.missing=1"),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run(network, name):
    net = network(*RUNS[name], rehearsal=True, share_scores=True).play()
    result = net.debug()
    equal(net.state(), result.state)
    assert not net.faults()
    assert net.checkpoint().facts["history"] == result.history
    memories, enrolled = result.store.read(np.arange(net.clients.num_clients))
    for client in np.flatnonzero(enrolled):
        same_memory(net, int(client), memories)
    check_scores(net, result)


def same_memory(net, client, memories):
    """What a client keeps of its last round is what `debug` keeps of it."""
    site = net.sites[net.site_of(client)] / "memory" / net.document.token
    packed = trees.read(site / f"{client}.memory", kind="memory", format=2)
    for name, leaf in tree.names(jax.tree.map(lambda rows: rows[client], memories)).items():
        np.testing.assert_array_equal(packed.arrays[f"pending/{name}"], leaf)


def check_scores(net, result):
    """Sites have the scores of `debug`, and the server has those that were shared."""
    found = {}
    for site in net.sites:
        found |= read_json(site / "scores.json")[net.document.method]
    wanted = dict(zip(map(str, net.clients.clients), result.scores.tolist(), strict=True))
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("groups", [((0, 1, 2, 3, 4),), ((0,), (1,), (2,), (3,), (4,))])
def test_however_clients_are_spread_over_nodes(network, groups):
    net = network(*ADAMAP, groups=groups).play()
    equal(net.state(), net.debug().state)


def lose(net, absent, *, computed):
    """A grid on which clients (all of a node) are absent in some rounds; `computed`: too late."""

    def hook(asked, deliver):
        gone = [k for k in absent.get(asked.round, ()) if net.site_of(k) == asked.node - 100]
        if not gone or asked.do != "round":
            return deliver()
        if computed:
            deliver()
        return None

    net.grid.hook = hook


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", ["adamap", "central", "matrix"])
def test_clients_that_are_absent_or_late(network, name, computed):
    net = network(*RUNS[name], rehearsal=True)
    absent = {0: (0, 1), 1: (4,), 2: (2, 3)}
    lose(net, absent, computed=computed)
    net.play()
    equal(net.state(), net.debug(absent=absent).state)
    assert {fault["reason"] for fault in net.faults()} == {"no answer before the deadline"}


def test_a_client_that_fails_alone_at_its_node(network, monkeypatch):
    """Its neighbor at the same site is accepted by itself."""
    from fedprior.sites import requests

    net, whole = network(*ADAMAP), requests._upload

    def upload(asked, name):
        if name == "client-2" and asked.facts["round"] == 1:
            raise OSError("its disk is full")
        return whole(asked, name)

    monkeypatch.setattr(requests, "_upload", upload)
    net.play()
    equal(net.state(), net.debug(absent={1: (2,)}).state)
    assert net.faults() == [{"round": 1, "who": "client-2", "reason": "OSError"}]


def test_a_node_that_goes_and_comes_back_under_another_number(network):
    net = network(*ADAMAP)

    def hook(asked, deliver):
        if asked.do == "round" and asked.round == 0 and asked.node == 100:
            net.grid.offline = {102}  # during round 0: it still answers
        if asked.do == "round" and asked.round == 1 and asked.node == 100:
            net.grid.nodes[202] = net.grid.nodes[102]
        return deliver()

    net.grid.hook = hook
    net.play()
    equal(net.state(), net.debug(absent={1: (4,)}).state)


def test_a_message_that_is_not_taken_costs_its_node_one_round(network):
    """The SuperLink gives no id for a node that is just being removed, or for too many bytes."""
    net = network(*ADAMAP)
    push, refused = net.grid.push_messages, {(100, 0): [""], (102, 0): [None], (101, 1): []}

    def pushed(messages):
        sent, asked = push(messages), net.grid.sent[-1]
        return refused.get((asked.node, asked.round), sent) if asked.do == "round" else sent

    net.grid.push_messages = pushed
    net.play()
    equal(net.state(), net.debug(absent={0: (0, 1, 4), 1: (2, 3)}).state)
    assert [fault["who"] for fault in net.faults()] == [
        "client-0, client-1",
        "client-4",
        "client-2, client-3",
    ]


@pytest.mark.parametrize("changes", [('methods=["fedavg"]',), PRIVATE])
def test_simulated_partitions(tmp_path, monkeypatch, one_process, agreement_of, changes):
    """What a bare `flwr run .` does: no agreement, no keys; the nodes share the app's dataset."""
    options = ("data.options.num_clients=4", "training.rounds=2", "data.most_samples=20")
    config = configs.read(None, [*SMALL, *changes, *options])
    write_app(tmp_path / "app", config)
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    clients = federations.federation(config.data, seed=0)
    net = Network(tmp_path, clients, ((0, 2), (1, 3)), config, None, agreement_of)
    nodes = {k: {"partition-id": k, "num-partitions": 2} for k in (0, 1)}
    net.grid = MemoryGrid(nodes, client_app.client_app(agreement_of))
    net.play(rounds=3)
    net.document = Document.read(net.run / "agreement.json")
    assert net.document.training.rounds == 3
    assert net.document.rehearsal
    equal(net.state(), net.debug().state)
    assert {path.name for path in (net.run / "sites").iterdir()} == {"site-0", "site-1"}


def test_an_error_of_flower_itself(network):
    net = network(*ADAMAP)

    def hook(asked, deliver):
        if asked.do == "round" and asked.round == 1 and asked.node == 101:
            return Message(Error(code=8, reason="secret words"), reply_to=asked.message)
        return deliver()

    net.grid.hook = hook
    net.play()
    equal(net.state(), net.debug(absent={1: (2, 3)}).state)
    assert net.faults() == [{"round": 1, "who": "client-2, client-3", "reason": "Flower's error 8"}]
