"""`fedprior reproduce optimizer`."""

from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked
from fedprior.cli.comparison import Quick, Workers
from fedprior.cli.experiment import (
    Data,
    ExperimentRequest,
    Names,
    Out,
    Settings,
    check_out,
    data_root,
    document_of,
    table_of,
)
from fedprior.core import check

_NAME = "optimizer"


def optimizer(
    quick: Quick = False,
    method: Names = None,
    setting: Settings = None,
    seed: Annotated[int, typer.Option(help="The first of three seeds.")] = 100,
    data: Data = None,
    out: Out = Path(_NAME),
    workers: Workers = 2,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Choose the optimizer that `--equal` gives to all methods, on validation scores.

    Momentum 0, 0.9 or 0.95 at the server, gradients clipped to 1 or not, an average over 30 rounds
    or none: the one with the highest mean score over five methods in two settings, each method at
    the best of three rates, on seeds 100 to 102, which no table uses. What is finished in --out is
    kept.

    Example: `fedprior reproduce optimizer --setting mnist --data DIR --out optimizer`
    """
    from fedprior.cli.progress import Trainings
    from fedprior.experiments import optimizer_choice as choice
    from fedprior.experiments.compare import save
    from fedprior.experiments.comparison_settings import QUICK_GRID

    asked_for = ExperimentRequest(_NAME, report, as_json, quiet)
    check.count(_NAME, workers=workers)
    check_out(_NAME, out)
    settings = choice.CHOICE.chosen_settings(setting, quick=quick)
    methods = choice.CHOICE.chosen_methods(method)
    rates = QUICK_GRID if quick else choice.RATES
    first, number = check.seed(_NAME, seed), 1 if quick else choice.CHOICE.seeds
    total = len(choice.optimizers()) * len(rates) * number * len(settings) * len(methods)
    with Trainings(quiet=quiet, total=total) as bar:
        trials = choice.try_all(
            settings,
            methods,
            seeds=range(first, first + number),
            rates=rates,
            folder=out,
            root=data_root(_NAME, data),
            workers=workers,
            progress=bar.part,
        )
        rows = choice.rows(trials)
        document = document_of(_NAME, rows, choice.remarks(rows), seed=first, seeds=number)
        save(document, choice.markdown(rows), out)
        bar.say(f"Written to {out}")
    title = f"Validation accuracy in percent, {len(methods)} methods in {len(settings)} settings"
    asked_for.answer(document, table_of(title, choice.table(rows)))
