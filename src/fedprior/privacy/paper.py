"""Privacy bounds and noise as printed in the paper; none of them is used as a guarantee."""

import math

from fedprior.core import check
from fedprior.privacy.accounting import epsilon_from_renyi
from fedprior.privacy.calibrate import check_release, gaussian_epsilon


def paper_bound(
    *, noise_multiplier: float, rate: float, rounds: int, local_steps: int, delta: float
) -> float:
    """Thm 7 as printed, NOT a guarantee (ERRATA 46-51): Renyi rounds * 6 q^2 order / (tau z^2).

    `noise_multiplier` z is the noise on the sum over the clip of a whole upload. In the paper's
    per-step units z = sqrt(K/tau) sigma_q/C_1, which turns its K sigma_q^2/C_1^2 into tau z^2.
    """
    check.positive("paper_bound", noise_multiplier=noise_multiplier)
    check.fraction("paper_bound", rate=rate)
    check.count("paper_bound", rounds=rounds, local_steps=local_steps)
    slope = rounds * 6 * rate**2 / (local_steps * noise_multiplier**2)
    orders = [1 + 10 ** (step / 100) for step in range(-200, 401)]
    return min(epsilon_from_renyi(order, slope * order, delta=delta) for order in orders)


def paper_gaussian_scale(epsilon: float, delta: float, *, radius: float) -> float:
    """(radius / epsilon) sqrt(8 log(2 / delta)): the paper's noise, per coordinate (Thm 2.2).

    As printed it is meant for a message in the box [-radius, radius]^d and claims (epsilon, delta)
    for the whole message. That holds in one dimension (epsilon up to about 9), not in general; its
    actual epsilon is `paper_gaussian_epsilon` (ERRATA 7, 8).
    """
    check_release("paper_gaussian_scale", delta, radius, 1)
    check.positive("paper_gaussian_scale", epsilon=epsilon)
    return radius / epsilon * math.sqrt(8 * math.log(2 / delta))


def paper_gaussian_epsilon(epsilon: float, delta: float, *, dimension: int) -> float:
    """Return the true epsilon of the paper's noise for a claimed `epsilon` and a d-dimensional box.

    Two messages in the box are up to 2 * radius * sqrt(d) apart.

    >>> round(paper_gaussian_epsilon(0.5, 1e-4, dimension=1), 3)
    0.315
    >>> round(paper_gaussian_epsilon(0.5, 1e-4, dimension=100), 2)
    4.37
    """
    check.count("paper_gaussian_epsilon", dimension=dimension)
    scale = paper_gaussian_scale(epsilon, delta, radius=1.0)
    return gaussian_epsilon(scale, delta, sensitivity=2 * math.sqrt(dimension))
