"""The command `fedprior`."""

import gc
import importlib
import logging
import os
import sys
from collections.abc import Iterable

import typer

from fedprior.cli.bars import print_anywhere
from fedprior.cli.lazily import load_lazily
from fedprior.core.check import PrivacyError

# The module of each command; a module is imported when its command is called or listed.
COMMANDS = {
    "train": "train",
    "sweep": "sweep",
    "estimate": "estimate",
    "regress": "regress",
    "encoder": "encoder",
    "report": "report",
    "watch": "watch",
    "personalize": "personalize",
    "export": "export",
    "algorithms": "catalog",
    "datasets": "datasets",
    "reproduce": "reproduce",
    "privacy": "privacy",
    "deploy": "deploy",
}
_BRIEF = ("estimate", "regress")  # commands that hold a few arrays, whose start-up counts

# Bad input. Click errors are instances of click's own class or of typer's copy of it.
_REFUSED: tuple[type[Exception], ...] = (
    *(ValueError, TypeError, OSError, PrivacyError),
    *(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"),
)


def version(show: bool) -> None:
    """Print the version and stop."""
    if show:
        from fedprior import __version__

        typer.echo(__version__)
        raise typer.Exit


def build(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The application with the commands of these names."""
    app = typer.Typer(
        name="fedprior",
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(options)
    for name in names:
        module = importlib.import_module(f"fedprior.cli.{COMMANDS[name]}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def options(
    show: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Personal models for many clients with little data each, from a jointly learned prior."""


_HELP = options.__doc__


def main() -> None:
    """Run the command; exit codes are 0, 1 (a check failed), 2 (bad input), 130 (interrupted)."""
    logging.getLogger("fedprior").setLevel(logging.ERROR)  # commands say what Python would log
    # JAX takes memory of a GPU as it needs it, so that two commands can share one.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    load_lazily()
    print_anywhere(sys.stdout, sys.stderr)
    called = [word for word in sys.argv[1:2] if word in COMMANDS]
    if called and called[0] in _BRIEF:
        gc.set_threshold(50_000)  # hundreds of passes while modules load, 0.03 s, find nothing
    try:
        code = build(called or COMMANDS)(standalone_mode=False)
    except _REFUSED as error:
        if os.environ.get("FEDPRIOR_TRACEBACK"):
            raise
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        line = " ".join(text.split())
        if line:  # empty without a command, when typer prints its help
            typer.echo(f"fedprior: {line}", err=True)
        sys.exit(2)
    except typer.Abort:
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:  # JAX raises a RuntimeError
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")
        typer.echo(f"fedprior: not enough memory. {reason}", err=True)
        sys.exit(2)
    if isinstance(code, int) and code:
        sys.exit(code)
