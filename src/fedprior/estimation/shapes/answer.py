"""Estimates under a population of another shape, for every one-dimensional family."""

from dataclasses import dataclass

import numpy as np

from fedprior.estimation.nonparametric.atoms import Atoms, above, posterior, quantiles
from fedprior.estimation.nonparametric.rows import FamilyRows
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.shapes.choice import few_groups, fits

_BORROWED = "Intervals and probabilities of exceeding a threshold are those of the"


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeAnswer:
    """One entry per row: posterior mean and variance, weight of the raw value, interval.

    `lower`, `upper` and `above` are None for a nonparametric population, whose quantiles do not
    cover. `error`, `raw_error` and `pooled_error` are expected squared errors, averaged over
    groups.
    """

    atoms: Atoms
    personal: np.ndarray
    variance: np.ndarray
    weight: np.ndarray
    lower: np.ndarray | None
    upper: np.ndarray | None
    above: np.ndarray | None
    error: float
    raw_error: float
    pooled_error: float
    notes: tuple[str, ...]


def shape_answer(
    rows: FamilyRows, name: str, *, level: float, threshold: float | np.ndarray | None
) -> ShapeAnswer:
    """The population `name` fitted to the rows, and theta of each row under it.

    The weight is posterior variance / sampling variance at the estimate, the slope of the posterior
    mean for Gaussian rows (Tweedie), and at most 1.
    """
    atoms = fits(name)(rows)
    mean, variance = posterior(rows, atoms)
    noise = rows.noise(mean, variance)
    some = rows.held
    sampling = np.where(some, rows.noise(mean, np.zeros_like(mean)), np.inf)
    weight = np.where(sampling > 0, variance / np.maximum(sampling, 1e-300), 0.0)
    own = name != "nonparametric"
    ends = [quantiles(rows, atoms, (1 + side * level) / 2) for side in (-1, 1)] if own else []
    count = np.where(some, rows.count, 0.0)
    count = count / count.sum()
    # The error of a common mean is added to both, so that there is no gain if all atoms coincide.
    moved = 1 / float(rows.count[some] @ (1 / np.maximum(noise[some], 1e-300)))
    spread = variance + (mean - atoms.mean) ** 2
    return ShapeAnswer(
        atoms=atoms,
        personal=mean,
        variance=variance,
        weight=np.where(some, np.minimum(weight, 1.0), 0.0),
        lower=np.minimum(ends[0], mean) if own else None,
        upper=np.maximum(ends[1], mean) if own else None,
        above=above(rows, atoms, threshold) if own and threshold is not None else None,
        error=float(count @ variance) + moved,
        raw_error=float(count[some] @ noise[some]),
        pooled_error=float(count @ spread) + moved,
        notes=() if own else _borrowed_notes(rows),
    )


def _borrowed_notes(rows: FamilyRows) -> tuple[str, ...]:
    note = borrowed(rows.member, "nonparametric", ", whose own quantiles cover too little")
    few = few_groups(round(rows.num_groups), safer=rows.member)
    return (note, *([few] if few else []))


def unborrowed(notes: tuple[str, ...]) -> tuple[str, ...]:
    """The notes without `borrowed`, where intervals were replaced by others."""
    return tuple(note for note in notes if not note.startswith(_BORROWED))


def borrowed(member: str, estimates: str, reason: str) -> str:
    """The note on intervals that come from the conjugate population."""
    widened = f"population, widened to hold the {estimates} estimates{reason}."
    return f"{_BORROWED} {member.capitalize()} {widened}"


def shape_population(rows: FamilyRows, name: str, atoms: Atoms) -> FittedPopulation:
    """The members of the population with their weights."""
    some = rows.held
    noise = rows.noise(np.full(len(some), atoms.mean), np.zeros(len(some)))[some]
    total = float(rows.count[some] @ (1 / np.maximum(atoms.variance + noise, 1e-300)))
    return FittedPopulation(
        kind=name,
        fitted_by="likelihood",
        mean=atoms.mean,
        heterogeneity=float(np.sqrt(atoms.variance)),
        parameters={"mean": atoms.mean, **atoms.parameters},
        standard_errors={"mean": float(np.sqrt(1 / total))},
        atoms=atoms.atoms,
        weights=atoms.weights,
        spread=None if name == "nonparametric" else atoms.spread,
        member=rows.member,
    )
