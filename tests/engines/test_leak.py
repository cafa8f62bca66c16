"""Training and tuning do not see the test samples: with blanks in their place, the same bits."""

import tempfile
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from toys import averaging

import fedprior
from fedprior.engines.seeds import Seeds
from fedprior.learning.catalog import METHODS
from fedprior.reporting.training import rates

FAST = {"steps": fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))}
RUN = {"rounds": 4, "cohort": fedprior.FixedSize(size=3), "evaluate_every": 2}
RATES = (0.5, 0.02)


def leaks(experiment, federation):
    """Names of what `experiment(federation, reveal)` finds that depends on the test samples.

    It is run twice: as it is, and with blank test samples until it calls `reveal`, which it may do
    when all training and all choices are over.
    """
    found = []
    for blind in (False, True):
        pools = [federation.test.x.copy(), federation.test.y.copy()]
        clients = replace(federation, test=replace(federation.test, x=pools[0], y=pools[1]))
        if blind:  # after the federation's own check of its labels
            for pool in pools:
                pool[:] = _blank(pool, federation.num_classes)
        found.append(experiment(clients, partial(_reveal, pools, federation.test)))
    plain, blinded = found
    assert plain.keys() == blinded.keys()
    return {name for name in plain if not _same(plain[name], blinded[name])}


def _blank(pool, num_classes):
    """NaN, or a class that there is not."""
    return np.nan if pool.dtype.kind == "f" else num_classes


def _reveal(pools, true):
    np.copyto(pools[0], true.x)
    np.copyto(pools[1], true.y)


def _same(first, second):
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in leaves)


def outcome(result):
    memories, enrolled = result.store.read(np.arange(result.federation.num_clients))
    return {
        "state": result.state,
        "memories": (memories, enrolled),
        "thetas": result.thetas,
        "history": result.history,
        "valid_scores": result.valid_scores,
        "scores": result.scores,
    }


def training(algorithm, store="device"):
    """One run; the test samples appear after its last round."""

    def experiment(federation, reveal):
        def progress(step):
            if step.round == step.rounds:
                reveal()

        return outcome(
            fedprior.simulate(algorithm, federation, store=store, progress=progress, **RUN)
        )

    return experiment


def tuning(algorithms, choose):
    """A choice between algorithms, then one look at the test scores of the chosen one."""

    def experiment(federation, reveal):
        runs = [
            fedprior.simulate(algorithm, federation, test=choose == "scores", **RUN)
            for algorithm in algorithms
        ]
        means = [float(getattr(run, choose).mean()) for run in runs]
        best = int(np.argmax(means))
        reveal()
        final = fedprior.simulate(algorithms[best], federation, **RUN)
        return {"means": np.array(means), "choice": best, **outcome(final)}

    return experiment


def sweeping(build, monkeypatch):
    """A sweep; the test samples appear when it asks for them and every point is on record."""
    ask = Seeds.held_out

    def experiment(federation, reveal):
        with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as patched:
            file, noted = Path(folder) / "sweep.safetensors", []

            def held_out(seeds, part):
                record = load_file(file) if part == "test" and file.exists() else {}
                if record and record["done"].all():
                    noted.append(record["valid"])
                    reveal()
                return ask(seeds, part)

            patched.setattr(Seeds, "held_out", held_out)
            run = {"rounds": RUN["rounds"], "cohort": RUN["cohort"], "folder": Path(folder)}
            found = fedprior.sweep(build, federation, over={"rate": RATES}, **run)
        assert len(noted) == 1  # read once, after the choice
        np.testing.assert_array_equal(noted[0], found.valid)  # which is made by what was noted
        return {"valid": found.valid, "choice": found.best, "scores": found.scores}

    return experiment


@pytest.fixture(scope="module")
def adapeds():
    model = fedprior.models.logistic(4, 3)
    return [fedprior.adaped(model, theta_rate=rate, **FAST) for rate in RATES]


def test_training_from_disk_is_blind_to_the_test_samples(toy, plane):
    assert leaks(training(toy, store="disk"), plane) == set()


@pytest.mark.filterwarnings("ignore::fedprior.learning.paper.CollapseWarning")
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"local-converged"}))  # not for sweeps
def test_a_sweep_is_blind_to_the_test_samples(federation, monkeypatch, name):
    method = METHODS[name]
    layered = name in ("fedbabu", "fedper", "fedrep", "fedrod", "lg-fedavg", "pfedvem")
    model = fedprior.mlp((4,), 3, hidden=(2,)) if layered else fedprior.models.logistic(4, 3)

    def build(*, rate):
        return method.build(model, {}, **FAST, **rates(method, rate))

    assert leaks(sweeping(build, monkeypatch), federation) == set()


def test_a_sweep_that_chooses_by_test_samples_is_noticed(plane, monkeypatch):
    """Planted: test samples are taken for validation samples."""
    monkeypatch.setattr(Seeds, "valid", property(lambda seeds: seeds.held_out("test")))
    assert "valid" in leaks(sweeping(averaging, monkeypatch), plane)


def test_tuning_is_blind_to_the_test_samples(adapeds, federation):
    assert leaks(tuning(adapeds, "valid_scores"), federation) == set()


def test_a_test_score_before_the_end_is_noticed(adapeds, federation):
    """Planted: the choice is made by test scores."""
    assert "means" in leaks(tuning(adapeds, "scores"), federation)


def test_an_algorithm_that_peeks_is_noticed(toy, plane):
    """Planted: the server begins at the mean of the test samples."""

    def experiment(federation, reveal):
        def init(key):
            peek = np.nan_to_num(federation.test.x).mean(axis=0)
            return {**toy.init(key), "gamma": jax.numpy.asarray(peek)}

        return training(replace(toy, init=init))(federation, reveal)

    found = leaks(experiment, plane)
    assert {"state", "memories", "thetas", "valid_scores", "scores"} <= found


def test_an_algorithm_that_peeks_at_labels_is_noticed(toy, plane):
    """Planted: the server begins at the frequencies of the classes among the test samples."""

    def experiment(federation, reveal):
        def init(key):
            peek = np.bincount(federation.test.y, minlength=2)[:2] / len(federation.test.y)
            return {**toy.init(key), "gamma": jax.numpy.asarray(peek, dtype="float32")}

        return training(replace(toy, init=init))(federation, reveal)

    found = leaks(experiment, plane)
    assert {"state", "memories", "thetas", "valid_scores", "scores"} <= found


def test_an_engine_that_keeps_the_test_samples_is_noticed(toy, plane):
    """Planted: the test samples are copied before training and scored at the end."""

    def experiment(federation, reveal):
        return training(toy)(deepcopy(federation), reveal)

    assert leaks(experiment, plane) == {"scores"}
