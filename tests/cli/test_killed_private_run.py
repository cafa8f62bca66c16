"""A private run that is killed at any moment has recorded what it released, and resumes."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import private_run
import pytest

from fedprior.exchange.checkpoint import read_checkpoint
from fedprior.privacy.opening import begin_ledger, read
from fedprior.reporting import ledgers
from fedprior.reporting.folder import Folder
from fedprior.reporting.population import statement

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")

ROUNDS = 40
SETTINGS = {
    "data.name": "synthetic",
    "model.name": "logistic",
    "training.rounds": ROUNDS,
    "training.local_steps": 1,
    "training.batch_size": 4,
    "training.cohort": "everyone",  # has a closed form, so that accounting takes no time
    "training.checkpoint_every": 6,
    "privacy.epsilon": 4.0,
    "privacy.noise_multiplier": 8.0,
    "privacy.delta": 0.001,
}


class Killable:
    """A run in a folder, within the budget of a population, and what it has begun."""

    def __init__(self, folder, programs, *, noise):
        self.folder, self.log = Folder(folder / "run"), folder / "log"
        self.population, self.key = folder / "population.jsonl", folder / "key"
        begin_ledger(self.population, epsilon=60.0, delta=0.001, key=self.key)
        settings = {**SETTINGS, "privacy.noise": noise}
        pairs = [("--set", f"{name}={json.dumps(value)}") for name, value in settings.items()]
        self.options = [
            *("train", "--algorithm", "fedavg-fine-tuning", "--out", str(self.folder.path)),
            *("--ledger", str(self.population), "--key", str(self.key), "--quiet"),
            *(word for pair in pairs for word in pair),
        ]
        self.environment = {**os.environ, "FEDPRIOR_CACHE": str(programs)}
        self.noise = noise

    def start(self):
        """Begin, or go on where there is anything to go on with."""
        begun = self.folder.config.exists()
        options = ["train", "--resume", str(self.folder.path), "--quiet"]
        return subprocess.Popen(
            [sys.executable, private_run.__file__, self.log, *(options if begun else self.options)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    @property
    def begun(self):
        """How often each round began to run."""
        text = self.log.read_text() if self.log.exists() else ""
        times = np.zeros(ROUNDS, int)
        for line in text.splitlines():
            first, count = map(int, line.split())
            times[first : first + count] += 1
        return times

    @staticmethod
    def recorded(path, key=None):
        """How often each round is on record; a killed process may have left no ledger."""
        times = np.zeros(ROUNDS, int)
        if path.exists() and path.stat().st_size:
            for record in read(path, key)[1]:
                if record["kind"] == "reserve":
                    times[record["first"] : record["first"] + record["rounds"]] += 1
        return times

    def check(self):
        """What is on record, in the run and in the population, is at least what ran."""
        begun = self.begun
        own = self.folder.ledger("fedavg-fine-tuning", 0)
        saved = self.folder.part("fedavg-fine-tuning", 0) / "checkpoint.safetensors"
        for times in (self.recorded(own), self.recorded(self.population, self.key)):
            if self.noise == "secure":
                assert (times >= begun).all()
            else:  # a repetition is the same release to the bit
                assert (times >= np.minimum(begun, 1)).all()
                assert times.max() <= 1
            if saved.exists():
                assert times[: read_checkpoint(saved).facts["round"]].all()

    def finish(self):
        """Let it end; the summary."""
        with self.start() as process:
            error = process.communicate()[1]
        assert process.returncode == 0, error
        self.check()
        assert len(ledgers.spent(self.folder.path)) == 1
        rows = statement(self.population, self.key)["charges"]
        told = sum(row["rounds"] for row in rows)
        assert told == self.recorded(self.population, self.key).sum()
        return json.loads(self.folder.summary.read_text())


def kill(run, delay, lines=0):
    """SIGKILL `delay` seconds after `lines` more chunks began; whether it was still running."""
    wanted = run.begun.sum() + lines
    with run.start() as process:
        while run.begun.sum() < wanted and process.poll() is None:
            time.sleep(0.002)
        time.sleep(delay)
        process.kill()
        error = process.communicate()[1]
    run.check()
    killed = process.returncode == -signal.SIGKILL
    assert killed or process.returncode == 0, error
    return killed


def test_killed_three_times(tmp_path):
    """While rounds run or are being charged, in a process of its own; another draw of moments:
    FEDPRIOR_KILL_SEED=N.
    """
    draws = np.random.default_rng(int(os.environ.get("FEDPRIOR_KILL_SEED", "0")))
    run = Killable(tmp_path, tmp_path / "programs", noise="simulated")
    for _ in range(3):
        lines, delay = int(draws.integers(1, 9)), float(draws.uniform(0, 0.02))
        assert kill(run, delay, lines)
    (end,) = run.finish()["runs"]
    assert (end["rounds"], end["ended_by"]) == (ROUNDS, "rounds")
    assert run.recorded(run.population, run.key).tolist() == [1] * ROUNDS


@pytest.mark.evidence
@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_killed_at_fifteen_random_moments(tmp_path, noise):
    """Each of 15 runs is killed once and then resumes: with both kinds of noise, 30 kills.

    Every other moment is drawn from the run's whole life, most of which is starting and scoring;
    the others while rounds run. Those that a drawn moment misses are drawn again.
    """
    draws = np.random.default_rng(int(os.environ.get("FEDPRIOR_KILL_SEED", "0")))
    programs, moments = tmp_path / "programs", []
    whole = Killable(tmp_path / "whole", programs, noise=noise)
    whole.finish()  # compiles
    again = Killable(tmp_path / "again", programs, noise=noise)
    start = time.monotonic()
    again.finish()
    life = time.monotonic() - start
    for number in range(40):
        run = Killable(tmp_path / str(number), programs, noise=noise)
        within = len(moments) % 2
        lines, delay = int(draws.integers(1, 36)), float(draws.uniform(0, 0.02 if within else life))
        if not kill(run, delay, within * lines):
            continue
        begun = int(run.begun.sum())
        (end,) = run.finish()["runs"]
        expected = ("rounds", "budget") if noise == "secure" else ("rounds",)
        assert end["ended_by"] in expected
        moments.append((round(delay, 2), begun, end["rounds"], end["ended_by"]))
        if len(moments) == 15:
            break
    assert len(moments) == 15
    print(f"{noise}, life {life:.1f} s; (kill, rounds begun, rounds in the end): {moments}")  # noqa: T201
