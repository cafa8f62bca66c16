"""The comparison in rows, in words, as a table and as a file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprior.experiments.compare import markdown_table
from fedprior.experiments.comparison import FORMAT, Part
from fedprior.experiments.comparison_settings import GRID, Setting
from fedprior.experiments.optimizers import PUBLISHED
from fedprior.reporting.summary import deciles

OURS = "adamap"
_LEVEL = 0.95  # of intervals


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method in one setting: percent, mean and standard deviation over seeds.

    `worst_decile` is the mean of the clients' lowest tenth, `by_seed` the mean over clients,
    `options` what was fixed, with what the `optimizer` for all methods sets, `valid_by_rate` what
    the rate was chosen by. `gap` is the mean of `reference` minus this one's, paired by seed, with
    a 95% interval: AdaMAP's, or where that was not run that of the highest mean.
    """

    method: str
    setting: str
    mean: float
    sd: float | None
    seeds: int
    worst_decile: float
    paper_says: float | None
    paper_says_sd: float | None
    tuned: Mapping[str, float]
    options: Mapping[str, Any]
    at_edge: bool
    reference: str
    gap: float
    gap_low: float | None
    gap_high: float | None
    by_seed: Sequence[float]
    valid_by_rate: Sequence[float | None]
    optimizer: str = PUBLISHED.name


def rows(parts: Sequence[Part], settings: Sequence[Setting]) -> list[Row]:
    """The parts by setting, best first."""
    made = []
    for setting in settings:
        own = [part for part in parts if part.setting == setting.name]
        own.sort(key=lambda part: -float(part.means.mean()))
        ours = [part for part in own if part.method == OURS]
        made += [_row(part, (ours or own)[0], setting) for part in own]
    return made


def _row(part: Part, reference: Part, setting: Setting) -> Row:
    says = setting.paper_says.get(part.method)
    ahead, low, high = interval(100 * (reference.means - part.means))
    return Row(
        method=part.method,
        setting=setting.name,
        mean=100 * float(part.means.mean()),
        sd=100 * float(part.means.std(ddof=1)) if len(part.seeds) > 1 else None,
        seeds=len(part.seeds),
        worst_decile=100 * float(np.mean([deciles(own)[0] for own in part.clients])),
        paper_says=None if says is None else says[0],
        paper_says_sd=None if says is None else says[1],
        tuned={"rate": part.rate},
        options=part.options,
        at_edge=len(part.grid) > 1 and part.rate in (min(part.grid), max(part.grid)),
        reference=reference.method,
        gap=ahead,
        gap_low=low,
        gap_high=high,
        by_seed=[round(100 * float(mean), 4) for mean in part.means],
        valid_by_rate=[_percent(scores) for scores in part.valid],
        optimizer=part.optimizer,
    )


def _percent(scores: Sequence[float | None]) -> float | None:
    """The mean over seeds; None where a seed has no score."""
    known = [score for score in scores if score is not None]
    return round(100 * float(np.mean(known)), 4) if len(known) == len(scores) else None


def interval(differences: np.ndarray) -> tuple[float, float | None, float | None]:
    """Mean of paired differences and its 95% interval by Student's t; none from one alone."""
    from scipy.stats import t

    mean, number = float(differences.mean()), len(differences)
    if number < 2:
        return mean, None, None
    error = float(differences.std(ddof=1)) / number**0.5
    half = float(t.ppf((1 + _LEVEL) / 2, number - 1)) * error
    return mean, mean - half, mean + half


COLUMNS = ("method", "accuracy", "worst decile", "printed", "rate", "gap")


def columns(shown_rows: Sequence[Row]) -> list[str]:
    """Those of COLUMNS that say something about the rows."""
    printed = any(row.paper_says is not None for row in shown_rows)
    return [name for name in COLUMNS if printed or name != "printed"]


def cells(row: Row, named: Sequence[str]) -> list[str]:
    """The row in the columns `named`."""
    spread = "" if row.sd is None else f" ± {row.sd:.2f}"
    says = "" if row.paper_says is None else f"{row.paper_says:.2f} ± {row.paper_says_sd:.2f}"
    shown = {
        "method": row.method,
        "accuracy": f"{row.mean:.2f}{spread}",
        "worst decile": f"{row.worst_decile:.2f}",
        "printed": says,
        "rate": f"{row.tuned['rate']:g}" + "*" * row.at_edge,
        "gap": gap(row),
    }
    return [shown[name] for name in named]


def gap(row: Row) -> str:
    """The gap with its interval; empty for the method that it is measured from."""
    if row.method == row.reference:
        return ""
    shown = "" if row.gap_low is None else f" [{row.gap_low:.2f}, {row.gap_high:.2f}]"
    return f"{row.gap:.2f}{shown}"


def markdown(
    shown_rows: Sequence[Row], settings: Sequence[Setting], *, heading: str = "###"
) -> str:
    """One table per setting, under its title as a `heading`."""
    parts = []
    for setting in settings:
        own = [row for row in shown_rows if row.setting == setting.name]
        if not own:
            continue
        named = columns(own)
        table = markdown_table(named, *(cells(row, named) for row in own))
        parts.append(f"{heading} {setting.title}\n\n{table}")
    return "\n\n".join(parts)


def remarks(shown_rows: Sequence[Row], settings: Sequence[Setting]) -> list[str]:
    """What agrees with the paper and what does not, in plain words."""
    lines = []
    for setting in settings:
        own = {row.method: row for row in shown_rows if row.setting == setting.name}
        if own:
            lines += [*_against_paper(setting, own), *_standing(setting, own)]
    if any(row.at_edge for row in shown_rows):
        lines.append(
            "A star: the rate was chosen at an end of the grid, so that a wider one may do better."
        )
    return lines


def _against_paper(setting: Setting, own: Mapping[str, Row]) -> list[str]:
    printed = {name: row for name, row in own.items() if row.paper_says is not None}
    if not printed:
        return []
    words = []
    for name, row in printed.items():
        assert row.paper_says is not None
        gap = row.mean - row.paper_says
        words.append(f"{name} {gap:+.1f}")
    lines = [f"{setting.title}: ours minus the printed figure, in points: {', '.join(words)}."]
    if len(printed) < 2:
        return lines
    order = sorted(printed.values(), key=lambda row: -(row.paper_says or 0))
    first, ours = order[0], max(printed.values(), key=lambda row: row.mean)
    if first.method == ours.method:
        lines.append(f"As printed, {first.method} leads the methods of the paper.")
    else:
        lines.append(
            f"The paper has {first.method} ahead of its methods; here {ours.method} is, by "
            f"{ours.mean - own[first.method].mean:.2f} points."
        )
    return lines


def _standing(setting: Setting, own: Mapping[str, Row]) -> list[str]:
    """Where our own method stands."""
    others = [row for name, row in own.items() if name != OURS]
    if OURS not in own or not others:
        return []
    if any(row.gap_low is None for row in others):
        count = sum(row.gap > 0 for row in others)
        return [f"{setting.title}: {OURS} is ahead of {count} of {len(others)} others (one seed)."]
    ahead = [row.method for row in others if (row.gap_low or 0) > 0]
    behind = [row.method for row in others if (row.gap_high or 0) < 0]
    even = [row.method for row in others if row.method not in (*ahead, *behind)]
    words = [f"significantly ahead of {len(ahead)} of {len(others)} others"]
    words += [f"not told apart from {', '.join(even)}"] if even else []
    words += [f"behind {', '.join(behind)}"] if behind else []
    return [f"{setting.title}: {OURS} has {own[OURS].mean:.2f}%, {'; '.join(words)}."]


def to_json(
    shown_rows: Sequence[Row], settings: Sequence[Setting], parts: Sequence[Part], **facts: Any
) -> dict[str, Any]:
    """Rows, words, and what they were made with."""
    made_with = [dict(part.made_with) for part in parts]
    made_with = [each for place, each in enumerate(made_with) if each not in made_with[:place]]
    optimizer = settings[0].optimizer
    return {
        "format": FORMAT,
        **facts,
        "optimizer": {"name": optimizer.name, **optimizer.options},
        "grid": list(parts[0].grid) if parts else list(GRID),
        "seeds": list(parts[0].seeds) if parts else [],
        "made_with": made_with,
        "rows": [asdict(row) for row in shown_rows],
        "remarks": remarks(shown_rows, settings),
    }
