"""Clients on several devices and in several processes: what one device has, up to rounding."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import sharded
import toys

import fedprior
from fedprior.engines.mesh import Mesh, mesh_of
from fedprior.engines.processes import join, number_of
from fedprior.privacy.cohort import Cyclic

HERE = Path(__file__).parent
CLOSE = 1e-6  # of sums in another order; 1e-5 is what engines promise each other


def environment(devices):
    flags = os.environ.get("XLA_FLAGS", "")
    flag = f"{flags} --xla_force_host_platform_device_count={devices}"
    paths = [str(Path(fedprior.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "XLA_FLAGS": flag, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """What a process with four devices found; see sharded.py."""
    command = [sys.executable, HERE / "sharded.py", tmp_path_factory.mktemp("four")]
    done = subprocess.run(
        command, env=environment(4), capture_output=True, text=True, timeout=600, cwd=HERE
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "case",
    ["mlp", "everyone", "few", "few on disk", "more shards than clients", "gather", "not finite"],
)
def test_four_devices_do_what_one_does(four, case):
    """States, memories, personal models in order, scores and counts; cohorts of any size."""
    assert four[case] < CLOSE


def test_shards_exchange_one_sum_a_round(four):
    assert four["exchanges"] == {"loop": ["all-reduce"], "all": ["all-reduce"]}


def test_a_client_that_fails_is_left_out_on_its_shard(four):
    assert four["left out"] == 3


def test_noise_is_drawn_once_and_costs_the_same(four):
    found = four["private"]
    assert found["noisy"] < CLOSE
    assert found["plain"] < CLOSE
    assert found["spent"][0] == found["spent"][1] > 0


def test_a_resumed_run_has_the_same_bits_on_as_many_devices(four):
    for apart, said in four["resumed"]:
        assert apart == 0
        kind, words = said
        assert kind == "ValueError"
        assert "as many devices as it began with, 4 in 1 process, got 2 in 1" in words


def test_what_cannot_be_shared_is_refused(four):
    kind, words = four["secure"]
    assert kind == "PrivacyError"
    assert re.search("devices must be 1, in one process, with secure noise, got 4 in 1", words)
    assert "devices must be at most 4, got 5" in four["too many"][1]


@pytest.fixture(scope="module")
def alone():
    """The run of one_of_two.py on one device."""
    return fedprior.simulate(toys.averaging(), toys.points(), rounds=8, cohort=sharded.SMALL)


def two(folder, store, end=-1):
    """Two processes: what each printed, and how they ended."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, "one_of_two.py", str(process), str(port), folder, store, str(end)],
            env=environment(2),
            cwd=HERE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in (0, 1)
    ]
    try:
        said = [each.communicate(timeout=300) for each in started]
    finally:
        for each in started:
            each.kill()
    # Gloo writes there as well, from threads of its own, in pieces.
    lines = [
        [line for line in out.splitlines() if line.isdigit() or line.startswith("done ")]
        for out, _ in said
    ]
    return lines, [each.returncode for each in started], [err for _, err in said]


@pytest.fixture(scope="module", params=["device", "disk"])
def both(request, tmp_path_factory):
    """What two processes printed, with each store."""
    printed, ended, errors = two(tmp_path_factory.mktemp("whole"), request.param)
    assert ended == [0, 0], errors
    return request.param, printed


def test_two_processes_do_what_one_does(both, alone):
    """Process 0 alone reports; both have the same result."""
    _, printed = both
    assert printed[0][-1] == printed[1][-1]
    assert printed[0][:-1]
    assert printed[1] == printed[1][-1:]
    gamma = json.loads(printed[0][-1].split(" ", 2)[2])
    np.testing.assert_allclose(gamma, alone.state["gamma"], atol=CLOSE)


def test_two_processes_go_on_after_one_is_killed(both, tmp_path):
    """From the last checkpoint that both had sealed, to the bit."""
    store, printed = both
    _, ended, _ = two(tmp_path, store, end=5)
    assert ended[1] == -9
    assert ended[0] != 0
    again, ended, errors = two(tmp_path, store)
    assert ended == [0, 0], errors
    assert int(again[0][0]) > 2
    assert again[0][-1] == printed[0][-1]
    names = [path.name for path in sorted(tmp_path.glob("memory/*"))]
    assert names == (["process-0-of-2", "process-1-of-2"] if store == "disk" else [])


def mesh(shards, processes=1):
    """A mesh that nothing can be computed on."""
    per = shards // processes
    return Mesh(tuple(SimpleNamespace(process_index=place // per) for place in range(shards)))


@pytest.mark.parametrize("shards", [2, 3, 4, 8])
def test_every_client_has_one_row_of_one_shard(shards):
    number = 5 * shards - 1
    some = mesh(shards)
    clients = some.everyone(number).reshape(shards, -1)
    for client in range(number):
        shard, row = some.owners(np.array(client)), client // shards
        assert clients[shard, row] == client
    rows = np.arange(1, 5)
    chunk = np.concatenate([some.members(rows, number)])
    places = some.places(rows, chunk, number)
    np.testing.assert_array_equal(chunk[places], np.arange(shards, number))


def test_slots_are_on_the_shard_of_their_client():
    some, width = mesh(4), 6
    clients = np.array([0, 3, 4, 5, 9, 17, 22])
    slots = some.slots(clients, width)
    assert len(set(slots)) == len(slots)
    np.testing.assert_array_equal(slots // width, some.owners(clients))
    with pytest.raises(ValueError, match="at most 1 clients"):
        some.slots(clients, 1)


@pytest.mark.parametrize("parts", [2, 4, 5, 8])
def test_cohorts_that_take_turns_are_spread(parts):
    """Every fourth client, on four shards: no shard has much more than its share."""
    some, cohort = mesh(4), Cyclic(parts=parts)
    for round in range(parts):
        drawn = cohort.draw(0, round, 4000)
        assert some.most(drawn) < 1.25 * len(drawn) / 4


def test_clients_of_processes():
    some = mesh(4, processes=2)
    clients = np.arange(40)
    np.testing.assert_array_equal(some.processes_of(clients), some.owners(clients) // 2)
    assert some.processes == 2


def test_one_device_is_no_mesh():
    assert mesh_of() == mesh_of(1) == Mesh()
    assert number_of("3") == 3
    with pytest.raises(ValueError, match="--devices must be all or a whole number above 0"):
        number_of("two")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (("two",), "--processes must be auto or a whole number above 0, got 'two'"),
        (("2",), "--process and --coordinator must be given with --processes 2"),
        (("2", 2, "a:1"), r"--process must be in 0\.\.1, got 2"),
        (("2", 0, "a"), "--coordinator must be of the form HOST:PORT, got 'a'"),
        (("auto", 0), "--process and --coordinator must be left out with --processes auto"),
        (("auto",), "--processes must be a number where no cluster is found"),
    ],
)
def test_processes_that_cannot_be_joined(given, rule, monkeypatch):
    def initialize():
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(ValueError, match=rule):
        join(*given)
