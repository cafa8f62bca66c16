"""Scale <-> (epsilon, delta) of the Gaussian mechanism, exactly (ERRATA 7, 8)."""

import math

from fedprior.core import check

# dp-accounting solves for the root to 1e-12; a scale larger by this factor is on the safe side.
_SAFE_SIDE = 1 + 1e-9


def gaussian_scale(epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1) -> float:
    """Return the noise scale per coordinate that makes `rounds` releases (epsilon, delta)-DP.

    Uses the analytic Gaussian mechanism, valid for every epsilon. `sensitivity` is the largest l2
    distance between the messages of neighbors (2 * clip for replace-one and a ball of radius clip).
    The composition is exact: k releases with noise of scale sqrt(k) are as private as one release
    with scale 1.
    """
    from dp_accounting import gaussian_mechanism

    check_release("gaussian_scale", delta, sensitivity, rounds)
    check.positive("gaussian_scale", epsilon=epsilon)
    scale = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    return float(scale * _SAFE_SIDE * sensitivity * math.sqrt(rounds))


def gaussian_epsilon(scale: float, delta: float, *, sensitivity: float, rounds: int = 1) -> float:
    """Return the smallest epsilon at `delta` of `rounds` releases with noise of `scale`."""
    from dp_accounting import gaussian_mechanism

    check_release("gaussian_epsilon", delta, sensitivity, rounds)
    check.positive("gaussian_epsilon", scale=scale)
    ratio = scale / (sensitivity * math.sqrt(rounds))
    return float(gaussian_mechanism.get_epsilon_gaussian(ratio, delta))


def check_release(owner: str, delta: float, sensitivity: float, rounds: int) -> None:
    """Raise unless Gaussian noise can make `rounds` releases private at `delta`."""
    check.share(owner, delta=delta)
    remedy = "Gaussian noise gives no pure epsilon-DP; randomized response does (OneBit)."
    check.require(delta > 0, owner, "delta", "above 0", delta, remedy)
    check.positive(owner, sensitivity=sensitivity)
    check.count(owner, rounds=rounds)
