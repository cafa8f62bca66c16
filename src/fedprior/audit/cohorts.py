"""Conformance of a cohort: its draws follow the sampling that is accounted for."""

from dataclasses import replace

import numpy as np

from fedprior.audit.bound import lower_limit, two_sided
from fedprior.audit.finding import POWER, Finding
from fedprior.audit.losses import epsilon_from_below
from fedprior.audit.probe import members, probe, release, senders
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core.protocols import Cohort
from fedprior.exchange.agreement import Agreement
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Event, Relation, gaussian

_TESTS = 5  # statistical tests that share the probability of a false alarm
_LEAST_EXPECTED = 25  # expected draws in a cell of the chi-square test of sizes


def check_cohort(
    cohort: Cohort,
    *,
    num_clients: int,
    rounds: int,
    seed: int,
    confidence: float,
    delta: float,
) -> Finding:
    """Test the draws of `rounds` rounds against the sampling that `cohort.amplify` claims.

    Tests each client's rate and the overall rate, the distribution of the sizes, each pair of
    clients in one round, and each client in successive rounds (a cohort that deals out a shuffled
    list, or repeats itself, has the right rates but no amplification).
    """
    event: Event = cohort.amplify(gaussian(1.0), num_clients)
    draws = _draws(cohort, num_clients, rounds, seed)
    bound, faults = 0.0, []
    drawn = event.sampling != "everyone"
    if drawn:
        share = (1 - confidence) / (_TESTS + 1)
        faults = deviations(draws, event, alarm=share)
        if event.sampling == "poisson":
            rate = float(lower_limit(draws.sum(), draws.size, share))
            observed = replace(event, rate=max(rate, 1e-12), overflow=0.0)
            bound = epsilon_from_below([(observed, 1)], delta=delta, relation="add-remove")
    relation: Relation = "replace-one" if event.sampling == "fixed" else "add-remove"
    claim, detail = "everyone", "nothing to check"
    if drawn:
        claim = f"rate {event.rate:g}" if event.sampling == "poisson" else f"size {event.size}"
        claim += "" if event.amplified else ", no amplification"
        detail = f"{rounds:,} cohorts of {num_clients} clients sampled as accounted for"
    return Finding(
        family="sampling",
        detects=_detects(draws, event) if drawn else "nothing",
        mechanism=f"{type(cohort).__name__}, {claim}",
        claimed=epsilon([(event, 1)], delta=delta, relation=relation),
        lower_bound=bound,
        delta=delta,
        relation=relation,
        confidence=confidence if drawn else 1.0,
        detail=detail,
        faults=tuple(faults),
    )


def _draws(cohort: Cohort, num_clients: int, rounds: int, seed: int) -> np.ndarray:
    """Who is drawn in each round of a private run, (rounds, num_clients)."""
    agreement = Agreement.of(
        probe(3, 1),
        senders(np.zeros((num_clients, 3))),
        channel=CentralGaussian(clip=1.0, noise_multiplier=1.0),
        cohort=cohort,
        seed=seed,
    )
    return members(agreement.draw, rounds, num_clients)


def check_engine_cohorts(
    cohort: Cohort, *, num_clients: int, rounds: int, seed: int, confidence: float
) -> Finding:
    """Test who really took part, as the sums of orthogonal messages with little noise show it.

    A client that is drawn twice in one round, or a cohort that differs from its draw, is seen too.
    """
    event: Event = cohort.amplify(gaussian(1.0), num_clients)
    channel = CentralGaussian(clip=1.0, noise_multiplier=0.05)
    totals = release(channel, np.eye(num_clients), rounds=rounds, cohort=cohort, seed=seed).totals
    counts = np.round(totals)
    faults = deviations(counts > 0, event, alarm=(1 - confidence) / _TESTS)
    if not np.isin(counts, (0, 1)).all():
        faults.append("a client counts more than once in a sum, or less than once")
    return Finding(
        family="sampling",
        mechanism=f"{type(cohort).__name__}, in the engine",
        detail=f"who took part in {rounds:,} rounds of {num_clients} clients, seen in the sums",
        detects=_detects(counts > 0, event),
        confidence=confidence,
        claim="the sampling that is accounted for",
        measured=f"a rate of {counts.mean():.4g}",
        faults=tuple(faults),
    )


def _detects(draws: np.ndarray, event: Event) -> str:
    """The smallest excess of the rate of all clients that is found with probability `POWER`."""
    from scipy.stats import norm

    rate = event.rate if event.sampling == "poisson" else event.size / draws.shape[1]
    number = draws.size if event.sampling == "poisson" else len(draws)
    sigmas = float(norm.isf(1e-5) + norm.isf(1 - POWER))
    excess = sigmas * np.sqrt(rate * (1 - rate) / number)
    return f"a rate of {min(rate + excess, 1):.3g}, pairs or rounds that depend on each other"


def deviations(draws: np.ndarray, event: Event, *, alarm: float) -> list[str]:
    """Describe how `draws` (rounds, num_clients) deviate from the sampling of `event`."""
    rounds, num_clients = draws.shape
    if event.sampling == "poisson":
        once, both = event.rate, event.rate**2
    else:
        once = event.size / num_clients
        both = once * (event.size - 1) / (num_clients - 1)
    faults = []
    if two_sided(draws.sum(axis=0), rounds, once) < alarm:
        faults.append("a client is not drawn at the rate that is accounted for")
    if event.sampling == "poisson" and two_sided(draws.sum(), draws.size, once) < alarm:
        faults.append(f"clients are drawn at rate {draws.mean():.4g} instead of {once:g}")
    if _sizes(draws.sum(axis=1), event, num_clients) < alarm:
        faults.append(f"cohort sizes do not follow {event.sampling} sampling")
    together = draws.T.astype(np.int64) @ draws
    if two_sided(together[np.triu_indices(num_clients, 1)], rounds, both) < alarm:
        faults.append("clients are drawn together too often or too rarely")
    pairs = rounds // 2
    repeated = (draws[: 2 * pairs : 2] & draws[1 : 2 * pairs : 2]).sum(axis=0)
    if two_sided(repeated, pairs, once**2) < alarm:
        faults.append("rounds depend on each other")
    return faults


def _sizes(sizes: np.ndarray, event: Event, num_clients: int) -> float:
    """The chi-square p-value of the sizes; sizes with few expected draws share a cell."""
    from scipy.stats import binom, chisquare

    if event.sampling == "fixed":
        return float((sizes == event.size).all())
    expected = len(sizes) * binom.pmf(np.arange(num_clients + 1), num_clients, event.rate)
    observed = np.bincount(sizes, minlength=num_clients + 1)
    cells: list[list[float]] = [[0.0, 0.0]]
    for count, mean in zip(observed, expected, strict=True):
        if cells[-1][1] >= _LEAST_EXPECTED:
            cells.append([0.0, 0.0])
        cells[-1][0] += float(count)
        cells[-1][1] += float(mean)
    if len(cells) > 1 and cells[-1][1] < _LEAST_EXPECTED:
        count, mean = cells.pop()
        cells[-1] = [cells[-1][0] + count, cells[-1][1] + mean]
    if len(cells) == 1:
        return 1.0
    counts, means = np.array(cells).T
    return float(chisquare(counts, means * counts.sum() / means.sum()).pvalue)
