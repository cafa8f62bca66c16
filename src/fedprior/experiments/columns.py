"""Columns of a published table that an experiment reads."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedprior.core import check
from fedprior.data.reader import read


def read_columns(
    owner: str, path: Path, key: str, numbers: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The key of each row, as text, and the columns of whole numbers."""
    remedy = "Pass --data DIR, the folder that holds it (or that holds its folder)."
    check.require(path.is_file(), owner, "data", f"a folder with {path.name}", str(path), remedy)
    table = read(path, key=[key], wanted=numbers, kinds=dict.fromkeys(numbers, ("number", "")))
    for name in numbers:
        values = np.ma.filled(table.columns[name], np.nan)
        whole = values == np.rint(values)
        row = int(np.argmin(whole))
        remedy = f"See row {row + 1} of {path}."
        check.require(bool(whole.all()), owner, name, "a whole number", values[row], remedy)
    columns = {name: table.columns[name].data.astype(np.int64) for name in numbers}
    return np.asarray(table.key).astype(str), columns
