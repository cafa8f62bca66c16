"""The embedded table against the file that it was typed from, and known sums."""

import csv

import numpy as np
import pytest

from fedprior.data.baseball import baseball


def test_the_table_is_the_published_one(data_root):
    with (data_root / "empirical_bayes" / "efron_morris_1970.csv").open() as file:
        rows = list(csv.DictReader(file))
    table = baseball()
    assert table.player.tolist() == [row["name"] for row in rows]
    assert table.hits.tolist() == [int(row["r"]) for row in rows]
    assert table.remaining_at_bats.tolist() == [int(row["n"]) for row in rows]
    assert table.remaining_average.tolist() == [float(row["p"]) for row in rows]
    assert table.at_bats.tolist() == [45] * 18


def test_known_sums():
    """Efron and Morris: a mean of 0.265 and a total squared error of 0.075 for raw averages."""
    table = baseball()
    average = table.hits / table.at_bats
    assert average.mean() == pytest.approx(0.2654, abs=1e-4)
    error = ((average - table.remaining_average) ** 2).sum()
    assert error == pytest.approx(0.0754, abs=2e-4)
    assert len(np.unique(table.player)) == 18
