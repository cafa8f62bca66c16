"""One round with known variances: the mean through a channel, Thm 2's weights for any sizes."""

from typing import NamedTuple

import numpy as np

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import OneBit
from fedprior.core import check, random
from fedprior.core.algorithm import Key
from fedprior.estimation.private.moments import MISSED, Ball, seems_to_miss
from fedprior.estimation.private.posterior import Weighing
from fedprior.estimation.private.result import Fitted, gaussian_population
from fedprior.estimation.statistics import Means
from fedprior.privacy import calibrate


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
    """What left the groups that have data, (groups, d), and the channel's variance a coordinate."""

    reports: np.ndarray
    variance: float
    bits: float | None
    what: str
    epsilon: float
    fitted_by: str = "private, variances known"
    notes: tuple[str, ...] = ()


def one_round(
    statistics: Means,
    known: Variances,
    ball: Ball,
    epsilon: float,
    delta: float,
    key: Key,
    *,
    method: str,
    widen: bool,
) -> Fitted:
    """The population's mean from one report of each group's mean, and the weights that go with it.

    `widen`: the ball holds the population's mean and is made to hold all groups' means.
    """
    there, limits = known.size > 0, ball.limits
    means = np.asarray(statistics.mean, np.float64).reshape(len(there), -1)[there]
    if method == "paper":
        sent = as_printed(means, known, ball, epsilon, delta, key, widen=widen)
    else:
        if widen:
            ball = ball._replace(radius=widened(ball.radius, known, dimension=ball.dimension))
        sent = through_channel(means, known, ball, epsilon, delta, key)
    fitted = combine_reports(statistics, known, sent)
    if method == "paper":
        return fitted
    center = np.atleast_1d(fitted.population.mean)
    error = fitted.population.standard_errors["mean" if len(center) == 1 else "mean_1"]
    typical = known.theta + float(known.sampling.mean())
    away = center - ball.center
    if seems_to_miss(ball, away=away, error=error, variance=typical):
        return fitted._replace(weighing=_kept(fitted.weighing, there, MISSED.format(*limits)))
    return fitted


def _kept(weighing: Weighing, there: np.ndarray, note: str) -> Weighing:
    """Every group with data keeps its raw value."""
    return weighing._replace(
        own=np.where(there, 1.0, 0.0),
        risk=np.where(there, weighing.local, weighing.risk),
        note=note,
        fell_back=True,
    )


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


def through_channel(
    means: np.ndarray, known: Variances, ball: Ball, epsilon: float, delta: float, key: Key
) -> Sent:
    """Gaussian noise on the ball (delta > 0), or one randomized bit a group."""
    if delta > 0:
        channel = LocalGaussian.calibrated(
            clip=ball.radius, epsilon=epsilon, delta=delta, center=ball.center
        )
        what = f"analytic Gaussian mechanism on a ball of radius {ball.radius:g}"
        bits = channel.bits(ball.dimension)
        return Sent(channel.encode(means, key), channel.scale**2, bits, what, epsilon)
    low, high = ball.center - ball.radius, ball.center + ball.radius
    coin = OneBit(epsilon=epsilon, low=low, high=high)
    reports = coin.encode(ball.inside(means), key)
    # Of bits only the whole variance shows: the means' own part is known and is taken off.
    whole = float(reports.var(axis=0, ddof=1).mean())
    variance = max(whole - known.theta - float(known.sampling.mean()), 0.0)
    bits, what = coin.bits(ball.dimension), "one randomized bit of the mean"
    return Sent(reports, variance, bits, what, epsilon)


def as_printed(
    means: np.ndarray,
    known: Variances,
    ball: Ball,
    epsilon: float,
    delta: float,
    key: Key,
    *,
    widen: bool,
) -> Sent:
    """Thm 2.2 as printed: sigma_q = (b / epsilon) sqrt(8 log(2 / delta)) on the box [-b, b]^d.

    b = r + (sqrt(theta variance) + sqrt(s)) sqrt(log(m^2 n)), which holds the means less often than
    claimed (ERRATA 5); the noise is per coordinate and its epsilon is another one (ERRATA 7, 8).
    """
    remedy = "The printed mechanism is Gaussian."
    check.require(delta > 0, "Thm 2.2", "delta", "above 0 for method='paper'", delta, remedy)
    radius = ball.radius
    if widen:
        reach = np.sqrt(np.log(float(len(means)) ** 2 * known.least))
        scales = np.sqrt(known.theta) + np.sqrt(known.sampling.max())
        radius = float(radius + scales * reach)
    scale = calibrate.paper_gaussian_scale(epsilon, delta, radius=radius)
    true = calibrate.paper_gaussian_epsilon(epsilon, delta, dimension=ball.dimension)
    inside = np.clip(means, ball.center - radius, ball.center + radius)
    note = (
        f"The paper states epsilon = {epsilon:g} for this noise; its true epsilon at delta = "
        f"{delta:g} in {ball.dimension} dimension(s) is {true:.4g}, the one in the guarantee."
    )
    return Sent(
        inside + scale * random.normal(key, inside.shape),
        scale**2,
        32.0 * ball.dimension,
        f"Gaussian noise of scale {scale:g} per coordinate, as printed (paper Thm 2.2)",
        epsilon=max(true, 1e-12),  # 0 where there is so much noise that delta alone would do
        fitted_by="paper",
        notes=(note,),
    )


def combine_reports(statistics: Means, known: Variances, sent: Sent) -> Fitted:
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
    population = gaussian_population(
        center,
        known.theta,
        known.noise if statistics.variance is None else None,
        {"mean": float(np.sqrt(error))},
        fitted_by=sent.fitted_by,
    )
    weighing = Weighing(own, risk, 0 * risk, local, error + known.theta, None)
    return Fitted(weighing, population, sent.epsilon, sent.bits, sent.what, sent.notes)
