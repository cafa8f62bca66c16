"""Tables of names and numbers on terminals of any width: a number is never cut."""

from collections.abc import Iterator
from copy import copy

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Column, Table

_ENDLESS = 10_000  # columns
_NAME = 8  # columns that a long name has at least


def keep_numbers(table: Table, width: int) -> Group:
    """The table with columns of numbers as wide as they need in `width`: long names give way.

    If that is not enough, there is one space between columns instead of two, and then the columns
    are those of several tables, one below the other, each with the names.
    """
    if (natural := natural_width(table)) <= width:
        return Group(table)
    names, *numbers = (_width(column) for column in table.columns)
    least = min(_NAME, names)
    edges = natural - names - sum(numbers)
    if least + sum(numbers) + edges > width:
        table.padding, edges = 0, len(numbers) + 2
    room = width - sum(numbers) - edges
    if room >= least:
        table.columns[0].min_width, table.columns[0].max_width = least, room
        return Group(table)
    return Group(*_split(table, width, numbers, names))


def named_table(title: str, *names: str) -> Table:
    """A table of names, which may be cut, and numbers, all columns in 80 characters if possible."""
    table = Table(title=f"\n{title}", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    table.collapse_padding, table.pad_edge = True, False
    table.add_column(names[0], no_wrap=True, overflow="ellipsis", min_width=_NAME)
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def lines_of_facts() -> Table:
    """A table of facts, a line each: its name, and what is said of it."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True, style="bold")
    lines.add_column()
    return lines


def natural_width(table: Table) -> int:
    """The columns of a terminal that the table takes if nothing gives way."""
    endless = Console(width=_ENDLESS)
    return Measurement.get(endless, endless.options, table).maximum


def _split(table: Table, width: int, numbers: list[int], names: int) -> Iterator[Table]:
    """Tables of as many columns each as fit, the title above the first."""
    room = min(_NAME, names)
    parts: list[list[int]] = [[]]
    for place, own in enumerate(numbers):
        if parts[-1] and room + sum(numbers[each] + 1 for each in parts[-1]) + own + 3 > width:
            parts.append([])
        parts[-1].append(place)
    # One width of the names in all parts, so that rows can be found again.
    room = min(width - 2 - sum(numbers[each] + 1 for each in part) for part in parts)
    for number, part in enumerate(parts):
        shown = copy(table)
        shown.columns = [copy(table.columns[0]), *(copy(table.columns[1 + each]) for each in part)]
        shown.columns[0].max_width = shown.columns[0].min_width = max(1, min(names, room))
        if number:
            shown.title = None
        yield shown


def _width(column: Column) -> int:
    lines = (line for cell in (column.header, *column.cells) for line in str(cell).split("\n"))
    return max(len(line) for line in lines)
