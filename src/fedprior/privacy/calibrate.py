"""Exact calibration of the Gaussian mechanism: noise for a budget, and the reverse."""

import math

from fedprior.core import check

# dp-accounting computes the root to 1e-12; this factor makes the scale err on the safe side.
_SAFE_SIDE = 1 + 1e-9


def gaussian_scale(epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1) -> float:
    """Standard deviation of the noise that makes `rounds` releases (epsilon, delta)-DP.

    The noise is per coordinate. The analytic Gaussian mechanism is valid for every epsilon;
    `sensitivity` is the largest l2 distance between messages of neighbors (2 * clip for replace-one
    and a ball of radius clip). k releases with noise of scale sqrt(k) are exactly as private as one
    with scale 1, so the composition is exact.
    """
    from dp_accounting import gaussian_mechanism

    check_release("gaussian_scale", delta, sensitivity, rounds)
    check.positive("gaussian_scale", epsilon=epsilon)
    scale = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    return float(scale * _SAFE_SIDE * sensitivity * math.sqrt(rounds))


def gaussian_epsilon(scale: float, delta: float, *, sensitivity: float, rounds: int = 1) -> float:
    """The smallest epsilon at `delta` of `rounds` releases with noise of `scale`."""
    from dp_accounting import gaussian_mechanism

    check_release("gaussian_epsilon", delta, sensitivity, rounds)
    check.positive("gaussian_epsilon", scale=scale)
    ratio = scale / (sensitivity * math.sqrt(rounds))
    return float(gaussian_mechanism.get_epsilon_gaussian(ratio, delta))


def check_release(owner: str, delta: float, sensitivity: float, rounds: int) -> None:
    """Raise unless Gaussian noise can make `rounds` releases private at `delta`."""
    check.share(owner, delta=delta)
    remedy = "Gaussian noise has no pure epsilon; a randomized response has (OneBit)."
    check.require(delta > 0, owner, "delta", "above 0", delta, remedy)
    check.positive(owner, sensitivity=sensitivity)
    check.count(owner, rounds=rounds)
