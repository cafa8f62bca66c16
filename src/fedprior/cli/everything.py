"""`fedprior reproduce all`."""

import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from fedprior.cli import asked
from fedprior.cli.experiment import Data, Out, check_out, data_root
from fedprior.cli.progress import say
from fedprior.core import check
from fedprior.core.files import make_folder, read_json, write_json
from fedprior.data.datasets import ROOT_VARIABLE

_FOLDERS = {  # of the root of all data: what each experiment reads
    "elections": ("elections",),
    "batting": ("empirical_bayes",),
    "dp-figures": ("mnist", "mnist_writers"),
    "optimizer": ("mnist", "mnist_writers"),
    "table1": ("mnist", "mnist_writers"),
    "beyond": ("mnist", "mnist_writers"),
    "cifar10": ("cifar10",),
    "ablation": ("mnist", "mnist_writers"),
    "few-samples": ("mnist", "mnist_writers"),
    "fedem": ("mnist",),
}


def everything(
    quick: Annotated[bool, typer.Option("--quick", help="The quick form of each.")] = False,
    data: Data = None,
    out: Out = Path("reproduction"),
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Run every experiment, one after the other; those whose data are missing are listed.

    Each writes OUT/NAME.json. Running the same command again continues with the experiments that
    are missing there. If one fails, the others still run, and the exit status is 1.

    Example: `fedprior reproduce all --quick --data DIR --out reproduction`
    """
    from fedprior.experiments.catalog import EXPERIMENTS

    check_out("all", out)
    root = data_root("all", data)
    make_folder(out)
    answers: dict[str, Any] = {}
    missing: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in (row["name"] for row in EXPERIMENTS):
        file, words = out / f"{name}.json", _words(name, quick, data, out, quiet)
        lacking = _lacking(name, quick, root)
        try:
            if file.exists():
                answers[name] = _read(file, _command(words))
            elif lacking:
                missing[name] = f"no {' and no '.join(lacking)} among the data"
                say(f"{name} left out: {missing[name]}", quiet=quiet)
            else:
                say(f"{name} ...", quiet=quiet)
                document = {"command": _command(words), "answer": json.loads(_run(words))}
                write_json(file, document)
                answers[name] = document["answer"]
        except (ValueError, TypeError, OSError) as error:
            failed[name] = str(error)
            say(f"{name} failed: {error}", quiet=quiet)
    if as_json:
        answer = {"format": 1, "experiments": answers, "left_out": missing, "failed": failed}
        typer.echo(json.dumps(answer))
    else:
        rest = f"left out: {', '.join(missing) or 'none'}; failed: {', '.join(failed) or 'none'}"
        typer.echo(f"{len(answers)} experiments in {out}; {rest}")
    if failed:
        raise typer.Exit(1)


def _lacking(name: str, quick: bool, root: Path | None) -> list[str]:
    """Folders of data that the experiment needs and that are missing."""
    if name == "dp-figures" and quick:
        return []
    given = root or Path(os.environ.get(ROOT_VARIABLE, ""))
    return [part for part in _FOLDERS.get(name, ()) if not (given / part).is_dir()]


def _words(name: str, quick: bool, data: Path | None, out: Path, quiet: bool) -> list[str]:
    known = _options(name)
    words = [name, "--json"]
    words += ["--quiet"] * (quiet and "--quiet" in known)
    words += ["--quick"] * (quick and "--quick" in known)
    words += ["--data", str(data)] * (data is not None and "--data" in known)
    return words + (["--out", str(out / name)] if "--out" in known else [])


def _options(name: str) -> set[str]:
    """What the experiment's command takes."""
    from fedprior.cli.reproduce import app

    commands: Any = typer.main.get_command(app)
    return {option for each in commands.commands[name].params for option in each.opts}


def _read(file: Path, command: str) -> Any:
    """The answer in `file`, if this command gave it."""
    try:
        document = read_json(file)
        made, answer = document["command"], document["answer"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{file} is damaged; delete it to run the experiment again.") from error
    same, remedy = made == command, "Choose another --out."
    check.require(same, "all", str(file), f"made by {command}", made, remedy)
    return answer


def _command(words: list[str]) -> str:
    """The command without what does not decide the answer: where data and files are."""
    return " ".join(["fedprior reproduce", words[0], *["--quick"] * ("--quick" in words)])


def _run(words: list[str]) -> str:
    from fedprior.cli.reproduce import app

    shown = io.StringIO()
    with redirect_stdout(shown):
        app(words, standalone_mode=False)
    return shown.getvalue()
