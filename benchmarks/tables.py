"""Tables by client: what `fedprior train` gives beside gradient boosting, on the same rows.

    python benchmarks/tables.py --data DIR [--datasets NAME ...] [--methods NAME ...]
        [--seeds N ...] [--out FILE] [--show [FILE ...]]

A piece is one method on one data set for one seed; pieces that the file has are not run again, and
`--show` prints the tables of files from several processes. DIR is a folder with tables/, groups/,
grouped_regression/ and elections/ as `DATASETS` names them.

Data sets, splits, competitors and scores were fixed before any of them was run. Every client's rows
are split by `from_table`: 60% training, 15% validation, 25% test. Boosting is scikit-learn's
HistGradientBoosting on the columns as they are (missing cells and categories its own way): early
stopping on the validation rows, and the smallest leaf, 3 or 20 rows, chosen by their loss; a client
alone has its own rows to choose by. Ours has the defaults of `fedprior train`, which look at the
same validation rows.
"""

import argparse
import csv
import gzip
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SEEDS = (0, 1, 2, 3, 4)  # of the table; 100 to 102 are for design, by validation scores
DIRICHLET = 0.3
SPREAD = 1.0  # of the logarithm of a client's size, in the splits by size


@dataclass(frozen=True)
class Dataset:
    """A real table: its file, the column to predict, its clients, columns that are no features.

    `clients` is a column; or ("dirichlet", m), m clients whose classes are drawn by
    Dirichlet(0.3); or ("sizes", m), rows at random among m clients of log-normal sizes.
    """

    file: str
    label: str
    clients: str | tuple[str, int]
    exclude: tuple[str, ...] = ()
    change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = lambda columns: columns


def of_elections(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A county a row: the Republican share in 2020, from the shares and the votes before."""
    year, rows = columns["year"].astype(int), {}
    share = columns["rep_votes"].astype(float) / columns["total_votes"].astype(float)
    for place, county in enumerate(columns["fips"]):
        own = rows.setdefault(county, {"state": columns["state"][place]})
        own[f"share_{year[place]}"] = share[place]
        if year[place] == 2016:
            own["log_votes"] = np.log(float(columns["total_votes"][place]))
    names = ("state", *(f"share_{each}" for each in range(2000, 2021, 4)), "log_votes")
    kept = [own for own in rows.values() if all(name in own for name in names)]
    return {name: np.array([own[name] for own in kept], str) for name in names}


LETTERS, SATELLITE = "tables/letter_recognition.csv.gz", "tables/satellite.csv.gz"
DATASETS = {
    "vowels by speaker": Dataset("tables/vowel_by_speaker.csv", "Class", "speaker"),
    "letters, Dirichlet(0.3)": Dataset(LETTERS, "lettr", ("dirichlet", 50)),
    "letters, by size": Dataset(LETTERS, "lettr", ("sizes", 50)),
    "satellite, Dirichlet(0.3)": Dataset(SATELLITE, "classes", ("dirichlet", 30)),
    "satellite, by size": Dataset(SATELLITE, "classes", ("sizes", 30)),
    "contraception by district": Dataset(
        "groups/contraception.csv", "use", "district", exclude=("woman",)
    ),
    "radon by county": Dataset(
        "grouped_regression/radon_minnesota.csv",
        "log.radon",
        "county",
        exclude=("rownames", "county.name"),
    ),
    "elections by state": Dataset(
        "elections/us_county_presidential_2000_2020.csv",
        "share_2020",
        "state",
        change=of_elections,
    ),
}
METHODS = (
    "boosting-alone",
    "boosting-pooled",
    "boosting-pooled-with-id",
    "adamap",
    "fedavg-fine-tuning",
    "mixed-model",
)


def read_columns(file: Path) -> dict[str, np.ndarray]:
    """Columns of a CSV file, as text."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as stream:
        rows = list(csv.reader(stream))
    return {name: np.array(cells) for name, *cells in zip(*rows, strict=True)}


def drawn(dataset: Dataset, root: Path, seed: int, out: Path) -> Path:
    """The table with its client column, `client`, as a CSV file."""
    from fedprior.core import random
    from fedprior.data import partition

    columns = dataset.change(read_columns(root / dataset.file))
    label = columns[dataset.label]
    if isinstance(dataset.clients, str):
        client = columns.pop(dataset.clients)
    else:
        kind, number = dataset.clients
        if kind == "dirichlet":
            options = {"num_clients": number, "concentration": DIRICHLET, "min_samples": 3}
            rows = partition.dirichlet(label, seed=seed, **options)
        else:
            draws = random.stream(seed, "partition")
            share = np.exp(SPREAD * draws.normal(size=number))
            ends = np.rint(np.cumsum(share)[:-1] / share.sum() * len(label)).astype(int)
            rows = np.split(draws.permutation(len(label)), ends)
        client = np.empty(len(label), "U8")
        for place, own in enumerate(rows):
            client[own] = f"c{place:03}"
    kept = {name: cells for name, cells in columns.items() if name not in dataset.exclude}
    with out.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["client", *kept])
        writer.writerows(zip(client, *kept.values(), strict=True))
    return out


def measured(predictions: np.ndarray, clients) -> dict[str, float]:
    """Accuracy and log loss, means over clients with test rows, or the RMSE over all rows."""
    test = clients.test
    if predictions.ndim == 1:
        return {"rmse": float(np.sqrt(np.mean((predictions - test.y) ** 2)))}
    right = predictions.argmax(axis=1) == test.y
    own = predictions[np.arange(len(test.y)), test.y]
    loss = -np.log(np.maximum(own, 1e-12))
    runs = [slice(a, a + n) for a, n in zip(test.start, test.size, strict=True) if n]
    return {
        "accuracy": float(np.mean([right[run].mean() for run in runs])),
        "log loss": float(np.mean([loss[run].mean() for run in runs])),
    }


def settled(file: Path, label: str, method: str, seed: int):
    """(configuration, clients) of `fedprior train --data FILE --algorithm METHOD`."""
    from fedprior.reporting import federations
    from fedprior.reporting.config import read
    from fedprior.reporting.settle import settle

    asked = {"data.path": str(file), "data.client": ["client"], "data.label": label}
    asked |= {"methods": [method], "seed": seed}
    config = read(None, [f"{key}={json.dumps(value)}" for key, value in asked.items()])
    found = settle(config, federations.federation(config.data, seed=seed), frozenset())
    return found.config, federations.federation(found.config.data, seed=seed)


def trained(file: Path, label: str, method: str, seed: int):
    """(predictions for the test rows, clients, what was chosen) of a method with its defaults."""
    import jax

    from fedprior.engines.simulate import simulate
    from fedprior.exchange.facts import Facts
    from fedprior.reporting.training import Study

    config, clients = settled(file, label, method, seed)
    training = Study(config, Facts.of(clients)).training(method)
    result = simulate(training.algorithm, clients, **training.arguments, seed=seed, test=False)
    test = clients.test.padded(np.arange(clients.num_clients))
    outputs = jax.vmap(training.algorithm.predict)(result.thetas, test.x)
    if clients.classes is not None:
        outputs = jax.nn.softmax(outputs)
    outputs = np.asarray(outputs, float)
    pool = [own[:size] for own, size in zip(outputs, clients.test.size, strict=True)]
    chosen = {"model": config.model.name, "hidden": list(config.model.hidden)}
    chosen |= {"bins": config.data.bins, **config.options[method]}
    return np.concatenate(pool), clients, chosen


def piece(name: str, method: str, root: Path, seed: int) -> dict:
    """One line of the file of pieces."""
    from fedprior.data.table import from_table
    from fedprior.reporting import boosting, mixed

    start, dataset, chosen = time.perf_counter(), DATASETS[name], {}
    with tempfile.TemporaryDirectory() as folder:
        file = drawn(dataset, root, seed, Path(folder) / "table.csv")
        if method in ("adamap", "fedavg-fine-tuning"):
            predictions, clients, chosen = trained(file, dataset.label, method, seed)
        else:
            clients = from_table(file, client="client", label=dataset.label, seed=seed)
            if method in boosting.KINDS:
                predictions = boosting.boosting(clients, method, seed=seed)
            elif mixed.fits(clients):
                predictions = mixed.predictions(clients, clients.test)
            else:
                return {"dataset": name, "method": method, "seed": seed, "scores": None}
    seconds = round(time.perf_counter() - start, 1)
    scores = measured(predictions, clients)
    about = {"dataset": name, "method": method, "seed": seed, "seconds": seconds}
    return {**about, "chosen": chosen, "scores": scores}


def shown(rows: list[dict]) -> str:
    """Tables of the pieces: means over seeds, and AdaMAP minus each competitor with intervals."""
    from scipy.stats import t

    lines = []
    for score, unit, better in (("accuracy", 100, 1), ("log loss", 1, -1), ("rmse", 1, -1)):
        known = {
            (row["dataset"], row["method"], row["seed"]): unit * row["scores"][score]
            for row in rows
            if row["scores"] and score in row["scores"]
        }
        names = [name for name in DATASETS if any(key[0] == name for key in known)]
        if not names:
            continue
        digits = {"accuracy": 1, "log loss": 3, "rmse": 4}[score]
        lines += ["", f"**{score}**", "", "| | " + " | ".join(METHODS) + " |"]
        lines += ["|---" * (len(METHODS) + 1) + "|"]
        differences = {method: [] for method in METHODS}
        for name in names:
            means, gaps = [], []
            for method in METHODS:
                own = {key[2]: value for key, value in known.items() if key[:2] == (name, method)}
                ours = {
                    key[2]: value for key, value in known.items() if key[:2] == (name, "adamap")
                }
                both = sorted(set(own) & set(ours))
                means.append(f"{np.mean(list(own.values())):.{digits}f}" if own else "")
                gap = np.array([better * (ours[seed] - own[seed]) for seed in both])
                if method == "adamap" or not both:
                    gaps.append("")
                    continue
                relative = gap / np.array([own[seed] for seed in both]) * 100
                differences[method].append(relative.mean() if score == "rmse" else gap.mean())
                gaps.append(f"{gap.mean():+.{digits}f}")
                if len(gap) > 1:
                    half = t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / len(gap) ** 0.5
                    gaps[-1] += f" ± {half:.{digits}f}"
            lines.append(f"| {name} | " + " | ".join(means) + " |")
            lines.append("| AdaMAP's gain | " + " | ".join(gaps) + " |")
        unit_name = "%" if score == "rmse" else ""
        whole = [
            f"{np.mean(each):+.{2 if score == 'rmse' else digits}f}{unit_name} ({len(each)})"
            if each
            else ""
            for each in differences.values()
        ]
        lines.append("| **mean gain (number of data sets)** | " + " | ".join(whole) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the pieces that are missing, one line of the file each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--datasets", nargs="*", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path("tables.jsonl"))
    parser.add_argument("--show", nargs="*", type=Path, help="Only print the tables of the files.")
    asked = parser.parse_args()
    files = [asked.out] if asked.show is None else [*asked.show] or [asked.out]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    done = {(row["dataset"], row["method"], row["seed"]) for row in rows}
    wanted = ((a, b, c) for c in asked.seeds for a in asked.datasets for b in asked.methods)
    for name, method, seed in wanted if asked.show is None else ():
        if (name, method, seed) not in done:
            rows.append(piece(name, method, asked.data, seed))
            with asked.out.open("a") as stream:
                stream.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    print(shown(rows))


if __name__ == "__main__":
    main()
