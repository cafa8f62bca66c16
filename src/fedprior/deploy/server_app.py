"""What runs at the server: a ServerApp that plays the rounds of an agreement; again, to resume."""

import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedprior.core import lock
from fedprior.core.files import write_atomically
from fedprior.deploy.client_app import app_file
from fedprior.deploy.nodes import FlowerNodes
from fedprior.exchange.facts import Facts
from fedprior.reporting import config as configs
from fedprior.reporting import federations
from fedprior.reporting.config import Config
from fedprior.reporting.folder import Folder
from fedprior.sites.document import Document, deployed_method
from fedprior.sites.requests import AgreementOf
from fedprior.sites.roster import Roster
from fedprior.sites.run import Deployment

_WAIT = 120.0  # seconds for another ServerApp of the same run to end
_log = logging.getLogger("flwr")


def server_app(agreement_of: AgreementOf = lambda document: document.agreement) -> ServerApp:
    """A ServerApp for the agreements that `agreement_of` builds from documents."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings = dict(context.run_config)
        path = Path(str(settings.get("run-folder") or f"runs/{context.run_id}")).absolute()
        with lock.owned(path, patience=_WAIT), contextlib.ExitStack() as held:
            config, document, roster = _begin(path, settings)
            _log.info("fedprior: run folder %s", path)
            simulated = None if _deployed() else path / "sites"
            nodes = FlowerNodes(grid, document, roster, simulated=simulated)
            run = Deployment(Folder(path), config, document, agreement_of(document), nodes)
            run.open(held)
            join = float(str(settings.get("join", 60)))
            if run.folder.summary.is_file():
                _log.info("fedprior: the run is finished; its model is sent once more.")
                run.send_models(join)
            else:
                run.play(join)

    return app


def _deployed() -> bool:
    try:
        return app_file("agreement.json").is_file()
    except ValueError:
        return False


def _begin(path: Path, settings: dict[str, Any]) -> tuple[Config, Document, Roster]:
    """The configuration, agreement and roster of a run, which its folder keeps from the start."""
    folder, kept, listed = Folder(path), path / "agreement.json", path / "roster.json"
    if not folder.config.is_file():
        changes = [f"training.rounds={settings['rounds']}"] if settings.get("rounds") else []
        given = configs.read(app_file("config.toml"), changes)
        folder.create(replace(given, methods=(deployed_method(given),)))
    config = folder.read()
    if not kept.is_file() or not listed.is_file():
        document, roster = _agreed(config, float(str(settings.get("deadline", 600))))
        roster.write(listed)
        write_atomically(kept, document.to_json().encode())
    document = Document.read(kept)
    document.check_code()
    if _deployed() and Document.read(app_file("agreement.json")).token != document.token:
        raise ValueError(f"run: {path} is the folder of another agreement. Choose another one.")
    return config, document, Roster.read(listed)


def _agreed(config: Config, deadline: float) -> tuple[Document, Roster]:
    """What the app brings along, or for a simulation what fits the data at hand."""
    if _deployed():
        return Document.read(app_file("agreement.json")), Roster.read(app_file("roster.json"))
    clients = federations.clients_of(config)
    document = Document.of(
        config,
        Facts.of(clients, private=config.privacy.epsilon > 0),
        classes=clients.classes,
        encoder=clients.encoder.to_json() if clients.encoder else None,
        deadline=deadline,
        rehearsal=True,
    )
    return document, Roster.of(str(name) for name in clients.clients)


app = server_app()
