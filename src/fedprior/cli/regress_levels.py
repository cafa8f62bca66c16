"""What `fedprior regress --nested` and `--crossed` print."""

from rich.table import Table

from fedprior.cli.columns import lines_of_facts
from fedprior.cli.levels import level_tables
from fedprior.cli.regressions import coefficients_table
from fedprior.cli.screen import Screen, rows_read
from fedprior.reporting.regress_levels import LevelsAnswer


def show(found: LevelsAnswer) -> None:
    """Print coefficients, deviations, and the values of every level."""
    screen, model, levels = Screen(), found.model, found.model.levels_
    screen.facts(_head(found))
    if levels.coefficients is not None:
        screen.table(coefficients_table(levels.coefficients, title="Coefficients"))
    for table in level_tables(levels, model.keys_, model.estimates_.size_name):
        screen.table(table)
    screen.notes(model.notes_)


def _head(found: LevelsAnswer) -> Table:
    lines = lines_of_facts()
    model, levels = found.model, found.model.levels_
    rows = rows_read(found.num_rows, model.num_dropped_)
    lines.add_row("groups", f"{len(model.estimates_.n):,}, {rows}")
    classes = "" if found.classes is None else f": {found.classes[1]} against {found.classes[0]}"
    lines.add_row("family", f"{levels.family}{classes}")
    way = "REML" if levels.criterion == "reml" else "ML"
    way += "" if levels.family == "gaussian" else ", Laplace"
    lines.add_row("groups are", f"{levels.structure} ({way})")
    word = "restricted " if levels.criterion == "reml" else ""
    lines.add_row(f"{word}log-likelihood", f"{levels.log_likelihood:.3f}")
    mean = levels.whole
    limits = f"{mean.lower[0]:.4g} to {mean.upper[0]:.4g}"
    lines.add_row("at the mean row", f"{mean.personal[0]:.4g} ({limits})")
    return lines
