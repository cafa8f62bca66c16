"""Rates of groups that each send one randomized answer to the server and keep their data."""

from typing import Literal, get_args

import numpy as np

from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import check, random
from fedprior.core.algorithm import Key
from fedprior.estimation.paper.reports import paper_rate_report
from fedprior.estimation.private import reports
from fedprior.estimation.private.bound import heterogeneity, shrink, spread_bound
from fedprior.estimation.private.coverage import rate_intervals
from fedprior.estimation.private.law import TRIALS, CountLaw
from fedprior.estimation.private.posterior import TOO_LITTLE, Weighing, truncated_normal
from fedprior.estimation.private.result import Budget, Fitted, Report, ask, assemble
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.statistics import Counts
from fedprior.exchange.batch import Rounds
from fedprior.privacy.ledger import Ledger

Scheme = Literal["auto", "split", "two-round", "k-ary", "paper"]

_OWNER = "estimate_rates_privately"
_UNIT = "one group's outcomes (its size is public)"
_SINGLES = (
    "A group of one trial does not show how far its rate lies from those of others: such groups "
    "keep their own value."
)


def estimate_rates_privately(
    statistics: Counts,
    *,
    epsilon: float,
    scheme: Scheme = "auto",
    seed: int | None = None,
    level: float = 0.95,
    ledger: Ledger | None = None,
) -> Estimates:
    """p_i = a_i X_i + (1 - a_i) mu, with a population from one epsilon-private answer per group.

    Each group with n >= 1 answers once by randomized response, which is epsilon-DP in the local
    model if one group's outcomes are replaced; sizes are public. X_i is used by group i alone. The
    schemes are (ERRATA D3): `split`, a random half reports its rate and the other half (n >= 2) its
    unbiased second moment about 1/2, one bit each; `two-round`, the second half learns the first
    half's mean and reports about the center with the smallest expected variance; `k-ary`, every
    group reports its count among n + 1 symbols; `auto`, the scheme with the smaller predicted
    variance for the sizes and epsilon; `paper`, Thm 4 as printed, which is not informative on the
    heterogeneity (ERRATA 17).

    Every report is unbiased for its group, so their totals bound the error of the answer whatever
    the rates are (`bound`). The weights have the largest expected gain that a lower bound on the
    realized gain stands for, and the gains of the result are the bounds: each is broken in 2.5% of
    the cases at most, for rates of any shape, also where they depend on the sizes. Without a bound
    of 1% every group keeps its own rate; a group of one trial always does. The intervals contain
    the rates of `level` of the groups on average, also for any shape. The population, the gains and
    the notes are functions of the reports and may be published; `raw`, `personal`, `lower` and
    `upper` belong to each group and are not private.

    With a `seed` the noise is simulated (reproducible, not valid for release); without one it comes
    from the operating system and requires a `ledger` (view `local`, relation `replace-one`), to
    which the answers are charged before they are drawn.
    """
    check.choice(_OWNER, "scheme", scheme, get_args(Scheme))
    check.share(_OWNER, level=level)
    n, successes = np.asarray(statistics.n, np.int64), np.asarray(statistics.successes, np.int64)
    there = n > 0
    _check_groups(n[there])
    budget = Budget.of(_OWNER, epsilon, seed=seed)
    scheme = choose_scheme(n[there], epsilon) if scheme == "auto" else scheme
    if scheme == "paper":
        report = paper_rate_report(n, successes, budget)
    else:
        report = count_report(scheme, n, successes, budget, level)
    number, content = int(there.sum()), (n, successes, scheme)
    fitted, guarantee = ask(
        _OWNER, report, budget, ledger, unit=_UNIT, num_groups=number, content=content
    )
    raw = np.where(there, successes / np.maximum(n, 1), np.nan)
    return assemble(n, raw, fitted, guarantee, level=level, limits=(0.0, 1.0))


def count_report(
    scheme: Scheme,
    n: np.ndarray,
    counts: np.ndarray,
    budget: Budget,
    level: float,
    law: CountLaw = TRIALS,
) -> Report:
    """The count as a symbol, or a bit of the rate or of its second moment."""
    there, epsilon, noise = n > 0, budget.epsilon, budget.noise
    channel: OneBit | KaryResponse = OneBit(epsilon=epsilon, noise=noise)
    mechanism = f"one randomized bit, of the rate or of its second moment ({scheme})"
    if scheme == "k-ary":
        largest = int(law.most(n[there]).max())
        channel = KaryResponse(epsilon=epsilon, num_symbols=largest + 1, noise=noise)
        what = "successes" if law is TRIALS else "events"
        mechanism = f"one k-ary randomized response to the count of {what}"

    def fit(rounds: Rounds) -> Fitted:
        totals = gather(scheme, n[there], counts[there], epsilon, rounds, law)
        fitted = _fit(totals, n, fitted_by=f"private {scheme}")
        own, center, spread = fitted.weighing.own, totals.mean, spread_bound(totals)
        intervals = rate_intervals(n, counts, own, center, spread=spread, level=level, law=law)
        return fitted._replace(intervals=intervals)

    return Report(channel, 1, channel.bits(1), mechanism, fit)


def _fit(totals: reports.RateTotals, n: np.ndarray, *, fitted_by: str) -> Fitted:
    """The population and the weights, from the totals of the reports."""
    spread, error = heterogeneity(totals)
    spread += totals.mean_variance  # about the center
    noise = max(float(totals.law.family.expected_variance(totals.mean, spread)), 1e-12)
    found = shrink(totals)
    sizes, place = np.unique(n, return_inverse=True)
    own = np.where(sizes > 0, 1.0, 0.0)
    if found is not None:
        some = sizes > 0
        own[some] -= found.center[np.searchsorted(totals.size, sizes[some], side="right") - 1]
    divisor = np.where(sizes > 0, sizes, 1)
    local = noise / divisor
    risk = own**2 * local + (1 - own) ** 2 * spread
    doubt = np.hypot(own**2 / divisor, (1 - own) ** 2) * error
    single = bool((~totals.law.tells_square(totals.size)).any())
    weighing = Weighing(
        own=own[place],
        risk=risk[place],
        doubt=doubt[place],
        local=local[place],
        spread=spread,
        note=TOO_LITTLE if found is None else _SINGLES if single else None,
        fell_back=found is None,
        gains=(0.0, 0.0) if found is None else (100 * found.over_raw, 100 * found.over_pooled),
    )
    return Fitted(weighing, _population(totals, fitted_by))


def choose_scheme(n: np.ndarray, epsilon: float, law: CountLaw = TRIALS) -> Scheme:
    """The scheme whose estimate of sum (p - mean)^2 has less noise, for groups that are alike.

    There sharing gains most and noise costs most; the rate that they share is averaged over [0, 1].
    Sizes count as they do in the bound. Public quantities alone enter: sizes, their number,
    epsilon. Two-round reports win at small epsilon and many trials, k-ary answers elsewhere.
    """
    size, _, _, number = law.classes(n[law.tells_square(n)])
    shrunk = 1 / (1 + size / 8)
    weight = number * (shrunk**2 + shrunk / size) ** 2
    channel = OneBit(epsilon=epsilon)
    rate = (np.arange(20) + 0.5) / 20
    low, high = reports.moment_range(size[:, None], rate, law)
    one = channel.probability(-low / (high - low))
    bits = 2 * ((high - low) ** 2 * one * (1 - one)).mean(axis=1) / channel.contrast**2
    keep = 1 / (1 + (law.most(size) + 1) / np.expm1(min(epsilon, 700.0)))
    # About rate p, a count's statistic is near 0: what its mean over the symbols is.
    blank = (reports.uniform_means(size[:, None], rate, law)[1] ** 2).mean(axis=1)
    uniform = reports.uniform_moments(size[:, None], rate, law)[2].mean(axis=1)
    symbols = (1 - keep) / keep**2 * (keep * blank + uniform)
    return "k-ary" if weight @ symbols < weight @ bits else "two-round"


def gather(
    scheme: Scheme,
    n: np.ndarray,
    counts: np.ndarray,
    epsilon: float,
    rounds: Rounds,
    law: CountLaw = TRIALS,
) -> reports.RateTotals:
    """The totals of the answers of the groups, all with data; counts are cut at `most`."""
    most = law.most(n)
    counts = np.minimum(counts, most)
    if scheme == "k-ary":
        return reports.symbol_totals(epsilon, n, counts, rounds, law)
    channel, key = OneBit(epsilon=epsilon, noise=rounds.noise), rounds.key("encode")

    def sent(shares: np.ndarray) -> np.ndarray:
        return rounds.gather(channel, shares[:, None], key)[:, 0]

    second = _second_half(law.tells_square(n), rounds.key("split"))
    rates, moments, widest = np.full(len(n), np.nan), np.full(len(n), np.nan), most / n
    rates[~second] = widest[~second] * sent(counts[~second] / most[~second])
    center = 0.5
    if scheme != "split":
        center = _center(channel, rates[~second], widest[~second], n[second], law)
    low, high = reports.moment_range(n[second], center, law)
    share = reports.moment_share(n[second], counts[second], center, law)
    moments[second] = low + (high - low) * sent(share)
    return reports.bit_totals(channel, n, rates, moments, center, law)


def _second_half(tells_square: np.ndarray, split: Key) -> np.ndarray:
    """Mask of the groups that report the second moment: a random half of those that can."""
    able = np.flatnonzero(tells_square)
    draws = random.uniform(split, (len(able),))
    second = np.zeros(len(tells_square), bool)
    second[able[np.argsort(draws)[: (len(able) + 1) // 2]]] = True
    return second


def _center(
    channel: OneBit, rates: np.ndarray, widest: np.ndarray, n: np.ndarray, law: CountLaw
) -> float:
    """The center between 1/2 and round one's mean that promises the smallest Var(spread).

    Away from 1/2 the statistic's range widens; away from the mean the mean's error enters. `widest`
    are the largest rates that could be reported.
    """
    if len(rates) == 0:
        return 0.5
    weight = 1 / widest**2
    first = 0.25 / channel.contrast**2 / float(weight.sum())
    average = float(weight @ rates / weight.sum())
    mean, _ = truncated_normal(average, float(np.sqrt(first)), 0.0, 1.0)
    toward = np.linspace(0, 1, 21)
    centers = 0.5 + toward * (mean - 0.5)
    sizes, _, _, counts = law.classes(n)
    least, most = reports.moment_range(sizes[:, None], centers, law)
    noise = counts @ (most - least) ** 2 / (4 * channel.contrast**2) / len(n) ** 2
    error = 4 * (1 - toward) ** 2 * first * ((mean - 0.5) ** 2 + first)
    return float(centers[np.argmin(noise + error)])


def _check_groups(n: np.ndarray) -> None:
    remedy = "A group has to have rows to take part."
    check.require(len(n) > 1, _OWNER, "statistics", "at least 2 groups with trials", len(n), remedy)
    sentence = "with one trial per group, heterogeneity cannot be distinguished from chance."
    check.expect(bool(n.max() > 1), _OWNER, sentence)


def _population(totals: reports.RateTotals, fitted_by: str) -> FittedPopulation:
    """The Beta or Gamma law with the estimated mean and variance."""
    mean, (spread, error) = totals.mean, heterogeneity(totals)
    family = totals.law.family
    size = float(family.variance(mean)) / spread - family.excess
    parameters = {"alpha": mean * size, "beta": (1 - mean) * size}
    return FittedPopulation(
        kind=family.population,
        fitted_by=fitted_by,
        mean=mean,
        heterogeneity=float(np.sqrt(spread)),
        parameters=parameters if totals.law is TRIALS else family.parameters(mean, size),
        standard_errors={
            "mean": float(np.sqrt(totals.mean_variance)),
            "heterogeneity": error / (2 * float(np.sqrt(spread))),
        },
    )
