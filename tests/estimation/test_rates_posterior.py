"""The population's posterior on its nodes, and the posterior of a rate, against brute force."""

import numpy as np
import pytest
from scipy import stats

from fedprior.estimation.conjugate import posterior
from fedprior.estimation.conjugate.grid import integrate, known_grid
from fedprior.estimation.conjugate.likelihood import log_likelihood, tally
from fedprior.estimation.families.binomial import BINOMIAL
from fedprior.estimation.statistics import Counts, collapse


def pairs_of(seed, m, alpha, beta, low=2, high=50):
    draws = np.random.default_rng(seed)
    n = draws.integers(low, high + 1, m)
    rate = draws.beta(alpha, beta, m) if alpha else np.full(m, beta)
    return collapse(Counts(n=n, successes=draws.binomial(n, rate)))


def brute_force(data, n, successes):
    """Posterior mean and deviation of one rate on a fine grid of u and the logit mean."""
    size = 1 / ((np.arange(200) + 0.5) / 200) ** 2 - 1
    mean = 1 / (1 + np.exp(-np.linspace(-20, 20, 400)))
    size, mean = (each.ravel() for each in np.meshgrid(size, mean, indexing="ij"))
    k = 4 * mean * (1 - mean) / np.sqrt(4 * mean * (1 - mean) + 0.4)
    log = log_likelihood(data, mean, size) + 0.5 * np.log(mean * (1 - mean))
    log += np.log(k) + 1.5 * (np.log1p(size) - np.log1p(k * size))
    v, m = 1 / np.sqrt(1 + k * size), data.num_informative
    tilt = 1 / 3 + 10 / m**2
    log += np.log((1 - 0.2 / m) * (1 + tilt) * v**tilt + 0.2 / m * 12 * (1 - v) ** 11)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    center = (successes + mean * size) / (n + size)
    spread = center * (1 - center) / (n + size + 1)
    first = weight @ center
    return first, np.sqrt(weight @ (spread + (center - first) ** 2))


@pytest.mark.parametrize(
    ("alpha", "beta", "m", "high"),
    [(2, 8, 10, 50), (1, 19, 10, 5), (0, 1e-4, 20, 20), (20, 80, 60, 50), (0.2, 0.3, 15, 9)],
)
def test_the_nodes_give_the_moments_of_a_fine_grid(alpha, beta, m, high):
    pairs = pairs_of(0, m, alpha, beta, high=high)
    data = tally(pairs)
    found = posterior.moments(integrate(data), pairs.n, pairs.successes)
    for row in (0, len(pairs.n) - 1):
        mean, scale = brute_force(data, pairs.n[row], pairs.successes[row])
        assert found.mean[row] == pytest.approx(mean, rel=0.01)
        assert np.sqrt(found.variance[row]) == pytest.approx(scale, rel=0.01)


@pytest.mark.parametrize("high", [10**6, 10**9])
def test_nodes_are_found_where_a_huge_size_makes_the_likelihood_narrow(high):
    pairs = pairs_of(1, 40, 3000, 7000, low=high // 2, high=high)
    grid = integrate(tally(pairs))
    raw = pairs.successes / pairs.n
    scale = np.sqrt(grid.weight @ (grid.mean * (1 - grid.mean) / (1 + grid.concentration)))
    assert scale == pytest.approx(raw.std(), rel=0.15)
    assert np.sum(grid.weight > 1e-3) >= 5


def test_a_known_population_gives_its_own_beta():
    n, successes = np.array([0.0, 5.0, 40.0]), np.array([0.0, 2.0, 40.0])
    grid = known_grid(BINOMIAL, 0.3, 12.0)
    twin = stats.beta(3.6 + successes, 8.4 + n - successes)
    found = posterior.moments(grid, n, successes)
    np.testing.assert_allclose(found.mean, twin.mean())
    np.testing.assert_allclose(found.variance, twin.var())
    lower, upper = posterior.rate_interval(grid, n, successes, level=0.9)
    np.testing.assert_allclose([lower, upper], [twin.ppf(0.05), twin.ppf(0.95)], rtol=1e-9)
    np.testing.assert_allclose(
        posterior.above(grid, n, successes, threshold=0.35), twin.sf(0.35), rtol=1e-9
    )


@pytest.mark.parametrize(("alpha", "beta"), [(2, 8), (0, 0.2), (0.05, 0.1), (1, 19)])
def test_quantiles_of_the_mixture_have_their_mass(alpha, beta):
    pairs = pairs_of(2, 30, alpha, beta)
    grid = integrate(tally(pairs))
    mixture = posterior.mixture(grid, pairs.n, pairs.successes)
    about = posterior.moments(grid, pairs.n, pairs.successes)
    for level in (0.025, 0.5, 0.999):
        start = BINOMIAL.quantile(BINOMIAL.matched(about.mean, about.variance), level)
        found = posterior.mixture_quantile(mixture, start, level)
        inside = (found > 1e-11) & (found < 1 - 1e-11)  # nearer bounds are as good as 0 and 1
        np.testing.assert_allclose(mixture.below(found)[inside], level, atol=5e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(200, 800), (20, 80), (0, 0.2)])
def test_many_pairs_get_nearly_the_same_quantiles(alpha, beta, monkeypatch):
    pairs = pairs_of(3, 1000, alpha, beta)
    grid = integrate(tally(pairs), num_scales=12)
    mixture = posterior.mixture(grid, pairs.n, pairs.successes)
    monkeypatch.setattr(posterior, "_EXACT_CELLS", 0)
    bounds = posterior.rate_interval(grid, pairs.n, pairs.successes, level=0.95)
    for bound, tail in zip(bounds, (0.025, 0.975), strict=True):
        missed = mixture.below(bound) - tail
        assert np.sqrt(pairs.count @ missed**2 / pairs.count.sum()) < 0.002


def test_the_bound_is_0_where_the_density_is_highest_at_0():
    pairs = pairs_of(4, 50, 0.1, 5)
    grid = integrate(tally(pairs))
    lower, upper = posterior.rate_interval(grid, pairs.n, pairs.successes, level=0.95)
    assert (lower[pairs.successes == 0] == 0).all()
    assert (lower[pairs.successes > 0] > 0).all()
    assert (upper < 1).all()
    near = integrate(tally(pairs_of(5, 200, 30, 70)))
    lower, _ = posterior.rate_interval(near, np.array([2.0]), np.array([0.0]), level=0.95)
    assert lower[0] > 0.1


def test_probabilities_above_agree_with_the_intervals():
    pairs = pairs_of(6, 40, 2, 8)
    grid = integrate(tally(pairs))
    lower, upper = posterior.rate_interval(grid, pairs.n, pairs.successes, level=0.95)
    chance = posterior.above(grid, pairs.n, pairs.successes, threshold=0.2)
    assert (chance[lower > 0.2] > 0.975).all()
    assert (chance[upper < 0.2] < 0.025).all()
