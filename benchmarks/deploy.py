"""Seconds a round on Flower's nodes, beside a bare Flower app that does next to nothing.

    python benchmarks/deploy.py [--nodes 1 4 8] [--rounds 7] [--large] [--sums] [--json FILE]

The bare app imports JAX in the client, runs one step that is cached, and sends back an array of the
size of our message, from as many nodes. Both run here, on 127.0.0.1 with TLS and node keys, one
after the other; the median over rounds leaves out the first, which compiles. `--large` takes a
model of ten million parameters on one node, `--sums` 20 clients on 4 nodes with 44,426 parameters,
with secure sums and without.
"""

import argparse
import json
import re
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from fedprior.data.federation import Federation
from fedprior.deploy.app_folder import write_app
from fedprior.deploy.processes import machines
from fedprior.deploy.rehearsal import prepare
from fedprior.reporting import config as configs
from fedprior.reporting import federations
from fedprior.sites import keys

PROJECT = """
[project]
name = "bare"
version = "1.0.0"
description = "A bare app"
license = {file = "LICENSE"}
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "fedprior"
fab-format-version = 1
flwr-version-target = "1.41.0"
[tool.flwr.app.components]
serverapp = "bare.server:app"
clientapp = "bare.client:app"
[tool.flwr.app.config]
rounds = 3
size = 1
nodes = 1
cache = ""
"""
CLIENT = """
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.train()
def train(message: Message, context: Context) -> Message:
    import jax
    import jax.numpy as jnp
    import numpy as np
    jax.config.update("jax_compilation_cache_dir", context.run_config["cache"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    x = np.frombuffer(message.content.array_records["content"]["bytes"].data, np.float32)
    y = np.asarray(jax.jit(lambda x: x - 0.1 * jnp.sin(x))(x))
    own = Array(dtype="float32", shape=y.shape, stype="raw", data=y.tobytes())
    return Message(RecordDict({"content": ArrayRecord({"bytes": own})}), reply_to=message)
"""
SERVER = """
import time
import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    x = np.zeros(settings["size"], np.float32)
    while len(list(grid.get_node_ids())) < settings["nodes"]:
        time.sleep(0.2)
    for number in range(settings["rounds"]):
        begun = time.monotonic()
        waiting = set()
        for node in grid.get_node_ids():
            own = Array(dtype="float32", shape=x.shape, stype="raw", data=x.tobytes())
            content = RecordDict({"content": ArrayRecord({"bytes": own})})
            waiting |= set(grid.push_messages([Message(content, node, "train")]))
        total = np.zeros_like(x)
        while waiting:
            for reply in grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                data = reply.content.array_records["content"]["bytes"].data
                total += np.frombuffer(data, np.float32)
            time.sleep(0.2 if waiting else 0)
        x = total / settings["nodes"]
        print(f"bare: round {number + 1}, seconds {time.monotonic() - begun:.3f}", flush=True)
"""


def bare(folder, *, nodes, size, rounds):
    """Seconds of each round of the bare app."""
    app = folder / "bare-app"
    (app / "bare").mkdir(parents=True)
    files = {"pyproject.toml": PROJECT, "LICENSE": "-", "bare/__init__.py": ""}
    for name, text in {**files, "bare/client.py": CLIENT, "bare/server.py": SERVER}.items():
        (app / name).write_text(text)
    sites = [folder / f"bare-{number}" for number in range(nodes)]
    for site in sites:
        site.mkdir()
        keys.make_node_key(site / "node.key")
    with machines(folder / "bare-network", sites) as net:
        cache = str(folder / "cache")
        given = {"rounds": rounds, "size": size, "nodes": nodes, "cache": cache}
        run = net.submit(app, given)
        while not net.status(run).startswith("finished"):
            time.sleep(5)
        return seconds(net.flwr("log", run, "--show"))


def ours(folder, clients, *, nodes, changes):
    """(numbers in a message, seconds of each round) of fedprior on the same kind of nodes."""
    config = configs.read(None, ["methods=['adamap']", "training.cohort='everyone'", *changes])
    write_app(folder / "app", config)
    begun = prepare(folder / "app", config, clients, nodes=nodes, out=folder / "ours", deadline=600)
    ends = {}  # of rounds, looked at twice a second: with secure noise a run does not tell

    def seen(progress):
        ends.setdefault(progress["round"], time.monotonic())

    with machines(begun.folder / "network", begun.sites) as net:
        begun.wait(net, net.submit(begun.app, {"run-folder": str(begun.run)}), seen)
    return begun.document.agreement.length, np.diff([ends[k] for k in sorted(ends)]).tolist()


def seconds(log):
    """Seconds of the rounds in a log, the first left out."""
    return [float(found) for found in re.findall(r"round \d+,.* seconds ([0-9.]+)", log)][1:]


def case(name, clients, *, nodes, changes, rounds, against=None):
    """One comparison, printed."""
    folder = Path(tempfile.mkdtemp(prefix="deploy-"))
    own = ["training.rounds=" + str(rounds), *changes]
    size, mine = ours(folder, clients, nodes=nodes, changes=own)
    if against is None:
        peer, what = bare(folder, nodes=nodes, size=size, rounds=rounds), "bare app"
    else:
        what, others = against
        other = Path(tempfile.mkdtemp(prefix="deploy-"))
        rest = ["training.rounds=" + str(rounds), *others]
        peer = ours(other, clients, nodes=nodes, changes=rest)[1]
    row = {
        "case": name,
        "nodes": nodes,
        "numbers": size,
        "seconds": statistics.median(mine),
        "spread": [min(mine), max(mine)],
        "peer": what,
        "peer_seconds": statistics.median(peer),
        "peer_spread": [min(peer), max(peer)],
    }
    row["ratio"] = row["seconds"] / row["peer_seconds"]
    print(json.dumps(row), flush=True)
    return row


def images(num_clients):
    """Clients with 28 x 28 images of noise: as many numbers as LeNet-5 on MNIST has."""
    draws = np.random.default_rng(0)
    owner = np.repeat(np.arange(num_clients), 40)
    x = draws.normal(size=(len(owner), 28, 28, 1)).astype(np.float32)
    y = draws.integers(10, size=len(owner))
    names = [str(label) for label in range(10)]
    return Federation.from_arrays(x, y, owner, classes=names)


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--sums", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    digits = federations.federation(configs.read(None).data, seed=0)
    for nodes in asked.nodes:
        name = "AdaMAP on the digits, 30 clients"
        rows.append(case(name, digits, nodes=nodes, changes=[], rounds=asked.rounds))
    if asked.large:
        one, wide = images(1), ["model.name='mlp'", "model.hidden=[12600]"]
        name = "AdaMAP, mlp of 10 million parameters, 1 client"
        rows.append(case(name, one, nodes=1, changes=wide, rounds=max(4, asked.rounds // 2)))
    if asked.sums:
        private = ["privacy.epsilon=1000", "privacy.delta=1e-3", "privacy.relation='replace-one'"]
        private.append("privacy.noise='secure'")
        masked = [*private, "privacy.secure_sums=true"]
        clear = ("clear uploads, central secure noise", private)
        name = "AdaMAP, LeNet-5, 20 clients, secure sums"
        clients = images(20)
        rows.append(
            case(name, clients, nodes=4, changes=masked, rounds=asked.rounds, against=clear)
        )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
