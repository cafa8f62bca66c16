"""Sufficient statistics: sums by group, equal pairs put together, bad cells named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.estimation.statistics import Counts, Means, collapse, counts_of, means_of


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), min_size=1, max_size=60))
def test_collapse_spreads_back_to_what_it_was_given(rows):
    n = np.array([row[0] for row in rows])
    successes = np.array([round(size * share) for size, share in rows])
    pairs = collapse(Counts(n=n, successes=successes))
    assert (pairs.n[pairs.place] == n).all()
    assert (pairs.successes[pairs.place] == successes).all()
    assert (np.bincount(pairs.place, minlength=len(pairs.n)) == pairs.count).all()
    assert len({*zip(pairs.n.tolist(), pairs.successes.tolist(), strict=True)}) == len(pairs.n)


def test_collapse_does_without_a_table_for_huge_trials():
    n = np.array([3_000_000_000, 5, 3_000_000_000])
    pairs = collapse(Counts(n=n, successes=np.array([2_999_999_999, 5, 2_999_999_999])))
    assert pairs.n.tolist() == [5, 3_000_000_000]
    assert pairs.successes.tolist() == [5, 2_999_999_999]
    assert pairs.place.tolist() == [1, 0, 1]


@pytest.mark.parametrize("shape", [(40,), (40, 3)])
def test_means_of_equals_a_loop_over_groups(shape):
    draws = np.random.default_rng(0)
    values, place = 1e6 + draws.normal(size=shape), draws.integers(0, 6, 40)
    place[place == 4] = 5  # group 4 stays empty
    found = means_of(values, place, 6)
    for group in (0, 1, 2, 3, 5):
        own = values[place == group]
        assert found.n[group] == len(own)
        np.testing.assert_allclose(found.mean[group], own.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.within[group], ((own - own.mean(axis=0)) ** 2).sum())
    assert found.n[4] == 0
    assert np.isnan(found.mean[4]).all()


def test_counts_of_outcomes():
    found = counts_of(np.array([True, False, True]), np.array([0, 0, 2]), 3)
    assert found.n.tolist() == [2, 0, 1]
    assert found.successes.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Counts(n=np.array([3]), successes=np.array([4])), "at most the number of trials"),
        (lambda: Counts(n=np.array([3, 2]), successes=np.array([1, -1])), "See group 2 of 2"),
        (lambda: Counts(n=np.array([2.5]), successes=np.array([1])), "whole numbers"),
        (lambda: Counts(n=np.array([]), successes=np.array([])), "one size per group"),
        (lambda: Counts(n=np.array([2]), successes=np.array([1, 1])), "of shape"),
        (lambda: Means(n=np.array([2]), mean=np.array([np.inf])), "mean must be finite"),
        (lambda: Means(n=np.array([2]), mean=np.array([1.0, 2.0])), "of shape"),
        (
            lambda: Means(n=np.array([1]), mean=np.array([1.0]), variance=np.array([0.0])),
            "variance must be above 0",
        ),
        (
            lambda: Means(n=np.array([1]), mean=np.array([1.0]), within=np.array([-1.0])),
            "within must be at least 0",
        ),
        (lambda: counts_of([0, 2], np.array([0, 0]), 1), "outcomes must be 0 or 1, got 2"),
    ],
)
def test_bad_statistics_are_named(build, words):
    with pytest.raises(ValueError, match=words):
        build()
