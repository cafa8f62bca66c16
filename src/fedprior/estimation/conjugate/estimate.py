"""Personalized rates: every group's rate, estimated from its own and all other groups' data."""

from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate import answers
from fedprior.estimation.conjugate.answers import RateAnswer
from fedprior.estimation.conjugate.fit import by_likelihood
from fedprior.estimation.conjugate.likelihood import Tally, tally
from fedprior.estimation.conjugate.model import BetaModel, fit_model, known_model
from fedprior.estimation.conjugate.shapes import pick_rate_population
from fedprior.estimation.conjugate.size_test import size_warning
from fedprior.estimation.paper.rates import paper_answer
from fedprior.estimation.ranking import rank
from fedprior.estimation.result import Estimates, Ranks
from fedprior.estimation.statistics import Counts, Pairs, collapse

_OWNER = "estimate_rates"
_CHUNK = 1 << 20  # groups at a time


def estimate_rates(
    statistics: Counts,
    *,
    population: str = "beta",
    fit: str = "likelihood",
    method: str = "default",
    minus_one: bool = True,
    by_size: bool = False,
    prior: tuple[float, float] | None = None,
    level: float = 0.95,
    intervals: str = "default",
    above: float | None = None,
    ranks: bool = False,
) -> Estimates:
    """E[p_i | data] = w_i x_i + (1 - w_i) mu, w_i = n_i / (n_i + M), p_i ~ Beta(mu M, (1 - mu) M).

    x_i is the raw rate. (mu, M) maximize the beta-binomial likelihood, match its moments
    (`fit="moments"`, ERRATA D2), or are known (`prior=(alpha, beta)`). With fewer than 100 groups
    of at least two trials, the estimates average over the populations that fit the data. Intervals
    always do: they are equal-tailed quantiles of the posterior mixture of Betas, with coverage
    `level` on average over groups.

    `population` is `beta`, `nonparametric` (any shape; intervals are still those of the Beta fit),
    `point` (one common rate) or `auto` (the one that predicts held-out groups best; a note names
    it). `by_size=True` lets mu and M depend on log n. `intervals="robust"` gives intervals that
    hold for any shape of the population. `method="paper"` is the printed leave-one-out form (ERRATA
    11 to 14) with its `minus_one`. `above=T` adds P(p_i > T), and `ranks=True` adds ranks.

    >>> counts = Counts(n=np.full(4, 20), successes=np.array([2, 4, 5, 9]))
    >>> estimate_rates(counts, prior=(5, 15)).personal.tolist()
    [0.175, 0.225, 0.25, 0.35]
    """
    _check_options(population, fit, method, by_size, prior, level, intervals, above)
    pairs = collapse(statistics)
    data = _identified(pairs, needs_pairs=prior is None and population != "point")
    asked: dict[str, Any] = {"level": level, "above": above}
    if by_size or population == "point":
        find = answers.size_answer if by_size else answers.point_answer
        return _over_groups(find(pairs, data, **asked), statistics, pairs, level, ranks)
    model = known_model(*map(float, prior)) if prior else fit_model(data, fit=fit)
    answer = answers.beta_answer(model, pairs, data, **asked)
    if method == "paper":
        answer = paper_answer(answer, model, pairs, minus_one=minus_one)
    elif population != "beta":
        answer = _reshaped(answer, model, pairs, data, population)
    if intervals == "robust":
        answer = answers.robust_answer(answer, model, pairs, level=level)
    if prior is None:
        answer = answer.with_notes(_size_note(pairs, data, model), _constant_note(data))
    return _over_groups(answer, statistics, pairs, level, ranks)


def _check_options(
    population: str,
    fit: str,
    method: str,
    by_size: bool,
    prior: tuple[float, float] | None,
    level: float,
    intervals: str,
    above: float | None,
) -> None:
    check.choice(_OWNER, "population", population, ("beta", "nonparametric", "point", "auto"))
    check.choice(_OWNER, "fit", fit, ("likelihood", "moments"))
    check.choice(_OWNER, "method", method, ("default", "paper"))
    check.choice(_OWNER, "intervals", intervals, ("default", "robust"))
    check.require(0 < level < 1, _OWNER, "level", "in (0, 1)", level)
    if above is not None:
        check.require(0 <= above <= 1, _OWNER, "above", "a rate in [0, 1]", above)
    if prior is not None:
        check.require(len(prior) == 2, _OWNER, "prior", "(alpha, beta)", prior)
        check.positive(_OWNER, alpha=prior[0], beta=prior[1])
    special = {
        "prior": prior is not None,
        "by_size=True": by_size,
        'method="paper"': method == "paper",
        f"population={population!r}": population != "beta",
    }
    chosen = [name for name, is_set in special.items() if is_set]
    sentence = f"{' and '.join(chosen)} cannot be combined."
    check.expect(len(chosen) <= 1, _OWNER, sentence)
    set_fit = prior is None and not by_size and method == "default"
    set_fit = set_fit and population in ("beta", "auto")
    sentence = (
        f"fit={fit!r} has no effect with prior, by_size, method='paper' or another population than "
        "beta."
    )
    check.expect(set_fit or fit == "likelihood", _OWNER, sentence)
    alone = intervals == "robust" and (by_size or population == "point")
    sentence = "intervals='robust' is not available with by_size or population='point'."
    check.expect(not alone, _OWNER, sentence)


def _identified(pairs: Pairs, *, needs_pairs: bool) -> Tally:
    """The tally; raises where the data cannot identify what is to be estimated."""
    groups = int(pairs.count[pairs.n > 0].sum())
    remedy = "A population cannot be learned from one group; give prior=(alpha, beta)."
    least = 2 if needs_pairs else 1
    rule = f"at least {least}, with trials"
    check.require(groups >= least, _OWNER, "number of groups", rule, groups, remedy)
    if needs_pairs:
        remedy = (
            "With one trial per group, heterogeneity cannot be distinguished from chance: some "
            "groups need at least 2 trials, or give a known prior=(alpha, beta)."
        )
        most = int(pairs.n.max())
        rule = "above 1 for some group"
        check.require(most > 1, _OWNER, "number of trials", rule, most, remedy)
    return tally(pairs)


def _reshaped(
    answer: RateAnswer, model: BetaModel, pairs: Pairs, data: Tally, population: str
) -> RateAnswer:
    """The estimates under the requested population, or under the one that `auto` picks."""
    picked = population
    if population == "auto":
        picked, note = pick_rate_population(pairs)
        answer = answer.with_notes(note)
    if picked == "point":
        return answers.common_answer(answer, model, pairs, data)
    if picked == "nonparametric":
        return answers.nonparametric_answer(answer, pairs, data)
    return answer


def _size_note(pairs: Pairs, data: Tally, model: BetaModel) -> str | None:
    if min(data.total_successes, data.total_failures) == 0:
        return None
    likeliest = model.plug is not None and model.fitted_by == "likelihood"
    return size_warning(pairs, model.plug if likeliest and model.plug else by_likelihood(data))


def _constant_note(data: Tally) -> str | None:
    if min(data.total_successes, data.total_failures) > 0:
        return None
    which = "success" if data.total_successes == 0 else "failure"
    return f"No group had a {which}: how rare it is rests on the total number of trials alone."


def _over_groups(
    answer: RateAnswer, statistics: Counts, pairs: Pairs, level: float, ranks: bool
) -> Estimates:
    """Expand the table of pairs to the groups."""
    table = answer.table
    columns = {
        "raw": np.where(pairs.n > 0, pairs.successes / np.maximum(pairs.n, 1), np.nan),
        "personal": table.personal,
        "weight": table.weight,
        "scale": np.sqrt(table.variance),
        "lower": table.lower,
        "upper": table.upper,
    }
    if table.above is not None:
        columns["above"] = table.above
    rows: dict[str, Any] = _take(columns, pairs.place)
    return Estimates(
        n=np.asarray(statistics.n, np.int64),
        **rows,
        level=level,
        population=answer.population,
        gain_over_raw=answer.errors.gain_over_raw(),
        gain_over_pooled=answer.errors.gain_over_pooled(),
        ranks=_ranks(rows, statistics, level) if ranks else None,
        notes=answer.notes,
        count=statistics.count,
    )


def _ranks(rows: dict[str, Any], statistics: Counts, level: float) -> Ranks:
    return rank(rows["personal"], rows["scale"], level=level, count=statistics.count)


def _take(columns: dict[str, np.ndarray], place: np.ndarray) -> dict[str, np.ndarray]:
    """Each column of the table at every group's pair, in one block.

    Chunks of `place` are shared by all columns, so that the index is never widened to 64 bits
    whole.
    """
    block = np.empty((len(columns), len(place)))
    for start in range(0, len(place), _CHUNK):
        part = place[start : start + _CHUNK].astype(np.intp)
        for row, column in zip(block, columns.values(), strict=True):
            np.take(column, part, out=row[start : start + _CHUNK], mode="clip")
    return dict(zip(columns, block, strict=True))
