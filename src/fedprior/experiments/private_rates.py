"""Private rates of populations of every shape: what is promised, and what is kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.core import check, random
from fedprior.estimation.private.rates import Scheme, estimate_rates_privately
from fedprior.estimation.statistics import Counts
from fedprior.experiments.compare import Watch, unwatched

Population = Callable[[np.random.Generator, np.ndarray], np.ndarray]  # rates of groups of sizes n

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
NUM_GROUPS = (50, 300, 2_000, 20_000)
SCHEMES: tuple[Scheme, ...] = ("auto", "k-ary", "two-round")


def _spikes(values: Sequence[float], shares: Sequence[float]) -> Population:
    return lambda draws, n: draws.choice(values, len(n), p=shares)


def _beta(alpha: float, beta: float) -> Population:
    return lambda draws, n: draws.beta(alpha, beta, len(n))


def _normal(draws: np.random.Generator, n: np.ndarray) -> np.ndarray:
    from scipy.stats import truncnorm

    return 0.3 + 0.15 * truncnorm.ppf(draws.random(len(n)), -2.0, 14 / 3)


def _tail(draws: np.random.Generator, n: np.ndarray) -> np.ndarray:
    return np.where(draws.random(len(n)) < 0.9, 0.02, draws.random(len(n)))


def _any_spikes(draws: np.random.Generator, n: np.ndarray) -> np.ndarray:
    """1 to 6 rates with shares of any kind, drawn anew in every run."""
    number = int(draws.integers(1, 7))
    shares = draws.dirichlet(np.full(number, 0.5))
    return draws.choice(draws.beta(0.5, 0.5, number), len(n), p=shares)


def _with_size(draws: np.random.Generator, n: np.ndarray) -> np.ndarray:
    """Rates that rise with the size of the group."""
    return np.clip(0.1 + 0.15 * np.log(n) + 0.05 * draws.standard_normal(len(n)), 0, 1)


def _small_apart(draws: np.random.Generator, n: np.ndarray) -> np.ndarray:
    """Small groups at 0 or 1, large ones alike."""
    extreme = draws.integers(0, 2, len(n)).astype(float)
    return np.where(n <= np.median(n), extreme, 0.5)


POPULATIONS: dict[str, Population] = {
    "all at 0.01": _spikes([0.01], [1]),
    "all at 0.5": _spikes([0.5], [1]),
    "all at 0.97": _spikes([0.97], [1]),
    "Beta(1, 1)": _beta(1, 1),
    "Beta(4, 4)": _beta(4, 4),
    "Beta(2, 5)": _beta(2, 5),
    "Beta(0.5, 20)": _beta(0.5, 20),
    "Beta(0.1, 0.1)": _beta(0.1, 0.1),
    "normal(0.3, 0.15)": _normal,
    "0.05 or 0.4": _spikes([0.05, 0.4], [0.5, 0.5]),
    "0.02 or 0.98": _spikes([0.02, 0.98], [0.5, 0.5]),
    "0.1 or 0.7 (15%)": _spikes([0.1, 0.7], [0.85, 0.15]),
    "0 or 0.5 (30%)": _spikes([0.0, 0.5], [0.7, 0.3]),
    "0 or 1 (1%)": _spikes([0.0, 1.0], [0.99, 0.01]),
    "0.25, 0.5, 0.75": _spikes([0.25, 0.5, 0.75], [1 / 3, 1 / 3, 1 / 3]),
    "0.02 and a tail": _tail,
    "any spikes": _any_spikes,
    "rising with size": _with_size,
    "small groups apart": _small_apart,
}


class RateSetting(NamedTuple):
    """The public quantities of one run: sizes, epsilon and scheme."""

    n: np.ndarray
    epsilon: float
    scheme: Scheme


class Kept(NamedTuple):
    """Gains over raw rates in percent: the bound that was printed, and what came true."""

    promised: float
    realized: float
    fell_back: bool
    coverage: float


@dataclass(frozen=True, kw_only=True)
class PromiseRow:
    """All runs of a population. Gains in percent are medians over the runs that share at all.

    `broken` is the share of all runs whose gain is below the promised one, `worse` of those whose
    error exceeds that of raw rates, `shared` of those without a fallback; `coverage` of the 95%
    intervals is a mean.
    """

    population: str
    runs: int
    promised: float
    realized: float
    broken: float
    worse: float
    shared: float
    coverage: float


def private_rates(
    *,
    runs: int = 200,
    seed: int = 0,
    num_groups: Sequence[int] = NUM_GROUPS,
    epsilons: Sequence[float] = EPSILONS,
    watch: Watch = unwatched,
) -> list[PromiseRow]:
    """Every population in `runs` settings, drawn at random from the grid and the same for all.

    Sizes are 2, 5, 10, 30 or 100, or a mixture of all sizes up to one of these.
    """
    check.count("private_rates", runs=runs)
    seed = check.seed("private_rates", seed)
    rows = []
    for place, (name, population) in enumerate(POPULATIONS.items()):
        kept = []
        for run in range(runs):
            setting = draw_setting(random.stream(seed, "cohort", run), num_groups, epsilons)
            kept.append(keep(population, setting, random.stream(seed, "partition", place, run)))
            watch(place * runs + run + 1, runs * len(POPULATIONS))
        rows.append(_row(name, kept))
    return rows


def draw_setting(
    draws: np.random.Generator,
    num_groups: Sequence[int] = NUM_GROUPS,
    epsilons: Sequence[float] = EPSILONS,
) -> RateSetting:
    """Sizes, epsilon and scheme from the grid."""
    number, largest = int(draws.choice(num_groups)), int(draws.choice([2, 5, 10, 30, 100]))
    mixed = draws.integers(1, largest + 1, number)
    mixed[:2] = largest
    n = mixed if draws.random() < 0.3 else np.full(number, largest)
    return RateSetting(n, float(draws.choice(epsilons)), SCHEMES[draws.integers(len(SCHEMES))])


def keep(population: Population, setting: RateSetting, draws: np.random.Generator) -> Kept:
    """One run: rates and counts drawn, estimated privately, and compared with the rates."""
    n, epsilon, scheme = setting
    rate = population(draws, n)
    counts = Counts(n=n, successes=draws.binomial(n, rate))
    seed = int(draws.integers(2**31))
    found = estimate_rates_privately(counts, epsilon=epsilon, scheme=scheme, seed=seed)
    error, raw = (float(np.sum((each - rate) ** 2)) for each in (found.personal, found.raw))
    lost = 0.0 if error == 0 else -np.inf  # where raw rates have no error at all
    return Kept(
        promised=found.gain_over_raw,
        realized=100 * (1 - error / raw) if raw > 0 else lost,
        fell_back=found.fell_back,
        coverage=float(np.mean((found.lower <= rate) & (rate <= found.upper))),
    )


def _row(population: str, kept: list[Kept]) -> PromiseRow:
    promised, realized, fell_back, coverage = (np.array(each) for each in zip(*kept, strict=True))
    shared = ~fell_back
    medians = [
        float(np.median(each[shared])) if shared.any() else 0.0 for each in (promised, realized)
    ]
    return PromiseRow(
        population=population,
        runs=len(kept),
        promised=medians[0],
        realized=medians[1],
        broken=float(np.mean(promised > realized)),
        worse=float(np.mean(realized < 0)),
        shared=float(np.mean(shared)),
        coverage=float(np.mean(coverage)),
    )
