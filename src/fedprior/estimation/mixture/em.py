"""EM of a discrete mixture of means, theta = center_l with probability p_l (D4; ERRATA 20-23).

The client's half (`mixture_messages`) and the server's half (`maximize_mixture`) are pure functions
of sums, so they also run behind a channel. Unlike the printed algorithm, the server averages the
groups' raw means with soft weights, never the shrunken estimates.
"""

from typing import NamedTuple

import numpy as np

from fedprior.estimation.squarem import accelerated_em, extrapolated


class DiscreteMixture(NamedTuple):
    """`centers` (components, d) with their `probabilities`."""

    centers: np.ndarray
    probabilities: np.ndarray


class MixtureFit(NamedTuple):
    """A fitted mixture, its mean log-likelihood per group, and the rounds of EM."""

    mixture: DiscreteMixture
    log_likelihood: float
    num_rounds: int
    converged: bool


def responsibilities(
    mean: np.ndarray, variance: np.ndarray, mixture: DiscreteMixture
) -> tuple[np.ndarray, np.ndarray]:
    """P(theta_i = center_l | mean_i), (groups, components), and log p(mean_i) (Thm 5; ERRATA 20).

    Computed by log-sum-exp: the printed ratio is 0 / 0 if all exponentials underflow (ERRATA 21).
    `mean` is (groups, d), `variance` the sampling variance of each mean, per coordinate. A group of
    infinite variance has no data: its row is the prior probabilities, its log-likelihood 0.
    """
    some = np.isfinite(variance)
    mean = np.where(some[:, None], mean, 0.0)  # a group without data may hold NaN
    with np.errstate(divide="ignore"):  # a component of probability 0 has logit -inf
        prior = np.log(mixture.probabilities)
    table = np.empty((len(mean), len(prior)))
    for place, center in enumerate(mixture.centers):
        table[:, place] = prior[place] - ((mean - center) ** 2).sum(axis=1) / (2 * variance)
    most = table.max(axis=1, keepdims=True)
    np.exp(table - most, out=table)
    total = table.sum(axis=1, keepdims=True)
    scaled = np.where(some, variance, 1 / (2 * np.pi))
    dimension = mean.shape[1]
    log_likelihood = (most + np.log(total))[:, 0] - 0.5 * dimension * np.log(2 * np.pi * scaled)
    table /= total
    return table, np.where(some, log_likelihood, 0.0)


def mixture_messages(
    mean: np.ndarray,
    n: np.ndarray,
    centers: np.ndarray,
    probabilities: np.ndarray,
    noise_variance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """What each group sends: alpha_il, (groups, components), and alpha_il mean_i, (.., .., d) (D4).

    With unequal sizes the likelihood is maximized by weights n_i: a group whose size is not secret
    sends (alpha, n alpha, n alpha mean), and `maximize_mixture` divides the third total by the
    second. Under a private channel the weight is 1 and only the two values returned here are sent;
    the resulting centers are consistent too, but noisier.
    """
    with np.errstate(divide="ignore"):
        variance = noise_variance / np.asarray(n, np.float64)
    table, _ = responsibilities(mean, variance, DiscreteMixture(centers, probabilities))
    mean = np.where(np.isfinite(variance)[:, None], mean, 0.0)
    table = np.where(np.isfinite(variance)[:, None], table, 0.0)  # no data, no contribution
    return table, table[:, :, None] * mean[:, None, :]


def maximize_mixture(
    total_responsibility: np.ndarray,
    total_weighted: np.ndarray,
    num_groups: float,
    *,
    centers: np.ndarray,
    total_size: np.ndarray | None = None,
) -> DiscreteMixture:
    """p_l = sum_i alpha_il / m and center_l = sum_i w_i alpha_il mean_i / sum_i w_i alpha_il (D4).

    The weights are w_i = 1 and the divisor is `total_responsibility` unless `total_size` is given.
    A component without mass keeps its center; a total that noise made negative counts as 0.
    """
    share = np.maximum(total_responsibility / num_groups, 0.0)
    probabilities = share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share))
    divisor = total_responsibility if total_size is None else total_size
    some = divisor > 0
    safe = np.where(some, divisor, 1.0)[:, None]
    return DiscreteMixture(np.where(some[:, None], total_weighted / safe, centers), probabilities)


def fit_discrete(
    mean: np.ndarray,
    variance: np.ndarray,
    start: DiscreteMixture,
    *,
    most_rounds: int = 2000,
    tolerance: float = 1e-10,
    fixed_centers: bool = False,
) -> MixtureFit:
    """Accelerated EM from `start`, to `tolerance` in the mean log-likelihood per group.

    Every group has data here.
    """
    # Centers and probabilities enter one length in the extrapolation, so centers get a scale of 1.
    shift, scale = mean.mean(axis=0), max(float(mean.std(axis=0).max()), 1e-300)
    mean, variance = (mean - shift) / scale, variance / scale**2

    def step(mixture: DiscreteMixture) -> tuple[DiscreteMixture, float]:
        return discrete_em_step(mean, variance, mixture, fixed_centers=fixed_centers)

    scaled = DiscreteMixture((start.centers - shift) / scale, start.probabilities)
    climb = accelerated_em(step, _ahead, scaled, most_rounds=most_rounds, tolerance=tolerance)
    mixture = climb.parameters
    centers = start.centers if fixed_centers else shift + scale * mixture.centers
    level = climb.level - mean.shape[1] * np.log(scale)
    fitted = DiscreteMixture(centers, mixture.probabilities)
    return MixtureFit(fitted, level, len(climb.history), climb.converged)


def discrete_em_step(
    mean: np.ndarray, variance: np.ndarray, mixture: DiscreteMixture, *, fixed_centers: bool = False
) -> tuple[DiscreteMixture, float]:
    """One EM step, and the mean log-likelihood per group before it."""
    table, log_likelihood = responsibilities(mean, variance, mixture)
    weighted = table / variance[:, None]
    updated = maximize_mixture(
        table.sum(axis=0),
        weighted.T @ mean,
        len(mean),
        centers=mixture.centers,
        total_size=weighted.sum(axis=0),
    )
    if fixed_centers:
        updated = DiscreteMixture(mixture.centers, updated.probabilities)
    return updated, float(log_likelihood.mean())


def _ahead(
    start: DiscreteMixture, first: DiscreteMixture, second: DiscreteMixture
) -> DiscreteMixture | None:
    """The `extrapolated` mixture; None if no probability is left."""
    flat = [
        np.concatenate([each.centers.ravel(), each.probabilities])
        for each in (start, first, second)
    ]
    point = extrapolated(*flat)
    share = np.maximum(point[start.centers.size :], 0.0)
    if share.sum() == 0:
        return None
    centers = point[: start.centers.size].reshape(start.centers.shape)
    return DiscreteMixture(centers, share / share.sum())
