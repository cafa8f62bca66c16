"""Labels, numbers and frames: what comes in as a list, an array, a Series or a frame."""

import datetime
import decimal
import doctest

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprior.data.frames import column_names
from fedprior.estimation import groups, numeric

polars = pytest.importorskip("polars")


def factorize(labels):
    return groups.factorize("Owner", "groups", labels)


def look_up(levels, labels, **options):
    return groups.look_up("Owner", "groups", levels, labels, **options).tolist()


def numbers(values, **options):
    return numeric.numbers("Owner", "y", values, **options)


WORDS = ["b", "a", None, "b"]
WHOLE = [30, 10, None, 30]


@pytest.mark.parametrize(
    "labels",
    [
        WORDS,
        ["b", "a", float("nan"), "b"],
        np.array(WORDS, object),
        pd.Series(WORDS),
        pd.Series(WORDS, dtype=object),
        pd.Series(WORDS, dtype="category"),
        pd.Categorical(WORDS),
        pd.Index(WORDS),
        pd.DataFrame({"g": WORDS}),
        polars.Series(WORDS),
        polars.Series(WORDS, dtype=polars.Categorical),
        polars.DataFrame({"g": WORDS}),
        np.ma.masked_array(["b", "a", "z", "b"], [0, 0, 1, 0]),
        WHOLE,
        np.array([30.0, 10.0, np.nan, 30.0]),
        pd.Series(WHOLE),
        pd.Series(WHOLE, dtype="Int64"),
        polars.Series(WHOLE),
        polars.Series([3.0, 1.0, float("nan"), 3.0]),
        pd.to_datetime(pd.Series(["2021-01-02", "2021-01-01", None, "2021-01-02"])),
        [True, False, None, True],
        [(2, "x"), (1, "x"), None, (2, "x")],
    ],
    ids=lambda labels: f"{type(labels).__module__}.{type(labels).__name__}",
)
def test_a_label_is_a_place_in_the_sorted_labels_and_a_missing_one_is_none(labels):
    found = factorize(labels)
    assert found.place.tolist() == [1, 0, -1, 1]
    assert len(found.levels) == 2
    assert look_up(found.levels, labels) == [1, 0, -1, 1]


def test_labels_keep_their_type():
    assert factorize(np.array([7, 5], np.int16)).levels.dtype == np.int16
    assert factorize(pd.Series([7, None], dtype="Int64")).levels.tolist() == [7]
    assert factorize(["10", "9"]).levels.tolist() == ["10", "9"]
    assert [type(level) for level in factorize(np.array(["x", "yy"])).levels] == [str, str]
    assert factorize([datetime.date(2020, 1, 1)]).levels.tolist() == [datetime.date(2020, 1, 1)]


def test_whole_numbers_far_apart_are_sorted_and_near_ones_are_counted():
    near, far = np.array([100, -100, 100, 0], np.int8), np.array([2**62, -(2**62), 2**62, 0])
    for labels in (near, far, near.tolist()):
        found = factorize(labels)
        labels = list(labels)
        assert found.levels.tolist() == sorted(set(labels))
        assert found.levels[found.place].tolist() == labels
    unsigned = factorize(np.array([2**64 - 1, 2**64 - 3], np.uint64))
    assert unsigned.levels.tolist() == [2**64 - 3, 2**64 - 1]


def test_categories_keep_their_order_and_unused_ones_are_no_groups():
    kind = pd.CategoricalDtype(["low", "middle", "high"])
    found = factorize(pd.Series(["high", "low", "high"], dtype=kind))
    assert found.levels.tolist() == ["low", "high"]
    assert found.place.tolist() == [1, 0, 1]


def test_labels_of_several_types_stay_as_they_came():
    found = factorize(["a", 1, ("x", 2), "a"])
    assert found.levels.tolist() == ["a", 1, ("x", 2)]
    assert found.place.tolist() == [0, 1, 2, 0]


@given(st.lists(st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=3)), min_size=1))
def test_levels_of_places_are_the_labels(labels):
    found = factorize(labels)
    back = [None if place < 0 else found.levels[place] for place in found.place]
    assert back == labels
    assert len(set(found.levels.tolist())) == len(found.levels)
    assert look_up(found.levels, labels, any_kind=True) == found.place.tolist()


def test_unknown_labels_have_no_place():
    levels = factorize(["a", "b"]).levels
    assert look_up(levels, ["b", "z", None]) == [1, -1, -1]
    assert look_up(factorize([1, 2]).levels, [2.0, 3.0]) == [1, -1]
    assert look_up(factorize([1, 5]).levels, np.array([5, 0, 9, 1])) == [1, -1, -1, 0]
    assert look_up(np.array([5, 1]), np.array([5, 0, 9, 1])) == [0, -1, -1, 1]  # as they came
    assert look_up(factorize([None]).levels, np.array([5])) == [-1]
    assert look_up(factorize(np.array([np.nan])).levels, np.array([5.0])) == [-1]
    days = factorize(np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")).levels
    assert look_up(days, pd.to_datetime(pd.Series(["2020-01-02"]))) == [1]


def test_text_is_not_looked_up_among_numbers():
    with pytest.raises(TypeError, match=r"Owner: groups must be numbers, as they were in fit, got"):
        look_up(factorize([1, 2]).levels, ["1"])
    with pytest.raises(TypeError, match="groups must be text, as they were in fit, got 1"):
        look_up(factorize(["1", "2"]).levels, [1])
    assert look_up(factorize([1, 2]).levels, ["1"], any_kind=True) == [-1]
    assert look_up(factorize([1, 2]).levels, []) == []


def test_bad_labels_are_refused():
    with pytest.raises(TypeError, match="groups must be one label a row, got 'north'"):
        factorize("north")
    with pytest.raises(TypeError, match="one label a row, got 3"):
        factorize(3)
    with pytest.raises(ValueError, match=r"one label a row, got 'shape \(2, 2\)'. For groups"):
        factorize(np.zeros((2, 2)))
    with pytest.raises(
        ValueError, match=r"one column of labels, got .'a', 'b'.. For groups within"
    ):
        factorize(pd.DataFrame({"a": [1], "b": [2]}))
    with pytest.raises(TypeError, match=r"argument must be a string or a number, got {'a': 1}"):
        factorize([{"a": 1}])
    with pytest.raises(TypeError, match="argument must be a string or a number"):
        look_up(factorize(["a"]).levels, [["a"]])


@pytest.mark.parametrize(
    "values",
    [
        [1, 0, None],
        [1.0, 0.0, float("nan")],
        [True, False, None],
        [decimal.Decimal(1), decimal.Decimal(0), None],
        np.array([1.0, 0.0, np.nan], np.float32),
        np.ma.masked_array([1, 0, 9], [0, 0, 1]),
        pd.Series([1, 0, None], dtype="Int64"),
        pd.Series([True, False, None], dtype="boolean"),
        pd.Series([1, 0, None]),
        polars.Series([1, 0, None]),
        polars.Series([True, False, None]),
    ],
    ids=lambda values: f"{type(values).__module__}.{type(values).__name__}",
)
def test_numbers_are_floats_and_a_missing_cell_is_nan(values):
    assert numbers(values).dtype == np.float64
    np.testing.assert_array_equal(numbers(values), [1.0, 0.0, np.nan])


def test_a_frame_of_numbers_has_two_axes():
    wanted = [[1.0, 3.0], [np.nan, 4.0]]
    for frame in (
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [3.0, 4.0]}),
        polars.DataFrame({"a": [1, None], "b": [3.0, 4.0]}),
    ):
        np.testing.assert_array_equal(numbers(frame, most_axes=2), wanted)
        assert column_names(frame) == ["a", "b"]
    assert column_names([[1, 2]]) is None


def test_what_is_no_number_is_refused_with_its_row():
    with pytest.raises(TypeError, match=r"Owner: y must be numbers, got 'x'. See row 2 of 2."):
        numbers(pd.Series([1.0, "x"], dtype=object))
    with pytest.raises(TypeError, match=r"must be numbers, got '1'. Convert text to numbers first"):
        numbers(["1", "2"])
    with pytest.raises(TypeError, match="must be numbers, got"):
        numbers(np.array(["2020-01-01"], "datetime64[D]"))
    with pytest.raises(TypeError, match="must be numbers, got"):
        numbers(np.array([1j]))
    with pytest.raises(ValueError, match=r"y must be finite, got -inf. See row 3 of 3"):
        numbers([1.0, 2.0, -np.inf])
    with pytest.raises(ValueError, match=r"one value per row, got 'shape \(2, 1\)'"):
        numbers([[1.0], [2.0]])
    with pytest.raises(ValueError, match="rows of equal length"):
        numbers([[1.0], [2.0, 3.0]], most_axes=2)
    with pytest.raises(TypeError, match=r"got 'x'. See row 2 of 2"):
        numbers(np.array([[1.0, 2.0], [3.0, "x"]], object), most_axes=2)


def test_rows_must_match():
    assert numeric.same_length("Owner", y=[1, 2], groups=["a", "b"], standard_errors=None) == 2
    with pytest.raises(ValueError, match=r"y and groups must be of one length, got \{'y': 1, 'gro"):
        numeric.same_length("Owner", y=[1], groups=["a", "b"])
    with pytest.raises(ValueError, match="number of rows must be at least 1, got 0"):
        numeric.same_length("Owner", y=[], groups=[])


def test_frames_come_back_in_their_kind():
    columns = {"group": np.array(["a", "b"], object), "n": np.array([1, 2])}
    assert groups.to_frame(columns, None) == columns
    assert isinstance(groups.to_frame(columns, "pandas"), pd.DataFrame)
    table = groups.to_frame(columns, "polars")
    assert table["group"].to_list() == ["a", "b"]
    assert numeric.frame_kind([1], pd.Series([1])) == "pandas"
    assert numeric.frame_kind([1], polars.Series([1])) == "polars"
    assert numeric.frame_kind([1], np.ones(2)) is None


def test_docstring_examples():
    assert doctest.testmod(groups).failed == 0
