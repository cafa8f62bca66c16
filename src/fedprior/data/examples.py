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


EXAMPLES = {  # name: description and files, one table NAME.csv by default
    name: Example(
        name=name,
        description=description,
        files=tuple(files) or (f"{name}.csv",),
        make=getattr(tables, name),
    )
    for name, description, *files in (
        ("counts", "races won, 120 counties in 8 states, 1 to 90 races each"),
        ("radon", "log radon of houses in 85 counties, in the shape of the well-known study"),
        (
            "visits",
            "visits to 40 hospitals, later visits without an outcome, public rows",
            *("visits.csv", "new.csv", "public.csv"),
        ),
        (
            "hospitals",
            "the same columns as visits.csv, a file for each of three hospitals",
            *("st-mary.csv", "north.csv", "lakeside.csv"),
        ),
        ("practices", "the same columns for 2,000 practices, for private training"),
        ("clinics", "patients who recovered in 20,000 small clinics, for private estimates"),
        ("sales", "baskets in 60 shops, with the price, the region and the size of the shop"),
        ("wards", "falls per month and patient days, 96 wards of 12 hospitals"),
        ("orders", "what was ordered in 40 regions, four products"),
        ("studies", "effects of 14 studies with standard errors and latitude"),
        ("ratings", "stars that 60 users gave to 24 inns"),
        (
            "clients",
            "arrays x and y, an .npz file for each of 12 clients",
            *(f"clients/{name.lower()}.npz" for name in tables.PLACES[: tables.NUM_ARRAYS]),
        ),
    )
}
