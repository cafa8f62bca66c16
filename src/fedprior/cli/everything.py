"""`fedprior reproduce all`."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from fedprior.cli.progress import say
from fedprior.core import check
from fedprior.core.files import make_folder, write_atomically

_QUICK = {
    "table1",
    "beyond",
    "fedem",
    "dp-figures",
    "linear",
    "logistic",
}  # those that have a quick form
_FOLDER = {"table1", "beyond", "ablation", "fedem", "dp-figures"}  # those that write into a folder
_DATA = {"table1", "beyond", "fedem", "dp-figures", "elections", "batting"}


def everything(
    quick: Annotated[bool, typer.Option("--quick", help="The quick form of each.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Root folder of the data (default: FEDPRIOR_DATA, then ../shared/data)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder; goes on there.")] = Path("reproduction"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Nothing on standard error.")] = False,
) -> None:
    """Run every experiment, one after the other; those whose data are missing are named.

    Each leaves OUT/NAME.json. What is there is not run again: the same command goes on.

    Example: `fedprior reproduce all --quick --data DIR --out reproduction`
    """
    from fedprior.experiments.catalog import EXPERIMENTS

    make_folder(out)
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in (row["name"] for row in EXPERIMENTS):
        file, words = out / f"{name}.json", _words(name, quick, data, out)
        if not file.exists():
            say(f"{name} ...", quiet=quiet)
            try:
                answer = json.loads(_run(words))
            except (ValueError, OSError) as error:
                missing[name] = str(error)
                say(f"{name} left out: {error}", quiet=quiet)
                continue
            document = {"command": _command(words), "answer": answer}
            write_atomically(file, json.dumps(document).encode())
        document = json.loads(file.read_text())
        rule, remedy = f"made by {_command(words)}", "Choose another --out."
        same = document["command"] == _command(words)
        check.require(same, "all", str(file), rule, document["command"], remedy)
        found[name] = document["answer"]
    if as_json:
        answer = {"format": 1, "experiments": found, "left_out": missing}
        typer.echo(json.dumps(answer))
    else:
        typer.echo(f"{len(found)} experiments in {out}; left out: {', '.join(missing) or 'none'}")


def _words(name: str, quick: bool, data: Path | None, out: Path) -> list[str]:
    words = [name, "--json", "--quiet"]
    words += ["--quick"] * (quick and name in _QUICK)
    words += ["--data", str(data)] * (data is not None and name in _DATA)
    return words + (["--out", str(out / name)] if name in _FOLDER else [])


def _command(words: list[str]) -> str:
    """What decides the answer: not where data and files lie."""
    return " ".join(["fedprior reproduce", words[0], *["--quick"] * ("--quick" in words)])


def _run(words: list[str]) -> str:
    from fedprior.cli.reproduce import app

    shown = io.StringIO()
    with redirect_stdout(shown):
        app(words, standalone_mode=False)
    return shown.getvalue()
