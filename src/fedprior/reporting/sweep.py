"""A sweep of a configuration: every method over the same values and seeds, into one folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedprior.core import check, formats, lock
from fedprior.core.files import (
    make_folder,
    may_be_folder,
    read_json,
    seal,
    write_atomically,
    write_json,
)
from fedprior.data.writing import write_table
from fedprior.engines.sweep import Sweep, sweep
from fedprior.reporting.folder import Folder, inside
from fedprior.reporting.sweep_plan import SweepPlan
from fedprior.reporting.tables import as_tables

_OWNER = "sweep"
Watch = Callable[[str], Callable[[float, int], Any]]


@dataclass(frozen=True)
class SweepFolder:
    """config.toml, sweep.json, trainings.parquet: those of the last command; checkpoint/METHOD.

    There are the method's finished points and a sweep.json with what decides them.
    """

    path: Path

    config = inside("config.toml")
    summary = inside("sweep.json")
    trainings = inside("trainings.parquet")

    def part(self, name: str) -> Path:
        """Where a method's finished points are kept."""
        return self.path / "checkpoint" / name

    def check_place(self) -> None:
        """A new or empty folder, or one with a sweep."""
        fine = may_be_folder(self.path)
        if fine and self.path.exists():
            inside = [path.name for path in self.path.iterdir() if path.name != lock.NAME]
            fine = any(self.path.glob("checkpoint/*/sweep.*")) or not inside
        check.require(fine, _OWNER, "--out", "a new or empty folder, or a sweep's", str(self.path))

    def check(self, plan: SweepPlan) -> None:
        """Raise if the folder holds points of another plan."""
        self.check_place()
        if self.config.is_file():
            Folder(self.path).check_format("sweep")
        for grid in plan.grids:
            folder = self.part(grid.method)
            note, begun = folder / "sweep.json", (folder / "sweep.safetensors").exists()
            kept = read_json(note) if begun and note.exists() else grid.identity
            changed = [name for name in grid.identity if kept.get(name) != grid.identity[name]]
            if changed:
                raise ValueError(
                    f"sweep: configuration must be the one that {grid.method} began with in "
                    f"{self.path}, got another {', '.join(changed)}. Choose another --out."
                )

    def begin(self, plan: SweepPlan) -> None:
        """Write the configuration and what decides each method's scores."""
        self.check(plan)
        for grid in plan.grids:
            make_folder(self.part(grid.method))
            write_json(self.part(grid.method) / "sweep.json", grid.identity, indent=2)
        write_atomically(self.config, seal(tomli_w.dumps(as_tables(plan.config))).encode())


def sweep_methods(
    plan: SweepPlan,
    folder: SweepFolder,
    *,
    progress: Watch | None = None,
    finish: Callable[[Mapping[str, Sweep]], Any] = lambda swept: None,
) -> dict[str, Any]:
    """Sweep every method as planned; finished points are read from the folder.

    Returns what sweep.json holds: one row per method, with the chosen values and its test scores,
    all None where every point diverged. `finish` is called with every method's sweep at the end.
    """
    with lock.owned(folder.path):
        swept = _swept(plan, folder, progress)
        _write_trainings(swept, folder.trainings)
        summary = _summary(plan, folder, swept)
        finish(swept)
        return summary


def _swept(plan: SweepPlan, folder: SweepFolder, progress: Watch | None) -> dict[str, Sweep]:
    folder.begin(plan)
    tested = all(each.test.size.any() for each in plan.federations.values())
    return {
        grid.method: sweep(
            grid.build,
            plan.federations.__getitem__,
            over=grid.over,
            seeds=tuple(plan.federations),
            rounds=grid.training.rounds,
            cohort=grid.training.cohort,
            channel=grid.training.channel,
            metric=grid.training.arguments["metric"],
            test=tested,
            folder=folder.part(grid.method),
            identity=grid.identity,
            progress=progress(grid.method) if progress else None,
        )
        for grid in plan.grids
    }


def _summary(plan: SweepPlan, folder: SweepFolder, swept: Mapping[str, Sweep]) -> dict[str, Any]:
    summary = {
        "format": formats.NUMBERS["sweep"],
        "sweep": str(folder.path),
        "metric": plan.metric.name,
        "over": {name: list(values) for name, values in plan.over.items()},
        "seeds": list(plan.federations),
        "methods": {name: _row(each) for name, each in swept.items()},
    }
    write_atomically(folder.summary, json.dumps(summary, indent=2, allow_nan=False).encode())
    return summary


def _diverged(swept: Sweep) -> bool:
    """No point has a finite mean over all seeds and clients: there is nothing to choose by."""
    return not np.isfinite(np.nanmean(swept.valid, axis=2).mean(axis=1)).any()


def _row(swept: Sweep) -> dict[str, Any]:
    row: dict[str, Any] = {"chosen": None, "points": len(swept.points)}
    if _diverged(swept):
        return {**row, "valid": None, "test": None, "test_sd": None}
    signed = swept.metric.signed
    tests = signed(np.nanmean(swept.scores, axis=1)) if swept.scores.size else np.array([np.nan])
    several = len(tests) > 1 and np.isfinite(tests).all()
    return {
        **row,
        "chosen": swept.chosen,
        "valid": _mean(signed(np.nanmean(swept.valid[swept.best], axis=1))),
        "test": _mean(tests),
        "test_sd": float(tests.std(ddof=1)) if several else None,
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if np.isfinite(values).all() else None


def _write_trainings(swept: Mapping[str, Sweep], path: Path) -> None:
    """One row per training: method, its values, seed, mean scores; test where it was chosen."""
    rows = [{"method": name, **row} for name, each in swept.items() for row in _rows(each)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    write_table(
        {name: _column([row.get(name) for row in rows]) for name in names}, path, owner="sweep"
    )


def _rows(swept: Sweep) -> list[dict[str, Any]]:
    nothing = {"chosen": False, "test": None} if _diverged(swept) else {}
    return [{**row, **nothing} for row in swept.rows()]


def _column(values: Sequence[Any]) -> np.ndarray:
    """Of words, of truths, of whole numbers or of numbers, with gaps."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in known):
        return np.array([None if value is None else str(value) for value in values], object)
    for kind in (bool, int):
        if known and all(type(value) is kind for value in known):
            return np.array(values, kind if len(known) == len(values) else object)
    return np.array(values, np.float64)
