"""A SuperLink, a SuperExec and SuperNodes as processes on 127.0.0.1, for rehearsals and tests."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedprior.core.files import make_folder, write_atomically
from fedprior.sites import keys

_NAME = "rehearsal"  # of the connection in Flower's configuration
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_START = 90  # seconds for a process of Flower to answer


class Machines:
    """Flower's processes with all that they need in `folder`; `machines()` starts and stops them.

    `sites` are folders with a node.key. Without `tls`, nothing is encrypted and nodes are not
    known to the SuperLink by their keys.
    """

    def __init__(self, folder: Path, sites: Sequence[Path], *, tls: bool = True) -> None:
        make_folder(folder)
        self.folder, self.sites, self.tls = folder.resolve(), list(sites), tls
        self.ports = free_ports(1 + len(sites))
        self.address = f"127.0.0.1:{self.ports[0]}"
        self.home = self.folder / "flwr"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._trust = ["--insecure"]
        connection = f'address = "{self.address}"\ninsecure = true\n'
        if tls:
            ca, self._certificate, self._key = keys.make_certificates(self.folder)
            self._trust = ["--root-certificates", str(ca)]
            connection = f'address = "{self.address}"\nroot-certificates = "{ca}"\n'
        keys.write_secret(self.folder / "secret", secrets.token_hex(32).encode())
        make_folder(self.home)
        text = f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\n{connection}'
        write_atomically(self.home / "config.toml", text.encode())

    def start_link(self, *more: str) -> None:
        """Start the SuperLink, with `more` options, and wait until it answers."""
        options = ["--host", "127.0.0.1", "--port", str(self.ports[0]), "--isolation", "process"]
        options += ["--database", str(self.folder / "state.db")]
        options += ["--disable-runtime-dependency-installation", *self._secret]
        if self.tls:
            options += ["--ssl-ca-certfile", self._trust[1], "--enable-supernode-auth"]
            options += ["--ssl-certfile", str(self._certificate), "--ssl-keyfile", str(self._key)]
        else:
            options += ["--insecure"]
        self.start("superlink", "flower-superlink", *options, *more)
        end = time.monotonic() + _START
        while not _listens(self.ports[0]):
            self.check("superlink")
            if time.monotonic() > end:
                raise TimeoutError("deploy: the SuperLink did not start in time.")
            time.sleep(0.1)

    def start_executor(self) -> None:
        """Start the SuperExec, which runs the ServerApp."""
        address = ["--runtime-api-address", self.address]
        self.start("superexec", "flower-superexec", *address, *self._trust, *self._secret)

    def start_node(self, number: int) -> None:
        """Start the SuperNode of a site, which the SuperLink has to know."""
        site = self.sites[number]
        options = ["--superlink", self.address, "--port", str(self.ports[1 + number]), *self._trust]
        if self.tls:
            options += ["--auth-supernode-private-key", str(site / "node.key")]
        options += ["--node-config", f"site={json.dumps(str(site.resolve()))}"]
        self.start(f"supernode-{number}", "flower-supernode", *options)

    def start(self, name: str, program: str, *options: str) -> None:
        """Start one of Flower's programs, its output in NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [program, *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is ours: they are stopped in order
            )

    def submit(self, app: Path, settings: Mapping[str, Any]) -> str:
        """Run an app (`flwr run`) with these run-config values; returns the run's id."""
        given = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        answer = self.flwr("run", str(app), _NAME, "--run-config", given, "--format", "json")
        return str(json.loads(answer)["run-id"])

    def status(self, run: str) -> str:
        """What the SuperLink says of a run, such as `running` or `finished:completed`."""
        answer = self.flwr("ls", _NAME, "--run-id", run, "--format", "json")
        return str(json.loads(answer)["runs"][0]["status"])

    def flwr(self, *arguments: str) -> str:
        """What the command `flwr` prints; raises RuntimeError with its words where it fails."""
        command = ["flwr", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            words = " ".join((done.stdout + done.stderr).split())
            raise RuntimeError(f"deploy: flwr {arguments[0]} failed: {words[-600:]}")
        return done.stdout

    def check(self, *names: str) -> None:
        """Raise RuntimeError if one of the processes has ended, with the end of its log."""
        for name in names or tuple(self.running):
            if self.running[name].poll() is not None:
                log = (self.folder / f"{name}.log").read_text(errors="replace")[-600:]
                raise RuntimeError(f"deploy: {name} ended: {' '.join(log.split())}")

    def stop(self) -> None:
        """Stop everything that was started, nodes first, with what they started themselves."""
        left = [each for each in reversed(self.running.values()) if each.poll() is None]
        for sign, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            for process in left:  # the second time for children that outlive their parent
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
            end = time.monotonic() + patience
            for process in left:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end - time.monotonic()))
        self.running.clear()

    @property
    def environment(self) -> dict[str, str]:
        """Flower's own folder, and neither telemetry nor a look for updates."""
        beside = str(Path(sys.executable).parent)  # programs start each other by name
        path = os.pathsep.join([beside, os.environ.get("PATH", "")])
        return {**os.environ, **_QUIET, "FLWR_HOME": str(self.home), "PATH": path}

    @property
    def _secret(self) -> list[str]:
        return ["--superexec-auth-secret-file", str(self.folder / "secret")]


@contextlib.contextmanager
def machines(folder: Path, sites: Sequence[Path], *, tls: bool = True) -> Iterator[Machines]:
    """Started processes, which are stopped at the end, whatever happens."""
    started = Machines(folder, sites, tls=tls)
    try:
        started.start_link()
        started.start_executor()
        for number, site in enumerate(sites):
            if tls:  # make the node's key known to the SuperLink
                started.flwr("supernode", "register", str(site / "node.pub"), _NAME)
            started.start_node(number)
        yield started
    finally:
        started.stop()


def free_ports(number: int) -> list[int]:
    """Ports that the system says are free."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
