"""Estimation beside what it stands on: DuckDB's bare group-by, and the peers a user would pick.

    python benchmarks/estimate.py [--rows N] [--groups N] [--repeats N] [--json FILE]
                                  [--part file|keys|groups|peers]

Four parts. `file`: CPU-seconds (user and system, children included) of `fedprior estimate` on a
Parquet file beside those of the bare group-by of the same statistics, in turns, both whole
processes. `keys`: the same with text for keys, values at an offset of 1e6, and CSV. Python modules
should be compiled, as pip leaves them: unset PYTHONDONTWRITEBYTECODE. `groups`: seconds
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
MEANS = "count({0}) AS n, avg({0}) AS mean, var_pop({0}) * count({0}) AS within"
BARE = {"x": MEANS, "far": MEANS, "y": "count(y) AS n, sum(y) AS successes"}
OPTION = {"x": "--value", "far": "--value", "y": "--outcome"}
FILE = (("rows.parquet", "g", "x"), ("rows.parquet", "g", "y"))
KEYS = (
    *(("rows.parquet", key, column) for key in "gt" for column in BARE),
    *(("rows.csv", key, column) for key in "gt" for column in ("x", "y")),
)
ENOUGH = 20  # seconds after which a peer gets no further population
POPULATIONS = ("uniform", "3-spike", "Beta(5,5)", "N(.5,.1)")


def write_rows(path, rows, groups, *, more):
    """int32 key in random order, float32 value, int8 outcome, which differ between groups.

    With `more`, also the key as text and the value far from 0.
    """
    import duckdb

    key = f"hash(i) % {groups}"
    others = f", 'site ' || ({key}) AS t, CAST(1e6 + {{value}} AS DOUBLE) AS far" if more else ""
    level = f"(hash({key}) % 1000) / 1000.0"
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        value = f"{level} + random() + random() + random()"
        connection.execute(
            f"COPY (SELECT CAST({key} AS INTEGER) AS g, CAST({value} AS FLOAT) AS x, "
            f"CAST(random() < 0.2 + 0.3 * {level} AS TINYINT) AS y{others.format(value=value)} "
            f"FROM range({rows}) t(i)) TO '{path}' (FORMAT {path.rpartition('.')[2]})"
        )


def child_seconds(command):
    """(CPU, wall) seconds of a process and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall


def bare_command(path, key, column):
    """The group-by alone, its result fetched as arrays."""
    query = f"SELECT {key}, {BARE[column].format(column)} FROM '{path}' GROUP BY {key}"
    code = (
        "import duckdb; connection = duckdb.connect(); "
        "connection.execute('SET enable_progress_bar = false'); "
        f'connection.execute("{query}").fetchnumpy()'
    )
    return [sys.executable, "-c", code]


def own_command(*words):
    """`fedprior estimate`, whole."""
    call = "import sys; from fedprior.cli.main import main; sys.exit(main())"
    return [sys.executable, "-c", call, "estimate", *words]


def compare_files(rows, groups, repeats, cases):
    """One row a case: medians over turns, and the ratio of the fastest turns as well.

    On a busy machine CPU-seconds of one and the same query differ by a third.
    """
    found = []
    print(f"{rows:,} rows, {min(groups, rows):,} groups; keys g are numbers, t are text")
    names = ("CPU s", "bare", "ratio", "fastest", "wall s", "bare")
    print(f"{'file and columns':26}" + "".join(f"{name:>8}" for name in names))
    with tempfile.TemporaryDirectory() as folder:
        for file, key, column in cases:
            path = os.path.join(folder, file)
            if not os.path.exists(path):
                write_rows(path, rows, groups, more=cases is KEYS)
            own = own_command(path, "--group", key, OPTION[column], column)
            both = (bare_command(path, key, column), own)
            turns = [tuple(map(child_seconds, both)) for _ in range(repeats)]
            bare, own = (
                tuple(statistics.median(turn[k][j] for turn in turns) for j in range(2))
                for k in range(2)
            )
            row = {"case": (file, key, column), "cpu": own[0], "bare_cpu": bare[0], "wall": own[1]}
            row |= {"bare_wall": bare[1], "ratio": own[0] / bare[0], "turns": turns}
            row["fastest"] = min(turn[1][0] for turn in turns) / min(turn[0][0] for turn in turns)
            found.append(row)
            name, ratio, fastest = f"{file} {key} {column}", row["ratio"], row["fastest"]
            shown = (own[0], bare[0], ratio, fastest, own[1], bare[1])
            print(f"{name:26}" + "".join(f"{each:8.2f}" for each in shown), flush=True)
    times = [child_seconds(own_command()) for _ in range(max(repeats, 5))]
    cpu, wall = (statistics.median(turn[k] for turn in times) for k in range(2))
    print(f"embedded baseball, whole process: {cpu:.2f} s of CPU, {wall:.2f} s", flush=True)
    return {"file": found, "baseball": times}


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
    parser.add_argument("--groups", type=lambda text: int(float(text)), default=GROUPS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", choices=("file", "keys", "groups", "peers"), action="append")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    parts = arguments.part or ["file", "groups", "peers"]
    asked = (arguments.rows, arguments.groups, arguments.repeats)
    print(f"{platform.machine()}, {os.cpu_count()} cores, fedprior {fedprior.__version__}")
    figures = {}
    if "file" in parts:
        figures |= compare_files(*asked, FILE)
    if "keys" in parts:
        figures |= compare_files(*asked, KEYS)
    if "groups" in parts:
        figures |= speed_of_groups(arguments.repeats)
    if "peers" in parts:
        figures |= compare_peers()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
