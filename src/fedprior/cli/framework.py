"""`fedprior reproduce framework` and `fedprior reproduce few-samples`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedprior.cli import asked
from fedprior.cli.experiment import (
    Data,
    ExperimentRequest,
    Names,
    Out,
    Settings,
    check_out,
    data_root,
    table_of,
)
from fedprior.cli.progress import say
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.experiments.comparison_settings import Setting
    from fedprior.experiments.framework import PriorRow

Quick = Annotated[bool, typer.Option("--quick", help="One seed, a fifth of the rounds.")]
Seeds = Annotated[int, typer.Option("--seeds", help="How many seeds.")]
First = Annotated[int, typer.Option("--seed", help="The first seed.")]
Workers = Annotated[int, typer.Option(help="Processes that fit at a time; 0: one per core.")]


def framework(
    quick: Quick = False,
    setting: Settings = None,
    method: Names = None,
    seeds: Seeds = 20,
    seed: First = 0,
    workers: Workers = 0,
    out: Out = Path("framework"),
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Clients drawn from the framework itself: is a prior worth learning with AdaMAP?

    Softmax regressions of 200 clients whose theta spreads by 0 to 2 around a mean. Nothing is
    tuned; the rest is the default of `fedprior train`. `personal-classifier` is the model of
    `PersonalClassifier`, which integrates theta out. What is finished in --out is kept.

    Example: `fedprior reproduce framework --setting spread-0.3 --seeds 3 --method fedavg`
    """
    from fedprior.experiments import framework as study

    settings = [each.quick if quick else each for each in study.framework_settings()]
    asked_for = ExperimentRequest("framework", report, as_json, quiet)
    _Measured(asked_for, out, 1 if quick else seeds, seed, workers or os.cpu_count() or 1).answer(
        settings, setting, study.FRAMEWORK_METHODS, method
    )


def few_samples(
    quick: Quick = False,
    setting: Settings = None,
    method: Names = None,
    seeds: Seeds = 10,
    seed: First = 3000,
    data: Data = None,
    out: Out = Path("few-samples"),
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Accuracy, log loss and calibration with 10 to 1,200 samples per client, and of newcomers.

    LeNet on MNIST; all methods have the same optimizer and class frequencies, at a rate of 0.1.
    Those that do not learn the smoothing of these have the one of 1, 0.1 and 0.01 that validation
    samples favor.

    Example: `fedprior reproduce few-samples --setting samples-30 --seeds 3 --data DIR`
    """
    from fedprior.experiments import framework as study

    settings = [each.quick if quick else each for each in study.few_settings()]
    root = data_root("few-samples", data)
    asked_for = ExperimentRequest("few-samples", report, as_json, quiet)
    _Measured(asked_for, out, 1 if quick else seeds, seed).answer(
        settings, setting, study.FEW_METHODS, method, root
    )


@dataclass(frozen=True)
class _Measured:
    """An experiment as it was asked for, of which the folder keeps what is finished."""

    request: ExperimentRequest
    out: Path
    seeds: int
    first: int
    workers: int = 1

    def answer(
        self,
        settings: Sequence["Setting"],
        setting: Sequence[str] | None,
        methods: Sequence[str],
        method: Sequence[str] | None,
        root: Path | None = None,
    ) -> None:
        """Measure what is missing in the folder, and show a table for each setting."""
        from fedprior.experiments import framework as study
        from fedprior.experiments.compare import save

        name, known = self.request.name, {each.name: each for each in settings}
        check_out(name, self.out)
        check.count(name, seeds=self.seeds, workers=self.workers)
        numbers = range(check.seed(name, self.first), self.first + self.seeds)
        check.seed(name, numbers[-1])
        for word in setting or ():
            check.choice(name, "--setting", word, known)
        for word in method or ():
            check.choice(name, "--method", word, methods)
        chosen = [each for each in methods if each in (study.OWN, *(method or methods))]
        found = {
            each.name: study.measured(
                each,
                chosen,
                seeds=numbers,
                folder=self.out,
                root=root,
                workers=self.workers,
                tell=lambda where, what: say(f"{where}: {what}", quiet=self.request.quiet),
            )
            for each in settings
            if each.name in (setting or known)
        }
        rows = study.rows(found)
        document = study.document(name, rows, numbers)
        save(document, study.markdown(rows), self.out)
        self.request.answer(document, *_tables(rows, len(numbers)))


def _tables(rows: Sequence["PriorRow"], seeds: int) -> list[Table]:
    """A table for each setting."""
    from fedprior.experiments.framework import table

    counted = f"{seeds} seed{'s' * (seeds > 1)}"
    tables = []
    for name in dict.fromkeys(row.setting for row in rows):
        lines = table([row for row in rows if row.setting == name])
        tables.append(table_of(f"{name}: test samples, {counted}", [line[1:] for line in lines]))
    return tables
