"""Private reports as printed: Thm 2.2 for means and Thm 4 for rates (ERRATA 5-8, 17, 19)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedprior.channels.randomized_response import OneBit
from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.protocols import PrivateChannel
from fedprior.estimation.private.moments import Ball
from fedprior.estimation.private.posterior import Weighing
from fedprior.estimation.private.result import Budget, Fitted, Report
from fedprior.estimation.private.round import Sent, Variances, combine_reports, means_of_groups
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.statistics import Means
from fedprior.exchange.batch import Rounds
from fedprior.privacy import events
from fedprior.privacy.events import Event
from fedprior.privacy.paper import paper_gaussian_epsilon, paper_gaussian_scale


@dataclass(frozen=True, kw_only=True)
class BoxGaussian(PrivateChannel):
    """Clips each coordinate to [center - radius, center + radius]; adds N(0, scale^2 I).

    Two messages are up to 2 radius sqrt(d) apart, which the event counts and the paper does not.
    Protects: one group's whole message (replace one). Trusts: nobody. For simulation only.
    """

    center: float
    radius: float
    scale: float

    view: ClassVar[Literal["local"]] = "local"

    def encode(self, message: Array, key: Key) -> Array:
        inside = np.clip(message, self.center - self.radius, self.center + self.radius)
        return inside + self.scale * random.normal(key, inside.shape)

    def event(self, dimension: int) -> Event:
        """Return the event of one message."""
        return events.gaussian(self.scale / (self.radius * math.sqrt(dimension)))


def paper_mean_report(
    statistics: Means, known: Variances, ball: Ball, budget: Budget, *, widen: bool
) -> Report:
    """Thm 2.2 as printed: sigma_q = (b / epsilon) sqrt(8 log(2 / delta)) on the box [-b, b]^d.

    b = r + (sqrt(theta variance) + sqrt(s)) sqrt(log(m^2 n)), which contains the means less often
    than claimed (ERRATA 5). The noise is per coordinate, and its true epsilon is another one
    (ERRATA 7, 8).
    """
    epsilon, delta, dimension = budget.epsilon, budget.delta, ball.dimension
    remedy = "The printed mechanism is Gaussian."
    check.require(delta > 0, "Thm 2.2", "delta", "above 0 for method='paper'", delta, remedy)
    radius = ball.radius
    if widen:
        reach = np.sqrt(np.log(float(len(known.sampling)) ** 2 * known.least))
        scales = np.sqrt(known.theta) + np.sqrt(known.sampling.max())
        radius = float(radius + scales * reach)
    scale = paper_gaussian_scale(epsilon, delta, radius=radius)
    true = paper_gaussian_epsilon(epsilon, delta, dimension=dimension)
    channel = BoxGaussian(center=ball.center, radius=radius, scale=scale)
    note = (
        f"The paper states epsilon = {epsilon:g} for this noise; its true epsilon at delta = "
        f"{delta:g} in {dimension} dimension(s) is {true:.4g}, the one in the guarantee."
    )

    def fit(rounds: Rounds) -> Fitted:
        means = means_of_groups(statistics, known)
        sent = Sent(rounds.gather(channel, means, rounds.key("encode")), scale**2)
        return combine_reports(statistics, known, sent, fitted_by="paper", notes=(note,))

    mechanism = f"Gaussian noise of scale {scale:g} per coordinate, as printed (paper Thm 2.2)"
    return Report(channel, dimension, bits=32.0 * dimension, mechanism=mechanism, fit=fit)


def paper_rate_report(n: np.ndarray, successes: np.ndarray, budget: Budget) -> Report:
    """The rate as one randomized bit, evaluated as printed (Thm 4; ERRATA 17, 19)."""
    number = int((n > 0).sum())
    rule = "at least 3 groups with trials for scheme paper"
    check.require(number > 2, "estimate_rates_privately", "statistics", rule, number)
    channel = OneBit(epsilon=budget.epsilon, noise=budget.noise)

    def fit(rounds: Rounds) -> Fitted:
        rates = successes[n > 0] / n[n > 0]
        return _as_printed(n, rounds.gather(channel, rates[:, None], rounds.key("encode"))[:, 0])

    return Report(channel, 1, 1.0, "one randomized bit of the rate, paper (uninformative)", fit)


def _as_printed(n: np.ndarray, sent: np.ndarray) -> Fitted:
    """Weight n / (mu (1 - mu) / sigma^2 + n) from the others' q_priv.

    sigma^2 is the variance of two-valued reports, whatever the rates are. Means outside [0, 1] are
    moved to its edge, without which the printed weight leaves [0, 1]. Errors are bounds: on average
    neither p (1 - p) nor the heterogeneity can exceed mu (1 - mu).
    """
    taking_part, number = n > 0, len(sent)
    others = (sent.sum() - sent) / (number - 1)
    squares = (sent @ sent - sent**2) - (number - 1) * others**2
    mean = np.clip(others, 1e-9, 1 - 1e-9)
    size = mean * (1 - mean) / (squares / (number - 2))
    own = np.zeros(len(n))
    own[taking_part] = n[taking_part] / (n[taking_part] + size)
    center, typical = float(mean.mean()), float(size.mean())
    most = center * (1 - center)
    local = most / np.maximum(n, 1)
    risk = own**2 * local + (1 - own) ** 2 * most
    note = (
        "Scheme paper: the variance of two-valued reports is the same for every population, so the "
        "heterogeneity is not an estimate of anything (ERRATA 17); errors and "
        "intervals are bounds, the gain is not."
    )
    population = FittedPopulation(
        kind="beta",
        fitted_by="paper (uninformative)",
        mean=center,
        heterogeneity=float(np.sqrt(most / (typical + 1))),
        parameters={"alpha": center * typical, "beta": (1 - center) * typical},
    )
    centers = np.full(len(n), center)
    centers[taking_part] = mean
    weighing = Weighing(own, risk, np.zeros(len(n)), local, most, note)
    return Fitted(weighing, population, center=centers)
