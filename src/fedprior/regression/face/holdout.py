"""What personal, separate and pooled regressions predict of rows that none of them has seen."""

import math
from dataclasses import dataclass, field

import numpy as np

from fedprior.core import check, random
from fedprior.regression.face.counts import deviances, expected_counts, rates_at
from fedprior.regression.face.specification import Specification
from fedprior.regression.linear import local_linear, pooled_linear
from fedprior.regression.logistic import (
    local_logistic,
    local_poisson,
    pooled_logistic,
    pooled_poisson,
    predictive,
    probabilities,
)
from fedprior.regression.result import Family, RegressionFit, quantile
from fedprior.regression.rows import GroupedRows

_LEAST_ROWS = 3  # of a group that gives some away: two are left to fit it alone
_METRICS = {"gaussian": "rmse", "poisson": "deviance"}
_LEVEL = 0.95  # of the intervals of gains
_BINS, _LEAST_IN_BIN = 15, 10  # of a curve of predictions
_LEAST_PROBABILITY = 1e-15  # log loss of a separate fit that was certain, and wrong

Calibration = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Errors on held-out rows: root mean squared ("rmse"), or mean -log probability ("log_loss").

    For counts the error is the mean Poisson deviance ("deviance"). Gains are the percentages by
    which the personal error is below the others, with 95% intervals over groups (NaN from a single
    group, and where the others make no error). `curves` of personal, separate and pooled fits are
    mean predictions of rows with similar ones, and their mean outcomes.
    """

    metric: str
    personal: float
    separate: float
    pooled: float
    num_rows: int
    num_groups: int
    interval_over_separate: tuple[float, float] = (math.nan, math.nan)
    interval_over_pooled: tuple[float, float] = (math.nan, math.nan)
    curves: dict[str, Calibration] = field(default_factory=dict)

    @property
    def gain_over_separate(self) -> float:
        return _gain(self.personal, self.separate)

    @property
    def gain_over_pooled(self) -> float:
        return _gain(self.personal, self.pooled)

    def sentence(self, seed: int) -> str:
        """Whether it helps, in one plain sentence, and on which rows."""
        others = {
            "separate ones": self.interval_over_separate,
            "a pooled one": self.interval_over_pooled,
        }
        better = [name for name, (low, _) in others.items() if low > 0]
        worse = [name for name, (_, high) in others.items() if high < 0]
        unclear = [name for name in others if name not in better + worse]
        parts = [
            f"{word} than {' and than '.join(names)}"
            for word, names in (("better", better), ("worse", worse))
            if names
        ]
        said = f"Personal fits predict {' and '.join(parts)}" if parts else ""
        if unclear:
            also = "; there is" if parts else "There is"
            ends = " and ".join(unclear)
            said += (
                f"{also} no clear difference {'from' if parts else 'of personal fits from'} {ends}"
            )
        rows = f"{self.num_rows:,} held-out rows of {self.num_groups:,} groups"
        return f"{said}, on {rows} (seed {seed})."


def _gain(own: float, other: float) -> float:
    """100 (1 - own / other); NaN where the other makes no error."""
    return 100 * (1 - own / other) if other > 0 else math.nan


def held_out_rows(rows: GroupedRows, *, share: float = 0.25, seed: int = 0) -> np.ndarray:
    """Which rows are held out: at random a `share` of each group of 3 rows or more, at least 1."""
    draws = random.stream(check.seed("held_out_rows", seed), "split").random(rows.num_rows)
    order = np.lexsort([draws, rows.place])
    rank = np.empty(rows.num_rows, np.int64)
    rank[order] = np.arange(rows.num_rows) - rows.start[rows.place[order]]
    given = np.maximum(np.floor(share * rows.sizes), 1) * (rows.sizes >= _LEAST_ROWS)
    return rank < given[rows.place]


def compare(
    rows: GroupedRows, specification: Specification, *, share: float = 0.25, seed: int = 0
) -> HeldOut:
    """Personal, separate and pooled fits of the rows that stay, on those that are held out."""
    check.share("compare", share=share)
    out = held_out_rows(rows, share=share, seed=seed)
    remedy = "Nothing can be held out of smaller ones."
    largest = int(rows.sizes.max())
    rule = f"of {_LEAST_ROWS} rows or more"
    check.require(bool(out.any()), "compare", "largest group", rule, largest, remedy)
    stay, asked = rows.subset(~out), rows.subset(out)
    place, width = asked.place, rows.num_features * specification.num_logits
    fit = specification.fit(stay)
    if specification.family == "gaussian":
        pooled = pooled_linear(stay)[0]
        separate = local_linear(stay)
    elif specification.family == "poisson":
        pooled, separate = pooled_poisson(stay).coefficients, local_poisson(stay)
    else:
        classes = specification.num_classes
        pooled = pooled_logistic(stay, num_classes=classes).coefficients
        separate = local_logistic(stay, num_classes=classes)
    common = np.broadcast_to(pooled[:width], (asked.num_rows, width))
    beta = pooled[width:]
    squared = specification.family == "gaussian"
    predicted = {
        "personal": _of_fit(asked, fit),
        "separate": _of_theta(asked, separate[place], beta, specification),
        "pooled": _of_theta(asked, common, beta, specification),
    }
    losses = [_losses(asked, each, specification.family) for each in predicted.values()]
    means = [float(each.mean()) for each in losses]
    personal, alone, together = np.sqrt(means).tolist() if squared else means
    return HeldOut(
        metric=_METRICS.get(specification.family, "log_loss"),
        personal=personal,
        separate=alone,
        pooled=together,
        num_rows=asked.num_rows,
        num_groups=int((asked.sizes > 0).sum()),
        interval_over_separate=_gain_interval(asked, losses[0], losses[1], squared=squared),
        interval_over_pooled=_gain_interval(asked, losses[0], losses[2], squared=squared),
        curves={name: _calibrated(asked, each) for name, each in predicted.items()},
    )


def _gain_interval(
    asked: GroupedRows, own: np.ndarray, other: np.ndarray, *, squared: bool
) -> tuple[float, float]:
    """100 (1 - r) -+ t error, r = sum own / sum other (its root if squared), groups as clusters.

    The variance of r is m / (m - 1) sum (a_i - r b_i)^2 / b^2 over the groups' sums a_i and b_i,
    because rows of one group may share their luck.
    """
    first, second = (
        np.bincount(asked.place, each)[np.unique(asked.place)] for each in (own, other)
    )
    groups, total = len(first), float(second.sum())
    if groups < 2 or total <= 0:
        return math.nan, math.nan
    ratio = float(first.sum()) / total
    error = math.sqrt(groups / (groups - 1) * float(((first - ratio * second) ** 2).sum())) / total
    middle = 1 - (math.sqrt(ratio) if squared else ratio)
    error /= 2 * math.sqrt(max(ratio, 1e-300)) if squared else 1.0
    reach = float(quantile(_LEVEL, np.array(groups - 1.0))) * error
    return 100 * (middle - reach), 100 * (middle + reach)


def _of_fit(asked: GroupedRows, fit: RegressionFit) -> np.ndarray:
    """What the fit predicts of each row, theta averaged over for classes and counts."""
    if fit.family == "gaussian":
        return _lines(asked, fit.theta[asked.place], fit.population.fixed)
    if fit.family == "poisson":
        exposure = 1.0 if asked.offset is None else np.exp(asked.offset)
        return expected_counts(fit, asked.x, asked.fixed, asked.place, exposure)
    return predictive(fit, asked.x, asked.place, fixed=asked.fixed)


def _of_theta(
    asked: GroupedRows, theta: np.ndarray, beta: np.ndarray, specification: Specification
) -> np.ndarray:
    """What is predicted of each row by its own theta (rows, D) with common coefficients beta."""
    if specification.family == "gaussian":
        return _lines(asked, theta, beta)
    if specification.family == "poisson":
        return rates_at(asked, theta, beta)
    classes = specification.num_classes
    return probabilities(theta, asked.x, fixed=asked.fixed, coefficients=beta, num_classes=classes)


def _lines(asked: GroupedRows, theta: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return (asked.x * theta).sum(axis=1) + asked.fixed @ beta


def _losses(asked: GroupedRows, predicted: np.ndarray, family: Family) -> np.ndarray:
    """The loss of each row: squared error, deviance, or -log of the probability of its class."""
    if family == "gaussian":
        return (asked.y - predicted) ** 2
    if family == "poisson":
        return deviances(asked.y, predicted)
    of_class = predicted[np.arange(asked.num_rows), asked.y.astype(np.int64)]
    return -np.log(np.maximum(of_class, _LEAST_PROBABILITY))


def _calibrated(asked: GroupedRows, predicted: np.ndarray) -> Calibration:
    """Means of predictions and of outcomes in bins of rows with similar predictions.

    Of more than two classes, each class of each row is an outcome of 0 or 1.
    """
    outcome = asked.y
    if predicted.ndim == 2:
        classes = range(predicted.shape[1])[1 if predicted.shape[1] == 2 else 0 :]
        outcome = np.concatenate([asked.y == each for each in classes]).astype(np.float64)
        predicted = np.concatenate([predicted[:, each] for each in classes])
    some = np.flatnonzero(np.isfinite(predicted))
    order = some[np.argsort(predicted[some], kind="stable")]
    bins = np.array_split(order, max(min(_BINS, len(order) // _LEAST_IN_BIN), 1))
    means = [
        (float(predicted[each].mean()), float(outcome[each].mean())) for each in bins if len(each)
    ]
    return tuple(each[0] for each in means), tuple(each[1] for each in means)
