"""What other deployments would cost: noise from the clients, messages in the open, noise a step.

Accountants only: none of these runs in the simulator (ERRATA D7, variants 3 to 5).
"""

import math
from dataclasses import dataclass

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import check_delta, epsilon, epsilon_from_renyi
from fedprior.privacy.calibrate import gaussian_epsilon
from fedprior.privacy.events import gaussian


@dataclass(frozen=True, kw_only=True)
class DistributedNoise:
    """Each of K clients adds N(0, scale^2 I); secure aggregation shows the server the sum only.

    The noise of `missing` clients (dropped out, or colluding with the onlooker) may be lost, and
    what is left is still N(0, (noise_multiplier * clip)^2 I). K is fixed: with Poisson cohorts the
    number of noises would be random, and no such claim is made. Epsilon is for replace-one: a
    client that is not there takes its noise along.
    """

    scale: float
    noise_multiplier: float
    epsilon: float
    delta: float


def distributed_noise(
    *,
    noise_multiplier: float,
    clip: float,
    cohort_size: int,
    missing: int,
    rounds: int,
    delta: float,
) -> DistributedNoise:
    """The scale that each client adds, and what `rounds` rounds cost (variant 3)."""
    owner = "distributed_noise"
    check.positive(owner, noise_multiplier=noise_multiplier, clip=clip)
    check.count(owner, cohort_size=cohort_size, rounds=rounds)
    check.count(owner, least=0, missing=missing)
    if missing >= cohort_size:
        raise PrivacyError(
            f"{owner}: missing must be below the cohort's size ({cohort_size}), got {missing}. "
            "Somebody has to add the noise."
        )
    spent = [(gaussian(noise_multiplier), rounds)]
    return DistributedNoise(
        scale=noise_multiplier * clip / math.sqrt(cohort_size - missing),
        noise_multiplier=noise_multiplier,
        epsilon=epsilon(spent, delta=delta, relation="replace-one"),
        delta=delta,
    )


def seen_uploads(*, scale: float, clip: float, participations: int, delta: float) -> float:
    """Epsilon (replace-one) where each upload is seen with its own noise N(0, scale^2 I).

    No sampling helps: a ratio of 2 clip sqrt(participations) / scale (variant 4).
    """
    return gaussian_epsilon(scale, delta, sensitivity=2 * clip, rounds=participations)


def step_noise(
    *,
    scale: float,
    clip: float,
    local_steps: int,
    rounds: int,
    delta: float,
    cohort_size: int = 1,
    zero_out: bool = False,
) -> float:
    """Epsilon of the paper's noise, N(0, scale^2 I) on each clipped local gradient (variant 5).

    A round has zero-concentrated rho = (S clip)^2 / (2 scale^2) * min over r of (tau - r) + r^2/K,
    S = 2 (replace-one), or 1 with `zero_out` (the client adds nothing but its noise): the last r
    steps' noises of all K clients hide the client together, the earlier ones, fed back through the
    gradients, only one by one. K = 1 is the view of a single upload. Rounds add up; no
    amplification by sampling is claimed. The printed theorem has 1/K in place of the minimum
    (ERRATA 47).
    """
    owner = "step_noise"
    check.positive(owner, scale=scale, clip=clip)
    check.count(owner, local_steps=local_steps, rounds=rounds, cohort_size=cohort_size)
    check_delta(owner, delta)
    moved = (1 if zero_out else 2) * clip
    factor = hidden_steps(local_steps, cohort_size)
    rho = rounds * moved**2 / (2 * scale**2) * factor
    orders = [1 + 10 ** (step / 100) for step in range(-300, 401)]
    return min(epsilon_from_renyi(order, rho * order, delta=delta) for order in orders)


def hidden_steps(local_steps: int, cohort_size: int) -> float:
    """The least (tau - r) + r^2/K over r = 0..tau.

    >>> round(hidden_steps(10, 22), 3)
    4.545
    """
    return min((local_steps - r) + r**2 / cohort_size for r in range(local_steps + 1))
