"""County elections, one left out at a time."""

import numpy as np
import pytest

from fedprior.core import random
from fedprior.experiments.elections import FILE, Votes, elections, read_votes, reasons

YEARS = (2000, 2004, 2008, 2012, 2016, 2020)


def exchangeable(num_counties=4000, seed=0):
    """Counties of the model itself: won[i, j] ~ Bernoulli(p_i), p_i ~ Beta(2, 2)."""
    draws = random.stream(seed, "partition")
    rate = draws.beta(2, 2, num_counties)
    won = draws.random((num_counties, len(YEARS))) < rate[:, None]
    republican = np.where(won, 600, 400) + draws.integers(0, 50, won.shape)
    return Votes(years=YEARS, republican=republican, democratic=1000 - republican)


@pytest.fixture(scope="module")
def model():
    votes = exchangeable()
    return votes, elections(votes)


def test_on_data_of_the_model_the_gain_is_the_one_expected(model):
    """S = 4 and n = 5: a = 5/9, so (1 - a) / (n + 1) = 7.4% on a 0/1 outcome (ERRATA 54).

    One fold of 4,000 counties has standard deviation about 0.6; 2 points over six folds detect
    a wrong factor n + 1 as well as a score on the estimates instead of the outcome (44%).
    """
    _, rows = model
    default = next(row for row in rows if (row.outcome, row.method) == ("won", "default"))
    assert default.expected == pytest.approx(100 * (4 / 9) / 6, abs=0.5)
    assert default.gain == pytest.approx(default.expected, abs=2)
    assert default.weight == pytest.approx(5 / 9, abs=0.05)
    assert list(default.by_election) == [str(year) for year in YEARS]
    assert np.mean(list(default.by_election.values())) == pytest.approx(default.gain)


def test_every_row_and_the_paper_beside_its_own(model):
    _, rows = model
    cases = [(row.outcome, row.method) for row in rows]
    assert cases[:4] == [
        ("won", name) for name in ("paper", "default", "nonparametric", "appendix")
    ]
    assert [case[0] for case in cases[4:]] == ["share", "share less tide", "votes"]
    for row in rows:
        assert (row.paper_says, row.paper_says_sd) == (
            (10.7, 1.9) if row.outcome == "won" else (None, None)
        )


def test_reasons_are_in_words(model):
    text = " ".join(reasons(*model))
    assert "1/(n+1) = 16.7%" in text
    assert "10.7%" in text
    assert "ERRATA 54" in text


def write(folder, rows):
    lines = ["fips,state,county,year,rep_votes,dem_votes,total_votes"]
    lines += [f"{fips},X,Y,{year},{rep},{dem},{rep + dem}" for fips, year, rep, dem in rows]
    (folder / FILE).write_text("\n".join(lines) + "\n")
    return folder


def test_reading_keeps_counties_with_every_election(tmp_path):
    rows = [("01", year, 10 + year, 5) for year in (2000, 2004, 2008)]
    rows += [("02", 2004, 1, 2), ("02", 2008, 3, 4)]
    votes = read_votes(write(tmp_path, rows[::-1]))
    assert votes.years == (2000, 2004, 2008)
    assert votes.left_out == 1
    assert votes.republican.tolist() == [[2010, 2014, 2018]]
    assert votes.democratic.tolist() == [[5, 5, 5]]
    assert votes.won.tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([("1", 2000, 1, 2), ("1", 2000, 1, 2)], "two rows for the same year"),
        ([("1", 2000, 1, 2), ("1", 2004, 1, 2)], "years must be 3 or more"),
        ([("1", 2000, 1, 2), ("2", 2004, 1, 2)], "no county reports every election"),
        ([("1", year, -1, 2) for year in YEARS], "votes must be at least 0"),
        ([("1", year, 0, 0) for year in YEARS], "votes must be at least 0, above 0 in all"),
    ],
)
def test_a_file_that_is_not_right(tmp_path, rows, wanted):
    with pytest.raises(ValueError, match=wanted):
        read_votes(write(tmp_path, rows))


def test_the_real_counties(real_data):
    """What the data hold, and that our gain is near what the model promises, not near 10.7."""
    votes = read_votes(real_data("elections"))
    assert votes.won.shape == (3111, 6)
    assert votes.left_out == 1
    assert votes.won.mean(axis=0).round(3).tolist() == [0.784, 0.812, 0.719, 0.777, 0.843, 0.827]
    found = {(row.outcome, row.method): row for row in elections(votes)}
    printed = found["won", "paper"]
    # The formula of the main text by hand: mean 0.99, standard deviation 3.16 over six folds.
    assert (printed.gain, printed.gain_sd) == pytest.approx((0.99, 3.16), abs=0.02)
    assert printed.by_election["2012"] == pytest.approx(-4.19, abs=0.02)
    assert 0 < found["won", "default"].expected < 3
    assert abs(found["votes", "default"].gain) < 0.1
