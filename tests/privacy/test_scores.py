"""The mean score under an epsilon of its own: exact sums, discrete Laplace noise."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2, dlaplace

from fedprior.core import random
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.scores import MeanScore, contributions

FALSE_ALARM = 1e-6
SCORES = np.array([0.0, 1.0, 0.25, np.nan, 1 / 3, 0.9])
STRANGE = np.array([np.nan, np.inf, -np.inf, -1e30, 1e30, 0.0, 0.5, 1.0, 1 / 3])


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_no_client_changes_the_sum_by_more_than_the_sensitivity(relation):
    """Whatever its score is, or without it: exactly, in whole numbers."""
    bound = MeanScore(epsilon=1.0, relation=relation).sensitivity
    own = contributions(STRANGE)
    assert np.abs(own).max() == 2**19
    if relation == "add-remove":
        assert np.abs(own).max() <= bound
    assert max(abs(int(a) - int(b)) for a, b in product(own, own)) <= 2 * 2**19
    if relation == "replace-one":
        assert bound == 2 * 2**19


def test_the_event_costs_the_epsilon():
    for target in (0.05, 0.5, 2.0, 8.0):
        event = MeanScore(epsilon=target, relation="replace-one").event
        cost = epsilon([(event, 1)], delta=1e-6, relation="replace-one")
        assert target * 0.99 < cost <= target


@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_noise_is_discrete_laplace(noise):
    """Chi-square over 9 cells: detects probabilities that are off by 3 points.

    At an epsilon as large as the sensitivity, the noise has a scale of one unit.
    """
    if noise == "secure":
        pytest.importorskip("opendp")
    draws, mean = 4000, MeanScore(epsilon=2.0**19, relation="add-remove", noise=noise)
    key = random.stream(5, "score")
    units = [(mean.release(np.array([0.5]), key) - 0.5) * 2**20 for _ in range(draws)]
    found = np.bincount(np.clip(np.rint(units).astype(int), -4, 4) + 4, minlength=9)
    law = dlaplace(1.0).pmf(np.arange(-4, 5))
    law[[0, -1]] = dlaplace(1.0).cdf(-4)
    expected = draws * law
    assert ((found - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, 8)


@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_the_mean_is_that_of_the_scores_with_noise_of_the_stated_size(noise):
    """Detects a bias of a third of the noise's standard error."""
    if noise == "secure":
        pytest.importorskip("opendp")
    mean, key = (
        MeanScore(epsilon=2.0, relation="replace-one", noise=noise),
        random.stream(1, "score"),
    )
    released = np.array([mean.release(SCORES, key) for _ in range(400)])
    wanted = np.where(np.isnan(SCORES), 0.5, SCORES).mean()
    error = mean.standard_error(len(SCORES))
    assert abs(released.mean() - wanted) < 5 * error / np.sqrt(400)
    assert 0.7 < released.std() / error < 1.4
    assert len(set(released)) > 300


def test_simulated_noise_has_a_key():
    mean = MeanScore(epsilon=1.0, relation="add-remove")
    first, second = (mean.release(SCORES, random.stream(3, "score")) for _ in range(2))
    assert first == second
    with pytest.raises(PrivacyError, match="simulated noise needs a keyed generator"):
        mean.release(SCORES)
    with pytest.raises(ValueError, match="epsilon must be a positive"):
        MeanScore(epsilon=0.0, relation="add-remove")
