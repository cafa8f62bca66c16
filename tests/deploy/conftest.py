"""Deployments in memory, with agreements that are built once and shared by all tests."""

import json
from functools import lru_cache

import pytest
from flwr.supercore.task_identity import TaskIdentity
from in_memory import Clock, deploy

from fedprior.deploy import nodes
from fedprior.sites import run
from fedprior.sites.document import Document

_ALONE = Document.alone


def _bits(document):
    """What decides the algorithm and all draws: two runs of one configuration share them."""
    told = json.loads(document.to_json())
    return json.dumps([told[name] for name in ("method", "seed", "config", "facts")])


@pytest.fixture(scope="session")
def agreement_of():
    """Every node builds an agreement anew, in a process of its own; here all share one, compiled
    once.
    """
    built = {}

    def agreement_of(document):
        if (bits := _bits(document)) not in built:
            built[bits] = document.agreement
        return built[bits]

    return agreement_of


@pytest.fixture(scope="session")
def alone():
    """Local training is one of all documents for the same samples, and of one round."""
    built = {}

    def alone(document):
        facts = json.dumps(document.facts.as_json())
        if facts not in built:
            built[facts] = _ALONE(document)[0]
        return built[facts], 1

    return alone


@pytest.fixture(scope="session")
def documents():
    """Every request reads the agreement anew; here it is parsed once."""
    return lru_cache(maxsize=8)(Document.from_json)


@pytest.fixture
def one_process(monkeypatch, alone, documents):
    """Flower's own identity of a process, a clock that waits for nobody, programs compiled once.

    Nothing here stops the machine, so nothing has to be on disk in time.
    """
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    clock = Clock()
    for module in (nodes, run):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(Document, "alone", alone)
    monkeypatch.setattr(Document, "from_json", documents)
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def network(tmp_path, monkeypatch, one_process, federation, agreement_of):
    """`network(*changes)`: a deployment whose sites have accepted their agreement."""

    def build(*changes, root=tmp_path, **options):
        options = {"agreement_of": agreement_of, **options}
        made = deploy(root, federation, *changes, **options)
        monkeypatch.syspath_prepend(str(made.app))
        return made

    return build
