"""Whether the noise of the groups differs, and the estimates if every group has its own."""

from dataclasses import dataclass

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.moderated import moderated_rows
from fedprior.estimation.gaussian.noisy import NoisyGroups, Populations, fit_populations
from fedprior.estimation.gaussian.summary import gaussian_population, quantiles
from fedprior.estimation.gaussian.variances import VariancePopulation, fit_variances
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.statistics import Means

_SIGNIFICANT = 1e-3
_MATERIAL = 1.1  # factor between standard deviations: below it coverage changes by 1.5% at most
_FEWEST = 20  # groups with rows that differ, below which `auto` keeps one variance
_FOLLOWS = 0.3  # rank correlation of variance and mean above which moderation loses more than gains
_OUTWARD = 0.25  # likewise of variance and distance, plus 1.5 of its standard errors: 0.1 is usual
_TIED = 1e-6  # share of the pooled variance below which rows do not differ but for rounding
_COMMON = "One noise variance is used for all"
_MODERATED = "noise='moderated' (--noise moderated) gives every group its own."
_NOT_APART = (
    "The noise goes with the mean of a group, but noise='moderated' takes the two to be "
    "independent, and the estimates may be worse than raw means. Use noise='common'."
)
_NEEDED = "noise='moderated' needs three groups or more, each with two rows that differ."
_LOG = "On another scale of the values, such as their logarithm, the noise may be equal."
_OWN = (
    "Every group therefore has a noise variance of its own, moderated by all the others; "
    "noise='common' (--noise common) gives one to all."
)
_CONSTANT = (
    "Values do not vary within any group: the noise seems to be zero, and intervals have no width. "
    "If the values were rounded or averaged before, give a standard error for each group, or the "
    "noise variance."
)
_LOOKED_AT = 1 << 15  # largest number of groups used for the rank correlation


@dataclass(frozen=True, kw_only=True, eq=False)
class UnequalNoise:
    """The population of noise variances, with the groups' sums of squares it was fitted to.

    `freedom` is 0 for a group whose rows do not differ at all: ties say how values are recorded,
    not how noisy they are.
    """

    variances: VariancePopulation
    freedom: np.ndarray
    within: np.ndarray

    @property
    def clear(self) -> bool:
        return self.variances.chance < _SIGNIFICANT and self.variances.factor >= _MATERIAL

    @property
    def finding(self) -> str:
        found = self.variances
        return (
            f"The noise differs between groups, or the values have heavy tails (p = "
            f"{found.chance:.1g}): standard deviations within groups spread by a factor of "
            f"{found.factor:.2g} about {np.sqrt(found.variance):.3g}."
        )


def constant_note(statistics: Means, raw: np.ndarray, noise_variance: float | None) -> list[str]:
    """A note where values do not vary within groups, up to rounding, and the noise is not known."""
    return [_CONSTANT] if noise_variance is None and _is_constant(statistics, raw) else []


def _is_constant(statistics: Means, raw: np.ndarray) -> bool:
    """Whether the rows of every group are equal, up to rounding."""
    if statistics.within is None:
        return False
    held = np.asarray(statistics.n) > 0
    largest = float(np.abs(raw[held]).max(initial=0.0))
    rows = float(np.sum(statistics.n * statistics.groups))
    return bool(np.sum(statistics.within) <= rows * (1e-12 * largest) ** 2)


def unequal_noise(statistics: Means, raw: np.ndarray) -> UnequalNoise | None:
    """The fitted population of variances; None if too few groups have rows that differ."""
    known = statistics.within is None or statistics.variance is not None
    if known or _is_constant(statistics, raw):
        return None
    n, within = (np.asarray(each, np.float64) for each in (statistics.n, statistics.within))
    pooled = float(within.sum()) / max(float(n.sum()), 1.0)
    varies = (n > 1) & (within > _TIED * pooled)
    freedom = np.where(varies, raw.shape[1] * (n - 1), 0.0)
    within = np.where(varies, within, 0.0)
    variances = fit_variances(freedom, within)
    if variances is None:
        return None
    return UnequalNoise(variances=variances, freedom=freedom, within=within)


def choose(
    statistics: Means, raw: np.ndarray, *, noise: str, plain: bool
) -> tuple[UnequalNoise | None, str | None]:
    """The noise that the estimates are to use, None for one common variance; and a note.

    The note is empty if the noise was found to be equal, and None if nothing was tested.

    With sums of squares alone, heavy-tailed values cannot be told from unequal noise; moderated
    variances serve both (decision 0049). A variance that follows the mean, as that of counts, rates
    and amounts does, breaks the model: then the groups' own variances pull the mean to one side.
    """
    if noise == "common":
        return None, None
    found, n = unequal_noise(statistics, raw), np.asarray(statistics.n)
    if noise == "moderated":
        if found is None:
            raise ValueError(f"estimate_means: {_NEEDED}")
        return found, _NOT_APART if found.clear and _follows(found, n, raw) else None
    if found is None or not found.clear:
        return None, None if found is None else ""
    if np.count_nonzero(found.freedom) < _FEWEST:
        reason = f"with fewer than {_FEWEST} groups that cannot be relied on"
        return None, f"{found.finding} {_COMMON}, since {reason}. {_MODERATED}"
    if _follows(found, n, raw):
        return None, f"{found.finding} {_COMMON}, since the noise goes with the mean. {_LOG}"
    if not plain:
        return None, f"{found.finding} {_COMMON}, since the options chosen need it."
    return found, f"{found.finding} {_OWN}"


def _follows(found: UnequalNoise, n: np.ndarray, raw: np.ndarray) -> bool:
    """Whether the variance goes with a coordinate of the mean, or with its distance from others.

    A noisy mean is likely to be far from the others. Distances are therefore in units of the
    deviation that the noise and the variance between groups give them.
    """
    some = np.flatnonzero(found.freedom)
    some = some[:: -(-len(some) // _LOOKED_AT)]
    own, prior = found.freedom[some], found.variances.freedom
    variance = (prior * found.variances.variance + found.within[some]) / (prior + own)
    noise, order = variance / n[some], _ranks(variance)
    for column in raw[some].T:
        far = np.abs(column - np.median(column))
        between = max(float(column.var() - noise.mean()), 0.0)
        outward = order @ _ranks(far / np.sqrt(between + noise))
        inward = -order @ _ranks(far)
        limit = _OUTWARD + 1.5 / np.sqrt(len(some))
        if max(abs(order @ _ranks(column)), inward) > _FOLLOWS or outward > limit:
            return True
    return False


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks with mean 0 and unit norm, so that a product is Spearman's correlation."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    places = (np.cumsum(count) - (count - 1) / 2)[place]
    places = places - places.mean()
    norm = float(np.sqrt(places @ places))
    return places / norm if norm > 0 else places


def estimate_unequal(
    statistics: Means,
    bins: Bins,
    raw: np.ndarray,
    noise: UnequalNoise,
    *,
    theta_variance: float | None,
    level: float,
    above: float | None,
) -> Estimates:
    """The posterior of every theta_i, with noise variances and population integrated over."""
    n = np.asarray(statistics.n, np.float64)
    empty = n == 0
    groups = NoisyGroups(
        x=np.where(empty[:, None], 0.0, raw - bins.center),
        n=n,
        freedom=noise.freedom,
        within=noise.within,
        variances=noise.variances,
        num_groups=bins.num_groups,
    )
    populations = fit_populations(groups, theta_variance=theta_variance)
    threshold = None if above is None else above - bins.center
    rows, chance = moderated_rows(groups, populations, level=level, above=threshold)
    common = populations.probability @ populations.mean
    held = ~empty
    second = rows.scale[held] ** 2
    error = second.mean()
    over_raw = error / (second + (rows.personal - groups.x)[held] ** 2).mean()
    apart = ((populations.mean - common) ** 2).mean(axis=1)
    spread = populations.between + populations.error + apart  # E (theta - common)^2
    over_pooled = error / float(populations.probability @ spread)
    shape = np.shape(statistics.mean)

    def placed(values: np.ndarray) -> np.ndarray:
        return (values + bins.center).reshape(shape)

    return Estimates(
        n=np.asarray(statistics.n),
        raw=np.where(empty[:, None], np.nan, raw).reshape(shape),
        personal=placed(rows.personal),
        weight=rows.weight,
        scale=rows.scale.reshape(shape),
        lower=placed(rows.lower),
        upper=placed(rows.upper),
        level=level,
        population=_described(noise.variances, populations, bins.center, theta_variance),
        gain_over_raw=100 * float(1 - over_raw),
        gain_over_pooled=100 * float(1 - over_pooled),
        above=None if chance is None else chance.reshape(shape),
    )


def _described(
    variances: VariancePopulation,
    populations: Populations,
    center: np.ndarray,
    theta_variance: float | None,
) -> FittedPopulation:
    """Posterior mean of the mean, median of A, and the population of variances."""
    mean = populations.probability @ populations.mean
    apart = ((populations.mean - mean) ** 2).mean(axis=1)
    error = float(np.sqrt(populations.probability @ (populations.error + apart)))
    errors = {"mean": error}
    between = float(quantiles(populations.between, populations.probability)[1])
    if theta_variance is None:
        errors["variance"] = populations.spread
    chance = variances.probability
    for name, values in (
        ("noise_variance", variances.nodes_variance),
        ("noise_freedom", variances.nodes_freedom),
    ):
        low, _, high = quantiles(values, chance)
        errors[name] = float((high - low) / 2)
    noise = {"noise_variance": variances.variance, "noise_freedom": variances.freedom}
    fitted_by = "known" if theta_variance is not None else "integrated"
    return gaussian_population(
        mean + center, {"variance": between, **noise}, errors, fitted_by=fitted_by
    )
