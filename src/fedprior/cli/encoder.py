"""`fedprior encoder`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked


def encoder(
    public: Annotated[
        Path,
        typer.Argument(
            help="A CSV or Parquet file, or - (standard input): PUBLIC rows like those to train on."
        ),
    ],
    client: Annotated[
        list[str],
        typer.Option(
            help="Column that names each row's client; may be repeated for a key of several "
            "columns. The public rows need not have it."
        ),
    ],
    label: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path, typer.Option(help="Where to write the encoder: a .json file.")],
    features: asked.Features = None,
    exclude: asked.Exclude = None,
    missing: asked.Missing = None,
    force: asked.Force = False,
    regression: Annotated[
        bool | None,
        typer.Option(
            "--regression/--classes", help="Is the label a quantity? (default: by its values)"
        ),
    ] = None,
    bins: Annotated[
        int, typer.Option(help="Bins of each number's piecewise-linear encoding (default: none).")
    ] = 0,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Learn how columns become inputs (means, scales, bins, words, classes) from PUBLIC rows.

    The file reveals facts about the rows it was made from, and no noise hides them: use rows that
    anybody may know, never those of the clients to be protected. A private run on a table needs
    such a file.

    Example: `fedprior encoder public.csv --client hospital --label recovered --out encoder.json`
    """
    from fedprior.cli.progress import Watcher, busy
    from fedprior.core.files import write_atomically
    from fedprior.data.standard_input import shown
    from fedprior.data.table import fit_encoder
    from fedprior.reporting.outputs import check_output

    check_output("encoder", "--out", out, (".json",), source=str(public), force=force)
    with busy("reading", quiet=quiet):
        found = fit_encoder(
            public,
            client=client,
            label=label,
            features=asked.listed(features) or None,
            exclude=asked.listed(exclude),
            missing=missing,
            regression=regression,
            bins=bins,
        )
    write_atomically(out, found.to_json().encode())
    if as_json:
        facts = {"features": found.features, "inputs": len(found.feature_names)}
        answer = {"format": 1, "out": str(out), **facts, "classes": found.classes}
        typer.echo(json.dumps(answer))
        return
    read = "; ".join(f"`{name}`: {found.kinds[name][0]}" for name in found.features)
    kind = "a quantity" if found.classes is None else f"one of {', '.join(found.classes)}"
    Watcher(quiet=quiet).say(
        f"Read {read}; they become {len(found.feature_names)} inputs; {label} is {kind}. "
        f"Written to {out}; it reveals facts about the rows in {shown(public)}, which must be "
        "public."
    )
