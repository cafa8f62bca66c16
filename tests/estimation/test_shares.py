"""Shares of categories from a Dirichlet population, margin by margin."""

import numpy as np
import pytest
from scipy import special

from fedprior.estimation.conjugate.estimate import estimate_rates
from fedprior.estimation.conjugate.shares import estimate_shares
from fedprior.estimation.shares import GroupShares
from fedprior.estimation.statistics import Counts, Shares


def drawn(seed, m, mean, size, most=60):
    draws = np.random.default_rng(seed)
    p = draws.dirichlet(np.asarray(mean) * size, m)
    return draws.multinomial(draws.integers(2, most, m), p), p


@pytest.mark.parametrize(("m", "close"), [(5, 0.01), (50, 0.003), (500, 0.002)])
def test_two_categories_are_rates(m, close):
    draws = np.random.default_rng(m)
    n = draws.integers(2, 40, m)
    won = draws.binomial(n, draws.beta(2, 5, m))
    rates = estimate_rates(Counts(n=n, successes=won))
    shares = estimate_shares(Shares(counts=np.stack([won, n - won], axis=1)))
    np.testing.assert_allclose(shares.personal[:, 0], rates.personal, atol=close)
    np.testing.assert_allclose(shares.lower[:, 0], rates.lower, atol=2 * close)
    np.testing.assert_allclose(shares.upper[:, 1], 1 - rates.lower, atol=2 * close)
    assert shares.gain_over_raw == pytest.approx(rates.gain_over_raw, abs=1.0)


def test_the_concentration_is_near_the_likeliest():
    """Against a direct maximum of the Dirichlet-multinomial likelihood at the true mean."""
    mean = np.array([0.5, 0.3, 0.15, 0.05])
    counts, _ = drawn(0, 2000, mean, 8.0)
    size = np.geomspace(2, 30, 200)[:, None, None]
    shape = mean * size
    each = special.gammaln(shape + counts) - special.gammaln(shape)
    total = special.gammaln(size) - special.gammaln(size + counts.sum(axis=1)[:, None])
    log_likelihood = each.sum(axis=(1, 2)) + total.sum(axis=(1, 2))
    best = float(size.ravel()[np.argmax(log_likelihood)])
    found = estimate_shares(Shares(counts=counts)).population
    assert found.parameters["concentration"] == pytest.approx(best, rel=0.03)
    np.testing.assert_allclose(found.mean, mean, atol=0.02)


def test_estimates_are_posterior_means_and_sum_to_one():
    counts, _ = drawn(1, 800, [0.6, 0.3, 0.1], 5.0)
    found = estimate_shares(Shares(counts=counts))
    size = found.population.parameters["concentration"]
    prior = size * np.asarray(found.population.mean)
    expected = (counts + prior) / (counts.sum(axis=1, keepdims=True) + size)
    np.testing.assert_allclose(found.personal, expected, atol=0.003)
    np.testing.assert_allclose(found.personal.sum(axis=1), 1)
    assert ((found.lower <= found.personal) & (found.personal <= found.upper)).all()


def test_a_category_that_nobody_has_seen_keeps_a_share():
    counts = np.array([[5, 3, 0], [2, 6, 0], [4, 4, 0]])
    found = estimate_shares(Shares(counts=counts))
    assert (found.personal[:, 2] > 0).all()
    assert (found.lower[:, 2] == 0).all()


def test_group_shares():
    y = ["a", "b", "a", None, "c", "a", "b", "a"]
    groups = ["x", "x", "x", "x", "y", "y", "y", None]
    model = GroupShares().fit(y, groups)
    assert model.categories_.tolist() == ["a", "b", "c"]
    assert model.n_.tolist() == [3, 3]
    assert model.num_dropped_ == 2
    np.testing.assert_allclose(model.raw_[0], [2 / 3, 1 / 3, 0])
    assert list(model.to_frame())[:5] == ["group", "n", "raw_a", "raw_b", "raw_c"]
    np.testing.assert_allclose(model.predict(["new"])[0], model.population_.mean)
    lower, upper = model.interval(["new", "x"])
    assert lower.shape == upper.shape == (2, 3)
    again = GroupShares().fit_counts([[2, 1, 0], [1, 1, 1]], ["x", "y"], categories=list("abc"))
    np.testing.assert_array_equal(again.personal_, model.personal_)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="Shares: counts must be whole numbers of at least 0"):
        Shares(counts=np.array([[1, -1], [2, 3]]))
    with pytest.raises(ValueError, match="two or more categories"):
        Shares(counts=np.array([[1], [2]]))
    with pytest.raises(ValueError, match="number of groups must be at least 2"):
        estimate_shares(Shares(counts=np.array([[3, 4], [0, 0]])))
    with pytest.raises(ValueError, match="number of rows must be above 1"):
        estimate_shares(Shares(counts=np.eye(3, dtype=int)))
    with pytest.raises(ValueError, match="number of categories must be at least 2"):
        GroupShares().fit(["a", "a", "a"], [1, 1, 2])


@pytest.mark.evidence
@pytest.mark.parametrize("m", [3, 5, 10, 30, 100, 1000])
@pytest.mark.parametrize(("categories", "size"), [(3, 2.0), (3, 30.0), (10, 5.0), (30, 20.0)])
def test_coverage_and_gain(m, categories, size):
    inside, own, raw = [], [], []
    draws = np.random.default_rng(m)
    for seed in range(max(8, 1500 // m)):
        mean = np.maximum(draws.dirichlet(np.ones(categories)), 1e-3)
        counts, p = drawn(seed, m, mean / mean.sum(), size)
        found = estimate_shares(Shares(counts=counts))
        inside.append(np.mean((found.lower <= p) & (p <= found.upper)))
        own.append(((found.personal - p) ** 2).sum(axis=1).mean())
        raw.append(((found.raw - p) ** 2).sum(axis=1).mean())
    assert 0.93 < np.mean(inside) < 0.98
    assert np.mean(own) < np.mean(raw)
