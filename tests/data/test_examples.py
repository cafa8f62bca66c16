"""Example tables: the same rows for a seed, written whole, nothing overwritten, worth a look."""

import csv

import numpy as np
import pytest

from fedprior import GroupRates
from fedprior.data.examples import EXAMPLES, write_examples


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_same_seed_gives_the_same_cells(name):
    first, again, other = (EXAMPLES[name].tables(seed=seed) for seed in (3, 3, 4))
    assert list(first) == list(EXAMPLES[name].files)
    for file, columns in first.items():
        lengths = {len(cells) for cells in columns.values()}
        assert len(lengths) == 1 or file.endswith(".npz")
        for column, cells in columns.items():
            np.testing.assert_array_equal(cells, again[file][column])
    assert any(
        cells.shape != other[file][column].shape or (cells != other[file][column]).any()
        for file, columns in first.items()
        for column, cells in columns.items()
    )


@pytest.mark.parametrize("name", ["counts", "radon", "sales", "wards", "orders"])
def test_some_groups_are_tiny_and_their_names_have_spaces(name):
    (columns,) = EXAMPLES[name].tables().values()
    group = {"counts": "county", "radon": "county", "sales": "shop", "wards": "ward"}
    labels, rows = np.unique(columns[group.get(name, "region")], return_counts=True)
    smallest = columns["races"].min() if name == "counts" else rows.min()
    assert smallest == 1
    assert all(" " in label for label in labels)


def test_sharing_helps_with_counts():
    (columns,) = EXAMPLES["counts"].tables().values()
    model = GroupRates.from_counts(columns["won"], columns["races"], groups=columns["county"])
    assert min(model.gain_over_raw_, model.gain_over_pooled_) > 20


def test_new_visits_have_no_outcome_and_a_hospital_of_their_own():
    tables = EXAMPLES["visits"].tables()
    old, new, public = (tables[name] for name in EXAMPLES["visits"].files)
    assert set(old) - set(new) == {"recovered"}
    assert set(old) - set(public) == {"hospital"}
    assert len(set(new["hospital"]) - set(old["hospital"])) == 1


def test_nothing_is_overwritten_or_half_written(tmp_path):
    write_examples(["radon"], tmp_path)
    before = (tmp_path / "radon.csv").read_bytes()
    with pytest.raises(ValueError, match=r"radon.csv exists already. Overwrite it with --force"):
        write_examples(["counts", "radon"], tmp_path, seed=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["radon.csv"]
    assert (tmp_path / "radon.csv").read_bytes() == before
    write_examples(["radon"], tmp_path, seed=1, force=True)
    assert (tmp_path / "radon.csv").read_bytes() != before


def test_a_missing_cell_is_empty(tmp_path):
    (path,) = write_examples(["radon"], tmp_path / "new folder")
    with path.open(newline="") as file:
        assert [row["log_radon"] for row in csv.DictReader(file)].count("") == 1


def test_arrays_of_clients_are_read_as_a_federation(tmp_path):
    from fedprior import from_folder

    write_examples(["clients"], tmp_path)
    assert from_folder(tmp_path / "clients").num_clients == 12
