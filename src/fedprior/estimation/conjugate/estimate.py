"""Personalized rates of successes and of events, from the group's own data and all others'."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.estimation.choices import FITS, INTERVALS, METHODS, populations
from fedprior.estimation.conjugate import answers
from fedprior.estimation.conjugate.answers import RateAnswer
from fedprior.estimation.conjugate.dispersion import dispersion_note
from fedprior.estimation.conjugate.fit import by_likelihood
from fedprior.estimation.conjugate.likelihood import Tally, tally
from fedprior.estimation.conjugate.model import ConjugateModel, fit_model, known_model
from fedprior.estimation.conjugate.size_test import size_warning
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.families.binomial import BINOMIAL
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.families.poisson import POISSON
from fedprior.estimation.nonparametric.counts import count_rows
from fedprior.estimation.paper.rates import paper_answer
from fedprior.estimation.ranking import rank
from fedprior.estimation.result import Estimates, found_by
from fedprior.estimation.shapes.choice import pick
from fedprior.estimation.shapes.lack_of_fit import shape_warning
from fedprior.estimation.statistics import Counts, Events, Pairs, collapse, collapse_events

_CHUNK = 1 << 20  # groups at a time


def estimate_rates(
    statistics: Counts,
    *,
    population: str = "beta",
    fit: str = "likelihood",
    method: str = "default",
    minus_one: bool = True,
    by_size: bool = False,
    covariates: Covariates | None = None,
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

    `population` is `beta`, `scale-mixture` (Betas of one mean and many concentrations),
    `spike-and-slab` (one rate for some of the groups, a Beta for the others), `nonparametric` (any
    shape; intervals are still those of the Beta fit), `point` (one common rate) or `auto` (beta,
    unless another one clearly predicts groups that are left out better; a note names it).
    `by_size=True` lets mu and M depend on log n. `covariates`, one row per group, make the logit of
    mu a regression; a group without trials is predicted by it. `intervals="robust"` gives intervals
    that hold for any shape of the population. `method="paper"` is the printed leave-one-out form
    (ERRATA 11 to 14) with its `minus_one`. `above=T` adds P(p_i > T), and `ranks=True` adds ranks.

    >>> counts = Counts(n=np.full(4, 20), successes=np.array([2, 4, 5, 9]))
    >>> estimate_rates(counts, prior=(5, 15)).personal.tolist()
    [0.175, 0.225, 0.25, 0.35]
    """
    options = RateOptions.of(locals())
    options.check(BINOMIAL, len(statistics.n))
    pairs = collapse(statistics, merge=covariates is None)
    answer = _answer(pairs, options, minus_one=minus_one)
    return _over_groups(answer, statistics, pairs, level, ranks)


def estimate_events(
    statistics: Events,
    *,
    population: str = "gamma",
    fit: str = "likelihood",
    by_size: bool = False,
    covariates: Covariates | None = None,
    prior: tuple[float, float] | None = None,
    level: float = 0.95,
    intervals: str = "default",
    above: float | None = None,
    ranks: bool = False,
) -> Estimates:
    """E[theta_i | data] = w_i y_i / E_i + (1 - w_i) mu, w_i = E_i / (E_i + M).

    y_i ~ Poisson(E_i theta_i) events over the exposure E_i, theta_i ~ Gamma with shape mu M and
    rate M. All options are those of `estimate_rates`; `prior` is (shape, rate), and `by_size`
    lets the population depend on the log of the exposure; `covariates` make log mu a regression.
    Results do not depend on the unit of
    exposure, but for being rates per unit.

    >>> events = Events(exposure=np.array([10.0, 40.0]), events=np.array([2, 4]))
    >>> estimate_events(events, prior=(3, 20)).personal.round(4).tolist()
    [0.1667, 0.1167]
    """
    options = RateOptions.of(locals())
    options.check(POISSON, len(statistics.n))
    pairs = collapse_events(statistics, merge=covariates is None)
    answer = _answer(pairs, options)
    return _over_groups(answer, statistics, pairs, level, ranks)


@dataclass(frozen=True, kw_only=True)
class RateOptions:
    """What is asked of a population of rates; `check` says what goes together."""

    population: str
    fit: str = "likelihood"
    method: str = "default"
    by_size: bool = False
    covariates: Covariates | None = None
    prior: tuple[float, float] | None = None
    level: float = 0.95
    intervals: str = "default"
    above: float | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> "RateOptions":
        """The options among the arguments of an estimate, its `locals()`."""
        return cls(**{each.name: given[each.name] for each in fields(cls) if each.name in given})

    def check(self, family: CountFamily, num_rows: int) -> None:
        """Raise for options that are unknown or cannot be combined."""
        owner, usual, prior = family.owner, family.population, self.prior
        check.choice(owner, "population", self.population, populations(usual))
        check.choice(owner, "fit", self.fit, FITS)
        check.choice(owner, "method", self.method, METHODS)
        check.choice(owner, "intervals", self.intervals, INTERVALS)
        check.require(0 < self.level < 1, owner, "level", "in (0, 1)", self.level)
        if self.above is not None:
            rule = "a rate in [0, 1]" if family.top == 1 else "a rate of at least 0"
            check.require(0 <= self.above <= family.top, owner, "above", rule, self.above)
        if prior is not None:
            first, second = ("alpha", "beta") if family.top == 1 else ("shape", "rate")
            check.require(len(prior) == 2, owner, "prior", f"({first}, {second})", prior)
            check.positive(owner, **{first: prior[0], second: prior[1]})
        special = {
            "prior": prior is not None,
            "by_size=True": self.by_size,
            'method="paper"': self.method == "paper",
            f"population={self.population!r}": self.population != usual,
        }
        chosen = [name for name, is_set in special.items() if is_set]
        sentence = f"{' and '.join(chosen)} cannot be combined."
        check.expect(len(chosen) <= 1, owner, sentence)
        set_fit = prior is None and not self.by_size and self.method == "default"
        set_fit = set_fit and self.population in (usual, "auto")
        sentence = (
            f"fit={self.fit!r} has no effect with prior, by_size, method='paper' or another "
            f"population than {usual}."
        )
        check.expect(set_fit or self.fit == "likelihood", owner, sentence)
        alone = self.intervals == "robust" and (self.by_size or self.population == "point")
        sentence = "intervals='robust' is not available with by_size or population='point'."
        check.expect(not alone, owner, sentence)
        self._check_covariates(family, num_rows)

    def _check_covariates(self, family: CountFamily, num_rows: int) -> None:
        """There is a row of covariates for each group, and a population that can depend on them."""
        if self.covariates is None:
            return
        rows, owner = len(self.covariates.values), family.owner
        rule = f"one row for each of the {num_rows} groups"
        check.require(rows == num_rows, owner, "covariates", rule, rows)
        excluded = {
            "prior": self.prior is not None,
            "method='paper'": self.method == "paper",
            "fit='moments'": self.fit == "moments",
            "intervals='robust'": self.intervals == "robust",
            f"population={self.population!r}": self.population not in (family.population, "point"),
        }
        for name, given in excluded.items():
            check.expect(not given, owner, f"covariates cannot be combined with {name}.")


def _answer(pairs: Pairs, options: RateOptions, *, minus_one: bool = True) -> RateAnswer:
    """One row per pair, in units of `pairs.unit`."""
    family, prior, population = pairs.family, options.prior, options.population
    data = _identified(pairs, needs_pairs=prior is None and population != "point")
    above = None if options.above is None else options.above * pairs.unit
    asked: dict[str, Any] = {"level": options.level, "above": above}
    if options.by_size or options.covariates is not None:
        varying: dict[str, Any] = {"covariates": options.covariates, "by_size": options.by_size}
        varying["point"] = population == "point"
        return answers.regressed_answer(pairs, data, **varying, **asked)
    if population == "point":
        return answers.point_answer(pairs, data, **asked)
    if prior:
        model = known_model(family, *family.mean_and_size(prior[0], prior[1], pairs.unit))
    else:
        model = fit_model(data, fit=options.fit)
    answer = answers.conjugate_answer(model, pairs, data, **asked)
    if options.method == "paper":
        answer = paper_answer(answer, model, pairs, minus_one=minus_one)
    elif population != family.population:
        answer = _reshaped(answer, pairs, population, constant=data.is_constant, **asked)
    if options.intervals == "robust":
        answer = answers.robust_answer(answer, model, pairs, level=options.level)
    if prior is None:
        size, shape = _size_note(pairs, data, model), None
        usual = population == family.population and options.method == "default"
        if not size and usual and not data.is_constant:
            shape = shape_warning(count_rows(pairs))
        answer = answer.with_notes(size, shape, _constant_note(data))
        answer = replace(answer, checks=found_by(size=size, shape=shape))
    return answer


def _identified(pairs: Pairs, *, needs_pairs: bool) -> Tally:
    """The tally; raises where the data cannot identify what is to be estimated."""
    family = pairs.family
    trials = family.top == 1
    prior = "prior=(alpha, beta)" if trials else "prior=(shape, rate)"
    groups = int(pairs.count[pairs.n > 0].sum())
    remedy = f"A population cannot be learned from one group; give {prior}."
    least = 2 if needs_pairs else 1
    rule = f"at least {least}, with {'trials' if trials else 'an exposure above 0'}"
    check.require(groups >= least, family.owner, "number of groups", rule, groups, remedy)
    if needs_pairs and trials:
        remedy = (
            "With one trial per group, heterogeneity cannot be distinguished from chance: some "
            f"groups need at least 2 trials, or give a known {prior}."
        )
        most = int(pairs.n.max())
        rule = "above 1 for some group"
        check.require(most > 1, family.owner, "number of trials", rule, most, remedy)
    return tally(pairs)


def _reshaped(
    answer: RateAnswer,
    pairs: Pairs,
    population: str,
    *,
    constant: bool,
    level: float,
    above: float | None,
) -> RateAnswer:
    """The estimates under the requested population, or under the one that `auto` picks."""
    picked = population
    if population == "auto":
        picked, note = pick(count_rows(pairs))
        answer = answer.with_notes(note)
    if constant and picked not in ("nonparametric", pairs.family.population):
        plain = pairs.family.population.capitalize()
        note = f"All outcomes are equal, so that the population is {plain} instead of {picked}."
        return answer.with_notes(note)
    if picked == pairs.family.population:
        return answer
    return answers.shaped_answer(answer, pairs, picked, level=level, above=above)


def _size_note(pairs: Pairs, data: Tally, model: ConjugateModel) -> str | None:
    if data.is_constant:
        return None
    likeliest = model.plug is not None and model.fitted_by == "likelihood"
    return size_warning(pairs, model.plug if likeliest and model.plug else by_likelihood(data))


def _constant_note(data: Tally) -> str | None:
    if not data.is_constant:
        return None
    if data.family.top > 1:
        return "No group had an event: how rare they are rests on the total exposure alone."
    which = "success" if data.total_successes == 0 else "failure"
    return f"No group had a {which}: how rare it is rests on the total number of trials alone."


def _over_groups(
    answer: RateAnswer, statistics: Counts | Events, pairs: Pairs, level: float, ranks: bool
) -> Estimates:
    """Expand the table of pairs to the groups, with rates per unit of `n`."""
    happened = statistics.events if isinstance(statistics, Events) else statistics.successes
    note = dispersion_note(pairs.family, statistics.n, happened, statistics.repeats)
    table = answer.table.times(1 / pairs.unit)
    raw = pairs.successes / (pairs.divisor * pairs.unit)
    columns = {
        "raw": np.where(pairs.n > 0, raw, np.nan),
        "personal": table.personal,
        "weight": table.weight,
        "scale": np.sqrt(table.variance),
        "lower": table.lower,
        "upper": table.upper,
    }
    if table.above is not None:
        columns["above"] = table.above
    rows: dict[str, Any] = _take(columns, pairs.place)
    personal, scale = rows["personal"], rows["scale"]
    return Estimates(
        n=np.asarray(statistics.n),
        **rows,
        level=level,
        population=answer.population.per(pairs.unit),
        gain_over_raw=answer.errors.gain_over_raw(),
        gain_over_pooled=answer.errors.gain_over_pooled(),
        ranks=rank(personal, scale, level=level, count=statistics.count) if ranks else None,
        notes=(*answer.notes, *([note] if note else [])),
        checks=answer.checks | found_by(rows=note),
        count=statistics.count,
        size_name="exposure" if isinstance(statistics, Events) else "n",
    )


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
