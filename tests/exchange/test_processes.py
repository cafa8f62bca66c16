"""Two rounds with the server and each client in a process of its own, sharing nothing but bytes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import peer
import pytest

from fedprior.core import tree
from fedprior.data.federation import Federation
from fedprior.engines.debug import debug
from fedprior.exchange.facts import Facts

CLIENTS, ROUNDS = 3, 2


class Process:
    """A peer behind its pipes: `ask` sends a frame and reads the answer."""

    def __init__(self, programs, *arguments):
        command = [sys.executable, str(Path(peer.__file__)), *arguments]
        # What one client has compiled serves the next one.
        cache = {"JAX_COMPILATION_CACHE_DIR": str(programs)}
        cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env={**os.environ, **cache}, **pipes)

    def ask(self, arrays=None, **facts):
        self.process.stdin.write(peer.pack(arrays, **facts))
        self.process.stdin.flush()
        answer = peer.read(self.process.stdout)
        assert answer is not None, "the peer died"
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0


@pytest.fixture(scope="module")
def clients():
    draws = np.random.default_rng(3)
    owner = np.repeat(np.arange(CLIENTS), (9, 12, 15))
    x, y = draws.normal(size=(len(owner), 4)), draws.integers(3, size=len(owner))
    clients = Federation.from_arrays(x, y, owner, classes=["0", "1", "2"])
    return replace(clients, most_samples=clients.train.largest)


@pytest.fixture(scope="module")
def peers(clients, tmp_path_factory):
    """The server, and clients that have their own samples alone."""
    facts = json.dumps(Facts.of(clients).as_json())
    programs = tmp_path_factory.mktemp("programs")
    processes = [Process(programs, "server", facts)]
    for number in range(CLIENTS):
        folder = tmp_path_factory.mktemp(f"client-{number}")
        own = clients.train.client(number)
        np.savez(folder / "samples.npz", x=own.x, y=own.y)
        processes.append(Process(programs, "client", facts, str(folder), str(number)))
    yield processes[0], processes[1:]
    for process in processes:
        process.close()


@pytest.mark.parametrize("run", sorted(peer.RUNS))
def test_processes_that_share_nothing_but_bytes_are_debug_to_the_bit(run, peers, clients):
    server, others = peers
    for process in (server, *others):
        process.ask(do="begin", run=run)
    token, accepted = run.encode().hex()[:16].ljust(16, "0"), [None] * CLIENTS
    for round in range(ROUNDS):
        opened = server.ask(do="open", round=round)
        for number in reversed(opened.facts["cohort"]):  # answers come in any order
            request = {"round": round, "token": token, "accepted": accepted[number]}
            answer = others[number].ask(opened.arrays, do="take_part", **request)
            server.ask(answer.arrays, do="upload", client=number)
            accepted[number] = round
        closed = server.ask(do="close", round=round)
    algorithm, rest = peer.build(run, *clients.shape, clients.num_classes)
    twin = debug(algorithm, clients, rounds=ROUNDS, test=False, **rest)
    expected = tree.names(twin.state)
    assert closed.arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(closed.arrays[name], value, err_msg=name)
    assert any(number is not None for number in accepted)
