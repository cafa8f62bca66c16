"""The folder that `flwr run` takes: our configuration in an app without code of its own."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from fedprior.core import check
from fedprior.core.files import make_folder, may_be_folder, write_atomically
from fedprior.reporting.config import Config
from fedprior.reporting.tables import as_tables
from fedprior.sites.document import Document, deployed_method
from fedprior.sites.roster import Roster, enrolled

_README = """# A fedprior deployment

Method: {method}. config.toml has all settings.

    fedprior deploy rehearse .        # try it on this machine, with processes of its own; for
                                      # tables, with rows to try it with: --data FILE
    flwr run .                        # simulate a dataset of fedprior's own under Ray

With real sites, each of them makes its folder, and the coordinator collects their cards:

    fedprior deploy site SITE --app APP --data FILE    # at each site
    fedprior deploy roster APP card1.json card2.json   # at the coordinator: writes agreement.json
    fedprior deploy site SITE --accept agreement.json  # at each site
    flwr run APP NAME --run-config 'run-folder="RUN"'  # at the coordinator; again, to resume
"""


def write_app(folder: Path, config: Config) -> None:
    """Write a new app: pyproject.toml, config.toml, the licence, a README."""
    method = deployed_method(config)
    free = may_be_folder(folder) and not (folder.is_dir() and any(folder.iterdir()))
    check.require(free, "deploy init", "DIR", "a new or empty folder", str(folder))
    make_folder(folder)
    files = {
        "pyproject.toml": tomli_w.dumps(_project(folder.resolve().name)),
        "config.toml": tomli_w.dumps(as_tables(config)),
        "README.md": _README.format(method=method),
        "LICENSE": "This app is configuration alone: use it as you like.\n",
        ".gitignore": "runs/\n",
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())


def write_agreement(
    folder: Path,
    config: Config,
    cards: Mapping[str, Mapping[str, Any]],
    *,
    deadline: float,
    rehearsal: bool = False,
) -> tuple[Document, Roster]:
    """Write agreement.json and roster.json for the sites with these cards into an app."""
    roster, facts = enrolled(cards, config.data.most_samples)
    card = next(iter(cards.values()))
    document = Document.of(
        config,
        facts,
        classes=None if card["classes"] is None else tuple(card["classes"]),
        encoder=card["encoder"],
        deadline=deadline,
        rehearsal=rehearsal,
    )
    document.vet()
    roster.write(folder / "roster.json")
    write_atomically(folder / "agreement.json", document.to_json().encode())
    return document, roster


def _project(name: str) -> dict[str, Any]:
    """What Flower's archive of format 1 needs."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")
    return {
        "project": {
            "name": plain or "app",
            "version": "1.0.0",
            "description": "A deployment of fedprior",
            "license": {"file": "LICENSE"},
            # fedprior is installed by whoever runs a node: Flower must not choose its version.
            "dependencies": ["flwr>=1.41,<2"],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedprior",
                    "fab-format-version": 1,
                    "flwr-version-target": version("flwr"),
                    "components": {
                        f"{side}app": f"fedprior.deploy.{side}_app:app"
                        for side in ("server", "client")
                    },
                    "config": {"run-folder": "", "rounds": 0, "join": 60.0, "deadline": 600.0},
                }
            }
        },
    }
