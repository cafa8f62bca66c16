"""What distributed noise costs: each client adds a part of it (ERRATA D7, variant 3)."""

import math
from dataclasses import dataclass

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import gaussian


@dataclass(frozen=True, kw_only=True)
class DistributedNoise:
    """Each of K clients adds N(0, scale^2 I); secure aggregation shows the server only the sum.

    Even if the noise of `missing` clients (dropped out, or colluding with the server) is lost, the
    rest is at least N(0, (noise_multiplier * clip)^2 I). K is fixed: with Poisson cohorts the
    number of noise terms would be random, and no guarantee is claimed for that case. Epsilon is
    for the replace-one relation, because an absent client takes its noise with it. If nobody is
    missing in any round, the sum has more noise, and costs `complete_epsilon`.
    """

    scale: float
    noise_multiplier: float
    complete_noise_multiplier: float
    epsilon: float
    complete_epsilon: float
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
    """Return the noise scale for each client, and the epsilon of `rounds` rounds."""
    owner = "distributed_noise"
    check.positive(owner, noise_multiplier=noise_multiplier, clip=clip)
    check.count(owner, cohort_size=cohort_size, rounds=rounds)
    check.count(owner, least=0, missing=missing)
    if missing >= cohort_size:
        raise PrivacyError(
            f"{owner}: missing must be below the cohort's size ({cohort_size}), got {missing}. "
            "At least one client has to add noise."
        )
    complete = noise_multiplier * math.sqrt(cohort_size / (cohort_size - missing))

    def cost(noise: float) -> float:
        return epsilon([(gaussian(noise), rounds)], delta=delta, relation="replace-one")

    return DistributedNoise(
        scale=noise_multiplier * clip / math.sqrt(cohort_size - missing),
        noise_multiplier=noise_multiplier,
        complete_noise_multiplier=complete,
        epsilon=cost(noise_multiplier),
        complete_epsilon=cost(complete),
        delta=delta,
    )
