"""Every risk against a simulation of the estimator that it describes, and against the errata."""

import numpy as np
import pytest
from scipy.stats import norm

from fedprior.channels.quantize import Quantize
from fedprior.core import random
from fedprior.estimation.conjugate.risk import bernoulli_risk
from fedprior.estimation.risk import gaussian_risk, mixture_risk

FALSE_ALARM = 1e-6
SURE = norm.isf(FALSE_ALARM / 2)


def holds(errors, expected, *, slack=0.0):
    """The mean of independent `errors` is `expected` up to its sampling error (and `slack`)."""
    bound = SURE * errors.std() / np.sqrt(len(errors))
    return abs(errors.mean() - expected) < bound + slack * expected


def gaussian_errors(weight, m, n, theta, noise, channel, runs=400, d=2):
    draws = np.random.default_rng(3)
    own = theta**0.5 * draws.normal(size=(runs, m, d)) + 5
    mean = own + (noise / n) ** 0.5 * draws.normal(size=own.shape)
    sent = mean + channel**0.5 * draws.normal(size=own.shape)
    personal = weight * mean + (1 - weight) * sent.mean(axis=1, keepdims=True)
    return ((personal - own) ** 2).sum(axis=2).mean(axis=1)


@pytest.mark.parametrize("channel", [0.0, 3.0])
@pytest.mark.parametrize("theta", [0.0, 0.01, 1.0])
def test_gaussian_risk_is_exact(theta, channel):
    """Would detect an error of about 5%."""
    setting = {"n": 5, "num_groups": 20, "theta_variance": theta, "noise_variance": 0.25}
    found = gaussian_risk(**setting, dimension=2, channel_variance=channel)
    errors = gaussian_errors(found.weight, 20, 5, theta, 0.25, channel)
    assert holds(errors, found.personal)
    assert holds(gaussian_errors(0.0, 20, 5, theta, 0.25, channel), found.pooled)
    assert holds(gaussian_errors(1.0, 20, 5, theta, 0.25, channel), found.local)
    assert found.lower_bound <= found.personal * (1 + 1e-12)


def test_gaussian_weight_is_the_best_one():
    setting = {"n": 5, "num_groups": 20, "theta_variance": 0.01, "noise_variance": 0.25}
    best = gaussian_risk(**setting, channel_variance=0.5)
    closed = 0.05 * (best.weight + (1 - best.weight) / 20)  # Thm 2 as printed
    assert best.personal == pytest.approx(closed)
    for other in (best.weight - 0.01, best.weight + 0.01):
        assert gaussian_risk(**setting, channel_variance=0.5, weight=other).personal > closed


def test_the_bound_is_the_limit_of_bayes_risks():
    """ERRATA 9: mu ~ N(0, t^2), t growing; the posterior variance of the joint normal law."""
    m, between, s, far = 6, 0.3, 0.2, 1e6
    covariance = far * np.ones((m, m)) + (between + s) * np.eye(m)
    cross = far * np.ones(m) + between * np.eye(m)[0]
    exact = far + between - cross @ np.linalg.solve(covariance, cross)
    found = gaussian_risk(n=1, num_groups=m, theta_variance=between, noise_variance=s)
    assert found.lower_bound == pytest.approx(exact, rel=1e-4)


def test_risk_through_the_quantizer():
    """Rounding's variance is at most b^2/(2^k-1)^2, so the risk at that variance is a bound."""
    channel = Quantize(bits_per_coordinate=2, low=-2.0, high=2.0)
    draws = np.random.default_rng(0)
    own = 0.1 * draws.normal(size=(200, 50))
    mean = own + 0.2 * draws.normal(size=own.shape)
    sent = channel.encode(mean.reshape(-1, 1), random.stream(0, "encode")).reshape(own.shape)
    setting = {"n": 1, "num_groups": 50, "theta_variance": 0.01, "noise_variance": 0.04}
    found = gaussian_risk(**setting, channel_variance=channel.variance())
    personal = found.weight * mean + (1 - found.weight) * sent.mean(axis=1, keepdims=True)
    errors = ((personal - own) ** 2).mean(axis=1)
    bound = SURE * errors.std() / np.sqrt(len(errors))
    assert errors.mean() < found.personal + bound
    assert found.personal < found.local


def rate_errors(method, prior, m, n, runs, seed=5):
    """Leave-one-out moments, as printed or debiased (D2 with m -> m - 1), in all runs at once."""
    draws = np.random.default_rng(seed)
    p = draws.beta(*prior, size=(runs, m))
    raw = draws.binomial(n, p) / n
    mean = (raw.sum(axis=1, keepdims=True) - raw) / (m - 1)
    square = ((raw**2).sum(axis=1, keepdims=True) - raw**2) / (m - 1)
    spread = (square - mean**2) * (m - 1) / (m - 2)
    product = mean * (1 - mean)
    if method == "paper":
        weight = n / (n - 1 + product / spread)
    else:
        between = (n * spread - product - spread / (m - 1)) / (n - 1)
        weight = between / (between + (product - between) / n)
    personal = weight * raw + (1 - weight) * mean
    return ((personal - p) ** 2).mean(axis=1)


@pytest.mark.parametrize("method", ["default", "paper"])
@pytest.mark.parametrize("prior", [(4.0, 4.0), (2.0, 5.0), (1.0, 1.0)])
def test_bernoulli_risk_of_moments(method, prior):
    """Slack 1%: the delta method drops terms of order 1/m^2. Would detect an error of 3%."""
    found = bernoulli_risk(n=14, num_groups=200, prior=prior, method=method)
    errors = rate_errors(method, prior, 200, 14, 1000)
    assert holds(errors, found.personal, slack=0.01)


def test_a_known_population_takes_no_reports():
    with pytest.raises(ValueError, match="epsilon cannot be used with method='known'"):
        bernoulli_risk(n=5, num_groups=10, prior=(2, 3), method="known", epsilon=1.0)


def test_bernoulli_risk_with_a_known_beta_is_exact():
    """A Beta posterior's variance summed over all counts: alpha beta/((S)(S+1)(S+n)) (paper)."""
    alpha, beta, n = 2.0, 5.0, 14
    found = bernoulli_risk(n=n, num_groups=10, prior=(alpha, beta), method="known")
    size = alpha + beta
    assert found.personal == pytest.approx(alpha * beta / (size * (size + 1) * (size + n)))
    assert found.lower_bound == pytest.approx(found.personal)


def test_bernoulli_lower_bound_lies_below_the_bayes_risk():
    for prior in ((3.0, 3.0), (2.5, 9.0), (30.0, 4.0)):
        bound = bernoulli_risk(n=14, num_groups=100, prior=prior).lower_bound
        bayes = bernoulli_risk(n=14, num_groups=100, prior=prior, method="known").personal
        assert 0 < bound < bayes
    assert bernoulli_risk(n=14, num_groups=100, prior=(1.9, 5.0)).lower_bound is None


@pytest.mark.parametrize(
    ("setting", "gain"),
    [
        ({"prior": (1, 1), "method": "paper"}, 12.15),
        ({"prior": (4, 4), "method": "paper"}, 32.96),
        ({"prior": (2, 5), "method": "paper"}, 30.51),
        ({"atoms": [0.25, 0.5, 0.75], "weights": [1, 1, 1], "method": "paper"}, 24.62),
        ({"atoms": [0.25, 0.5, 0.75], "weights": [1, 1, 1]}, 26.32),
        ({"prior": (1, 1)}, 12.50),
        ({"prior": (2, 5), "method": "paper", "epsilon": 2.0}, 6.9),
        ({"prior": (1, 1), "method": "paper", "epsilon": 0.5}, 0.8),
        ({"prior": (1, 1), "epsilon": 1.0}, 12.5),
        ({"atoms": [0.25, 0.5, 0.75], "weights": [1, 1, 1], "epsilon": 0.5}, 25.0),
        ({"prior": (2, 5), "epsilon": 4.0}, 33.1),
    ],
)
def test_bernoulli_gains_of_the_errata(setting, gain):
    """ERRATA tables 3.1 and 3.2, whose private rows are means of 60 runs (sd up to 3)."""
    slack = 0.6 if "epsilon" in setting and setting.get("method") != "paper" else 0.1
    found = bernoulli_risk(n=14, num_groups=10_000, **setting).gain_over_raw
    assert found == pytest.approx(gain, abs=slack)


def test_mixture_risk_by_quadrature():
    """The one-dimensional integral of the posterior variance; Monte Carlo error below 3%."""
    centers, s = np.array([-0.3, 0.0, 0.3]), 0.025
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    total = 0.0
    for center in centers:
        mean = center + np.sqrt(s) * nodes
        share = norm.pdf(mean[:, None], centers, np.sqrt(s))
        share /= share.sum(axis=1, keepdims=True)
        total += weights @ ((share @ centers - center) ** 2) / 3
    found = mixture_risk(n=10, centers=centers, probabilities=np.ones(3), noise_variance=0.25)
    assert found.personal == pytest.approx(total, rel=0.03)
    assert found.pooled == pytest.approx(0.06)
    assert found.local == pytest.approx(s)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="either as prior or as atoms"):
        bernoulli_risk(n=14, num_groups=100)
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        bernoulli_risk(n=14, num_groups=100, atoms=[1.5], weights=[1.0])
