"""Which optimizer all methods get: the one of the highest mean validation score over methods.

On seeds that no table uses, in two settings, for methods of five families; ours is not among them.
Each method has the best of its rates under each optimizer, as in the tables. Test samples are not
read.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.data.federation import Federation
from fedprior.engines.sweep import sweep
from fedprior.exchange.facts import Facts
from fedprior.experiments.compare import markdown_table
from fedprior.experiments.comparison import Progress, at_a_time
from fedprior.experiments.comparison_settings import TABLE1, Comparison, Setting
from fedprior.experiments.optimizers import EQUAL, NO_CLIP
from fedprior.learning.catalog import method
from fedprior.reporting.training import Study

GRID = {"momentum": (0.0, 0.9, 0.95), "clip": (NO_CLIP, 1.0), "horizon": (1.0, 30.0)}
RATES = (0.05, 0.1, 0.2)
CHOICE = Comparison(
    settings=tuple(each for each in TABLE1 if each.name in ("mnist", "writers-033")),
    methods=("fedavg-fine-tuning", "adaped", "ditto", "apfl", "fedrep"),
    seeds=3,
    first=100,
)


@dataclass(frozen=True)
class Trial:
    """One method in one setting: the best validation score of its rates under each optimizer."""

    setting: str
    method: str
    valid: tuple[float, ...]  # in the order of `optimizers`


@dataclass(frozen=True, kw_only=True)
class OptimizerRow:
    """One optimizer: its mean validation score over methods and settings, in percent."""

    momentum: float
    clip: float | None
    horizon: float
    valid: float
    by_method: Mapping[str, float]
    chosen: bool
    frozen: bool


def optimizers() -> list[dict[str, float]]:
    """Every optimizer of the grid, the simplest first."""
    return [dict(zip(GRID, each, strict=True)) for each in itertools.product(*GRID.values())]


def try_all(
    settings: Sequence[Setting],
    methods: Sequence[str],
    *,
    seeds: Sequence[int],
    rates: Sequence[float],
    folder: Path,
    root: Path | None = None,
    workers: int = 1,
    progress: Callable[[str, str], Progress] | None = None,
) -> list[Trial]:
    """Every method in every setting; each is a sweep in `folder`, where finished ones are read."""
    trials = []
    for setting in settings:
        drawn = {seed: setting.federation(seed, root) for seed in seeds}

        def one(name: str, told: Progress, setting: Setting = setting, drawn: Any = drawn) -> Trial:
            place = folder / setting.name / f"{name}.sweep"
            return _try(setting, name, drawn, rates, place, told)

        told = partial(progress, setting.name) if progress else None
        trials += at_a_time(methods, one, workers, told)
    return trials


def _try(
    setting: Setting,
    name: str,
    drawn: Mapping[int, Federation],
    rates: Sequence[float],
    folder: Path,
    progress: Progress,
) -> Trial:
    seeds = list(drawn)
    study = Study(setting.config, Facts.of(drawn[seeds[0]]))
    own, known = setting.method_options(name), method(name).options()
    over = {option: values for option, values in GRID.items() if option in known}
    training = study.training(name, own, rate=rates[0])
    swept = sweep(
        lambda rate, **given: study.training(name, {**own, **given}, rate=rate).algorithm,
        drawn.__getitem__,
        over={**over, "rate": [float(rate) for rate in rates]},
        seeds=seeds,
        rounds=training.rounds,
        cohort=training.cohort,
        judges=study.veterans,
        test=False,
        folder=folder,
        identity=[setting.name, name, own, setting.rounds, setting.drawn_from],
        progress=progress,
    )
    means = np.nanmean(swept.valid[..., : study.veterans], axis=2).mean(axis=1)
    found = []
    for optimizer in optimizers():
        here = [
            all(point[option] == optimizer[option] for option in over) for point in swept.points
        ]
        found.append(float(means[np.array(here)].max()))
    return Trial(setting.name, name, tuple(found))


def rows(trials: Sequence[Trial]) -> list[OptimizerRow]:
    """The optimizers, best first; of equals the simplest."""
    scores = 100 * np.array([trial.valid for trial in trials])
    means = np.round(scores.mean(axis=0), 6)
    best = int(np.argmax(means))
    made = [
        OptimizerRow(
            momentum=each["momentum"],
            clip=None if each["clip"] == NO_CLIP else each["clip"],
            horizon=each["horizon"],
            valid=float(means[place]),
            by_method={
                f"{trial.setting} {trial.method}": round(float(score), 4)
                for trial, score in zip(trials, scores[:, place], strict=True)
            },
            chosen=place == best,
            frozen=each == dict(EQUAL.options),
        )
        for place, each in enumerate(optimizers())
    ]
    return sorted(made, key=lambda row: -row.valid)


def table(rows: Sequence[OptimizerRow]) -> list[list[str]]:
    """The rows in words, under their names."""
    lines = [["momentum", "clip", "horizon", "valid", "chosen"]]
    for row in rows:
        clip = "none" if row.clip is None else f"{row.clip:g}"
        cells = [f"{row.momentum:g}", clip, f"{row.horizon:g}", f"{row.valid:.3f}"]
        lines.append([*cells, "yes" if row.chosen else ""])
    return lines


def markdown(rows: Sequence[OptimizerRow]) -> str:
    """The table of the rows, and what follows from it."""
    return "\n\n".join([markdown_table(*table(rows)), *remarks(rows)])


def remarks(rows: Sequence[OptimizerRow]) -> list[str]:
    """Whether the choice is the optimizer that `--equal` gives."""
    best = next(row for row in rows if row.chosen)
    frozen = [
        f"; that of --equal has {row.valid:.3f}%: {_named(row)}" for row in rows if row.frozen
    ]
    words = f"Highest: {_named(best)}, with {best.valid:.3f}% on average"
    return [f"{words}, the optimizer of --equal." if best.frozen else f"{words}{''.join(frozen)}."]


def _named(row: OptimizerRow) -> str:
    clip = "no clip" if row.clip is None else f"clip {row.clip:g}"
    return f"momentum {row.momentum:g}, {clip}, horizon {row.horizon:g}"
