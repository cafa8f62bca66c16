"""One regression for all groups together, and one for each group alone."""

from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.regression.linear.pooled import check_columns
from fedprior.regression.logistic.laws import COUNTS
from fedprior.regression.logistic.parts import (
    ClassBlock,
    across,
    along,
    check_classes,
    check_counts,
    parts_of,
)
from fedprior.regression.logistic.posterior import laplace_posterior
from fedprior.regression.rows import GroupedRows

# Prior N(0, 5^2) for a coefficient of a feature of mean square 1: so weak that it does not change
# coefficients that the data determine, and log odds of 10 remain plausible.
SEPARATION_RIDGE = 0.04
_MOST_STEPS = 40
_SETTLED = 1e-9  # change of a coefficient in units of 1 / root mean square of its feature
_UNSETTLED = 1e-3  # with separated classes every Newton step adds about 1


class Pooled(NamedTuple):
    """`coefficients` of x, then of fixed, class-major; `errors` if groups do not differ."""

    coefficients: np.ndarray
    errors: np.ndarray


def pooled_logistic(rows: GroupedRows, *, num_classes: int = 2) -> Pooled:
    """The argmax of sum log p(y | x b + fixed beta), one for all groups.

    If a combination of features separates the classes, there is no finite maximum; they are then
    fitted with the ridge SEPARATION_RIDGE on features of mean square 1.
    """
    check_classes("pooled_logistic", rows, num_classes)
    check_columns("pooled_logistic", rows)
    return ridged(rows, parts_of(rows, num_classes), num_classes)[0]


def local_logistic(rows: GroupedRows, *, num_classes: int = 2, ridge: float = 0.01) -> np.ndarray:
    """theta_i = argmax sum_j log p(y_ij | x theta_i + fixed beta) - ridge |theta_i|^2 / 2, (m, D).

    Each group is fitted alone, with the pooled beta. The ridge keeps theta finite for separated
    classes, and 0 for a group without rows.
    """
    owner = "local_logistic"
    check.positive(owner, ridge=ridge)
    check_classes(owner, rows, num_classes)
    parts = parts_of(rows, num_classes)
    width = rows.num_features * (num_classes - 1)
    beta = np.zeros(rows.num_fixed * (num_classes - 1))
    if len(beta):
        check_columns(owner, rows)
        beta = ridged(rows, parts, num_classes)[0].coefficients[width:]
    theta = np.zeros((rows.num_groups, width))
    for part in parts:
        latent, _ = laplace_posterior(part, part.x / np.sqrt(ridge), part.fixed @ beta, None, 100)
        theta[part.groups] = latent.mean / np.sqrt(ridge)
    return theta


def pooled_poisson(rows: GroupedRows) -> Pooled:
    """The argmax of sum log p(y | offset + x b + fixed beta), one for all groups.

    If features tell where counts are 0, they are fitted with the ridge SEPARATION_RIDGE.
    """
    check_counts("pooled_poisson", rows)
    check_columns("pooled_poisson", rows)
    return ridged(rows, parts_of(rows, law=COUNTS), 2)[0]


def local_poisson(rows: GroupedRows, *, ridge: float = 0.01) -> np.ndarray:
    """theta_i = argmax sum_j log p(y_ij | x theta_i + fixed beta) - ridge |theta_i - b|^2 / 2.

    Each group is fitted alone, with the pooled b and beta, (m, D). The ridge keeps theta finite for
    a group without events; it pulls to b, because the unit of exposure decides what 0 means.
    """
    owner = "local_poisson"
    check.positive(owner, ridge=ridge)
    pooled, width = pooled_poisson(rows).coefficients, rows.num_features
    theta = np.tile(pooled[:width], (rows.num_groups, 1))
    for part in parts_of(rows, law=COUNTS):
        offset = part.shifted(part.x @ pooled[:width] + part.fixed @ pooled[width:])
        latent, _ = laplace_posterior(part, part.x / np.sqrt(ridge), offset, None, 100)
        theta[part.groups] += latent.mean / np.sqrt(ridge)
    return theta


def ridged(
    rows: GroupedRows, parts: list[ClassBlock], num_classes: int
) -> tuple[Pooled, np.ndarray]:
    """The pooled fit and its ridge (D + P,), zeros unless it has no finite maximum."""
    columns = np.concatenate([rows.x, rows.fixed], axis=1)
    unit = (columns**2).mean(axis=0)
    own, features = num_classes - 1, rows.num_features
    unit = np.concatenate([np.tile(unit[:features], own), np.tile(unit[features:], own)])
    none = np.zeros(len(unit))
    pooled = _newton(parts, none, unit)
    if pooled is not None:
        return pooled, none
    ridge = SEPARATION_RIDGE * unit
    pooled = _newton(parts, ridge, unit)
    remedy = "Scale the features."
    check.require(pooled is not None, "pooled_logistic", "x", "of usual size", unit, remedy)
    return pooled or Pooled(none, none), ridge


def _newton(parts: list[ClassBlock], ridge: np.ndarray, unit: np.ndarray) -> Pooled | None:
    """Newton's method; None if it does not converge, as happens with separated classes."""
    root = np.sqrt(unit)
    b, value = _first(parts, unit), -np.inf
    step, moved = np.zeros_like(b), np.inf
    for _ in range(_MOST_STEPS):
        trial, slope, information = _pooled_at(parts, b + step, ridge)
        for _ in range(30):
            if trial >= value - 1e-12 * abs(value):
                break
            step = step / 2
            trial, slope, information = _pooled_at(parts, b + step, ridge)
        b, value = b + step, trial
        if moved < _SETTLED:
            break
        scaled = information / np.outer(root, root)
        scaled[np.diag_indices_from(scaled)] += 1e-14 * max(np.trace(scaled), 1e-280)
        step = np.linalg.solve(scaled, slope / root) / root
        moved = float(np.abs(step * root).max(initial=0.0))
        if not np.isfinite(moved):
            return None
    if moved > _UNSETTLED:
        return None
    return Pooled(b, np.sqrt(np.diag(np.linalg.inv(information))))


def _first(parts: list[ClassBlock], unit: np.ndarray) -> np.ndarray:
    """0 for classes; for counts the fit of log(y + 1/2), from which Newton's method converges."""
    if not parts or parts[0].law is not COUNTS:
        return np.zeros(len(unit))
    slope, information = np.zeros(len(unit)), np.diag(1e-9 * unit)
    for part in parts:
        columns, count = np.concatenate([part.x, part.fixed], axis=-1), part.y + 0.5
        away = np.log(count) - part.shifted(np.zeros_like(count))
        slope += along(columns, count * away).sum(axis=0)
        information += across(columns, count[..., None] * columns).sum(axis=0)
    return np.linalg.solve(information, slope)


def _pooled_at(
    parts: list[ClassBlock], b: np.ndarray, ridge: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """The penalized log-likelihood, its slope by b, and minus its curvature."""
    value = -0.5 * float(ridge @ b**2)
    slope, information = -ridge * b, np.diag(ridge)
    for part in parts:
        columns = np.concatenate([part.x, part.fixed], axis=-1)
        terms = part.law.terms(part.shifted(columns @ b), part.y)
        value += float(terms.log_likelihood.sum())
        slope = slope + along(columns, terms.pull).sum(axis=0)
        curvature = across(columns, part.law.weighed(terms.expected, columns))
        information = information + curvature.sum(axis=0)
    return value, slope, information
