"""What `fedprior estimate` and `fedprior regress` print: facts, sentences, tables, notes."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from fedprior.cli.columns import keep_numbers


class Screen:
    """Standard output as a terminal of any width shows it; names stand as they are."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=False, emoji=False)

    def facts(self, lines: Table) -> None:
        """Print facts, a line each."""
        self.console.print(lines)

    def table(self, table: Table) -> None:
        """Print a table of names and numbers, in which no number is cut."""
        self.console.print(keep_numbers(table, self.console.width))

    def say(self, sentence: str) -> None:
        """Print a sentence in one line, however long."""
        self.console.print(sentence, soft_wrap=True)

    def notes(self, notes: Iterable[str]) -> None:
        """Print each note in a line of its own."""
        for note in notes:
            self.say(f"Note: {note}")


def rows_read(rows: int, dropped: int) -> str:
    """How many rows there are, and how many were dropped, in words."""
    return f"{rows:,} rows" + (f" ({dropped:,} dropped)" if dropped else "")
