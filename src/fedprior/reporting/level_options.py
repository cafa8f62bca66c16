"""Options of several levels of groups, as `fedprior estimate` and `fedprior regress` have them."""

from collections.abc import Mapping, Sequence

from fedprior.core import check
from fedprior.reporting.outputs import require


def check_structure(owner: str, group: Sequence[str], *, nested: bool, crossed: bool) -> None:
    """Either of --nested and --crossed, and two columns of groups or more."""
    sentence = "--nested cannot be combined with --crossed. Name one of them."
    check.expect(not (nested and crossed), owner, sentence)
    option = "--nested" if nested else "--crossed"
    remedy = "Name a column for each level: --group state --group county."
    number = len(group)
    require(owner, number > 1, "--group", f"given twice or more with {option}", number, remedy)


def refuse_options(owner: str, others: Mapping[str, bool], structure: str) -> None:
    """Options that mean nothing there, or are not available."""
    for option, given in others.items():
        check.expect(not given, owner, f"{option} cannot be combined with --{structure}.")
