"""Changed bytes and second processes: refused by name, or without any effect on what is read."""

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedprior
from fedprior.core.check import PrivacyError
from fedprior.data import synthetic
from fedprior.exchange import memory
from fedprior.reporting import ledgers

TOKEN = "0123456789abcdef" * 2
KEPT = {"checkpoint", "model", "privacy"}  # folders of a run that are read back, with config.toml


def read_memory(folder):
    with memory.held(folder, token=TOKEN, client=0) as own:
        return own.read({"theta": np.zeros(50)}, accepted=3)["theta"].tolist()


@pytest.fixture(scope="module")
def world(tmp_path_factory, command_once, table, new_rows):
    """Runs with memories on the device and on disk, a private one, an exported model, a memory."""
    root = tmp_path_factory.mktemp("world")
    fast = ["--set", "training.rounds=3", "--set", "training.local_steps=2"]
    fast += ["--set", "training.batch_size=4", "--set", "training.cohort_size=2"]
    fast += ["--set", "model.name=logistic", "--set", "training.theta_rate=0.1"]
    words = ["--data", table, "--client", "shop", "--label", "outcome", "--quiet"]
    for store in ("device", "disk"):
        own = ["--algorithm", "adaped", "--set", f"training.store={store}"]
        assert command_once("train", *words, *fast, *own, "--out", root / store) == 0
    names = ["--client", "shop", "--label", "outcome"]
    assert command_once("encoder", table, *names, "--out", root / "e.json") == 0
    private = ["--set", "privacy.epsilon=8", "--set", "privacy.delta=0.01"]
    private += ["--encoder", root / "e.json", "--algorithm", "fedavg"]
    assert command_once("train", "--data", table, *fast, *private, "--out", root / "private") == 0
    assert command_once("export", root / "device", "--out", root / "public.safetensors") == 0
    for accepted, round in ((None, 1), (1, 3)):
        with memory.held(root / "memories", token=TOKEN, client=0) as own:
            own.read({"theta": np.zeros(50)}, accepted=accepted)
            own.write({"theta": np.arange(50.0) + round}, round=round)
    return root


@pytest.fixture(scope="module")
def command_once():
    from fedprior.cli.main import main

    def run(*words):
        given, sys.argv = sys.argv, ["fedprior", *map(str, words)]
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0
        finally:
            sys.argv = given
        return 0

    return run


def readings(world, frame, capsys):
    """For every kind of file, everything that is read back from it, or the refusal."""

    def load(path):
        model = fedprior.load(path)
        memories = [] if model.clients is None else map(model.clients.memory, model.clients.names)
        leaves = [np.asarray(leaf).tolist() for leaf in _leaves([model.state, *memories])]
        return leaves, model.facts, model.outputs(frame)[0].tolist()

    def resume(folder):
        copy = shutil.copytree(folder, folder.with_name(f"{folder.name}-again"))
        try:
            for scores in copy.rglob("scores.safetensors"):
                scores.unlink()  # so that the checkpoint is read
            return _command(capsys, copy)
        finally:
            shutil.rmtree(copy)

    def finished(folder):
        copy = shutil.copytree(folder, folder.with_name(f"{folder.name}-again"))
        try:
            return _command(capsys, copy)
        finally:
            shutil.rmtree(copy)

    return {
        "model": lambda run: load(run),
        "resume": resume,
        "finished": finished,
        "ledger": lambda run: ledgers.spent(run),
    }


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def _command(capsys, folder):
    """What `train --resume` says; a refusal is raised."""
    from fedprior.cli.main import main

    given, sys.argv = sys.argv, ["fedprior", "train", "--resume", str(folder), "--json", "--quiet"]
    capsys.readouterr()
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise ValueError(capsys.readouterr().err) from None
    finally:
        sys.argv = given
    answer = json.loads(capsys.readouterr().out)
    return {name: value for name, value in answer.items() if name != "run"}


def places(world):
    """(file, what reads it) of all files that are read back."""
    chosen = []
    for run in ("device", "disk", "private"):
        for path in sorted((world / run).rglob("*")):
            parts = path.relative_to(world / run).parts
            kept = parts[0] in KEPT or parts[0] == "config.toml"
            if not kept or not path.is_file() or not path.stat().st_size:
                continue
            if parts[0] == "model":
                chosen.append((path, ["model"]))
            elif parts[0] == "privacy":
                chosen.append((path, ["ledger", "finished"]))
            elif path.name == "scores.safetensors":
                chosen.append((path, ["finished"]))
            else:
                chosen.append((path, ["resume"]))
    return [*chosen, (world / "public.safetensors", ["export"]), (world / "memories", ["memory"])]


def flips(world, frame, capsys, number, seed):
    """Flip `number` random bits, one at a time, over all files; each must be refused by name."""
    draws = np.random.default_rng(seed)
    read = readings(world, frame, capsys)
    read["export"] = read["model"]
    read["memory"] = read_memory
    known, refused, without = {}, 0, 0
    files = places(world)
    for _ in range(number):
        file, kinds = files[draws.integers(len(files))]
        target = file / TOKEN / "0.memory" if file.is_dir() else file
        run = file if file.is_dir() or file.parent == world else _run_of(world, file)
        content = bytearray(target.read_bytes())
        place, bit = int(draws.integers(len(content))), 1 << int(draws.integers(8))
        for kind in kinds:
            if (kind, run) not in known:
                known[kind, run] = read[kind](run)
            content[place] ^= bit
            target.write_bytes(content)
            try:
                assert read[kind](run) == known[kind, run], f"{target} byte {place} bit {bit}"
                without += 1
            except (ValueError, PrivacyError) as error:
                assert target.name in str(error), f"{target} byte {place}: {error}"  # noqa: PT017
                refused += 1
            finally:
                content[place] ^= bit
                target.write_bytes(content)
    return refused, without


def _run_of(world, file):
    return world / file.relative_to(world).parts[0]


@pytest.fixture
def frame(table):
    return pd.read_csv(table)


def test_a_changed_bit_is_refused_by_name_or_has_no_effect(world, frame, capsys):
    refused, _ = flips(world, frame, capsys, number=40, seed=0)
    assert refused >= 30


@pytest.mark.evidence
def test_four_hundred_changed_bits(world, frame, capsys):
    refused, without = flips(world, frame, capsys, number=400, seed=1)
    print(f"{refused} refused by name, {without} without effect")  # noqa: T201
    assert refused >= 300


# Two processes on one folder

PAIR = """
import sys
import fedprior
from fedprior.data import synthetic
clients = synthetic.classification(
    num_clients=6, samples_per_client=(4, 8), num_features=3, num_classes=2, seed=1
)
algorithm = fedprior.learning.adaped(fedprior.models.logistic(3, 2))
print("ready", flush=True)
sys.stdin.readline()
saving = fedprior.Saving(folder=sys.argv[1], every=2, resume=True)
try:
    result = fedprior.simulate(
        algorithm, clients, rounds=12, cohort=fedprior.FixedSize(size=3), store="disk",
        saving=saving,
    )
    print("done", float(result.scores.sum()), flush=True)
except ValueError as error:
    print("refused", error, flush=True)
sys.stdin.readline()
"""


def race(folder):
    """Two processes that begin a run in one folder at the same moment; their last words."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PAIR, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    words = [process.stdout.readline().split(maxsplit=1) for process in both]
    for process in both:
        process.communicate("\n")
        assert process.returncode == 0
    return words, [process.pid for process in both]


def check_race(folder, expected):
    words, pids = race(folder)
    kinds = [word[0] for word in words]
    assert "done" in kinds, words
    done = words[kinds.index("done")]
    assert float(done[1]) == expected
    if kinds == ["done", "done"]:  # one after the other: the second read the first's result
        assert words[0][1] == words[1][1]
        return 0
    place = kinds.index("refused")
    assert f"{folder} is in use by process {pids[1 - place]}" in words[place][1]
    return 1


def expected_score():
    clients = synthetic.classification(
        num_clients=6, samples_per_client=(4, 8), num_features=3, num_classes=2, seed=1
    )
    algorithm = fedprior.learning.adaped(fedprior.models.logistic(3, 2))
    cohort = fedprior.FixedSize(size=3)
    result = fedprior.simulate(algorithm, clients, rounds=12, cohort=cohort, store="disk")
    return float(result.scores.sum())


def test_two_processes_on_one_folder(tmp_path):
    assert check_race(tmp_path / "run", expected_score()) == 1


@pytest.mark.evidence
def test_twenty_pairs_of_processes(tmp_path):
    expected = expected_score()
    refused = sum(check_race(tmp_path / str(number), expected) for number in range(20))
    print(f"{refused} of 20 pairs overlapped, one refused by name")  # noqa: T201
    assert refused >= 15


def test_train_on_a_folder_in_use(command, on_table, trained, tmp_path):
    """By name, and nothing is touched; also with --resume."""
    from fedprior.core import lock

    copy = shutil.copytree(trained, tmp_path / "copy")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with lock.owned(copy):
        found = command("train", "--resume", copy)
        assert found.code == 2
        assert f"{copy} is in use by process {os.getpid()}" in found.err
        again = command("train", *on_table, "--out", copy)
        assert again.code == 2
    with lock.owned(tmp_path / "new"):
        fresh = command("train", *on_table, "--algorithm", "fedavg", "--out", tmp_path / "new")
        assert fresh.code == 2
        assert "new is in use by process" in fresh.err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert list(Path(tmp_path / "new").iterdir()) == []


# Disks that are full, and folders where files should be


def full_from(number):
    """An fsync that finds the disk full from its `number`-th call on."""
    calls, sync = itertools.count(1), os.fsync

    def fsync(descriptor):
        if next(calls) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    return fsync


@pytest.mark.parametrize("store", ["device", "disk"])
def test_a_full_disk_is_named_and_nothing_is_left_behind(
    command, on_table, trained, tmp_path, monkeypatch, store
):
    """At one file after another; with space again the run goes on to the same figures."""
    wanted = None
    for number in (1, 2, 3, 5, 8, 12, 16):
        folder = tmp_path / str(number)
        words = ["--algorithm", "adaped", "--set", f"training.store={store}", "--json", "--quiet"]
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full_from(number))
            cut = command("train", *on_table, *words, "--out", folder)
        lines = cut.err.strip().splitlines()
        assert (cut.code, cut.out, len(lines)) == (2, "", 1), cut
        assert "cannot write: No space left on device" in lines[0]
        assert str(tmp_path) in lines[0]
        assert not list(tmp_path.rglob("*.tmp"))
        if (folder / "config.toml").exists():
            again = command("train", "--resume", folder, "--json", "--quiet")
            methods = json.loads(again.out)["methods"]
            wanted = methods if wanted is None else wanted
            assert methods == wanted
    assert wanted is not None


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "clients.parquet"])
def test_a_folder_where_a_file_should_be(refused, trained, tmp_path, name):
    copy = shutil.copytree(trained, tmp_path / "copy")
    (copy / name).unlink()
    (copy / name).mkdir()
    refused("train", "--resume", copy, "--json", "--quiet", wanted=str(copy / name))
    assert not list(copy.rglob("*.tmp"))


def test_a_file_where_a_folder_should_be(refused, on_table, tmp_path):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "run"
    refused("train", *on_table, "--out", out, wanted="--out must be a new or empty folder, got")
    assert (tmp_path / "file").read_text() == "mine"
