"""Pages of experiments, from what `fedprior reproduce` writes: rows.json, or its --json."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.experiments.catalog import EXPERIMENTS
from fedprior.experiments.comparison_beside import found_in
from fedprior.experiments.comparison_page import comparison_page
from fedprior.experiments.comparison_settings import COMPARISONS
from fedprior.experiments.dp_page import dp_page
from fedprior.experiments.optimizers import PUBLISHED
from fedprior.pages.page import Block, Cell, Fact, Number, Page, Section, SmallTable, Text

WHAT = "the folder of fedprior reproduce, or the file of its --json"
_FIGURES = 4  # digits that are shown of a number
_NOT_FACTS = ("format", "experiment", "rows", "remarks")


def owns(path: Path) -> bool:
    """Whether the path holds the rows of an experiment."""
    return _document(path) is not None


def page_of(path: Path) -> Page:
    """The page of an experiment's rows."""
    document = _document(path)
    assert document is not None
    if path.is_dir() and document["experiment"] in COMPARISONS:
        here = document.get("optimizer", {}).get("name", PUBLISHED.name)
        out = path if here == PUBLISHED.name else path.parent
        document["beside"] = found_in(out)
    return document_page(document)


def _document(path: Path) -> dict[str, Any] | None:
    file = path / "rows.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        document = json.loads(file.read_bytes())
    except ValueError:
        return None
    known = isinstance(document, dict) and {"experiment", "rows"} <= set(document)
    return document if known else None


def document_page(document: dict[str, Any]) -> Page:
    """The page of a document with `experiment`, `rows` and `remarks`."""
    name = document["experiment"]
    make: Callable[[dict[str, Any]], Page] = _table_page
    if name in COMPARISONS:
        make = comparison_page
    elif name == "dp-figures":
        make = dp_page
    return make(document)


def _table_page(document: dict[str, Any]) -> Page:
    """One table of all rows: what experiments on estimates have."""
    name, rows = document["experiment"], document["rows"]
    known = {each["name"]: each for each in EXPERIMENTS}
    what = known.get(name, {}).get("measures", "")
    remarks = document.get("remarks", [])
    first = rows[0] if rows else {}
    single = [key for key in first if isinstance(first[key], str | int | float | None)]
    cells = tuple(tuple(_cell(row.get(key)) for key in single) for row in rows)
    head = tuple(key.replace("_", " ") for key in single)
    blocks: list[Block] = [SmallTable(title="Rows", head=head, cells=cells)]
    blocks += [Text(remark) for remark in remarks]
    lead = remarks[0] if remarks else f"{what[:1].upper()}{what[1:]}." if what else name
    told = {key: value for key, value in document.items() if key not in _NOT_FACTS}
    facts = [
        Fact(key.replace("_", " "), Number(value, "whole"))
        for key, value in told.items()
        if isinstance(value, int)
    ]
    return Page(
        title=f"Experiment: {name}",
        lead=lead,
        facts=tuple(facts),
        sections=(Section("Figures", tuple(blocks)),),
        command=command_of(document),
    )


def command_of(document: dict[str, Any]) -> str:
    """What makes the document of an experiment on estimates."""
    words = ["fedprior", "reproduce", document["experiment"]]
    for option in ("runs", "seed"):
        if option in document:
            words += [f"--{option}", str(document[option])]
    return " ".join(words)


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, str | bool):
        return value if value is None else str(value)
    if isinstance(value, int):
        return Number(value, "whole")
    size = int(np.floor(np.log10(abs(value)))) if value and np.isfinite(value) else 0
    return Number(float(value), digits=int(np.clip(_FIGURES - 1 - size, 0, 6)))
