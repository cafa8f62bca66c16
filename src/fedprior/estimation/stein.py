"""Stein's unbiased risk estimate: the error of shrinkage, whatever the population of theta."""

from dataclasses import replace

import numpy as np

from fedprior.estimation.result import Estimates

_SURE = 2.0  # standard errors by which Stein's estimate must exceed the fit's own to replace it


def squared_errors(
    mean: np.ndarray, variance: np.ndarray, table: np.ndarray, centers: np.ndarray
) -> np.ndarray:
    """Unbiased for |personal - theta|^2 / d of each group: |personal - mean|^2 / d + 2 w s - s.

    personal = table @ centers; w s is the posterior variance, w the slope of personal in the mean
    and s the sampling `variance` per coordinate. The centers are treated as constants.
    """
    personal = table @ centers
    spread = (table @ centers**2 - personal**2).mean(axis=1)
    return ((personal - mean) ** 2).mean(axis=1) + 2 * spread - variance


def pulls(variance: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The term 2 s d personal / d center for centers that were learned from the same means.

    A group moves center l by alpha_il / s_i, divided by the sum of that over groups.
    """
    mass = (table / variance[:, None]).sum(axis=0)
    return 2 * (table**2 / np.maximum(mass, 1e-300)).sum(axis=1)


def with_checked_gains(
    estimates: Estimates,
    mean: np.ndarray,
    variance: np.ndarray,
    table: np.ndarray,
    centers: np.ndarray,
    *,
    learned: bool,
) -> Estimates:
    """Replace the gains by Stein's estimate where that is clearly worse than the fit's own.

    The rows are those of groups with data. The fit's own estimate is less noisy, and right if theta
    is drawn from the fitted population. Where the two differ by more than 2 standard errors it is
    not, and only Stein's holds. A note says so unless the centers were given (`learned` is False):
    those may come from private reports, and the note would reveal something about the data.
    """
    each = squared_errors(mean, variance, table, centers)
    if learned:
        each = each + pulls(variance, table)
    raw = float(variance.mean())
    claimed = raw * (1 - estimates.gain_over_raw / 100)
    error = float(each.mean())
    if error <= claimed + _SURE * float(each.std()) / np.sqrt(len(each)):
        return estimates
    scatter = float(((mean - mean.mean(axis=0)) ** 2).mean())
    share = 1 / len(mean)  # weight of a group in the common mean, for that mean's 2 w s
    pooled = max(scatter + (2 * share - 1) * raw, share * raw)
    notes = estimates.notes
    if learned:
        notes = (
            *notes,
            "The groups' means do not scatter about the centers as noise would: the expected gain "
            f"over the raw values is {100 * (1 - error / raw):.1f}%, not the "
            f"{estimates.gain_over_raw:.1f}% that these centers would give if theta were one of "
            "them. The intervals are too short then.",
        )
    return replace(
        estimates,
        gain_over_raw=100 * (1 - error / raw),
        gain_over_pooled=100 * (1 - error / pooled),
        notes=notes,
    )
