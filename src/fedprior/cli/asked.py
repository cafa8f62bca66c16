"""What `train` and `sweep` both ask for: a configuration, and a command's own options on top."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.reporting.config import Config

File = Annotated[Path | None, typer.Argument(help="A TOML file; without one, the embedded digits.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="A CSV or Parquet file, a folder of .npz files (one a client), or the root "
        "folder of the configured dataset."
    ),
]
Client = Annotated[str | None, typer.Option(help="Column that names a row's client.")]
Label = Annotated[str | None, typer.Option(help="Column to predict.")]
Features = Annotated[
    str | None, typer.Option(help="Columns to predict from, with commas (default: all others).")
]
Encoder = Annotated[
    Path | None, typer.Option(help="A public encoder of the table, by `fedprior encoder`.")
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="key=value on top of the configuration.")
]
First = Annotated[int | None, typer.Option(help="First seed.")]
Seeds = Annotated[int | None, typer.Option(help="How many seeds.")]


def configured(
    owner: str,
    config: Path | None,
    *,
    data: Path | None,
    client: str | None,
    label: str | None,
    features: str | None,
    encoder: Path | None,
    algorithm: Sequence[str] | None,
    seed: int | None,
    seeds: int | None,
    changes: Sequence[str],
) -> "Config":
    """The configuration with the command's own options in it, then the changes."""
    from fedprior.data.datasets import needs_files
    from fedprior.reporting.config import read

    own = {
        "data.client": client,
        "data.label": label,
        "data.features": [name.strip() for name in features.split(",")] if features else None,
        "data.encoder": None if encoder is None else str(encoder),
        "methods": list(algorithm) if algorithm else None,
        "seed": seed,
        "seeds": seeds,
    }
    if data is not None:
        check.require(data.exists(), owner, "--data", "a file or folder that exists", str(data))
        named = needs_files(read(config).data.name)  # a root folder may hold .npz files, too
        table = data.is_file() or (not named and any(data.glob("*.npz")))
        own["data.path" if table else "data.root"] = str(data)
    pairs = [f"{key}={json.dumps(value)}" for key, value in own.items() if value is not None]
    return read(config, [*pairs, *changes])
