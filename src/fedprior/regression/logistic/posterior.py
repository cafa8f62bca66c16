"""Gaussian posteriors of z, theta = mean + factor z, z ~ N(0, I), for all groups of one size.

`laplace_posterior` uses the mode and its curvature. `variational_posterior` finds the Gaussian
nearest in Kullback-Leibler divergence; its evidence is a lower bound. `propagated_posterior` is
expectation propagation, which matches the mean and the variance of every row's log odds; its
evidence and its slopes are nearly exact. The last two support two classes, or counts. Each takes
the memory of the previous round as a warm start and returns the new one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedprior.regression.logistic.parts import ClassBlock, across, along, flat

_SETTLED = 1e-7  # largest change in a sweep, in standard deviations of the population
_HALVINGS = 30
_LEAST_ROOM = 1e-9  # smallest fraction of a variance that a row may leave


class LatentPosterior(NamedTuple):
    """z given the data: `mean` (g, D), `spread` (g, D, D), `evidence` (g,) = log p(y).

    `pull` (g, n, c) is the slope of the evidence by each log odds, `weigh` multiplies columns
    (g, n, c, q) by minus its curvature within a row, so that design' pull = mean and
    inverse(spread) = I + design' weigh(design) where the posterior is a Gaussian's own.
    """

    mean: np.ndarray
    spread: np.ndarray
    evidence: np.ndarray
    pull: np.ndarray
    weigh: Callable[[np.ndarray], np.ndarray]


Solve = Callable[[ClassBlock, np.ndarray, np.ndarray, Any, int], tuple[LatentPosterior, Any]]


def laplace_posterior(
    part: ClassBlock, design: np.ndarray, offset: np.ndarray, memory: Any, sweeps: int
) -> tuple[LatentPosterior, Any]:
    """The mode of p(y | z) N(z; 0, I) by Newton's method; the memory is the mode.

    evidence = log p(y, mode) + log |spread| / 2, up to the constants that cancel.
    """
    mode, law = _zeros(design) if memory is None else memory, part.law

    def height(z: np.ndarray) -> np.ndarray:
        odds = odds_of(design, z) + offset
        return law.terms(odds, part.y).log_likelihood - 0.5 * (z**2).sum(axis=1)

    for _ in range(sweeps):
        terms = law.terms(odds_of(design, mode) + offset, part.y)
        spread, _ = _inverse(across(design, law.weighed(terms.expected, design)))
        step = (spread @ (along(design, terms.pull) - mode)[..., None])[..., 0]
        mode, moved = _climb(height, mode, step)
        if moved < _SETTLED:
            break
    terms = law.terms(odds_of(design, mode) + offset, part.y)
    spread, log_spread = _inverse(across(design, law.weighed(terms.expected, design)))
    evidence = terms.log_likelihood - 0.5 * (mode**2).sum(axis=1) + 0.5 * log_spread

    def weigh(columns: np.ndarray) -> np.ndarray:
        return law.weighed(terms.expected, columns)

    return LatentPosterior(mode, spread, evidence, terms.pull, weigh), mode


def variational_posterior(
    part: ClassBlock, design: np.ndarray, offset: np.ndarray, memory: Any, sweeps: int
) -> tuple[LatentPosterior, Any]:
    """The Gaussian q that maximizes E_q log p(y, z) + entropy(q).

    Mean and covariance satisfy mean = design' E_q (y - p) and inverse(spread) = I + design' E_q
    p (1 - p) design, which are iterated. The memory is the mean and the variances of log odds.
    """
    y, law = part.y[..., 0], part.law
    if memory is None:
        mean, variance = _zeros(design), _variances(design, np.eye(design.shape[-1]))
    else:
        mean, variance = memory
    shift = offset[..., 0]

    def height(z: np.ndarray) -> np.ndarray:
        a = odds_of(design, z)[..., 0] + shift
        own = law.smooth_value(a, variance, y).sum(axis=1)
        return own - 0.5 * (z**2).sum(axis=1)

    for _ in range(sweeps):
        value, slope = law.smooth_terms(odds_of(design, mean)[..., 0] + shift, variance)
        spread, log_spread = _inverse(across(design, slope[..., None, None] * design))
        toward = along(design, (y - value)[..., None]) - mean
        mean, moved = _climb(height, mean, (spread @ toward[..., None])[..., 0])
        before, variance = variance, _variances(design, spread)
        if max(moved, float(np.abs(variance - before).max())) < _SETTLED:
            break
    trace = np.trace(spread, axis1=1, axis2=2)
    evidence = height(mean) + 0.5 * (log_spread - trace + design.shape[-1])
    value, slope = law.smooth_terms(odds_of(design, mean)[..., 0] + shift, variance)
    pull = (y - value)[..., None]
    posterior = LatentPosterior(mean, spread, evidence, pull, _by_row(slope))
    return posterior, (mean, variance)


def propagated_posterior(
    part: ClassBlock, design: np.ndarray, offset: np.ndarray, memory: Any, sweeps: int
) -> tuple[LatentPosterior, Any]:
    """Expectation propagation for all rows in parallel; the memory is each row's Gaussian site.

    A row's site exp(-weight a^2 / 2 + nudge a) makes the posterior mean and variance of its log
    odds a equal to those of cavity times likelihood, where the cavity is the posterior without the
    site. Sweeps work on matrices of min(n, D) rows.
    """
    y, shift, law = part.y[..., 0], offset[..., 0], part.law
    weight, nudge = (np.zeros_like(y), np.zeros_like(y)) if memory is None else memory
    columns = flat(design)
    condition = _by_rows(columns) if columns.shape[1] < columns.shape[2] else _by_columns(columns)
    now = condition(weight, nudge - weight * shift)
    for _ in range(sweeps):
        center, room = _cavity(now, weight, nudge - weight * shift)
        tilt = law.tilted(center + shift, room, y)
        left = np.maximum(1 - tilt.weight * room, _LEAST_ROOM)
        weight = tilt.weight / left
        nudge = (tilt.pull + tilt.weight * (center + shift)) / left
        before = now.mean
        now = condition(weight, nudge - weight * shift)
        if np.abs(now.mean - before).max(initial=0.0) < _SETTLED:
            break
    lean = nudge - weight * shift
    pull = (lean - weight * now.odds)[..., None]
    evidence = _site_evidence(now, weight, lean, lambda a, room: law.tilted(a + shift, room, y).log)
    posterior = LatentPosterior(now.mean, now.spread(), evidence, pull, _by_row(weight))
    return posterior, (weight, nudge)


def odds_of(design: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The product design z, (g, n, c)."""
    return (flat(design) @ z[..., None]).reshape(design.shape[:-1])


class _Conditioned(NamedTuple):
    """z given Gaussian sites: its mean (g, D), mean and variance of the log odds (g, n)."""

    mean: np.ndarray
    odds: np.ndarray
    variance: np.ndarray
    log_spread: np.ndarray  # (g,), log determinant of the covariance of z
    spread: Callable[[], np.ndarray]  # that covariance, (g, D, D)


_Condition = Callable[[np.ndarray, np.ndarray], _Conditioned]


def _by_rows(columns: np.ndarray) -> _Condition:
    """Condition on sites of `columns` (g, n, D) in n dimensions: B = I + W^1/2 K W^1/2, K = XX'."""
    kernel = columns @ columns.transpose(0, 2, 1)
    own = np.diagonal(kernel, axis1=1, axis2=2)

    def condition(weight: np.ndarray, lean: np.ndarray) -> _Conditioned:
        root = np.sqrt(weight)[..., None]
        lower, log_determinant = _factor(root * kernel * root.transpose(0, 2, 1))
        half = np.linalg.solve(lower, root * kernel)
        odds = (kernel @ lean[..., None] - half.transpose(0, 2, 1) @ (half @ lean[..., None]))[
            ..., 0
        ]
        variance = np.maximum(own - (half**2).sum(axis=1), 1e-300)

        def spread() -> np.ndarray:
            seen = np.linalg.solve(lower, root * columns)
            return np.eye(columns.shape[2]) - seen.transpose(0, 2, 1) @ seen

        mean = ((lean - weight * odds)[:, None, :] @ columns)[:, 0]
        return _Conditioned(mean, odds, variance, -log_determinant, spread)

    return condition


def _by_columns(columns: np.ndarray) -> _Condition:
    """Condition on sites of `columns` (g, n, D) in D dimensions: precision I + X'WX."""
    across_rows = columns.transpose(0, 2, 1)

    def condition(weight: np.ndarray, lean: np.ndarray) -> _Conditioned:
        lower, log_determinant = _factor(across_rows @ (weight[..., None] * columns))
        half = np.linalg.solve(lower, across_rows)
        odds = (half.transpose(0, 2, 1) @ (half @ lean[..., None]))[..., 0]
        variance = np.maximum((half**2).sum(axis=1), 1e-300)

        def spread() -> np.ndarray:
            inverse = np.linalg.inv(lower)
            return inverse.transpose(0, 2, 1) @ inverse

        mean = ((lean - weight * odds)[:, None, :] @ columns)[:, 0]
        return _Conditioned(mean, odds, variance, -log_determinant, spread)

    return condition


def _factor(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Cholesky factor of I + matrices, and the log of its determinant."""
    lower = np.linalg.cholesky(matrices + np.eye(matrices.shape[-1]))
    return lower, 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)


def _cavity(
    now: _Conditioned, weight: np.ndarray, lean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the log odds with the row's own site (weight, lean) removed."""
    rest = np.maximum(1 - weight * now.variance, _LEAST_ROOM)
    return (now.odds - lean * now.variance) / rest, now.variance / rest


def _site_evidence(
    now: _Conditioned,
    weight: np.ndarray,
    lean: np.ndarray,
    log_normalizer: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Log p(y): the normalizers of the sites, each from its own cavity."""
    center, room = _cavity(now, weight, lean)
    rows = log_normalizer(center, room) + 0.5 * np.log(room / now.variance)
    rows += 0.5 * (center**2 / room - now.odds**2 / now.variance + lean * now.odds)
    return rows.sum(axis=1) + 0.5 * now.log_spread


def _variances(design: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """diag(design spread design') of two classes, (g, n), kept above 0 for the logarithm."""
    columns = flat(design)
    return np.maximum(((columns @ spread) * columns).sum(axis=-1), 1e-300)


def _inverse(curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """inverse(I + curvature) and the log of its determinant."""
    precision = curvature + np.eye(curvature.shape[-1])
    return np.linalg.inv(precision), -np.linalg.slogdet(precision)[1]


def _climb(
    height: Callable[[np.ndarray], np.ndarray], z: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, float]:
    """Z + step, with the step halved in groups where `height` would decrease; and its length."""
    level = height(z)
    for _ in range(_HALVINGS):
        falls = height(z + step) < level - 1e-9 * (1 + np.abs(level))
        if not falls.any():
            break
        step = np.where(falls[:, None], step / 2, step)
    return z + step, float(np.abs(step).max(initial=0.0))


def _by_row(weight: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda columns: weight[..., None, None] * columns


def _zeros(design: np.ndarray) -> np.ndarray:
    return np.zeros((len(design), design.shape[-1]))
