"""Configurations and data that once slipped through."""

import numpy as np
import pytest

import fedprior
from fedprior.core.check import PrivacyError
from fedprior.data.folder import read_new
from fedprior.reporting import config
from fedprior.reporting.folder import Folder


def test_a_change_of_one_method_keeps_the_defaults_of_another():
    found = config.read(None, ["options.local.theta_rate=0.05"]).options
    assert found["adaped"] == config.Config().options["adaped"]
    assert found["local"] == {"theta_rate": 0.05}


def test_a_newer_format_is_named_before_its_unknown_keys(tmp_path):
    path = tmp_path / "new.toml"
    path.write_text("format = 3\nunheard = 1\n")
    with pytest.raises(ValueError, match="It was written by a newer version"):
        config.read(path)


def test_a_method_is_named_once():
    with pytest.raises(ValueError, match="methods must be named once each"):
        config.read(None, ['methods=["local", "local"]'])


def test_a_ledger_where_an_earlier_format_kept_it_stops_a_resume(tmp_path):
    """A new one would begin at nothing spent."""
    folder = Folder(tmp_path / "run")
    folder.create(config.Config())
    folder.open()
    old = folder.part("fedavg", 0) / "ledger.jsonl"
    old.parent.mkdir(parents=True)
    old.touch()
    with pytest.raises(PrivacyError, match=r"must be in privacy/, got .*seed-0.* start a new run"):
        folder.open()


@pytest.mark.parametrize("row", range(6))
def test_nan_is_refused_whichever_part_it_falls_in(row):
    x = np.ones((6, 2), np.float32)
    x[row, 1] = np.nan
    with pytest.raises(ValueError, match=f"x must be finite.*drop row {row} first"):
        fedprior.Federation.from_arrays(x, np.arange(6) % 2, np.zeros(6))


def test_a_label_without_a_value_is_refused():
    with pytest.raises(ValueError, match="y must be finite"):
        fedprior.Federation.from_arrays(np.ones((2, 1)), np.array([0.0, np.nan]), np.zeros(2))


def test_new_rows_need_as_many_labels(tmp_path):
    np.savez(tmp_path / "one.npz", x=np.ones((3, 2)), y=np.zeros(2))
    with pytest.raises(ValueError, match="its labels"):
        read_new(tmp_path, shape=(2,), classes=("0", "1"))


def test_a_diverged_classifier_scores_nothing():
    outputs = np.array([[np.nan, np.nan], [1.0, 0.0]])
    score = fedprior.mlp((1,), 2).score(outputs, np.array([0, 0]))
    np.testing.assert_array_equal(np.asarray(score), [0.0, 1.0])
