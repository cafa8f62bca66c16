"""`fedprior watch`."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked

_OWNER = "watch"


def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a deployment's run.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1 (default: one that is free).")] = 0,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser, too.")
    ] = False,
    quiet: asked.Quiet = False,
) -> None:
    """Serve the page of a run on this machine while the run goes on.

    The page is that of `fedprior report RUN` and reloads itself when the run has moved on. It is
    served to this machine alone, under an address that nobody can guess, which is printed. Ctrl-C
    ends it; the run does not notice.

    Example: `fedprior watch runs/a --open`
    """
    from fedprior.cli.progress import say
    from fedprior.pages.serve import PageServer, Served
    from fedprior.reporting.pages import run as of_run
    from fedprior.reporting.pages.changes import version_of
    from fedprior.sites import page as of_deployment

    kinds = [kind for kind in (of_run, of_deployment) if kind.owns(run)]
    if not kinds:
        raise ValueError(
            f"{_OWNER}: RUN must be the folder of a run that has begun, got {run}. A folder is "
            "made by fedprior train --out, or by the server of a deployment."
        )
    make = kinds[0].page_of
    make(run)  # what cannot be shown is refused before anything is served
    try:
        server = PageServer(Served(lambda: make(run), lambda: version_of(run)), port=port)
    except OSError as error:
        raise ValueError(f"{_OWNER}: --port must be free, got {port} ({error.strerror}).") from None
    with server, contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as kept:
        typer.echo(server.address)
        say(f"Serving the page of {run}. Stop with Ctrl-C.", quiet=quiet)
        if open_page:
            import webbrowser

            webbrowser.open(kept.enter_context(_redirect(server.address)).as_uri())
        server.serve_forever(poll_interval=0.2)


@contextlib.contextmanager
def _redirect(address: str) -> Iterator[Path]:
    """A page for this user alone that leads to `address`, until the end.

    A browser's arguments are seen by everybody on the machine; the token in the address is not.
    """
    content = f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={address}">\n'
    with tempfile.TemporaryDirectory(prefix="fedprior-") as folder:  # which nobody else may enter
        path = Path(folder) / "watch.html"
        path.touch(mode=0o600)
        path.write_text(content)
        yield path
