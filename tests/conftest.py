"""What the tests share: a tiny federation, tiny algorithms, no compilation cache of the user's."""

import os

os.environ.setdefault("FEDPRIOR_CACHE", "")
# Two workers on two cores: a thread each for linear algebra, or they wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests compile much and compute little.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import numpy as np
import pytest
from hypothesis import settings

from fedprior.data.federation import Federation, Split

# The same examples every time, so that a green commit stays green; new ones are looked for with
# `pytest --hypothesis-profile=search`.
settings.register_profile("settled", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("settled")


def tiny_federation(num_clients=5, seed=0, classes=3, features=4, low=5, high=12):
    """Unequal clients of a few samples each, of a softmax model with own parameters."""
    draws = np.random.default_rng(seed)
    mean = draws.normal(size=(features, classes))
    parts = []
    for low_, high_ in ((low, high), (2, 4), (3, 6)):
        sizes = draws.integers(low_, high_, num_clients, endpoint=True)
        x = draws.normal(size=(sizes.sum(), features)).astype(np.float32)
        own = np.repeat(np.arange(num_clients), sizes)
        theta = mean + 0.3 * np.random.default_rng(seed + 1).normal(
            size=(num_clients, features, classes)
        )
        y = np.argmax(np.einsum("nf,nfc->nc", x, theta[own]), axis=1).astype(np.int32)
        rows = [np.flatnonzero(own == client) for client in range(num_clients)]
        parts.append(Split.gather(x, y, rows))
    return Federation(
        train=parts[0],
        valid=parts[1],
        test=parts[2],
        clients=np.array([f"client-{i}" for i in range(num_clients)]),
        classes=tuple("abc"[:classes]),
        name="tiny",
    )


@pytest.fixture(scope="session")
def federation():
    return tiny_federation()
