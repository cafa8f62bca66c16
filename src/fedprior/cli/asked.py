"""Options that several commands have; the configuration of `train` and `sweep` with theirs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.reporting.config import Config

T = TypeVar("T")
File = Annotated[
    Path | None,
    typer.Argument(help="A TOML file, or a shipped configuration; default: the digits."),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="A CSV or Parquet file, a glob of them, or - (standard input); a folder of .npz "
        "files, one per client; or the root folder of the configured dataset."
    ),
]
Client = Annotated[
    list[str] | None,
    typer.Option(
        help="Column that names each row's client; may be repeated for a key of several columns."
    ),
]
Label = Annotated[str | None, typer.Option(help="Column to predict.")]
Features = Annotated[
    list[str] | None,
    typer.Option(help="Columns to predict from, separated by commas (default: all others)."),
]
Exclude = Annotated[
    list[str] | None, typer.Option(help="Columns to leave out, separated by commas.")
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        help="A word that means missing, in place of NA, N/A, NaN, null, None and '.'; may be "
        "repeated. In lower case it matches any case. An empty cell is always missing."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option(help="Print nothing to standard error.")]
Delta = Annotated[float, typer.Option(help="Delta; there is no default.")]
AllowDelta = Annotated[
    bool, typer.Option("--allow-delta", help="Accept a delta of 1 / clients or more.")
]
Key = Annotated[Path | None, typer.Option(help="File with the key of the ledger.")]
Group = Annotated[
    list[str] | None,
    typer.Option(
        help="Column that names each row's group; may be repeated for a key of several columns."
    ),
]
Nested = Annotated[
    bool,
    typer.Option(
        "--nested", help="Columns of groups go from coarse to fine: a county lies in its state."
    ),
]
Crossed = Annotated[
    bool, typer.Option("--crossed", help="Columns of groups cross: their effects add up.")
]
Plot = Annotated[Path | None, typer.Option(help="Where to write the picture: .png, .svg or .pdf.")]
Report = Annotated[
    Path | None, typer.Option(help="Where to write a page about the answer: a .html file.")
]
OneMethod = Annotated[
    str | None, typer.Option(help="Which of the run's methods (default: its first).")
]
OneSeed = Annotated[int | None, typer.Option(help="Which of the run's seeds.")]
Encoder = Annotated[
    Path | None, typer.Option(help="A public encoder of the table, from `fedprior encoder`.")
]
MetricChoice = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="What models are scored by, and chosen on validation samples: accuracy, "
        "balanced-accuracy, auc, log-loss or calibration-error of classes (default: accuracy); "
        "rmse or r2 of a quantity (default: rmse). On a table, without --metric, train chooses "
        "models and rates by log loss or RMSE.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, which overrides the configuration; may be repeated."),
]
First = Annotated[int | None, typer.Option(help="First seed.")]
Seeds = Annotated[int | None, typer.Option(help="How many seeds.")]


def option(text: str, *names: str) -> Any:
    """An option with its help."""
    return typer.Option(*names, help=text)


def listed(words: Sequence[str] | None) -> tuple[str, ...]:
    """The names in words of names between commas."""
    return tuple(name.strip() for word in words or () for name in word.split(",") if name.strip())


def asked_as(kind: type[T], given: Mapping[str, Any], **changed: Any) -> T:
    """A dataclass whose fields are what a command was `given` by the same names, or `changed`."""
    told = {**given, **changed}
    return kind(**{each.name: told[each.name] for each in fields(cast("Any", kind))})


def configured(
    owner: str, config: Path | None, given: Mapping[str, Any], changes: Sequence[str]
) -> "Config":
    """The configuration with the options that a command was `given` in it, then the changes."""
    from fedprior.reporting.config import read

    data, encoder = given["data"], given["encoder"]
    of_table = {
        "client": list(given["client"] or ()) or None,
        "label": given["label"],
        "features": listed(given["features"]) or None,
        "exclude": listed(given["exclude"]) or None,
        "missing": given["missing"],
        "encoder": None if encoder is None else str(encoder),
    }
    own: dict[str, Any] = {f"data.{name}": value for name, value in of_table.items()}
    own |= {"methods": given["algorithm"] or None, "training.metric": given["metric"]}
    own |= {"seed": given["seed"], "seeds": given["seeds"]}
    if data is not None:
        is_own = _is_own(owner, data, read(config).data.name)
        own["data.path" if is_own else "data.root"] = str(data)
    pairs = [f"{key}={json.dumps(value)}" for key, value in own.items() if value is not None]
    settings = read(config, [*pairs, *changes])
    for name, value in of_table.items():
        if value is not None and (not settings.data.path or Path(settings.data.path).is_dir()):
            raise ValueError(
                f"{owner}: --{name} concerns a table of your own. Name its file with --data."
            )
    return settings


def scored_on_the_way(config: "Config") -> "Config":
    """The configuration with validation scores for a learning curve, unless it has its own."""
    from fedprior.reporting.run_plot import rounds_between

    training = config.training
    if training.evaluate_every:
        return config
    every = rounds_between(training.rounds)
    return replace(config, training=replace(training, evaluate_every=every))


def _is_own(owner: str, data: Path, dataset: str) -> bool:
    """Whether --data is a table or a folder of arrays, rather than the root of a dataset."""
    from fedprior.data.datasets import needs_files
    from fedprior.data.standard_input import is_standard_input

    if is_standard_input(data) or data.is_file() or (has_magic(str(data)) and not data.exists()):
        return True
    check.require(data.exists(), owner, "--data", "a file or folder that exists", str(data))
    if needs_files(dataset):  # a root folder may hold .npz files, too
        return False
    if not any(data.glob("*.npz")):
        raise ValueError(
            f"{owner}: --data {data} is a folder without .npz files, and the dataset {dataset!r} "
            f"reads no folder. For tables in it, quote a glob: --data '{data}/*.csv'."
        )
    return True
