"""What runs at a node: a ClientApp that answers the server's requests from the site's folder.

Whatever goes wrong, the server learns the type of the error and nothing else; the site's errors.log
has its words.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedprior.core import check
from fedprior.deploy import wire
from fedprior.engines import cache
from fedprior.exchange.trees import Packed
from fedprior.sites.folder import Site, held_site, simulated_site
from fedprior.sites.requests import AgreementOf, answer

_ALARM = 0.7  # share of the deadline after which a client gives up, so that its node is free
_LARGEST = 2**33  # bytes of a request; its state is checked against the agreement


def client_app(agreement_of: AgreementOf = lambda document: document.agreement) -> ClientApp:
    """A ClientApp for the agreements that `agreement_of` builds from accepted documents."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return wire.reply(message, *_answered(message, context, agreement_of))

    return app


def _answered(message: Message, context: Context, agreement_of: AgreementOf) -> tuple[bytes, bytes]:
    """The content of an answer and its signature; where anything fails, the error's type alone."""
    nonce: dict[str, Any] = {}
    try:
        cache.enable()
        request = wire.read(message, most=_LARGEST)[0]
        nonce = {"nonce": request.facts["nonce"]}
        with _site(context, request) as site:
            try:
                with _alarm(float(request.facts["deadline"]) * _ALARM):
                    facts, arrays = answer(site, request, agreement_of)
                payload = wire.content(arrays, {**facts, **nonce})
                return payload, site.sign(payload)
            except Exception as error:
                site.log(error)
                raise
    except Exception as error:  # Flower would send its words
        return wire.content({}, {**nonce, "failed": type(error).__name__}), b""


def _site(context: Context, request: Packed) -> contextlib.AbstractContextManager[Site]:
    """The node's folder, or its part of a simulation."""
    if "site" in context.node_config:
        return held_site(Path(str(context.node_config["site"])))
    partition, partitions = (
        int(context.node_config[name]) for name in ("partition-id", "num-partitions")
    )
    folder = Path(request.facts["simulation"]) / f"site-{partition}"
    clients = _simulated(app_file("config.toml"))
    return contextlib.nullcontext(simulated_site(folder, clients, partition, partitions))


@lru_cache(maxsize=1)
def _simulated(path: Path) -> Any:
    from fedprior.reporting import config, federations

    return federations.clients_of(config.read(path))


def app_file(name: str) -> Path:
    """A file of the app, whose folder Flower puts on Python's path."""
    folders = (Path(entry) for entry in sys.path if entry)
    found = (each / name for each in folders if (each / "pyproject.toml").is_file())
    path = next((each for each in found if each.is_file()), None)
    if path is None:
        raise ValueError(f"deploy: the app has no {name}. Make it with fedprior deploy init.")
    return path


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after `seconds`; a computation that does not listen ends the process.

    Otherwise a client that hangs would keep its node from the next rounds, too.
    """
    check.positive("request", deadline=seconds)
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError("the client took too long.")

    before = signal.signal(signal.SIGALRM, ring)
    last = threading.Timer(seconds * 1.2, os._exit, (70,))
    last.daemon = True
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last.start()
    try:
        yield
    finally:
        last.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


app = client_app()
