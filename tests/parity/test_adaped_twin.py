"""AdaPeD against a NumPy twin of the paper's Algorithms 5 and 6, on softmax regression.

The twin is eager: every client acts in every round, as the paper prints it. It shares with the
library the first parameters and the batches' positions, which have tests of their own.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

import fedprior
from fedprior.core import random

LOCAL_STEPS = 2
BATCHES = fedprior.Batches(size=4)
STEPS = fedprior.Steps(local_steps=LOCAL_STEPS, batches=BATCHES, decay=0.8, steps_per_epoch=3)
COMMON = {"steps": STEPS}
SEED = 2


def init(key):
    weight_key, bias_key = jax.random.split(key)
    return {
        "bias": jax.random.normal(bias_key, (3,)),
        "weight": jax.random.normal(weight_key, (4, 3)),
    }


MODEL = fedprior.network(init, lambda parameters, x: x @ parameters["weight"] + parameters["bias"])


def outputs(parameters, x):
    return log_softmax(x @ parameters["weight"] + parameters["bias"], axis=1)


def pull_back(d_logits, x):
    """Gradient of a mean over samples, from that of each sample by its logits."""
    return {"bias": d_logits.mean(axis=0), "weight": x.T @ d_logits / len(x)}


def moved(parameters, gradient, rate):
    return {name: parameters[name] - rate * gradient[name] for name in parameters}


def theta_gradient(theta, mean, psi, x, y):
    """Of mean cross entropy + f_KD / (2 psi): D6."""
    own, shared = np.exp(outputs(theta, x)), np.exp(outputs(mean, x))
    return pull_back(own - np.eye(3)[y] + (own - shared) / (2 * psi), x)


def divergence(theta, mean, x):
    own, shared = outputs(theta, x), outputs(mean, x)
    return (np.exp(shared) * (shared - own)).sum(axis=1)


def mean_gradient(theta, mean, psi, x):
    own, shared = outputs(theta, x), outputs(mean, x)
    kl = divergence(theta, mean, x)[:, None]
    return pull_back(np.exp(shared) * (shared - own - kl) / (2 * psi), x)


@dataclass
class Twin:
    """All clients, in float64; rates 0.1, 0.2, 0.3 unless told."""

    federation: fedprior.Federation
    start: dict  # the first parameters
    words: np.ndarray  # of each client's batches
    theta_rate: float = 0.1
    gamma_rate: float = 0.2
    psi_rate: float = 0.3
    initial_psi: float = 4.0
    psi_floor: float = 0.5
    cap: int | None = None  # None: unsampled clients rest (Algorithm 5)
    stale: bool = False
    thetas: dict = field(default_factory=dict)
    last: dict = field(default_factory=dict)  # gamma received last
    alone: dict = field(default_factory=dict)  # steps since a client took part
    steps: dict = field(default_factory=dict)
    round: int = 0

    def __post_init__(self):
        self.gamma = (self.start, self.initial_psi)
        for client in range(self.federation.num_clients):
            self.last[client], self.alone[client] = self.gamma, 0
            self.thetas[client], self.steps[client] = self.start, 0

    def rate(self, number):
        return STEPS.decay ** ((self.round * LOCAL_STEPS + number) // STEPS.steps_per_epoch)

    def batch(self, client):
        """The client's next samples."""
        data = self.federation.train.client(client)
        index, mask = positions(self.words[client], self.steps[client], data.size)
        self.steps[client] += 1
        return data.x[index[mask]].astype(float), data.y[index[mask]]

    def theta_step(self, client, mean, psi, number):
        x, y = self.batch(client)
        gradient = theta_gradient(self.thetas[client], mean, psi, x, y)
        rate = self.theta_rate * self.rate(number)
        self.thetas[client] = moved(self.thetas[client], gradient, rate)
        return x

    def take_part(self, client):
        self.last[client], self.alone[client] = self.gamma, 0
        mean, psi = self.gamma
        for number in range(LOCAL_STEPS):
            x = self.theta_step(client, mean, psi, number)
            if self.stale and number == LOCAL_STEPS - 1:
                break
            theta, rate = self.thetas[client], self.rate(number)
            gradient = mean_gradient(theta, mean, psi, x)
            mean = moved(mean, gradient, self.gamma_rate * rate)
            slope = 1 / (2 * psi) - divergence(theta, mean, x).mean() / (2 * psi**2)
            psi = max(psi - self.psi_rate * rate * slope, self.psi_floor)
        return mean, psi

    def go_on_alone(self, client):
        for number in range(LOCAL_STEPS):
            if self.alone[client] < self.cap:
                self.alone[client] += 1
                self.theta_step(client, *self.last[client], number)

    def play(self, cohort):
        sent = []
        for client in range(self.federation.num_clients):
            if client in cohort:
                sent.append(self.take_part(client))
            elif self.cap is not None:
                self.go_on_alone(client)
        mean = {name: np.mean([m[name] for m, _ in sent], axis=0) for name in self.start}
        self.gamma = (mean, max(np.mean([psi for _, psi in sent]), self.psi_floor))
        self.round += 1


@jax.jit
def _positions(words, step, size):
    rows = jnp.arange(4 * 8)  # wider than any client: only the batch's own width counts
    data = fedprior.data.ClientData(rows, rows, jnp.int32(0), size, rows)
    return BATCHES.at(words, step, data)


def positions(words, step, size):
    return tuple(np.asarray(part) for part in _positions(words, np.int32(step), np.int32(size)))


class Library:
    """The library's functions in a plain loop: fewer programs to compile than an engine has.

    tests/laws shows that the engines give the same.
    """

    def __init__(self, algorithm, federation):
        self.federation, self.root, self.memories = federation, random.root(SEED), {}
        for name in ("init", "enroll", "local", "update", "personalize"):
            setattr(self, "_" + name, jax.jit(getattr(algorithm, name)))
        self.state = self._init(random.fold(self.root, "init"))

    def enroll(self, client):
        key = random.fold(self.root, "enroll", client)
        return self._enroll(self.state, jnp.int32(client), key)

    def data(self, client):
        padded = self.federation.train.padded(np.array([client]))
        return padded._replace(**{name: getattr(padded, name)[0] for name in padded._fields[:4]})

    def play(self, cohort):
        messages = []
        for client in cohort:
            memory = self.memories.get(client) or self.enroll(client)
            key = random.fold(self.root, "local", self.state["round"], client)
            message, memory = self._local(self.state, memory, self.data(client), key)
            self.memories[client] = memory
            messages.append(message)
        self.state = self._update(self.state, jax.tree.map(lambda *parts: sum(parts), *messages))

    def theta(self, client, data=None):
        memory = self.memories.get(client) or self.enroll(client)
        data = self.data(client) if data is None else data
        key = random.fold(self.root, "personalize", client)
        return jax.tree.map(np.asarray, self._personalize(self.state, memory, data, key))


def both(algorithm, federation, **options):
    """The library and its twin before the first round."""
    library = Library(algorithm, federation)
    words = [library.enroll(client)["words"] for client in range(federation.num_clients)]
    mean = library.state["gamma"]["mean"]
    start = jax.tree.map(lambda leaf: np.asarray(leaf, float), mean)
    return library, Twin(federation, start, np.asarray(words), **options)


def agree(found, wanted):
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)


def agree_all(library, eager, clients):
    agree(library.state["gamma"]["mean"], eager.gamma[0])
    np.testing.assert_allclose(library.state["gamma"]["psi"], eager.gamma[1], rtol=1e-5)
    for client in clients:
        agree(library.theta(client), eager.thetas[client])


RATES = {"theta_rate": 0.1, "gamma_rate": 0.2, "psi_rate": 0.3}


@pytest.mark.parametrize(
    "options",
    [{}, {"stale": True}, {"initial_psi": 0.55}],
    ids=["sound", "as-printed", "to-the-floor"],
)
def test_rounds_are_those_of_algorithm_5(federation, options):
    """Theta, then the mean at theta^{t+1}, then psi at both; t+1 is sent (t as printed)."""
    psi = options.get("initial_psi", 4.0)
    method = "paper" if "stale" in options else "corrected"
    algorithm = fedprior.adaped(MODEL, initial_psi=psi, method=method, **RATES, **COMMON)
    library, eager = both(algorithm, federation, **options)
    for _ in range(2):
        library.play(range(federation.num_clients))
        eager.play(range(federation.num_clients))
        agree_all(library, eager, range(federation.num_clients))
    assert eager.gamma[1] < psi
    assert (eager.gamma[1] == 0.5) == ("initial_psi" in options)
    assert np.abs(eager.gamma[0]["weight"] - eager.start["weight"]).max() > 1e-3


@pytest.mark.parametrize("cap", [3, 100])
def test_lazy_fine_tuning_is_the_eager_algorithm_6(federation, cap):
    """Unsampled clients step against the gamma received last, the first one if none, up to the cap.

    Compared after each of several rounds: clients sampled long ago, just now, late for the first
    time. One that never took part is a newcomer instead, and begins at the learned mean.
    """
    algorithm = fedprior.learning.adaped_fine_tuning(MODEL, catch_up=cap, **RATES, **COMMON)
    cohorts = [[1, 3], [0, 3], [0, 1], [2, 3], [1, 3], [0, 2], [1, 2]]  # client 4 never comes
    library, eager = both(algorithm, federation, cap=cap)
    for cohort in cohorts:
        library.play(cohort)
        eager.play(cohort)
        agree_all(library, eager, library.memories)
    assert eager.alone[4] == min(cap, LOCAL_STEPS * len(cohorts))
    last = {client: 1 + max(r for r, c in enumerate(cohorts) if client in c) for client in range(4)}
    for client, memory in library.memories.items():
        assert int(memory["step"]) == eager.steps[client] - eager.alone[client]
        assert int(memory["round"]) == last[client]
        agree(memory["gamma"]["mean"], eager.last[client][0])
    caught_up = min(cap, 3 * LOCAL_STEPS)  # client 2, first seen in the round after three
    assert int(library.memories[2]["step"]) == caught_up + min(cap, LOCAL_STEPS) + 3 * LOCAL_STEPS


@pytest.mark.parametrize("start", ["population", "initial"])
def test_a_newcomer_starts_from_the_learned_mean(federation, start):
    """Without steps, or without data, it is the mean to the bit; with steps it descends from it."""
    for steps in (0, 2):
        algorithm = fedprior.adaped(MODEL, start=start, newcomer_steps=steps, **RATES, **COMMON)
        library, eager = both(algorithm, federation)
        mean = learned(library)
        if steps:
            eager.round, eager.thetas[1] = 5, jax.tree.map(lambda leaf: leaf.astype(float), mean)
            for number in range(steps):
                eager.theta_step(1, mean, 4.0, number)
            agree(library.theta(1), eager.thetas[1])
            assert np.abs(eager.thetas[1]["weight"] - mean["weight"]).max() > 1e-3
        else:
            same(library.theta(1), mean)
        same(library.theta(1, without_samples(library, 1)), mean)


def test_a_newcomer_does_not_catch_up(federation):
    """With local fine-tuning too it begins at the learned mean, with and without samples."""
    algorithm = fedprior.learning.adaped_fine_tuning(MODEL, newcomer_steps=0, **COMMON)
    library = Library(algorithm, federation)
    mean = learned(library)
    same(library.theta(1), mean)
    same(library.theta(1, without_samples(library, 1)), mean)


def learned(library):
    """Moves the mean away from where it began, as if five rounds had passed."""
    mean = jax.tree.map(lambda leaf: leaf + 1, library.state["gamma"]["mean"])
    gamma = {**library.state["gamma"], "mean": mean}
    library.state = {**library.state, "gamma": gamma, "round": jnp.int32(5)}
    return jax.tree.map(np.asarray, mean)


def without_samples(library, client):
    return library.data(client)._replace(size=np.int32(0))


def same(found, wanted):
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)
