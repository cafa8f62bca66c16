"""The one-round scheme in a federation: the same numbers as NumPy's, and through channels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import truncnorm

import fedprior
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.core import random, tree
from fedprior.data.federation import ClientData, Federation, Split
from fedprior.estimation.federated.algorithms import (
    bernoulli_rates,
    gaussian_means,
    mixture_means,
    rates_channel,
)
from fedprior.estimation.federated.parts import truncated_mean
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.mixture.em import (
    DiscreteMixture,
    maximize_mixture,
    mixture_messages,
    responsibilities,
)
from fedprior.estimation.statistics import counts_of, means_of

GROUPS = 150


def federation(y, own):
    """Clients of rows y; nothing to validate or to test on."""
    y = np.asarray(y, np.float32)
    x = np.zeros((len(y), 1), np.float32)
    rows = [np.flatnonzero(own == client) for client in range(own.max() + 1)]
    empty = Split.gather(x, y, [each[:0] for each in rows])
    names = np.arange(len(rows)).astype(str)
    return Federation(
        train=Split.gather(x, y, rows), valid=empty, test=empty, clients=names, classes=None
    )


def rows(seed, *, sizes, dimension=None, theta=0.3, noise=0.5):
    draws = np.random.default_rng(seed)
    own = np.repeat(np.arange(len(sizes)), sizes)
    shape = () if dimension is None else (dimension,)
    theta = 0.7 + theta * draws.standard_normal((len(sizes), *shape))
    y = (theta[own] + noise * draws.standard_normal((len(own), *shape))).astype(np.float32)
    return y, own


def run(algorithm, y, own, *, rounds=1, channel=None, seed=0):
    return fedprior.simulate(
        algorithm, federation(y, own), rounds=rounds, channel=channel, seed=seed
    )


UNEQUAL = np.random.default_rng(5).integers(1, 12, GROUPS)


@pytest.mark.parametrize(("weight", "dimension"), [("uniform", None), ("precision", 3)])
def test_known_variances_are_estimate_means(weight, dimension):
    sizes = np.full(GROUPS, 6) if weight == "uniform" else UNEQUAL
    y, own = rows(0, sizes=sizes, dimension=dimension)
    known = {"theta_variance": 0.09, "noise_variance": 0.25}
    expected = estimate_means(means_of(y, own, GROUPS), **known)
    found = run(gaussian_means(**known, weight=weight, dimension=dimension), y, own)
    np.testing.assert_allclose(found.thetas, expected.personal, atol=1e-5)
    np.testing.assert_allclose(found.state["gamma"]["mean"], expected.population.mean, atol=1e-5)


def test_unknown_variances_are_d1():
    dimension = 2
    y, own = rows(1, sizes=np.full(GROUPS, 6), dimension=dimension)
    means = means_of(y, own, GROUPS)
    expected = estimate_means(means, fit="moments")
    found = run(gaussian_means(center=0.5, dimension=dimension), y, own)
    gamma = found.state["gamma"]
    assert float(gamma["theta_variance"]) == pytest.approx(
        expected.population.parameters["variance"], abs=1e-5
    )
    assert float(gamma["noise_variance"]) == pytest.approx(
        expected.population.parameters["noise_variance"], abs=1e-5
    )
    np.testing.assert_allclose(found.thetas, expected.personal, atol=1e-5)


def test_rates_are_d2():
    """sigma^2 = (n V - mu (1 - mu) - V / m) / (n - 1), a = sigma^2 / (sigma^2 + (..) / n)."""
    n = 8
    draws = np.random.default_rng(2)
    own = np.repeat(np.arange(GROUPS), n)
    y = (draws.random(len(own)) < draws.beta(2, 3, GROUPS)[own]).astype(np.float32)
    counts = counts_of(y, own, GROUPS)
    rate = counts.successes / n
    mean, spread = rate.mean(), rate.var(ddof=1)
    variance = (n * spread - mean * (1 - mean) - spread / GROUPS) / (n - 1)
    weight = variance / (variance + (mean * (1 - mean) - variance) / n)
    found = run(bernoulli_rates(), y, own)
    assert float(found.state["gamma"]["variance"]) == pytest.approx(variance, abs=1e-6)
    np.testing.assert_allclose(found.thetas, weight * rate + (1 - weight) * mean, atol=1e-5)


def test_mixture_is_em():
    """Four rounds are four steps of plain EM from the same public centers."""
    width = 2
    y, own = rows(3, sizes=UNEQUAL, dimension=width)
    means = means_of(y, own, GROUPS)
    start = np.random.default_rng(0).normal(size=(3, width)) * 0.5 + 0.7
    mixture = DiscreteMixture(start, np.full(3, 1 / 3))
    flat = means.mean
    for _ in range(4):
        share, weighted = mixture_messages(flat, means.n, *mixture, 0.25)
        mixture = maximize_mixture(
            share.sum(axis=0), weighted.sum(axis=0), GROUPS, centers=mixture.centers
        )
    table, _ = responsibilities(flat, 0.25 / means.n, mixture)
    found = run(mixture_means(centers=start, noise_variance=0.25), y, own, rounds=4)
    expected = table @ mixture.centers
    np.testing.assert_allclose(np.asarray(found.thetas).reshape(GROUPS, width), expected, atol=2e-5)
    np.testing.assert_allclose(
        found.state["gamma"]["probabilities"], mixture.probabilities, atol=1e-5
    )


def test_channels_run_in_the_simulator():
    sizes = np.full(3000, 6)
    y, own = rows(4, sizes=sizes)
    quantize = Quantize(bits_per_coordinate=3, low=-1.0, high=2.5, weighted=True)
    known = {"theta_variance": 0.09, "noise_variance": 0.25}
    algorithm = gaussian_means(**known, channel_variance=float(quantize.variance()))
    found = run(algorithm, y, own, channel=quantize)
    assert float(found.state["gamma"]["error"]) == pytest.approx(quantize.variance() / 2999)
    assert float(found.state["gamma"]["mean"]) == pytest.approx(0.7, abs=0.05)
    noisy = LocalGaussian.calibrated(clip=2.0, epsilon=4.0, delta=1e-5, center=0.5)
    algorithm = gaussian_means(**known, channel_variance=noisy.scale**2)
    # standard error 4 * 0.95 / sqrt(3000) = 0.07; six of them
    assert float(run(algorithm, y, own, channel=noisy).state["gamma"]["mean"]) == pytest.approx(
        0.7, abs=0.42
    )
    with pytest.raises(fedprior.PrivacyError, match="under a private channel"):
        run(gaussian_means(), y, own, channel=noisy)


def test_rates_through_one_bit():
    """D3 with both statistics in one message: the population is found, and no rate is lost."""
    n, groups = 10, 20_000
    draws = np.random.default_rng(6)
    rate = draws.beta(3, 3, groups)
    own = np.repeat(np.arange(groups), n)
    y = (draws.random(len(own)) < rate[own]).astype(np.float32)
    channel = rates_channel(2.0, least=n)
    found = run(bernoulli_rates(channel=channel), y, own, channel=channel)
    gamma = {name: float(each) for name, each in found.state["gamma"].items()}
    # errors: mean 0.0066, variance 0.0018; five of each
    assert gamma["mean"] == pytest.approx(0.5, abs=0.033)
    assert gamma["variance"] == pytest.approx(1 / 28, abs=0.009)
    raw = counts_of(y, own, groups).successes / n
    errors = [np.mean((each - rate) ** 2) for each in (np.asarray(found.thetas), raw)]
    assert errors[0] < 0.72 * errors[1]  # 0.625 with the population known


ALGORITHMS = {
    "known": lambda: gaussian_means(theta_variance=0.09, noise_variance=0.25),
    "precision": lambda: gaussian_means(
        theta_variance=0.09, noise_variance=0.25, weight="precision"
    ),
    "unknown": gaussian_means,
    "rates": bernoulli_rates,
    "private-rates": lambda: bernoulli_rates(channel=rates_channel(1.0)),
    "mixture": lambda: mixture_means(centers=np.array([0.0, 1.0]), noise_variance=0.25),
}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_laws(name):
    """Padding and others' rows change nothing; no message changes nothing; weights are as said."""
    algorithm = ALGORITHMS[name]()
    key = random.root(0)
    state = algorithm.init(key)
    y = jnp.array([1.0, 0.0, 1.0, 1.0])
    number = jnp.int32(3)
    alone = ClientData(jnp.zeros((4, 1)), y, jnp.int32(0), number, jnp.arange(4))
    shifted = jnp.array([jnp.nan, 1.0, 0.0, 1.0, jnp.nan])
    inside = ClientData(jnp.zeros((5, 1)), shifted, jnp.int32(1), number, jnp.arange(4))
    message, memory = algorithm.local(state, {}, alone, key)
    assert memory == {}
    other, _ = algorithm.local(state, {}, inside, key)
    for first, second in zip(jax.tree.leaves(message), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6)
    assert (float(message.weight) == 1) == algorithm.unit_weight
    nothing = jax.tree.map(jnp.zeros_like, message)
    kept = algorithm.update(state, nothing)["gamma"]
    for first, second in zip(jax.tree.leaves(kept), jax.tree.leaves(state["gamma"]), strict=True):
        np.testing.assert_array_equal(first, second)
    learned = algorithm.update(state, message)
    theta = algorithm.personalize(learned, {}, alone, key)
    assert bool(tree.is_finite((learned, theta)))
    empty = alone._replace(size=jnp.int32(0))
    newcomer = algorithm.personalize(learned, {}, empty, key)
    assert bool(tree.is_finite(newcomer))
    outputs = algorithm.predict(theta, jnp.zeros((5, 1)))
    assert outputs.shape == (5,)
    np.testing.assert_allclose(
        algorithm.score(outputs, jnp.ones(5)), -((np.asarray(outputs) - 1) ** 2), rtol=1e-6
    )


@pytest.mark.parametrize(("value", "scale"), [(0.1, 0.05), (-0.5, 0.05), (0.255, 1e-3), (0.3, 3.0)])
def test_truncated_mean_is_scipys(value, scale):
    low, high = -value / scale, (0.25 - value) / scale
    expected = truncnorm.mean(low, high, loc=value, scale=scale)
    found = truncated_mean(jnp.float32(value), jnp.float32(scale), jnp.float32(0.25))
    assert float(found) == pytest.approx(expected, abs=2e-5)


def test_refusals():
    with pytest.raises(ValueError, match="give both theta_variance and noise_variance"):
        gaussian_means(theta_variance=1.0)
    with pytest.raises(ValueError, match="weight='precision' needs"):
        gaussian_means(weight="precision")
    with pytest.raises(ValueError, match="noise_variance must be a positive"):
        mixture_means(centers=np.zeros(2), noise_variance=0.0)
    with pytest.raises(ValueError, match="2 numbers of at least 0 with sum 1"):
        mixture_means(centers=np.zeros(2), noise_variance=1.0, probabilities=np.ones(2))
