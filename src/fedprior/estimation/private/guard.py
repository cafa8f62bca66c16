"""Whether a mixture lowers the error of the groups' estimates, by their last message (D4)."""

from typing import NamedTuple

import numpy as np

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.estimation.mixture.em import DiscreteMixture, responsibilities
from fedprior.estimation.stein import squared_errors

# Of the change that a group's estimate makes to its squared error, in units of that of its mean: at
# least -2, and above 6 once in 200 groups where the mixture is right.
_CHANGE = (-2.0, 6.0)
_CONFIDENCE = 2.33  # standard errors of the upper bound on the mean change: 99%


class Guard(NamedTuple):
    """Mean relative change of the squared error, as reported, and an upper bound on it."""

    change: float
    most: float


def changes(means: np.ndarray, variance: np.ndarray, mixture: DiscreteMixture) -> np.ndarray:
    """Stein: E |personal - theta|^2 / (d s) - 1 = E [|personal - mean|^2 / (d s) + 2 w - 2].

    w = posterior variance / s is the slope of personal in the mean. A column, one row per group.
    """
    table, _ = responsibilities(means, variance, mixture)
    return (squared_errors(means, variance, table, mixture.centers) / variance - 1)[:, None]


def guarded(sent: np.ndarray) -> Guard:
    """The guard that the reported changes give."""
    average, error = float(sent.mean()), float(sent.std(ddof=1) / np.sqrt(len(sent)))
    return Guard(average, average + _CONFIDENCE * error)


def last_channel(channel: LocalGaussian | Quantize) -> LocalGaussian | Quantize:
    """For the change of the squared error, with the noise-to-range ratio of the other messages."""
    low, high = _CHANGE
    if isinstance(channel, Quantize):
        return Quantize(bits_per_coordinate=channel.bits_per_coordinate, low=low, high=high)
    half = (high - low) / 2
    scale = channel.scale / channel.clip * half
    return LocalGaussian(clip=half, scale=scale, center=(low + high) / 2)
