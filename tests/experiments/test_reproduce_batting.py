"""Batting averages of later seasons from the first."""

import gzip

import numpy as np
import pytest

from fedprior.core import random
from fedprior.estimation.statistics import Counts
from fedprior.experiments import batting as experiment
from fedprior.experiments.batting import FILE, Careers, batting, read_careers, remarks


def careers(num_players=3000, seed=0):
    """p_i ~ Beta(60, 180): rates near 0.25, at-bats that say nothing of them."""
    draws = random.stream(seed, "partition")
    rate = draws.beta(60, 180, num_players)
    first, later = draws.integers(1, 400, num_players), draws.integers(0, 2000, num_players)
    return rate, Careers(
        first=Counts(n=first, successes=draws.binomial(first, rate)),
        later=Counts(n=later, successes=draws.binomial(later, rate)),
    )


def test_errors_are_about_the_rate_itself():
    """The chance in later seasons is taken off: the error of raw rates is E p(1-p) / n_first.

    The mean over players scored has relative standard error about 5%; without the correction it
    would be 20% too large for those with few later at-bats.
    """
    rate, data = careers(20_000)
    rows = {(row.players, row.method): row for row in batting(data)}
    scored = data.later.n >= 2
    raw = data.first.successes / data.first.n
    row = rows["all", "raw"]
    assert row.num_players == scored.sum()
    assert row.rmse**2 == pytest.approx(np.mean((raw - rate)[scored] ** 2), rel=0.1)
    assert row.gain == 0
    for players in experiment.PLAYERS:
        default = rows[players, "default"]
        assert default.gain > 0
        assert default.gain_over_pooled > 0
        assert rows[players, "pooled"].gain_over_pooled == 0


def test_weights_by_hand():
    at_bats, hits, rate = np.array([4, 10]), np.array([1, 5]), np.array([0.3, 0.4])
    plain, weighted = experiment._errors(rate, at_bats, hits)
    one = 0.05**2 - 0.25 * 0.75 / 3
    two = 0.1**2 - 0.5 * 0.5 / 9
    assert plain == pytest.approx((one + two) / 2)
    assert weighted == pytest.approx((4 * one + 10 * two) / 14)


def test_reading_splits_first_and_later_seasons(tmp_path):
    text = "playerID,yearID,G,AB,H,HR,BB\nb,1901,1,7,2,0,0\na,1902,1,5,1,0,0\nb,1900,1,3,1,0,0\n"
    text += "b,1903,1,10,4,0,0\n"
    (tmp_path / FILE).write_bytes(gzip.compress(text.encode(), mtime=0))
    found = read_careers(tmp_path)
    assert found.first.n.tolist() == [5, 3]
    assert found.first.successes.tolist() == [1, 1]
    assert found.later.n.tolist() == [0, 17]
    assert found.later.successes.tolist() == [0, 6]


def test_more_hits_than_at_bats_are_refused(tmp_path):
    text = "playerID,yearID,AB,H\na,1902,5,6\n"
    (tmp_path / FILE).write_bytes(gzip.compress(text.encode(), mtime=0))
    with pytest.raises(ValueError, match="successes must be at most the number of trials"):
        read_careers(tmp_path)


def test_lahman(real_data):
    """Later seasons from the first: better than by raw and pooled rates."""
    found = read_careers(real_data("empirical_bayes"))
    assert len(found.first.n) == 18_220
    rows = {(row.players, row.method): row for row in batting(found)}
    for players in experiment.PLAYERS:
        assert rows[players, "default"].gain > 0
        assert rows[players, "default"].gain_over_pooled > 0
    assert rows["100 later", "raw"].num_players == 8365
    text = " ".join(remarks(found, list(rows.values())))
    assert "first seasons of at most 5 at-bats hit 0.130, those of 200 or more 0.262" in text
    assert "The size of a group carries information" in text
