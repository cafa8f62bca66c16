"""Coverage of 95% intervals for means, averaged over groups and replications."""

import numpy as np
import pytest

from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.statistics import Means

# Heterogeneity is near zero where the data could not tell it from 0: below the standard error with
# which m groups estimate theta's variance when it is 0.
RATIOS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # theta's variance over the mean sampling one


def covered(num_groups, ratio, *, low=2, high=50, replications, seed=0, **options):
    """Share of groups whose theta lies in its interval, and its standard error."""
    rng = np.random.default_rng((seed, num_groups, int(1000 * ratio)))
    spread = np.sqrt(ratio * np.mean(1 / np.arange(low, high + 1)))
    found = np.empty(replications)
    for number in range(replications):
        n = rng.integers(low, high + 1, num_groups)
        theta = 3 + spread * rng.standard_normal(num_groups)
        mean = theta + rng.standard_normal(num_groups) / np.sqrt(n)
        statistics = Means(n=n, mean=mean, within=rng.chisquare(n - 1))
        estimates = estimate_means(statistics, **options)
        found[number] = np.mean((estimates.lower <= theta) & (theta <= estimates.upper))
    return found.mean(), found.std() / np.sqrt(replications)


def near_zero(num_groups, ratio, *, low=2, high=50):
    n = np.arange(low, high + 1)
    return ratio * np.mean(1 / n) < np.sqrt(2 / (num_groups * np.mean(n**2.0)))


@pytest.mark.parametrize("num_groups", [5, 10, 120])
def test_coverage_is_not_far_off(num_groups):
    """A plug-in interval (63% at 5 groups, 78% at 10) would be seen at once."""
    mean, error = covered(num_groups, 1.0, replications=60)
    assert mean > 0.93 - 3 * error


@pytest.mark.evidence
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("num_groups", [10, 50, 1000])
def test_coverage_at_95_percent(num_groups, ratio):
    mean, error = covered(num_groups, ratio, replications=2000)
    print(f"m={num_groups} A/v={ratio}: {100 * mean:.2f} +- {100 * error:.2f}")  # noqa: T201
    assert mean >= 0.93
    if not near_zero(num_groups, ratio):
        assert mean <= 0.975


@pytest.mark.evidence
@pytest.mark.parametrize("ratio", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("num_groups", [5, 100, 200])
def test_coverage_with_groups_of_2_to_5_rows(num_groups, ratio):
    mean, error = covered(num_groups, ratio, low=2, high=5, replications=2000)
    print(f"m={num_groups} n=2..5 A/v={ratio}: {100 * mean:.2f} +- {100 * error:.2f}")  # noqa: T201
    assert mean >= 0.93
