"""The command `fedprior`."""

import logging
import os
import sys

import typer

from fedprior.cli import (
    catalog,
    deploy,
    encoder,
    estimate,
    export,
    personalize,
    privacy,
    regress,
    reproduce,
    sweep,
    train,
)
from fedprior.core.check import PrivacyError

app = typer.Typer(
    name="fedprior",
    help="Personal models for many clients with little data each, from a jointly learned prior.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("train")(train.train)
app.command("sweep")(sweep.sweep)
app.command("estimate")(estimate.estimate)
app.command("regress")(regress.regress)
app.command("encoder")(encoder.encoder)
app.command("personalize")(personalize.personalize)
app.command("export")(export.export)
app.command("algorithms")(catalog.algorithms)
app.command("datasets")(catalog.datasets)
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(privacy.app, name="privacy")
app.add_typer(deploy.app, name="deploy")


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


@app.callback()
def options(
    show: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Personal models for many clients with little data each, from a jointly learned prior."""


def main() -> None:
    """Run the command; exit codes are 0, 1 (a check failed), 2 (bad input), 130 (interrupted)."""
    logging.getLogger("fedprior").setLevel(logging.ERROR)  # commands say what Python would log
    try:
        code = app(standalone_mode=False)
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
