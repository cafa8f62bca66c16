"""What `fedprior regress --nested` and `--crossed` print."""

from rich.console import Console
from rich.table import Table

from fedprior.cli.columns import keep_numbers, lines_of_facts
from fedprior.cli.levels import deviations_table, values_table
from fedprior.cli.regressions import coefficients_table
from fedprior.reporting.regress_levels import LevelsAnswer


def show(found: LevelsAnswer) -> None:
    """Print coefficients, deviations, and the values of every level."""
    console = Console(highlight=False, markup=False, emoji=False)  # names stand as they are
    model, levels = found.model, found.model.levels_
    console.print(_head(found))
    if levels.coefficients is not None:
        table = coefficients_table(levels.coefficients, title="Coefficients")
        console.print(keep_numbers(table, console.width))
    console.print(keep_numbers(deviations_table(levels), console.width))
    for number, part in enumerate(levels.parts):
        above = levels.parts[: number + 1] if levels.chain else (part,)
        columns = [model.keys_[each.name][part.example] for each in above]
        names = [" / ".join(map(str, row)) for row in zip(*columns, strict=True)]
        table = values_table(part.name, names, part.values, model.estimates_.size_name)
        console.print(keep_numbers(table, console.width))
    for note in model.notes_:
        console.print(f"Note: {note}", soft_wrap=True)


def _head(found: LevelsAnswer) -> Table:
    lines = lines_of_facts()
    model, levels = found.model, found.model.levels_
    dropped = f" ({model.num_dropped_:,} dropped)" if model.num_dropped_ else ""
    lines.add_row("groups", f"{len(model.estimates_.n):,}, {found.num_rows:,} rows{dropped}")
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
