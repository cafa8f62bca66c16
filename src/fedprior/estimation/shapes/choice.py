"""The choice of a population by predictive risk, for every one-dimensional family.

Populations are fitted to all folds but one; in the last one, each group's squared error is
estimated without bias (Stein's identity for means, its counterparts for counts). The mean of the
differences to the usual population has a standard error, so that another one is taken only where
the evidence is clear.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedprior.core import random
from fedprior.core.threads import one_thread
from fedprior.estimation.nonparametric.atoms import Atoms, fit_rows, posterior
from fedprior.estimation.nonparametric.rows import FamilyRows
from fedprior.estimation.shapes import SHAPES
from fedprior.estimation.shapes.mixtures import fit_scale_mixture, fit_spike_and_slab, usual

FEWEST = 50  # least number of groups for which another population is considered
MANY = 100  # with fewer groups, a nonparametric population mostly fits their noise
CLEAR = 2.0  # standard errors by which another population has to win
_FOLDS = 5
_MOST_COMPARED = 50_000  # rows beyond which they are thinned out
_MOST_ROWS = 1000  # a fold's fit looks at so many rows; more are binned
_MOST_ATOMS = 300
_GAP = 1e-4  # of the losing fits
_SEED = 0  # of the folds, so that the same data always give the same choice


def fits(name: str, *, quick: bool = False) -> Callable[[FamilyRows], Atoms]:
    """How a population is fitted; `quick` for comparisons."""
    found: dict[str, Callable[[FamilyRows], Atoms]] = {
        "scale-mixture": lambda rows: fit_scale_mixture(rows, average=not quick),
        "spike-and-slab": lambda rows: fit_spike_and_slab(rows, average=not quick),
        "nonparametric": fit_rows,
    }
    if quick:
        found["nonparametric"] = lambda rows: fit_rows(
            rows, gap=_GAP, most=_MOST_ROWS, most_atoms=_MOST_ATOMS
        )
    return found.get(name, usual)


@dataclass(frozen=True, kw_only=True)
class ShapeComparison:
    """By how much a population lowers the mean squared error of the usual one, in percent of it."""

    name: str
    gain: float
    error: float
    num_groups: float

    @property
    def clear(self) -> bool:
        """Whether the gain is at least 2 standard errors; 3 with 20 groups, which are rough."""
        return self.gain > CLEAR * (1 + 10 / self.num_groups) * self.error


def compare(
    rows: FamilyRows, *, names: tuple[str, ...] = SHAPES, folds: int = _FOLDS
) -> list[ShapeComparison]:
    """The estimated gain of each population over the usual one, best first.

    The groups of a row are exchangeable, so only the number of them in each fold is drawn.
    """
    rows = thinned(rows, most=_MOST_COMPARED)
    even = np.full(folds, 1 / folds)
    whole = np.rint(rows.count).astype(np.int64)
    drawn = random.stream(_SEED, "split").multinomial(whole, even).T
    sums = {name: np.zeros(2) for name in names}
    expected, total = 0.0, 0.0
    with one_thread():
        for test in drawn:
            train, new = rows.with_count(rows.count - test), rows.with_count(test)
            if not (_fits(train) and len(new.count)):
                continue
            plain = usual(train)
            before = _loss(new, plain)
            expected += float(new.count @ posterior(new, plain)[1])
            total += float(new.count.sum())
            for name in names:
                won = before - _loss(new, fits(name, quick=True)(train))
                sums[name] += [new.count @ won, new.count @ won**2]
    if not (total > 1 and expected > 0):
        return []
    found = [_compared(name, sums[name], total, expected) for name in names]
    return sorted(found, key=lambda each: -each.gain)


def thinned(rows: FamilyRows, *, most: int) -> FamilyRows:
    """At most `most` of the rows with data, evenly."""
    some = np.flatnonzero(rows.held & (rows.count > 0))
    return rows.take(some[:: max(1, -(-len(some) // most))])


def _compared(name: str, sums: np.ndarray, total: float, expected: float) -> ShapeComparison:
    won, squares = (float(each) for each in sums)
    spread = max(squares - won**2 / total, 0.0) * total / (total - 1)
    return ShapeComparison(
        name=name,
        gain=100 * won / expected,
        error=100 * float(np.sqrt(spread)) / expected,
        num_groups=total,
    )


def _fits(rows: FamilyRows) -> bool:
    """Whether a population can be learned: two groups or more that are not all the same."""
    some = rows.raw
    return rows.num_groups >= 2 and float(some.max() - some.min()) > 0


def _loss(rows: FamilyRows, atoms: Atoms) -> np.ndarray:
    return rows.loss(lambda each: posterior(each, atoms))


def pick(rows: FamilyRows) -> tuple[str, str]:
    """The population with the lowest estimated error, if it clearly wins; and a note."""
    plain, groups = rows.member, round(rows.num_groups)
    if groups < FEWEST:
        return plain, unpicked(plain, f"fewer than {FEWEST} groups cannot tell populations apart")
    if not _fits(rows.take(rows.held)):
        return plain, unpicked(plain, "all outcomes are equal")
    found = compare(rows)
    best = next((each for each in found if each.clear), None)
    listed = ", ".join(f"{each.name} {each.gain:+.1f}% +- {each.error:.1f}" for each in found)
    note = (
        f"population='auto' picked {best.name if best else plain} by estimated error; gains over "
        f"{plain} in groups left out: {listed}."
    )
    return best.name if best else plain, note


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
