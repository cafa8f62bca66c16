"""Known covariance between clients: the joint law, and the mode that the clients settle at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime

import fedprior
from fedprior.core import random, tree

EVERYTHING = fedprior.Batches(steps_per_epoch=1)
NUM_CLIENTS, DIMENSION = 5, 3
MODEL = fedprior.models.linear(DIMENSION)


def related(seed=0, num_clients=NUM_CLIENTS):
    """A covariance with relations of both signs."""
    factor = np.random.default_rng(seed).normal(size=(num_clients, num_clients))
    return factor @ factor.T / num_clients + 0.3 * np.eye(num_clients)


def line(num_clients=NUM_CLIENTS, seed=3, low=2, high=8):
    """Clients of unequal size, some with fewer rows than coefficients."""
    draws = np.random.default_rng(seed)
    sizes = draws.integers(low, high, num_clients, endpoint=True)
    own = np.repeat(np.arange(num_clients), sizes)
    x = draws.normal(size=(len(own), DIMENSION))
    theta = draws.normal(size=(num_clients, DIMENSION))
    y = (x * theta[own]).sum(axis=1) + 0.3 * draws.normal(size=len(own)) + 0.5
    return fedprior.Federation.from_arrays(
        x, y, own, regression=True, valid_share=0.0, test_share=0.0
    )


@pytest.fixture(scope="module")
def clients():
    return line()


def joint_mode(federation, omega, scale):
    """argmin of sum over samples of (y - <theta_i, (1, x)>)^2 / 2, plus -log p: one linear system.

    Rows are (intercept, weights); the mean is 0.
    """
    number, width = federation.num_clients, DIMENSION + 1
    system = np.kron(np.linalg.inv(omega), np.eye(width)) / scale**2
    right = np.zeros(number * width)
    for client in range(number):
        data = federation.train.client(client)
        x = np.hstack([np.ones((len(data.x), 1)), data.x])
        place = slice(client * width, (client + 1) * width)
        system[place, place] += x.T @ x
        right[place] = x.T @ data.y
    return np.linalg.solve(system, right).reshape(number, width)


def rows(thetas):
    return np.hstack([np.asarray(thetas["intercept"])[:, None], np.asarray(thetas["weight"])])


def built(omega, *, scale=1.0, **options):
    options = {"steps": fedprior.Steps(batches=EVERYTHING), "theta_rate": 0.15, **options}
    return fedprior.learning.multitask(
        MODEL, fedprior.populations.Multitask(covariance=omega, scale=scale), **options
    )


# The law


@given(seed=st.integers(0, 50), scale=st.floats(0.2, 3.0))
def test_the_joint_law_is_scipys(seed, scale):
    draws = np.random.default_rng(seed)
    omega, thetas, mean = related(seed, 4), draws.normal(size=(4, 2)), draws.normal(size=2)
    population = fedprior.populations.Multitask(covariance=omega, scale=scale)
    covariance = np.kron(omega, scale**2 * np.eye(2))
    wanted = -stats.multivariate_normal(np.tile(mean, 4), covariance).logpdf(thetas.ravel())
    np.testing.assert_allclose(population.penalty(mean, thetas), wanted, rtol=1e-9)


@given(seed=st.integers(0, 50))
def test_the_conditional_pull_is_the_law_given_the_others(seed):
    """E = mu + O_io O_oo^-1 (theta_o - mu), Var = scale^2 (O_ii - O_io O_oo^-1 O_oi)."""
    draws = np.random.default_rng(seed)
    omega, thetas, mean, scale = related(seed), draws.normal(size=(5, 2)), draws.normal(size=2), 0.7
    population = fedprior.populations.Multitask(covariance=omega, scale=scale)
    held = population.curvature("conditional")
    for client in range(5):
        others = np.delete(np.arange(5), client)
        gain = np.linalg.solve(omega[np.ix_(others, others)], omega[others, client])
        found = population.pull(mean, thetas, client, population.precision, held)
        np.testing.assert_allclose(found[0], mean + gain @ (thetas[others] - mean), atol=1e-9)
        wanted = scale**2 * (omega[client, client] - gain @ omega[others, client])
        np.testing.assert_allclose(found[1], wanted, rtol=1e-9)


@given(seed=st.integers(0, 50))
def test_the_bounds_pull_lies_above_the_joint_penalty_and_touches_it(seed):
    draws = np.random.default_rng(seed)
    population = fedprior.populations.Multitask(covariance=related(seed), scale=0.7)
    held = population.curvature("bound")
    mean, old, new = draws.normal(size=2), *draws.normal(size=(2, 5, 2))
    pulls = [population.pull(mean, old, i, population.precision, held) for i in range(5)]

    def apart(thetas):
        away = [((thetas[i] - center) ** 2).sum() / (2 * v) for i, (center, v) in enumerate(pulls)]
        return sum(away)

    bound = population.penalty(mean, old) + apart(new) - apart(old)
    assert bound >= population.penalty(mean, new) - 1e-9


@pytest.mark.parametrize("coupling", ["conditional", "bound"])
def test_the_pulls_are_the_slope_of_the_joint_penalty(coupling):
    """Against finite differences, where each client is."""
    draws = np.random.default_rng(6)
    population = fedprior.populations.Multitask(covariance=related(6), scale=0.7)
    mean, thetas = draws.normal(size=2), draws.normal(size=(5, 2))
    held = population.curvature(coupling)
    slopes = []
    for client in range(5):
        center, variance = population.pull(mean, thetas, client, population.precision, held)
        slopes.append((thetas[client] - center) / variance)
    differences = approx_fprime(
        thetas.ravel(), lambda flat: population.penalty(mean, flat.reshape(5, 2)), 1e-7
    )
    np.testing.assert_allclose(np.ravel(slopes), differences, rtol=1e-5, atol=1e-5)


def test_the_mean_of_given_parameters_is_the_best_one():
    draws = np.random.default_rng(5)
    population = fedprior.populations.Multitask(covariance=related(5))
    thetas = draws.normal(size=(5, 3))
    best = population.mean(thetas)
    for away in np.vstack([np.eye(3), -np.eye(3)]):
        assert population.penalty(best, thetas) < population.penalty(best + 0.01 * away, thetas)


# The algorithm


@pytest.mark.parametrize("coupling", ["bound", "conditional"])
def test_the_clients_settle_at_the_joint_posterior_mode(play, clients, coupling):
    state, memories = play(built(related(), scale=0.8, coupling=coupling), clients, 300)
    np.testing.assert_allclose(rows(memories["w"]), joint_mode(clients, related(), 0.8), atol=1e-5)
    np.testing.assert_array_equal(state["gamma"]["thetas"], rows(memories["w"]))


@pytest.mark.evidence
def test_they_settle_there_when_a_few_take_part_at_a_time(clients):
    cohort = fedprior.FixedSize(size=2)
    result = fedprior.simulate(built(related()), clients, rounds=600, cohort=cohort, test=False)
    np.testing.assert_allclose(rows(result.thetas), joint_mode(clients, related(), 1), atol=1e-5)


def test_moving_at_once_on_conditional_laws_can_diverge_and_the_bound_does_not(play):
    """Precision 1 on, 0.7 off the diagonal: Jacobi's matrix has spectral radius 1.4."""
    omega = np.linalg.inv(0.3 * np.eye(3) + 0.7)
    federation = line(3, low=2, high=2)
    algorithm = built(
        omega,
        scale=0.02,
        steps=fedprior.Steps(local_steps=30, batches=EVERYTHING),
        theta_rate=4e-4,
    )
    state = algorithm.init(random.root(0))
    _, calm = play(algorithm, federation, 200, state=state)
    wanted = joint_mode(federation, omega, 0.02)
    np.testing.assert_allclose(rows(calm["w"]), wanted, atol=1e-5)
    _, wild = play(algorithm, federation, 200, state={**state, "curvature": jnp.ones(3)})
    assert not np.abs(rows(wild["w"])).max() < 10


def test_unrelated_clients_are_the_gaussian_prior_with_a_fixed_mean(play, clients):
    steps = fedprior.Steps(local_steps=4, batches=fedprior.Batches(size=3))
    options = {"theta_rate": 0.1, "steps": steps}
    prior = fedprior.learning.gaussian_prior(MODEL, scale=0.6, gamma_rate=0.0, **options)
    wanted, found = (
        play(algorithm, clients, 3)[1]["w"]
        for algorithm in (prior, built(np.eye(NUM_CLIENTS), scale=0.6, **options))
    )
    np.testing.assert_allclose(rows(found), rows(wanted), atol=1e-6)


def test_a_learned_mean_is_that_of_the_joint_mode(play, clients):
    """With the mean free the mode is where both gradients vanish."""
    omega, scale = related(2), 0.8
    state, memories = play(built(omega, scale=scale, learn_mean=True), clients, 800)
    thetas, mean = rows(memories["w"]), np.asarray(tree.flatten(state["gamma"]["mean"]))
    pull = np.linalg.inv(omega) @ (thetas - mean) / scale**2
    np.testing.assert_allclose(pull.sum(axis=0), 0, atol=2e-4)
    for client in range(NUM_CLIENTS):
        data = clients.train.client(client)
        x = np.hstack([np.ones((len(data.x), 1)), data.x])
        gradient = x.T @ (x @ thetas[client] - data.y) + pull[client]
        np.testing.assert_allclose(gradient, 0, atol=5e-4)


def test_a_newcomer_begins_where_the_others_draw_it(clients):
    """Without steps of its own it is at its conditional mean given the others."""
    omega, new = related(), 3
    algorithm = built(omega, newcomer_steps=0)
    state = algorithm.init(random.root(0))
    thetas = np.random.default_rng(2).normal(size=(NUM_CLIENTS, DIMENSION + 1))
    thetas[new] = 0
    gamma = {**state["gamma"], "thetas": jnp.asarray(thetas, jnp.float32)}
    state = {**state, "gamma": gamma}
    memory = algorithm.enroll(state, jnp.int32(new), random.root(1))
    data = jax.tree.map(jnp.asarray, clients.train.client(new))
    theta = jax.jit(algorithm.personalize)(state, memory, data, random.root(2))
    others = np.delete(np.arange(NUM_CLIENTS), new)
    gain = np.linalg.solve(omega[np.ix_(others, others)], omega[others, new])
    np.testing.assert_allclose(tree.flatten(theta), gain @ thetas[others], atol=1e-5)


def test_related_clients_learn_from_each_other():
    """What the mode is worth: two clusters of clients with 2 rows each for 4 coefficients."""
    draws = np.random.default_rng(8)
    cluster = np.repeat([0, 1], 10)
    omega = 0.9 * (cluster[:, None] == cluster) + 0.1 * np.eye(20)
    theta = np.linalg.cholesky(omega) @ draws.normal(size=(20, DIMENSION + 1))
    own = np.repeat(np.arange(20), 2)
    x = draws.normal(size=(40, DIMENSION))
    y = theta[own, 0] + (x * theta[own, 1:]).sum(axis=1) + draws.normal(size=40)
    shares = {"valid_share": 0.0, "test_share": 0.0}
    federation = fedprior.Federation.from_arrays(x, y, own + 100, regression=True, **shares)
    together, apart = (
        ((joint_mode(federation, each, 1.0) - theta) ** 2).mean() for each in (omega, np.eye(20))
    )
    assert together < 0.7 * apart


def test_absent_clients_change_nothing():
    algorithm = built(related())
    state = algorithm.init(random.root(0))
    value = {"client": jnp.zeros(3), "theta": jnp.zeros((3, DIMENSION + 1))}
    moved = {**state["gamma"], "thetas": state["gamma"]["thetas"] + 1}
    after = algorithm.update({**state, "gamma": moved}, fedprior.Message(value, jnp.zeros(3)))
    np.testing.assert_array_equal(after["gamma"]["thetas"], moved["thetas"])


# What is refused


def test_it_is_refused_where_messages_must_be_hidden(clients):
    algorithm = built(related())
    assert algorithm.pools == "gather"
    channels = [
        fedprior.channels.CentralGaussian(clip=1.0, noise_multiplier=1.0),
        fedprior.channels.LocalGaussian(clip=1.0, scale=1.0),
    ]
    for channel in channels:
        for engine in (fedprior.simulate, fedprior.debug):
            with pytest.raises(fedprior.PrivacyError, match=r"must be Identity\(\) for multitask"):
                engine(algorithm, clients, rounds=1, channel=channel)
    rounded = fedprior.channels.Quantize(bits_per_coordinate=8, low=-1.0, high=1.0, weighted=True)
    with pytest.raises(ValueError, match=r"^Agreement: channel must be Identity\(\) for multitask"):
        fedprior.simulate(algorithm, clients, rounds=1, channel=rounded)  # it rounds names, too


def test_a_covariance_of_other_clients_is_refused(clients):
    population = fedprior.populations.Multitask(covariance=np.eye(clients.num_clients + 1))
    algorithm = fedprior.learning.multitask(MODEL, population)
    with pytest.raises(ValueError, match=r"number of clients must be \d+ for multitask"):
        fedprior.simulate(algorithm, clients, rounds=1)


@pytest.mark.parametrize(
    ("covariance", "wording"),
    [
        (np.ones(3), r"a square matrix, got \(3,\)"),
        (np.ones((2, 3)), r"a square matrix, got \(2, 3\)"),
        (np.zeros((0, 0)), "a square matrix, got"),
        ([[1.0, np.nan], [np.nan, 1.0]], "finite, got 'NaN or infinity'"),
        ([[1.0, 0.5], [0.4, 1.0]], "symmetric, got 'a difference of 0.1'"),
        (np.ones((2, 2)), "positive definite, got 'an eigenvalue of .*Add a little to its"),
    ],
)
def test_bad_covariances(covariance, wording):
    with pytest.raises(ValueError, match=f"^Multitask: covariance must be {wording}"):
        fedprior.populations.Multitask(covariance=covariance)


def test_bad_options():
    population = fedprior.populations.Multitask(covariance=np.eye(2))
    with pytest.raises(ValueError, match=r"^Multitask: scale must be a positive number, got 0"):
        fedprior.populations.Multitask(covariance=np.eye(2), scale=0)
    with pytest.raises(ValueError, match=r"^Multitask: coupling must be one of bound, conditional"):
        fedprior.learning.multitask(MODEL, population, coupling="jacobi")
    with pytest.raises(ValueError, match=r"^multitask: local_epochs is not supported"):
        fedprior.learning.multitask(MODEL, population, steps=fedprior.Steps(local_epochs=1))
