"""Columns of a published table: values, and what is said of a file that is not right."""

import gzip

import pytest

from fedprior.experiments.columns import read_columns


def columns(path):
    return read_columns("test", path, "name", ["votes"])


def test_plain_and_gzipped_files_read_alike(tmp_path):
    text = "votes,name,more\n3,01,x\n5,b,y\n\n"
    (tmp_path / "plain.csv").write_text(text)
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for name in ("plain.csv", "packed.csv.gz"):
        names, table = columns(tmp_path / name)
        assert (names.tolist(), table["votes"].tolist()) == (["01", "b"], [3, 5])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "the file is empty"),
        ("name,votes\n", "the file has a header but no rows"),
        ("name,vote\na,3\n", r"no column 'votes', only name, vote\. Did you mean vote\?"),
        ("name,votes\na,3\nb,many\n", r"'votes' must be a number, got 'many'\. See row 2"),
        ("name,votes\na,3\nb,2.5\n", r"votes must be a whole number, got 2\.5\. See row 2 of"),
        ("name,votes\na,3\nb,\n", r"votes must be a whole number, got nan\. See row 2 of"),
        ("name,votes\na,3\nb\n", "must be a readable table, got"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, wanted):
    file = tmp_path / "file.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=wanted):
        columns(file)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"data must be a folder with none\.csv, got"):
        columns(tmp_path / "none.csv")
