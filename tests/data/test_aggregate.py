"""Sums of groups against NumPy, whatever the file; what is missing, wrong or unreadable."""

import contextlib
import csv
import gzip
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.data.aggregate import Groups, aggregate
from fedprior.data.scan import scan


def write_csv(path, header, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return str(path)


def write_parquet(path, **columns):
    with duckdb.connect() as connection:
        connection.register("columns", {name: np.asarray(each) for name, each in columns.items()})
        connection.execute(f"COPY (SELECT * FROM columns) TO '{path}' (FORMAT parquet)")
    return str(path)


def found(path, **options):
    """What the file says by group: name -> the tuple of its numbers."""
    with aggregate(str(path), **options) as groups:
        names = groups.names(range(len(groups.n)))
        numbers = [
            each.tolist()
            for each in (groups.mean, groups.within, groups.variance, groups.successes)
            if each is not None
        ]
        return dict(zip(names, zip(groups.n.tolist(), *numbers, strict=True), strict=True))


def by_hand(names, values):
    return {
        name: (len(own), own.mean(), ((own - own.mean()) ** 2).sum())
        for name in sorted(set(names), key=str.encode)
        for own in [np.array([v for n, v in zip(names, values, strict=True) if n == name])]
    }


def close(got, wanted):
    assert list(got) == list(wanted)
    for name in wanted:
        assert got[name] == pytest.approx(wanted[name], rel=1e-12, abs=1e-12), name


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "B", "08014", "8014", 'q"u,o', "é"]),
            st.floats(-1e6, 1e6, allow_subnormal=False),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_values_of_csv_and_parquet_are_those_of_numpy(rows):
    """Groups in order of their names, which stay the text that they are."""
    names, values = zip(*rows, strict=True)
    wanted = by_hand(names, values)
    with tempfile.TemporaryDirectory() as folder:
        table = write_csv(Path(folder) / "t.csv", ["g", "x"], rows)
        got = found(table, group="g", value="x")
        assert list(got) == list(wanted)
        for name, (n, mean, within) in wanted.items():
            assert got[name][0] == n
            assert got[name][1] == pytest.approx(mean, rel=1e-9, abs=1e-9)
            assert got[name][2] == pytest.approx(within, rel=1e-9, abs=1e-3)


def test_integer_keys_and_single_precision(tmp_path):
    draws = np.random.default_rng(0)
    key = draws.integers(0, 40, 3000).astype(np.int32)
    value = draws.normal(3, 2, 3000).astype(np.float32)
    outcome = (draws.random(3000) < 0.3).astype(np.int8)
    path = write_parquet(tmp_path / "t.parquet", g=key, x=value, y=outcome)
    with aggregate(path, group="g", value="x") as groups:
        assert groups.names([0, 39, 7]) == ["0", "39", "7"]
        for place in range(40):
            own = value[key == place].astype(float)
            assert groups.n[place] == len(own)
            assert groups.mean[place] == pytest.approx(own.mean(), rel=1e-12)
            assert groups.within[place] == pytest.approx(((own - own.mean()) ** 2).sum())
        assert (groups.rows, groups.dropped, groups.notes) == (3000, 0, ())
    with aggregate(path, group="g", outcome="y") as groups:
        assert groups.successes.tolist() == np.bincount(key, outcome).tolist()
        assert groups.n.tolist() == np.bincount(key).tolist()
        assert groups.n.dtype.kind == groups.successes.dtype.kind == "i"


def test_footers_say_whether_outcomes_are_binary(tmp_path):
    """And a cell that is neither 0 nor 1 is found with them and without them."""
    cases = {"int": np.int8([1, 0, 2]), "large": np.int64([1, 0, -1]), "float": [1.0, 0.0, 0.5]}
    for name, outcome in cases.items():
        path = write_parquet(tmp_path / f"{name}.parquet", g=[1, 1, 2], y=outcome)
        with pytest.raises(ValueError, match=r"'y' must be 0 or 1, got \S+ in row 3"):
            found(path, group="g", outcome="y")
    good = write_parquet(tmp_path / "good.parquet", g=[1, 1, 2], y=np.int8([1, 0, 1]))
    with contextlib.closing(scan(good, columns=["y"])) as source:
        assert source.is_binary("y")
        assert source.num_rows() == 3
    both = str(tmp_path / "[gi]*.parquet")
    with contextlib.closing(scan(both, columns=["y"])) as source:
        assert not source.is_binary("y")
        assert source.num_rows() == 6
    with pytest.raises(ValueError, match="'y' must be 0 or 1, got 2 in row 6"):
        found(both, group="g", outcome="y")


def test_a_mean_of_1e9_leaves_the_variance_alone(tmp_path):
    """Sums of squares would be off by far more than all: 1e9**2 * 1e-16 * n against n."""
    draws = np.random.default_rng(1)
    key, value = draws.integers(0, 5, 2000), draws.normal(1e9, 1, 2000)
    path = write_parquet(tmp_path / "t.parquet", g=key, x=value)
    with aggregate(path, group="g", value="x") as groups:
        for place in range(5):
            own = value[key == place]
            centered = own - 1e9
            within = ((centered - centered.mean()) ** 2).sum()
            assert groups.within[place] == pytest.approx(within, rel=1e-6)
            assert groups.mean[place] - 1e9 == pytest.approx(centered.mean(), abs=1e-5)


ROWS = (
    "g,x,e,s,t,y\na,1.5,1,1,2,1\na,2.5,2,2,3,0\nb,4,.5,0,4,TRUE\nb,-2,.5,4,4,no\nc,3,.1,0,0,1.0\n"
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows [1].csv"
    path.write_text(ROWS)
    return path


def test_the_four_kinds_of_table(table):
    assert found(table, group="g", value="x") == {"a": (2, 2, 0.5), "b": (2, 1, 18), "c": (1, 3, 0)}
    assert found(table, group="g", successes="s", trials="t") == {
        "a": (5, 3),
        "b": (8, 4),
        "c": (0, 0),
    }
    assert found(table, group="g", outcome="y") == {"a": (2, 1), "b": (2, 1), "c": (1, 1)}
    got = found(table, group="g", value="x", stderr="e")
    # weights 1 and 1/4: (1.5 + 2.5 / 4) / 1.25, of variance 1 / 1.25
    close(got, {"a": (2, 1.7, 0.8), "b": (2, 1, 0.125), "c": (1, 3, 0.01)})
    assert got["c"][1] == 3  # a single row to the bit


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiters_and_byte_order_marks(tmp_path, delimiter):
    path = tmp_path / "t.txt"
    path.write_text("\ufeff" + ROWS.replace(",", delimiter), encoding="utf-8")
    assert found(path, group="g", value="x")["b"] == (2, 1, 18)


def test_globs_and_compressed_files(tmp_path, table):
    lines = ROWS.splitlines()
    for number, part in enumerate((lines[1:3], lines[3:])):
        with gzip.open(tmp_path / f"part{number}.csv.gz", "wt") as file:
            file.write("\n".join([lines[0], *part]) + "\n")
    wanted = found(table, group="g", value="x")
    assert found(tmp_path / "part*.csv.gz", group="g", value="x") == wanted
    for number in range(2):
        write_parquet(tmp_path / f"p{number}.parquet", g=["a", "b"], x=[1.0 + number, 2.0])
    assert found(tmp_path / "p?.parquet", group="g", value="x") == {
        "a": (2, 1.5, 0.5),
        "b": (2, 2, 0),
    }


def test_a_first_quote_far_down_is_read(tmp_path):
    """DuckDB's own detection looks at 20,480 rows and then takes quotes for text."""
    path = tmp_path / "late.csv"
    path.write_text("g,x\n" + "a,1.5\n" * 30_000 + '"b,c",2\n')
    assert found(path, group="g", value="x") == {"a": (30_000, 1.5, 0), "b,c": (1, 2, 0)}


def test_strange_names_of_columns(tmp_path):
    header = ['the "group"', "it's", "x", "X", "z", "z", ""]
    path = write_csv(tmp_path / "t.csv", header, [["a", 1, 2, 3, 4, 5, 6]])
    assert found(path, group='the "group"', value="it's") == {"a": (1, 1, 0)}
    assert found(path, group='the "group"', value="x") == {"a": (1, 2, 0)}


def test_missing_cells_are_dropped_and_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("g,x\na,1\na,\n,5\nb,NA\nb,nan\nc,2\nc,4\n")
    with aggregate(str(path), group="g", value="x") as groups:
        assert groups.n.tolist() == [1, 2]
        assert groups.mean.tolist() == [1, 3]
        assert groups.names([1, 0]) == ["c", "a"]
        assert (groups.rows, groups.dropped) == (3, 4)
        assert groups.notes == (
            "Dropped 1 row without a group ('g') and 3 rows without a number ('x'; no other in "
            "1 group).",
        )


def test_nan_in_parquet_is_missing(tmp_path):
    key, value = np.array([1.0, 1.0, 2.0, np.nan]), np.array([1.0, np.nan, 3.0, 4.0])
    path = write_parquet(tmp_path / "t.parquet", g=key, x=value, s=value, t=value + 1, e=value)
    assert found(path, group="g", value="x") == {"1": (1, 1, 0), "2": (1, 3, 0)}
    assert found(path, group="g", successes="s", trials="t") == {"1": (2, 1), "2": (4, 3)}
    assert found(path, group="g", value="x", stderr="e") == {"1": (1, 1, 1), "2": (1, 3, 9)}
    binary = write_parquet(tmp_path / "b.parquet", g=[1, 1, 2], y=[1.0, np.nan, 0.0])
    assert found(binary, group="g", outcome="y") == {"1": (1, 1), "2": (1, 0)}


COLUMNS = {
    "value": {"value": "x"},
    "stderr": {"value": "x", "stderr": "e"},
    "counts": {"successes": "s", "trials": "t"},
    "outcome": {"outcome": "y"},
}


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("value", "a,inf,1,1,2,1", r"column 'x' must be finite, got inf in row 6 \(group 'a'\)"),
        ("value", "a,high,1,1,2,1", "column 'x' must be numbers, got high in row 6"),
        ("value", ",high,1,1,2,1", "must be numbers, got high in row 6."),
        ("value", "a,1e200,1,1,2,1", "small enough for their squares"),
        ("stderr", "a,1,0,1,2,1", "'e' must be a standard error above 0, got 0"),
        ("stderr", "a,1,-2,1,2,1", "above 0, got -2"),
        ("stderr", "a,1,inf,1,2,1", "'e' must be finite"),
        ("counts", "a,1,1,3,2,1", "'s' must be at most the trials in column 't', got 3 of 2"),
        ("counts", "a,1,1,-3,2,1", "'s' must be whole numbers of at least 0, got -3"),
        ("counts", "a,1,1,3,-2,1", "'t' must be whole numbers of at least 0, got -2"),
        ("counts", "a,1,1,.5,2,1", "'s' must be whole .* got 0.5 in row 6"),
        ("counts", "a,1,1,1,2.5,1", "'t' must be whole .* got 2.5"),
        ("counts", "a,1,1,1,inf,1", "'t' must be finite"),
        ("counts", "a,1,1,1,few,1", "'t' must be numbers, got few"),
        ("outcome", "a,1,1,1,2,2", "'y' must be 0 or 1, got 2 in row 6 .* use --value"),
        ("outcome", "a,1,1,1,2,perhaps", "'y' must be 0 or 1, got perhaps"),
        ("outcome", "a,1,1,1,2,0.5", "'y' must be 0 or 1, got 0.5"),
    ],
)
def test_faulty_rows_are_named(table, kind, row, message):
    table.write_text(ROWS + row + "\n")
    with pytest.raises(ValueError, match=message):
        found(table, group="g", **COLUMNS[kind])


def test_strict_refuses_what_is_missing(table):
    table.write_text(ROWS + "a,,1,1,2,1\n,1,1,1,2,1\n")
    wanted = (
        r"rows must be complete with --strict, got \"1 row without a group \('g'\) and 1 row "
        r"without a number \('x'\)\""
    )
    with pytest.raises(ValueError, match=wanted):
        found(table, group="g", value="x", strict=True)
    assert found(table, group="g", outcome="y")["a"] == (3, 2)


def test_a_wanted_name_stands_once_in_the_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("g,g,x,y,y\na,b,1,0,1\n")
    with pytest.raises(ValueError, match="column 'g' appears 2 times in the header"):
        found(path, group="g", value="x")
    path.write_text("g,x,y,y\na,1,0,1\n")  # others may repeat
    assert found(path, group="g", value="x") == {"a": (1, 1, 0)}


def test_columns_that_are_not_there_and_other_types(table, tmp_path):
    with pytest.raises(ValueError, match=r"there is no column '.*', only g, x, .* Did you mean x"):
        found(table, group="g", value="xx")
    with pytest.raises(ValueError, match="--group must be another column"):
        found(table, group="x", value="x")
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        query = "SELECT 'a' AS g, DATE '2020-01-01' AS d, true AS y, 1.5::DECIMAL(9, 2) AS x"
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    with pytest.raises(ValueError, match="column 'd' must be a column of numbers, got 'date'"):
        found(path, group="g", value="d")
    assert found(path, group="g", outcome="y") == {"a": (1, 1)}
    assert found(path, group="d", value="x") == {"2020-01-01": (1, 1.5, 0)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "the file is empty"),
        ("t.csv", "g,x\n", "the file has a header but no rows"),
        ("t.csv", "g,x\na,\n,2\n", "a table with rows to use, got"),
        ("t.csv", "g,x\na,1\nb,2,3\n", "readable table, got: .*Line: 3.*Expected Number of Col"),
        ("t.csv", "g,x\na,1\nb\n", "readable table, got: .*Line: 3"),
        ("t.parquet", "g,x\na,1\n", "must be a readable table"),
        ("t.xlsx", "g,x\na,1\n", r"must end in one of \.csv"),
    ],
)
def test_files_that_hold_no_table(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        found(path, group="g", value="x")
    assert "\n" not in str(caught.value)
    assert "Possible fixes" not in str(caught.value)


def test_files_that_do_not_belong_together(tmp_path, table):
    with pytest.raises(ValueError, match="there is no such file"):
        found(tmp_path / "none.csv", group="g", value="x")
    with pytest.raises(ValueError, match=r"this is a folder, not a file. .* quote '.*\*\.csv'"):
        found(tmp_path, group="g", value="x")
    (tmp_path / "m1.csv").write_text("g,x\na,1\n")
    (tmp_path / "m2.csv").write_text("x,g\n1,a\n")
    with pytest.raises(ValueError, match=r"m2.csv: header must be the same columns as .*m1.csv"):
        found(tmp_path / "m?.csv", group="g", value="x")
    write_parquet(tmp_path / "m3.parquet", g=["a"], x=[1.0])
    with pytest.raises(ValueError, match="all CSV or all Parquet, got both"):
        found(tmp_path / "m*", group="g", value="x")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_results_are_joined_to_the_names(table, tmp_path, ending):
    out = tmp_path / "deep" / f"it's.{ending}"
    with aggregate(str(table), group="g", value="x") as groups:
        result = {"n": groups.n, "personal": np.array([0.5, np.nan, 2.5])}
        groups.write(result, out)
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT * FROM " + "'" + str(out).replace("'", "''") + "'")
        assert [column[0] for column in rows.description] == ["group", "n", "personal"]
        assert rows.fetchall() == [("a", 2, 0.5), ("b", 2, None), ("c", 1, 2.5)]
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_names_in_memory_are_written_alike(tmp_path):
    labels = np.array(["x, y", "z"], object)
    groups = Groups(n=np.array([1, 2]), rows=3, labels=labels)
    assert groups.names([1]) == ["z"]
    groups.write({"n": groups.n}, tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text().splitlines() == ["group,n", '"x, y",1', "z,2"]


def test_a_failed_write_leaves_nothing(table, tmp_path):
    (tmp_path / "o.csv").mkdir()
    wanted = r"--out must be a file that can be written, got .*o\.csv \(.*Is a directory\)"
    with (
        aggregate(str(table), group="g", value="x") as groups,
        pytest.raises(ValueError, match=wanted),
    ):
        groups.write({"n": groups.n}, tmp_path / "o.csv")
    assert not list(tmp_path.glob("*.tmp"))


def test_what_does_not_fit_into_memory_is_spilled(tmp_path):
    """A million groups in 60 MB, which their sorted sums fill alone."""
    path = tmp_path / "t.parquet"
    rows = "SELECT hash(i) % 1500000 AS g, i::DOUBLE AS x FROM range(2000000) t(i)"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    with aggregate(str(path), group="g", value="x", memory_limit="60MB") as groups:
        assert groups.n.sum() == groups.rows == 2_000_000
        assert groups.n @ groups.mean == pytest.approx(1_999_999 * 1_000_000)
        setting = "SELECT current_setting('temp_directory')"
        spill = Path(groups.connection.execute(setting).fetchone()[0])
        assert spill.is_dir()
    assert not spill.exists()
    with (
        pytest.raises(ValueError, match="fit into memory and temporary disk space"),
        aggregate(str(path), group="g", value="x", memory_limit="20MB"),
    ):
        pass


@pytest.mark.parametrize(
    "columns",
    [
        {"value": "e", "stderr": "x"},
        {"successes": "e", "trials": "x"},
        {"events": "e", "exposure": "x"},
    ],
)
def test_words_of_a_whole_group_are_refused(tmp_path, columns):
    """A group of which every cell is a word is no group of missing cells."""
    rows = [("a", 1, "many"), ("a", 1, "few"), ("b", 1, 2), ("b", 1, 3), ("c", 1, 4)]
    path = write_csv(tmp_path / "rows.csv", ("g", "e", "x"), rows)
    with pytest.raises(ValueError, match="column 'x' must be numbers, got many in row 1"):
        found(path, group="g", **columns)


def test_decimal_commas_in_every_cell_of_a_second_column(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("g;e;x\na;1;2,5\na;2;2,75\nb;0;1,5\n")
    got = found(path, group="g", events="e", exposure="x")
    assert got == {"a": (5.25, 3), "b": (1.5, 0)}
