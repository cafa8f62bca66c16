"""Ranks: exact where there is no doubt, the normal comparison for two, one law for many."""

import numpy as np
import pytest
from scipy.stats import norm

from fedprior.estimation.ranking import rank

FALSE_ALARM = 1e-6


def test_certain_values_have_their_own_rank():
    found = rank(np.array([3.0, 1.0, 2.0]), np.zeros(3))
    assert found.mean.tolist() == [1, 3, 2]
    assert found.lower.tolist() == found.upper.tolist() == [1, 3, 2]


def test_two_groups_compare_as_two_normals():
    """Would detect an error of 0.08 in the chance that the first is larger."""
    found = rank(np.array([0.5, 0.0]), np.array([0.6, 0.8]))
    chance = norm.cdf(0.5)  # the difference is N(0.5, 1)
    bound = norm.isf(FALSE_ALARM / 2) * np.sqrt(chance * (1 - chance) / 1000)
    assert abs(found.mean[0] - (2 - chance)) < bound


def test_many_groups_agree_with_joint_draws():
    draws = np.random.default_rng(1)
    mean, scale = draws.normal(size=2500), np.full(2500, 0.3)
    many, few = rank(mean, scale), rank(mean[:2000], scale[:2000])
    # A rank is a share of all groups: the two ways differ by the sampling of 2,000 from the law.
    np.testing.assert_allclose(many.mean[:2000] / 2500, few.mean / 2000, atol=0.04)
    np.testing.assert_allclose(many.lower[:2000] / 2500, few.lower / 2000, atol=0.06)
    assert (many.lower <= many.mean).all()
    assert (many.mean <= many.upper).all()


def test_vectors_have_no_rank():
    with pytest.raises(ValueError, match="one number per group"):
        rank(np.zeros((3, 2)), np.ones((3, 2)))
