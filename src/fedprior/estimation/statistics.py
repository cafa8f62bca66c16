"""Sufficient statistics of each group: its size and the sums of its rows."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation.families.binomial import BINOMIAL
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.families.poisson import POISSON


@dataclass(frozen=True, kw_only=True, eq=False)
class Means:
    """Groups of real values: size n, mean, and `within` = sum over rows of |x - mean|^2.

    `mean` has shape (groups,) or (groups, d). `variance` is the known sampling variance of each
    mean (a squared standard error, per coordinate) and replaces `within`. A group of size 0 has no
    data; its mean is ignored and may be NaN.

    With `count`, a row stands for so many groups of size n each: `mean` is the mean of their means,
    `scatter` the sum of squares of these about it, and `within` the sum over all of them.
    """

    n: np.ndarray
    mean: np.ndarray
    within: np.ndarray | None = None
    variance: np.ndarray | None = None
    count: np.ndarray | None = None
    scatter: np.ndarray | None = None

    def __post_init__(self) -> None:
        _check_sizes("Means", self.n)
        shape = np.shape(self.mean)
        rule = f"of shape ({len(self.n)},) or ({len(self.n)}, d)"
        fits = len(shape) in (1, 2) and shape[0] == len(self.n)
        check.require(fits, "Means", "mean", rule, shape)
        sums = {"within": self.within, "variance": self.variance, "scatter": self.scatter}
        for name, values in sums.items():
            if values is None:
                continue
            rule = f"of shape ({len(self.n)},)"
            check.require(np.shape(values) == self.n.shape, "Means", name, rule, np.shape(values))
            _check_cells("Means", name, values, np.isfinite(values) & (values >= 0), "at least 0")
        good = np.isfinite(self.mean)
        good = good if good.ndim == 1 else good.all(axis=1)
        _check_cells("Means", "mean", self.mean, good | (self.n == 0), "finite")
        if self.variance is not None:
            some = (self.variance > 0) | (self.n == 0)
            _check_cells("Means", "variance", self.variance, some, "above 0")
        _check_count("Means", self.count, len(self.n))
        both = (self.count is None) == (self.scatter is None)
        check.expect(both, "Means", "count and scatter are given together.")

    @property
    def groups(self) -> np.ndarray:
        """How many groups each row stands for."""
        return np.ones(len(self.n), np.int64) if self.count is None else np.asarray(self.count)

    @property
    def dimension(self) -> int:
        return 1 if np.ndim(self.mean) == 1 else int(np.shape(self.mean)[1])


class Repeats(NamedTuple):
    """The rows y of size t that were added up to a group: how many, sum y^2 / t and sum 1 / t."""

    number: np.ndarray
    squares: np.ndarray
    inverses: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """Groups of yes-or-no outcomes: `successes` of `n` trials each.

    With `count`, a row stands for so many groups with the same numbers, as an engine that sums and
    collapses them gives it. `repeats` are the rows that were added up, if they are known.
    """

    n: np.ndarray
    successes: np.ndarray
    count: np.ndarray | None = None
    repeats: Repeats | None = None

    def __post_init__(self) -> None:
        _check_sizes("Counts", self.n)
        rule = f"of shape ({len(self.n)},)"
        same = np.shape(self.successes) == np.shape(self.n)
        check.require(same, "Counts", "successes", rule, np.shape(self.successes))
        _check_whole("Counts", "successes", self.successes)
        few = self.successes <= self.n
        _check_cells("Counts", "successes", self.successes, few, "at most the number of trials")
        _check_count("Counts", self.count, len(self.n))


@dataclass(frozen=True, kw_only=True, eq=False)
class Events:
    """Groups of events over an `exposure` (time, population, area), in any unit.

    With `count`, a row stands for so many groups with the same numbers. `repeats` are the rows that
    were added up, if they are known.
    """

    exposure: np.ndarray
    events: np.ndarray
    count: np.ndarray | None = None
    repeats: Repeats | None = None

    def __post_init__(self) -> None:
        exposure = np.asarray(self.exposure)
        fits = exposure.ndim == 1 and len(exposure) > 0
        check.require(fits, "Events", "exposure", "one number per group", exposure.shape)
        good = np.isfinite(exposure) & (exposure >= 0)
        _check_cells("Events", "exposure", exposure, good, "at least 0")
        rule = f"of shape ({len(exposure)},)"
        same = np.shape(self.events) == exposure.shape
        check.require(same, "Events", "events", rule, np.shape(self.events))
        _check_whole("Events", "events", self.events)
        possible = (np.asarray(self.events) == 0) | (exposure > 0)
        _check_cells("Events", "events", self.events, possible, "0 where the exposure is 0")
        _check_count("Events", self.count, len(exposure))

    @property
    def n(self) -> np.ndarray:
        return self.exposure


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Groups of rows of several categories: `counts` has a row per group, a column per category."""

    counts: np.ndarray

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        rule = "one row per group and one column for each of two or more categories"
        shaped = counts.ndim == 2 and len(counts) > 0 and counts.shape[1] > 1
        check.require(shaped, "Shares", "counts", rule, counts.shape)
        whole = np.isfinite(counts) & (counts >= 0) & (counts == np.rint(counts))
        rule = "whole numbers of at least 0"
        _check_cells("Shares", "counts", counts, whole.all(axis=1), rule)

    @property
    def n(self) -> np.ndarray:
        return np.asarray(self.counts).sum(axis=1).astype(np.int64)


class Pairs(NamedTuple):
    """The distinct pairs (n, successes) of many groups, and how many groups share each pair.

    For events, `n` is the exposure in units of `unit`, and `successes` are the events.
    """

    n: np.ndarray
    successes: np.ndarray
    count: np.ndarray  # type: ignore[assignment]  # hides tuple.count, which is not needed
    place: np.ndarray  # the pair of each group: table[place] expands a table of pairs to groups
    family: CountFamily = BINOMIAL
    unit: float = 1.0

    def held(self) -> "Pairs":
        """The pairs with data, without their groups."""
        some = (self.n > 0) & (self.count > 0)
        return self._replace(
            n=self.n[some],
            successes=self.successes[some],
            count=self.count[some],
            place=self.place[:0],
        )

    @property
    def divisor(self) -> np.ndarray:
        """n, and 1 for a pair without data."""
        return np.where(self.n > 0, self.n, 1)


def collapse(counts: Counts, *, merge: bool = True) -> Pairs:
    """Merge groups with equal (n, successes): 1e7 groups of up to 1,000 trials are 5e4 pairs.

    Without `merge` every row stays a pair, as where each has covariates of its own.

    >>> pairs = collapse(Counts(n=np.array([5, 2, 5]), successes=np.array([1, 0, 1])))
    >>> pairs.n.tolist(), pairs.count.tolist(), pairs.place.tolist()
    ([2, 5], [1, 2], [1, 0, 1])
    """
    n, successes = (np.asarray(each, np.int64) for each in (counts.n, counts.successes))
    return Pairs(*(_merged if merge else _apart)(n, successes, counts.count))


def _apart(
    first: np.ndarray, second: np.ndarray, groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every row a pair of its own."""
    count = np.ones(len(first), np.int64) if groups is None else np.asarray(groups, np.int64)
    return first, second, count, np.arange(len(first), dtype=np.int32)


def _merged(
    first: np.ndarray, second: np.ndarray, groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct pairs of whole numbers: both parts, how many groups there are, each row's pair.

    A row is one group, or `groups` of them.
    """
    width = int(second.max(initial=0)) + 1
    span = (int(first.max(initial=0)) + 1) * width
    if span > np.iinfo(np.int64).max:  # codes of places instead of codes of the numbers themselves
        one, first = np.unique(first, return_inverse=True)
        other, second = np.unique(second, return_inverse=True)
        left, right, count, place = _merged(first, second, groups)
        return one[left], other[right], count, place
    code = first * width + second
    if span <= max(4 * len(first), 1 << 20):  # a table of all codes is cheaper than a sort
        table = np.bincount(code, minlength=span)
        present = np.flatnonzero(table)
        count = table[present]
        place_of = np.zeros(span, np.int32)
        place_of[present] = np.arange(len(present), dtype=np.int32)
        place = place_of[code]
    else:
        present, place, count = np.unique(code, return_inverse=True, return_counts=True)
        place = place.astype(np.int32)
    if groups is not None:
        count = np.bincount(place, groups).astype(np.int64)
    return present // width, present % width, count, place


def collapse_events(events: Events, *, merge: bool = True) -> Pairs:
    """Merge groups with equal exposure and events, unless `merge` is off.

    The unit of exposure is the one in which 1 event is expected (with half an event added, so that
    there always is one), so that results do not depend on the unit that was given.

    >>> pairs = collapse_events(Events(exposure=np.array([2.0, 5.0]), events=np.array([1, 6])))
    >>> pairs.n.round(3).tolist(), round(pairs.unit, 3)
    ([2.143, 5.357], 0.933)
    """
    exposure = np.asarray(events.exposure, np.float64)
    happened = np.asarray(events.events, np.int64)
    groups = 1 if events.count is None else np.asarray(events.count)
    total, happening = float((groups * exposure).sum()), float((groups * happened).sum())
    unit = total / (happening + 0.5) if total > 0 else 1.0
    if not merge:
        return Pairs(*_apart(exposure / unit, happened, events.count), POISSON, unit)
    sizes, size_place = np.unique(exposure, return_inverse=True)
    which, events_of, count, place = _merged(size_place, happened, events.count)
    return Pairs(sizes[which] / unit, events_of, count, place, POISSON, unit)


def means_of(values: Any, place: np.ndarray, num_groups: int) -> Means:
    """Sufficient statistics of `values`, (rows,) or (rows, d); row r belongs to group place[r]."""
    values = np.asarray(values, np.float64)
    flat = values.reshape(len(values), -1)
    n = np.bincount(place, minlength=num_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = [np.bincount(place, column, minlength=num_groups) for column in flat.T]
        mean = np.stack(sums, axis=1) / n[:, None]
    within = np.bincount(place, ((flat - mean[place]) ** 2).sum(axis=1), minlength=num_groups)
    return Means(n=n, mean=mean[:, 0] if values.ndim == 1 else mean, within=within)


def weighted_means(
    values: np.ndarray, errors: np.ndarray, place: np.ndarray, num_groups: int
) -> Means:
    """Mean of a group = sum(y / se^2) / sum(1 / se^2), its variance = 1 / sum(1 / se^2)."""
    precision = errors**-2.0
    n = np.bincount(place, minlength=num_groups)
    total = np.bincount(place, precision, minlength=num_groups)
    total[n == 0] = np.nan
    flat = values.reshape(len(values), -1)
    sums = [np.bincount(place, each * precision, minlength=num_groups) for each in flat.T]
    mean = np.stack(sums, axis=1) / total[:, None]
    return Means(
        n=n,
        mean=mean[:, 0] if values.ndim == 1 else mean,
        variance=np.where(n > 0, 1.0 / total, 0.0),
    )


def with_empty(statistics: Any, number: int = 1) -> Any:
    """The same groups and others without rows, which stand for unseen groups."""
    none = np.zeros(number, np.int64)
    n = np.append(statistics.n, none)
    if isinstance(statistics, Shares):
        return Shares(counts=np.pad(statistics.counts, ((0, number), (0, 0))))
    count = None if statistics.count is None else np.append(statistics.count, none + 1)
    if isinstance(statistics, Events):
        return Events(exposure=n, events=np.append(statistics.events, none), count=count)
    if isinstance(statistics, Counts):
        return Counts(n=n, successes=np.append(statistics.successes, none), count=count)
    nothing = np.full((number, *np.shape(statistics.mean)[1:]), np.nan)
    within, variance, scatter = (
        None if each is None else np.append(each, np.zeros(number))
        for each in (statistics.within, statistics.variance, statistics.scatter)
    )
    mean = np.concatenate([statistics.mean, nothing])
    return Means(n=n, mean=mean, within=within, variance=variance, count=count, scatter=scatter)


def repeats_of(y: np.ndarray, size: np.ndarray, place: np.ndarray, num_groups: int) -> Repeats:
    """The rows y of `size`; those of size 0 do not count."""
    some = size > 0
    y, size, place = y[some], size[some], place[some]
    weights = (None, y**2 / size, 1 / size)
    return Repeats(*(np.bincount(place, each, num_groups) for each in weights))


def counts_of(outcomes: Any, place: np.ndarray, num_groups: int) -> Counts:
    """Trials and successes of 0/1 `outcomes`; row r belongs to group place[r]."""
    outcomes = np.asarray(outcomes, np.float64)
    binary = (outcomes == 0) | (outcomes == 1)
    _check_cells("Counts", "outcomes", outcomes, binary, "0 or 1")
    n = np.bincount(place, minlength=num_groups)
    successes = np.bincount(place, outcomes, minlength=num_groups).astype(np.int64)
    return Counts(n=n, successes=successes)


def _check_count(owner: str, count: np.ndarray | None, rows: int) -> None:
    if count is not None:
        rule = f"of shape ({rows},)"
        check.require(np.shape(count) == (rows,), owner, "count", rule, np.shape(count))
        _check_whole(owner, "count", count)


def _check_sizes(owner: str, n: np.ndarray) -> None:
    check.require(np.ndim(n) == 1 and len(n) > 0, owner, "n", "one size per group", np.shape(n))
    _check_whole(owner, "n", n)


def _check_whole(owner: str, name: str, values: np.ndarray) -> None:
    if np.asarray(values).dtype.kind in "iu":
        whole = np.asarray(values) >= 0
    else:
        floats = np.asarray(values, np.float64)
        whole = np.isfinite(floats) & (floats >= 0) & (floats == np.rint(floats))
    _check_cells(owner, name, values, whole, "whole numbers of at least 0")


def _check_cells(owner: str, name: str, values: Any, good: np.ndarray, rule: str) -> None:
    """Raise for the first cell that violates the rule, naming its group."""
    if good.all():
        return
    first = int(np.argmin(good))
    value = np.asarray(values)[first].tolist()
    check.require(False, owner, name, rule, value, f"See group {first + 1} of {len(good)}.")
