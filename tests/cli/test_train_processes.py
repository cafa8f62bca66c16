"""`fedprior train` on several devices and in several processes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedprior
from fedprior.exchange.checkpoint import read_checkpoint
from fedprior.privacy.opening import read
from fedprior.privacy.records import merged, spent_rounds
from fedprior.reporting.folder import Folder

PRIVATE = {
    "data__name": "synthetic",
    "training__cohort": "everyone",
    "training__cohort_size": 0,
    "training__store": "disk",
    "privacy__epsilon": 4.0,
    "privacy__noise_multiplier": 8.0,
    "privacy__delta": 0.001,
}


def two(options):
    """The command in two processes: what each printed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    paths = [str(Path(fedprior.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    shared = ["--processes", "2", "--coordinator", f"localhost:{port}"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "fedprior", *options, *shared, "--process", str(process)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
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
    assert [each.returncode for each in started] == [0, 0], said
    return [out for out, _ in said]


def models(folder):
    file = folder.part("fedavg", 0) / "checkpoint.safetensors"
    return {name: np.asarray(each) for name, each in read_checkpoint(file).arrays.items()}


def test_two_processes_make_one_private_run(command, fast, tmp_path):
    """Process 0 prints, writes and charges; the noise is that of one process, to rounding."""
    options = ["train", "--algorithm", "fedavg", *fast(**PRIVATE), "--json"]
    alone, both = Folder(tmp_path / "alone"), Folder(tmp_path / "both")
    assert command(*options, "--out", alone.path).code == 0
    first, second = two([*options, "--out", str(both.path)])
    assert json.loads(first)["runs"][0]["rounds"] == 3
    assert second == ""
    found, wanted = models(both), models(alone)
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)
    ledgers = [read(each.ledger("fedavg", 0))[1] for each in (alone, both)]
    charged = [merged(spent_rounds(lines)) for lines in ledgers]  # a line has any number of rounds
    assert charged[0] == charged[1]
    resumed, _ = two(["train", "--resume", str(both.path), "--json"])
    assert json.loads(resumed)["methods"] == json.loads(first)["methods"]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--devices", "none"], "--devices must be all or a whole number above 0, got 'none'"),
        (["--devices", "2"], "devices must be at most 1, got 2. A CPU is one device."),
        (["--process", "1"], "--process and --coordinator need --processes N."),
        (["--processes", "2"], "--out must be given with --processes, the same in each."),
    ],
)
def test_devices_that_are_not_there(command, fast, options, rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = command("train", "--algorithm", "fedavg", *fast(), *options)
    assert found.code == 2
    assert rule in found.err
    assert not (tmp_path / "runs").exists()


def test_all_devices_of_a_cpu_are_one(command, fast, tmp_path):
    out = tmp_path / "run"
    options = ["train", "--algorithm", "fedavg", *fast(), "--devices", "all", "--quiet"]
    assert command(*options, "--out", out).code == 0
    assert Folder(out).read().training.devices == 1
    file = out / "checkpoint" / "fedavg" / "seed-0" / "checkpoint.safetensors"
    assert read_checkpoint(file).facts["mesh"] == [1, 1]
