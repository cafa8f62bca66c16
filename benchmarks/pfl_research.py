"""Seconds a round on the shape of pfl-research's CIFAR-10 benchmark, beside pfl and a PyTorch loop.

    python benchmarks/pfl_research.py --peer PYTHON [--rounds 5] [--repeats 3] [--json FILE]

FedAvg, 50 of 100 clients a round, 50 random images of 32 x 32 x 3 each, one local epoch of batches
of 10 at a rate of 0.1, and pfl's `simple_cnn` of 1,626,442 parameters (3x3x32, 3x3x64, pool,
128, 10) without dropout. PYTHON is an interpreter with PyTorch and pfl (`pip install pfl`); the
sides run one after the other, `--repeats` times in turn. CPU seconds are those of the whole process
and do not depend on how busy the machine is, seconds by the clock do. On a CPU PyTorch gets one
thread, which took the least CPU time.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from types import MethodType

import numpy as np

CLIENTS, COHORT, SAMPLES, BATCH, RATE = 100, 50, 50, 10, 0.1
SIDE, CHANNELS, CLASSES = 32, 3, 10
LAYERS = (900 * 27 * 32, 784 * 288 * 64, 12544 * 128, 1280)  # multiply-adds an image
FLOPS = 2 * (3 * sum(LAYERS) - LAYERS[0]) * COHORT * SAMPLES  # the images need no gradient


def images():
    """Random images and labels of all clients."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(CLIENTS, SAMPLES, SIDE, SIDE, CHANNELS)).astype(np.float32)
    return x, draws.integers(0, CLASSES, (CLIENTS, SAMPLES))


def cpu():
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(round, rounds):
    """Seconds by the clock and of CPU of each of `rounds` rounds, the first one left out."""
    times = []
    for _ in range(rounds + 1):
        clock, used = time.perf_counter(), cpu()
        round()
        times.append((time.perf_counter() - clock, cpu() - used))
    return times[1:]


def ours(rounds):
    """Rounds of the device engine with a network of plain convolutions and pools."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    import fedprior
    from fedprior.data.federation import Split
    from fedprior.engines.device import DeviceEngine
    from fedprior.engines.run import Run
    from fedprior.exchange.agreement import Agreement

    def init(key):
        shapes = ((3, 3, 3, 32), (3, 3, 32, 64), (12544, 128), (128, CLASSES))
        make = jax.nn.initializers.glorot_uniform()
        weights = [make(k, s) for k, s in zip(jax.random.split(key, 4), shapes, strict=True)]
        return [{"weight": weight, "bias": jnp.zeros(weight.shape[-1])} for weight in weights]

    def apply(parameters, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        for layer in parameters[:2]:
            x = lax.conv_general_dilated(
                x, layer["weight"], (1, 1), "VALID", dimension_numbers=numbers
            )
            x = jax.nn.relu(x + layer["bias"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        first, last = parameters[2:]
        x = jax.nn.relu(x.reshape(len(x), -1) @ first["weight"] + first["bias"])
        return x @ last["weight"] + last["bias"]

    x, y = images()
    size = np.full(CLIENTS, SAMPLES, np.int32)
    split = Split(
        x.reshape(-1, *x.shape[2:]), y.reshape(-1), np.cumsum(size, dtype=np.int32) - SAMPLES, size
    )
    federation = fedprior.Federation(
        train=split,
        valid=split,
        test=split,
        clients=np.arange(CLIENTS).astype(str),
        classes=tuple("0123456789"),
    )
    steps = fedprior.Steps(local_epochs=1, batches=fedprior.Batches(size=BATCH))
    algorithm = fedprior.learning.fedavg(
        fedprior.network(init, apply), steps=steps, gamma_rate=RATE
    )
    agreement = Agreement.of(algorithm, federation, cohort=fedprior.FixedSize(size=COHORT))
    engine = DeviceEngine(Run(agreement=agreement, federation=federation, rounds=10**6))

    def round():
        engine.advance(1)
        jax.block_until_ready(engine.state)

    return timed(round, rounds)


def torch_model():
    """The network that pfl's benchmark calls `simple_cnn`, without its dropout."""
    import torch
    from torch import nn

    class ChannelsFirst(nn.Module):
        def forward(self, x):
            return x.permute(0, 3, 1, 2)

    layers = [ChannelsFirst(), nn.Conv2d(CHANNELS, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3)]
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(128, CLASSES))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    return model.to(device), device


def torch_rounds(rounds):
    """The same rounds as a plain loop over clients and batches."""
    import torch

    model, device = torch_model()
    x, y = (torch.from_numpy(each).to(device) for each in images())
    start = [p.detach().clone() for p in model.parameters()]
    draws = np.random.default_rng(0)

    def round():
        totals = [torch.zeros_like(p) for p in start]
        for client in draws.choice(CLIENTS, COHORT, replace=False):
            with torch.no_grad():
                torch._foreach_copy_(list(model.parameters()), start)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for at in range(0, SAMPLES, BATCH):
                optimizer.zero_grad()
                outputs = model(x[client, at : at + BATCH])
                torch.nn.functional.cross_entropy(outputs, y[client, at : at + BATCH]).backward()
                optimizer.step()
            with torch.no_grad():
                torch._foreach_add_(totals, list(model.parameters()), alpha=1 / COHORT)
        start[:] = totals
        if device == "cuda":
            torch.cuda.synchronize()

    return timed(round, rounds)


def pfl_rounds(rounds):
    """The same rounds by pfl's simulation backend."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    module, device = torch_model()

    def loss(self, inputs, targets, eval=False):
        return torch.nn.functional.cross_entropy(self(inputs), targets)

    module.loss = MethodType(loss, module)
    module.metrics = MethodType(lambda self, inputs, targets, eval=True: {}, module)
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    x, y = (torch.from_numpy(each).to(device) for each in images())
    users = [[x[client], y[client]] for client in range(CLIENTS)]
    data = FederatedDataset.from_slices(users, get_user_sampler("random", range(CLIENTS)))
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByUser()])
    times = []

    class Stopwatch(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            if device == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter(), cpu()))
            return False, Metrics()

    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 2,
            evaluation_frequency=10**9,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=RATE, local_num_epochs=1, local_batch_size=BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Stopwatch()],
    )
    spans = np.diff(np.asarray(times), axis=0)  # the first round warms up
    return spans[-rounds:].tolist()


SIDES = {"ours": ours, "pfl": pfl_rounds, "torch": torch_rounds}


def run(side, python, rounds):
    """Rounds of one side in a process of its own."""
    command = [python, __file__, "--side", side, "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{side} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=sys.executable, help="interpreter with PyTorch and pfl")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side, in turn")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(SIDES[arguments.side](arguments.rounds)))
        return
    times = {side: [] for side in arguments.sides}
    for _ in range(arguments.repeats):
        for side in arguments.sides:
            python = sys.executable if side == "ours" else arguments.peer
            times[side] += run(side, python, arguments.rounds)
    print(f"{FLOPS / 1e9:.0f} GFLOP a round")
    print(f"{'side':8}{'s/round':>10}{'CPU s':>8}{'[least, most]':>18}{'GFLOP/s':>9}{'ratio':>14}")
    figures = {}
    for side, rows in times.items():
        clock, used = (sorted(column) for column in zip(*rows, strict=True))
        row = figures[side] = {"seconds": statistics.median(clock), "cpu": statistics.median(used)}
        row |= {"least_cpu": used[0], "most_cpu": used[-1], "least": clock[0], "most": clock[-1]}
        base = figures.get("ours", row)
        ratio = f"{row['seconds'] / base['seconds']:.2f} ({row['cpu'] / base['cpu']:.2f})"
        span = f"[{used[0]:.2f}, {used[-1]:.2f}]"
        print(f"{side:8}{row['seconds']:10.3f}{row['cpu']:8.2f}{span:>18}", end="")
        print(f"{FLOPS / row['seconds'] / 1e9:9.0f}{ratio:>14}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
