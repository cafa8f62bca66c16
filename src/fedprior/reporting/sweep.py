"""A sweep of a configuration: every method over the same values and seeds, into one folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.files import write_atomically
from fedprior.data.federation import Federation
from fedprior.engines.sweep import Sweep, sweep
from fedprior.learning.budget import rates
from fedprior.learning.catalog import method
from fedprior.learning.method import Method
from fedprior.reporting import setting as settings
from fedprior.reporting.config import Config, as_tables
from fedprior.reporting.summary import write_table

FORMAT = 1
RATE = ("rate", "lr")  # names of one rate for every model that a method trains
Values = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class SweepFolder:
    """sweep.json, trainings.parquet, and checkpoint/METHOD with the points that are finished."""

    path: Path

    @property
    def summary(self) -> Path:
        return self.path / "sweep.json"

    @property
    def trainings(self) -> Path:
        return self.path / "trainings.parquet"

    def part(self, name: str) -> Path:
        """Where a method's finished points are kept."""
        return self.path / "checkpoint" / name


def read_over(words: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """NAME=VALUE,VALUE,... by name; numbers as numbers, whole ones with a point as fractions.

    >>> read_over(["lr=0.05,0.1", "local_steps=5"])
    {'lr': (0.05, 0.1), 'local_steps': (5,)}
    """
    found: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        rule = "of the form NAME=VALUE,VALUE"
        check.require(bool(equals and name and values), "sweep", "--over", rule, word)
        check.require(name not in found, "sweep", "--over", "once for each name", name)
        found[name] = tuple(_value(value.strip()) for value in values.split(","))
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def sweep_methods(
    config: Config,
    folder: SweepFolder,
    *,
    over: Values,
    progress: Callable[[str], Callable[[float, int], Any]] | None = None,
) -> dict[str, Any]:
    """Every method of the configuration over `over`; what is finished is read back.

    Returns what sweep.json holds: a row a method, with the chosen values and its test scores.
    """
    if config.privacy.epsilon:
        raise check.PrivacyError(
            "sweep: privacy.epsilon must be 0, got a budget. Every training of a sweep would add "
            "to what is spent, and the choice looks at scores that no noise covers."
        )
    seeds = range(config.seed, config.seed + config.seeds)
    federations = cache(lambda seed: settings.federation(config.data, seed=seed)[0])
    found = {
        name: _sweep(config, name, federations, over, seeds, folder, progress)
        for name in config.methods
    }
    _write_trainings(found, folder.trainings)
    summary = {
        "format": FORMAT,
        "sweep": str(folder.path),
        "over": {name: list(values) for name, values in over.items()},
        "seeds": list(seeds),
        "methods": {name: _row(each) for name, each in found.items()},
    }
    write_atomically(folder.summary, json.dumps(summary, indent=2).encode())
    return summary


def _sweep(
    config: Config,
    name: str,
    federations: Callable[[int], Federation],
    over: Values,
    seeds: range,
    folder: SweepFolder,
    progress: Callable[[str], Callable[[float, int], Any]] | None,
) -> Sweep:
    chosen = method(name)
    clients = federations(seeds[0])
    fair = settings.budget(config, clients)
    network = settings.model(config.model, clients)
    own = dict(config.options.get(name, {}))

    def build(**point: Any) -> Algorithm:
        options = {**own, **_expanded(chosen, point)}
        return fair.build(chosen, network, options, **settings.rates_of(config, chosen))

    rounds, cohort = fair.plan(chosen)
    return sweep(
        build,
        federations,
        over=_known(chosen, over),
        seeds=seeds,
        rounds=rounds,
        cohort=cohort,
        folder=folder.part(name),
        identity=as_tables(config),
        progress=progress(name) if progress else None,
    )


def check_over(config: Config, over: Values) -> None:
    """Every name is a rate or an option of some method that is swept."""
    known = {option for name in config.methods for option in method(name).options()}
    for name in over:
        check.choice("sweep", "--over", name, sorted({*RATE, *known}))


def _known(chosen: Method, over: Values) -> dict[str, tuple[Any, ...]]:
    """What the method has of it; it is not repeated for values that do not concern it."""
    return {name: values for name, values in over.items() if name in (*RATE, *chosen.options())}


def _expanded(chosen: Method, point: Mapping[str, Any]) -> dict[str, Any]:
    """One rate as the rates of every model."""
    options: dict[str, Any] = {}
    for name, value in point.items():
        options |= rates(chosen, value) if name in RATE else {name: value}
    return options


def _row(found: Sweep) -> dict[str, Any]:
    tests = np.nanmean(found.scores, axis=1)
    valid = np.nanmean(found.valid[found.best], axis=1)
    return {
        "chosen": found.chosen,
        "points": len(found.points),
        "valid": float(valid.mean()),
        "test": float(tests.mean()),
        "test_sd": float(tests.std(ddof=1)) if len(tests) > 1 else None,
    }


def _write_trainings(found: Mapping[str, Sweep], path: Path) -> None:
    """One row a training: method, its values, seed, mean scores; test where it was chosen."""
    rows = [{"method": name, **row} for name, each in found.items() for row in each.rows()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    arrays = {
        name: np.array(values, object if _words(values) else np.float64)
        for name, values in columns.items()
    }
    write_table(arrays, path)


def _words(values: Sequence[Any]) -> bool:
    return any(isinstance(value, str) for value in values)
