"""The choice of a number of components, and the note on it for the user."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Candidate = TypeVar("Candidate")


def pick_by_bic(tried: Sequence[tuple[float, Candidate]]) -> tuple[Candidate, str]:
    """The candidate of least BIC among those with 1, 2, ... components, and a note on it."""
    scores = np.array([score for score, _ in tried])
    best = int(np.argmin(scores))
    others = np.delete(scores, best)
    margin = f" ({others.min() - scores[best]:.1f} below the next)" if len(others) else ""
    word = "component" + "s" * (best > 0)
    note = f"{best + 1} {word} picked among 1..{len(tried)} by BIC{margin}."
    return tried[best][1], note
