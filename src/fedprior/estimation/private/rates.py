"""Rates of groups that each send one randomized answer to the server and keep their data."""

from typing import Literal, get_args

import numpy as np

from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import check, random
from fedprior.core.algorithm import Key
from fedprior.estimation.paper.reports import paper_rate_weights
from fedprior.estimation.private import reports
from fedprior.estimation.private.posterior import (
    ReportPosterior,
    Weighing,
    normalized,
    on_square,
    weigh,
)
from fedprior.estimation.private.result import assemble
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.statistics import Counts
from fedprior.privacy.guarantee import Guarantee

Scheme = Literal["auto", "split", "two-round", "k-ary", "paper"]

_OWNER = "estimate_rates_privately"
_UNIT = "one group's outcomes (its size is public)"
_MOST_SYMBOLS = 5_000  # of all sizes together, for which k-ary likelihoods are tabulated


def estimate_rates_privately(
    statistics: Counts,
    *,
    epsilon: float,
    scheme: Scheme = "auto",
    seed: int | None = None,
    level: float = 0.95,
) -> Estimates:
    """p_i = a_i X_i + (1 - a_i) mu, with a population from one epsilon-private answer per group.

    Each group with n >= 1 answers once by randomized response, which is epsilon-DP in the local
    model if one group's outcomes are replaced; sizes are public. X_i is used by group i alone. The
    schemes are (ERRATA D3): `split`, a random half reports its rate and the other half (n >= 2) its
    unbiased second moment about 1/2, one bit each; `two-round`, the second half learns the first
    half's mean and reports about the center with the smallest expected variance; `k-ary`, every
    group reports its count among n + 1 symbols, evaluated by the beta-binomial likelihood through
    the channel; `auto`, the scheme with the smallest predicted variance for the sizes and epsilon;
    `paper`, Thm 4 as printed, which is not informative on the heterogeneity (ERRATA 17).

    The population's mean and variance come from the exact likelihood of the reports with a flat
    prior over the possible values, not from a clipped estimate; `weigh` protects against too small
    weights. The population, the gains and the notes are functions of the reports and may be
    published; `raw`, `personal`, `lower` and `upper` belong to each group and are not private.

    With a `seed` the noise is simulated (reproducible, not valid for release); without one it comes
    from the operating system.
    """
    check.positive(_OWNER, epsilon=epsilon)
    check.choice(_OWNER, "scheme", scheme, get_args(Scheme))
    check.share(_OWNER, level=level)
    n, successes = np.asarray(statistics.n, np.int64), np.asarray(statistics.successes, np.int64)
    there = n > 0
    _check_groups(n[there])
    keys = _keys(seed)
    center: float | np.ndarray
    if scheme == "paper":
        center, weighing, population = paper_rate_weights(n, successes, epsilon, keys[1])
        bits = 1.0
    else:
        scheme = choose_scheme(n[there], epsilon) if scheme == "auto" else scheme
        evidence, bits = _gather(scheme, n[there], successes[there], epsilon, keys)
        center, weighing, population = _fit(evidence, n, fitted_by=f"private {scheme}")
    return assemble(
        n=n,
        raw=np.where(there, successes / np.maximum(n, 1), np.nan),
        center=center,
        weighing=weighing,
        population=population,
        guarantee=_guarantee(scheme, epsilon, bits, keys[1]),
        level=level,
        limits=(0.0, 1.0),
    )


def _fit(
    evidence: reports.ReportEvidence, n: np.ndarray, *, fitted_by: str
) -> tuple[float, Weighing, FittedPopulation]:
    """The mean to shrink to, the weights and the population, from the reports' likelihood."""
    average, share, log_likelihood = on_square(*evidence)
    # Flat over (mean, variance): the variance is share * mean * (1 - mean).
    probability = normalized(log_likelihood + np.log(average * (1 - average)))
    average, variance = average.ravel(), (share * average * (1 - average)).ravel()
    center = float(probability @ average)
    posterior = ReportPosterior(
        probability,
        spread=variance + (average - center) ** 2,
        noise=average * (1 - average) - variance,
    )
    return center, weigh(posterior, n), _population(posterior, average, variance, fitted_by)


def choose_scheme(n: np.ndarray, epsilon: float) -> Scheme:
    """The scheme with the smaller predicted variance of the heterogeneity, for uniform rates.

    From public quantities alone: sizes, their number, epsilon. Two-round reports win at small
    epsilon and many trials, k-ary answers elsewhere (from epsilon = 2.4 on at n = 14).
    """
    sizes, counts = np.unique(n, return_counts=True)
    if _num_symbols(sizes) > _MOST_SYMBOLS:
        return "two-round"
    channel = OneBit(epsilon=epsilon)
    answering = min(int(counts[sizes > 1].sum()), len(n) // 2)
    low, high = reports.moment_range(reports.size_class(n[n > 1]), 0.5)
    share = (1 / 12 - low) / (high - low)
    one = channel.probability(share)
    squares = (high - low) ** 2 * one * (1 - one) / channel.contrast**2
    first = 0.25 / channel.contrast**2 / (len(n) - answering)
    two_round = float(squares.mean()) / answering + 2 * first**2
    return "k-ary" if _symbol_variance(sizes, counts, epsilon) < two_round else "two-round"


def _num_symbols(n: np.ndarray) -> int:
    """The sum of n + 1 over the sizes that occur."""
    return int((np.unique(n) + 1).sum())


def _symbol_variance(sizes: np.ndarray, counts: np.ndarray, epsilon: float) -> float:
    """Cramer-Rao bound on the variance estimated from k-ary answers, for uniform rates."""
    step = 1e-5
    information = np.zeros((2, 2))
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        channel = KaryResponse(epsilon=epsilon, num_symbols=size + 1)

        def law(mean: float, variance: float, size: int = size) -> np.ndarray:
            share = np.array(variance / (mean * (1 - mean)))
            return reports.beta_binomial(size, np.array(mean), share)

        by_mean = law(0.5 + step, 1 / 12) - law(0.5 - step, 1 / 12)
        by_variance = law(0.5, 1 / 12 + step) - law(0.5, 1 / 12 - step)
        slopes = channel.keep * np.stack([by_mean, by_variance]) / (2 * step)
        seen = channel.keep / (size + 1) + (1 - channel.keep) / (size + 1)
        information += count * slopes @ slopes.T / seen
    determinant = np.linalg.det(information)
    return float(information[0, 0] / determinant) if determinant > 0 else np.inf


def _gather(
    scheme: Scheme, n: np.ndarray, successes: np.ndarray, epsilon: float, keys: tuple[Key, Key]
) -> tuple[reports.ReportEvidence, float]:
    """The answers of the groups (all with n >= 1), and the bits of one answer."""
    split, key = keys
    if scheme == "k-ary":
        few, rule = _num_symbols(n) <= _MOST_SYMBOLS, "another where sizes are many or large"
        remedy = f"It tabulates {_num_symbols(n):,} symbols, {_MOST_SYMBOLS:,} at most: use auto."
        check.require(few, _OWNER, "scheme", rule, scheme, remedy)
        most = float(np.ceil(np.log2(n.max() + 1)))
        return reports.symbol_evidence(epsilon, n, successes, key), most
    channel = OneBit(epsilon=epsilon)
    second = _second_half(n, split)
    first_bits = reports.mean_bits(channel, n[~second], successes[~second], key)
    center = 0.5 if scheme == "split" else _center(channel, first_bits, n[second])
    moments = reports.moment_bits(channel, n[second], successes[second], center, key)
    return reports.bits_evidence(channel, first_bits, moments, center), 1.0


def _second_half(n: np.ndarray, split: Key) -> np.ndarray:
    """Mask of the groups that report the second moment: a random half, among those with n >= 2."""
    able = np.flatnonzero(n > 1)
    draws = random.uniform(split, (len(able),))
    chosen = able[np.argsort(draws)[: min(len(able), len(n) // 2)]]
    second = np.zeros(len(n), bool)
    second[chosen] = True
    return second


def _center(channel: OneBit, bits: reports.Bits, n: np.ndarray) -> float:
    """The center between 1/2 and round one's mean that promises the smallest Var(spread).

    Away from 1/2 the statistic's range widens; away from the mean the mean's error enters.
    """
    low, high = reports.mean_range(channel, bits)
    one = channel.probability(np.linspace(low, high, 101))
    likelihood = bits.ones * np.log(one) + (bits.number - bits.ones) * np.log1p(-one)
    mean = float(normalized(likelihood) @ np.linspace(low, high, 101))
    first = 0.25 / channel.contrast**2 / bits.number
    toward = np.linspace(0, 1, 21)
    centers = 0.5 + toward * (mean - 0.5)
    kinds, counts = np.unique(reports.size_class(n), return_counts=True)
    least, most = reports.moment_range(kinds[:, None], centers)
    noise = counts @ (most - least) ** 2 / (4 * channel.contrast**2) / len(n) ** 2
    error = 4 * (1 - toward) ** 2 * first * ((mean - 0.5) ** 2 + first)
    return float(centers[np.argmin(noise + error)])


def _keys(seed: int | None) -> tuple[Key, Key]:
    """Streams of the public split and of the answers."""
    if seed is None:
        return random.secure(), random.secure()
    seed = check.seed(_OWNER, seed)
    return random.stream(seed, "split"), random.stream(seed, "encode")


def _check_groups(n: np.ndarray) -> None:
    remedy = "A group has to have rows to take part."
    check.require(len(n) > 1, _OWNER, "statistics", "at least 2 groups with trials", len(n), remedy)
    sentence = "with one trial per group, heterogeneity cannot be distinguished from chance."
    check.expect(bool(n.max() > 1), _OWNER, sentence)


def _guarantee(scheme: Scheme, epsilon: float, bits: float, key: Key) -> Guarantee:
    mechanism = {
        "k-ary": "one k-ary randomized response to the count of successes",
        "paper": "one randomized bit of the rate, paper (uninformative)",
    }.get(scheme, f"one randomized bit, of the rate or of its second moment ({scheme})")
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        unit=_UNIT,
        neighbors="replace one",
        trust="nobody (local model)",
        mechanism=mechanism,
        noise=random.noise_of(key),
        bits=bits,
    )


def _population(
    posterior: ReportPosterior, average: np.ndarray, variance: np.ndarray, fitted_by: str
) -> FittedPopulation:
    """The Beta law with the posterior's expected mean and variance."""
    mean, spread = posterior.mean(average), posterior.mean(variance)
    size = mean * (1 - mean) / spread - 1
    return FittedPopulation(
        kind="beta",
        fitted_by=fitted_by,
        mean=mean,
        heterogeneity=float(np.sqrt(spread)),
        parameters={"alpha": mean * size, "beta": (1 - mean) * size},
        standard_errors={
            "mean": posterior.scale(average),
            "heterogeneity": posterior.scale(np.sqrt(variance)),
        },
    )
