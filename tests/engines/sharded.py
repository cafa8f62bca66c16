"""What is compared between one device and four: `python sharded.py FOLDER`, with four devices.

It prints one line of JSON: by name, the largest difference of all that a run decides, and facts.
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import toys

import fedprior
from fedprior.channels import CentralGaussian
from fedprior.core.algorithm import Algorithm
from fedprior.core.check import PrivacyError
from fedprior.data import synthetic
from fedprior.engines import device
from fedprior.engines.mesh import mesh_of
from fedprior.engines.run import Run
from fedprior.exchange import Agreement
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms

SMALL = toys.Scripted(((0, 2, 3), (0, 1), (5,), (0, 4, 5)), 3)


def everything(result, kept=()):
    """All that a run decides, as arrays."""
    memories, enrolled = result.store.read(np.arange(result.federation.num_clients))
    counts = [[entry["clients"], entry["left_out"]] for entry in result.history]
    models = (result.state, memories, enrolled, result.thetas, list(kept))
    trees = (models, result.scores, result.valid_scores, np.array(counts))
    return [np.asarray(leaf, float) for leaf in jax.tree.leaves(trees)]


def difference(first, second):
    """The largest one; infinite where only one is NaN."""
    pairs = list(zip(first, second, strict=True))
    if not all(np.array_equal(np.isnan(a), np.isnan(b)) for a, b in pairs):
        return np.inf
    return max(float(np.nan_to_num(np.abs(a - b)).max(initial=0)) for a, b in pairs)


def compared(algorithm, clients, **run):
    """The largest difference between one device and four."""
    found = []
    for devices in (1, 4):
        kept = []
        result = fedprior.simulate(
            algorithm,
            clients,
            devices=devices,
            keep=lambda count, thetas: kept.append(jax.tree.leaves(thetas)[0]),  # noqa: B023
            **run,
        )
        found.append(everything(result, [np.concatenate(kept)]))
    return difference(*found)


def network():
    clients = synthetic.classification(
        num_clients=11, samples_per_client=(4, 9), num_features=3, num_classes=2, seed=1
    )
    model = fedprior.models.mlp((3,), 2, hidden=(8,))
    steps = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=3))
    return fedprior.learning.adaped(model, steps=steps), clients


def exchanges(algorithm, clients):
    """How often shards exchange anything: in the loop over rounds, and elsewhere."""
    agreement = Agreement.of(algorithm, clients, cohort=fedprior.FixedSize(size=5))
    run = Run(agreement=agreement, federation=clients, rounds=3, mesh=mesh_of(4))
    engine = device.DeviceEngine(run)
    models = device.Models(engine.state, engine.store.memories, engine.store.enrolled)
    given = (engine.train.pool(), *run.cohorts(0, 3, device.LONGEST), 0, 3, agreement.keys())
    lowered = device._compiled.lower(models, *given, rules=agreement.rules, mesh=run.mesh)
    text = lowered.compile().as_text()
    name = re.search(r"while\(.*body=%?([\w.]+)", text[text.index("ENTRY") :])[1]
    body = text[text.index(f"\n%{name} ") :]
    kinds = r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
    return {
        "loop": re.findall(kinds, body[: body.index("\n}")]),
        "all": sorted(set(re.findall(kinds, text))),
    }


def gathering(toy: Algorithm):
    """A server that sees every message by itself."""

    def update(state, total):
        value = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), total)
        return toy.update(state, value)

    return replace(toy, pools="gather", update=update)


def failing(toy: Algorithm):
    """A client with a large input has a message that is no number."""

    def local(state, memory, data, key):
        message, after = toy.local(state, memory, data, key)
        x, _, _ = data.all()
        bad = jnp.any(x > toys.MARK)
        return jax.tree.map(lambda leaf: jnp.where(bad, jnp.nan, leaf), message), after

    return replace(toy, local=local)


def private(toy, plane, folder):
    """The difference between devices with noise and with next to none, and what was spent on each.

    Noise that were drawn on every shard, or added before the sum over shards, would differ.
    """
    run = {"rounds": 4, "cohort": fedprior.Poisson(rate=0.5), "seed": 3}
    terms = Terms(delta=1e-2, relation="add-remove", view="central", noise="simulated")
    channel, spent, states = CentralGaussian(clip=0.5, noise_multiplier=2.0), [], []
    for devices in (1, 4):
        with Ledger(folder / f"ledger-{devices}.jsonl", terms) as ledger:
            found = fedprior.simulate(
                toy, plane, devices=devices, channel=channel, ledger=ledger, **run
            )
            spent.append(ledger.spent)
        states.append(np.asarray(found.state["gamma"]))
    plain = replace(channel, noise_multiplier=1e-9)
    return {
        "noisy": float(np.abs(states[0] - states[1]).max()),
        "plain": compared(toy, plane, channel=plain, **run),
        "spent": spent,
    }


def refused(call):
    try:
        call()
    except (ValueError, PrivacyError) as error:
        return [type(error).__name__, str(error)]
    return None


def resumed(toy, plane, folder, store):
    """Whether a run in two parts has the bits of one; and what is said on another mesh."""
    run = {"cohort": SMALL, "store": store, "devices": 4}
    whole = fedprior.simulate(toy, plane, rounds=8, **run)
    saving = fedprior.Saving(folder=folder / store, every=2, resume=True)
    fedprior.simulate(toy, plane, rounds=5, saving=saving, **run)
    again = fedprior.simulate(toy, plane, rounds=8, saving=saving, **run)
    other = {**run, "devices": 2}
    said = refused(lambda: fedprior.simulate(toy, plane, rounds=8, saving=saving, **other))
    return difference(everything(whole), everything(again)), said


def main(folder):
    toy, plane = toys.averaging(), toys.points()
    algorithm, clients = network()
    run = {"rounds": 3, "cohort": fedprior.FixedSize(size=5), "evaluate_every": 2, "metric": "auc"}
    marked = toys.points(marked=2)
    secure = CentralGaussian(clip=1.0, noise_multiplier=1.0, noise="secure")
    found = {
        "mlp": compared(algorithm, clients, **run),
        "everyone": compared(toy, plane, rounds=3),
        "few": compared(toy, plane, rounds=8, cohort=SMALL),
        "few on disk": compared(toy, plane, rounds=8, cohort=SMALL, store="disk"),
        "more shards than clients": compared(toy, toys.points(3), rounds=3),
        "gather": compared(gathering(toy), plane, rounds=8, cohort=SMALL),
        "not finite": compared(failing(toy), marked, rounds=3),
        "left out": fedprior.simulate(failing(toy), marked, rounds=3, devices=4).left_out,
        "exchanges": exchanges(algorithm, clients),
        "private": private(toy, plane, folder),
        "resumed": [resumed(toy, plane, folder, store) for store in ("device", "disk")],
        "secure": refused(
            lambda: fedprior.simulate(toy, plane, rounds=1, channel=secure, devices=4)
        ),
        "too many": refused(lambda: fedprior.simulate(toy, plane, rounds=1, devices=5)),
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
