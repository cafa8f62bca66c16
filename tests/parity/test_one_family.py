"""Special cases of one family: two rounds of each against a known method, written on its own.

The known methods are NumPy loops over clients in float64, on every client's whole data; they share
the first parameters with the library, and nothing else. docs/explanation/one-family.md has a row
for each test.
"""

import re
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import fedprior
from fedprior.core import random, tree
from fedprior.learning.representation import head_first

WITHIN = 1e-6
ROUNDS, STEPS, THETA_RATE, GAMMA_RATE = 2, 3, 0.2, 0.3
EVERYTHING = fedprior.Batches(steps_per_epoch=1)
COMMON = {
    "steps": fedprior.Steps(local_steps=STEPS, batches=EVERYTHING),
    "theta_rate": THETA_RATE,
    "gamma_rate": GAMMA_RATE,
}
ONE_STEP = fedprior.Steps(local_steps=1, batches=EVERYTHING)


def init(key):
    """Random, so that no coordinate of a client starts at, or returns to, the mean by symmetry."""
    first, second = jax.random.split(key)
    return {
        "intercept": jax.random.normal(first, (3,)),
        "weight": jax.random.normal(second, (4, 3)),
    }


MODEL = fedprior.network(init, lambda theta, x: x @ theta["weight"] + theta["intercept"])


@cache
def start():
    """The first parameters of every run, (1 + features, classes)."""
    return stacked(init(random.fold(random.root(0), "init"))).astype(float)


def samples(federation):
    """(x with a column of ones, y) of every client."""
    parts = [federation.train.client(client) for client in range(federation.num_clients)]
    return [(np.hstack([np.ones((len(p.x), 1)), p.x]), np.asarray(p.y)) for p in parts]


def slope(theta, x, y):
    """Gradient of the mean cross entropy; theta is (1 + features, classes)."""
    return x.T @ (softmax(x @ theta, axis=1) - np.eye(3)[y]) / len(x)


def stacked(parameters):
    """{intercept, weight} with or without a client axis as (..., 1 + features, classes)."""
    intercept = np.asarray(parameters["intercept"])[..., None, :]
    return np.concatenate([intercept, parameters["weight"]], axis=-2)


def close(found, wanted, within=WITHIN):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=within)


def personal_rounds(federation, penalty_slope, mean):
    """Personal steps, then steps of the client's copy of the mean; the server averages copies.

    `penalty_slope(v, mean)` is the gradient, by v, of n_i times the penalty's share of one sample;
    by the mean it is minus that.
    """
    own = [start()] * federation.num_clients
    for _ in range(ROUNDS):
        copies = []
        for client, (x, y) in enumerate(samples(federation)):
            v, copy = own[client], mean
            for _ in range(STEPS):
                v = v - THETA_RATE * (slope(v, x, y) + penalty_slope(v, copy) / len(x))
                copy = copy + GAMMA_RATE * penalty_slope(v, copy) / len(x)
            own[client] = v
            copies.append(copy)
        mean = np.mean(copies, axis=0)
    return mean, np.stack(own)


def test_a_gaussian_of_fixed_scale_is_the_personal_step_of_ditto(play, federation):
    """v <- v - rate (grad f(v) + lambda (v - mean)), lambda = 1 / (n_i scale^2).

    The mean moves as pFedMe's, mean <- mean - rate lambda (mean - v), not as Ditto's.
    """
    scale = 0.4
    algorithm = fedprior.learning.gaussian_prior(MODEL, scale=scale, **COMMON)
    state, memories = play(algorithm, federation, ROUNDS)
    mean, own = personal_rounds(federation, lambda v, mean: (v - mean) / scale**2, start())
    close(stacked(state["gamma"]["mean"]), mean)
    close(stacked(memories["w"]), own)


def test_laplace_is_an_l1_penalty(play, federation):
    """v <- v - rate (grad f(v) + sign(v - mean) / (n_i scale)).

    Clients begin apart from the mean: at it the l1 norm has many subgradients, all of them right.
    """
    scale = 3.0
    algorithm = fedprior.learning.laplace_prior(MODEL, scale=scale, start="initial", **COMMON)
    state = algorithm.init(random.fold(random.root(0), "init"))
    shift = np.random.default_rng(7).normal(size=(5, 3)).astype(np.float32)
    moved = stacked(state["gamma"]["mean"]) + shift
    mean = {"intercept": jnp.asarray(moved[0]), "weight": jnp.asarray(moved[1:])}
    state = {**state, "gamma": {**state["gamma"], "mean": mean}}
    state, memories = play(algorithm, federation, ROUNDS, state=state)
    mean, own = personal_rounds(
        federation, lambda v, m: np.sign(v - m) / scale, moved.astype(float)
    )
    close(stacked(state["gamma"]["mean"]), mean)
    close(stacked(memories["w"]), own)


def averaged(clients, *, steps=STEPS):
    """FedAvg: the mean over clients of `steps` steps on each one's own loss."""
    mean = start()
    for _ in range(ROUNDS):
        ends = []
        for x, y in clients:
            v = mean
            for _ in range(steps):
                v = v - GAMMA_RATE * slope(v, x, y)
            ends.append(v)
        mean = np.mean(ends, axis=0)
    return mean


def test_a_point_mass_is_fedavg(play, federation):
    state, _ = play(
        fedprior.alternating(MODEL, fedprior.populations.PointMass(), **COMMON), federation, ROUNDS
    )
    close(stacked(state["gamma"]["mean"]), averaged(samples(federation)))


@pytest.fixture(scope="module")
def equal():
    """Five clients of six samples each."""
    draws = np.random.default_rng(4)
    x, own = draws.normal(size=(30, 4)), np.repeat(np.arange(5), 6)
    y = np.array(list("abc"))[np.arange(30) % 3]
    return fedprior.Federation.from_arrays(x, y, own, valid_share=0.0, test_share=0.0)


def test_a_gaussian_tends_to_fedavg_as_its_scale_goes_to_zero(play, equal):
    """With theta_rate = n scale^2, at which a step of w solves the penalty, and w a step ahead.

    The distance is of order scale^2: halve the scale, and it falls fourfold.
    """
    distances = []
    for scale in (0.1, 0.05):
        rates = {"theta_rate": 6 * scale**2, "gamma_rate": GAMMA_RATE, "steps": ONE_STEP}
        algorithm = head_first(
            MODEL, fedprior.populations.Gaussian(scale=scale), head_steps=1, **rates
        )
        mean = stacked(play(algorithm, equal, ROUNDS)[0]["gamma"]["mean"])
        distances.append(np.abs(mean - averaged(samples(equal), steps=1)).max())
    assert distances[0] < 5e-3
    assert 3.6 < distances[0] / distances[1] < 4.4, distances


def alone(federation):
    """Every client by itself from the common start."""
    ends = []
    for x, y in samples(federation):
        v = start()
        for _ in range(ROUNDS * STEPS):
            v = v - THETA_RATE * slope(v, x, y)
        ends.append(v)
    return np.stack(ends)


@pytest.mark.parametrize(
    "population", [fedprior.populations.Gaussian(scale=1e5), fedprior.populations.Flat()]
)
def test_a_boundless_scale_is_local_learning(play, federation, population):
    _, memories = play(fedprior.alternating(MODEL, population, **COMMON), federation, ROUNDS)
    close(stacked(memories["w"]), alone(federation))


@pytest.fixture(scope="module")
def kinds():
    """Three clients of one kind and three of the opposite one."""
    draws = np.random.default_rng(2)
    x, own = draws.normal(size=(60, 4)), np.repeat(np.arange(6), 10)
    labels = np.argmax(x @ draws.normal(size=(4, 3)) * np.where(own < 3, 3, -3)[:, None], axis=1)
    return fedprior.Federation.from_arrays(
        x, np.array(list("abc"))[labels], own, valid_share=0.0, test_share=0.0
    )


def test_a_mixture_of_zero_spread_is_clustered_learning(play, kinds):
    """IFCA: each client trains the model of least loss; a model is averaged over its clients."""
    population = fedprior.populations.Discrete(num_components=2, hard=True)
    options = {name: value for name, value in COMMON.items() if name != "theta_rate"}
    algorithm = fedprior.em(MODEL, population, **options)
    first = algorithm.init(random.fold(random.root(0), "init"))
    state, _ = play(algorithm, kinds, ROUNDS, state=first)
    models = stacked(first["gamma"]["centers"]).astype(float)
    for _ in range(ROUNDS):
        chosen, ends = [], []
        for x, y in samples(kinds):
            scores = log_softmax(x @ models, axis=2)[:, np.arange(len(y)), y]
            chosen.append(int(np.argmax(scores.sum(axis=1))))
            v = models[chosen[-1]]
            for _ in range(STEPS):
                v = v - GAMMA_RATE * slope(v, x, y)
            ends.append(v)
        chosen, ends = np.array(chosen), np.stack(ends)
        assert set(chosen) == {0, 1}  # both models have clients, so that both are compared
        models = np.stack([ends[chosen == number].mean(axis=0) for number in (0, 1)])
    close(stacked(state["gamma"]["centers"]), models)


def test_a_known_covariance_is_multi_task_learning(play, federation):
    """v_i <- v_i - rate (grad f(v_i) + sum_j P_ij (v_j - mean) / (n_i scale^2)), P = Omega^-1.

    The others stand still for a round, as in MOCHA, and a client is held by the bound sum_j |P_ij|
    on what they may do meanwhile.
    """
    factor = np.random.default_rng(1).normal(size=(5, 5))
    omega, scale = factor @ factor.T + np.eye(5), 0.7
    precision = np.linalg.inv(omega)
    held = np.abs(precision).sum(axis=1)
    population = fedprior.populations.Multitask(covariance=omega, scale=scale)
    options = {name: value for name, value in COMMON.items() if name != "gamma_rate"}
    _, memories = play(
        fedprior.learning.multitask(MODEL, population, **options), federation, ROUNDS
    )
    thetas = np.tile(start(), (5, 1, 1))
    for _ in range(ROUNDS):
        coupled = np.tensordot(precision, thetas - start(), axes=1)
        ends = []
        for client, (x, y) in enumerate(samples(federation)):
            v = thetas[client]
            for _ in range(STEPS):
                pull = coupled[client] + held[client] * (v - thetas[client])
                v = v - THETA_RATE * (slope(v, x, y) + pull / (scale**2 * len(x)))
            ends.append(v)
        thetas = np.stack(ends)
    close(stacked(memories["w"]), thetas)


def test_a_prior_on_predictions_is_knowledge_distillation(play, federation):
    """v <- v - rate grad (f(v) + KL(p_mean || p_v) / (2 psi)); the mean descends the KL in turn.

    With a learned psi this is AdaPeD, which has a twin of its own.
    """
    psi = 0.8
    algorithm = fedprior.adaped(MODEL, psi_rate=0.0, initial_psi=psi, **COMMON)
    state, memories = play(algorithm, federation, ROUNDS)
    mean, own = start(), [start()] * 5
    for _ in range(ROUNDS):
        copies = []
        for client, (x, y) in enumerate(samples(federation)):
            v, copy = own[client], mean
            for _ in range(STEPS):
                apart = softmax(x @ v, axis=1) - softmax(x @ copy, axis=1)
                v = v - THETA_RATE * (slope(v, x, y) + x.T @ apart / len(x) / (2 * psi))
                shared, mine = log_softmax(x @ copy, axis=1), log_softmax(x @ v, axis=1)
                divergence = (np.exp(shared) * (shared - mine)).sum(axis=1, keepdims=True)
                pull = np.exp(shared) * (shared - mine - divergence)
                copy = copy - GAMMA_RATE * x.T @ pull / len(x) / (2 * psi)
            own[client] = v
            copies.append(copy)
        mean = np.mean(copies, axis=0)
    close(stacked(state["gamma"]["mean"]), mean)
    close(stacked(memories["w"]), np.stack(own))


# Shared representations

RANK, HEAD_STEPS = 2, 4


@pytest.fixture(scope="module")
def quantities():
    """Six clients of eight samples with a real-valued target."""
    draws = np.random.default_rng(6)
    x, own = draws.normal(size=(48, 5)), np.repeat(np.arange(6), 8)
    y = x @ draws.normal(size=5) + 0.3 * draws.normal(size=48)
    return fedprior.Federation.from_arrays(
        x, y, own, regression=True, valid_share=0.0, test_share=0.0
    )


def nearest_orthonormal(matrix):
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def representation_rounds(federation, basis, fit):
    """FedRep for linear regression: w by `fit(x B, y, w)`, one step of B, averages orthonormalized.

    Every client's copy is orthonormalized as well before it is sent.
    """
    own = [np.zeros(RANK)] * federation.num_clients
    for _ in range(ROUNDS):
        copies = []
        for client, (x, y) in enumerate(samples(federation)):
            w = own[client] = fit(x @ basis, y, own[client])
            gradient = np.outer(x.T @ (x @ basis @ w - y), w) / len(x)
            copies.append(nearest_orthonormal(basis - 0.1 * gradient))
        basis = nearest_orthonormal(np.mean(copies, axis=0))
    return basis, np.stack(own)


def subspaced(play, federation, *, head_steps):
    algorithm = fedprior.learning.shared_subspace(
        fedprior.models.linear(5),
        rank=RANK,
        learn_mean=False,
        head_steps=head_steps - 1,
        steps=ONE_STEP,
        theta_rate=THETA_RATE,
        gamma_rate=0.1,
    )
    first = algorithm.init(random.fold(random.root(0), "init"))
    state, memories = play(algorithm, federation, ROUNDS, state=first)
    before = np.asarray(first["gamma"]["basis"], float)
    return before, np.asarray(state["gamma"]["basis"]), np.asarray(memories["w"])


def test_a_shared_subspace_is_the_step_of_fedrep(play, quantities):
    """`HEAD_STEPS` steps of the coordinates, then one of the basis."""
    first, basis, own = subspaced(play, quantities, head_steps=HEAD_STEPS)

    def fit(inputs, y, w):
        for _ in range(HEAD_STEPS):
            w = w - THETA_RATE * inputs.T @ (inputs @ w - y) / len(y)
        return w

    wanted_basis, wanted = representation_rounds(quantities, first, fit)
    close(basis, wanted_basis)
    close(own, wanted)


def test_a_shared_subspace_tends_to_alternating_least_squares(play, quantities):
    """With coordinates that have converged, the basis steps along that of least squares."""
    first, basis, own = subspaced(play, quantities, head_steps=800)

    def fit(inputs, y, w):
        return np.linalg.lstsq(inputs, y, rcond=None)[0]

    wanted_basis, wanted = representation_rounds(quantities, first, fit)
    close(basis, wanted_basis, 1e-5)  # a limit: 800 steps, in float32
    close(own, wanted, 1e-5)


def test_a_shared_body_is_the_step_of_fedrep(play, federation):
    """`HEAD_STEPS` steps of the last layer, then one of the layers below it, which are averaged."""
    network = fedprior.mlp((4,), 3, hidden=(6,))
    options = {"head_steps": HEAD_STEPS - 1, **COMMON, "steps": ONE_STEP}
    algorithm = head_first(network, fedprior.populations.SharedBody(), **options)
    first = network.init(random.fold(random.root(0), "init"))
    state, memories = play(algorithm, federation, ROUNDS)
    body, head = (np.vstack([layer["bias"], layer["weight"]]).astype(float) for layer in first)
    own = [head] * federation.num_clients
    for _ in range(ROUNDS):
        copies = []
        for client, (x, y) in enumerate(samples(federation)):
            hidden = np.hstack([np.ones((len(x), 1)), np.maximum(x @ body, 0)])
            for _ in range(HEAD_STEPS):
                own[client] = own[client] - THETA_RATE * slope(own[client], hidden, y)
            residual = softmax(hidden @ own[client], axis=1) - np.eye(3)[y]
            inner = residual @ own[client][1:].T * (x @ body > 0)
            copies.append(body - GAMMA_RATE * x.T @ inner / len(x))
        body = np.mean(copies, axis=0)
    found = state["gamma"]["body"][0]
    close(np.vstack([found["bias"], found["weight"]]), body)
    close(stacked({"intercept": memories["w"][1]["bias"], **memories["w"][1]}), np.stack(own))


# The page


def test_every_row_of_the_page_names_a_test_that_is_here():
    root = Path(__file__).parents[2]
    text = (root / "docs/explanation/one-family.md").read_text()
    named = re.findall(r"\(\.\./\.\./(tests/\S+\.py)#(\w+)\)", text)
    assert len(named) >= 10
    for path, name in named:
        assert f"def {name}(" in (root / path).read_text(), name
    cases = {name for name in globals() if re.match(r"test_(a|laplace)_", name)}
    assert cases <= {name for _, name in named}


def test_the_how_to_adds_a_population_in_at_most_25_lines():
    page = Path(__file__).parents[2] / "docs/how-to/add-a-population.md"
    code = re.search(r"```python\n(.*?)```", page.read_text(), re.S)[1]
    start = code.index("@dataclass")
    lines = code[start : code.index("\n\n\n", start)].splitlines()
    assert 5 < len(lines) <= 25


def test_simulating_is_playing(play, federation):
    """The engine gives what the small program of these tests gives."""
    algorithm = fedprior.learning.gaussian_prior(MODEL, scale=0.4, **COMMON)
    result = fedprior.simulate(algorithm, federation, rounds=ROUNDS, test=False)
    state, memories = play(algorithm, federation, ROUNDS)
    close(tree.flatten(result.state["gamma"]), tree.flatten(state["gamma"]))
    kept, _ = result.store.read(np.arange(5))
    close(jax.vmap(tree.flatten)(kept["w"]), jax.vmap(tree.flatten)(memories["w"]))
