"""What the tests share: a tiny federation, tiny algorithms, no compilation cache of the user's."""

import gc
import os

import quick_compilation

os.environ.setdefault("FEDPRIOR_CACHE", "")
# Two workers on two cores: a thread each for linear algebra, or they wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", quick_compilation.flags())

import numpy as np
import pytest
from hypothesis import settings

from browser import browser  # noqa: F401 -- a fixture
from fedprior.data.federation import Federation, Split
from servers import postgres, spark  # noqa: F401 -- fixtures

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
        most_samples=high,  # the public bound that toys need, which read all samples at once
        name="tiny",
    )


@pytest.fixture(scope="session")
def federation():
    return tiny_federation()


@pytest.fixture(scope="session")
def play():
    """`play(algorithm, clients, rounds)`: everyone in every round, as one small program.

    Gives the state and all memories of `simulate` without a cohort, for algorithms that do not draw
    in `local`, and compiles in a fraction of its time; `state` begins from another one.
    """
    import jax

    from fedprior.core import random
    from fedprior.data.federation import PADDED_AXES

    def play(algorithm, clients, rounds, *, seed=0, state=None):
        number, root = np.arange(clients.num_clients, dtype=np.int32), random.root(seed)
        # Outside the program: hashing keys is most of what would have to be compiled.
        keys = jax.vmap(lambda client: random.fold(root, "enroll", client))(number)
        state = algorithm.init(random.fold(root, "init")) if state is None else state
        memories = jax.vmap(algorithm.enroll, in_axes=(None, 0, 0))(state, number, keys)
        local = jax.vmap(algorithm.local, in_axes=(None, 0, PADDED_AXES, 0))

        @jax.jit
        def program(state, memories, data, keys):
            def one_round(_, carry):
                messages, memories = local(*carry, data, keys)
                if algorithm.pools == "sum":
                    messages = jax.tree.map(lambda leaf: leaf.sum(axis=0), messages)
                return algorithm.update(carry[0], messages), memories

            return jax.lax.fori_loop(0, rounds, one_round, (state, memories))

        return program(state, memories, clients.train.padded(number), keys)

    return play


# Tests that run every method, or every page, one after the other, and share nothing between them.
APART = (
    *("tests/laws/", "tests/learning/test_effects.py", "tests/engines/test_leak.py"),
    "tests/test_commands.py",
)


def pytest_collection_finish(session):
    """Tracing makes many objects, few of them garbage; looking for it took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_sessionfinish(session):
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """`--dist loadscope`, with the tests of every method (page) divided among workers by method."""
    from xdist.scheduler import LoadScopeScheduling

    class ByMethod(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            if nodeid.startswith(APART) and nodeid.endswith("]"):
                return nodeid.rpartition("::")[0] + "::" + nodeid.partition("[")[2]
            return super()._split_scope(nodeid)

    return ByMethod(config, log) if config.getvalue("dist") == "loadscope" else None
