"""`fedprior personalize`."""

import json
import math
from glob import has_magic
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked
from fedprior.core import check
from fedprior.core.scores import METRICS


def personalize(
    run: Annotated[
        Path, typer.Argument(help="A run folder of `fedprior train`, or a file of `export`.")
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="New rows: a CSV or Parquet file, a glob of them, or - (standard input); or a "
            "folder of .npz files."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where predictions go: a .csv or .parquet file.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="Whose rows they are, if no column says it; by default those of a site's one "
            "client."
        ),
    ] = None,
    algorithm: asked.OneMethod = None,
    seed: asked.OneSeed = None,
    force: asked.Force = False,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Predict new rows with each client's own model.

    A client of the run gets its own model; a new client is personalized on its labeled rows in
    the file, from the learned population, and without any gets the population's model. The run's
    own data are not needed. Labeled rows of the run's clients are scored, too.

    Example: `fedprior personalize runs/a --data new.csv --out predictions.csv`
    """
    from fedprior.data.standard_input import is_standard_input

    exists = is_standard_input(data) or data.exists() or has_magic(str(data))
    check.require(exists, "personalize", "--data", "a file or folder that exists", str(data))
    from fedprior.cli.progress import counting, say
    from fedprior.data.writing import write_table
    from fedprior.reporting.outputs import OUT_SUFFIXES, check_output

    check_output("personalize", "--out", out, OUT_SUFFIXES, source=str(data), force=force)
    with counting("rows", quiet=quiet) as progress:
        from fedprior.reporting.model import load, predictions  # and JAX, which takes a while

        model = load(run, method=algorithm, seed=seed)
        if name is None and (run / "card.json").is_file() and model.clients is not None:
            name = model.clients.names[0] if len(model.clients.names) == 1 else None
        found = model.predicted(data, name, progress=progress)
    table, measured = predictions(model, found), found.metrics()
    write_table(table, out, owner="personalize")
    models = [str(whose) for whose in table["model"]]
    counts = {kind: models.count(kind) for kind in ("own", "newcomer", "population")}
    if as_json:
        answer = {"format": 1, "out": str(out), "rows": len(models), **counts}
        described = None if measured is None else measured.describe()
        typer.echo(json.dumps({**answer, "metrics": described, "unknown_words": found.unknown}))
    else:
        say(
            f"{len(models)} rows: {counts['own']} by a client's own model, {counts['newcomer']} by "
            f"a newcomer's, {counts['population']} by the population's. Written to {out}",
            quiet=quiet,
        )
        for column, words in found.unknown.items():
            shown = ", ".join(map(repr, words[:5])) + (", ..." if len(words) > 5 else "")
            say(
                f"Column {column!r} has words that the run does not know, which count as missing: "
                f"{shown}.",
                quiet=quiet,
            )
        if measured is not None:
            words = [
                f"{metric.label} {metric.words(measured.overall[metric.key])}"
                for metric in METRICS.values()
                if math.isfinite(measured.overall.get(metric.key, math.nan))
            ]
            say(
                f"On the labeled rows: {', '.join(words)}. These figures hold for new data only "
                "if the run was not trained on these rows.",
                quiet=quiet,
            )
