"""The command `fedprior`."""

import os
import sys

import typer

from fedprior.cli import catalog, personalize, train
from fedprior.core.check import PrivacyError

app = typer.Typer(
    name="fedprior",
    help="Personal models for many clients with little data each, from a prior learned together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("train")(train.train)
app.command("personalize")(personalize.personalize)
app.command("algorithms")(catalog.algorithms)
app.command("datasets")(catalog.datasets)


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
    """Personal models for many clients with little data each, from a prior learned together."""


def main() -> None:
    """Exit codes: 0, 1 (a check did not hold), 2 (bad input), 130 (interrupted)."""
    try:
        app()
    except (ValueError, TypeError, OSError, PrivacyError) as error:
        if os.environ.get("FEDPRIOR_TRACEBACK"):
            raise
        line = " ".join(str(error).split())
        typer.echo(f"fedprior: {line}", err=True)
        sys.exit(2)
