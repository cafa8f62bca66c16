"""Tables of levels of groups, as `fedprior estimate` and `fedprior regress` print them."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
from rich.table import Table

from fedprior.cli.columns import named_table
from fedprior.estimation.levels.result import Levels, Values

_FORMS = {"n": ",.0f", "weight": ".3f"}
_SHOWN = 5  # highest and lowest groups of a level


def level_tables(
    levels: Levels, keys: Mapping[str, np.ndarray], size_name: str, *, finest: bool = True
) -> Iterator[Table]:
    """How much each level differs, and the groups of each level; `keys` are labels by column.

    Without `finest`, a chain of levels has no table of its finest groups.
    """
    yield _deviations(levels)
    for number, part in enumerate(
        levels.parts if finest or not levels.chain else levels.parts[:-1]
    ):
        above = levels.parts[: number + 1] if levels.chain else (part,)
        columns = [keys[each.name][part.example] for each in above]
        names = [" / ".join(map(str, row)) for row in zip(*columns, strict=True)]
        yield _values(part.name, names, part.values, size_name)


def _deviations(levels: Levels) -> Table:
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


def _values(name: str, labels: list[str], values: Values, size_name: str) -> Table:
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
