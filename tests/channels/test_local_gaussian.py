import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2
from statistical import FALSE_ALARM, close_in_mean

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.core import random
from fedprior.core.check import PrivacyError
from fedprior.privacy import calibrate

DRAWS = 20_000


def test_law_inside_and_outside_the_ball():
    """Detects a bias of 4% of the scale and a variance off by 5%."""
    channel = LocalGaussian(clip=2.0, scale=0.5, center=(1.0, -1.0, 0.0))
    center = np.array([1.0, -1.0, 0.0])
    for away in np.array([[0.5, 1.0, -1.0], [30.0, 0.0, 40.0], [0.0, 0.0, 0.0]]):
        message = center + away
        sent = channel.encode(np.tile(message, (DRAWS, 1)), random.stream(3, "encode"))
        expected = center + away * min(1, 2 / max(np.linalg.norm(away), 1e-9))
        assert close_in_mean(sent, expected, 0.5)
        squares = ((sent - expected) ** 2).sum() / 0.25
        assert chi2.cdf(squares, 3 * DRAWS) > FALSE_ALARM / 2
        assert chi2.sf(squares, 3 * DRAWS) > FALSE_ALARM / 2


def test_numpy_and_jax_agree_in_law():
    channel = LocalGaussian(clip=1.0, scale=0.3, center=0.2)
    message = np.array([3.0, -4.0])
    keys = jax.random.split(random.root(0), DRAWS)
    sent = np.asarray(jax.vmap(lambda key: channel.encode(jnp.asarray(message), key))(keys))
    away = message - 0.2
    assert close_in_mean(sent, 0.2 + away / np.linalg.norm(away), 0.3)


def test_calibrated_and_its_guarantee():
    channel = LocalGaussian.calibrated(clip=3.0, epsilon=1.0, delta=1e-5, rounds=4)
    expected = calibrate.gaussian_scale(1.0, 1e-5, sensitivity=6.0, rounds=4)
    assert channel.scale == pytest.approx(expected)
    found = channel.guarantee(delta=1e-5, rounds=4)
    assert found.epsilon == pytest.approx(1.0, abs=1e-6)
    assert found.epsilon <= 1.0
    assert (found.neighbors, found.noise) == ("replace one", "simulated")
    assert "not valid for release" in str(found)
    assert found.bits is None  # a scalar center: the message's length is not known
    assert channel.guarantee(delta=1e-5, rounds=4, bits=320.0).bits == 320
    vector = LocalGaussian(clip=1.0, scale=1.0, center=(0.0, 1.0))
    assert vector.guarantee(delta=1e-5, rounds=4).bits == 4 * 2 * 32
    assert channel.private
    assert channel.bits(5) == 160
    assert hash(channel) == hash(
        LocalGaussian.calibrated(clip=3.0, epsilon=1.0, delta=1e-5, rounds=4)
    )


def test_refuses_secure_draws_and_bad_arguments():
    channel = LocalGaussian(clip=1.0, scale=1.0)
    with pytest.raises(PrivacyError, match="low bits"):
        channel.encode(np.zeros(2), random.secure())
    with pytest.raises(ValueError, match="clip must be a positive"):
        LocalGaussian(clip=0.0, scale=1.0)
    with pytest.raises(ValueError, match="delta must be above 0"):
        LocalGaussian.calibrated(clip=1.0, epsilon=1.0, delta=0.0)
