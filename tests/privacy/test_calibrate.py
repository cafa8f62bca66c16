"""Gaussian calibration against a twin written from its definition."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedprior.privacy import calibrate, paper


def delta_of(ratio, epsilon):
    """P(loss > epsilon) - e^epsilon P'(..) of N(0, 1) against N(1 / ratio, 1): Balle and Wang."""
    shift = 1 / ratio
    return norm.sf(epsilon * ratio - shift / 2) - np.exp(epsilon) * norm.sf(
        epsilon * ratio + shift / 2
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-8])
@pytest.mark.parametrize("rounds", [1, 9])
def test_scale_and_epsilon_are_the_twins(epsilon, delta, rounds):
    scale = calibrate.gaussian_scale(epsilon, delta, sensitivity=3.0, rounds=rounds)
    ratio = scale / (3 * np.sqrt(rounds))
    twin = brentq(lambda ratio: delta_of(ratio, epsilon) - delta, 1e-2, 1e3, xtol=1e-13)
    assert ratio == pytest.approx(twin, rel=1e-6)
    assert delta_of(ratio, epsilon) <= delta  # the safe side
    back = calibrate.gaussian_epsilon(scale, delta, sensitivity=3.0, rounds=rounds)
    assert back <= epsilon
    assert back == pytest.approx(epsilon, rel=1e-6)


def test_the_papers_noise_has_another_epsilon():
    """ERRATA 7: claimed (0.5, 1e-4), true by dimension; ERRATA 8: true delta above the claim."""
    true = {1: 0.315, 2: 0.464, 5: 0.778, 10: 1.15, 50: 2.90, 100: 4.37}
    for dimension, expected in true.items():
        found = paper.paper_gaussian_epsilon(0.5, 1e-4, dimension=dimension)
        assert found == pytest.approx(expected, rel=0.005)
    assert paper.paper_gaussian_epsilon(10.0, 1e-4, dimension=1) > 10
    assert paper.paper_gaussian_epsilon(5.0, 1e-4, dimension=1) < 5
    scale = paper.paper_gaussian_scale(0.5, 1e-4, radius=2.0)
    assert scale == pytest.approx(2 / 0.5 * np.sqrt(8 * np.log(2e4)))
    assert delta_of(scale / 4, 10.0) < 1e-4


def test_refusals():
    with pytest.raises(ValueError, match="delta must be above 0"):
        calibrate.gaussian_scale(1.0, 0.0, sensitivity=1.0)
    with pytest.raises(ValueError, match="delta must be in"):
        calibrate.gaussian_epsilon(1.0, 1.0, sensitivity=1.0)
    with pytest.raises(ValueError, match="sensitivity must be a positive"):
        calibrate.gaussian_scale(1.0, 1e-5, sensitivity=0.0)
    with pytest.raises(ValueError, match="epsilon must be a positive"):
        calibrate.gaussian_scale(-1.0, 1e-5, sensitivity=1.0)
    with pytest.raises(ValueError, match="rounds must be"):
        calibrate.gaussian_scale(1.0, 1e-5, sensitivity=1.0, rounds=0)
    with pytest.raises(ValueError, match="dimension must be"):
        paper.paper_gaussian_epsilon(1.0, 1e-5, dimension=0)
