"""A rehearsal for tests: real processes of Flower, kills on demand, and what `debug` says."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np
from in_memory import Answered, equal

from fedprior.core.files import read_json
from fedprior.data.federation import Federation
from fedprior.deploy.app_folder import write_app
from fedprior.deploy.processes import machines
from fedprior.deploy.rehearsal import prepare
from fedprior.engines.debug import debug
from fedprior.exchange import trees
from fedprior.privacy.opening import read as read_ledger
from fedprior.privacy.records import reservations
from fedprior.reporting import config as configs
from fedprior.reporting import model_file
from fedprior.reporting.folder import Folder

PATIENCE = 600.0  # seconds for anything to happen, on a busy machine
PROGRAMS = ("flwr", "flower-superlink", "flower-superexec", "flower-supernode")
SMALL = (
    'methods=["adaped"]',  # clients remember their last round: a wrong memory changes the bits
    "data.name=sites",
    "model.name=logistic",
    "training.cohort=everyone",
    "training.local_steps=3",
    "training.batch_size=4",
)
PRIVATE = (
    "privacy.epsilon=8",
    "privacy.delta=1e-2",
    "privacy.clip=0.5",
    "privacy.allow_delta=true",
    "training.cohort=poisson",
    "training.sampling_rate=0.6",
    "data.most_samples=16",
)


def lacking():
    """What this machine lacks for a rehearsal; None if nothing."""
    if find_spec("flwr") is None or find_spec("cryptography") is None:
        return "Flower is not installed"
    if not Path("/proc/self/stat").is_file():
        return "processes are looked up in /proc"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    absent = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return f"there is no {', '.join(absent)}" if absent else None


def toy_clients(number, seed=0):
    """A few samples each, of three classes."""
    draws = np.random.default_rng(seed)
    owner = np.repeat([f"ward-{k}" for k in range(number)], draws.integers(12, 17, number))
    x = draws.normal(size=(len(owner), 4)).astype(np.float32)
    y = np.argmax(x[:, :3] + 0.5 * draws.normal(size=(len(owner), 3)), axis=1)
    return Federation.from_arrays(x, y, owner, classes=["0", "1", "2"], seed=seed)


def wait_for(condition, what, patience=PATIENCE, pause=0.05):
    """What `condition()` returns once it is true."""
    end = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < end, f"it took too long: {what}"
        time.sleep(pause)
    return found


def living(sessions, word=""):
    """Ids of processes of these sessions with `word` in their command; zombies do not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) in sessions and state not in "ZX":
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                if word in command:
                    found.append(int(entry.name))
    return found


def repeated(document, clients, answered):
    """`debug` with the clients that answered in each round."""
    agreement = document.agreement
    absent = {
        number: tuple(set(agreement.draw(number).tolist()) - set(those))
        for number, those in enumerate(answered)
    }
    return debug(
        agreement.algorithm,
        clients,
        rounds=len(answered),
        cohort=Answered(agreement.cohort, absent),
        channel=agreement.channel,
        seed=document.seed,
        identity=agreement.identity,
    )


class Network:
    """A rehearsal of a small federation, to be used in a `with` statement.

    `faults` are [client, round, fault] for `faulty.py`, which then takes the place of the app.
    """

    def __init__(self, folder, *changes, clients=6, nodes=2, deadline=60.0, faults=None):
        self.root, self.faults_planned = Path(folder), faults
        config = configs.read(None, [*SMALL, *changes])
        write_app(self.root / "app", config)
        self.clients = toy_clients(clients)
        self.rehearsal = prepare(
            self.root / "app",
            config,
            self.clients,
            nodes=nodes,
            out=self.root / "rehearsal",
            deadline=deadline,
        )
        self.document, self.run = self.rehearsal.document, self.rehearsal.run
        self.sites = self.rehearsal.sites
        self.folder = Folder(self.run)
        self.part = self.folder.part(self.document.method, self.document.seed)
        self.sessions = {}  # name of a process -> ids of all sessions it has had
        if faults is not None:
            project = self.rehearsal.app / "pyproject.toml"
            text = project.read_text().replace("fedprior.deploy.client_app:app", "faulty:app")
            project.write_text(text)

    def __enter__(self):
        self._held = contextlib.ExitStack()
        own = {
            "FEDPRIOR_CACHE": str(self.root / "programs"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        }
        if self.faults_planned is not None:
            paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
            own["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            own["FEDPRIOR_TEST_FAULTS"] = json.dumps(self.faults_planned)
        with contextlib.ExitStack() as held:
            held.enter_context(mock.patch.dict(os.environ, own))
            place = self.rehearsal.folder / "network"
            self.machines = held.enter_context(machines(place, self.sites))
            self._note()
            self._held = held.pop_all()
        return self

    def __exit__(self, *error):
        self._note()
        self._held.close()
        if error[0] is None:
            wait_for(lambda: not self.left(), "processes to end", patience=30)
        for process in self.left():
            os.kill(process, signal.SIGKILL)

    def _note(self):
        for name, process in self.machines.running.items():
            self.sessions.setdefault(name, set()).add(process.pid)

    def left(self):
        """Processes that are still there."""
        return living(set().union(*self.sessions.values()))

    def submit(self, **settings):
        """`flwr run`, again to resume; returns the run's id."""
        told = {"run-folder": str(self.run), "join": 300.0, **settings}
        return self.machines.submit(self.rehearsal.app, told)

    def of(self, name, word):
        """Processes that the one called `name` has started."""
        return living(self.sessions.get(name, set()), word)

    @property
    def server(self):
        return self.of("superexec", "flwr-serverapp")

    def client(self, node):
        return self.of(f"supernode-{node}", "flwr-clientapp")

    def kill(self, *processes):
        """kill -9; returns how many there were."""
        killed = 0
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                killed += 1
        return killed

    def kill_server(self):
        found = wait_for(lambda: self.server, "a ServerApp")
        self.kill(*found)
        wait_for(lambda: not set(self.server) & set(found), "the ServerApp to die")

    def kill_program(self, name):
        """kill -9 of a SuperLink or SuperNode."""
        process = self.machines.running[name]
        process.kill()
        process.wait()

    def start_again(self, name):
        """Start a SuperLink or SuperNode that has ended, on its old port."""
        if name == "superlink":
            self.machines.start_link()
        elif name == "superexec":
            self.machines.start_executor()
        else:
            self.machines.start_node(int(name.rpartition("-")[2]))
        self._note()

    def tend(self, *gone):
        """Start again whatever has ended, but for those `gone` for good; returns their names."""
        ended = [
            name
            for name, process in self.machines.running.items()
            if process.poll() is not None and name not in gone
        ]
        for name in ended:
            self.start_again(name)
        return ended

    def busy(self, node):
        """Whether a client of the node is at work in a round."""
        memory = self.sites[node] / "memory" / self.document.token
        return any(memory.glob("*.lock"))

    @property
    def rounds(self):
        """Rounds that are finished."""
        with contextlib.suppress(FileNotFoundError):
            return len(self.checkpoint().facts["history"])
        return 0

    def checkpoint(self):
        return trees.read(self.part / "checkpoint.safetensors", kind="checkpoint", format=2)

    @property
    def finished(self):
        return self.folder.summary.is_file()

    def wait_for_round(self, number):
        """Wait until `number` rounds are finished, or fail with the ServerApp."""
        seen = time.monotonic()

        def reached():
            nonlocal seen
            if self.server:
                seen = time.monotonic()
            assert time.monotonic() < seen + 60, f"no ServerApp; faults: {self.faults}"
            return self.finished or (number is not None and self.rounds >= number)

        wait_for(reached, f"round {number}")

    def wait_for_end(self):
        self.wait_for_round(None)
        wait_for(lambda: not self.server, "the ServerApp to end")

    def lines(self, name):
        """A file of JSON lines of the server's own."""
        file = self.part / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def faults(self):
        return self.lines("faults.jsonl")

    @property
    def answered(self):
        """Clients that answered in each round that is in the state."""
        last = {line["round"]: line["clients"] for line in self.lines("answers.jsonl")}
        return [last[number] for number in range(self.rounds)]

    def numbers(self, node):
        """The clients of a node by their numbers in the run."""
        own = read_json(self.sites[node] / "card.json")["clients"]
        return sorted(self.names.index(name) for name in own)

    def check_ledger(self):
        """Every round that was released, or that a client was asked for, was charged before."""
        begun = [self.rounds]
        for site in self.sites:
            for file in (site / "memory" / self.document.token).glob("*.memory"):
                last = trees.read(file, kind="memory", format=2).facts["turns"]["last"]
                begun.append(last + 1)
        assert self.reserved[: max(begun)] == list(range(max(begun)))

    @property
    def reserved(self):
        """The rounds that the ledger was charged for."""
        path = self.folder.ledger(self.document.method, self.document.seed)
        lines = reservations(read_ledger(path)[1]) if path.is_file() else []
        return sorted(line["first"] + k for line in lines for k in range(line["rounds"]))

    def debug(self):
        """`debug` with the cohorts that answered."""
        known = {str(name): place for place, name in enumerate(self.clients.clients)}
        ordered = self.clients.part([known[name] for name in self.names])
        return repeated(self.document, ordered, self.answered)

    @property
    def names(self):
        """Clients in the order of their numbers."""
        return list(read_json(self.run / "roster.json")["numbers"])

    def check_equal(self):
        """The state of the run has the bits of `debug`, and so have the sites' models."""
        result = self.debug()
        found = model_file.read(self.folder.model(self.document.method, self.document.seed)).arrays
        equal(found, result.state)
        return result
