"""`fedprior algorithms`.

What it lists is in algorithms.json, so that it needs neither JAX nor a traced program per method.
A test compares that file with the methods themselves; `python -m fedprior.cli.catalog` writes it.
"""

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedprior.cli import asked
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.models.network import Network

_ONLY_PYTHON = (
    "In Python only: fedprior.learning.multitask, which takes a covariance between the clients."
)

LISTED = Path(__file__).with_name("algorithms.json")
_MODELS = ("lenet5", "mlp", "logistic")
_SHAPE, _CLASSES = (28, 28, 1), 10  # what bytes are counted for: the models of MNIST
_NO_BYTES = "-"  # a model that the method refuses


def algorithms(
    model: Annotated[
        str,
        typer.Option(help=f"Count bytes for {', '.join(_MODELS)} (28 x 28 pixels, 10 classes)."),
    ] = "lenet5",
    as_json: asked.AsJson = False,
) -> None:
    """List the methods: what they assume, what leaves a client in a round and how many bytes.

    Also what the server must be trusted with, where a method comes from, and its options, which
    `train` takes as --set options.METHOD.OPTION=VALUE.

    Example: `fedprior algorithms --model mlp`
    """
    check.choice("algorithms", "--model", model, _MODELS)
    answer = listed(model)
    if as_json:
        typer.echo(json.dumps({"format": 1, "model": model, **answer}))
        return
    console = Console(highlight=False, markup=False)
    console.print("\n\n".join(_entry(row, console.width) for row in answer["algorithms"]))
    console.print(
        f"\nup, down: bytes of one client in one round, for {model} on 28 x 28 pixels and 10 "
        "classes. server: what it must be trusted with; sums can be added up securely, so that "
        f"nobody sees a single client's part. {_NO_BYTES}: the method refuses this model. "
        + _ONLY_PYTHON
    )


def listed(model: str) -> dict[str, Any]:
    """What algorithms.json holds for a model."""

    def own(row: dict[str, Any]) -> dict[str, Any]:
        return {key: cell[model] if isinstance(cell, dict) else cell for key, cell in row.items()}

    known = json.loads(LISTED.read_text())
    return {"parameters": known["parameters"][model], "algorithms": [*map(own, known["methods"])]}


def _packed(found: dict[str, Any]) -> dict[str, Any]:
    """The form of the file: what differs between models is by model, the rest is said once."""

    def packed(rows: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        cells = {key: [row[key] for row in rows] for key in rows[0]}
        return {
            key: own[0] if own.count(own[0]) == len(own) else dict(zip(found, own, strict=True))
            for key, own in cells.items()
        }

    rows = zip(*(answer["algorithms"] for answer in found.values()), strict=True)
    parameters = {model: answer["parameters"] for model, answer in found.items()}
    return {"parameters": parameters, "methods": [packed(each) for each in rows]}


def traced() -> dict[str, Any]:
    """What `listed` must say, by model: parameters, and the methods with their bytes."""
    import jax

    from fedprior.core import random, tree
    from fedprior.learning.catalog import describe

    found = {}
    for name in _MODELS:
        network = _network(name)
        size = tree.size(jax.eval_shape(network.init, random.root(0)))
        found[name] = {"parameters": size, "algorithms": describe(network, _SHAPE)}
    return found


def _network(name: str) -> "Network":
    from fedprior.models.lenet import lenet5
    from fedprior.models.network import logistic, mlp

    if name == "lenet5":
        return lenet5(_CLASSES)
    return mlp(_SHAPE, _CLASSES) if name == "mlp" else logistic(28 * 28, _CLASSES)


def _entry(row: dict[str, Any], width: int) -> str:
    """A method as a few lines: columns for seven things would leave no room for words."""
    up, down = (_bytes(row[way]) for way in ("upload_bytes", "download_bytes"))
    server = row["server_trusted_with"] or _NO_BYTES
    lines = [f"{row['name']:<22}up {up:>7}   down {down:>7}   server: {server}"]
    pairs = {"assumes": row["population"], "sends": row["sends"], "from": row["reference"]}
    pairs |= {"options": row["options"]}
    for word, text in pairs.items():
        lines += textwrap.wrap(
            text, width, initial_indent=f"  {word:<9}", subsequent_indent=" " * 11
        )
    return "\n".join(lines)


def _bytes(number: int | None) -> str:
    """Three digits and a unit of 1000s.

    >>> _bytes(177704), _bytes(0), _bytes(None)
    ('178 kB', '0 B', '-')
    """
    if number is None:
        return _NO_BYTES
    size, units = float(number), ["B", "kB", "MB", "GB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


if __name__ == "__main__":
    LISTED.write_text(json.dumps(_packed(traced()), indent=1) + "\n")
