"""Gains and spreads by hand."""

import doctest

import numpy as np
import pytest

from fedprior.experiments import compare


def test_examples():
    assert doctest.testmod(compare).failed == 0


def test_spread():
    assert compare.spread([1.0, 2.0, 6.0]) == pytest.approx((3.0, np.sqrt(7.0)))
    assert compare.spread(iter([4.0])) == (4.0, 0.0)
