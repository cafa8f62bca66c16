"""max over weights w of sum_u count_u log(L w)_u: 30 EM steps, then constrained Newton steps.

Wang's constrained Newton method (2007): the active set is the support and the local maxima of the
gradient on the grid; the step solves a nonnegative least-squares problem; a line search guarantees
ascent. Without the EM start the method can stall far from the maximum.
"""

import numpy as np

from fedprior.core import check

_EM_STEPS = 30
_MOST_ROUNDS = 500
_CHUNK_CELLS = 1 << 20  # rows x atoms at a time in a QR factorization: 8 MB
_LEAST_WEIGHT = 1e-12  # an atom below it moves no posterior: its mass times any value is noise


def fit_atoms(
    likelihood: np.ndarray, count: np.ndarray, *, gap: float = 1e-7
) -> tuple[np.ndarray, float]:
    """Weights w >= 0, sum 1, with max_j (1/m) sum_u count_u L_uj / (L w)_u - 1 < gap; and that gap.

    `likelihood` is (rows, atoms) in the order of the grid; rows may be scaled arbitrarily (a
    maximum of 1 is best). The gap bounds how much other weights could increase the mean
    log-likelihood per group. Raises RuntimeError if it is not reached.
    """
    check.positive("fit_atoms", gap=gap)
    share = np.asarray(count, np.float64) / np.sum(count)
    weights = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    weights = _expectation_steps(likelihood, share, weights)
    for _ in range(_MOST_ROUNDS):
        fitted = likelihood @ weights
        gradient = (share / fitted) @ likelihood
        reached = float(gradient.max() - 1)
        if reached < gap:
            return weights, max(reached, 0.0)
        proposal = _newton_weights(likelihood, share, weights, fitted, gradient)
        step = _line_search(likelihood, share, fitted, proposal, gradient)
        if step == 0:  # no ascent along the Newton direction: EM always ascends
            weights = _expectation_steps(likelihood, share, weights)
            continue
        weights = weights + step * (proposal - weights)
        weights = _without_dust(weights)
    raise RuntimeError(
        f"fit_atoms: the duality gap is still {reached:.1e} after {_MOST_ROUNDS} rounds and must "
        f"be below {gap:.1e}. Use fewer atoms or a larger gap."
    )


def _expectation_steps(
    likelihood: np.ndarray, share: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """w_j <- w_j sum_u share_u L_uj / (L w)_u, which never lowers the likelihood."""
    for _ in range(_EM_STEPS):
        weights = weights * ((share / (likelihood @ weights)) @ likelihood)
    return weights / weights.sum()


def _newton_weights(
    likelihood: np.ndarray,
    share: np.ndarray,
    weights: np.ndarray,
    fitted: np.ndarray,
    gradient: np.ndarray,
) -> np.ndarray:
    """The argmin over w >= 0, sum 1, of sum_u share_u (S w - 2)_u^2, S = L / fitted, where active.

    This is the second-order expansion of the likelihood. With sum 1 it equals |(S - 2) w|^2, whose
    minimum is the normalized nonnegative least-squares solution with one more row, sum(w) = 1 (Dax
    1990).
    """
    from scipy.optimize import nnls

    active = np.flatnonzero((weights > 0) | _peaks(gradient))
    design = _triangle(likelihood, np.sqrt(share), fitted, active)
    design = np.vstack([design, np.ones(len(active))])
    target = np.zeros(len(design))
    target[-1] = 1
    solution, _ = nnls(design, target, maxiter=30 * len(active) + 100)
    proposal = np.zeros_like(weights)
    proposal[active] = solution / solution.sum()
    return proposal


def _triangle(
    likelihood: np.ndarray, root: np.ndarray, fitted: np.ndarray, active: np.ndarray
) -> np.ndarray:
    """R with |R w| = |root (S - 2) w| for all w, by QR of chunks of rows.

    The normal equations would be cheaper, but neighbors on the grid are nearly collinear, and
    squaring the condition number would lose half of the digits.
    """
    triangle: np.ndarray = np.empty((0, len(active)))
    size = max(4 * len(active), _CHUNK_CELLS // len(active))
    for start in range(0, len(likelihood), size):
        rows = slice(start, start + size)
        part = likelihood[rows][:, active] / fitted[rows, None]
        part -= 2
        part *= root[rows, None]
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, part]), mode="r"))
    return triangle


def _peaks(gradient: np.ndarray) -> np.ndarray:
    """Local maxima of the gradient above 1, where new mass would increase the likelihood."""
    padded = np.concatenate([[-np.inf], gradient, [-np.inf]])
    return (gradient >= padded[:-2]) & (gradient >= padded[2:]) & (gradient > 1)


def _line_search(
    likelihood: np.ndarray,
    share: np.ndarray,
    fitted: np.ndarray,
    proposal: np.ndarray,
    gradient: np.ndarray,
) -> float:
    """The first of 1, 1/2, 1/4 ... that gains at least a third of the slope; 0 if none does."""
    change = likelihood @ proposal / fitted - 1
    slope = float(gradient @ proposal - 1)
    if slope <= 0:
        return 0.0
    step = 1.0
    for _ in range(30):
        inside = step * change
        if inside.min() > -1 and share @ np.log1p(inside) >= step * slope / 3:
            return step
        step /= 2
    return 0.0


def _without_dust(weights: np.ndarray) -> np.ndarray:
    kept = np.where(weights > _LEAST_WEIGHT, weights, 0.0)
    return kept / kept.sum()
