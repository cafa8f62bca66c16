"""What cells are read as: the same for a file, a data frame and arrays, and for every command."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.data.aggregate import aggregate
from fedprior.data.cells import MISSING, in_turn
from fedprior.data.reader import looks_like_id, names, read
from fedprior.data.table import encode_rows, fit_encoder, from_table


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def column(tmp_path, cells, *, delimiter=",", **options):
    """The column `x` of a file with these cells, and what it was read as."""
    rows = "".join(f'{place}{delimiter}"{cell}"\n' for place, cell in enumerate(cells))
    path = write(tmp_path / "t.csv", f"row{delimiter}x\n{rows}")
    table = read(path, wanted=["x"], **options)
    return table.columns["x"], table.said()["x"]


@pytest.mark.parametrize(
    "word", ["", " ", "NA", "na", "N/A", "n/a", "NaN", "nan", "NULL", "null", ".", "None", "<NA>"]
)
def test_a_word_for_missing_is_no_value(tmp_path, word):
    numbers, said = column(tmp_path, ["1.5", word, "3"])
    assert numbers.tolist() == [1.5, None, 3.0]
    assert said == "`x`: number, 1 missing"
    words, said = column(tmp_path, ["red", word, "blue"])
    assert words.tolist() == ["red", None, "blue"]
    assert said == "`x`: text, 1 missing"


@pytest.mark.parametrize("mark", ["-", "--", "?", "none"])
def test_marks_are_missing_among_numbers_and_words_among_words(tmp_path, mark):
    assert column(tmp_path, ["1", mark, "3"])[0].tolist() == [1, None, 3]
    assert column(tmp_path, ["true", mark])[0].tolist() == [True, None]
    assert column(tmp_path, ["low", mark, "high"])[0].tolist() == ["low", mark, "high"]


def test_other_words_for_missing(tmp_path):
    cells = ["1", "unknown", "Unknown", "-999"]
    assert column(tmp_path, cells, missing=["unknown", "-999"])[0].tolist() == [1, None, None, None]
    words = column(tmp_path, ["a", "NA", "Gone", "gone", "nan"], missing=["Gone"])[0]
    assert words.tolist() == ["a", "NA", None, "gone", "nan"]
    frame = pd.DataFrame({"x": [1.0, -999.0], "n": [3, -999]})
    columns = read(frame, missing=["-999"]).columns
    assert [columns[name].tolist() for name in ("x", "n")] == [[1, None], [3, None]]


def test_decimal_commas(tmp_path):
    assert column(tmp_path, ["1,5", "-2,25", "3"], delimiter=";")[0].tolist() == [1.5, -2.25, 3]
    assert column(tmp_path, ["1,5", "NA", "1,250"])[0].tolist() == [1.5, None, 1.25]
    assert column(tmp_path, ["1,234", "5,678"], delimiter=";")[0].tolist() == [1.234, 5.678]
    with pytest.raises(ValueError, match=r"'x' can be read in two ways \(1\.234 or .*'1,234'"):
        column(tmp_path, ["1,234", "5,678", "3"])
    assert column(tmp_path, ["1,234,567", "a"])[0].dtype.kind == "U"
    assert column(tmp_path, ["1.234,5", "7,25", "1.000"])[0].tolist() == [1234.5, 7.25, 1000]
    assert column(tmp_path, ["1,234.5", "5,678", "0.5"])[0].tolist() == [1234.5, 5678, 0.5]
    with pytest.raises(ValueError, match=r"commas and decimal points, as in '1,5' and '2\.5"):
        column(tmp_path, ["1,5", "2.5"])


def test_dates_are_days(tmp_path):
    for cells in (
        ["1970-01-02", "NA", "1970-01-01T12:00:00"],
        ["02.01.1970", "N/A", "01.01.1970"],
        ["1970/1/2", "-", "1970-01-01"],
    ):
        values, said = column(tmp_path, cells)
        assert values.tolist()[:2] == [1, None]
        assert said == "`x`: date (in days since 1970-01-01), 1 missing"
    assert column(tmp_path, ["25/12/2020", "01/02/2020"])[0].tolist() == [18621, 18293]
    assert column(tmp_path, ["12/25/2020", "01/02/2020"])[0].tolist() == [18621, 18263]
    assert column(tmp_path, ["01/01/2020"])[0].tolist() == [18262]
    with pytest.raises(
        ValueError, match=r"two ways \(day/month or month/day\), as in '03/04/2020'"
    ):
        column(tmp_path, ["03/04/2020"])
    assert column(tmp_path, ["epoch", "infinity"])[0].dtype.kind == "U"


def test_truth_values_are_no_words_and_yes_and_no_are(tmp_path):
    assert column(tmp_path, ["true", "FALSE", "NA"])[0].tolist() == [True, False, None]
    assert column(tmp_path, ["yes", "no"])[0].tolist() == ["yes", "no"]


def test_numbers_and_words_in_one_column_are_categories(tmp_path):
    rooms, said = column(tmp_path, ["0", "1", "2", "3+", "1"])
    assert rooms.tolist() == ["0", "1", "2", "3+", "1"]
    assert said == "`x`: text, 4 distinct, numbers and words such as '3+'"
    many = [str(number) for number in range(60)]
    wanted = r"hold numbers, or at most 50 distinct words, got 'high' in row 31 beside 60 numbers"
    with pytest.raises(ValueError, match=wanted):
        column(tmp_path, [*many[:30], "high", *many[30:]])
    codes = [f"A{number}" for number in range(60)]
    assert column(tmp_path, [*codes, *many[:40]])[0].dtype.kind == "U"  # mostly words


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encodings(tmp_path, encoding):
    path = write(tmp_path / "t.csv", "größe,wort\n1.5,für\n2,NA\n", encoding)
    table = read(path).columns
    assert {name: values.tolist() for name, values in table.items()} == {
        "größe": [1.5, 2.0],
        "wort": ["für", None],
    }


def test_columns_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "t.csv", "g,x,x,y\na,1,2,0\nb,1,2,1\n")
    for options in ({}, {"wanted": ["x"]}, {"wanted": ["y"], "optional": ["x"]}):
        with pytest.raises(ValueError, match="column 'x' appears 2 times in the header"):
            read(path, **options)
    with pytest.raises(ValueError, match="'x' appears 2 times"):
        from_table(path, client="g", label="y")
    assert list(read(path, key=["g"], wanted=["y"]).columns) == ["y"]
    frame = pd.DataFrame([[1, 2]], columns=["x", "x"])
    with pytest.raises(ValueError, match="names of columns must be different"):
        read(frame)


SOURCES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrays": dict}


@pytest.mark.parametrize("source", SOURCES)
def test_frames_and_arrays_are_read_as_files_are(tmp_path, source):
    text = {
        "number": ["1,5", "NA", "2", ""],
        "date": ["2020-01-01", "2020-01-02", ".", "2020-01-04"],
        "truth": ["true", "false", "N/A", "true"],
        "word": ["a", "null", "b", "a"],
    }
    lines = ["|".join(text), *("|".join(row) for row in zip(*text.values(), strict=True))]
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    wanted = read(path)
    table = read(SOURCES[source](text))
    assert table.said() == wanted.said()
    for name, values in wanted.columns.items():
        assert table.columns[name].tolist() == values.tolist()
    typed = {
        "number": np.array([1.5, np.nan, 2.0, np.nan]),
        "date": np.array(["2020-01-01", "2020-01-02", "NaT", "2020-01-04"], "datetime64[us]"),
        "truth": [True, False, None, True],
        "word": ["a", None, "b", "a"],
    }
    table = read(SOURCES[source](typed))
    assert table.said() == wanted.said()
    for name, values in wanted.columns.items():
        assert table.columns[name].tolist() == values.tolist()


def test_masked_arrays():
    masked = {
        "i": np.ma.MaskedArray([1, 2], [True, False]),
        "large": np.ma.MaskedArray([1, 2**60 + 1], [True, False]),
        "b": np.ma.MaskedArray([True, False], [False, True]),
        "f": np.ma.MaskedArray([1.5, 2.5], [True, False]),
        "d": np.ma.MaskedArray(np.array([0, 3], "datetime64[D]"), [True, False]),
        "w": np.ma.MaskedArray(["x", "y"], [False, True]),
    }
    columns = read(masked).columns
    for name, values in {"i": [None, 2], "b": [True, None], "f": [None, 2.5]}.items():
        assert columns[name].tolist() == values
    assert columns["d"].tolist() == [None, 3]
    assert columns["w"].tolist() == ["x", None]
    assert read(masked, key=["large"], wanted=["f"]).key.tolist() == [None, str(2**60 + 1)]


WRITERS = {
    "pyarrow": lambda table, path: pq.write_table(pa.table(table), path),
    "polars": lambda table, path: pl.DataFrame(table).write_parquet(path),
    "pandas": lambda table, path: pd.DataFrame(table).to_parquet(path),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nan_in_parquet_is_missing_whoever_wrote_it(tmp_path, writer, kind):
    """DuckDB 2.0 folds isnan() to false by statistics that leave NaN out."""
    path = str(tmp_path / "t.parquet")
    x = np.array([1.0, np.nan, 3.0, 5.0, np.nan, 2.0], kind)
    key = np.array([1.0, 1.0, 2.0, np.nan, 2.0, 1.0], kind)
    ones = np.array([1.0, np.nan, 0.0, 1.0, 1.0, 1.0], kind)
    WRITERS[writer]({"g": key, "x": x, "y": ones, "e": x}, path)
    table = read(path, key=["g"])
    assert table.columns["x"].mask.tolist() == [0, 1, 0, 0, 1, 0]
    assert table.key.mask.tolist() == [0, 0, 0, 1, 0, 0]
    assert table.said()["y"] == "`y`: number, 1 missing"
    with aggregate(path, group="g", value="x") as groups:
        assert (groups.n.tolist(), groups.mean.tolist()) == ([2, 1], [1.5, 3.0])
        assert groups.names([0, 1]) == ["1", "2"]
        assert groups.columns == {"x": table.said()["x"]}
    with aggregate(path, group="g", outcome="y") as groups:
        assert (groups.n.tolist(), groups.successes.tolist()) == ([2, 2], [2, 1])
    with aggregate(path, group="g", value="x", stderr="e") as groups:
        assert groups.n.tolist() == [2, 1]


cells = st.sampled_from(["a", "b", "a / b", "b / a", "/", "//", "a/", "/a", "x y"])


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=30))
def test_several_group_columns_make_one_key(tmp_path_factory, rows):
    """Different cells never make the same key, in memory and in sums on disk."""
    path = tmp_path_factory.mktemp("keys") / "t.parquet"
    state, county = map(list, zip(*rows, strict=True))
    pl.DataFrame({"state": state, "county": county, "x": [1.0] * len(rows)}).write_parquet(path)
    labels = names(read(path, key=["state", "county"]).key)
    assert len(set(labels)) == len(set(rows))
    assert len(set(zip(labels.tolist(), rows, strict=True))) == len(set(rows))
    with aggregate(str(path), group=["state", "county"], value="x") as groups:
        assert set(groups.names(range(len(groups.n)))) == set(labels)
        assert groups.n.sum() == len(rows)


CELLS = ["1", "2.5", "-3e1", " 4 ", "NA", "N/A", "", ".", "nan", "-", "none", "None", "inf"]
WORDS = ["low", "1,5", "12,25", "1,234", "1.234,5", "true", "2020-01-01", "3+", "-999"]


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", "b", "NA", ""]), st.sampled_from(CELLS + WORDS)),
        min_size=1,
        max_size=12,
    ),
    plain=st.booleans(),
    delimiter=st.sampled_from([",", ";"]),
    missing=st.sampled_from([None, ("-999",), ("low", "a")]),
)
def test_sums_on_disk_are_those_of_the_columns(tmp_path_factory, rows, plain, delimiter, missing):
    """Whatever the cells are, both refuse, or both use the same numbers of the same groups."""
    rows = [(group, cell if cell in CELLS or not plain else "7") for group, cell in rows]
    lines = [f'{group}{delimiter}"{cell}"' for group, cell in rows]
    folder = tmp_path_factory.mktemp("sums")
    path = write(folder / "t.csv", f"g{delimiter}x\n" + "\n".join(lines) + "\n")
    wanted, refused = {}, False
    try:
        table = read(path, key=["g"], wanted=["x"], missing=missing)
        values, groups = table.columns["x"], table.key
        has = ~np.ma.getmaskarray(values) & ~np.ma.getmaskarray(groups)
        refused = table.kinds["x"].kind == "date" or not has.any()
        if table.kinds["x"].kind == "text":
            refused = bool((~np.ma.getmaskarray(values)).any()) or refused
        elif np.isinf(values.data[~np.ma.getmaskarray(values)]).any():
            refused = True
        else:
            for name in sorted(set(names(groups)[has])):
                own = values.data[has & (names(groups) == name)].astype(float)
                wanted[name] = (len(own), pytest.approx(own.mean()))
    except ValueError:
        refused = True
    options = {} if missing is None else {"missing": missing}
    try:
        with aggregate(str(path), group="g", value="x", **options) as found:
            means = zip(found.n.tolist(), found.mean.tolist(), strict=True)
            got = dict(zip(found.names(range(len(found.n))), means, strict=True))
            assert not refused
            assert got == wanted
            assert found.columns == table.said()
    except ValueError:
        assert refused


def test_a_row_without_one_of_its_group_cells_has_no_group(tmp_path):
    path = write(tmp_path / "t.csv", "s,c,x\nTX,1,1\nTX,NA,2\n,1,3\nTX,1.0,4\nNY,01,5\n")
    key = read(path, key=["s", "c"]).key
    assert key.tolist() == ["TX / 1", None, None, "TX / 1.0", "NY / 01"]
    frame = pd.DataFrame({"s": ["TX", "TX"], "c": [1.0, np.nan], "x": [1, 2]})
    assert read(frame, key=["s", "c"]).key.tolist() == ["TX / 1", None]


def test_ids_and_row_numbers_are_told():
    values = {
        "place": np.arange(5.0, 45.0),
        "user_id": np.arange(40.0) ** 2,
        "word": np.array([f"w{number}" for number in range(40)]),
        "income": np.arange(40.0) ** 2,
        "half": np.arange(40.0) / 2,
        "few": np.arange(40.0) % 20,
    }
    told = [name for name, each in values.items() if looks_like_id(name, np.ma.MaskedArray(each))]
    assert told == ["place", "user_id", "word"]
    assert not looks_like_id("place", np.ma.MaskedArray(np.arange(5.0)))
    table = {"client": np.arange(40) % 4, "row": np.arange(40), "y": np.arange(40) % 2}
    told = from_table(table | {"x": np.arange(40) % 7}, client="client", label="y").remarks
    assert sum("'row' looks like the number or id of a row" in remark for remark in told) == 1
    excluded = from_table(
        table | {"x": np.arange(40) % 7}, client="client", label="y", exclude=["row"]
    )
    assert excluded.encoder.features == ["x"]
    assert not any("looks like" in remark for remark in excluded.remarks)


def test_one_na_leaves_a_column_of_numbers(tmp_path):
    lines = [f"{n % 4},{n / 3:.3f},{n % 2}" for n in range(40)]
    lines[7] = "3,NA,1"
    path = write(tmp_path / "t.csv", "c,x,y\n" + "\n".join(lines) + "\n")
    encoder = from_table(path, client="c", label="y").encoder
    assert encoder.feature_names == ["x", "x missing"]


def test_the_width_of_an_encoding_does_not_depend_on_the_split():
    """One missing cell and one rare word, wherever they fall."""
    table = {
        "c": np.arange(60) % 6,
        "x": np.ma.MaskedArray(np.arange(60.0), np.arange(60) == 17),
        "word": np.where(np.arange(60) == 23, "rare", "common"),
        "y": np.arange(60) % 2,
    }
    encoders = [from_table(table, client="c", label="y", seed=seed).encoder for seed in range(8)]
    wanted = ["x", "x missing", "word=common", "word=rare"]
    assert all(encoder.feature_names == wanted for encoder in encoders)
    assert len({encoder.columns[0].mean for encoder in encoders}) > 1


def test_an_encoder_reads_new_rows_as_it_read_its_own(tmp_path):
    rows = ['a,"1,5",25/12/2020,true,0', "b,NA,26/12/2020,false,3+", 'a,"1,250",27/12/2020,NA,1']
    header = "c,x,seen,member,rooms,y\n"
    text = header + "".join(f"{row},{place % 2}\n" for place, row in enumerate(rows))
    path = write(tmp_path / "t.csv", text)
    federation = from_table(path, client="c", label="y", valid_share=0, test_share=0)
    x, y, clients = encode_rows(federation.encoder, path)
    assert clients.tolist() == ["a", "b", "a"]
    assert sorted(map(tuple, x)) == sorted(map(tuple, federation.train.x))
    assert y.tolist() == [0, 1, 0]
    write(path, text.replace("27/12/2020", "2020-12-27"))
    with pytest.raises(ValueError, match=r"'seen' must be a date, got '2020-12-27'\. See row 3"):
        encode_rows(federation.encoder, path)


@pytest.mark.parametrize("cells", [("true", "FALSE"), ("0", "1"), ("1.0", "2"), ("true", "maybe")])
def test_labels_of_new_rows_are_those_of_training(tmp_path, cells):
    rows = "".join(f"{n % 2},{n},{cells[n // 2 % 2]}\n" for n in range(12))
    path = write(tmp_path / "t.csv", f"c,x,y\n{rows}")
    encoder = from_table(path, client="c", label="y").encoder
    codes = encode_rows(encoder, path)[1]
    assert (codes == codes[0]).tolist() == [n // 2 % 2 == 0 for n in range(12)]
    assert set(codes.tolist()) == {0, 1}


def test_words_for_missing_go_with_the_encoder(tmp_path):
    path = write(tmp_path / "t.csv", "c,x,y\na,1,no\na,-1,yes\nb,3,no\nb,2,yes\n")
    encoder = fit_encoder(path, client="c", label="y", missing=["-1"])
    assert encoder.missing == ("-1",)
    assert encoder.feature_names == ["x", "x missing"]
    assert encode_rows(encoder, path)[0][:, 1].tolist() == [0, 1, 0, 0]
    assert fit_encoder(path, client="c", label="y").missing == MISSING


def test_a_clean_table_on_disk_takes_one_pass(tmp_path, monkeypatch):
    """Cells are looked at more closely only where one is not a number."""
    clean = write(tmp_path / "clean.csv", "g,x\na,1\na,2\nb,\nb,4\n")
    messy = write(tmp_path / "messy.csv", "g,x\na,1\na,2\nb,NA\nb,4\n")
    asked = []
    monkeypatch.setattr(
        "fedprior.data.measures.describe", lambda *_args, **_options: asked.append(1) or 1 / 0
    )
    with aggregate(str(clean), group="g", value="x") as groups:
        assert (groups.n.tolist(), groups.columns) == ([2, 1], {"x": "`x`: number, 1 missing"})
    assert not asked
    with pytest.raises(ZeroDivisionError), aggregate(str(messy), group="g", value="x"):
        pass


def test_dates_are_no_numbers_to_average(tmp_path):
    path = write(tmp_path / "t.csv", "g,x\na,2020-01-01\na,2020-01-02\n")
    with (
        pytest.raises(ValueError, match="column 'x' must be a column of numbers, got 'dates'"),
        aggregate(str(path), group="g", value="x"),
    ):
        pass
    with pytest.raises(ValueError, match="label 'x' must be numbers or classes, got 'dates'"):
        from_table(
            {"g": ["a", "b"], "f": [1, 2], "x": ["2020-01-01", "2020-01-02"]}, client="g", label="x"
        )


def test_types_that_are_declared(tmp_path):
    path = tmp_path / "t.parquet"
    query = (
        "SELECT 1.5::DECIMAL(9, 2) AS d, 3::HUGEINT AS h, DATE '1970-01-03' AS day, "
        "TIMESTAMP '1970-01-01 12:00:00' AS time, true AS b, uuid() AS u, "
        "'red'::ENUM('red', 'blue') AS e, TIMESTAMPTZ '1970-01-02 00:00:00+00' AS z"
    )
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    columns = read(path).columns
    assert [columns[name].tolist() for name in ("d", "h", "day", "time", "z")] == [
        [1.5],
        [3.0],
        [2.0],
        [0.5],
        [1.0],
    ]
    assert columns["b"].tolist() == [True]
    assert columns["e"].tolist() == ["red"]
    assert len(columns["u"][0]) == 36


def test_more_columns_than_a_query_takes(tmp_path):
    """Numbers, some with words for missing and some with commas, come back in their places."""
    number, rows = 2 * len(next(in_turn(range(10_000)))) + 3, 12
    values = np.arange(number * rows, dtype=float).reshape(rows, number) + 0.5
    text = values.astype(str)
    text[::5, 1::2] = "NA"
    text[1, -1] = '"1,234.5"'
    values[1, -1] = 1234.5
    header = ",".join(f"x{place}" for place in range(number))
    lines = [f"c{n % 3},{n % 2}," + ",".join(row) for n, row in enumerate(text)]
    path = write(tmp_path / "t.csv", f"c,y,{header}\n" + "\n".join(lines))
    table = read(path, key=["c"])
    kinds = {name: (column.kind, column.form) for name, column in table.kinds.items()}
    assert kinds.pop(f"x{number - 1}") == ("number", "1,000")
    assert set(kinds.values()) == {("number", "")}
    again = read(path, key=["c"], kinds=dict.fromkeys(table.kinds, ("number", "")))
    assert table.key.tolist() == again.key.tolist() == [f"c{n % 3}" for n in range(rows)]
    for one in (table, again):
        for place in range(number):
            own = one.columns[f"x{place}"]
            missing = text[:, place] == "NA"
            np.testing.assert_array_equal(np.ma.getmaskarray(own), missing)
            np.testing.assert_array_equal(own[~missing], values[~missing, place])
    wrong = path.read_text().replace(text[2, number - 2], "oops")
    path = write(tmp_path / "u.csv", wrong)
    with pytest.raises(ValueError, match=r"must be a number, got 'oops'\. See row 3\."):
        read(path, key=["c"], kinds=dict.fromkeys(kinds, ("number", "")))


def test_a_header_of_several_lines(tmp_path):
    """Spreadsheets break lines in a name by one character, and between rows by two."""
    for end in ("\n", "\r\n", "\r"):
        for name in ("two\nlines", "two\r\nlines", 'with "" and\n\nthree'):
            path = tmp_path / "table.csv"
            path.write_bytes(f'c,"{name}",y{end}1,2,3{end}4,5,6{end}'.encode())
            table = read(path, key=["c"])
            columns = {each: values.tolist() for each, values in table.columns.items()}
            assert columns == {name.replace('""', '"'): [2, 5], "y": [3, 6]}
