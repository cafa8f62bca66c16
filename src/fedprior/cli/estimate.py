"""`fedprior estimate`."""

from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked
from fedprior.cli.asked import option as _option

EMBEDDED = "baseball"


def estimate(
    file: Annotated[
        str | None,
        typer.Argument(
            help="CSV or Parquet file, a glob, or - (standard input); by default, baseball."
        ),
    ] = None,
    connect: Annotated[
        str | None,
        _option("URL of a database, for --table: postgres://user@host/db, duckdb:///file."),
    ] = None,
    connect_file: Annotated[
        Path | None, _option("File with that URL; else the variable FEDPRIOR_CONNECT.")
    ] = None,
    table: Annotated[
        str | None, _option("Table of that database (schema.table); sums are computed there.")
    ] = None,
    out_table: Annotated[
        str | None, _option("New table in that database for the answers, one row per group.")
    ] = None,
    group: asked.Group = None,
    nested: asked.Nested = False,
    crossed: asked.Crossed = False,
    value: Annotated[str | None, _option("Column of numbers to average.")] = None,
    successes: Annotated[str | None, _option("Column of successes, with --trials.")] = None,
    trials: Annotated[str | None, _option("Column of trials, with --successes.")] = None,
    outcome: Annotated[str | None, _option("Column of 0 and 1, or true and false.")] = None,
    events: Annotated[str | None, _option("Column of numbers of events, with --exposure.")] = None,
    exposure: Annotated[
        str | None,
        _option("Column of the exposure of --events (time, people); default: 1 per row."),
    ] = None,
    category: Annotated[
        str | None, _option("Column of categories: their shares in every group.")
    ] = None,
    stderr: Annotated[
        str | None, _option("Column of known standard errors of --value; each row is an estimate.")
    ] = None,
    noise_sd: Annotated[
        float | None, _option("Known standard deviation of one value within its group.")
    ] = None,
    noise: Annotated[
        str,
        _option("Variance within groups: common, moderated (each group's own), or auto (by test)."),
    ] = "auto",
    population: Annotated[
        str | None,
        _option(
            "beta, gaussian or gamma (default), scale-mixture, spike-and-slab, nonparametric, "
            "point, auto (the default unless another one is clearly better)."
        ),
    ] = None,
    covariates: Annotated[
        list[str] | None,
        _option("Columns, separated by commas, on which the population's mean depends."),
    ] = None,
    by_size: Annotated[bool, _option("Let the population depend on log n.", "--by-size")] = False,
    fit: Annotated[str, _option("likelihood or moments.")] = "likelihood",
    method: Annotated[str, _option("default, or paper: the formulas as printed.")] = "default",
    intervals: Annotated[str, _option("default or robust (any shape of population).")] = "default",
    level: Annotated[float, _option("Coverage of the intervals.")] = 0.95,
    above: Annotated[
        float | None, _option("Also compute each group's probability of exceeding this.")
    ] = None,
    ranks: Annotated[bool, _option("Also compute each group's rank.", "--ranks")] = False,
    leave_one_out: Annotated[
        bool, _option("With --stderr: repeat the analysis without each group.", "--leave-one-out")
    ] = False,
    epsilon: Annotated[
        float | None, _option("One private report per group; only the population is shown.")
    ] = None,
    delta: Annotated[
        float | None,
        _option("For --value: Gaussian reports. Simulated, so never valid for release."),
    ] = None,
    scheme: Annotated[
        str | None, _option("Private report: auto, split, two-round, k-ary or paper.")
    ] = None,
    low: Annotated[float | None, _option("Public lower bound, with --epsilon and --value.")] = None,
    high: Annotated[
        float | None,
        _option("Public upper bound, with --epsilon and --value, or of the --events rate."),
    ] = None,
    release_groups: Annotated[
        bool, _option("With --epsilon: show groups, too. Not private.", "--release-groups")
    ] = False,
    ledger: Annotated[
        Path | None,
        _option("Ledger to charge, from `fedprior privacy ledger init`; default: beside FILE."),
    ] = None,
    key: asked.Key = None,
    budget: Annotated[
        float | None, _option("Largest epsilon of the ledger; a question beyond it is refused.")
    ] = None,
    allow_delta: Annotated[
        bool, _option("Accept a --delta of 1 / groups or more.", "--allow-delta")
    ] = False,
    out: Annotated[
        Path | None, _option("Where to write the table: .csv or .parquet, one row per group.")
    ] = None,
    plot: asked.Plot = None,
    report: asked.Report = None,
    strict: Annotated[bool, _option("Refuse missing values.", "--strict")] = False,
    missing: asked.Missing = None,
    force: asked.Force = False,
    as_json: asked.AsJson = False,
    seed: Annotated[
        int | None, _option("Reproducible private reports, not valid for release.")
    ] = None,
    quiet: Annotated[bool, _option("Print nothing to standard error.", "--quiet")] = False,
) -> None:
    """Estimate every group's mean or rate with the help of all the others.

    --value gives means of numbers; --outcome, or --successes with --trials, rates of success;
    --events with --exposure, rates of events per unit of exposure; --category, shares of
    categories.

    Rows without a group or without a number (empty cells, NA and the like) are dropped and, without
    --epsilon, counted. With --stderr, several rows of a group are combined by inverse variance.

    Several --group columns make one key. With --nested they go from coarse to fine: a county is
    pulled toward its state, a state toward the whole, and --out has a row for each of them. With
    --crossed their effects add up.

    With --covariates, a group that has covariates but no number is predicted from them, and --out
    has a row for it. With --stderr, the figures of a meta-analysis are shown.

    With --epsilon, every group makes one private report. Its size (or exposure) is public, and so
    are --low and --high, the bounds on the values, or --high, the largest rate of --events per unit
    of exposure. --out then holds one row, the population's, or all that is printed, in a .json
    file. Error messages may quote rows: they are for the owner of the data. What is spent is
    recorded in a ledger before a report is drawn, and a second question adds to the first. The
    ledger of visits.csv is visits.ledger.jsonl beside it, or the --ledger of a population.

    With --table, the rows stay in the database, which sums and joins; only small tables are read.
    Its password is never given on the command line: see --connect-file, PGPASSWORD and ~/.pgpass.

    Example: `fedprior estimate counts.csv --group county --successes won --trials races`
    """
    given = locals()
    from fedprior.cli.answer import answer
    from fedprior.cli.progress import Watcher
    from fedprior.reporting.question import Question

    embedded = file is None or (file == EMBEDDED and not Path(file).exists())
    question = asked.asked_as(
        Question,
        given,
        file=None if embedded else file,
        group=tuple(group or ()),
        covariates=asked.listed(covariates),
        noise_scale=noise_sd,
        missing=None if missing is None else tuple(missing),
    )
    if question.table is not None:
        from fedprior.cli import warehouse

        warehouse.answer(question, Watcher(quiet=quiet), as_json=as_json)
        return
    answer(question, Watcher(quiet=quiet), as_json=as_json)
