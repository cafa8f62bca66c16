"""The risk of estimating rates, exact or corrected (paper Thm 3 and 4; ERRATA 10, 12, 16, 17)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.estimation.paper.rates import paper_private_weight, paper_weight
from fedprior.estimation.risk import Risk


def bernoulli_risk(
    *,
    n: int,
    num_groups: int,
    prior: tuple[float, float] | None = None,
    atoms: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    method: str = "default",
    epsilon: float | None = None,
) -> Risk:
    """E[a^2] E[p(1-p)]/n + E[(1-a)^2 (sigma^2 + (mu_hat - mu)^2)] (paper Thm 3, 4; ERRATA 12, 16).

    The population is Beta(*prior), or `atoms` with their `weights`. `method` is `known` (the
    population known: exact, its linear posterior mean), `default` (debiased moments, D2) or `paper`
    (main-text leave-one-out form; with `epsilon` that of Thm 4). With `epsilon`, `default` is D3's
    split report. The error of the weight itself enters to second order (delta method); without
    privacy the result is exact as m grows. The lower bound is van Trees', which needs a Beta with
    both parameters above 2 (ERRATA 10), or the exact Bayes risk for a `known` Beta.
    """
    check.count("bernoulli_risk", least=2, n=n)
    check.count("bernoulli_risk", least=3, num_groups=num_groups)
    check.choice("bernoulli_risk", "method", method, ("known", "default", "paper"))
    one_population = (prior is not None) != (atoms is not None and weights is not None)
    sentence = "give the population either as prior or as atoms and weights."
    check.expect(one_population, "bernoulli_risk", sentence)
    law = _beta_law(n, *prior) if prior is not None else _atom_law(n, atoms, weights)
    if epsilon is not None:
        check.positive("bernoulli_risk", epsilon=epsilon)
        sentence = "epsilon cannot be used with method='known', which needs no reports."
        check.expect(method != "known", "bernoulli_risk", sentence)
    m = num_groups
    if method == "known":
        shape = _Weight(law.best_weight, 0.0, 0.0)
    elif epsilon is None:
        printed = method == "paper"
        weighted = paper_weight(n, law.mean, law.raw[0]) if printed else _moment_weight(law)
        shape = _with_noise(law, m, *weighted)
    elif method == "paper":
        weight, variance = paper_private_weight(n, law.mean, epsilon)
        shape = _Weight(weight, 0.0, variance / (m - 1))
    else:
        shape = _split_weight(law, m, epsilon)
    local, a = law.binomial / n, shape.weight
    spread = law.variance + shape.mean_variance
    personal = (a**2 + shape.variance) * local + ((1 - a) ** 2 + shape.variance) * spread
    bound = None
    if prior is not None:
        exact = law.best_weight * local
        bound = exact if method == "known" else _van_trees(n, *prior)
    return Risk(personal=personal, local=local, pooled=spread, weight=a, lower_bound=bound)


@dataclass(frozen=True)
class _Law:
    """Moments of p and of the raw rate of n trials, under a population of rates."""

    n: int
    mean: float
    variance: float  # of p
    raw: tuple[float, float, float]  # second to fourth central moment of the raw rate

    @property
    def binomial(self) -> float:
        """E[p (1 - p)]."""
        return self.mean * (1 - self.mean) - self.variance

    @property
    def best_weight(self) -> float:
        """The best linear weight on the raw rate (D2)."""
        return self.variance / (self.variance + self.binomial / self.n)


@dataclass(frozen=True)
class _Weight:
    """The weight of the raw rate, its variance, and the variance of the estimated mean."""

    weight: float
    variance: float
    mean_variance: float


def _law(n: int, mean: float, variance: float, mass: np.ndarray) -> _Law:
    off = np.arange(n + 1) / n - mean
    second, third, fourth = (float(mass @ off**power) for power in (2, 3, 4))
    return _Law(n, mean, variance, (second, third, fourth))


def _beta_law(n: int, alpha: float, beta: float) -> _Law:
    from scipy.stats import betabinom

    check.positive("bernoulli_risk", alpha=alpha, beta=beta)
    size = alpha + beta
    mean = alpha / size
    mass = betabinom.pmf(np.arange(n + 1), n, alpha, beta)
    return _law(n, mean, mean * (1 - mean) / (size + 1), mass)


def _atom_law(n: int, atoms: Any, weights: Any) -> _Law:
    from scipy.stats import binom

    atoms = np.asarray(atoms, np.float64)
    weights = np.asarray(weights, np.float64) / np.sum(weights)
    inside = bool(((atoms >= 0) & (atoms <= 1)).all())
    check.require(inside, "bernoulli_risk", "atoms", "in [0, 1]", atoms.tolist())
    mean = float(weights @ atoms)
    mass = weights @ binom.pmf(np.arange(n + 1)[None, :], n, atoms[:, None])
    return _law(n, mean, float(weights @ (atoms - mean) ** 2), mass)


def _moment_weight(law: _Law) -> tuple[float, np.ndarray]:
    """The weight that debiased moments of raw rates converge to, and its slope by (mu, V).

    a = sigma^2 / V with sigma^2 = (n V - mu (1 - mu)) / (n - 1), so a = n / (n - 1) - mu (1 - mu) /
    ((n - 1) V).
    """
    mean, second = law.mean, law.raw[0]
    slope = np.array([-(1 - 2 * mean) / second, mean * (1 - mean) / second**2]) / (law.n - 1)
    return law.best_weight, slope


def _with_noise(law: _Law, m: int, weight: float, slope: np.ndarray) -> _Weight:
    """The weight's variance from that of (mean, V) of m raw rates, to first order in 1 / m."""
    second, third, fourth = law.raw
    noise = np.array([[second, third], [third, fourth - second**2]]) / m
    return _Weight(weight, float(slope @ noise @ slope), second / (m - 1))


def _split_weight(law: _Law, m: int, epsilon: float) -> _Weight:
    """D3, split, c = 1/2: the weight at the true sigma^2 and the variance due to its report."""
    n, mean, variance = law.n, law.mean, law.variance
    keep = math.tanh(epsilon / 2)  # (e^eps - 1)/(e^eps + 1)
    mean_noise = _report_variance(mean, 0.0, 1.0, keep) / (m / 2)
    low, high = -1 / (4 * (n - 1)), 0.25
    second = variance + (mean - 0.5) ** 2
    noise = _report_variance(second, low, high, keep) / (m / 2)
    noise += 4 * (mean - 0.5) ** 2 * mean_noise + 2 * mean_noise**2
    product = mean * (1 - mean)

    def weight(between: np.ndarray) -> np.ndarray:
        own = between + mean_noise
        return own / (own + (product - between) / n)

    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    seen = variance + math.sqrt(noise) * nodes
    used = weight(_truncated_mean(seen, math.sqrt(noise), product))
    weights = weights / weights.sum()
    average = float(weights @ used)
    return _Weight(average, float(weights @ (used - average) ** 2), mean_noise)


def _report_variance(expected: float, low: float, high: float, keep: float) -> float:
    """Variance of one randomized bit's value: (H-L)^2 pi(1-pi)/k^2 (D3)."""
    chance = 0.5 + keep * ((expected - low) / (high - low) - 0.5)
    return (high - low) ** 2 * chance * (1 - chance) / keep**2


def _truncated_mean(center: np.ndarray, scale: float, top: float) -> np.ndarray:
    """Mean of N(center, scale^2) truncated to [0, top]."""
    from scipy.stats import truncnorm

    low, high = -center / scale, (top - center) / scale
    return np.asarray(truncnorm.mean(low, high, loc=center, scale=scale))


def _van_trees(n: int, alpha: float, beta: float) -> float | None:
    """1 / (n E[1/(p(1-p))] + I(prior)); None unless both parameters exceed 2 (ERRATA 10)."""
    if min(alpha, beta) <= 2:
        return None
    size = alpha + beta
    rate = (size - 1) * (size - 2)
    information = n * rate / ((alpha - 1) * (beta - 1))
    prior = rate * ((alpha - 1) / (alpha - 2) + (beta - 1) / (beta - 2) - 2)
    return 1 / (information + prior)
