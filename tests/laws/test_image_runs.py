"""Images of bytes, cropped and flipped at random: the same run in every engine."""

import jax
import numpy as np
import pytest
from law_cases import Turns, close

import fedprior
from fedprior.learning import catalog

SIDE = 8
COHORT = Turns(((0, 1), (1, 2), (0, 2)))
RUN = {"rounds": 3, "seed": 1, "cohort": COHORT}
MODEL = fedprior.models.logistic(SIDE * SIDE, 3)


def algorithm_of(name, **options):
    batches = fedprior.Batches(size=3, augment="crop-flip")
    steps = fedprior.Steps(local_steps=2, batches=batches)
    return catalog.method(name).build(MODEL, options, steps=steps)


@pytest.fixture(scope="module")
def federation():
    draws = np.random.default_rng(0)
    x = draws.integers(0, 256, (48, SIDE, SIDE, 1)).astype(np.uint8)
    return fedprior.Federation.from_arrays(x, np.arange(48) % 3, np.arange(48) // 12)


@pytest.mark.parametrize(("name", "store"), [("adamap", "disk"), ("fedem", "device")])
def test_engines_agree_on_augmented_bytes(name, store, federation):
    algorithm = algorithm_of(name)
    slow = fedprior.debug(algorithm, federation, **RUN)
    fast = fedprior.simulate(algorithm, federation, store=store, **RUN)
    close(slow.state, jax.device_get(fast.state))
    np.testing.assert_allclose(slow.scores, fast.scores, atol=1e-6)


def test_a_sweep_draws_what_its_trainings_draw(federation, monkeypatch):
    from fedprior.engines import sweep

    monkeypatch.setattr(sweep, "together", lambda *_: (2, 2))

    def build(*, rate):
        return algorithm_of("fedavg", gamma_rate=rate)

    over, run = {"rate": [0.05, 0.5]}, {"rounds": 3, "cohort": COHORT}
    found = fedprior.sweep(build, lambda seed: federation, over=over, seeds=2, **run)
    for seed in (0, 1):
        alone = fedprior.simulate(build(rate=0.5), federation, seed=seed, **run)
        np.testing.assert_allclose(found.valid[1, seed], alone.valid_scores, atol=1e-6)
