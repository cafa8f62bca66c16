"""Meta-analysis: the BCG trials against metafor 3.8, and what it leaves open against SciPy."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from fedprior.estimation import Covariates, Means, estimate_means

ROOT = Path(__file__).resolve().parents[2]


def trials():
    """Log relative risks and latitudes, or a skip."""
    given = os.environ.get("FEDPRIOR_DATA")
    path = (Path(given) if given else ROOT.parent / "shared" / "data") / "groups/bcg_trials.csv"
    if not path.is_file():
        pytest.skip("real data (groups): set FEDPRIOR_DATA, or put it in ../shared/data")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    a, b, c, d, latitude = (
        np.array([float(row[name]) for row in rows])
        for name in ("tpos", "tneg", "cpos", "cneg", "ablat")
    )
    effect = np.log(a / (a + b)) - np.log(c / (c + d))
    variance = 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)
    covariates = Covariates(names=("ablat",), values=latitude[:, None])
    return Means(n=np.ones(len(a), int), mean=effect, variance=variance), covariates


def printed(digits):
    """Equal to what was printed, up to 1 in its last digit (metafor stops at 1e-5)."""
    return pytest.approx(float(digits), abs=1.01 * 10.0 ** -len(digits.partition(".")[2]))


def test_bcg_trials_as_metafor_has_them():
    found = estimate_means(trials()[0]).meta
    assert found.variance == printed("0.313243")
    assert found.variance_error == printed("0.166426")
    assert 100 * found.i_squared == printed("92.22")
    assert found.h_squared == printed("12.856")
    assert (found.freedom, found.q) == (12, printed("152.233008"))
    assert found.q_p_value < 1e-20
    assert found.mean == printed("-0.714532")
    assert found.mean_error == printed("0.179782")
    assert found.prediction_lower == printed("-1.86669")
    assert found.prediction_upper == printed("0.43763")
    assert found.log_likelihood == printed("-12.2024")
    # metafor's root finder stops within 1.2e-4 of the roots; the next test has them to 1e-7.
    assert found.variance_lower == pytest.approx(0.11970, abs=1.2e-4)
    assert found.variance_upper == pytest.approx(1.11149, abs=1.2e-4)


def test_bcg_trials_by_latitude_as_metafor_has_them():
    statistics, covariates = trials()
    found = estimate_means(statistics, covariates=covariates).meta
    # metafor's scoring stops where a step is below 1e-5, here 7e-6 above the maximum.
    assert found.variance == pytest.approx(0.076355, abs=1e-5)
    np.testing.assert_allclose(found.coefficients.values, [0.251464, -0.029102], atol=5e-6)
    np.testing.assert_allclose(found.coefficients.standard_errors, [0.249104, 0.007196], atol=1e-5)
    assert 100 * found.coefficients.r_squared == printed("75.62")
    assert (found.freedom, found.q) == (11, printed("30.733090"))
    plugged_in = estimate_means(
        statistics, covariates=covariates, theta_variance=found.variance
    ).personal
    np.testing.assert_allclose(plugged_in[:3], [-1.0025, -1.4157, -1.0294], atol=6e-5)


def dense(statistics, x, variance):
    """Restricted log-likelihood, coefficients, their covariance, and Q."""
    weight = 1 / (statistics.variance + variance)
    normal = x.T @ (weight[:, None] * x)
    covariance = np.linalg.inv(normal)
    coefficients = covariance @ (x.T @ (weight * statistics.mean))
    squares = (weight * (statistics.mean - x @ coefficients) ** 2).sum()
    twice = -np.log(weight).sum() + np.linalg.slogdet(normal)[1] + squares
    twice += (len(x) - x.shape[1]) * np.log(2 * np.pi) - np.linalg.slogdet(x.T @ x)[1]
    return -twice / 2, coefficients, covariance, squares


def studies(num, *, seed=0, spread=0.3, copies=1):
    """Effects that depend on a covariate; every variance occurs `copies` times."""
    random = np.random.default_rng(seed)
    variance = np.repeat(random.uniform(0.02, 0.5, num // copies), copies)
    z = random.normal(size=num)
    theta = 1 + 0.5 * z + spread * random.normal(size=num)
    mean = theta + np.sqrt(variance) * random.normal(size=num)
    covariates = Covariates(names=("z",), values=z[:, None])
    return Means(n=np.ones(num, int), mean=mean, variance=variance), covariates


@pytest.mark.parametrize("copies", [1, 5])
@pytest.mark.parametrize("with_covariate", [False, True])
def test_figures_are_those_of_the_dense_model(with_covariate, copies):
    statistics, covariates = studies(40, copies=copies)
    x = np.ones((40, 1))
    if with_covariate:
        x = np.column_stack([x, covariates.values])
    given = covariates if with_covariate else None
    found = estimate_means(statistics, covariates=given, level=0.9).meta
    best = optimize.minimize_scalar(
        lambda tau: -dense(statistics, x, tau)[0], bounds=(0, 5), options={"xatol": 1e-10}
    )
    height, coefficients, covariance, _ = dense(statistics, x, best.x)
    assert found.variance == pytest.approx(best.x, rel=1e-5)
    assert found.log_likelihood == pytest.approx(height, rel=1e-9)
    average = x.mean(axis=0)
    assert found.mean == pytest.approx(average @ coefficients, rel=1e-6)
    assert found.mean_error == pytest.approx(np.sqrt(average @ covariance @ average), rel=1e-5)
    assert found.q == pytest.approx(dense(statistics, x, 0)[3], rel=1e-9)
    freedom = 40 - x.shape[1]

    def excess(tau, target):
        return dense(statistics, x, tau)[3] - target

    for side, bound in ((0.95, found.variance_lower), (0.05, found.variance_upper)):
        target = stats.chi2.ppf(side, freedom)
        root = optimize.brentq(excess, 0, 50, args=(target,), xtol=1e-12)
        assert bound == pytest.approx(root, rel=1e-6)
    weight = np.diag(1 / statistics.variance)
    inner = x.T @ weight @ x
    trace = np.trace(weight - weight @ x @ np.linalg.solve(inner, x.T @ weight))
    assert found.h_squared == pytest.approx(1 + found.variance * trace / freedom, rel=1e-6)
    assert found.i_squared == pytest.approx(1 - 1 / found.h_squared, rel=1e-9)
    if with_covariate:
        test = coefficients[1] ** 2 / covariance[1, 1]
        assert found.covariate_q == pytest.approx(test, rel=1e-5)
        assert found.covariate_p_value == pytest.approx(stats.chi2.sf(test, 1), rel=1e-4)


@pytest.mark.parametrize("spread", [0.0, 0.3])
@pytest.mark.parametrize("with_covariate", [False, True])
def test_leaving_one_out_is_the_analysis_of_the_others(with_covariate, spread):
    statistics, covariates = studies(12, seed=3, spread=spread)
    given = covariates if with_covariate else None
    found = estimate_means(statistics, covariates=given, leave_one_out=True).meta.leave_one_out
    for out in range(12):
        kept = np.arange(12) != out
        rest = Means(
            n=statistics.n[kept], mean=statistics.mean[kept], variance=statistics.variance[kept]
        )
        other = Covariates(names=("z",), values=covariates.values[kept])
        alone = estimate_means(rest, covariates=other if with_covariate else None).meta
        assert found.variance[out] == pytest.approx(alone.variance, rel=1e-4, abs=1e-7)
        assert found.q[out] == pytest.approx(alone.q, rel=1e-9)
        assert found.i_squared[out] == pytest.approx(alone.i_squared, rel=1e-4, abs=1e-6)
        if not with_covariate:
            assert found.mean[out] == pytest.approx(alone.mean, rel=1e-5)
            assert found.mean_error[out] == pytest.approx(alone.mean_error, rel=1e-5)


def test_equal_studies_have_no_heterogeneity():
    even = Means(n=np.ones(6, int), mean=np.full(6, 2.0), variance=np.full(6, 0.5))
    found = estimate_means(even, leave_one_out=True).meta
    assert (found.q, found.variance, found.i_squared, found.h_squared) == (0, 0, 0, 1)
    assert (found.variance_lower, found.variance_upper) == (0, 0)
    assert found.mean_lower == found.prediction_lower
    assert (found.leave_one_out.variance == 0).all()


def test_only_known_standard_errors_make_a_meta_analysis():
    rows = Means(n=np.full(5, 4), mean=np.arange(5.0), within=np.full(5, 3.0))
    assert estimate_means(rows).meta is None
    with pytest.raises(ValueError, match=r"leave_one_out needs values of one coordinate with a"):
        estimate_means(rows, leave_one_out=True)
    many = Means(n=np.ones(2001, int), mean=np.zeros(2001), variance=np.ones(2001))
    with pytest.raises(ValueError, match=r"number of studies must be from 3 to 2,000, got 2001"):
        estimate_means(many, leave_one_out=True)
