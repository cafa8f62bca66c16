"""Seconds a round of the work of PFLlib's quick start, by our engine.

    python benchmarks/peers.py --data DIR [--rounds 20] [--quick] [--json FILE]

FedAvg on MNIST: 20 clients of a Dirichlet(0.1) split, all taking part, one local epoch of batches
of 10 at a rate of 0.005, a network 5x5x32 - pool - 5x5x64 - pool - 512 - 10, and every round an
evaluation on all training and all test samples. PFLlib's own 16.8 to 20.1 s a round were measured
elsewhere on the same kind of GPU (NVIDIA H200), its clients being trained one after the other, of
374 to 4,641 training samples each. The split here is the seed's whose sizes are nearest to those
without a smaller largest client, which decides how long a round is: 319 to 4,750.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import jax
import numpy as np

import fedprior
from fedprior.engines.device import DeviceEngine
from fedprior.engines.evaluate import scores
from fedprior.engines.pools import Source
from fedprior.engines.run import Run
from fedprior.exchange.agreement import Agreement
from fedprior.models.convolution import convolve_pool_relu, to_cells
from fedprior.models.network import dense

PEER = (16.8, 20.1)  # seconds a round
SEED = 501


def cnn(num_classes=10):
    """The network of PFLlib's quick start: 582,026 parameters."""
    widths = ((25, 32), (25 * 32, 64), (1024, 512), (512, num_classes))

    def init(key):
        layers = [dense(k, *w) for k, w in zip(jax.random.split(key, 4), widths, strict=True)]
        for layer, channels in zip(layers, (1, 32), strict=False):
            layer["weight"] = layer["weight"].reshape(5, 5, channels, -1)
        return layers

    def apply(layers, x):
        x = to_cells(x, 4)
        for layer, side in zip(layers, (4, 2), strict=False):
            x = convolve_pool_relu(x, layer["weight"], layer["bias"], side=side)
        x = x.reshape(x.shape[0], -1)
        x = jax.nn.relu(x @ layers[2]["weight"] + layers[2]["bias"])
        return x @ layers[3]["weight"] + layers[3]["bias"]

    return fedprior.network(init, apply, name="cnn")


def main():
    """Times rounds and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="root folder of MNIST")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="2 rounds on clients of few samples")
    parser.add_argument("--precision", default="default", help="of matrix products, as JAX has it")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    jax.config.update("jax_default_matmul_precision", given.precision)
    shares = {"valid_share": 0.7, "test_share": 0.25} if given.quick else {"valid_share": 0.0}
    federation = fedprior.load_dataset(
        "mnist-dirichlet", root=given.data, num_clients=20, concentration=0.1, seed=SEED, **shares
    )
    algorithm = fedprior.learning.fedavg(
        cnn(),
        steps=fedprior.Steps(local_epochs=1, batches=fedprior.Batches(size=10)),
        gamma_rate=0.005,
        weight="samples",
    )
    agreement = Agreement.of(algorithm, federation)
    run = Run(agreement=agreement, federation=federation, rounds=given.rounds)
    engine = DeviceEngine(run)
    splits = {part: Source(getattr(federation, part), pooled=True) for part in ("train", "test")}
    times, training, accuracy = [], [], 0.0
    for _ in range(2 if given.quick else given.rounds + 1):
        start = time.perf_counter()
        engine.advance(1)
        training.append(time.perf_counter() - start)
        found = scores(
            agreement.rules,
            state=engine.state,
            store=engine.store,
            train=engine.train,
            splits=splits,
            root=agreement.keys().root,
        )
        sizes = federation.test.size
        accuracy = float(np.average(found["test"], weights=sizes))
        times.append(time.perf_counter() - start)
    sizes = federation.train.size
    answer = {
        "device": jax.devices()[0].device_kind,
        "precision": given.precision,
        "sizes": [int(sizes.min()), int(sizes.max())],
        "first_round_s": times[0],
        "round_s": statistics.median(times[1:]),
        "of_which_training_s": statistics.median(training[1:]),
        "peer_round_s": PEER,
        "ratio": [peer / statistics.median(times[1:]) for peer in PEER],
        "test_accuracy": accuracy,
    }
    text = json.dumps(answer, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
