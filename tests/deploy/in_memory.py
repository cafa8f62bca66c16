"""Flower without its processes: a grid in memory, and whole deployments on it.

Messages pass through Flower's own serialization. Time stands still but for who waits.
"""

import json
import random as shuffling
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedprior.core import tree
from fedprior.core.protocols import Cohort
from fedprior.deploy import client_app, server_app, wire
from fedprior.deploy.app_folder import write_agreement, write_app
from fedprior.engines.debug import debug
from fedprior.exchange import trees
from fedprior.privacy.opening import read as read_ledger
from fedprior.privacy.records import reservations
from fedprior.reporting import config as configs
from fedprior.reporting import model_file
from fedprior.reporting.folder import Folder
from fedprior.sites import keys
from fedprior.sites.document import Document
from fedprior.sites.folder import accept, make_site
from fedprior.sites.roster import Roster

SMALL = (
    'methods=["fedavg-fine-tuning"]',
    "model.name=logistic",
    "training.rounds=3",
    "training.local_steps=2",
    "training.batch_size=3",
    "training.cohort=everyone",
    "training.checkpoint_every=1",
)
PRIVATE = (
    'methods=["fedavg"]',
    "privacy.epsilon=8",
    "privacy.delta=1e-2",
    "privacy.clip=0.5",
    "privacy.allow_delta=true",
    "data.most_samples=12",
)
SUMS = (
    *PRIVATE,
    "privacy.secure_sums=true",
    "privacy.relation=replace-one",
    "privacy.missing=2",
)
# Much noise, so that a run may be tried again and again.
SECURE = (*PRIVATE, "privacy.noise=secure", "privacy.noise_multiplier=20.0")
SECURE_SUMS = (*SUMS, "privacy.noise=secure", "privacy.noise_multiplier=20.0")
MATRIX = (
    *PRIVATE,
    "privacy.mechanism=matrix",
    "privacy.coefficients=[1.0, 0.5]",
    "training.cohort=cyclic",
    "training.parts=2",
    "training.rounds=4",
)
ADAMAP = ('methods=["adamap"]',)  # clients have a memory, which must not go astray
ADAPED = ('methods=["adaped"]', "training.cohort=fixed", "training.cohort_size=3")
GROUPS = ((0, 1), (2, 3), (4,))  # clients of each site


class Killed(BaseException):
    """The server's process ends here."""


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@dataclass
class Asked:
    """A request on its way to a node."""

    node: int
    message: Message
    packed: trees.Packed

    @property
    def facts(self):
        return self.packed.facts

    @property
    def do(self):
        return self.facts["do"]

    @property
    def round(self):
        return self.facts.get("round")


def carried(message: Message) -> Message:
    """A message after Flower has taken it apart and put it together again."""
    message.metadata.__dict__["_message_id"] = name = message.object_id
    contents = {each: part.deflate() for each, part in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(name, contents)
    arrived.metadata.__dict__["_message_id"] = name
    return arrived


@dataclass
class MemoryGrid(Grid):
    """Hands each message to the ClientApp of its node; `hook(asked, deliver)` may interfere.

    `deliver()` runs the client and returns its answer. The hook returns what the server gets: a
    message, several, or None. Answers arrive in any order, one at each look.
    """

    nodes: dict[int, dict[str, Any]]
    app: Callable[[Message, Context], Message]
    hook: Callable[[Asked, Callable[[], Message]], Any] = lambda asked, deliver: deliver()
    offline: set[int] = field(default_factory=set)
    sent: list[Asked] = field(default_factory=list)
    answers: list[tuple[Asked, Message]] = field(default_factory=list)

    def __post_init__(self):
        self._waiting, self._order = [], shuffling.Random(0)

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *args, **kwargs): ...

    def send_and_receive(self, messages, *, timeout=None): ...

    def get_node_ids(self):
        return [node for node in self.nodes if node not in self.offline]

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def _push(self, message):
        node, message = message.metadata.dst_node_id, carried(message)
        asked = Asked(node, message, wire.read(message, most=2**30)[0])
        self.sent.append(asked)
        given = self.hook(asked, lambda: self.deliver(asked))
        for answer in given if isinstance(given, list) else [given]:
            if answer is not None:
                self._waiting.append(carried(answer))
        return message.metadata.message_id

    def deliver(self, asked):
        """The client's own answer."""
        context = Context(1, asked.node, dict(self.nodes[asked.node]), RecordDict(), {})
        answer = self.app(asked.message, context)
        self.answers.append((asked, answer))
        return answer

    def pull_messages(self, message_ids):
        """One of the answers that there are for these requests, as chance has it."""
        mine = [m for m in self._waiting if m.metadata.reply_to_message_id in set(message_ids)]
        if not mine:
            return []
        chosen = self._order.choice(mine)
        self._waiting.remove(chosen)
        return [chosen]


@dataclass
class Network:
    """A coordinator's app and run, and the folders of its sites."""

    root: Path
    clients: Any
    groups: tuple[tuple[int, ...], ...]
    config: configs.Config
    document: Document
    agreement_of: Callable[[Document], Any]
    grid: MemoryGrid = None

    @property
    def app(self):
        return self.root / "app"

    @property
    def run(self):
        return self.root / "run"

    @property
    def folder(self):
        return Folder(self.run)

    @property
    def part(self):
        return self.folder.part(self.document.method, self.document.seed)

    @cached_property
    def sites(self):
        return [self.root / f"site-{number}" for number in range(len(self.groups))]

    @property
    def agreement(self):
        return self.agreement_of(self.document)

    def play(self, **settings):
        """What `flwr run` does; again, to resume."""
        app = server_app.server_app(self.agreement_of)
        told = {"run-folder": str(self.run), "join": 1.0, **settings}
        app(self.grid, Context(1, 0, {}, RecordDict(), told))
        return self

    def state(self):
        file = self.folder.model(self.document.method, self.document.seed)
        return model_file.read(file).arrays

    def checkpoint(self):
        return trees.read(self.part / "checkpoint.safetensors", kind="checkpoint", format=2)

    def debug(self, rounds=None, absent=None, federation=None):
        """`debug` with the cohorts that answered: `absent` is {round: clients}."""
        agreement = self.agreement
        return debug(
            agreement.algorithm,
            federation or self.clients,
            rounds=self.document.training.rounds if rounds is None else rounds,
            cohort=Answered(agreement.cohort, absent) if absent else agreement.cohort,
            channel=agreement.channel,
            seed=self.document.seed,
            identity=agreement.identity,
            test=True,
        )

    def faults(self):
        file = self.part / "faults.jsonl"
        lines = file.read_text().splitlines() if file.is_file() else []
        return [json.loads(line) for line in lines]

    def reserved(self):
        """What the ledger has recorded: one charge per attempt."""
        path = self.folder.ledger(self.document.method, self.document.seed)
        return list(reservations(read_ledger(path)[1]))

    def site_of(self, client):
        return next(k for k, group in enumerate(self.groups) if client in group)

    def memory(self, client):
        """The rounds whose memories a client keeps, and its turns."""
        folder = self.sites[self.site_of(client)] / "memory" / self.document.token
        facts = trees.read(folder / f"{client}.memory", kind="memory", format=2).facts
        return facts["rounds"], facts["turns"]

    def errors(self, site):
        path = self.sites[site] / "errors.log"
        return path.read_text() if path.is_file() else ""


@dataclass(frozen=True)
class Answered(Cohort):
    """The clients that another cohort draws, but for those that gave no answer."""

    drawn: Cohort
    absent: dict[int, tuple[int, ...]] = field(hash=False)

    @property
    def cycle(self):
        return self.drawn.cycle

    def expected_size(self, num_clients):
        return self.drawn.expected_size(num_clients)

    def capacity(self, num_clients):
        return self.drawn.capacity(num_clients)

    def draw(self, seed, round, num_clients):
        there = self.drawn.draw(seed, round, num_clients)
        return there[~np.isin(there, self.absent.get(round, ()))]

    def amplify(self, event, num_clients):
        return self.drawn.amplify(event, num_clients)

    def __repr__(self):
        return repr(self.drawn)  # noise and cohorts are keyed by it: the same draws


def deploy(
    root, clients, *changes, groups=GROUPS, rehearsal=False, share_scores=False, agreement_of
):
    """An app, its sites and their agreement; nothing has been played."""
    config = configs.read(None, [*SMALL, *changes])
    write_app(root / "app", config)
    private, cards = config.privacy.epsilon > 0, {}
    for number, group in enumerate(groups):
        own = clients.part(group)
        card = make_site(root / f"site-{number}", own, private=private, share_scores=share_scores)
        cards[f"site-{number}"] = card
    document, _ = write_agreement(root / "app", config, cards, deadline=600, rehearsal=rehearsal)
    network = Network(root, clients, tuple(groups), config, document, agreement_of)
    for site in network.sites:
        accept(site, network.app / "agreement.json")
    nodes = {100 + number: {"site": str(site)} for number, site in enumerate(network.sites)}
    network.grid = MemoryGrid(nodes, client_app.client_app(agreement_of))
    return network


def equal(found, state):
    """The state in files has the very bits of another one."""
    wanted = tree.names(state)
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        np.testing.assert_array_equal(found[name], np.asarray(leaf), err_msg=name)


def changed(answer, *, key=None, arrays=None, facts=None, signature=None):
    """An answer with other arrays or facts, signed with the node's key in the folder `key`."""
    packed, _, signed = wire.read(answer, most=2**30)
    given = dict(packed.arrays) if arrays is None else arrays(dict(packed.arrays))
    told = dict(packed.facts) if facts is None else facts(dict(packed.facts))
    payload = wire.content(given, told)
    if key is not None:
        signed = keys.sign(key / "node.key", payload)
    return resent(answer, payload, signed if signature is None else signature)


def resent(answer, payload, signature):
    """A message with these bytes in the place of an answer."""
    copy = carried(answer)
    copy.content = wire._records(payload, signature)
    return copy


def read_roster(network):
    return Roster.read(network.run / "roster.json")


def spoken(answer):
    """What a client told the server."""
    return wire.read(answer, most=2**30)[0]
