"""Rounds a second of the simulator, beside a PyTorch loop over clients doing the same work.

    python benchmarks/simulate.py [--quick] [--disk] [--json FILE]

Work: LeNet-5, 10 local steps, float32. FLOPs are those of the model's layers (multiplications and
additions that the mathematics needs), not those of the form that we compute them in.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

import fedprior
from fedprior.data.federation import Split
from fedprior.engines import device
from fedprior.engines.disk import DiskEngine
from fedprior.engines.run import Run
from fedprior.exchange.agreement import Agreement

try:
    import torch_loop
except ImportError:
    torch_loop = None

LAYERS = (86_400, 153_600, 30_720, 10_080, 840)  # multiply-adds an image, layer by layer
FORWARD = sum(LAYERS)
BACKWARD = 2 * FORWARD - LAYERS[0]  # the input needs no gradient
STEP = {"adaped": 2 * (4 * FORWARD + 2 * BACKWARD), "fedavg": 2 * (FORWARD + BACKWARD)}
WORK = (("adaped", 5, 20), ("adaped", 22, 5), ("adaped", 500, 20), ("fedavg", 5, 20))
STEPS = 10
PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32"}  # names of JAX's settings


def images(num_clients, samples):
    """Clients of random 28 x 28 images: time does not depend on what they show."""
    draws = np.random.default_rng(0)
    rows = num_clients * samples
    x = draws.random((rows, 28, 28, 1), np.float32)
    y = draws.integers(0, 10, rows).astype(np.int32)
    size = np.full(num_clients, samples, np.int32)
    split = Split(x, y, (np.arange(num_clients) * samples).astype(np.int32), size)
    names = np.arange(num_clients).astype(str)
    return fedprior.Federation(
        train=split, valid=split, test=split, clients=names, classes=tuple("0123456789")
    )


def ours(method, clients, batch, repeats, rounds):
    """Seconds a round of the device engine, for each of `repeats` calls, and of the first call."""
    factory = {"adaped": fedprior.adaped, "fedavg": fedprior.learning.fedavg}[method]
    steps = fedprior.Steps(
        local_steps=STEPS, weight_decay=1e-4, batches=fedprior.Batches(size=batch)
    )
    algorithm = factory(fedprior.models.lenet5(), steps=steps)
    federation = images(2 * clients, 10 * batch)
    agreement = Agreement.of(algorithm, federation, cohort=fedprior.FixedSize(size=clients))
    run = Run(agreement=agreement, federation=federation, rounds=10**6)
    engine = device.DeviceEngine(run)
    start = time.perf_counter()
    engine.advance(1)
    first = time.perf_counter() - start
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        engine.advance(rounds)
        jax.block_until_ready(engine.state)
        times.append((time.perf_counter() - start) / rounds)
    return times, first


def matrix_rate():
    """The machine's own rate for a large float32 matrix product, in FLOP/s."""
    n = 2048 if jax.default_backend() == "cpu" else 8192
    a = jax.random.normal(jax.random.key(0), (n, n))
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    times = []
    for _ in range(8):
        start = time.perf_counter()
        product(a, a).block_until_ready()
        times.append(time.perf_counter() - start)
    return 2 * n**3 / min(times)


def compare(quick, precision):
    """One row a piece of work: our rate, the peer's time, the ratio, both at one precision."""
    on_cpu = jax.default_backend() == "cpu"
    jax.config.update("jax_default_matmul_precision", PRECISIONS[precision])
    peak = matrix_rate()
    print(f"matrix product, {precision}: {peak / 1e9:,.0f} GFLOP/s")
    print(f"{'work':26}{'ms/round':>10}{'rounds/s':>10}{'GFLOP/s':>10}{'of peak':>9}", end="")
    print(f"{'PyTorch ms':>12}{'ratio':>8}")
    rows = []
    for method, clients, batch in WORK:
        if quick and clients > 100:
            continue
        large = clients >= 100
        rounds = 1 if large and on_cpu else (20 if on_cpu else 100)
        times, first = ours(method, clients, batch, 2 if large and on_cpu else 7, rounds)
        peer = []
        if torch_loop is not None and not (large and not on_cpu):
            where = "cpu" if on_cpu else "cuda"
            repeats = 1 if large else 7
            options = {"device": where, "repeats": repeats, "tf32": precision == "tf32"}
            peer = torch_loop.seconds(method, clients, batch, **options)
        mine, other = statistics.median(times), statistics.median(peer) if peer else None
        rate = STEP[method] * clients * batch * STEPS / mine
        row = {
            "work": f"{method} K={clients} B={batch}",
            "seconds_a_round": mine,
            "fastest": min(times),
            "first_call": first,
            "flops": rate,
            "of_peak": rate / peak,
            "torch_seconds": other,
            "torch_fastest": min(peer) if peer else None,
            "ratio": other / mine if other else None,
        }
        rows.append(row)
        shown = f"{1e3 * other:12.1f}{row['ratio']:8.1f}" if other else "     not run       -"
        print(f"{row['work']:26}{1e3 * mine:10.2f}{1 / mine:10.1f}{rate / 1e9:10.1f}", end="")
        print(f"{100 * rate / peak:8.1f}%{shown}", flush=True)
    if torch_loop is None:
        print("PyTorch is not installed: no ratios. (pip install '.[bench]')")
    return {"matrix_flops": peak, "rows": rows}


def disk_rounds(num_clients):
    """Seconds a round with memories on disk, and this process's own memory, at `num_clients`."""
    from fedprior.data.synthetic import classification

    with tempfile.TemporaryDirectory() as folder:
        federation = classification(
            num_clients=num_clients,
            samples_per_client=(20, 50),
            num_features=100,
            num_classes=10,
            folder=folder,
        )
        model = fedprior.mlp((100,), 10, hidden=(80,))
        algorithm = fedprior.adaped(model, steps=fedprior.Steps(batches=fedprior.Batches(size=10)))
        agreement = Agreement.of(algorithm, federation, cohort=fedprior.FixedSize(size=100))
        run = Run(agreement=agreement, federation=federation, rounds=10**6)
        engine = DiskEngine(run)
        engine.advance(20)
        times = []
        for _ in range(7):
            start = time.perf_counter()
            engine.advance(20)
            jax.block_until_ready(engine.state)
            times.append((time.perf_counter() - start) / 20)
        with open("/proc/self/status") as status:
            own = next(line for line in status if line.startswith("RssAnon"))
        return {"seconds": statistics.median(times), "anonymous_kib": int(own.split()[1])}


def compare_disk():
    """1,000 against 100,000 clients, each in a process of its own."""
    found = {}
    for number in (1_000, 100_000):
        command = [sys.executable, __file__, "--disk-clients", str(number)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[number] = json.loads(line.splitlines()[-1])
        mebibytes = found[number]["anonymous_kib"] / 1024
        print(f"disk store, {number:7,} clients, K = 100, mlp of 8,890 parameters: ", end="")
        print(f"{1e3 * found[number]['seconds']:.1f} ms a round, {mebibytes:.0f} MiB")
    ratio = found[100_000]["seconds"] / found[1_000]["seconds"]
    print(f"ratio of round times: {ratio:.2f}")
    return {"disk": found, "ratio": ratio}


def main():
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without K = 500")
    parser.add_argument("--disk", action="store_true", help="only the disk store")
    parser.add_argument("--no-disk", action="store_true", help="without the disk store")
    parser.add_argument("--disk-clients", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.disk_clients:
        print(json.dumps(disk_rounds(arguments.disk_clients)))
        return
    what = jax.devices()[0].device_kind
    print(f"{what}, {platform.machine()}, jax {jax.__version__}, fedprior {fedprior.__version__}")
    figures = {"device": what, "jax": jax.__version__}
    if not arguments.disk:
        names = ["float32"] if jax.default_backend() == "cpu" else ["float32", "tf32"]
        figures |= {name: compare(arguments.quick, name) for name in names}
    if not arguments.no_disk and jax.default_backend() == "cpu":
        figures |= compare_disk()
    figures["peak_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
