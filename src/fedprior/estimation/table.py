"""The scikit-learn face of estimation: rows or sums in, one better number a group out."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fedprior.core import check
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.choices import FITS, INTERVALS, METHODS, NOISES, populations
from fedprior.estimation.conjugate.estimate import estimate_rates
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.estimator import GroupEstimator, MeansEstimator
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.mixture.estimate import estimate_mixture
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Counts, Means, counts_of, repeats_of


class GroupMeans(MeansEstimator):
    """theta_i ~ population, values of group i ~ theta_i + noise: theta_i estimated for every group.

    Values may have several coordinates. `population` is gaussian, scale-mixture, spike-and-slab,
    nonparametric, point or auto (gaussian, unless another one clearly has a lower error in groups
    that are left out); `fit_by` likelihood or moments; `by_size` lets
    the population depend on the group's size; `theta_variance` (between groups) and
    `noise_variance` (of one value) are given where they are known (paper Thm 1); `method="paper"`
    is the paper's own formula. `noise` is common (one variance for all groups), moderated (every
    group has its own, moderated by the others) or auto, which takes moderated where the evidence is
    clear. `intervals="robust"` covers whatever the population's shape is.
    `above` asks for the probability of exceeding a threshold, `ranks` for ranks. `strict` refuses
    missing values instead of leaving their rows out. With a standard error for each row,
    `estimates_.meta` is a meta-analysis, and `leave_one_out` repeats it without each group.

    >>> import numpy as np
    >>> shop = np.repeat(["north", "south", "east", "west"], [2, 3, 9, 6])
    >>> sales = np.arange(20.0) % 7
    >>> model = GroupMeans().fit(sales, shop)
    >>> model.groups_.tolist(), model.n_.tolist()
    (['east', 'north', 'south', 'west'], [9, 2, 3, 6])
    >>> bool(model.predict(["elsewhere"])[0] == model.population_.mean)
    True

    With covariates the population's mean is a regression, by which new groups are predicted:

    >>> size = np.repeat([30.0, 10.0, 25.0, 40.0], [2, 3, 9, 6])
    >>> model = GroupMeans().fit(sales, shop, covariates={"size": size})
    >>> model.population_.coefficients.names
    ('intercept', 'size')
    >>> bool(np.isfinite(model.predict(["elsewhere"], covariates={"size": [20.0]})[0]))
    True
    """

    _function: ClassVar[Callable[..., Any]] = staticmethod(estimate_means)
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "population": populations("gaussian"),
        "fit_by": FITS,
        "method": METHODS,
        "noise": NOISES,
        "intervals": INTERVALS,
    }

    def __init__(
        self,
        *,
        population: str = "gaussian",
        fit_by: str = "likelihood",
        method: str = "default",
        by_size: bool = False,
        theta_variance: float | None = None,
        noise_variance: float | None = None,
        noise: str = "auto",
        level: float = 0.95,
        intervals: str = "default",
        above: float | None = None,
        ranks: bool = False,
        leave_one_out: bool = False,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    @classmethod
    def from_table(
        cls,
        frame: Any,
        *,
        group: str | Sequence[str],
        value: str,
        stderr: str | None = None,
        **parameters: Any,
    ) -> Self:
        """Fit `GroupMeans(**parameters)` to columns of a frame, in the engine that holds it.

        The frame is pandas or Polars or, lazily, Polars, a DuckDB relation, PySpark or Ibis. Lazy
        ones are summed by their engine; `to_frame` and `encode` are joins there. With more than
        10,000 groups only a table by size is read, unless an option needs each group's mean.
        """
        return cls(**parameters)._fit_table(frame, group, value=value, stderr=stderr)


class GroupRates(GroupEstimator):
    """p_i ~ population, outcomes of group i ~ Bernoulli(p_i): p_i estimated for every group.

    `population` is beta, scale-mixture, spike-and-slab, nonparametric, point or auto; `prior` is
    (alpha, beta) where the Beta is known; `minus_one` concerns `method="paper"` only (ERRATA 14);
    all else as in `GroupMeans`. With covariates the logit of the population's mean is a regression.

    >>> model = GroupRates.from_counts([3, 0, 9], [10, 2, 12], groups=["x", "y", "z"])
    >>> model.raw_.tolist()
    [0.3, 0.0, 0.75]
    >>> bool(0.0 < model.predict(["y"])[0] < 0.75)
    True
    """

    _kind: ClassVar[str] = "rates"
    _function: ClassVar[Callable[..., Any]] = staticmethod(estimate_rates)
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "population": populations("beta"),
        "fit_by": FITS,
        "method": METHODS,
        "intervals": INTERVALS,
    }

    def __init__(
        self,
        *,
        population: str = "beta",
        fit_by: str = "likelihood",
        method: str = "default",
        minus_one: bool = True,
        by_size: bool = False,
        prior: tuple[float, float] | None = None,
        level: float = 0.95,
        intervals: str = "default",
        above: float | None = None,
        ranks: bool = False,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    def fit(self, y: Any, groups: Any, *, covariates: Any = None) -> Self:
        """Learn from rows: outcome `y` (0 or 1, False or True) of group `groups`.

        `covariates` (a data frame, a dictionary of columns, or an array) have one row per row,
        constant within each group; words become indicators. A group with covariates but without an
        outcome is predicted from them, a group that lacks a covariate is dropped.
        """
        self._check()
        values = numeric.numbers(self._owner, "y", y)
        good = (values == 0) | (values == 1)
        remedy = "For counts use fit_counts(successes, trials), for other numbers GroupMeans."
        numeric.check_rows(self._owner, "y", values, good, "0 or 1", remedy)
        factor = labels.factorize(self._owner, "groups", groups)
        numeric.same_length(self._owner, y=values, groups=factor.place)
        factor, keep, found = self._complete(factor, covariates, values)
        statistics = counts_of(values[keep], factor.place, len(factor.levels))
        return self._learn(statistics, factor.levels, y, groups, covariates=found)

    def fit_counts(
        self,
        successes: Any,
        trials: Any,
        groups: Any = None,
        *,
        count: Any = None,
        covariates: Any = None,
    ) -> Self:
        """Learn from counts; rows of a group are added, rows without labels are groups 0, 1, ...

        With `count`, a row without a label stands for so many groups with the same numbers, and
        the same `covariates`, which are those of `fit`.
        """
        self._check()
        sentence = "count cannot be combined with groups: a row stands for several of them."
        check.expect(count is None or groups is None, self._owner, sentence)
        won = numeric.numbers(self._owner, "successes", successes)
        n = numeric.numbers(self._owner, "trials", trials)
        numeric.same_length(self._owner, successes=won, trials=n)
        numeric.check_whole(self._owner, "successes", won)
        numeric.check_trials(self._owner, "successes", won, n)
        factor = labels.of_rows(self._owner, groups, successes=won)
        times = None if count is None else numeric.numbers(self._owner, "count", count)
        if times is not None:
            numeric.same_length(self._owner, successes=won, count=times)
            numeric.check_whole(self._owner, "count", times, least=1)
        factor, keep, found = self._complete(factor, covariates, won, n, times)
        levels, stands = len(factor.levels), None
        if times is not None:
            stands = np.ones(levels, np.int64)  # a row without numbers, to be predicted, for one
            stands[factor.place] = times[keep]
        statistics = Counts(
            n=np.bincount(factor.place, n[keep], levels).astype(np.int64),
            successes=np.bincount(factor.place, won[keep], levels).astype(np.int64),
            count=stands,
            repeats=repeats_of(won[keep], n[keep], factor.place, levels),
        )
        return self._learn(statistics, factor.levels, successes, trials, groups, covariates=found)

    @classmethod
    def from_counts(
        cls,
        successes: Any,
        trials: Any,
        groups: Any = None,
        *,
        count: Any = None,
        covariates: Any = None,
        **parameters: Any,
    ) -> Self:
        """`GroupRates(**parameters).fit_counts(successes, trials, groups, count=count, ...)`."""
        return cls(**parameters).fit_counts(
            successes, trials, groups, count=count, covariates=covariates
        )

    @classmethod
    def from_table(
        cls,
        frame: Any,
        *,
        group: str | Sequence[str],
        outcome: str | None = None,
        successes: str | None = None,
        trials: str | None = None,
        **parameters: Any,
    ) -> Self:
        """Fit `GroupRates(**parameters)` to columns of a frame, in the engine that holds it.

        Give `outcome` (0 and 1, or truth values), or `successes` and `trials`. Of lazy frames (see
        `GroupMeans.from_table`) only the distinct pairs of n and successes are read.
        """
        owner = cls.__name__
        sentence = "give outcome, or successes and trials."
        counts = successes is not None and trials is not None
        part = counts or (successes is None and trials is None)
        check.expect(part and (outcome is None) == counts, owner, sentence)
        return cls(**parameters)._fit_table(
            frame, group, outcome=outcome, successes=successes, trials=trials
        )


class GroupMixture(MeansEstimator):
    """theta_i is one of `num_components` centers, values of group i ~ N(theta_i, noise I).

    The personal estimate is the average of the centers by their posterior probabilities,
    `responsibilities_`, one column a component (paper Thm 5, ERRATA 20-23, D4). On `auto` the
    number of components is that of least BIC. `centers`, `probabilities` and `noise_variance` are
    given where they are known. `cluster(means, num_components) -> probabilities, centers, scales`
    takes the place of k-means; `method="paper"` runs Algorithm 1 as printed, for `rounds` rounds.
    Fitted besides what all estimators have: `centers_`, `probabilities_`, `noise_variance_`,
    `responsibilities_`, `log_likelihood_`.

    >>> import numpy as np
    >>> group = np.repeat(np.arange(6), 4)
    >>> values = np.where(group < 3, -5.0, 5.0) + np.tile([-1.0, 0.0, 0.0, 1.0], 6)
    >>> np.sort(GroupMixture(2).fit(values, group).centers_).tolist()
    [-5.0, 5.0]
    """

    _choices: ClassVar[dict[str, tuple[str, ...]]] = {"method": METHODS}

    def __init__(
        self,
        num_components: int | str = "auto",
        *,
        centers: Any = None,
        probabilities: Any = None,
        noise_variance: float | None = None,
        method: str = "default",
        cluster: Callable[..., Any] | None = None,
        rounds: int = 1,
        level: float = 0.95,
        seed: int = 0,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    def _columns(self) -> dict[str, np.ndarray]:
        share = self.responsibilities_
        names = (f"component_{number}" for number in range(share.shape[1]))
        return super()._columns() | dict(zip(names, share.T, strict=True))

    def _estimate(
        self, statistics: Means, *, covariates: Covariates | None = None, again: bool = False
    ) -> Estimates:
        sentence = "covariates cannot be combined with a mixture. Use GroupMeans."
        check.expect(covariates is None, self._owner, sentence)
        sentence = "a mixture needs each group's mean, and cannot be combined with count."
        check.expect(statistics.count is None, self._owner, sentence)
        found = estimate_mixture(statistics, **self._options(estimate_mixture, again))
        if not again:
            self.centers_, self.probabilities_ = found.centers, found.probabilities
            self.noise_variance_ = found.noise_variance
            self.responsibilities_ = found.responsibilities
            self.log_likelihood_ = found.log_likelihood
        return found.estimates
