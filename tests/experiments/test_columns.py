"""Reading columns of a CSV file: values, and what is said of a file that is not right."""

import gzip

import pytest

from fedprior.experiments.columns import read_columns

KINDS = {"name": str, "votes": int}


def test_plain_and_gzipped_files_read_alike(tmp_path):
    text = "votes,name,more\n3,a,x\n5,b,y\n\n"
    (tmp_path / "plain.csv").write_text(text)
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for name in ("plain.csv", "packed.csv.gz"):
        table = read_columns("test", tmp_path / name, KINDS)
        assert (table["name"].tolist(), table["votes"].tolist()) == (["a", "b"], [3, 5])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "must be a file with rows, got 0"),
        ("name,votes\n", "must be a file with rows, got 0"),
        ("name,vote\na,3\n", "must be a file with votes, got 'name, vote'. Did you mean vote?"),
        ("name,votes\na,3\nb,many\n", "votes must be a whole number, got 'many'. See line 3 of"),
        ("name,votes\na,3\nb,2.5\n", "votes must be a whole number, got '2.5'. See line 3 of"),
        ("name,votes\na,3\nb\n", "votes must be a whole number, got ''. See line 3 of"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, wanted):
    file = tmp_path / "file.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=wanted.replace("?", r"\?").replace(".", r"\.")):
        read_columns("test", file, KINDS)


def test_no_file_and_no_csv(tmp_path):
    with pytest.raises(ValueError, match=r"data must be a folder with none\.csv, got"):
        read_columns("test", tmp_path / "none.csv", KINDS)
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"name,votes\na,3\n" * 50, mtime=0)[:-12])
    with pytest.raises(ValueError, match="must be a CSV file, got"):
        read_columns("test", broken, KINDS)
    (tmp_path / "bytes.csv").write_bytes(b"name,votes\n\xff,3\n")
    with pytest.raises(ValueError, match="must be a CSV file, got"):
        read_columns("test", tmp_path / "bytes.csv", KINDS)
