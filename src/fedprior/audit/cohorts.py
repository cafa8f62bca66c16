"""Conformance of a cohort: who is drawn is who the accountant thinks is drawn."""

from dataclasses import replace

import numpy as np

from fedprior.audit.bound import lower_limit, two_sided
from fedprior.audit.finding import Finding
from fedprior.core.protocols import Cohort
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Event, Relation, gaussian

_TESTS = 5  # statistical ones, each with its share of the false alarms
_LEAST_EXPECTED = 25  # draws in a cell of the chi-square test of sizes


def check_cohort(
    cohort: Cohort,
    *,
    num_clients: int,
    rounds: int,
    seed: int,
    confidence: float,
    delta: float,
    noise_multiplier: float = 1.0,
) -> Finding:
    """The draws of `rounds` rounds against the sampling that `cohort.amplify` claims.

    Each client's rate and the rate over all of them; the law of the sizes; each pair of clients in
    one round; one client in successive rounds (a cohort that deals out a shuffled list, or repeats
    itself, has the right rates and none of the amplification).
    """
    event: Event = cohort.amplify(gaussian(noise_multiplier), num_clients)
    draws = np.zeros((rounds, num_clients), bool)
    for round in range(rounds):
        draws[round, cohort.draw(seed, round, num_clients)] = True
    bound, faults = 0.0, []
    drawn = event.sampling != "everyone"
    if drawn:
        share = (1 - confidence) / (_TESTS + 1)
        faults = deviations(draws, event, alarm=share)
        if event.sampling == "poisson":
            rate = float(lower_limit(draws.sum(), draws.size, share))
            seen = replace(event, rate=max(rate, 1e-12), overflow=0.0)
            bound = epsilon([(seen, 1)], delta=delta)
    relation: Relation = "replace-one" if event.sampling == "fixed" else "add-remove"
    claim, detail = "everyone", "nothing to check"
    if drawn:
        claim = f"rate {event.rate:g}" if event.sampling == "poisson" else f"size {event.size}"
        claim += "" if event.amplified else ", hides nobody"
        detail = f"{rounds:,} cohorts of {num_clients} clients drawn as accounted for"
    return Finding(
        mechanism=f"{type(cohort).__name__}, {claim}",
        kind="conformance",
        claimed=epsilon([(event, 1)], delta=delta, relation=relation),
        lower_bound=bound,
        delta=delta,
        relation=relation,
        confidence=confidence if drawn else 1.0,
        detail=detail,
        faults=tuple(faults),
    )


def deviations(draws: np.ndarray, event: Event, *, alarm: float) -> list[str]:
    """How `draws` (rounds, num_clients) differ from the sampling of `event`, in words."""
    rounds, num_clients = draws.shape
    if event.sampling == "poisson":
        once, both = event.rate, event.rate**2
    else:
        once = event.size / num_clients
        both = once * (event.size - 1) / (num_clients - 1)
    found = []
    if two_sided(draws.sum(axis=0), rounds, once) < alarm:
        found.append("a client drawn at another rate than is accounted for")
    if event.sampling == "poisson" and two_sided(draws.sum(), draws.size, once) < alarm:
        found.append(f"clients drawn at rate {draws.mean():.4g} instead of {once:g}")
    if _sizes(draws.sum(axis=1), event, num_clients) < alarm:
        found.append(f"cohort sizes that are not those of {event.sampling} sampling")
    together = draws.T.astype(np.int64) @ draws
    if two_sided(together[np.triu_indices(num_clients, 1)], rounds, both) < alarm:
        found.append("clients drawn together too often or too rarely")
    pairs = rounds // 2
    again = (draws[: 2 * pairs : 2] & draws[1 : 2 * pairs : 2]).sum(axis=0)
    if two_sided(again, pairs, once**2) < alarm:
        found.append("rounds that depend on each other")
    return found


def _sizes(sizes: np.ndarray, event: Event, num_clients: int) -> float:
    """P(sizes so far from their law): chi-square, sizes of few expected draws taken together."""
    from scipy.stats import binom, chisquare

    if event.sampling == "fixed":
        return float((sizes == event.size).all())
    expected = len(sizes) * binom.pmf(np.arange(num_clients + 1), num_clients, event.rate)
    observed = np.bincount(sizes, minlength=num_clients + 1)
    cells: list[list[float]] = [[0.0, 0.0]]
    for seen, due in zip(observed, expected, strict=True):
        if cells[-1][1] >= _LEAST_EXPECTED:
            cells.append([0.0, 0.0])
        cells[-1][0] += float(seen)
        cells[-1][1] += float(due)
    if len(cells) > 1 and cells[-1][1] < _LEAST_EXPECTED:
        seen, due = cells.pop()
        cells[-1] = [cells[-1][0] + seen, cells[-1][1] + due]
    if len(cells) == 1:
        return 1.0
    seen_all, due_all = np.array(cells).T
    return float(chisquare(seen_all, due_all * seen_all.sum() / due_all.sum()).pvalue)
