"""Algorithms 4 and 7 of the paper: cluster the thetas, shrink them, and repeat.

The server needs every theta_i, so messages do not add. Errors that would keep the algorithms from
running are corrected: clustering comes first (ERRATA 22), signs, shares and exponents of the
mixture's density (26), scales of the previous round with a floor (27).
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation.clustering import Cluster, Clusters, cluster_points, k_means
from fedprior.estimation.mixture.summary import nearest_squared
from fedprior.regression.linear.pooled import local_linear
from fedprior.regression.logistic.laws import terms_at
from fedprior.regression.logistic.parts import along, flat
from fedprior.regression.logistic.posterior import laplace_posterior
from fedprior.regression.mixture.logistic import LogisticEvidence
from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules
from fedprior.regression.mixture.start import MixtureProblem
from fedprior.regression.mixture.totals import soften

_WEAK = 10.0  # scale of the local logistic fits' prior: without any, separated rows have no mode
_MOST_SWEEPS = 40


class Alternated(NamedTuple):
    """The last clustering, the clients' final thetas, and notes."""

    parts: MixtureParameters
    theta: np.ndarray
    notes: tuple[str, ...]


def alternate(
    problem: MixtureProblem,
    rules: MixtureRules,
    *,
    num_components: int,
    cluster: Cluster | None,
    rounds: int,
    seed: int,
) -> Alternated:
    """`rounds` times: P, mu, sigma = Cluster(theta); theta_i moved with them as its prior.

    Algorithm 7 (spread "none"): theta_i = sum_l alpha_il mu_l. Algorithm 4: one step down
    -log p(y_i | theta_i) - log sum_l p_l N(theta_i; mu_l, sigma_l^2 I), by the inverse of a bound
    on the curvature, since no single rate is stable while the scales fall.
    """
    cluster = partial(k_means, seed=seed) if cluster is None else cluster
    fixed = _pooled_fixed(problem)
    noise = _noise(problem, fixed)
    theta = _local(problem, fixed)
    there = problem.rows.sizes > 0
    evidence = problem.evidence(rules)
    apart, floored = [], False
    for _ in range(rounds):
        clusters = cluster_points(cluster, theta[there], num_components)
        floored = floored or bool((clusters.scales**2 < rules.spread_floor).any())
        parts = _parts(clusters, fixed, noise, rules)
        if rules.spread == "none":
            known = evidence.posterior(parts)
            theta = (known.responsibilities[:, :, None] * known.theta).sum(axis=1)
        else:
            theta = _descend(problem, theta, parts)
        apart.append(float(np.sqrt(nearest_squared(clusters.centers))))
    theta[~there] = parts.shares @ parts.means
    floored = floored and rules.spread == "component"
    return Alternated(parts, theta, _notes(apart, floored=floored, floor=rules.spread_floor))


def _parts(
    clusters: Clusters, fixed: np.ndarray, noise: float, rules: MixtureRules
) -> MixtureParameters:
    size = clusters.centers.shape[1]
    variance = np.zeros(len(clusters.scales))
    if rules.spread == "component":
        variance = np.maximum(clusters.scales**2, rules.spread_floor)
    covariances = variance[:, None, None] * np.eye(size)
    return MixtureParameters(clusters.probabilities, clusters.centers, covariances, fixed, noise)


def _pooled_fixed(problem: MixtureProblem) -> np.ndarray:
    """Fixed coefficients from the pooled fit; the paper has none."""
    rows, number = problem.rows, problem.num_logits * problem.rows.num_fixed
    if number == 0 or not problem.exact:
        remedy = "The printed algorithm has no fixed features: let them vary."
        check.require(number == 0, "fit_mixture", "fixed", "without columns", number, remedy)
        return np.zeros(0)
    design = np.concatenate([rows.x, rows.fixed], axis=1)
    return np.linalg.lstsq(design, rows.y, rcond=None)[0][rows.num_features :]


def _noise(problem: MixtureProblem, fixed: np.ndarray) -> float:
    """The variance of one target, pooled from the local fits unless it is known."""
    if not problem.exact or problem.noise is not None:
        return problem.noise or 1.0
    squares = free = 0.0
    for block in problem.rows.blocks():
        target = block.y - block.fixed @ fixed
        theta = (np.linalg.pinv(block.x) @ target[:, :, None])[:, :, 0]
        rank = np.linalg.matrix_rank(block.x)
        left = target - (block.x @ theta[:, :, None])[:, :, 0]
        squares += float((left**2).sum())
        free += float((block.x.shape[1] - rank).sum())
    remedy = "No group has more rows than features: give noise_variance."
    check.require(free > 0, "fit_mixture", "noise_variance", "given or identifiable", None, remedy)
    return max(squares / free, 1e-200)


def _local(problem: MixtureProblem, fixed: np.ndarray) -> np.ndarray:
    """theta_i^0: by the pseudo-inverse, or the mode under N(0, 100 I) for classes."""
    rows = problem.rows
    if problem.exact:
        return local_linear(rows, fixed)
    theta = np.zeros((rows.num_groups, problem.num_logits * rows.num_features))
    for batch in LogisticEvidence.of(rows, problem.num_classes).batches:
        part = batch.part
        latent, _ = laplace_posterior(
            part, _WEAK * part.x, np.zeros(part.y.shape), None, _MOST_SWEEPS
        )
        theta[part.groups] = _WEAK * latent.mean
    return theta


def _descend(problem: MixtureProblem, theta: np.ndarray, parts: MixtureParameters) -> np.ndarray:
    """One step of every client on its own loss + the corrected penalty (Algorithm 4, line 6)."""
    away = theta[:, None, :] - parts.means
    variance = parts.covariances[:, 0, 0]
    size = theta.shape[1]
    logits = np.log(np.maximum(parts.shares, 1e-300)) - 0.5 * size * np.log(variance)
    table, _ = soften(logits - 0.5 * (away**2).sum(axis=2) / variance)
    precision = (table / variance).sum(axis=1)
    moved = theta.copy()
    for groups, slope, bend in _curvatures(problem, theta, parts):
        slope = slope - ((table / variance)[groups, :, None] * away[groups]).sum(axis=1)
        whole = bend + precision[groups, None, None] * np.eye(size)
        moved[groups] += np.linalg.solve(whole, slope[:, :, None])[:, :, 0]
    return moved


def _curvatures(
    problem: MixtureProblem, theta: np.ndarray, parts: MixtureParameters
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """By batch: groups, gradient of log p(y | theta), and a bound on minus its second derivative.

    x' W x with W = diag(p) - p p' is at most x' x / 4 for two classes and x' x / 2 for more.
    """
    if problem.exact:
        for block in problem.rows.blocks():
            inner = np.swapaxes(block.x, 1, 2)
            left = block.y - block.fixed @ parts.fixed
            left = left - (block.x @ theta[block.groups][:, :, None])[:, :, 0]
            slope = (inner @ left[:, :, None])[:, :, 0]
            yield block.groups, slope / parts.noise, inner @ block.x / parts.noise
        return
    bound = 0.25 if problem.num_logits == 1 else 0.5
    for batch in LogisticEvidence.of(problem.rows, problem.num_classes).batches:
        part, own = batch.part, flat(batch.part.x)
        odds = (own @ theta[part.groups][:, :, None]).reshape(part.y.shape)
        slope = along(part.x, terms_at(odds, part.y).pull)
        yield part.groups, slope, bound * np.swapaxes(own, 1, 2) @ own


def _notes(apart: list[float], *, floored: bool, floor: float) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if len(apart) > 1:
        notes += (
            "The printed algorithm clusters estimates that are already shrunken, so its clusters "
            f"draw together (ERRATA 23): the nearest two centers are {apart[0]:.3g} apart after "
            f"the first round and {apart[-1]:.3g} after round {len(apart)}. "
            "Use one round, or method='default'.",
        )
    if floored:
        notes += (f"A scale has collapsed: its floor {np.sqrt(floor):.2g} is active (ERRATA 27).",)
    return notes
