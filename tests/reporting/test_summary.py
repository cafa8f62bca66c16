"""Tables of scores, by hand."""

import csv
import os

import numpy as np
import pytest

from fedprior.core.scores import ACCURACY, RMSE
from fedprior.data.writing import write_table
from fedprior.reporting.summary import Scores, summarize


def scores(*by_seed):
    return Scores({seed: np.array(values, float) for seed, values in enumerate(by_seed)}, {})


def test_figures_by_hand():
    """Twenty clients: a decile is the mean of two of them."""
    own = np.linspace(0.05, 1.0, 20)
    local = own - np.where(np.arange(20) < 5, 0.01, -0.03)  # 5 clients gain 1 point, 15 lose 3
    found = summarize({"method": scores(own), "local": scores(local)}, ACCURACY)["method"]
    assert found["mean"] == pytest.approx(0.525)
    assert found["worst_decile"] == pytest.approx(0.075)
    assert found["best_decile"] == pytest.approx(0.975)
    assert found["gain_over_local"] == pytest.approx((5 * 1 - 15 * 3) / 20)
    assert found["share_gaining"] == 0.25
    assert (found["seeds"], found["mean_sd"], found["gain_se"]) == (1, None, None)


def test_few_clients_still_have_deciles():
    found = summarize({"method": scores([0.2, 0.9, 0.4])}, ACCURACY)["method"]
    assert (found["worst_decile"], found["best_decile"]) == (0.2, 0.9)
    assert found["gain_over_local"] is None
    assert found["share_gaining"] is None


def test_clients_without_test_samples_do_not_count():
    own, local = [0.5, np.nan, 0.7], [0.4, np.nan, 0.8]
    found = summarize({"method": scores(own), "local": scores(local)}, ACCURACY)["method"]
    assert found["mean"] == pytest.approx(0.6)
    assert found["gain_over_local"] == pytest.approx(0)
    assert found["share_gaining"] == 0.5
    empty = summarize({"method": scores([np.nan, np.nan])}, ACCURACY)["method"]
    assert empty["mean"] is None


def test_a_client_whose_local_model_diverged_does_not_gain():
    """Its difference is infinite: neither side of it says what sharing is worth."""
    own, local = [0.5, 0.6, 0.7, -np.inf], [-np.inf, 0.5, 0.8, 0.1]
    found = summarize({"method": scores(own), "local": scores(local)}, ACCURACY)["method"]
    assert found["share_gaining"] == 0.5
    assert found["gain_over_local"] is None
    all_lost = summarize({"m": scores([0.5]), "local": scores([-np.inf])}, ACCURACY)["m"]
    assert all_lost["share_gaining"] is None


def test_values_that_are_better_if_lower():
    own, local = scores([-1.0, -2.0, -9.0]), scores([-3.0, -2.5, -8.0])
    found = summarize({"method": own, "local": local}, RMSE)["method"]
    assert found["mean"] == 4
    assert (found["worst_decile"], found["best_decile"]) == (9, 1)
    assert found["gain_over_local"] == pytest.approx(0.5)  # in the unit of the error, not points
    assert found["share_gaining"] == pytest.approx(2 / 3)


def test_seeds_are_averaged_and_gains_are_paired():
    own, local = scores([0.5, 0.7], [0.7, 0.9]), scores([0.5, 0.6], [0.6, 0.7])
    found = summarize({"method": own, "local": local}, ACCURACY)["method"]
    assert found["mean"] == pytest.approx(0.7)
    assert found["mean_sd"] == pytest.approx(np.std([0.6, 0.8], ddof=1))
    assert found["gain_over_local"] == pytest.approx(10)  # 5 and 15 points
    assert found["gain_se"] == pytest.approx(np.std([5, 15], ddof=1) / 2**0.5)
    assert found["seeds"] == 2


def test_a_table_survives_awkward_words(tmp_path):
    words = ['a "quoted" one', "with, comma", "line\nbreak", ""]
    path = tmp_path / "it's.csv"
    write_table({"name": np.array(words, object), "number": np.arange(4)}, path, owner="test")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == words
    assert [row["number"] for row in rows] == list("0123")
    assert os.listdir(tmp_path) == ["it's.csv"]
