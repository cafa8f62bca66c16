"""Arrow data of any library, by the PyCapsule interface, as NumPy arrays."""

import datetime
import decimal
import gc

import numpy as np
import pytest

from fedprior.data.arrow import Frame, has_arrow, read_arrow
from fedprior.data.frames import column_names, library, taken
from fedprior.data.reader import read

pa = pytest.importorskip("pyarrow")

LONG = "a word of more than twelve bytes"
CELLS = {
    "int8": ([1, -2, None, 4], pa.int8()),
    "int64": ([2**60, None, 3, -4], pa.int64()),
    "uint64": ([1, 2**64 - 1, None, 3], pa.uint64()),
    "float16": ([0.5, None, 2.0, -3.0], pa.float16()),
    "float32": ([0.5, None, 2.0, -3.0], pa.float32()),
    "float64": ([0.1, None, 2.0, -3.0], pa.float64()),
    "truth": ([True, None, False, True], pa.bool_()),
    "string": (["a", "ü", None, ""], pa.string()),
    "ascii": (["a", "bc", None, ""], pa.string()),
    "large": (["a", "ü", None, LONG], pa.large_string()),
    "view": (["a", LONG, None, "é" * 20], pa.string_view()),
    "bytes": ([b"a", b"\xff", None, b""], pa.binary()),
    "words": (["x", None, "y", "x"], pa.dictionary(pa.int8(), pa.string())),
    "wide words": (["x", None, LONG, "x"], pa.dictionary(pa.uint32(), pa.large_string())),
    "numbers": ([1.5, None, 2.5, 1.5], pa.dictionary(pa.int32(), pa.float64())),
    "date": ([datetime.date(2020, 2, 29), None, datetime.date(1960, 1, 1), None], pa.date32()),
    "date64": ([datetime.date(2020, 2, 29), None, datetime.date(1960, 1, 1), None], pa.date64()),
    "time": ([datetime.time(1, 2, 3), None, datetime.time(0), None], pa.time64("us")),
    "seconds": ([datetime.time(1, 2, 3), None, datetime.time(0), None], pa.time32("s")),
    "stamp": ([datetime.datetime(2020, 1, 1, 5), None, None, None], pa.timestamp("ms")),
    "span": ([datetime.timedelta(seconds=5), None, None, None], pa.duration("us")),
}


def listed(values):
    """Cells as Python has them, None where one is missing."""
    return values.tolist()


@pytest.fixture
def table():
    """All of them in two chunks."""
    columns = {name: pa.array(cells, kind) for name, (cells, kind) in CELLS.items()}
    whole = pa.table(columns)
    return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])


@pytest.mark.parametrize("name", CELLS)
def test_a_column_keeps_its_cells(table, name):
    cells = CELLS[name][0]
    frame = read_arrow(table)
    assert frame.shape == (4, len(CELLS))
    assert listed(frame[name]) == cells
    assert listed(read_arrow(table[name])) == cells  # chunked
    assert listed(read_arrow(pa.array(*CELLS[name]))) == cells
    assert listed(read_arrow(pa.array(*CELLS[name]).slice(1, 2))) == cells[1:3]
    assert listed(read_arrow(table.slice(2, 2))[name]) == cells[2:]
    assert listed(read_arrow(table.to_reader())[name]) == cells
    batch = table.combine_chunks().to_batches()[0]
    assert listed(read_arrow(batch.slice(1))[name]) == cells[1:]


def test_decimals_become_the_nearest_floats():
    cells = [decimal.Decimal("0.1"), None, decimal.Decimal("-123456789012345678.9")]
    for kind in (pa.decimal128(38, 1), pa.decimal256(60, 1)):
        assert listed(read_arrow(pa.array(cells, kind))) == [0.1, None, -123456789012345678.9]


def test_a_struct_has_the_offset_and_the_gaps_of_its_own():
    rows = pa.array([{"a": k, "s": str(k)} for k in range(20)])
    found = read_arrow(rows.slice(9, 5))
    assert listed(found["a"]) == [9, 10, 11, 12, 13]
    assert listed(found["s"]) == ["9", "10", "11", "12", "13"]
    gaps = pa.array([{"a": 1}, None, {"a": 3}])
    assert listed(read_arrow(gaps)["a"]) == [1, None, 3]


def test_columns_without_gaps_are_plain_arrays():
    assert type(read_arrow(pa.array([1, 2]))) is np.ndarray
    assert listed(read_arrow(pa.nulls(2))) == [None, None]
    assert len(read_arrow(pa.array([], pa.string()))) == 0
    assert len(read_arrow(pa.chunked_array([], pa.int64()))) == 0
    assert read_arrow(pa.table({"a": pa.array([], pa.int64())})).shape == (0, 1)


def test_nested_columns_are_refused_when_they_are_used():
    found = read_arrow(pa.table({"a": [1, 2], "b": [[1], [2]]}))
    assert listed(found["a"]) == [1, 2]
    with pytest.raises(TypeError, match="column 'b' must be of numbers, text, dates or truth valu"):
        found["b"]
    with pytest.raises(KeyError):
        found["c"]
    ends = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    with pytest.raises(TypeError, match="column must be of numbers"):
        read_arrow(ends)


def test_what_a_column_says_outlives_its_table_and_memory_is_given_back():
    before = pa.total_allocated_bytes()
    table = pa.table({"a": np.arange(100_000.0)})
    found = read_arrow(table.to_reader())
    del table
    gc.collect()
    column = found["a"]
    del found
    gc.collect()
    assert column.sum() == 100_000 * 99_999 / 2
    assert pa.total_allocated_bytes() <= before + 1024


def test_an_error_within_a_stream_is_told():
    def batches():
        yield pa.record_batch({"a": [1]})
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    with pytest.raises(ValueError, match=r"table: its Arrow stream ended with an error: .*disk i"):
        read_arrow(reader)


class Exported:
    """Only the interface, of some library that nobody knows."""

    def __init__(self, native):
        self.native = native

    def __arrow_c_array__(self, requested_schema=None):
        return self.native.__arrow_c_array__(requested_schema)


def test_the_array_interface_alone_is_enough():
    batch = pa.record_batch({"a": [1, None], "b": ["x", "y"]})
    found = taken(Exported(batch))
    assert isinstance(found, Frame)
    assert {name: listed(found[name]) for name in found} == {"a": [1, None], "b": ["x", "y"]}
    assert listed(taken(Exported(pa.array([1.5, None])))) == [1.5, None]


def test_names_are_known_before_anything_is_read():
    duckdb = pytest.importorskip("duckdb")
    table = pa.table({"a": [1], "b": [2]})
    with duckdb.connect() as connection:
        relation = connection.from_arrow(table)
        for each in (table, table.to_reader(), table.to_batches()[0], relation, read_arrow(table)):
            assert column_names(each) == ["a", "b"]
        assert listed(taken(relation)["b"]) == [2]
    assert column_names(table["a"]) is None
    assert column_names([1, 2]) is None
    assert column_names({"a": [1]}) is None


def test_narwhals_and_lazy_frames():
    polars, narwhals = pytest.importorskip("polars"), pytest.importorskip("narwhals")
    frame = polars.DataFrame({"a": [1, None], "b": ["x", "y"]})
    for each in (frame.lazy(), narwhals.from_native(frame), narwhals.from_native(frame.lazy())):
        assert column_names(each) == ["a", "b"]
        assert library(each) == "polars"
        assert taken(each).equals(frame)
    assert taken(narwhals.from_native(frame)["a"]).equals(frame["a"])
    arrow = narwhals.from_native(pa.table({"a": [1, None]}))
    assert listed(taken(arrow)["a"]) == [1, None]
    assert listed(taken(arrow["a"])) == [1, None]


def test_what_is_not_foreign_stays():
    for each in ([1], np.ones(2), {"a": [1]}, None, 3, "word", object()):
        assert taken(each) is each
        assert not has_arrow(each)


def test_the_reader_of_tables_takes_arrow(table):
    found = read(table, key=["string"], wanted=["words", "float16", "truth", "date", "uint64"])
    assert {name: kind.kind for name, kind in found.kinds.items()} == {
        "words": "text",
        "float16": "number",
        "truth": "truth",
        "date": "date",
        "uint64": "number",
    }
    assert listed(found.key) == ["a", "ü", None, None]
    assert listed(found.columns["float16"]) == [0.5, None, 2.0, -3.0]
    assert listed(found.columns["words"]) == ["x", None, "y", "x"]
    days = [18321.0, None, -3653.0, None]
    assert listed(found.columns["date"]) == days


def test_what_only_narwhals_knows(monkeypatch):
    """A data frame without the Arrow interface, read column by column."""
    pytest.importorskip("narwhals")
    monkeypatch.setattr("fedprior.data.frames.has_arrow", lambda values: False)
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    found = taken(table)
    assert {name: listed(found[name]) for name in found} == {
        "a": [1, None, 3],
        "b": ["x", "y", None],
    }
    assert listed(taken(table["a"])) == [1, None, 3]
