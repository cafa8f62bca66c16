"""Tables of levels of groups, as `fedprior estimate` and `fedprior regress` print them."""

import math
from collections.abc import Iterator

import numpy as np
from rich.table import Table

from fedprior.cli.columns import named_table
from fedprior.data.aggregate import Groups
from fedprior.estimation.levels.result import Levels, Values
from fedprior.estimation.result import Estimates
from fedprior.reporting.question import Question

_FORMS = {"n": ",.0f", "weight": ".3f"}
_SHOWN = 5  # highest and lowest groups of a level


def level_tables(question: Question, groups: Groups, estimates: Estimates) -> Iterator[Table]:
    """How much each level differs, and the groups of each level above the finest."""
    levels = estimates.levels
    assert levels is not None
    yield deviations_table(levels)
    keys = groups.keys()
    for number, part in enumerate(levels.parts[: -1 if levels.chain else None]):
        above = levels.parts[: number + 1] if levels.chain else (part,)
        places = [question.group.index(each.name) for each in above]
        names = [" / ".join(keys[group][place] for place in places) for group in part.example]
        yield values_table(part.name, names, part.values, estimates.size_name)


def deviations_table(levels: Levels) -> Table:
    """Standard deviations of the effects of each level, and of the noise."""
    scale = {"binomial": ", in logits", "poisson": ", in logarithms"}.get(levels.family, "")
    title = f"Differences between groups{scale}"
    table = named_table(title, "level", "groups", "sd", "error", "share of variance")
    parts = [(part.name, f"{part.number:,}", part.deviation, part.error) for part in levels.parts]
    if levels.noise is not None:
        parts.append(("noise of a row", "", levels.noise, levels.noise_error))
    total = sum(deviation**2 for *_, deviation, _ in parts)
    for name, number, deviation, error in parts:
        share = f"{100 * deviation**2 / total:.1f}%" if total > 0 else ""
        doubt = f"{error:.3g}" if math.isfinite(error) else ""
        table.add_row(name, number, f"{deviation:.4g}", doubt, share)
    return table


def values_table(name: str, labels: list[str], values: Values, size_name: str) -> Table:
    """The groups of a level, or the highest and the lowest if there are many."""
    order = np.argsort(-values.personal, kind="stable")
    several = len(order) > 2 * _SHOWN
    title = f"Groups {name!r}" + ", the highest and the lowest" * several
    shown = np.concatenate([order[:_SHOWN], order[-_SHOWN:]]) if several else order
    columns = {size_name: values.n, "raw": values.raw, "personal": values.personal}
    columns |= {"weight": values.weight, "lower": values.lower, "upper": values.upper}
    table = named_table(title, "group", *columns)
    for place in shown:
        cells = (format(each[place], _FORMS.get(key, ",.4g")) for key, each in columns.items())
        table.add_row(labels[place], *cells)
    return table
