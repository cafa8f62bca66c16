"""One round with known variances: the mean through a channel, Thm 2's weights for any sizes."""

from typing import NamedTuple

import numpy as np

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import OneBit
from fedprior.estimation.gaussian.summary import gaussian_population
from fedprior.estimation.private.moments import MISSED, Ball, seems_to_miss
from fedprior.estimation.private.posterior import Weighing
from fedprior.estimation.private.result import Budget, Fitted, Report
from fedprior.estimation.statistics import Means
from fedprior.exchange.batch import Rounds


class Variances(NamedTuple):
    """Of theta and of one value; a group's mean has noise / size, and no data where size is 0."""

    theta: float
    noise: float
    size: np.ndarray
    least: int  # the smallest number of rows

    @property
    def sampling(self) -> np.ndarray:
        """Sampling variances of the means of groups that have data."""
        return self.noise / self.size[self.size > 0]


class Sent(NamedTuple):
    """Reports of the groups that have data, (groups, d), and the channel's variance."""

    reports: np.ndarray
    variance: float


def mean_report(
    statistics: Means, known: Variances, ball: Ball, budget: Budget, *, widen: bool
) -> Report:
    """The group's mean in the ball: Gaussian noise (delta > 0), or one randomized bit.

    `widen` says that the ball holds the population's mean and must be enlarged to hold the groups'
    means. Every group keeps its raw value where the ball seems to miss the groups.
    """
    limits = ball.limits
    if widen:
        ball = ball._replace(radius=widened(ball.radius, known, dimension=ball.dimension))
    channel: LocalGaussian | OneBit
    if budget.delta > 0:
        channel = LocalGaussian.calibrated(
            clip=ball.radius, epsilon=budget.epsilon, delta=budget.delta, center=ball.center
        )
        mechanism = f"analytic Gaussian mechanism on a ball of radius {ball.radius:g}"
    else:
        low, high = ball.limits
        channel = OneBit(epsilon=budget.epsilon, low=low, high=high, noise=budget.noise)
        mechanism = "one randomized bit of the mean"

    def fit(rounds: Rounds) -> Fitted:
        means = ball.inside(means_of_groups(statistics, known))
        reports = rounds.gather(channel, means, rounds.key("encode"))
        sent = Sent(reports, _added_variance(channel, reports, known))
        return _guarded(combine_reports(statistics, known, sent), known, ball, limits)

    bits = channel.bits(ball.dimension)
    return Report(channel, ball.dimension, bits=bits, mechanism=mechanism, fit=fit)


def _added_variance(channel: LocalGaussian | OneBit, sent: np.ndarray, known: Variances) -> float:
    """What the channel adds to the variance of a report.

    Of bits only the whole variance shows: the means' own part is known and is taken off.
    """
    if isinstance(channel, LocalGaussian):
        return channel.scale**2
    whole = float(sent.var(axis=0, ddof=1).mean())
    return max(whole - known.theta - float(known.sampling.mean()), 0.0)


def _guarded(fitted: Fitted, known: Variances, ball: Ball, limits: tuple[float, float]) -> Fitted:
    """Every group keeps its raw value where the ball seems to miss the groups."""
    center = np.atleast_1d(fitted.population.mean)
    error = fitted.population.standard_errors["mean" if len(center) == 1 else "mean_1"]
    typical = known.theta + float(known.sampling.mean())
    if not seems_to_miss(ball, away=center - ball.center, error=error, variance=typical):
        return fitted
    kept = fitted.weighing.fallen_back(known.size > 0, MISSED.format(*limits))
    return fitted._replace(weighing=kept)


def means_of_groups(statistics: Means, known: Variances) -> np.ndarray:
    """The means of the groups that have data, (groups, d)."""
    means = np.asarray(statistics.mean, np.float64)
    return means.reshape(len(known.size), -1)[known.size > 0]


def widened(radius: float, known: Variances, *, dimension: int = 1) -> float:
    """R = r + sqrt(theta variance + s) chi_d^-1(1 - beta / m): all m means lie in it with 1 - beta.

    beta = 2 / (m n), the paper's own; s is the largest sampling variance, n the smallest size
    (ERRATA 5, D1).
    """
    from scipy.stats import chi

    number = len(known.sampling)
    miss = 2 / (number * known.least)
    scale = np.sqrt(known.theta + known.sampling.max())
    return float(radius + scale * chi.isf(miss / number, dimension))


def combine_reports(
    statistics: Means,
    known: Variances,
    sent: Sent,
    *,
    fitted_by: str = "private, variances known",
    notes: tuple[str, ...] = (),
) -> Fitted:
    """Center sum w_i q_i and the best a_i for it, which is Thm 2's where sizes are equal.

    With D = center - theta_i and E = X_i - theta_i: E D^2 = sum w^2 (theta variance + s + channel)
    + theta variance (1 - 2 w_i), E[D E] = w_i s_i, a = (E D^2 - E[D E]) / (E D^2 + s - 2 E[D E]).
    Variances are known, so the risk is, and it is never above the local one where the ball holds
    the means; whether it does is all that the guard has to ask (`seems_to_miss`).
    """
    there = known.size > 0
    local = known.noise / np.where(there, known.size, 1.0)
    precision = np.where(there, 1 / (known.theta + local + sent.variance), 0.0)
    share = precision / precision.sum()
    center = share[there] @ sent.reports
    error = float(1 / precision.sum())
    apart, cross = error + known.theta * (1 - 2 * share), share * local
    own = np.where(there, (apart - cross) / (apart + local - 2 * cross), 0.0)
    risk = own**2 * local + 2 * own * (1 - own) * cross + (1 - own) ** 2 * apart
    noise = {"noise_variance": known.noise} if statistics.variance is None else {}
    population = gaussian_population(
        center,
        {"variance": known.theta, **noise},
        {"mean": float(np.sqrt(error))},
        fitted_by=fitted_by,
    )
    weighing = Weighing(own, risk, 0 * risk, local, error + known.theta, None)
    return Fitted(weighing, population, notes)
