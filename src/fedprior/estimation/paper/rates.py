"""The paper's estimator of a rate and the risk of it (section 2, Thm 3, 4; ERRATA 11-14, 17)."""

import math
from dataclasses import replace

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate.answers import RateAnswer
from fedprior.estimation.conjugate.model import ConjugateModel, ExpectedErrors, average, law_of
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.shapes.answer import borrowed
from fedprior.estimation.statistics import Pairs


def paper_weights(pairs: Pairs, *, minus_one: bool) -> tuple[np.ndarray, np.ndarray]:
    """a_i = n_i / (mu_i (1 - mu_i) / sigma_i^2 - 1 + n_i) and mu_i of each pair (section 2).

    mu_i = mean of the other raw rates, sigma_i^2 = sum over the others of (x_l - mu_i)^2 / (m - 2):
    leave one out, with mu_i where the paper prints mu_l (ERRATA 11). sigma_i^2 includes the
    sampling noise, so a_i does not tend to 0 when the rates are equal (ERRATA 12, 13). The paper's
    appendix omits the -1: `minus_one=False` (ERRATA 14). n is replaced by n_i if sizes differ. A
    pair without trials has weight 0 and the overall mean.
    """
    held = pairs.n > 0
    count = np.where(held, pairs.count, 0).astype(np.float64)
    groups = count.sum()
    remedy = 'The others\' variance divides by their number less one. Use method="default".'
    enough = groups >= 3
    check.require(enough, "estimate_rates", "number of groups", "at least 3", int(groups), remedy)
    raw = pairs.successes / np.maximum(pairs.n, 1)
    total, square = count @ raw, count @ raw**2
    mean = np.where(held, (total - raw) / (groups - 1), total / groups)
    variance = (square - raw**2 - (groups - 1) * mean**2) / (groups - 2)
    spread = mean * (1 - mean)
    # If the others are all 0 or all 1, only rounding errors are left of both.
    some = held & (variance > 1e-12 * square / (groups - 2)) & (spread > 1e-12)
    extra = spread[some] / variance[some] - (1.0 if minus_one else 0.0)
    weight = np.zeros(len(raw))
    size = pairs.n[some]
    # With a few groups of extreme rates sigma^2 exceeds mu (1 - mu), and the formula exceeds 1.
    weight[some] = size / (size + np.maximum(extra, 0.0))
    return weight, mean


def paper_population(pairs: Pairs) -> FittedPopulation:
    """The paper's mu and sigma^2 of the raw rates, sampling noise included (ERRATA 12)."""
    count = np.where(pairs.n > 0, pairs.count, 0).astype(np.float64)
    raw, groups = pairs.successes / np.maximum(pairs.n, 1), count.sum()
    mean = float(count @ raw / groups)
    variance = float(count @ (raw - mean) ** 2 / (groups - 1))
    spread = mean * (1 - mean)
    parameters = {"mean": mean}
    if 0 < variance < spread:
        size = spread / variance - 1
        parameters |= {"concentration": size, "alpha": mean * size, "beta": (1 - mean) * size}
    return FittedPopulation(
        kind="beta",
        fitted_by="paper",
        mean=mean,
        heterogeneity=float(np.sqrt(variance)) if len(parameters) > 1 else 0.0,
        parameters=parameters,
        standard_errors={"mean": float(np.sqrt(variance / groups))},
    )


def paper_answer(
    answer: RateAnswer, model: ConjugateModel, pairs: Pairs, *, minus_one: bool
) -> RateAnswer:
    """The paper's weights, with their expected error under the Beta fit.

    If all outcomes are equal, raw, common and personal rates coincide, and there is no gain.
    """
    weight, mean = paper_weights(pairs, minus_one=minus_one)
    personal = mean + weight * (pairs.successes / np.maximum(pairs.n, 1) - mean)
    law = law_of(model.grid)
    noise = law.inner / np.maximum(pairs.n, 1)
    variance = weight**2 * noise + (1 - weight) ** 2 * (law.variance + law.mean_variance)
    error = average(pairs, variance)
    errors = replace(answer.errors, personal=error)
    if (personal[pairs.n > 0] == (pairs.successes / np.maximum(pairs.n, 1))[pairs.n > 0]).all():
        errors = ExpectedErrors(personal=error, raw=error, pooled=error)
    printed = replace(
        answer,
        table=answer.table.around(personal, variance=variance, weight=weight),
        population=paper_population(pairs),
        errors=errors,
    )
    return printed.with_notes(
        borrowed(pairs.family.population, "paper's", ", which come with none")
    )


def paper_weight(n: int, mean: float, raw_variance: float) -> tuple[float, np.ndarray]:
    """A = n / (n - 1 + mu (1 - mu) / V), V the variance of raw rates; and its slope by (mu, V)."""
    product = mean * (1 - mean)
    weight = n / (n - 1 + product / raw_variance)
    slope = np.array([-(1 - 2 * mean) / raw_variance, product / raw_variance**2])
    return weight, weight**2 / n * slope


def paper_private_weight(n: int, mean: float, epsilon: float) -> tuple[float, float]:
    """Thm 4 as printed: the weight, which hardly moves, and Var(q), which knows only the mean."""
    odds = math.exp(epsilon)
    product = mean * (1 - mean)
    variance = product + odds / (odds - 1) ** 2
    return n / (n + product / variance), variance
