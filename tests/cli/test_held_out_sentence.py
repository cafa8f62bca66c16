"""The sentence on held-out prediction says no more than its intervals do."""

import math

import pytest

from fedprior.cli.regress_answer import _held_out
from fedprior.regression.face.holdout import HeldOut


def said(separate: tuple[float, float], pooled: tuple[float, float]) -> str:
    held = HeldOut(
        metric="rmse",
        personal=1.0,
        separate=1.0,
        pooled=1.0,
        num_rows=200,
        num_groups=80,
        interval_over_separate=separate,
        interval_over_pooled=pooled,
    )
    return held.sentence(3)


ROWS = ", on 200 held-out rows of 80 groups (seed 3)."
NOT_KNOWN = (float("nan"), float("nan"))


@pytest.mark.parametrize(
    ("separate", "pooled", "wanted"),
    [
        ((1, 5), (2, 9), "Personal fits predict better than separate ones and than a pooled one"),
        (
            (1, 5),
            (-9, -2),
            "Personal fits predict better than separate ones and worse than a pooled one",
        ),
        (
            (1, 5),
            (-1, 1),
            "Personal fits predict better than separate ones; there is no clear difference from a "
            "pooled one",
        ),
        (
            (-1, 1),
            (-1, 1),
            "There is no clear difference of personal fits from separate ones and a pooled one",
        ),
        (
            NOT_KNOWN,
            (-3, -1),
            "Personal fits predict worse than a pooled one; there is no clear difference from "
            "separate ones",
        ),
    ],
)
def test_only_what_is_clear_is_said(
    separate: tuple[float, float], pooled: tuple[float, float], wanted: str
) -> None:
    assert said(separate, pooled) == wanted + ROWS


def test_a_comparison_without_errors_has_no_gain() -> None:
    held = HeldOut(
        metric="deviance", personal=0.1, separate=0.0, pooled=0.0, num_rows=8, num_groups=4
    )
    assert math.isnan(held.gain_over_separate)
    assert math.isnan(held.gain_over_pooled)
    assert held.sentence(0).startswith("There is no clear difference")
    assert "nan" not in "".join(str(each) for each in _held_out(held).columns[2]._cells)


def test_no_gain_has_no_sign() -> None:
    held = HeldOut(
        metric="rmse", personal=1.0, separate=1.0, pooled=0.99999, num_rows=8, num_groups=4,
        interval_over_pooled=(-0.04, 0.04),
    )  # fmt: skip
    table = _held_out(held)
    cells = [str(cell) for column in table.columns[2:] for cell in column._cells]
    assert cells.count("0.0%") == 2
    assert "0.0 to 0.0%" in cells
