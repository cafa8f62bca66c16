"""Every method of the catalog on a federation of four tiny clients.

Compiling is what costs time here: one shape of client data, one shape of cohort and the smallest
models let all laws of a method share its programs.
"""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import fedprior
from fedprior.core.protocols import Cohort
from fedprior.data.federation import Federation, Split
from fedprior.learning import catalog

SIZES = (4, 7, 6, 5)  # training samples of each client
FAST = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=3))
LINEAR, LAYERED = fedprior.models.logistic(2, 3), fedprior.mlp((2,), 3, hidden=(2,))

OPTIMIZER = {"momentum": 0.5, "horizon": 2.0, "class_frequencies": True}
SEVERAL = {"networks": 2, "class_frequencies": True}
# Forms of a method that the laws run instead of the default one, and forms besides.
OPTIONS = {
    "adamap": {"judge_every": 1, "last_steps": 3},
    "adaped-paper": {"method": "paper", "start": "initial"},
    "adaped-fine-tuning": {"catch_up": 3},
    "adaped-optimized": OPTIMIZER,
    "adamap-several": {"judge_every": 1, "last_steps": 3, "networks": 2},
    "adaped-several": SEVERAL,
    "fedper-several": SEVERAL,
    "apfl": {"mixing_rate": 0.1},
    "fedavg-fine-tuning": {"fine_tuning_steps": 3, "weight": "samples"},
    "fedbabu": {"fine_tuning_steps": 3},
    "fedem-optimized": {**OPTIMIZER, "weight": "samples"},
    "fedmd": {"num_public": 3},
    "fedrep": {"head_steps": 1},
    "fedrod-optimized": OPTIMIZER,
    "per-fedavg": {"order": "exact"},
    "pfedme": {"weight": "samples"},
    "pfedvem": {"num_draws": 2},
    "shared-subspace-optimized": OPTIMIZER,
}
FORMS = {"adaped-paper": "adaped"}
FORMS |= {f"{name}-optimized": name for name in ("adaped", "fedem", "fedrod", "shared-subspace")}
FORMS |= {f"{name}-several": name for name in ("adamap", "adaped", "fedper")}
# Methods that need a body and a head.
LAYERS = {"fedbabu", "fedper", "fedrep", "fedrod", "lg-fedavg", "pfedvem"}
NAMES = sorted([*catalog.METHODS, *FORMS, "cautious", "multitask"])


@cache  # compiled programs are kept by the algorithm
def algorithm_of(name, steps=FAST, **options):
    """A method of the catalog in the form that the laws run, with other `options` on top."""
    if name == "multitask":
        related = fedprior.populations.Multitask(covariance=0.5 * np.eye(4) + 0.5)
        return fedprior.learning.multitask(LINEAR, related, steps=steps)
    if name == "cautious":  # ditto in a private run, with an adaptive clip
        alone, inner = algorithm_of("local", steps), algorithm_of("ditto", steps, **options)
        inner = fedprior.learning.adaptive_clip(inner)
        return fedprior.learning.cautious(inner, alone, deviation=0.01)
    options = {**OPTIONS.get(name, {}), **options}
    layered = FORMS.get(name, name) in LAYERS or "networks" in options
    model = LAYERED if layered else LINEAR
    return catalog.method(FORMS.get(name, name)).build(model, options, steps=steps)


def small_federation(sizes=SIZES, **fields):
    """Clients whose samples do not depend on the sizes of the others."""
    names = np.array([f"client-{number}" for number in range(len(sizes))])
    parts = [_part(sizes, 0), _part([3] * len(sizes), 1), _part([3] * len(sizes), 2)]
    train, valid, test = parts
    known = {"clients": names, "classes": ("a", "b", "c"), "name": "small"}
    return Federation(train=train, valid=valid, test=test, **known, **fields)


def _part(sizes, purpose):
    x, y = [], []
    for client, size in enumerate(sizes):
        draws = np.random.default_rng((purpose, client))
        x.append(draws.normal(size=(max(99, size), 2))[:size])
        y.append(draws.integers(0, 3, max(99, size))[:size])
    ends = np.cumsum(sizes)
    rows = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return Split.gather(np.concatenate(x).astype("f4"), np.concatenate(y).astype("i4"), rows)


@dataclass(frozen=True)
class Turns(Cohort):
    """Cohorts given in advance, in arrays of three clients: there is always an empty place."""

    rounds: tuple[tuple[int, ...], ...]
    places: int = 3

    def expected_size(self, num_clients):
        return 2.0

    def capacity(self, num_clients):
        return self.places

    def draw(self, seed, round, num_clients):
        return np.array(self.rounds[round], np.int32)

    def amplify(self, event, num_clients):
        return event


def close(first, second, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=tolerance, rtol=tolerance)


def same(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def own_data(federation, client):
    """A client's rows at the front of a padded array: one shape for all clients."""
    padded = federation.train.padded(np.array([client]))
    own = padded._replace(x=padded.x[0], y=padded.y[0], start=padded.start[0], size=padded.size[0])
    return jax.tree.map(jnp.asarray, own)
