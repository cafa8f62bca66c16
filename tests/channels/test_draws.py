"""Keys of two kinds, and draws that cannot be repeated."""

import jax
import numpy as np
from scipy.stats import kstwo
from statistical import FALSE_ALARM

from fedprior.core import random


def test_secure_draws_are_uniform_multiples_of_the_grid():
    """Kolmogorov-Smirnov at 100,000 draws: detects a distance of 0.9%."""
    draws = random.secure().random((100, 1000)).ravel()
    assert draws.min() >= 0
    assert draws.max() < 1
    np.testing.assert_array_equal(draws * 2.0**53, np.rint(draws * 2.0**53))
    ranks = np.arange(1, draws.size + 1) / draws.size
    distance = np.abs(np.sort(draws) - ranks).max()
    assert distance < kstwo.isf(FALSE_ALARM, draws.size) + 1 / draws.size


def test_secure_draws_are_never_the_same():
    first, second = (random.secure().random((8,)) for _ in range(2))
    assert not np.array_equal(first, second)
    assert random.secure().random() != random.secure().random()


def test_draws_follow_the_kind_of_key():
    generator, key = random.stream(0, "encode"), random.root(0)
    for draw in (random.uniform, random.normal):
        assert isinstance(draw(generator, (3,)), np.ndarray)
        assert isinstance(draw(key, (3,)), jax.Array)
        again = draw(random.stream(4, "encode"), (3,))
        np.testing.assert_array_equal(draw(random.stream(4, "encode"), (3,)), again)
