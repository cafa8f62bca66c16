"""The choice of a population or of a number of components, and the note on it for the user."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Candidate = TypeVar("Candidate")

FOLDS = 5
FEWEST = 20  # least number of groups for which a nonparametric population is considered
MANY = 100  # with fewer groups, a nonparametric population mostly fits their noise


def num_folds(num_groups: int) -> int:
    """At most five folds of at least two groups each; below 2, no group can be held out."""
    return min(FOLDS, num_groups // 2)


def pick(scores: dict[str, np.ndarray], count: np.ndarray | None = None) -> tuple[str, str]:
    """The population of highest held-out log-likelihood, and a note on it.

    `scores` holds one array per population, the most restrictive first: one score per group, or per
    row that `count` groups share. A more flexible population has to win by more than one standard
    error of the sum of the differences, so that rounding and chance do not select it.
    """
    names = list(scores)
    each = np.ones(len(scores[names[0]])) if count is None else np.asarray(count, np.float64)
    groups = float(each.sum())
    best = names[0]
    for other in names[1:]:
        won = scores[other] - scores[best]
        mean = float(each @ won) / groups
        error = float(np.sqrt(each @ (won - mean) ** 2))
        if groups * mean > max(error, 1e-9 * groups):
            best = other
    listed = ", ".join(f"{name} {float(each @ scores[name]) / groups:.4f}" for name in names)
    return best, f"population='auto' picked {best} by held-out likelihood: {listed} per group."


def pick_by_bic(tried: Sequence[tuple[float, Candidate]]) -> tuple[Candidate, str]:
    """The candidate of least BIC among those with 1, 2, ... components, and a note on it."""
    scores = np.array([score for score, _ in tried])
    best = int(np.argmin(scores))
    others = np.delete(scores, best)
    margin = f" ({others.min() - scores[best]:.1f} below the next)" if len(others) else ""
    word = "component" + "s" * (best > 0)
    note = f"{best + 1} {word} picked among 1..{len(tried)} by BIC{margin}."
    return tried[best][1], note


def unpicked(name: str, why: str) -> str:
    """The note where no population can be compared."""
    return f"population='auto' picked {name}: {why}."


def few_groups(num_groups: int, *, safer: str) -> str | None:
    """A warning where there are too few groups for a nonparametric population."""
    if num_groups >= MANY:
        return None
    return (
        f"With {num_groups} groups a nonparametric population also fits their noise, and its "
        f'expected gain is too high: population="{safer}" is safer below {MANY} groups.'
    )
