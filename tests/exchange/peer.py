"""A server or one client as a process of its own: it reads and writes frames of bytes, no more.

A frame is a length of 4 bytes and a packed tree whose facts say what to do.
"""

import json
import sys
from pathlib import Path

import numpy as np

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.exchange import client, memory, server, trees
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts
from fedprior.learning.adamap import adamap
from fedprior.learning.adaped import adaped
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.learning.batches import Batches
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic
from fedprior.privacy.cohort import FixedSize, Poisson

STEPS = Steps(local_steps=2, batches=Batches(size=3))
PRIVATE = CentralGaussian(clip=0.5, noise_multiplier=0.5)
# The configuration that both sides have: method -> factory, and how a round goes.
RUNS = {
    "adaped": (adaped, {"cohort": FixedSize(size=2)}),
    "adamap": (adamap, {"cohort": FixedSize(size=2)}),
    "private-fedavg": (fedavg, {"cohort": Poisson(rate=0.7), "channel": PRIVATE}),
}


def build(name, num_features, num_classes):
    """The algorithm of a run and the rest of its agreement."""
    factory, rest = RUNS[name]
    return factory(logistic(num_features, num_classes), steps=STEPS), rest


def pack(arrays=None, **facts):
    content = trees.pack({} if arrays is None else arrays, kind="frame", format=1, **facts)
    return len(content).to_bytes(4, "little") + content


def read(stream):
    """The next frame, or None where the other side has closed."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    content = stream.read(int.from_bytes(head, "little"))
    return trees.unpack(content, source="frame", kind="frame", format=1)


class Server:
    """Holds the state; never sees anybody's data."""

    def begin(self, frame, agreement):
        self.agreement, self.state, self.uploads = agreement, agreement.initial_state(), {}
        return pack()

    def open(self, frame):
        cohort = server.open_round(self.agreement, frame.facts["round"])
        return pack(self.state, cohort=cohort.tolist())

    def upload(self, frame):
        self.uploads[frame.facts["client"]] = server.admit(self.agreement, frame.arrays["upload"])
        return pack()

    def close(self, frame):
        round = frame.facts["round"]
        self.state = server.close_round(self.agreement, self.state, self.uploads, round)
        self.uploads = {}
        return pack(self.state)


class Client:
    """Holds its own samples, and its memory in a folder of its own."""

    def __init__(self, folder, number):
        self.folder, self.number = Path(folder), number

    def begin(self, frame, agreement):
        self.agreement = agreement
        samples = np.load(self.folder / "samples.npz")
        self.data = agreement.facts.client_data(samples["x"], samples["y"])
        return pack()

    def take_part(self, frame):
        state_shape, memory_shape = self.agreement.shapes
        state, facts = frame.tree(state_shape), frame.facts
        own = (facts["token"], self.number)
        with memory.held(self.folder, token=own[0], client=own[1]) as kept:
            before = kept.read(memory_shape, accepted=facts["accepted"])
            upload, after = client.take_part(
                self.agreement, state, before, self.data, self.number, facts["round"]
            )
            kept.write(after, round=facts["round"])
        return pack({"upload": upload}, client=self.number)


def main():
    role, facts = sys.argv[1], Facts.from_json(json.loads(sys.argv[2]))
    peer = Server() if role == "server" else Client(sys.argv[3], int(sys.argv[4]))
    while (frame := read(sys.stdin.buffer)) is not None:
        if frame.facts["do"] == "begin":
            algorithm, rest = build(frame.facts["run"], *facts.shape, facts.num_classes)
            answer = peer.begin(frame, Agreement(algorithm=algorithm, facts=facts, **rest))
        else:
            answer = getattr(peer, frame.facts["do"])(frame)
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
