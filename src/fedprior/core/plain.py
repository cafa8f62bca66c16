"""Values as JSON has them, and attributes by their names."""

import math
from typing import Any

import numpy as np


def picked(source: Any, *names: str) -> dict[str, Any]:
    """The attributes of these names."""
    return {name: getattr(source, name) for name in names}


def plain(value: Any) -> Any:
    """Python's own numbers, lists and tables, None in place of what JSON has no word for."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
