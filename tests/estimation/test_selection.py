"""One rule for `population="auto"`: more freedom has to win by more than chance."""

import numpy as np
import pytest

from fedprior.estimation.conjugate.shapes import pick_rate_population
from fedprior.estimation.selection import few_groups, pick
from fedprior.estimation.statistics import Counts, collapse


def test_more_freedom_has_to_win_by_a_standard_error():
    lean = np.zeros(100)
    noise = np.where(np.arange(100) % 2, 1.0, -1.0)  # a standard error of the sum is 10
    assert pick({"point": lean, "beta": noise + 0.05})[0] == "point"
    assert pick({"point": lean, "beta": noise + 0.2})[0] == "beta"
    assert pick({"point": lean, "beta": lean + 1e-12})[0] == "point"


def test_rows_that_groups_share_count_as_often():
    scores = {"point": np.array([0.0, 0.0]), "beta": np.array([1.0, -0.5])}
    count = np.array([7, 5])
    each = {name: np.repeat(row, count) for name, row in scores.items()}
    assert pick(scores, count) == pick(each)
    assert pick(scores, count)[1].startswith("population='auto' picked ")


@pytest.mark.parametrize(("num_groups", "considered"), [(19, False), (40, True)])
def test_rates_of_fewer_than_20_groups_have_no_nonparametric_choice(num_groups, considered):
    counts = Counts(n=np.full(num_groups, 20), successes=20 * (np.arange(num_groups) % 2))
    assert ("nonparametric" in pick_rate_population(collapse(counts))[1]) is considered


def test_few_groups_are_warned():
    assert few_groups(100, safer="beta") is None
    assert 'population="beta" is safer below' in str(few_groups(99, safer="beta"))
