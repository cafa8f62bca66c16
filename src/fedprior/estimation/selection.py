"""Which population to take: one rule for means and for rates, and what the user is told of it."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Candidate = TypeVar("Candidate")

FOLDS = 5
FEWEST = 20  # groups for which a nonparametric population is considered
MANY = 100  # groups from which a nonparametric population is not mostly a fit to their noise


def num_folds(num_groups: int) -> int:
    """Folds of two groups or more each, at most five; below 2 none can be held out."""
    return min(FOLDS, num_groups // 2)


def pick(scores: dict[str, np.ndarray], count: np.ndarray | None = None) -> tuple[str, str]:
    """The population of highest log-likelihood on groups held out, and a note on it.

    `scores` in order of freedom, an array each: one score per group, or a row that `count` groups
    share. A population with more freedom has to win by more than one standard error of the sum of
    the differences, so that rounding and chance are no reason for a richer one.
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
    return best, f"population='auto' picked {best} by held-out likelihood: {listed} a group."


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
    """The note where there is nothing to pick by."""
    return f"population='auto' picked {name}: {why}."


def few_groups(num_groups: int, *, safer: str) -> str | None:
    """A warning where a nonparametric population has too few groups to be believed."""
    if num_groups >= MANY:
        return None
    return (
        f"A nonparametric population of {num_groups} groups fits their noise too, and its expected "
        f'gain is too high: population="{safer}" is the safer choice below {MANY} groups.'
    )
