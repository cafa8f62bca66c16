"""Resume = uninterrupted, to the bit; what cannot be resumed is refused."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import long_run
import numpy as np
import pytest
from safetensors.numpy import save

import fedprior
from fedprior.engines.store import DiskStore
from fedprior.exchange import trees
from fedprior.exchange.checkpoint import FORMAT, read_checkpoint

STORES = ["device", "disk"]
RUN = {"rounds": 20, "cohort": fedprior.FixedSize(size=3), "seed": 2, "evaluate_every": 5}


class Stopped(Exception):
    pass


def stop_at(number):
    def progress(step):
        if step.round >= number:
            raise Stopped

    return progress


def same(first, second):
    assert first.history == second.history
    for a, b in zip(long_run.everything(first), long_run.everything(second), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def real():
    return long_run.setting()


@pytest.mark.parametrize("store", STORES)
def test_resume_is_the_uninterrupted_run(real, store, tmp_path):
    """Stopped between two checkpoints, and again at another place."""
    whole = fedprior.simulate(*real, store=store, **RUN)
    saving = fedprior.Saving(folder=tmp_path, every=3)
    for number in (7, 14):
        with pytest.raises(Stopped):
            fedprior.simulate(*real, store=store, saving=saving, progress=stop_at(number), **RUN)
        saving = replace(saving, resume=True)
    rounds = []
    resumed = fedprior.simulate(
        *real, store=store, saving=saving, progress=lambda step: rounds.append(step.round), **RUN
    )
    assert rounds[0] > 12
    same(whole, resumed)
    again = fedprior.simulate(*real, store=store, saving=saving, **RUN)  # finished: read back
    same(whole, again)


@pytest.mark.parametrize("store", STORES)
def test_more_rounds_continue_a_finished_run(toy, plane, store, tmp_path):
    run = {**RUN, "evaluate_every": None}
    whole = fedprior.simulate(toy, plane, store=store, **run)
    saving = fedprior.Saving(folder=tmp_path, every=100, resume=True)
    fedprior.simulate(toy, plane, store=store, saving=saving, **{**run, "rounds": 8})
    same(whole, fedprior.simulate(toy, plane, store=store, saving=saving, **run))


@pytest.mark.parametrize("store", STORES)
def test_without_resume_a_used_folder_begins_anew(toy, plane, store, tmp_path):
    """Also when the new run is cut off before its first checkpoint."""
    saving = fedprior.Saving(folder=tmp_path, every=50)
    whole = fedprior.simulate(toy, plane, store=store, saving=saving, **RUN)
    with pytest.raises(Stopped):
        fedprior.simulate(toy, plane, store=store, saving=saving, progress=stop_at(2), **RUN)
    again = replace(saving, resume=True)
    same(whole, fedprior.simulate(toy, plane, store=store, saving=again, **RUN))


@pytest.mark.parametrize("store", STORES)
def test_an_interrupt_saves_first(toy, plane, store, tmp_path):
    """Whenever SIGINT comes, here while progress is told: nothing that was done is lost."""
    rounds = []

    def progress(step):
        rounds.append(step.round)
        if step.round >= 4:
            os.kill(os.getpid(), signal.SIGINT)

    saving = fedprior.Saving(folder=tmp_path, every=50, resume=True)
    whole = fedprior.simulate(toy, plane, store=store, **RUN)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fedprior.simulate(toy, plane, store=store, saving=saving, progress=progress, **RUN)
    assert signal.getsignal(signal.SIGINT) is before
    header = header_of(saving.file)
    assert header["round"] == rounds[-1]
    same(whole, fedprior.simulate(toy, plane, store=store, saving=saving, **RUN))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_point_of_a_checkpoint(toy, plane, store, when, tmp_path, monkeypatch):
    """The run stops at each of its first calls of fsync in turn, just before it or just after."""
    run = {**RUN, "rounds": 8, "evaluate_every": None}
    whole = fedprior.simulate(toy, plane, store=store, **run)
    sync = os.fsync
    for number in range(1, 11):
        calls = itertools.count(1)

        def crash(descriptor, calls=calls, number=number):
            last = next(calls) == number
            if last and when == "before":
                raise Stopped
            sync(descriptor)
            if last:
                raise Stopped

        saving = fedprior.Saving(folder=tmp_path / str(number), every=2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", crash)
            with contextlib.suppress(Stopped):
                fedprior.simulate(toy, plane, store=store, saving=saving, **run)
        resumed = replace(saving, resume=True)
        same(whole, fedprior.simulate(toy, plane, store=store, saving=resumed, **run))


# Killed in a process of its own


def start(folder, store, programs):
    script = Path(long_run.__file__)
    environment = {**os.environ, "FEDPRIOR_CACHE": str(programs)}
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def follow(process, lines=None):
    """Let it make `lines` steps of progress (all of them by default); its last word."""
    line = ""
    while lines is None or lines > 0:
        found = process.stdout.readline()
        if not found:
            break
        line = found
        if not line.startswith("done"):
            process.stdin.write("\n")
            process.stdin.flush()
        lines = lines - 1 if lines is not None else None
    return line


def kill_and_resume(folder, store, programs, seed):
    """Killed three times at moments drawn from `seed`, then left alone; (moments, last word)."""
    draws = np.random.default_rng(seed)
    moments = []
    for _ in range(3):
        lines, delay = int(draws.integers(1, 5)), float(draws.uniform(0, 0.01))
        moments.append(f"SIGKILL {1000 * delay:.1f} ms after step {lines}")
        with start(folder, store, programs) as process:
            follow(process, lines)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            process.kill()
        assert process.returncode == -signal.SIGKILL, "it waits for us, so it cannot have ended"
    with start(folder, store, programs) as process:
        return moments, follow(process)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Both stores side by side: the time goes into starting Python and JAX eight times."""
    programs = tmp_path_factory.mktemp("programs")
    seed = int(os.environ.get("FEDPRIOR_KILL_SEED", "0"))
    with ThreadPoolExecutor(len(STORES)) as pool:
        found = {
            store: pool.submit(
                kill_and_resume, tmp_path_factory.mktemp(store), store, programs, [seed, number]
            )
            for number, store in enumerate(STORES)
        }
        return seed, {store: future.result() for store, future in found.items()}


@pytest.mark.parametrize("store", STORES)
def test_killed_at_random_moments(real, killed, store):
    """SIGKILL while rounds run or a checkpoint is written, in a process of its own.

    Another draw of moments: FEDPRIOR_KILL_SEED=N.
    """
    seed, found = killed
    moments, last = found[store]
    print(f"seed {seed}: {moments}")  # noqa: T201
    whole = fedprior.simulate(*real, store=store, **long_run.RUN)
    assert last.split() == ["done", long_run.digest(whole)]


# What is refused


def header_of(path):
    return read_checkpoint(path).facts


def rewrite(path, arrays=None, format=FORMAT, **changes):
    """The same checkpoint with other arrays or another header."""
    packed = read_checkpoint(path)
    named, facts = packed.arrays if arrays is None else arrays, {**packed.facts, **changes}
    trees.write(path, named, kind="checkpoint", format=format, **facts)


@pytest.fixture
def saved(toy, plane, tmp_path):
    """(saving, resume): a finished run of 6 rounds, and what goes on with it."""

    def make(store):
        saving = fedprior.Saving(folder=tmp_path, every=4, identity="a", resume=True)
        run = {"rounds": 6, "cohort": fedprior.FixedSize(size=3), "store": store}

        def resume(algorithm=toy, federation=plane, **changes):
            given = {**run, "saving": saving, **changes}
            return fedprior.simulate(algorithm, federation, **given)

        resume()
        return saving, resume

    return make


def test_another_configuration_is_refused(saved, toy):
    saving, resume = saved("device")
    refusal = r"configuration must be the one the run began with \(\w+\), got \w+\. Resume without"
    for changes in (
        {"seed": 1},
        {"saving": replace(saving, identity="b")},
        {"store": "disk"},
        {"cohort": fedprior.FixedSize(size=2)},
        {"algorithm": replace(toy, name="another")},
    ):
        with pytest.raises(ValueError, match=refusal):
            resume(**changes)
    resume()


def test_a_newer_format_is_refused(saved):
    saving, resume = saved("device")
    rewrite(saving.file, format=99)
    with pytest.raises(ValueError, match=r"must be 2, got 99\. It was written by a newer"):
        resume()


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_checkpoint_cut_short_is_refused(saved, share):
    saving, resume = saved("device")
    content = saving.file.read_bytes()
    saving.file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"checkpoint.safetensors is damaged.*cut short"):
        resume()


def test_what_is_no_checkpoint_is_refused(saved):
    saving, resume = saved("device")
    for content in (b"garbage" * 100, save({"a": np.zeros(3)}), save({}, metadata={"b": "c"})):
        saving.file.write_bytes(content)
        with pytest.raises(ValueError, match="or not a file written by fedprior"):
            resume()
    trees.write(saving.file, {}, kind="memory", format=1)
    with pytest.raises(ValueError, match="is not a checkpoint file"):
        resume()


def test_other_arrays_are_refused(saved):
    """The right header over the wrong arrays."""
    saving, resume = saved("device")
    arrays = read_checkpoint(saving.file).arrays
    for name, changed in (
        ("memories/own", np.zeros((6, 3), np.float32)),
        ("memories/own", arrays["memories/own"].astype(np.float64)),
        ("state/gamma", None),
    ):
        changes = {**arrays, name: changed}
        if changed is None:
            del changes[name]
        rewrite(saving.file, changes)
        with pytest.raises(ValueError, match=f"checkpoint.safetensors: {name} must be float32 of"):
            resume()
        rewrite(saving.file, arrays)


def test_a_journal_cut_short_is_refused(saved, monkeypatch, tmp_path):
    """Killed between checkpoint and settling, and then the journal lost its end."""

    def killed(self):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(DiskStore, "settle", killed)
        with pytest.raises(Stopped):
            saved("disk")
    journal = tmp_path / "memory" / "journal-0.bin"
    os.truncate(journal, journal.stat().st_size - 1)
    with pytest.raises(ValueError, match=r"journal-0.bin must hold \d+ bytes, got \d+. It"):
        saved("disk")


@pytest.mark.parametrize("left", [0, 8, None])
def test_rows_cut_short_are_refused(saved, tmp_path, left):
    _, resume = saved("disk")
    rows = tmp_path / "memory" / "rows.bin"
    if left is None:
        rows.unlink()
    else:
        os.truncate(rows, left)
    with pytest.raises(ValueError, match=r"rows.bin must hold \d+ bytes, got \d. It was truncated"):
        resume()
