"""Priors with an EM step: densities, gradients, and the step against known answers."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import logsumexp, softmax

import fedprior
from fedprior.core import tree
from fedprior.core.protocols import ClientPosterior, Maximizable

DRAWS = np.random.default_rng(0)
THETA = {
    "a": DRAWS.normal(size=(2, 3)).astype(np.float32),
    "b": np.asarray(DRAWS.normal(), np.float32),
}
WIDTH = 7
POPULATIONS = {
    "gaussian": fedprior.populations.Gaussian(scale=0.6),
    "gaussian-each": fedprior.populations.Gaussian(scale=0.6, per_coordinate=True),
    "laplace": fedprior.populations.Laplace(scale=0.6),
    "mixture": fedprior.populations.GaussianMixture(num_components=3, scale=0.6, jitter=0.8),
}


def double():
    """64-bit floats, under whichever name this version of JAX has for it."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


@pytest.fixture(params=sorted(POPULATIONS))
def population(request):
    return POPULATIONS[request.param]


# Compiled: operation by operation, each operation would be compiled by itself.
@partial(jax.jit, static_argnums=0)
def penalty(population, gamma, w):
    return population.penalty(gamma, w, None, None, None)


@partial(jax.jit, static_argnums=0)
def started(population):
    return population.start(jax.tree.map(jnp.asarray, THETA))


@partial(jax.jit, static_argnums=0)
def projected(population, gamma):
    return population.project(gamma)


def varied(population, seed=1):
    """A gamma with unequal shares and scales."""
    gamma = jax.tree.map(np.asarray, started(population))
    draws = np.random.default_rng(seed)

    def vary(leaf):
        return (leaf * draws.uniform(0.5, 1.5, leaf.shape)).astype(np.float32)

    gamma["scale"] = jax.tree.map(vary, gamma["scale"])
    if "log_shares" in gamma:
        logits = vary(gamma["log_shares"])
        gamma["log_shares"] = logits - logsumexp(logits)
    return projected(population, gamma)


def flat(theta):
    """A theta as a vector; with an axis of parts, its vectors."""
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(theta)]
    if leaves[0].ndim == 2:
        return np.concatenate([leaf.ravel() for leaf in leaves])
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def shaped(vector):
    """The theta whose vector it is."""
    vector = np.asarray(vector, np.float32)
    lead = vector.shape[:-1]
    return {"a": vector[..., :6].reshape(*lead, 2, 3), "b": vector[..., 6].reshape(lead)}


def test_the_mixture_is_minus_the_log_density():
    """ERRATA 26: signs, shares, exponents."""
    population = POPULATIONS["mixture"]
    gamma, w = varied(population), flat(THETA) + 0.3
    terms = [
        np.log(share) + stats.multivariate_normal.logpdf(w, center, float(scale) ** 2)
        for share, center, scale in zip(
            np.exp(gamma["log_shares"]), flat(gamma["centers"]), gamma["scale"], strict=True
        )
    ]
    found = penalty(population, gamma, shaped(w))
    np.testing.assert_allclose(found, -logsumexp(terms), rtol=1e-5)


def test_per_coordinate_scales_are_minus_the_log_density():
    population = POPULATIONS["gaussian-each"]
    gamma, w = varied(population), flat(THETA) + 0.3
    wanted = -stats.norm.logpdf(w, flat(gamma["mean"]), flat(gamma["scale"])).sum()
    np.testing.assert_allclose(penalty(population, gamma, shaped(w)), wanted, 1e-5)


def test_gradients_are_those_of_finite_differences(population):
    """By w and by every block of gamma that enters the density."""
    gamma = jax.tree.map(lambda leaf: np.asarray(leaf, float), varied(population))
    if "centers" in gamma:
        del gamma["mean"]  # follows from the others
    at = {"gamma": gamma, "w": jax.tree.map(lambda leaf: np.asarray(leaf + 0.3, float), THETA)}
    with double():

        def value(vector):
            point = tree.unflatten(vector, at)
            return population.penalty(point["gamma"], point["w"], None, None, None)

        both = jax.jit(jax.value_and_grad(value))
        vector = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(at)])
        gradient = np.asarray(both(vector)[1])
        differences = approx_fprime(vector, lambda v: float(both(v)[0]), 1e-7)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=5e-6)
    assert np.abs(gradient).max() > 0.1


def test_the_pull_of_a_mixture_is_its_gradient():
    population = POPULATIONS["mixture"]
    gamma, w = varied(population), shaped(flat(THETA) + 0.3)
    gradient = jax.jit(jax.grad(lambda own: penalty(population, gamma, own)))(w)
    center, precision = jax.jit(population.pull)(gamma, w)
    pull = float(precision) * (flat(w) - flat(center))
    np.testing.assert_allclose(pull, flat(gradient), rtol=1e-4, atol=1e-5)


@partial(jax.jit, static_argnums=0)
def parts_at_prior(population, gamma):
    prior = population.prior(gamma)
    return prior, population.parts(gamma, prior)


def test_the_parts_of_normal_priors_are_the_prior(population):
    """-log p of the mixture of the parts; the Laplace law is no mixture of them."""
    if isinstance(population, fedprior.populations.Laplace):
        pytest.skip("Its parts are normal near a posterior only.")
    gamma, w = varied(population), flat(THETA) + 0.3
    _, parts = parts_at_prior(population, gamma)
    terms = stats.norm.logpdf(w, flat(parts.center), flat(parts.precision) ** -0.5).sum(axis=1)
    found = penalty(population, gamma, shaped(w))
    np.testing.assert_allclose(found, -logsumexp(terms + np.asarray(parts.log_share)), rtol=1e-5)


def posteriors(population, number=40, seed=2, spread=0.2):
    """Posteriors of `number` clients that do not come from any gamma: share, w, spread."""
    draws, parts = np.random.default_rng(seed), population.num_parts
    w = 1 + 2 * draws.normal(size=(number, parts, WIDTH))
    share = draws.dirichlet(np.ones(parts), number)
    return share, w, spread * draws.uniform(0.5, 1.5, w.shape)


@partial(jax.jit, static_argnums=0)
def _step(population, gamma, each, rate):
    found = jax.vmap(lambda one: population.statistics(gamma, one))(each)
    average = jax.tree.map(lambda leaf: leaf.mean(axis=0), found)
    return population.maximize(gamma, average, rate), average


def step(population, gamma, each, rate=1.0):
    """The next gamma, and the mean of the statistics."""
    share, w, spread = each
    posterior = ClientPosterior(np.asarray(share, np.float32), shaped(w), shaped(spread))
    return _step(population, gamma, posterior, rate)


@pytest.mark.parametrize("each", [False, True])
def test_a_gaussian_takes_the_moments(each):
    """Mean of w, and of (w - mean)^2 + spread about the new mean (D5)."""
    population = POPULATIONS["gaussian-each" if each else "gaussian"]
    known = posteriors(population)
    found, _ = step(population, varied(population), known)
    w, spread = (part[:, 0] for part in known[1:])
    variance = ((w - w.mean(axis=0)) ** 2 + spread).mean(axis=0)
    np.testing.assert_allclose(flat(found["mean"]), w.mean(axis=0), rtol=1e-4)
    if each:
        np.testing.assert_allclose(flat(found["scale"]), variance**0.5, rtol=1e-4)
    else:
        np.testing.assert_allclose(found["scale"], variance.mean() ** 0.5, rtol=1e-4)


def test_a_mixture_takes_the_weighted_moments():
    population = POPULATIONS["mixture"]
    share, w, spread = known = posteriors(population)
    found, _ = step(population, varied(population), known)
    centers = np.einsum("il,ild->ld", share, w) / share.sum(axis=0)[:, None]
    variance = np.einsum("il,ild->l", share, (w - centers) ** 2 + spread)
    variance /= WIDTH * share.sum(axis=0)
    np.testing.assert_allclose(np.exp(found["log_shares"]), share.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(flat(found["centers"]), centers, rtol=1e-3)
    np.testing.assert_allclose(found["scale"], variance**0.5, rtol=1e-4)
    wanted = np.einsum("l,ld->d", share.mean(axis=0), centers)
    np.testing.assert_allclose(flat(found["mean"]), wanted, rtol=1e-3)


def test_a_laplace_law_takes_the_mean_distance():
    """SciPy's folded normal; repeated steps reach the mean of least total distance."""
    population = POPULATIONS["laplace"]
    known = posteriors(population)
    w, spread = (part[:, 0] for part in known[1:])

    def distance(mean):
        scale = spread**0.5
        return stats.foldnorm.mean(np.abs(w - mean) / scale, scale=scale).mean(axis=0)

    found, _ = step(population, varied(population), known)
    np.testing.assert_allclose(found["scale"], distance(flat(THETA)).mean(), rtol=1e-4)
    for _ in range(60):
        found, _ = step(population, found, known)
    mean = flat(found["mean"])
    np.testing.assert_allclose(found["scale"], distance(mean).mean(), rtol=1e-4)
    for shift in (-0.05, 0.05):
        assert (distance(mean + shift) > distance(mean)).all()


def test_a_step_never_lowers_the_expected_log_density(population):
    """Ten steps, from far away."""
    gamma, each = varied(population), posteriors(population)
    values = [expected(population, gamma, each)]
    for _ in range(10):
        gamma, _ = step(population, gamma, each)
        values.append(expected(population, gamma, each))
    assert (np.diff(values) > -1e-4).all()
    assert values[1] > values[0] + 0.1


def expected(population, gamma, each):
    """E log p(part, theta | gamma), by the moments or, for the Laplace law, by SciPy."""
    share, w, spread = each
    if isinstance(population, fedprior.populations.Laplace):
        scale = float(gamma["scale"])
        away = np.abs(w - flat(gamma["mean"])) / spread**0.5
        distance = stats.foldnorm.mean(away, scale=spread**0.5)
        return float((-distance / scale - np.log(2 * scale)).sum(axis=(1, 2)).mean())
    _, parts = parts_at_prior(population, gamma)
    precision = flat(parts.precision)
    squares = ((w - flat(parts.center)) ** 2 + spread) * precision
    terms = -(squares - np.log(precision)).sum(axis=2) / 2
    return float((share * (terms + np.asarray(parts.log_share))).sum(axis=1).mean())


def test_a_lower_rate_mixes_with_the_moments_of_gamma(population):
    """The moments behind gamma are (1 - rate) its own and rate the clients' (stepwise EM)."""
    gamma, each = varied(population), posteriors(population)
    found, average = step(population, gamma, each, 0.25)
    if isinstance(population, fedprior.populations.Laplace):
        wanted = gamma["scale"] + 0.25 * average["scale"]
        np.testing.assert_allclose(found["scale"], wanted, rtol=1e-5)
        return
    prior, _ = parts_at_prior(population, gamma)
    at_rest = (np.asarray(prior.share), flat(prior.w), flat(prior.spread))
    mixed = [
        np.concatenate([own, *[rest[None]] * 3 * len(own)])
        for own, rest in zip(each, at_rest, strict=True)
    ]
    wanted, _ = step(population, gamma, mixed)
    close(found, wanted, 1e-3)


def close(first, second, tolerance):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10)


def statistics(population, gamma, fill):
    """Statistics of the right shapes with other values."""
    like = jax.eval_shape(lambda: population.statistics(gamma, population.prior(gamma)))
    return jax.tree.map(lambda leaf: np.asarray(fill(leaf.shape), np.float32), like)


@partial(jax.jit, static_argnums=0)
def maximize(population, gamma, average, rate):
    return population.maximize(gamma, average, rate)


def test_gamma_is_at_rest_where_statistics_are_zero(population):
    gamma = varied(population)
    found = maximize(population, gamma, statistics(population, gamma, np.zeros), 1.0)
    assert set(found) == set(gamma)
    close(found, gamma, 1e-5)


def test_statistics_are_increments(population):
    """A law: at a fixed point of the step their mean is 0 in every entry, which a clip needs.

    The clients are far from alike, so that each statistic by itself is not 0.
    """
    gamma, each = varied(population), posteriors(population)
    for _ in range(200):
        gamma, average = step(population, gamma, each)
    for leaf in jax.tree.leaves(average):
        np.testing.assert_allclose(leaf, 0, atol=2e-4)
    _, alone = step(population, gamma, tuple(part[:1] for part in each))
    assert all(np.abs(leaf).max() > 0.01 for leaf in jax.tree.leaves(alone))


def test_the_laws_see_every_population_with_an_em_step():
    found = [Maximizable]
    for kind in found:
        found += kind.__subclasses__()
    own = {kind for kind in found if kind.__module__.startswith("fedprior.populations.")}
    assert own == {type(population) for population in POPULATIONS.values()}


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(POPULATIONS)),
    seed=st.integers(0, 2**20),
    size=st.sampled_from([0.1, 10.0, 1e4]),
    rate=st.sampled_from([0.1, 1.0]),
)
def test_noise_in_the_average_leaves_a_proper_gamma(name, seed, size, rate):
    """Floors and clamped shares, whatever a private channel adds; the next step is finite, too."""
    population, draws = POPULATIONS[name], np.random.default_rng(seed)
    gamma = varied(population)
    for _ in range(2):
        noise = statistics(population, gamma, lambda shape: size * draws.normal(size=shape))
        gamma = maximize(population, gamma, noise, rate)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gamma))
    assert all((np.asarray(leaf) >= 1e-3).all() for leaf in jax.tree.leaves(gamma["scale"]))
    again = projected(population, gamma)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(gamma), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    if "log_shares" in gamma:
        share = np.exp(gamma["log_shares"])
        np.testing.assert_allclose(share.sum(), 1, rtol=1e-5)
        assert (share > 0).all()


def test_floors_hold_and_a_narrower_start_is_its_own_floor(population):
    least = replace(population, scale=1e-5, scale_floor=1e-2)
    start = jax.tree.leaves(started(least)["scale"])
    assert all((np.asarray(leaf) == np.float32(1e-5)).all() for leaf in start)
    gamma = varied(population)
    gamma["scale"] = jax.tree.map(np.zeros_like, gamma["scale"])
    floored = jax.tree.leaves(projected(population, gamma)["scale"])
    assert all((np.asarray(leaf) == np.float32(1e-3)).all() for leaf in floored)
    assert isinstance(population, Maximizable)


def test_a_law_of_points_has_no_density():
    with pytest.raises(TypeError, match=r"^Discrete has no density, thus no penalty"):
        penalty(fedprior.populations.Discrete(num_components=2), None, None)


@pytest.mark.parametrize("hard", [False, True])
def test_belonging_is_bayes_rule(hard):
    population = fedprior.populations.Discrete(num_components=3, hard=hard)
    gamma = {"log_shares": np.log(np.array([0.5, 0.3, 0.2], np.float32))}
    alpha = jax.jit(population.belonging)(gamma, np.array([501.0, 500.0, 502.0]))
    wanted = softmax(np.log([0.5, 0.3, 0.2]) - np.array([1.0, 0.0, 2.0]))
    np.testing.assert_allclose(alpha, [0, 1, 0] if hard else wanted, rtol=1e-4)


@pytest.mark.parametrize(
    "kind", [fedprior.populations.GaussianMixture, fedprior.populations.Discrete]
)
def test_bad_mixtures(kind):
    owner = kind.__name__
    with pytest.raises(ValueError, match=f"^{owner}: num_components must be a whole number of at"):
        kind(num_components=0)
    with pytest.raises(
        ValueError, match=rf"^{owner}: share_floor must be below 1 / num_components"
    ):
        kind(num_components=4, share_floor=0.25)
    with pytest.raises(
        ValueError, match=f"^{owner}: jitter must be a number of at least 0, got -1"
    ):
        kind(num_components=2, jitter=-1)
