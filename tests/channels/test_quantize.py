import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2
from statistical import FALSE_ALARM, close_in_mean

from fedprior.channels.quantize import Quantize
from fedprior.core import random

DRAWS = 20_000


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_unbiased_with_the_variance_of_thm_2(bits):
    """Detects a bias of 4% of a step, and a variance off by 6% at the middle of a step."""
    channel = Quantize(bits_per_coordinate=bits, low=-1.5, high=2.5)
    step = 4 / (2**bits - 1)
    low = np.full(DRAWS, -1.5)
    values = np.stack([low, low + 0.3 * step, low + 0.5 * step, np.full(DRAWS, 2.5)], axis=1)
    sent = channel.encode(values, random.stream(bits, "encode"))
    share = np.array([0.0, 0.3, 0.5, 0.0])
    variance = step**2 * share * (1 - share)
    assert close_in_mean(sent, values[0], np.sqrt(variance))
    assert variance.max() == pytest.approx(channel.variance())  # (b / (2^k - 1))^2, b = 2
    assert channel.variance() == pytest.approx((2 / (2**bits - 1)) ** 2)
    # a two-point law at the middle: the number of upper levels is binomial(n, 1/2)
    upper = (sent[:, 2] > values[0, 2]).sum()
    assert (upper - DRAWS / 2) ** 2 / (DRAWS / 4) < chi2.isf(FALSE_ALARM, 1)


def test_every_output_is_one_of_the_levels():
    channel = Quantize(bits_per_coordinate=3, low=(0.0, -1.0), high=(1.0, 3.0))
    draws = np.random.default_rng(0).uniform(-2, 4, (500, 2))
    sent = channel.encode(draws, random.stream(0, "encode"))
    for column, (low, high) in enumerate([(0, 1), (-1, 3)]):
        levels = low + (high - low) * np.arange(8) / 7
        assert np.abs(sent[:, column, None] - levels).min(axis=1).max() < 1e-12


def test_clips_outside_the_box_and_is_exact_at_its_edges():
    channel = Quantize(bits_per_coordinate=2, low=-1.0, high=1.0)
    values = np.array([[-9.0, -1.0, 1.0, 7.0]] * 50)
    sent = channel.encode(values, random.stream(0, "encode"))
    np.testing.assert_array_equal(sent, np.clip(values, -1, 1))


def test_the_weight_passes_as_it_is():
    channel = Quantize(bits_per_coordinate=1, low=-0.5, high=0.5, weighted=True)
    message = np.array([0.1, 0.2, 37.0])
    sent = channel.encode(message, random.stream(0, "encode"))
    assert sent[-1] == 37
    assert set(np.abs(sent[:2])) == {0.5}
    assert channel.bits(3) == 2 + 32
    assert Quantize(bits_per_coordinate=5, low=0, high=1).bits(7) == 35


def test_numpy_and_jax_agree_in_law():
    channel = Quantize(bits_per_coordinate=2, low=-1.0, high=1.0)
    message = np.array([-0.9, 0.0, 0.4])
    keys = jax.random.split(random.root(0), DRAWS)
    there = np.asarray(jax.vmap(lambda key: channel.encode(jnp.asarray(message), key))(keys))
    here = channel.encode(np.tile(message, (DRAWS, 1)), random.stream(0, "encode"))
    share = (message + 1) / (2 / 3) % 1
    scale = 2 / 3 * np.sqrt(share * (1 - share))
    assert close_in_mean(there, message, scale)
    assert close_in_mean(here, message, scale)


def test_hashable_and_checked():
    channel = Quantize(bits_per_coordinate=2, low=np.zeros(3), high=1)
    assert hash(channel) == hash(Quantize(bits_per_coordinate=2, low=(0, 0, 0), high=1))
    assert not channel.private
    with pytest.raises(ValueError, match="low must be below high"):
        Quantize(bits_per_coordinate=2, low=1.0, high=1.0)
    with pytest.raises(ValueError, match="at least 1"):
        Quantize(bits_per_coordinate=0, low=0, high=1)
    with pytest.raises(ValueError, match="at most 24"):
        Quantize(bits_per_coordinate=25, low=0, high=1)
    with pytest.raises(ValueError, match="length"):
        channel.encode(np.zeros(4), random.stream(0, "encode"))
    with pytest.raises(ValueError, match="finite"):
        Quantize(bits_per_coordinate=2, low=np.nan, high=1)
