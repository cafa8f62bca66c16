"""A page as data: sections of text, small tables and charts, over rows that charts share.

A page knows nothing of what it shows: estimates, regressions and runs each describe theirs in a
module of their own, and `fedprior.pages.render` turns the description into one HTML file. Every
string is text and is escaped; there is no way to pass markup.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Style = Literal["number", "percent", "whole", "text"]
Tone = Literal["good", "warning", "plain"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PageColumn:
    """Values of all rows under one label; numbers, or strings with style "text".

    Numbers are kept to four digits of their spread (whole ones exactly), which is what a chart can
    show; `digits` fixes the decimals instead. Values close to those of the column with the key
    `near` are stored as differences from it, which take less room. NaN is an empty cell.
    """

    label: str
    values: np.ndarray | Sequence[str]
    style: Style = "number"
    near: str = ""
    digits: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows that charts and a table share: hovering or pinning one shows it in all of them.

    The column `name` says what a row is called; `noun` is what rows are, in the plural.
    """

    columns: dict[str, PageColumn]
    name: str = "name"
    noun: str = "groups"

    def __len__(self) -> int:
        return len(self.columns[self.name].values)


@dataclass(frozen=True)
class Number:
    """A number in text or in a small table, written as the reader's language writes it."""

    value: float
    style: Style = "number"
    digits: int = 3  # decimals; of the percentage, if it is one
    sign: bool = False


Cell = str | Number | None


@dataclass(frozen=True)
class Fact:
    """A figure that stands out: what it is, its value, and a word on it."""

    label: str
    value: Cell
    note: str = ""


@dataclass(frozen=True)
class Note:
    """Something that was assumed or checked, in plain words."""

    title: str
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Tiles:
    """A row of figures that stand out."""

    items: tuple[Fact, ...]


@dataclass(frozen=True)
class Notes:
    """A list of notes."""

    items: tuple[Note, ...]


@dataclass(frozen=True)
class Code:
    """A command or a file, as it is."""

    text: str


@dataclass(frozen=True, kw_only=True)
class SmallTable:
    """A small table: all of its rows are in the page. `folded` hides it behind its title."""

    title: str
    head: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    folded: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
    """The table of all rows, to search and sort; `order` is a key, with a minus for descending."""

    title: str
    rows: Rows
    columns: tuple[str, ...] = ()  # keys; () for all
    order: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Rows in order of `value`: dots with intervals from `lower` to `upper`, `other` hollow.

    Without `lower` and `upper`: bars from 0 to `value`, for gains and losses. Up to 60 rows are
    drawn with their names, up to 2,000 side by side, and more as bands.
    """

    title: str
    rows: Rows
    value: str
    lower: str = ""
    upper: str = ""
    other: str = ""
    line: float | None = None  # a value that all rows are compared with
    line_label: str = ""  # "population mean" by default
    text: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """A line through (x, y), with a band between `lower` and `upper` if they are given."""

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    lower: Sequence[float] | np.ndarray | None = None
    upper: Sequence[float] | np.ndarray | None = None
    dashed: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Scatter:
    """A dot for each row at (`x`, `y`), colored by `shade`, a column of numbers or of words.

    `margin` is a curve of y beside the dots: the density of a population at values of y.
    """

    title: str
    rows: Rows
    x: str
    y: str
    shade: str = ""
    diagonal: bool = False  # the line y = x
    line: float | None = None  # a line across at this y
    line_label: str = ""  # "population mean" by default
    margin: Curve | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """Several curves in one pair of axes: scores over rounds, calibration (with `diagonal`)."""

    title: str
    curves: tuple[Curve, ...]
    x_label: str
    y_label: str
    style: Style = "number"  # of y
    diagonal: bool = False
    dots: bool = False
    text: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Distributions:
    """A histogram for each of the columns, one above the other on one scale, with their means."""

    title: str
    rows: Rows
    columns: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """Bars of parts that add up: a budget (spent, left), classes. `parts` holds a value per bar."""

    title: str
    labels: tuple[str, ...]
    parts: dict[str, tuple[float, ...]]
    rest: str = ""  # the part that is drawn in grey, such as what is left
    style: Style = "number"
    text: str = ""


@dataclass(frozen=True)
class Party:
    """A box in a diagram of who sees what."""

    name: str
    text: str
    trusted: bool


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Boxes from left to right with what passes between them: `passes` has one fewer entry."""

    title: str
    parties: tuple[Party, ...]
    passes: tuple[str, ...]
    text: str = ""


Chart = Intervals | Scatter | Curves | Distributions | Stacked
Block = Text | Tiles | Notes | Code | SmallTable | Listing | Flow | Chart


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; charts stand side by side where there is room."""

    title: str
    blocks: tuple[Block, ...]
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole page: `lead` is the sentence that matters, which comes first.

    `about` names what the answer is of (a file, a run). `folded` are small tables at the end, such
    as settings and versions. `command` is the command that made the answer, and `command_text`
    stands above it and says what running it again does.
    """

    title: str
    lead: str
    about: str = ""
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = ()
    folded: tuple[SmallTable, ...] = field(default=())
    command: str = ""
    command_text: str = "This command gives the same answer again:"
