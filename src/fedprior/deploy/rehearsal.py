"""A whole deployment on one machine: sites, agreement, processes of Flower, one run."""

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.core.files import make_folder, read_json
from fedprior.data.federation import Federation
from fedprior.deploy.app_folder import write_agreement
from fedprior.deploy.processes import Machines, machines
from fedprior.reporting.config import Config
from fedprior.sites.document import Document
from fedprior.sites.folder import accept, make_site

_LOOK = 15.0  # seconds between looks at what the SuperLink says of the run
_APP = ("pyproject.toml", "config.toml", "README.md", "LICENSE", "encoder.json")

Seen = Callable[[dict[str, Any]], None]  # is given the run's progress


@dataclass(frozen=True)
class Rehearsal:
    """The folders of a rehearsal: app/, run/, site-0/, ... and network/ with Flower's own files."""

    folder: Path
    app: Path
    run: Path
    sites: tuple[Path, ...]
    document: Document

    def play(self, seen: Seen, *, tls: bool = True) -> None:
        """Start everything, wait for the end of the run, stop everything."""
        with machines(self.folder / "network", self.sites, tls=tls) as net:
            begun = net.submit(self.app, {"run-folder": str(self.run)})
            self.wait(net, begun, seen)

    def wait(self, net: Machines, begun: str, seen: Seen) -> None:
        """Wait for the end of a run; raises RuntimeError if it fails."""
        look = time.monotonic() + _LOOK
        while not (self.run / "summary.json").is_file():
            net.check()
            with contextlib.suppress(OSError, ValueError):  # not there yet
                seen(read_json(self.run / "progress.json"))
            if time.monotonic() > look:
                look = time.monotonic() + _LOOK
                status = net.status(begun)
                if status.startswith("finished") and not (self.run / "summary.json").is_file():
                    said = " ".join(net.flwr("log", begun, "--show").split())
                    raise RuntimeError(f"deploy: the run ended as {status}: {said[-600:]}")
            time.sleep(0.5)


def prepare(
    app: Path, config: Config, clients: Federation, *, nodes: int, out: Path, deadline: float
) -> Rehearsal:
    """Write the folders of a rehearsal: every `nodes`-th client on each node."""
    rule = f"from 1 to the number of clients ({clients.num_clients})"
    check.require(1 <= nodes <= clients.num_clients, "rehearse", "--nodes", rule, nodes)
    out = out.resolve()
    make_folder(out / "app")
    for name in _APP:
        if (app / name).is_file():
            shutil.copy(app / name, out / "app" / name)
    sites, cards = [out / f"site-{number}" for number in range(nodes)], {}
    for number, site in enumerate(sites):
        own = clients.part(range(number, clients.num_clients, nodes))
        private = config.privacy.epsilon > 0
        cards[site.name] = make_site(site, own, private=private, share_scores=True)
    agreed = (out / "app", config, cards)
    simulated = config.privacy.noise == "simulated"
    document, _ = write_agreement(*agreed, deadline=deadline, rehearsal=simulated)
    for site in sites:
        accept(site, out / "app" / "agreement.json")
    return Rehearsal(out, out / "app", out / "run", tuple(sites), document)
