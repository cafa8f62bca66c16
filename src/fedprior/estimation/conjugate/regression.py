"""A population whose linked mean and log M are linear in columns of every row.

For rates log M has columns of its own. For events these are the columns of the log of the shape
mean M, so that groups with different means have one coefficient of variation.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedprior.core import random
from fedprior.estimation.conjugate.fit import ConjugateFit, narrowest
from fedprior.estimation.conjugate.grid import TILT
from fedprior.estimation.conjugate.likelihood import LikelihoodSlope, linked
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.statistics import Pairs

# Standard deviation of the prior on differences of log M between knots: it matters only where there
# are hardly any data.
_LOOSE = 5.0
_MOST_STEPS = 60
_CHUNK = 1 << 14  # rows at a time, which stay in the processor's cache
_SAMPLE = 10_000  # rows of the first of the samples that large data are fitted to first
_RIDGE = 1e-7  # of the information's average diagonal: a column may be constant in a sample
_SHORT = 0.05  # steps that change no linked mean by more are taken without a look at the value
_CLOSE = 1e-9  # rise of the log-likelihood for each row, below which the last step is taken


class RegressionColumns(NamedTuple):
    """Columns of the linked mean, (rows, p), and of log M or log (mean M), (rows, k)."""

    mean: np.ndarray
    size: np.ndarray

    @property
    def split(self) -> int:
        """The number of coefficients of the mean; those of log M follow."""
        return self.mean.shape[1]

    def rows(self, some: np.ndarray) -> "RegressionColumns":
        return RegressionColumns(self.mean[some], self.size[some])


class FittedRegression(NamedTuple):
    """Linked mean = design.mean @ first part of `coefficients`; log M from the rest.

    log M = design.size @ rest - tied * linked mean, with the family's `tied`. `covariance` is that
    of the coefficients, from the curvature at the maximum.
    """

    family: CountFamily
    design: RegressionColumns
    coefficients: np.ndarray
    covariance: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.family.unlink(self._place)

    @property
    def concentration(self) -> np.ndarray:
        own = self.design.size @ self.coefficients[self.design.split :]
        return np.exp(own - self.family.tied * self._place)

    @property
    def _place(self) -> np.ndarray:
        return self.design.mean @ self.coefficients[: self.design.split]


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """The rows with data, their columns, and the prior of the coefficients.

    The coefficients of the mean have Jeffreys' prior, |X' W X|^(1/2), W = V(mean) n (M + e) / (M +
    n) at the common population's M (for events, mean M), `reference`. It keeps them finite if a
    covariate separates successes from failures, removes the bias of first order (Firth 1993), and
    for the intercept of rates alone is the prior of the common population. The average log M has
    that population's prior, whose `factor` is k (for events that of log (mean M), with k = 1);
    differences between its knots ~ N(0, 5^2).
    """

    family: CountFamily
    n: np.ndarray
    z: np.ndarray
    count: np.ndarray
    design: RegressionColumns
    reference: float
    bounds: tuple[float, float]
    factor: float

    def sample(self, number: int) -> "Regression":
        """So many of the rows, drawn with replacement."""
        some = random.stream(0, "split").integers(len(self.n), size=number)
        rows = {name: getattr(self, name)[some] for name in ("n", "z", "count")}
        return replace(self, design=self.design.rows(some), **rows)

    def value(self, at: np.ndarray) -> float:
        """Log-likelihood + log prior."""
        total, information = 0.0, self._ridge()
        for part in self._parts():
            mean, size = self._population(at, part)
            logs = self.family.row_log_likelihood(self.n[part], self.z[part], mean, size)
            total += float(self.count[part] @ logs)
            information += self._information(mean, part)[0]
        split = self.design.split
        return total + _log_det(information) / 2 + self.size_prior(at[split:])[0]

    def jeffreys(self, at: np.ndarray) -> float:
        """The log of Jeffreys' prior, |X' W X|^(1/2)."""
        information = self._ridge()
        for part in self._parts():
            information += self._information(self._population(at, part)[0], part)[0]
        return _log_det(information) / 2

    def slopes(self, at: np.ndarray) -> LikelihoodSlope:
        """The gradient of `value`, and its Hessian but for that of Jeffreys' prior."""
        split, count, design = self.design.split, self.count, self.design
        gradient, hessian = np.zeros(len(at)), np.zeros((len(at), len(at)))
        information, weights = self._ridge(), np.empty((2, len(self.n)))
        for part in self._parts():
            mean, size = self._population(at, part)
            by = self.family.row_derivatives(self.n[part], self.z[part], mean, size)
            each = _tied(linked(self.family, mean, size, by), self.family.tied)
            summed = _sum_slopes(each, count[part], design.mean[part], design.size[part])
            gradient += summed.gradient
            hessian += summed.hessian
            seen, weights[:, part] = self._information(mean, part)
            information += seen
        inverse = np.linalg.inv(information)
        for part in self._parts():  # the slope of log |X' W X| / 2
            x, (weight, bend) = design.mean[part], weights[:, part]
            leverage = weight * np.einsum("ip,ip->i", x @ inverse, x)
            gradient[:split] += x.T @ (leverage * bend) / 2
        _, slope, curvature = self.size_prior(at[split:])
        gradient[split:] += slope
        hessian[split:, split:] += curvature
        return LikelihoodSlope(gradient, hessian)

    def change(self, step: np.ndarray) -> float:
        """By how much a step moves a linked mean or log M at most."""
        return max(
            float(np.abs(columns @ part).max())
            for columns, part in zip(self.design, np.split(step, [self.design.split]), strict=True)
        )

    def _parts(self) -> list[slice]:
        return [slice(start, start + _CHUNK) for start in range(0, len(self.n), _CHUNK)]

    def _population(self, at: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray]:
        split = self.design.split
        place = self.design.mean[part] @ at[:split]
        log_size = self.design.size[part] @ at[split:] - self.family.tied * place
        return self.family.unlink(place), np.exp(np.clip(log_size, *self.bounds))

    def _information(self, mean: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """X' W X, and W with the slope of log W by the linked mean."""
        family, n, x = self.family, self.n[part], self.design.mean[part]
        size = self.reference / mean if family.tied else self.reference
        weight = self.count[part] * family.variance(mean) * n * (size + family.excess) / (size + n)
        bend = family.bend(mean) - family.tied * n / (size + n)
        return x.T @ (weight[:, None] * x), np.stack([weight, bend])

    def _ridge(self) -> np.ndarray:
        return _RIDGE * float(self.count.sum()) * np.eye(self.design.split)

    def size_prior(self, knots: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Density v^TILT of v = (1 + k M)^(-1/2): log M has k M (1 + k M)^-(3 + TILT)/2."""
        number = len(knots)
        centered = (np.eye(number) - 1 / number) / _LOOSE**2
        power, level = (3 + TILT) / 2, float(knots.mean() + np.log(self.factor))
        ratio = 1 / (1 + np.exp(-level))
        value = level - power * float(np.logaddexp(0, level)) - float(knots @ centered @ knots) / 2
        slope = (1 - power * ratio) / number - centered @ knots
        return value, slope, -power * ratio * (1 - ratio) / number**2 - centered


def _tied(each: LikelihoodSlope, tied: float) -> LikelihoodSlope:
    """Derivatives by the linked mean with log M + tied * linked mean held fixed."""
    if not tied:
        return each
    turn = np.array([[1.0, -tied], [0.0, 1.0]])
    gradient = turn @ each.gradient
    return LikelihoodSlope(gradient, np.einsum("ab,bcr,dc->adr", turn, each.hessian, turn))


def _sum_slopes(each: LikelihoodSlope, count: np.ndarray, *columns: np.ndarray) -> LikelihoodSlope:
    """Convert derivatives by each row's linked mean and log M to those by the coefficients."""
    gradient = [columns[i].T @ (count * each.gradient[i]) for i in range(2)]
    blocks = [
        [columns[i].T @ ((count * each.hessian[i, j])[:, None] * columns[j]) for j in range(2)]
        for i in range(2)
    ]
    return LikelihoodSlope(np.concatenate(gradient), np.block(blocks))


def _log_det(matrix: np.ndarray) -> float:
    return float(np.linalg.slogdet(matrix)[1])


def regression_of(pairs: Pairs, design: RegressionColumns, start: ConjugateFit) -> Regression:
    """The rows with data; `start` is the common population."""
    held, family = (pairs.n > 0) & (pairs.count > 0), pairs.family
    whole = held.all()
    n, z, count = (
        np.asarray(each if whole else each[held], np.float64)
        for each in (pairs.n, pairs.successes, pairs.count)
    )
    return Regression(
        family=family,
        n=n,
        z=z,
        count=count,
        design=design if whole else design.rows(held),
        reference=start.concentration * (start.mean if family.tied else 1.0),
        bounds=(float(np.log(1e-6)), float(np.log(narrowest(pairs)))),
        factor=1.0 if family.tied else float(family.prior_factor(np.array(start.mean))),
    )


def fit_regression(
    pairs: Pairs, design: RegressionColumns, start: ConjugateFit, *, point: bool = False
) -> FittedRegression:
    """The mode of the coefficients, by Newton's method; with `point`, M is as large as it can be.

    Large data are fitted to samples first, so that one or two steps are left for all rows.
    """
    problem = regression_of(pairs, design, start)
    split = design.split
    log_size = np.log(min(start.concentration, 10.0 * float(problem.n.max())))
    log_size += problem.family.tied * np.log(start.mean)
    place = np.r_[np.zeros(split), np.full(design.size.shape[1], log_size)]
    place[:split] = _constant(design.mean) * problem.family.link(start.mean)
    if point:
        place[split:] = problem.bounds[1] + problem.family.tied * 100  # at the bound for all rows
    number = _SAMPLE
    while number <= len(problem.n) // 5:
        place, _ = ascend(problem.sample(number), place, point=point)
        number *= 10
    place, hessian = ascend(problem, place, point=point)
    covariance, free = np.zeros_like(hessian), slice(0, split if point else None)
    covariance[free, free] = inverse_of(-hessian[free, free])
    return FittedRegression(problem.family, design, place, covariance)


def _constant(columns: np.ndarray) -> np.ndarray:
    """Coefficients with which the columns add up to 1: of an intercept, or of a spline's knots."""
    first = columns[: min(len(columns), 1000)]
    found, *_ = np.linalg.lstsq(first, np.ones(len(first)), rcond=None)
    return found


def ascend(
    problem: Regression, place: np.ndarray, *, point: bool = False, close: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """The maximum and the Hessian there, by damped Newton's method; log M stays where `point`.

    A step by which the value rises less than `close` is the last.
    """
    close = max(close, _CLOSE * len(problem.n))
    free = slice(0, problem.design.split if point else None)
    reached = None
    for _ in range(_MOST_STEPS):
        gradient, hessian = problem.slopes(place)
        step = np.zeros(len(place))
        step[free] = _direction(gradient[free], hessian[free, free])
        rise, far = float(gradient @ step), problem.change(step)
        if rise < close:
            place = place + step
            break
        if far < _SHORT:
            place, reached = place + step, None
            continue
        step /= max(np.abs(step).max() / 2.0, 1.0)
        reached = problem.value(place) if reached is None else reached
        for _ in range(30):
            trial = problem.value(place + step)
            if trial >= reached - 1e-12 * abs(reached):
                break
            step = step / 2
        place, reached = place + step, trial
    return place, hessian


def _direction(gradient: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(-hessian)
    bent = np.maximum(np.abs(values), 1e-9 * max(float(np.abs(values).max()), 1e-300))
    return vectors @ ((vectors.T @ gradient) / bent)


def inverse_of(information: np.ndarray) -> np.ndarray:
    """The inverse, with directions that the data say nothing about kept finite."""
    values, vectors = np.linalg.eigh(information)
    return vectors / np.maximum(values, 1e-10) @ vectors.T
