"""What is known of one level of groups, of the whole, and of coefficients."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.estimation.covariates import Coefficients


@dataclass(frozen=True, kw_only=True, eq=False)
class Values:
    """One row per level of a factor, or per cell: what came in, and what is estimated.

    `weight` is that of the own data (NaN where it has no meaning), `scale` the posterior standard
    deviation of the mean or rate.
    """

    n: np.ndarray
    raw: np.ndarray
    personal: np.ndarray
    scale: np.ndarray
    weight: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelEstimates:
    """The levels of the factor `name`: their values, and how much they differ.

    `deviation` is the standard deviation of their effects, on the scale of the linear predictor
    (logits of rates, logarithms of rates of events), with its standard error (NaN at 0). `example`
    is, for each level, a group in it.
    """

    name: str
    deviation: float
    error: float
    values: Values
    example: np.ndarray

    @property
    def number(self) -> int:
        return len(self.example)

    def summary(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "groups": self.number,
            "sd": self.deviation,
            "sd_error": self.error,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """A model of several grouping columns.

    `structure` is nested or crossed, as asked, and `chain` whether every group does lie in one
    group of the level above it. `criterion` is reml or ml (by Laplace's approximation, but for the
    family gaussian). `noise` is the standard deviation of one row, None where there is none to
    estimate. `parts` are the factors, coarse to fine in a nest; `whole` is the population's value.
    """

    family: str
    structure: str
    chain: bool
    criterion: str
    log_likelihood: float
    noise: float | None
    noise_error: float
    whole: Values
    parts: tuple[LevelEstimates, ...]
    coefficients: Coefficients | None = None

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "structure": self.structure,
            "criterion": self.criterion,
            "log_likelihood": self.log_likelihood,
            "levels": [part.summary() for part in self.parts],
            "noise": None if self.noise is None else {"sd": self.noise, "error": self.noise_error},
            "whole": {name: float(getattr(self.whole, name)[0]) for name in _WHOLE},
        }
        if self.coefficients is not None:
            found["fixed"] = self.coefficients.summary()
        return found


_WHOLE = ("personal", "lower", "upper")
