"""Small bars in tables: intervals on one scale, where a terminal has room for them.

Numbers come first: a bar is added to a table that leaves at least `LEAST` columns of the terminal
free, and never to what is piped or printed to a dumb terminal. Bars have no color.
"""

import codecs
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedprior.cli.columns import natural_width

LEAST, MOST = 14, 40  # columns of a bar
_GAP = 4  # columns between a table and its bars
_PLAIN = {"±": "+-", "…": "...", "²": "2", "≤": "<=", "≥": ">="}
_HANDLER = "fedprior.plain"


class Bar(NamedTuple):
    """An interval with its middle, and another value beside it."""

    lower: float
    middle: float
    upper: float
    other: float = math.nan


class Marks(NamedTuple):
    """What bars are made of."""

    line: str
    left: str
    right: str
    middle: str
    other: str
    zero: str


UNICODE = Marks("─", "├", "┤", "●", "○", "┊")
ASCII = Marks("-", "|", "|", "*", "o", ":")


def marks(console: Console) -> Marks | None:
    """What the console can show; None where bars are not wanted."""
    if not console.is_terminal or console.is_dumb_terminal:
        return None
    try:
        "".join(UNICODE).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def add_bars(
    table: Table,
    console: Console,
    bars: Sequence[Bar | None],
    *,
    scale: Sequence[Bar] = (),
    names: tuple[str, str] = ("", ""),
    about_zero: bool = False,
) -> Table:
    """The table with a column of bars, a bar per row, if the console has room for it.

    All bars have one scale, that of `scale` where several tables share it. Its ends are the title
    of the column, below the `names` of the middle and of the other value. `about_zero` gives each
    bar a scale of its own, with 0 in the middle: for quantities of different units.
    """
    shown, room = marks(console), console.width - natural_width(table) - _GAP
    ends = _ends(scale or bars)
    if shown is None or room < LEAST or ends is None:
        return table
    width = min(room, MOST)
    title = "0".center(width) if about_zero else _title(*ends, width)
    pairs = zip((shown.middle, shown.other), names, strict=True)
    key = "  ".join(f"{mark} {name}" for mark, name in pairs if name)
    head = f"{key}\n{title}" if key and len(key) <= width else title
    table.add_column(Text(head), width=width, no_wrap=True)
    cells = [
        "" if bar is None else draw(bar, *(_own(bar) if about_zero else ends), width, shown)
        for bar in bars
    ]
    # The cells of rows that are there already.
    table.columns[-1]._cells[:] = [Text(cell) for cell in cells]
    return table


def draw(bar: Bar, low: float, high: float, width: int, shown: Marks) -> str:
    """The bar in `width` characters from `low` to `high`; what lies outside is at the edge.

    >>> draw(Bar(2, 5, 8, other=9), 0, 10, 21, ASCII)
    '    |-----*-----| o  '
    """
    cells = [" "] * width
    span = high - low or 1.0

    def place(value: float) -> int:
        return round(min(max((value - low) / span, 0.0), 1.0) * (width - 1))

    if low < 0 < high and -low == high:
        cells[place(0.0)] = shown.zero
    if math.isfinite(bar.lower) and math.isfinite(bar.upper):
        first, last = place(bar.lower), place(bar.upper)
        cells[first : last + 1] = shown.line * (last + 1 - first)
        cells[first], cells[last] = shown.left, shown.right
    if math.isfinite(bar.other):
        cells[place(bar.other)] = shown.other
    if math.isfinite(bar.middle):
        cells[place(bar.middle)] = shown.middle
    return "".join(cells)


def _ends(bars: Sequence[Bar | None]) -> tuple[float, float] | None:
    """The lowest and the highest value of all bars; None without any."""
    values = [value for bar in bars if bar is not None for value in bar if math.isfinite(value)]
    return (min(values), max(values)) if values else None


def _own(bar: Bar) -> tuple[float, float]:
    reach = max((abs(value) for value in bar if math.isfinite(value)), default=1.0) or 1.0
    return -reach, reach


def _title(low: float, high: float, width: int) -> str:
    first, last = f"{low:.3g}", f"{high:.3g}"
    return first + last.rjust(width - len(first))


def print_anywhere(*streams: Any) -> None:
    """Let each stream write what its encoding lacks in plain letters, instead of failing."""
    codecs.register_error(_HANDLER, _plain)
    for stream in streams:
        if hasattr(stream, "reconfigure") and stream.errors == "strict":
            stream.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, "?") for letter in letters), error.end
