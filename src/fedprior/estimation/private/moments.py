"""Mean, heterogeneity and noise of a population from private reports of its groups."""

from typing import NamedTuple

import numpy as np

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import OneBit
from fedprior.core import random
from fedprior.estimation.gaussian.summary import gaussian_population
from fedprior.estimation.private.posterior import ReportPosterior, normalized, on_square, weigh
from fedprior.estimation.private.result import Budget, Fitted, Report
from fedprior.estimation.statistics import Means
from fedprior.exchange.batch import Rounds

# Of the means as reported, beyond the edge: below it, shrinking was not seen to lose.
_OUTSIDE = 0.15
_FULL = 0.95  # of the largest mean squared distance: all groups are at the edge
MISSED = (
    "The range [{:g}, {:g}] seems to miss the groups, or to be too tight for these reports: their "
    "mean cannot be told from its edge, or many lie beyond. Shrinking could do harm, so every "
    "group keeps its raw value (fallback to local). The population shown is not a finding."
)
_ERRORS = 7  # nodes of the squared error of the center


class Ball(NamedTuple):
    """The public ball that holds the groups' means: `center` in each coordinate, l2 `radius`."""

    center: float
    radius: float
    dimension: int

    @property
    def limits(self) -> tuple[float, float]:
        return self.center - self.radius, self.center + self.radius

    def inside(self, means: np.ndarray) -> np.ndarray:
        """Means outside moved to the edge."""
        away = means - self.center
        norm = np.linalg.norm(away, axis=-1, keepdims=True)
        return self.center + away * (self.radius / np.maximum(norm, self.radius))


class Known(NamedTuple):
    """Variances that are known, or None; a mean of group i has variance noise / size_i."""

    theta: float | None
    noise: float | None
    bound: float  # public upper bound on `noise`, where it is not known
    widest: np.ndarray  # public upper bounds on the groups' sample variances, there
    size: np.ndarray  # n, or 1 / variance where standard errors are known; 0 without data
    least: int  # the smallest n


class Reported(NamedTuple):
    """A moment as reported: its estimate, the variance of that, means over who reported it."""

    value: np.ndarray
    variance: float  # a coordinate
    inverse_size: float
    inverse_widest: float


def moments_report(statistics: Means, known: Known, ball: Ball, budget: Budget) -> Report:
    """Population's mean, variance of theta and variance of a value, what is not known (ERRATA D1).

    Up to three moments are reported: the mean; |mean - center|^2 / d, whose expectation is
    |mu - center|^2 / d + theta variance + noise / size; the sample variance. The second one stands
    beside the first because the spread of noisy means says too little: the variance of reports with
    Gaussian noise of variance q, less q, errs by q sqrt(2 / m), and that of bits says nothing
    (ERRATA 17). Gaussian noise covers all moments in one vector, in a ball of radius sqrt(k) for k
    of them; a bit is about one of them, chosen at random for each group.
    """
    parts, epsilon, named = _parts(statistics, known, ball), budget.epsilon, statistics.variance
    names = ", ".join(parts)
    if budget.delta > 0:
        clip = float(np.sqrt(len(parts)))
        noisy = LocalGaussian.calibrated(clip=clip, epsilon=epsilon, delta=budget.delta)
        width = sum(values.shape[1] for values in parts.values())

        def from_vector(rounds: Rounds) -> Fitted:
            return _fit(_by_vector(parts, noisy, rounds), known, ball, named is None)

        mechanism = f"Gaussian noise on the vector ({names})"
        return Report(noisy, width, noisy.bits(width), mechanism, from_vector)
    coin = OneBit(epsilon=epsilon, low=-1.0, high=1.0, noise=budget.noise)

    def from_bits(rounds: Rounds) -> Fitted:
        return _fit(_by_bits(parts, coin, rounds), known, ball, named is None)

    mechanism = f"one randomized bit, of one of {names}"
    return Report(coin, ball.dimension, coin.bits(ball.dimension), mechanism, from_bits)


def _fit(sent: dict[str, np.ndarray], known: Known, ball: Ball, names_noise: bool) -> Fitted:
    """The population and the weights, from what was sent alone."""
    reported = {name: _reported(values, known) for name, values in sent.items()}
    center = ball.inside(ball.center + ball.radius * reported["mean"].value[None, :])[0]
    error = reported["mean"].variance * ball.radius**2
    posterior, theta = _posterior(reported, known, ball)
    distrust = _distrust(reported, posterior, theta, ball)
    if distrust is not None:  # means at the edge say nothing of theta, nor of the noise in them
        reported.pop("squared distance", None)
        posterior, theta = _posterior(reported, known, ball)
    nodes = {"variance": theta} | ({"noise_variance": posterior.noise} if names_noise else {})
    population = gaussian_population(
        center,
        {name: posterior.mean(each) for name, each in nodes.items()},
        {"mean": float(np.sqrt(error))}
        | {name: posterior.scale(each) for name, each in nodes.items()},
        fitted_by="private moments",
    )
    return Fitted(weigh(posterior, known.size, distrust=distrust), population)


def _distrust(
    reported: dict[str, Reported], posterior: ReportPosterior, theta: np.ndarray, ball: Ball
) -> str | None:
    """What to say where the ball seems to miss the groups."""
    mean, square, upper = reported["mean"], reported.get("squared distance"), None
    if square is not None:  # in radii, plus 3 standard errors
        upper = (float(square.value[0]) + 1) / 2 + 3 * float(np.sqrt(square.variance)) / 2
    missed = seems_to_miss(
        ball,
        away=ball.radius * mean.value,
        error=ball.radius * float(np.sqrt(mean.variance)),
        variance=posterior.mean(theta) + posterior.mean(posterior.noise) * mean.inverse_size,
        square=upper,
    )
    return MISSED.format(*ball.limits) if missed else None


def seems_to_miss(
    ball: Ball, *, away: np.ndarray, error: float, variance: float, square: float | None = None
) -> bool:
    """Whether the reports leave it open that many groups lie outside the ball.

    Means outside are reported at the edge, so that shrinking to `away`, their average relative to
    the center (`error` a coordinate), could do harm without end. True where (1) the edge is within
    3 errors; (2) N(away, variance), the means as reported, has 15% of its mass beyond the edge on
    the line through the center: about a third of the true ones then are, from which on shrinking
    may lose; (3) `square`, an upper bound on the mean squared distance in radii, is near 1.
    """
    from scipy.special import ndtr

    chance = ball.dimension * error**2  # of |away|^2, from its error alone
    distance = float(np.sqrt(max(float(away @ away) - chance, 0.0)))
    near, far = ball.radius - distance, ball.radius + distance
    scale = max(float(np.sqrt(variance)), 1e-300)
    outside = float(ndtr(-near / scale) + ndtr(-far / scale))
    return near < 3 * error or outside > _OUTSIDE or (square is not None and square > _FULL)


def _parts(statistics: Means, known: Known, ball: Ball) -> dict[str, np.ndarray]:
    """What a group can tell, (groups, k) each and scaled to norm 1 at most.

    A group without rows has NaN, and so has the sample variance of a single row.
    """
    n = np.asarray(statistics.n)
    means = np.asarray(statistics.mean, np.float64).reshape(len(n), -1)
    unit = (ball.inside(means) - ball.center) / ball.radius
    unit[n == 0] = np.nan
    parts = {"mean": unit}
    if known.theta is None:
        parts["squared distance"] = 2 * (unit**2).sum(axis=1, keepdims=True) - 1
    if known.noise is None:
        assert statistics.within is not None
        free = np.where(n > 1, (n - 1) * ball.dimension, np.nan)
        share = np.clip(np.asarray(statistics.within) / free / known.widest, 0, 1)
        parts["sample variance"] = 2 * share[:, None] - 1
    return parts


def _by_vector(
    parts: dict[str, np.ndarray], channel: LocalGaussian, rounds: Rounds
) -> dict[str, np.ndarray]:
    """All parts of a group in one vector.

    A part that a group does not have is sent as 0 and, sizes being public, not counted (NaN).
    """
    message = np.concatenate(list(parts.values()), axis=1)
    sent, some = np.full(message.shape, np.nan), np.isfinite(message).any(axis=1)
    own = message[some]
    noised = rounds.gather(channel, np.nan_to_num(own), rounds.key("encode"))
    sent[some] = np.where(np.isfinite(own), noised, np.nan)
    ends = np.cumsum([values.shape[1] for values in parts.values()])
    return dict(zip(parts, np.split(sent, ends[:-1], axis=1), strict=True))


def _by_bits(
    parts: dict[str, np.ndarray], channel: OneBit, rounds: Rounds
) -> dict[str, np.ndarray]:
    """One part of each group as a bit; who tells what is drawn at random and public.

    The part that fewest groups have chooses first, the mean is for all that are left.
    """
    key = rounds.key("encode")
    able = {name: np.isfinite(values).all(axis=1) for name, values in parts.items()}
    free = able["mean"].copy()
    order = np.argsort(random.uniform(key, free.shape))
    quota = int(free.sum()) // len(parts)
    sent = {}
    for name in sorted(parts, key=lambda name: (name == "mean", able[name].sum())):
        mine = order[(free & able[name])[order]]
        mine = mine if name == "mean" else mine[:quota]
        free[mine] = False
        sent[name] = np.full(parts[name].shape, np.nan)
        sent[name][mine] = rounds.gather(channel, parts[name][mine], key)
    return sent


def _reported(sent: np.ndarray, known: Known) -> Reported:
    """Mean of what arrived (NaN did not), with its variance from the reports' own spread.

    The variance is floored at the one of a share of bits in which one bit differs.
    """
    there = np.isfinite(sent).all(axis=1)
    number = int(there.sum())
    variance = float(sent[there].var(axis=0).mean()) / number
    return Reported(
        sent[there].mean(axis=0),
        max(variance, 4 / number**2),
        float((1 / known.size[there]).mean()),
        float((1 / known.widest[there]).mean()),
    )


def _posterior(
    reported: dict[str, Reported], known: Known, ball: Ball
) -> tuple[ReportPosterior, np.ndarray]:
    """Nodes of (noise, theta variance) under a flat prior within their bounds, and the error of mu.

    The spread about the center is the theta variance and that error's square, chi^2-distributed.
    """
    from scipy.stats import chi2

    dimension, unit = ball.dimension, ball.radius**2 / ball.dimension
    mean, square = reported["mean"], reported.get("squared distance")
    within = reported.get("sample variance")
    error = mean.variance * ball.radius**2
    if square is not None:
        offset = float(mean.value @ mean.value) * unit
        between = (float(square.value[0]) + 1) / 2 * unit - offset + error
        doubt = square.variance / 4 * unit**2
        doubt += 4 * offset * error / dimension + 2 * error**2 / dimension
    if within is None:
        assert known.noise is not None
        low = high = known.noise
    else:
        # A group's share is noise / widest in expectation, so their mean is linear in the noise.
        guess = (float(within.value[0]) + 1) / 2 / within.inverse_widest
        scale = float(np.sqrt(within.variance)) / 2 / within.inverse_widest
        low = max(min(guess, known.bound) - 7 * scale, 0.0)
        high = min(max(guess, 0.0) + 7 * scale, known.bound)

    def log_likelihood(noise: np.ndarray, share: np.ndarray) -> np.ndarray:
        total = 0 * noise + 0 * share
        if within is not None:
            total = total - ((noise - guess) / scale) ** 2 / 2
        if square is not None:
            expected = share * unit + noise * square.inverse_size
            total = total - (expected - between) ** 2 / (2 * doubt)
        return total

    noise, share, log_density = on_square(log_likelihood, low, high)
    theta = share * unit if known.theta is None else np.full(share.shape, known.theta)
    draws = chi2.ppf((np.arange(_ERRORS) + 0.5) / _ERRORS, dimension)
    errors = error * draws / draws.mean()
    probability = np.repeat(normalized(log_density) / _ERRORS, _ERRORS)
    spread = (theta.reshape(-1, 1) + errors).ravel()
    nodes = ReportPosterior(probability, spread, np.repeat(noise.ravel(), _ERRORS))
    return nodes, np.repeat(theta.ravel(), _ERRORS)
