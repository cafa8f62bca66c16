"""`GroupEvents`: rows of events over an exposure in, one better rate a group out."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.choices import FITS, INTERVALS, populations
from fedprior.estimation.conjugate.estimate import estimate_events
from fedprior.estimation.estimator import GroupEstimator
from fedprior.estimation.statistics import Events, repeats_of


class GroupEvents(GroupEstimator):
    """theta_i ~ population, events of group i ~ Poisson(exposure_i theta_i): theta_i estimated.

    `population` is gamma, scale-mixture, spike-and-slab, nonparametric, point or auto; `prior` is
    (shape, rate) where the Gamma is known; `by_size` lets the population depend on the exposure;
    all else as in `GroupMeans`. With covariates the log of the population's mean is a regression.

    >>> model = GroupEvents().fit([3, 0, 9], exposure=[10.0, 2.5, 12.0], groups=["x", "y", "z"])
    >>> model.raw_.tolist()
    [0.3, 0.0, 0.75]
    >>> bool(0.0 < model.predict(["y"])[0] < 0.75)
    True
    """

    _kind: ClassVar[str] = "events"
    _function: ClassVar[Callable[..., Any]] = staticmethod(estimate_events)
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "population": populations("gamma"),
        "fit_by": FITS,
        "intervals": INTERVALS,
    }

    def __init__(
        self,
        *,
        population: str = "gamma",
        fit_by: str = "likelihood",
        by_size: bool = False,
        prior: tuple[float, float] | None = None,
        level: float = 0.95,
        intervals: str = "default",
        above: float | None = None,
        ranks: bool = False,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    def fit(
        self, events: Any, groups: Any = None, *, exposure: Any = None, covariates: Any = None
    ) -> Self:
        """Learn from rows of events; rows of a group are added, and so is their exposure.

        Without `exposure` every row has an exposure of 1. Rows without labels are groups 0, 1, ...
        `covariates` (a data frame, a dictionary of columns, or an array) have one row per row,
        constant within each group; words become indicators. A group with covariates but without
        events or exposure is predicted from them, a group that lacks a covariate is dropped.
        """
        self._check()
        happened = numeric.numbers(self._owner, "events", events)
        numeric.check_whole(self._owner, "events", happened)
        over = np.ones(len(happened))
        if exposure is not None:
            over = numeric.numbers(self._owner, "exposure", exposure)
        numeric.same_length(self._owner, events=happened, exposure=over)
        remedy = "Events need an exposure above 0."
        numeric.check_exposure(self._owner, "events", happened, over, remedy)
        factor = labels.of_rows(self._owner, groups, events=happened)
        factor, keep, found = self._complete(factor, covariates, happened, over)
        levels = len(factor.levels)
        statistics = Events(
            exposure=np.bincount(factor.place, over[keep], levels),
            events=np.bincount(factor.place, happened[keep], levels).astype(np.int64),
            repeats=repeats_of(happened[keep], over[keep], factor.place, levels),
        )
        return self._learn(statistics, factor.levels, events, exposure, groups, covariates=found)

    @classmethod
    def from_table(
        cls,
        frame: Any,
        *,
        group: str | Sequence[str],
        events: str,
        exposure: str | None = None,
        **parameters: Any,
    ) -> Self:
        """Fit `GroupEvents(**parameters)` to columns of a frame, in the engine that holds it.

        Of lazy frames (see `GroupMeans.from_table`) only the distinct pairs of exposure and events
        are read. Without `exposure` every row has an exposure of 1.
        """
        return cls(**parameters)._fit_table(frame, group, events=events, exposure=exposure)
