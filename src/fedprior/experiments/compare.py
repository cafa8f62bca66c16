"""What the experiments share: methods side by side, the gain of one over raw means, files."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.core.files import write_atomically

# Called with (done, total) after each part of an experiment.
Watch = Callable[[int, int], None]

# Options of `estimate_rates` by the name of the method.
RATE_METHODS: dict[str, dict[str, Any]] = {
    "paper": {"method": "paper"},
    "default": {},
    "nonparametric": {"population": "nonparametric"},
}


class Spread(NamedTuple):
    """Mean and standard deviation (with m - 1) over runs or folds."""

    mean: float
    sd: float


def gain(personal: np.ndarray, *, raw: np.ndarray, truth: np.ndarray) -> float:
    """100 (1 - sum (personal - truth)^2 / sum (raw - truth)^2): percent of the raw means' error.

    >>> gain(np.array([1.0, 2.0]), raw=np.array([2.0, 4.0]), truth=np.zeros(2))
    75.0
    """
    return float(100 * (1 - ((personal - truth) ** 2).sum() / ((raw - truth) ** 2).sum()))


def spread(values: Iterable[float]) -> Spread:
    """Mean and standard deviation of `values`; one value alone has standard deviation 0."""
    array = np.array(list(values), np.float64)
    return Spread(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else 0.0)


def markdown_table(head: Sequence[str], *rows: Sequence[str]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def save(document: Mapping[str, Any], text: str, folder: Path) -> None:
    """rows.json and table.md in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "rows.json", (json.dumps(document, indent=1) + "\n").encode())
    write_atomically(folder / "table.md", (text + "\n").encode())


def unwatched(done: int, total: int) -> None:
    """Nobody looks on."""
