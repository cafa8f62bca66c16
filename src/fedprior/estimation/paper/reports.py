"""Private reports as printed: Thm 2.2 for means and Thm 4 for rates (ERRATA 5-8, 17, 19)."""

import numpy as np

from fedprior.channels.randomized_response import OneBit
from fedprior.core import check, random
from fedprior.core.algorithm import Key
from fedprior.estimation.private.moments import Ball
from fedprior.estimation.private.posterior import Weighing
from fedprior.estimation.private.round import Sent, Variances
from fedprior.estimation.result import FittedPopulation
from fedprior.privacy.paper import paper_gaussian_epsilon, paper_gaussian_scale


def paper_mean_reports(
    means: np.ndarray,
    known: Variances,
    ball: Ball,
    epsilon: float,
    delta: float,
    key: Key,
    *,
    widen: bool,
) -> Sent:
    """Thm 2.2 as printed: sigma_q = (b / epsilon) sqrt(8 log(2 / delta)) on the box [-b, b]^d.

    b = r + (sqrt(theta variance) + sqrt(s)) sqrt(log(m^2 n)), which contains the means less often
    than claimed (ERRATA 5). The noise is per coordinate, and its true epsilon is another one
    (ERRATA 7, 8).
    """
    remedy = "The printed mechanism is Gaussian."
    check.require(delta > 0, "Thm 2.2", "delta", "above 0 for method='paper'", delta, remedy)
    radius = ball.radius
    if widen:
        reach = np.sqrt(np.log(float(len(means)) ** 2 * known.least))
        scales = np.sqrt(known.theta) + np.sqrt(known.sampling.max())
        radius = float(radius + scales * reach)
    scale = paper_gaussian_scale(epsilon, delta, radius=radius)
    true = paper_gaussian_epsilon(epsilon, delta, dimension=ball.dimension)
    inside = np.clip(means, ball.center - radius, ball.center + radius)
    note = (
        f"The paper states epsilon = {epsilon:g} for this noise; its true epsilon at delta = "
        f"{delta:g} in {ball.dimension} dimension(s) is {true:.4g}, the one in the guarantee."
    )
    return Sent(
        inside + scale * random.normal(key, inside.shape),
        scale**2,
        32.0 * ball.dimension,
        f"Gaussian noise of scale {scale:g} per coordinate, as printed (paper Thm 2.2)",
        epsilon=max(true, 1e-12),  # 0 where there is so much noise that delta alone would do
        fitted_by="paper",
        notes=(note,),
    )


def paper_rate_weights(
    n: np.ndarray, successes: np.ndarray, epsilon: float, key: Key
) -> tuple[np.ndarray, Weighing, FittedPopulation]:
    """Weight n / (mu (1 - mu) / sigma^2 + n) from the others' q_priv (Thm 4; ERRATA 17, 19).

    Returns the center of each group, the weights and the population. sigma^2 is the variance of
    two-valued reports, whatever the rates are. Means outside [0, 1] are moved to its edge, without
    which the printed weight leaves [0, 1]. Errors are bounds: on average neither p (1 - p) nor the
    heterogeneity can exceed mu (1 - mu).
    """
    taking_part = n > 0
    number = int(taking_part.sum())
    rule = "at least 3 groups with trials for scheme paper"
    check.require(number > 2, "estimate_rates_privately", "statistics", rule, number)
    rates = successes[taking_part] / n[taking_part]
    sent = OneBit(epsilon=epsilon).encode(rates[:, None], key)[:, 0]
    others = (sent.sum() - sent) / (number - 1)
    squares = (sent @ sent - sent**2) - (number - 1) * others**2
    mean = np.clip(others, 1e-9, 1 - 1e-9)
    size = mean * (1 - mean) / (squares / (number - 2))
    own = np.zeros(len(n))
    own[taking_part] = n[taking_part] / (n[taking_part] + size)
    center, typical = float(mean.mean()), float(size.mean())
    most = center * (1 - center)
    local = most / np.maximum(n, 1)
    risk = own**2 * local + (1 - own) ** 2 * most
    note = (
        "Scheme paper: the variance of two-valued reports is the same for every population, so the "
        "heterogeneity is not an estimate of anything (ERRATA 17); errors and "
        "intervals are bounds, the gain is not."
    )
    population = FittedPopulation(
        kind="beta",
        fitted_by="paper (uninformative)",
        mean=center,
        heterogeneity=float(np.sqrt(most / (typical + 1))),
        parameters={"alpha": center * typical, "beta": (1 - center) * typical},
    )
    centers = np.full(len(n), center)
    centers[taking_part] = mean
    return centers, Weighing(own, risk, np.zeros(len(n)), local, most, note), population
