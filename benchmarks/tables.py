"""Tables by client: what `fedprior train` gives beside gradient boosting, on the same rows.

    python benchmarks/tables.py --data DIR [--datasets NAME ...] [--methods NAME ...]
        [--seeds N ...] [--out FILE] [--show]

A piece is one method on one data set for one seed; pieces that the file has are not run again, and
`--show` prints the tables of what it has. DIR is a folder with tables/, groups/,
grouped_regression/ and elections/ as `DATASETS` names them.

Data sets, splits, competitors and scores were fixed before any of them was run. Every client's rows
are split by `from_table`: 60% training, 15% validation, 25% test. Boosting is scikit-learn's
HistGradientBoosting on the columns as they are (missing cells and categories its own way): early
stopping on the validation rows, and the smallest leaf, 3 or 20 rows, chosen by their loss. Ours has
the defaults of `fedprior train`, which look at the same validation rows.
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
    "boosting alone",
    "boosting pooled",
    "boosting pooled with id",
    "adamap",
    "fedavg-fine-tuning",
    "mixed model",
)
