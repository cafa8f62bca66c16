"""A comparison as it was asked for: what is to be made, what there is already, what made it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from fedprior.core import check
from fedprior.experiments import comparison_report as report
from fedprior.experiments.compare import save
from fedprior.experiments.comparison import Part, Progress, compare, read_all
from fedprior.experiments.comparison_beside import place
from fedprior.experiments.comparison_drawing import draw
from fedprior.experiments.comparison_settings import COMPARISONS, QUICK_GRID, Comparison, Setting
from fedprior.experiments.optimizers import PUBLISHED, Optimizer


class Watch(Protocol):
    """Shows how far the trainings of a part are."""

    def __call__(self, setting: str, method: str, /) -> Progress: ...


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """The settings and methods of the comparison `name` in its folder `out`, under one optimizer.

    Files of the same optimizer, rates and seeds are continued. None stands for all settings and
    methods and for the usual rates and seeds; a quick one has one rate and one seed.
    """

    name: str
    out: Path
    optimizer: Optimizer = PUBLISHED
    quick: bool = False
    setting_names: Sequence[str] | None = None
    method_names: Sequence[str] | None = None
    rates: tuple[float, ...] | None = None
    num_seeds: int | None = None
    first_seed: int | None = None

    def __post_init__(self) -> None:
        check.count(self.name, seeds=self._count)
        check.seed(self.name, self._first)
        check.seed(self.name, self._first + self._count - 1)
        rates, rule = list(self.grid), "different positive numbers"
        fine = bool(rates) and min(rates) > 0 and len(set(rates)) == len(rates)
        check.require(fine, self.name, "rates", rule, rates)
        _ = self.settings, self.methods  # refuses unknown names

    @property
    def known(self) -> Comparison:
        return COMPARISONS[self.name].under(self.optimizer)

    @property
    def _count(self) -> int:
        usual = 1 if self.quick else self.known.seeds
        return usual if self.num_seeds is None else self.num_seeds

    @property
    def _first(self) -> int:
        return self.known.first if self.first_seed is None else self.first_seed

    @property
    def grid(self) -> tuple[float, ...]:
        usual = QUICK_GRID if self.quick else self.known.grid
        return usual if self.rates is None else self.rates

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self._first, self._first + self._count))

    @property
    def folder(self) -> Path:
        """Where the parts under this optimizer are."""
        return place(self.out, self.optimizer)

    @property
    def settings(self) -> list[Setting]:
        return self._settings(self.setting_names)

    @cached_property
    def every(self) -> list[Setting]:
        """All settings of the comparison."""
        return self._settings(None)

    def _settings(self, names: Sequence[str] | None) -> list[Setting]:
        return self.known.chosen_settings(names, quick=self.quick, optimizer=self.optimizer)

    @property
    def methods(self) -> list[str]:
        return self.known.chosen_methods(self.method_names)

    def parts(self) -> list[Part]:
        """What there is in the folder; that of another comparison is refused."""
        self._check_own()
        methods = self.known.methods
        return read_all(self.folder, self.every, methods, grid=self.grid, seeds=self.seeds)

    def missing(self) -> list[tuple[Setting, str]]:
        """What is not made yet of what was asked for."""
        done = {(part.setting, part.method) for part in self.parts()}
        asked = [(each, own) for each in self.settings for own in self.methods]
        return [(each, own) for each, own in asked if (each.name, own) not in done]

    def made(self, root: Path | None, workers: int, watch: Watch) -> dict[str, Any]:
        """Make what is missing; return rows and words of everything in the folder.

        They are written after every setting.
        """
        document: dict[str, Any] = {}
        alike: dict[str, Any] = {"grid": self.grid, "seeds": self.seeds, "folder": self.folder}
        for each in self.settings:
            compare(each, self.methods, root=root, workers=workers, progress=watch, **alike)
            document = self._reported()
        return document

    def _reported(self) -> dict[str, Any]:
        """Table, picture and JSON of every part in the folder."""
        parts, every = self.parts(), self.every
        rows = report.rows(parts, every)
        facts = {"experiment": self.name, "command": self._command(parts), "quick": self.quick}
        document = report.to_json(rows, every, parts, **facts)
        text = "\n\n".join([report.markdown(rows, every), *document["remarks"]])
        save(document, text, self.folder)
        draw(parts, every, self.folder / "clients.png")
        return document

    def _command(self, parts: Sequence[Part]) -> str:
        """What makes all that is there."""
        words = ["fedprior reproduce", self.name]
        words += ["--quick"] if self.quick else []
        words += [] if self.optimizer == PUBLISHED else [f"--{self.optimizer.name}"]
        given = ",".join(f"{rate:g}" for rate in self.grid)
        words += [] if self.rates is None else [f"--rates {given}"]
        words += [] if self.num_seeds is None else [f"--seeds {self.num_seeds}"]
        words += [] if self.first_seed is None else [f"--seed {self.first_seed}"]
        for option, known, there in (
            ("--setting", [each.name for each in self.every], {part.setting for part in parts}),
            ("--method", self.known.methods, {part.method for part in parts}),
        ):
            if there < set(known):
                words += [f"{option} {each}" for each in known if each in there]
        return " ".join(words)

    def _check_own(self) -> None:
        """Raise if the folder holds another comparison."""
        file = self.folder / "rows.json"
        if not file.exists():
            return
        try:
            owner = json.loads(file.read_text())["experiment"]
        except (ValueError, TypeError, KeyError, OSError):
            owner = "another file"
        rule, remedy = f"of {self.name}", "Choose another --out."
        check.require(owner == self.name, self.name, str(file), rule, owner, remedy)
