"""`fedprior regress`."""

from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked
from fedprior.cli.asked import option as _option


def regress(
    file: Annotated[
        str | None,
        typer.Argument(
            help="CSV or Parquet file, a glob, or - (standard input); by default, simulated shops."
        ),
    ] = None,
    group: asked.Group = None,
    nested: asked.Nested = False,
    crossed: asked.Crossed = False,
    target: Annotated[
        str | None, _option("Column to be explained: numbers, classes or counts.")
    ] = None,
    features: Annotated[
        list[str] | None, _option("Columns with a coefficient for each group, separated by commas.")
    ] = None,
    fixed: Annotated[
        list[str] | None, _option("Columns with one coefficient for all, separated by commas.")
    ] = None,
    family: Annotated[
        str, _option("auto, gaussian (numbers), binomial (2 classes), multinomial or poisson.")
    ] = "auto",
    exposure: Annotated[
        str | None, _option("Column of the exposure of counts (time, people), for poisson.")
    ] = None,
    population: Annotated[
        str, _option("gaussian, mixture (kinds with spread) or discrete (kinds without).")
    ] = "gaussian",
    components: Annotated[str, _option("Number of kinds of groups, or bic.")] = "bic",
    covariance: Annotated[str, _option("auto, full, diagonal or isotropic.")] = "auto",
    criterion: Annotated[str, _option("auto, reml or ml.")] = "auto",
    method: Annotated[
        str, _option("default, or paper: Algorithms 2, 3, 4 and 7, with floors.")
    ] = "default",
    center: Annotated[
        bool,
        _option("Subtract the features' means: the intercept is that of a mean row.", "--center"),
    ] = False,
    level: Annotated[float, _option("Coverage of the intervals.")] = 0.95,
    out: Annotated[
        Path | None, _option("Where to write the table: .csv or .parquet, one row per group.")
    ] = None,
    plot: asked.Plot = None,
    report: asked.Report = None,
    strict: Annotated[bool, _option("Refuse missing values.", "--strict")] = False,
    missing: asked.Missing = None,
    force: asked.Force = False,
    as_json: asked.AsJson = False,
    seed: Annotated[int, _option("Seed of the held-out rows and of restarts.")] = 0,
    quiet: Annotated[bool, _option("Print nothing to standard error.", "--quiet")] = False,
) -> None:
    """Fit a regression to every group with the help of all the others (a mixed model).

    Prints the population's mean and spread with standard errors and intervals, the share of
    variance between groups, and how well held-out rows are predicted by personal, separate and
    pooled fits. A quarter of the rows of each group with 3 or more is held out for that, drawn by
    --seed; everything else is fitted to all rows. --out has one row per group: each coefficient
    with its error and interval.

    Counts are treated as numbers or classes unless --family is poisson. Then the log of the
    expected count per unit of --exposure is a sum of coefficients times features, and predictions
    are compared by their Poisson deviance.

    Several --group columns make one key. With --nested they go from coarse to fine, and with
    --crossed they cross: each has an effect on the intercept, --fixed columns have one coefficient
    for all, and --out has one row for each group of each level.

    A feature of words becomes an indicator of each word but the first. Rows without a group, a
    target or a feature are dropped and counted.

    Example: `fedprior regress radon.csv --group county --target log_radon --features basement`
    """
    given = locals()
    from fedprior.cli.progress import Watcher
    from fedprior.cli.regress_answer import answer
    from fedprior.reporting.regress_question import RegressQuestion

    question = asked.asked_as(
        RegressQuestion,
        given,
        group=tuple(group or ()),
        features=asked.listed(features),
        fixed=asked.listed(fixed),
        missing=None if missing is None else tuple(missing),
    )
    answer(question, Watcher(quiet=quiet), as_json=as_json)
