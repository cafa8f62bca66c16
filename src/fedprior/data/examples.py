"""Small simulated tables on disk, with which the commands of the documentation can be tried."""

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedprior.core import check, random
from fedprior.core.files import make_folder, replacing
from fedprior.data import example_tables as tables
from fedprior.data.example_tables import Columns, Draws
from fedprior.data.writing import write_table, writing

_OWNER = "datasets write"


@dataclass(frozen=True, kw_only=True)
class Example:
    """Tables by the name of their file, or arrays of clients if the name ends in .npz.

    Every row is simulated; `make(draws)` gives the same cells for the same seed.
    """

    name: str
    description: str
    files: tuple[str, ...]
    make: Callable[[Draws], Mapping[str, Columns]]

    def tables(self, *, seed: int = 0) -> Mapping[str, Columns]:
        """The columns of each file, by its name."""
        seed = check.seed(_OWNER, seed)
        return self.make(random.stream(seed, "table", zlib.crc32(self.name.encode())))


def write_examples(
    names: Iterable[str], out: str | Path = ".", *, seed: int = 0, force: bool = False
) -> list[Path]:
    """Write the files of these examples to the folder `out`; returns their paths.

    For an example of one table, `out` may also be a .csv or .parquet file. A file that exists is
    replaced only with `force`; otherwise nothing is written.
    """
    places: dict[Path, tuple[Example, str]] = {}
    for name in names:
        check.choice(_OWNER, "NAME", name, EXAMPLES)
        example = EXAMPLES[name]
        for file in example.files:
            places[_place(Path(out), example, file)] = example, file
    found = [path for path in places if path.exists()]
    if found and not force:
        raise ValueError(f"{_OWNER}: {found[0]} exists already. Overwrite it with --force.")
    chosen = {example.name: example for example, _ in places.values()}
    tables = {name: example.tables(seed=seed) for name, example in chosen.items()}
    for path, (example, file) in places.items():
        _write(tables[example.name][file], path)
    return list(places)


def _place(out: Path, example: Example, file: str) -> Path:
    if out.suffix not in (".csv", ".parquet"):
        return out / file
    number = len(example.files)
    rule = f"a folder, because {example.name} has {number} files"
    check.require(number == 1 and file.endswith(".csv"), _OWNER, "--out", rule, str(out))
    return out


def _write(columns: Columns, path: Path) -> None:
    if path.suffix != ".npz":
        write_table(columns, path, owner=_OWNER)
        return
    with writing(path, "--out", owner=_OWNER):
        make_folder(path.parent)
        with replacing(path) as aside, aside.open("wb") as file:
            np.savez(file, **cast("dict[str, Any]", columns))


def _listed(*examples: Example) -> dict[str, Example]:
    return {example.name: example for example in examples}


EXAMPLES = _listed(
    Example(
        name="counts",
        description="races won, 120 counties in 8 states, 1 to 90 races each",
        files=("counts.csv",),
        make=tables.counts,
    ),
    Example(
        name="radon",
        description="log radon of houses in 85 counties, in the shape of the well-known study",
        files=("radon.csv",),
        make=tables.radon,
    ),
    Example(
        name="visits",
        description="visits to 40 hospitals, later visits without an outcome, public rows",
        files=("visits.csv", "new.csv", "public.csv"),
        make=tables.visits,
    ),
    Example(
        name="hospitals",
        description="the same columns as visits.csv, a file for each of three hospitals",
        files=("st-mary.csv", "north.csv", "lakeside.csv"),
        make=tables.hospitals,
    ),
    Example(
        name="practices",
        description="the same columns for 2,000 practices, for private training",
        files=("practices.csv",),
        make=tables.practices,
    ),
    Example(
        name="clinics",
        description="patients who recovered in 20,000 small clinics, for private estimates",
        files=("clinics.csv",),
        make=tables.clinics,
    ),
    Example(
        name="sales",
        description="baskets in 60 shops, with the price, the region and the size of the shop",
        files=("sales.csv",),
        make=tables.sales,
    ),
    Example(
        name="wards",
        description="falls per month and patient days, 96 wards of 12 hospitals",
        files=("wards.csv",),
        make=tables.wards,
    ),
    Example(
        name="orders",
        description="what was ordered in 40 regions, four products",
        files=("orders.csv",),
        make=tables.orders,
    ),
    Example(
        name="studies",
        description="effects of 14 studies with standard errors and latitude",
        files=("studies.csv",),
        make=tables.studies,
    ),
    Example(
        name="ratings",
        description="stars that 60 users gave to 24 inns",
        files=("ratings.csv",),
        make=tables.ratings,
    ),
    Example(
        name="clients",
        description="arrays x and y, an .npz file for each of 12 clients",
        files=tuple(f"clients/{name.lower()}.npz" for name in tables.PLACES[: tables.NUM_ARRAYS]),
        make=tables.clients,
    ),
)
