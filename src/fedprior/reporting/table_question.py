"""What a user of `fedprior estimate` or `fedprior regress` asks for: what both have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedprior.core import check
from fedprior.data import standard_input
from fedprior.reporting.outputs import require


@dataclass(frozen=True, kw_only=True)
class TableQuestion:
    """Options of both commands, one field each; without `file`, an embedded table is meant.

    `missing` are the words for missing, in place of the usual ones.
    """

    owner: ClassVar[str]
    file: str | None = None
    group: tuple[str, ...] = ()
    nested: bool = False
    crossed: bool = False
    level: float = 0.95
    out: Path | None = None
    plot: Path | None = None
    report: Path | None = None
    strict: bool = False
    missing: tuple[str, ...] | None = None
    force: bool = False

    @property
    def source(self) -> str:
        """The file as messages have it."""
        return standard_input.shown(self.file or self.owner)

    @property
    def structure(self) -> str | None:
        """How several columns of groups are related: nested, crossed, or None for one key."""
        return "nested" if self.nested else "crossed" if self.crossed else None

    def _check_structure(self) -> None:
        """Either of --nested and --crossed, and two columns of groups or more."""
        sentence = "--nested cannot be combined with --crossed. Name one of them."
        check.expect(not (self.nested and self.crossed), self.owner, sentence)
        rule = f"given twice or more with --{self.structure}"
        remedy = "Name a column for each level: --group state --group county."
        number = len(self.group)
        require(self.owner, number > 1, "--group", rule, number, remedy)

    def _refuse(self, others: Mapping[str, bool]) -> None:
        """Options that mean nothing with several levels of groups, or are not available."""
        for option, given in others.items():
            sentence = f"{option} cannot be combined with --{self.structure}."
            check.expect(not given, self.owner, sentence)
