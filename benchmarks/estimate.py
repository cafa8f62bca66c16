"""Estimation beside what it stands on: DuckDB's bare group-by, and the peers a user would pick.

    python benchmarks/estimate.py [--rows N] [--repeats N] [--part file|groups|peers] [--json FILE]

Three parts. `file`: CPU-seconds (user and system, children included) of `fedprior estimate` on a
Parquet file beside those of the bare group-by of the same statistics, in turns. `groups`: seconds
from sufficient statistics to estimates with intervals. `peers`: gain over raw means and seconds at
10,000 groups of 14 outcomes.
"""

import argparse
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

import fedprior
from fedprior.estimation.statistics import Counts, Means
from fedprior.estimation.table import GroupRates

GROUPS = 1_000_000
BARE = {
    "--value": "count(x) AS n, avg(x) AS mean, var_pop(x) * count(x) AS within",
    "--outcome": "count(y) AS n, sum(y) AS successes",
}
COLUMN = {"--value": "x", "--outcome": "y"}
ENOUGH = 20  # seconds after which a peer gets no further population
POPULATIONS = ("uniform", "3-spike", "Beta(5,5)", "N(.5,.1)")


def write_rows(path, rows):
    """int32 key in random order, float32 value, int8 outcome, which differ between groups."""
    import duckdb

    key = f"hash(i) % {GROUPS}"
    level = f"(hash({key}) % 1000) / 1000.0"
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT CAST({key} AS INTEGER) AS g, "
            f"CAST({level} + random() + random() + random() AS FLOAT) AS x, "
            f"CAST(random() < 0.2 + 0.3 * {level} AS TINYINT) AS y FROM range({rows}) t(i)) "
            f"TO '{path}' (FORMAT parquet)"
        )


def child_seconds(command):
    """(CPU, wall) seconds of a process and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall


def bare_command(path, option):
    """The group-by alone, its result fetched as arrays."""
    code = (
        "import duckdb; duckdb.connect().execute("
        f"\"SELECT g, {BARE[option]} FROM '{path}' GROUP BY g\").fetchnumpy()"
    )
    return [sys.executable, "-c", code]


def own_command(path, option):
    """`fedprior estimate`, whole."""
    call = "import sys; from fedprior.cli.main import main; sys.exit(main())"
    words = ["estimate", path, "--group", "g", option, COLUMN[option]]
    return [sys.executable, "-c", call, *words]


def compare_file(rows, repeats):
    """One row a kind of column: medians over turns, and the ratio of the fastest turns as well.

    On a busy machine CPU-seconds of one and the same query differ by a third.
    """
    found = []
    print(f"{rows:,} rows, {min(GROUPS, rows):,} groups, Parquet")
    print(
        f"{'command':20}{'CPU s':>8}{'bare':>8}{'ratio':>7}{'fastest':>9}{'wall s':>8}{'bare':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.parquet")
        write_rows(path, rows)
        for option in BARE:
            turns = [
                (
                    child_seconds(bare_command(path, option)),
                    child_seconds(own_command(path, option)),
                )
                for _ in range(repeats)
            ]
            bare, own = (
                tuple(statistics.median(turn[k][j] for turn in turns) for j in range(2))
                for k in range(2)
            )
            row = {"option": option, "cpu": own[0], "bare_cpu": bare[0], "wall": own[1]}
            row |= {"bare_wall": bare[1], "ratio": own[0] / bare[0], "turns": turns}
            row["fastest"] = min(turn[1][0] for turn in turns) / min(turn[0][0] for turn in turns)
            found.append(row)
            name, ratio, fastest = f"estimate {option}", row["ratio"], row["fastest"]
            print(f"{name:20}{own[0]:8.2f}{bare[0]:8.2f}{ratio:7.2f}{fastest:9.2f}", end="")
            print(f"{own[1]:8.2f}{bare[1]:8.2f}", flush=True)
    command = [*own_command("baseball", "--value")[:3], "estimate"]
    walls = [child_seconds(command)[1] for _ in range(max(repeats, 5))]
    print(f"embedded baseball, whole process: {statistics.median(walls):.2f} s", flush=True)
    return {"file": found, "baseball_wall": walls}


def sizes(draws, number):
    """Group sizes of 1 to 1,000, lognormal with median 12."""
    return np.clip(np.exp(draws.normal(np.log(12), 1.2, number)), 1, 1000).astype(np.int64)


def speed_of_groups(repeats):
    """Seconds from sufficient statistics to estimates with intervals, the fastest of `repeats`."""
    from fedprior.estimation.conjugate.estimate import estimate_rates
    from fedprior.estimation.gaussian.estimate import estimate_means

    draws = np.random.default_rng(0)
    n = sizes(draws, 10_000_000)
    counts = Counts(n=n, successes=draws.binomial(n, draws.beta(2, 8, len(n))))
    mean = draws.normal(0, 0.1, len(n)) + draws.standard_normal(len(n)) * 0.5 / np.sqrt(n)
    means = Means(n=n, mean=mean, within=0.25 * draws.chisquare(np.maximum(n - 1, 1e-9)))
    few = Counts(n=n[:1_000_000], successes=counts.successes[:1_000_000])
    jobs = {
        "binomial, Beta, intervals, 1e7 groups": lambda: estimate_rates(counts),
        "Gaussian, REML, intervals, 1e7 groups": lambda: estimate_means(means),
        "binomial, nonparametric, 1e6 groups": lambda: estimate_rates(
            few, population="nonparametric"
        ),
    }
    found = {}
    print(f"{'job':42}{'seconds':>9}{'CPU s':>8}")
    for name, job in jobs.items():
        times = []
        for _ in range(repeats):
            start, cpu = time.perf_counter(), time.process_time()
            job()
            times.append((time.perf_counter() - start, time.process_time() - cpu))
        found[name] = min(times)
        print(f"{name:42}{found[name][0]:9.2f}{found[name][1]:8.2f}", flush=True)
    return {"groups": found}


def true_rates(population, draws, number):
    """The rate of each group."""
    if population == "uniform":
        return draws.random(number)
    if population == "3-spike":
        return draws.choice([0.25, 0.5, 0.75], number)
    if population == "Beta(5,5)":
        return draws.beta(5, 5, number)
    return np.clip(draws.normal(0.5, 0.1, number), 0, 1)


def ours(**options):
    """From rows to one personal rate a group."""

    def run(y, group):
        return GroupRates(**options).fit(y, group).predict(np.unique(group))

    return run


def statsmodels_mixed(y, group):
    """A random intercept by REML."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    fitted = MixedLM(y, np.ones((len(y), 1)), groups=group).fit(reml=True)
    effects = fitted.random_effects
    return fitted.fe_params[0] + np.array([float(effects[g].iloc[0]) for g in np.unique(group)])


def encoded(name, **options):
    """An encoder of category_encoders."""

    def run(y, group):
        import category_encoders
        import pandas

        encoder = getattr(category_encoders, name)(cols=["g"], **options)
        encoder.fit(pandas.DataFrame({"g": group.astype(str)}), pandas.Series(y))
        unique = pandas.DataFrame({"g": np.unique(group).astype(str)})
        return np.asarray(encoder.transform(unique))[:, 0]

    return run


def sklearn_target(y, group):
    """Scikit-learn's own, with its smoothing "auto"."""
    from sklearn.preprocessing import TargetEncoder

    encoder = TargetEncoder(target_type="continuous").fit(group[:, None], y)
    return encoder.transform(np.unique(group)[:, None])[:, 0]


PEERS = {
    "fedprior GroupRates": ("fedprior", ours()),
    "fedprior, nonparametric": ("fedprior", ours(population="nonparametric")),
    "statsmodels MixedLM": ("statsmodels", statsmodels_mixed),
    "category_encoders JamesStein": ("category_encoders", encoded("JamesSteinEncoder")),
    "category_encoders TargetEncoder": ("category_encoders", encoded("TargetEncoder")),
    "scikit-learn TargetEncoder": ("sklearn", sklearn_target),
}


def compare_peers(number=10_000, size=14):
    """Gain over raw means in percent, from rows, each at its defaults; median seconds."""
    print(f"gain over raw means in %, {number:,} groups of {size} outcomes, from rows")
    print(f"{'':34}" + "".join(f"{each:>11}" for each in POPULATIONS) + f"{'seconds':>9}")
    group = np.repeat(np.arange(number), size)
    tables = []
    for seed, population in enumerate(POPULATIONS):
        draws = np.random.default_rng(seed)
        theta = true_rates(population, draws, number)
        tables.append((theta, (draws.random(len(group)) < theta[group]).astype(float)))
    found = {}
    for name, (module, method) in PEERS.items():
        try:
            importlib.import_module(module)
        except ImportError:
            print(f"{name:34} not installed: pip install '.[bench]'")
            continue
        gains, times = [], []
        for theta, y in tables:
            if sum(times) > ENOUGH:
                gains.append(float("nan"))
                continue
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # theirs
                personal = method(y, group)
            times.append(time.perf_counter() - start)
            raw = np.bincount(group, y) / size
            gains.append(100 * (1 - np.mean((personal - theta) ** 2) / np.mean((raw - theta) ** 2)))
        found[name] = {"gains": gains, "seconds": times}
        shown = (f"{gain:11.1f}" if gain == gain else f"{'not run':>11}" for gain in gains)
        print(f"{name:34}" + "".join(shown) + f"{statistics.median(times):9.3f}", flush=True)
    return {"peers": found}


def main():
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=100_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", choices=("file", "groups", "peers"), action="append")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    parts = arguments.part or ["file", "groups", "peers"]
    print(f"{platform.machine()}, {os.cpu_count()} cores, fedprior {fedprior.__version__}")
    figures = {}
    if "file" in parts:
        figures |= compare_file(arguments.rows, arguments.repeats)
    if "groups" in parts:
        figures |= speed_of_groups(arguments.repeats)
    if "peers" in parts:
        figures |= compare_peers()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
