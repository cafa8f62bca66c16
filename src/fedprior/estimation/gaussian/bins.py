"""Group means, summarized in one bin per distinct sampling variance."""

from dataclasses import dataclass

import numpy as np

from fedprior.core import check
from fedprior.estimation.covariates import Covariates, Scaled
from fedprior.estimation.statistics import Means

# If there are more distinct variances than this, they are rounded to `_FINE_BINS` values on a log
# scale: to 8 parts in 10,000 over a thousandfold range, which changes weights by at most a quarter
# of that. Four times as many bins take five times as long at 1e6 groups.
_EXACT_BINS = 4096
_FINE_BINS = 4096

NEEDED = (
    "With one row per group, differences between groups cannot be distinguished from noise: some "
    "groups need several rows, or give a standard error for each group, or noise_variance."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class CovariateSums(Scaled):
    """Covariates z of the groups and their sums over each bin, of groups with data.

    `total` (bins, q), `gram` (bins, q, q) and `moment` (bins, q, d) are the sums of z, z z' and
    z x', x the group's mean relative to `Bins.center`.
    """

    total: np.ndarray
    gram: np.ndarray
    moment: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Bins:
    """What the likelihood needs from the groups: a count, a mean and a scatter per bin.

    A group's mean has sampling variance noise * `unit`. `unit` is 1/n if all rows share one noise
    variance, or the known variance itself (then `noise` is 1). `mean` (bins, d) is relative to
    `center`; `scatter` is the sum of squares about the bin's mean, over coordinates. `place` is the
    bin of each group; a group without rows has the number of bins. `residual` is the sum of squares
    within groups, with `freedom` degrees of freedom; both are 0 if the noise is known (`noise`).
    `each_known` means that every group came with its own standard error. `covariates` are those of
    the groups' means, if there are any.
    """

    unit: np.ndarray
    count: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray
    place: np.ndarray
    center: np.ndarray
    residual: float
    freedom: float
    noise: float | None
    each_known: bool
    covariates: CovariateSums | None = None

    @property
    def num_bins(self) -> int:
        return len(self.unit)

    @property
    def num_groups(self) -> int:
        """Groups that have data."""
        return int(self.count.sum())

    @property
    def dimension(self) -> int:
        return int(self.mean.shape[1])

    @property
    def noise_guess(self) -> float:
        """The noise variance, known or pooled from within the groups (ERRATA D1)."""
        return self.noise if self.noise is not None else self.residual / self.freedom

    @property
    def squares(self) -> np.ndarray:
        """Sum of squares of the group means about `center`, of each bin."""
        return self.scatter + self.count * (self.mean**2).sum(axis=1)

    @property
    def between(self) -> float:
        """Mean square of the group means about `center`, per coordinate."""
        return float(self.squares.sum()) / (self.num_groups * self.dimension)


def bins_of(
    statistics: Means,
    *,
    noise_variance: float | None = None,
    covariates: Covariates | None = None,
) -> Bins:
    """The bins of `statistics`; raises if the variance between groups is not identified."""
    groups = statistics.count
    some = np.asarray(statistics.n) > 0
    with_data = int(np.count_nonzero(some) if groups is None else groups[some].sum())
    check.require(
        with_data >= 2,
        "estimate_means",
        "groups",
        "at least two with data",
        with_data,
        "A population cannot be learned from one group.",
    )
    known = statistics.variance is not None
    if known:
        sentence = "noise_variance cannot be combined with a standard error for each group."
        check.expect(noise_variance is None, "estimate_means", sentence)
        unit, place = _bins_of_variances(statistics)
    else:
        unit, place = _bins_of_sizes(np.asarray(statistics.n))
    flat = np.asarray(statistics.mean, np.float64).reshape(len(place), -1)
    count, center, mean, scatter = _sums(flat, place, len(unit), groups, statistics.scatter)
    noise = 1.0 if known else noise_variance
    residual, freedom = 0.0, 0.0
    if noise is None:
        rows = float(np.sum(_times(statistics.n, groups), dtype=np.float64))
        freedom = flat.shape[1] * (rows - with_data)
        residual = _residual(statistics, freedom, scatter, center)
    summed = None
    if covariates is not None:
        summed = _covariate_sums(covariates, flat - center, place, len(unit))
    return Bins(
        unit=unit,
        count=count,
        mean=mean,
        scatter=scatter,
        place=place,
        center=center,
        residual=residual,
        freedom=freedom,
        noise=noise,
        each_known=known,
        covariates=summed,
    )


def _residual(statistics: Means, freedom: float, scatter: np.ndarray, center: np.ndarray) -> float:
    """Sum of squares within groups, at least the rounding error so that variances are positive."""
    within = 0.0 if statistics.within is None else float(np.sum(statistics.within))
    identified = statistics.within is not None and freedom > 0
    sentence = f"all groups have one row. {NEEDED}"
    if freedom > 0:
        sentence = "give `within`, a standard error for each group, or noise_variance."
    check.expect(identified, "estimate_means", sentence)
    rounding = (np.finfo(np.float64).eps * float(np.abs(center).max())) ** 2
    groups = len(statistics.n) if statistics.count is None else int(statistics.count.sum())
    spread = float(scatter.sum()) / groups
    # Without any spread the variance is arbitrary, but its square has to be a number.
    return max(within, freedom * max(rounding, 1e-12 * spread)) or freedom * 1e-60


def _bins_of_sizes(n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1/n of each bin and the bin of each group; groups of size 0 come after the last bin."""
    sizes = n if n.dtype.kind in "iu" else n.astype(np.int64)
    largest = int(sizes.max())
    small = largest <= max(4 * len(n), 1 << 20)  # a table of all sizes is cheaper than a sort
    if small:
        present = np.flatnonzero(np.bincount(sizes))
    else:
        present, inverse = np.unique(sizes, return_inverse=True)
    some = present > 0
    unit = 1.0 / present[some]
    inside = np.arange(len(unit))
    if len(unit) > _EXACT_BINS:
        unit, inside = _rounded(unit)
    order = np.full(len(present), len(unit), np.int32)
    order[some] = inside
    if not small:
        return unit, order[inverse]
    table = np.zeros(largest + 1, np.int32)
    table[present] = order
    return unit, table[sizes]


def _bins_of_variances(statistics: Means) -> tuple[np.ndarray, np.ndarray]:
    empty = statistics.n == 0
    variance = np.asarray(statistics.variance, np.float64)
    some = variance[~empty]
    if len(some) <= _EXACT_BINS:
        unit, inside = np.unique(some, return_inverse=True)
    else:
        unit, inside = _rounded(some)
    place = np.full(len(variance), len(unit), np.int32)
    place[~empty] = inside
    return unit, place


def _rounded(unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bins of equal width in the logarithm; each is represented by the mean of its values."""
    logs = np.log(unit)
    low, high = float(logs.min()), float(logs.max())
    step = max((high - low) / (_FINE_BINS - 1), 1e-15)
    cell = np.rint((logs - low) / step).astype(np.int32)
    count = np.bincount(cell)
    present = np.flatnonzero(count)
    table = np.zeros(len(count), np.int32)
    table[present] = np.arange(len(present), dtype=np.int32)
    place = table[cell]
    return np.bincount(place, unit) / count[present], place


def _sums(
    flat: np.ndarray,
    place: np.ndarray,
    num_bins: int,
    groups: np.ndarray | None,
    apart: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Count, overall mean, and mean and scatter of each bin; groups without rows are ignored.

    A row is one group, or `groups` of them with a scatter of `apart` about their mean.
    """

    def summed(values: np.ndarray | None) -> np.ndarray:
        return np.bincount(place, values, minlength=num_bins + 1)[:num_bins]

    counts = summed(groups)
    totals = np.stack([summed(_times(column, groups)) for column in flat.T], axis=1)
    center = totals.sum(axis=0) / counts.sum()
    mean = totals / counts[:, None] - center
    squares = np.zeros(num_bins) if apart is None else summed(apart)
    for column, middle in zip(flat.T, center, strict=True):
        deviation = column - middle  # about the center, so that the difference below is exact
        deviation *= deviation
        squares += summed(_times(deviation, groups))
    scatter = np.maximum(squares - (counts[:, None] * mean**2).sum(axis=1), 0.0)
    return counts.astype(np.float64), center, mean, scatter


def _times(values: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    return values if groups is None else groups * values


def _covariate_sums(
    covariates: Covariates, x: np.ndarray, place: np.ndarray, num_bins: int
) -> CovariateSums:
    """Sums of products over bins; two columns at a time, so that no table of products is made."""
    some = place < num_bins
    every = bool(some.all())
    scaled = covariates.scaled(some)
    inside, z, x = (each if every else each[some] for each in (place, scaled.rows, x))

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(inside, values, minlength=num_bins)

    width = z.shape[1]
    gram = np.empty((num_bins, width, width))
    for i in range(width):
        for j in range(i + 1):
            gram[:, i, j] = gram[:, j, i] = summed(z[:, i] * z[:, j])
    moment = [[summed(first * second) for second in x.T] for first in z.T]
    return CovariateSums(
        **vars(scaled),
        total=np.stack([summed(column) for column in z.T], axis=1),
        gram=gram,
        moment=np.moveaxis(np.array(moment), 2, 0),
    )
