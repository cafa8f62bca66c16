"""The result of estimation: one row per group, the population, and the gain from sharing."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.core.plain import picked
from fedprior.estimation.covariates import Coefficients
from fedprior.estimation.levels.result import Levels
from fedprior.estimation.meta import MetaAnalysis
from fedprior.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from pathlib import Path

    from fedprior.estimation.gaussian.lookup import MeanLookup
    from fedprior.pages.report import ShownPage

FELL_BACK = "The private reports show no gain from sharing: every group keeps its own raw value."


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedPopulation:
    """The fitted population that the groups come from.

    `kind` is gaussian, beta, gamma, scale-mixture, spike-and-slab, nonparametric, mixture or point;
    `fitted_by` is the method (likelihood, moments, integrated, known, paper, private ...).
    `parameters` and, where they are available, `standard_errors` are keyed by name. `heterogeneity`
    is the standard deviation of theta between groups (root mean square over coordinates). A
    nonparametric or mixture population has `atoms` with `weights`; in a scale-mixture or
    spike-and-slab, these are the means of members of the conjugate population `member`, which have
    the standard deviations `spread`. `by_size` means that it depends on the size of the group.
    Where the mean depends on covariates, `coefficients` say how, `mean` is the average over groups,
    and `heterogeneity` includes what the covariates explain.
    """

    kind: str
    fitted_by: str
    mean: float | np.ndarray
    heterogeneity: float
    parameters: dict[str, float]
    standard_errors: dict[str, float] = field(default_factory=dict)
    atoms: np.ndarray | None = None
    weights: np.ndarray | None = None
    spread: np.ndarray | None = None
    member: str = ""
    by_size: bool = False
    coefficients: Coefficients | None = None

    @property
    def varies(self) -> bool:
        """Whether groups have populations of their own, by size or by covariates."""
        return self.by_size or self.coefficients is not None

    def per(self, unit: float) -> "FittedPopulation":
        """The same population of rates, per 1 instead of per `unit` of exposure."""
        if unit == 1:
            return self

        def each(values: dict[str, float]) -> dict[str, float]:
            factor = {"concentration": unit, "rate": unit, "shape": 1.0, "spike_share": 1.0}
            return {
                name: value * factor.get(name.partition("_at_")[0], 1 / unit)
                for name, value in values.items()
            }

        return replace(
            self,
            mean=self.mean / unit,
            heterogeneity=self.heterogeneity / unit,
            parameters=each(self.parameters),
            standard_errors=each(self.standard_errors),
            atoms=None if self.atoms is None else self.atoms / unit,
            spread=None if self.spread is None else self.spread / unit,
        )

    def density(self, points: np.ndarray) -> np.ndarray | None:
        """p(theta) at `points`; None for atoms, or if the population varies with the group."""
        from scipy import stats

        if self.varies or self.heterogeneity <= 0:
            return None
        if self.kind == "gaussian" and np.ndim(self.mean) == 0:
            return stats.norm.pdf(points, self.mean, self.heterogeneity)
        if self.kind == "beta":
            return stats.beta.pdf(points, self.parameters["alpha"], self.parameters["beta"])
        if self.kind == "gamma":
            shape, rate = self.parameters["shape"], self.parameters["rate"]
            return stats.gamma.pdf(points, shape, scale=1 / rate)
        if self.spread is not None and self.atoms is not None and (self.spread > 0).all():
            each = _member_density(self.member, np.asarray(points)[..., None], self)
            return each @ self.weights
        return None


def _member_density(member: str, points: np.ndarray, of: FittedPopulation) -> np.ndarray:
    """The density of each conjugate member at each point."""
    from scipy import stats

    mean, variance = np.asarray(of.atoms), np.asarray(of.spread) ** 2
    if member == "gaussian":
        return stats.norm.pdf(points, mean, np.sqrt(variance))
    if member == "gamma":
        return stats.gamma.pdf(points, mean**2 / variance, scale=variance / mean)
    size = np.maximum(mean * (1 - mean) / variance - 1, 1e-3)
    return stats.beta.pdf(points, mean * size, (1 - mean) * size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranks:
    """Posterior mean and interval limits of each group's rank; rank 1 is the largest theta."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Raw and personal estimates with their uncertainty, one row per group.

    `weight` is the weight of the group's own data in `personal`, and `scale` the posterior standard
    deviation. `lower` and `upper` bound an interval whose coverage, averaged over groups, is
    `level`. `gain_over_raw` and `gain_over_pooled` are the expected reductions of the mean squared
    error, in percent, relative to each group's raw mean and to one common mean for all groups; with
    `gains_are_bounds` they are lower bounds, each broken in 2.5% of the cases at most.
    `size_name` says what `n` is: n, or exposure. A group without rows has raw NaN, weight 0, and
    the mean and interval of the population.
    `fell_back` means that private reports were too noisy, so that every group keeps its raw value.
    With `count`, a row stands for so many groups with the same numbers; for means, with the same n,
    and `lookup` has the numbers of a group of that size with any mean.
    `above` has the probabilities that the groups' true values are above a threshold, and `ranks`
    their ranks, if they were asked for.
    `meta` has the figures of a meta-analysis if every group came with its standard error.
    `levels` has those of the groups in which groups lie, or which cross each other.
    `checks` has the assumptions that were tested (`size`: small and large groups are alike,
    `shape`: that of the population, `noise`: it is the same in all groups, `rows`: those of a group
    have one rate), each with the note on what was found, empty if nothing was.
    """

    n: np.ndarray
    raw: np.ndarray
    personal: np.ndarray
    weight: np.ndarray
    scale: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float
    population: FittedPopulation
    gain_over_raw: float
    gain_over_pooled: float
    above: np.ndarray | None = None
    ranks: Ranks | None = None
    notes: tuple[str, ...] = ()
    guarantee: Guarantee | None = None
    fell_back: bool = False
    gains_are_bounds: bool = False
    meta: MetaAnalysis | None = None
    count: np.ndarray | None = None
    size_name: str = "n"
    lookup: "MeanLookup | None" = None
    levels: Levels | None = None
    checks: dict[str, str] = field(default_factory=dict)

    @property
    def num_groups(self) -> int:
        return len(self.n) if self.count is None else int(self.count.sum())

    @property
    def sentence(self) -> str:
        """Whether collaboration helps, as one sentence (paper section 2, remarks)."""
        if self.fell_back:
            return FELL_BACK
        if self.gains_are_bounds:
            limited = " of rates up to the public bound" * (self.size_name == "exposure")
            gains = (self.gain_over_raw, self.gain_over_pooled)
            return _bound_sentence(*gains, self._typical, limited)
        return gain_sentence(
            gain_over_raw=self.gain_over_raw,
            gain_over_pooled=self.gain_over_pooled,
            weight=self.weight[self.n > 0],
            count=None if self.count is None else self.count[self.n > 0],
        )

    @property
    def _typical(self) -> float:
        some = self.n > 0
        count = None if self.count is None else self.count[some]
        return median(self.weight[some], count)

    def columns(self) -> dict[str, np.ndarray]:
        """What `fedprior estimate --out` writes behind the group's name."""
        names = ("raw", "personal", "weight", "lower", "upper")
        found = {self.size_name: np.asarray(self.n), **picked(self, *names)}
        if self.above is not None:
            found["above"] = self.above
        if self.ranks is not None:
            found["rank"] = self.ranks.mean
            found["rank_lower"] = self.ranks.lower
            found["rank_upper"] = self.ranks.upper
        return {name: np.ascontiguousarray(values) for name, values in found.items()}

    def report(self, path: "str | Path | None" = None, *, groups: Any = None) -> "ShownPage":
        """Return a page about the estimates, written to an .html file if `path` is given.

        `groups` are names, by default numbers from 0. Of private estimates the page has the
        population and the guarantee alone.
        """
        from fedprior.estimation.page.fitted import page_of
        from fedprior.pages.report import report

        names = range(len(self.n)) if groups is None else list(groups)
        return report(page_of(self, names), path)

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def summary(self) -> dict[str, Any]:
        """What `fedprior estimate --json` prints."""
        population = self.population
        law = ("kind", "fitted_by", "mean", "heterogeneity", "parameters", "standard_errors")
        gains = ("gain_over_raw", "gain_over_pooled", "gains_are_bounds", "sentence")
        summary: dict[str, Any] = {
            "format": 1,
            "num_groups": self.num_groups,
            "population": picked(population, *law, "by_size"),
            **picked(self, *gains, "notes", "level", "size_name", "checks"),
        }
        summary["population"]["mean"] = np.asarray(population.mean).tolist()
        summary["notes"] = list(self.notes)
        if population.atoms is not None and population.weights is not None:
            summary["population"]["atoms"] = population.atoms.tolist()
            summary["population"]["weights"] = population.weights.tolist()
        if population.spread is not None:
            summary["population"]["spread"] = population.spread.tolist()
            summary["population"]["member"] = population.member
        if population.coefficients is not None:
            summary["population"]["coefficients"] = population.coefficients.summary()
            summary["population"]["r_squared"] = population.coefficients.r_squared
            summary["population"]["link"] = population.coefficients.link
        if self.meta is not None:
            summary["meta_analysis"] = self.meta.summary()
        if self.levels is not None:
            summary |= self.levels.summary()
        if self.guarantee is not None:
            summary["privacy"] = self.guarantee.describe()
        return summary


def found_by(**notes: str | None) -> dict[str, str]:
    """The checks that were made, each with its note; None stands for one that was not."""
    return {name: note for name, note in notes.items() if note is not None}


def median(values: np.ndarray, count: np.ndarray | None = None) -> float:
    """The median of values, of which each stands for `count`; 0 for none.

    >>> median(np.array([1.0, 2.0, 7.0]), np.array([1, 1, 2]))
    4.5
    """
    if count is None:
        return float(np.median(values)) if len(values) else 0.0
    order = np.argsort(values)
    below = np.cumsum(count[order])
    if not len(below) or not below[-1]:
        return 0.0
    places = np.searchsorted(below, [(below[-1] - 1) // 2, below[-1] // 2], side="right")
    return float(values[order][places].mean())


def gain_sentence(
    *,
    gain_over_raw: float,
    gain_over_pooled: float,
    weight: np.ndarray,
    count: np.ndarray | None = None,
) -> str:
    """The regimes of the paper's remarks: pool, keep to your own data, or borrow strength."""
    typical = median(weight, count)
    raw, pooled = _against(gain_over_raw), _against(gain_over_pooled)
    if gain_over_raw <= -_PRINTED:
        return (
            f"Collaboration does not help here: the expected error is {raw} the raw values, which "
            "serve the groups better."
        )
    if gain_over_raw < 1:
        return (
            "Collaboration hardly helps: the groups have enough data of their own for how much "
            f"they differ (expected error {raw} the raw values)."
        )
    if gain_over_pooled < 1:
        return (
            f"The groups hardly differ: one common value serves them all (expected error {raw} the "
            f"raw values, {pooled} the common value)."
        )
    return (
        f"Collaboration helps: the expected error is {raw} the raw values and {pooled} one common "
        f"value; a typical group keeps {100 * typical:.0f}% weight on its own data."
    )


def _bound_sentence(over_raw: float, over_pooled: float, typical: float, limited: str) -> str:
    pooled = f" and {over_pooled:.1f}% below one common value" if over_pooled >= 1 else ""
    return (
        f"Collaboration helps: the squared error is at least {over_raw:.1f}% below the raw values"
        f"{pooled} (97.5% confidence, whatever the population{limited}); a typical group keeps "
        f"{100 * typical:.0f}% weight on its own data."
    )


_PRINTED = 0.05  # percent; what rounds to 0.0 is neither above nor below


def _against(gain: float) -> str:
    """`12.3% below` for a gain of 12.3 percent, `4.0% above` for one of -4."""
    if gain <= -_PRINTED:
        return f"{-gain:.1f}% above"
    return f"{max(gain, 0.0):.1f}% below"
