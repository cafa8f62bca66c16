"""The server's half of EM for a mixture of regressions: from sums over groups to new parameters."""

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules, floored_covariance


class MixtureTotals(NamedTuple):
    """The groups' messages, which add up field by field.

    Under component l, group i has score g_il of its log density in (theta, fixed) and information
    J_il, both with its own theta integrated out; alpha_il is its probability of component l.
    """

    counts: np.ndarray  # (k,), sum alpha_il
    scores: np.ndarray  # (k, q + p), sum alpha_il g_il
    information: np.ndarray  # (k, q + p, q + p), sum alpha_il J_il
    outer: np.ndarray  # (k, q, q), sum alpha_il h_il h_il', h the part of g in theta
    squares: np.ndarray  # (k,), sum alpha_il r' V^-1 r; zeros where the family has no noise
    num_rows: float
    log_likelihood: float


def sum_totals(parts: Iterable[MixtureTotals]) -> MixtureTotals:
    """The sum of messages, field by field."""
    return reduce(_sum, parts)


def _sum(one: MixtureTotals, other: MixtureTotals) -> MixtureTotals:
    pairs: Iterable[Any] = zip(one, other, strict=True)
    return MixtureTotals(*(left + right for left, right in pairs))


def soften(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Softmax and log-sum-exp of each row, without underflow (ERRATA 21)."""
    most = logits.max(axis=1, keepdims=True)
    table = np.exp(logits - most)
    whole = table.sum(axis=1, keepdims=True)
    return table / whole, (most + np.log(whole))[:, 0]


def responsibilities(
    densities: Iterable[np.ndarray], parts: MixtureParameters
) -> tuple[np.ndarray, np.ndarray]:
    """alpha_il and log p(data_i), from log p(data_i | component l) of every group, by component."""
    with np.errstate(divide="ignore"):  # -inf for a component without members
        shares = np.log(parts.shares)
    return soften(shares + np.stack(list(densities), axis=1))


def move_means(
    total: MixtureTotals, parts: MixtureParameters, rules: MixtureRules, *, most: float = np.inf
) -> MixtureParameters:
    """p_l = sum alpha_il / m; means and fixed coefficients by generalized least squares.

    theta is integrated out, so that one step is exact for given covariances, whereas the mean of
    the thetas in plain EM converges slowly if groups are small. If all members of a component are
    equal, this is D4's mean_l = (sum alpha X'X)^+ sum alpha X'y, and the noise follows from the
    same sums. `most` bounds the average squared change of a row, in units of the noise.
    """
    count, size = parts.means.shape
    step = _solve(total, count, size)
    change = float(np.einsum("ka,kab,kb->", step, total.information, step))
    limit = min(1.0, np.sqrt(most * total.num_rows / change)) if change > 0 else 1.0
    noise = parts.noise
    if rules.learns_noise and rules.spread == "none":
        left = float(total.squares.sum()) - 2 * float((total.scores * step).sum()) + change
        noise = max(noise * left / total.num_rows, rules.noise_floor)
    return parts._replace(
        shares=total.counts / total.counts.sum(),
        means=parts.means + limit * step[:, :size],
        fixed=parts.fixed + limit * step[0, size:],
        noise=noise,
    )


def move_spreads(
    total: MixtureTotals, parts: MixtureParameters, rules: MixtureRules
) -> MixtureParameters:
    """Covariances and noise by EM with theta's posterior variance (D5).

    mean of (theta - mean)(theta - mean)' + Sigma is C + C (sum alpha h h' - sum alpha J) C / n_l
    and the noise's sum is v (sum r' V^-1 r - tr C sum alpha h h' + tr C sum alpha J).
    """
    size = parts.means.shape[1]
    inner = total.outer - total.information[:, :size, :size]
    covariances = []
    for place, old in enumerate(parts.covariances):
        moved = old + old @ inner[place] @ old / max(total.counts[place], 1e-12)
        covariances.append(
            floored_covariance(moved, covariance=rules.covariance, floor=rules.spread_floor)
        )
    noise = parts.noise
    if rules.learns_noise:
        taken = float(np.einsum("kab,kba->", parts.covariances, inner))
        left = noise * (float(total.squares.sum()) - taken)
        noise = max(left / total.num_rows, rules.noise_floor)
    return parts._replace(
        shares=total.counts / total.counts.sum(), covariances=np.stack(covariances), noise=noise
    )


def _solve(total: MixtureTotals, count: int, size: int) -> np.ndarray:
    """The step (k, q + p): own coefficients of each component, the fixed ones in common."""
    common = total.scores.shape[1] - size
    whole = np.zeros((count * size + common, count * size + common))
    right = np.zeros(len(whole))
    shared = slice(count * size, None)
    for place in range(count):
        own = slice(place * size, (place + 1) * size)
        whole[own, own] = total.information[place, :size, :size]
        whole[own, shared] = total.information[place, :size, size:]
        whole[shared, own] = whole[own, shared].T
        right[own] = total.scores[place, :size]
    whole[shared, shared] = total.information[:, size:, size:].sum(axis=0)
    right[shared] = total.scores[:, size:].sum(axis=0)
    # Scale to a unit diagonal, because features have units; the pseudo-inverse does not change
    # directions without information.
    scale = np.sqrt(np.maximum(np.diag(whole), 1e-300))
    scale = np.where(np.diag(whole) > 0, scale, 1.0)
    solution = (
        np.linalg.lstsq(whole / np.outer(scale, scale), right / scale, rcond=1e-10)[0] / scale
    )
    own = solution[: count * size].reshape(count, size)
    return np.concatenate([own, np.tile(solution[shared], (count, 1))], axis=1)
