"""Rows of a page: names, estimates with limits, weights, ranks; and the population beside them."""

from collections.abc import Sequence

import numpy as np

from fedprior.estimation.intervals import normal_score
from fedprior.estimation.page.answer import Summarized
from fedprior.estimation.result import FittedPopulation
from fedprior.pages.page import Curve, PageColumn, Rows

RANKED = 20_000  # groups up to which ranks are computed, and shown


def rows_of(
    answer: Summarized, names: Sequence[str], *, label: str, noun: str, ranked: bool = True
) -> Rows:
    """The rows of one table: name, size, raw, personal, weight, limits and what was asked for."""
    table = answer.table
    assert table is not None
    size = answer.column(answer.size_name)
    whole = bool((size == np.rint(size)).all())
    columns = {
        "name": PageColumn(label=label, values=list(names), style="text"),
        "n": PageColumn(label=answer.size_label, values=size, style="whole" if whole else "number"),
    }
    for name in ("raw", "personal", "lower", "upper"):
        near = "" if name == "personal" else "personal"
        columns[name] = PageColumn(
            label=name, values=answer.column(name), style=answer.style, near=near
        )
    if np.isfinite(answer.column("weight")).any():
        columns["weight"] = PageColumn(
            label="weight on own data", values=answer.column("weight"), style="percent", digits=3
        )
    if "above" in table:
        limit = (answer.summary.get("settings") or {}).get("--above", "the threshold")
        title = f"chance to exceed {limit}"
        columns["above"] = PageColumn(
            label=title, values=answer.column("above"), style="percent", digits=3
        )
    return Rows(columns=columns | (_ranks(answer) if ranked else {}), noun=noun)


def _ranks(answer: Summarized) -> dict[str, PageColumn]:
    """Ranks from the table, or from its intervals, if there are not too many groups."""
    table = answer.table
    assert table is not None
    if len(table["personal"]) > RANKED:
        return {}
    if "rank" in table:
        found = {name: answer.column(name) for name in ("rank", "rank_lower", "rank_upper")}
    else:
        from fedprior.estimation.ranking import rank

        reach = 2 * normal_score(answer.level)
        scale = (answer.column("upper") - answer.column("lower")) / reach
        if not np.isfinite(scale).all():
            return {}
        ranks = rank(answer.column("personal"), scale, level=answer.level)
        found = {"rank": ranks.mean, "rank_lower": ranks.lower, "rank_upper": ranks.upper}
    return {
        "rank": PageColumn(label="expected rank", values=found["rank"], digits=1),
        "rank_lower": PageColumn(label="rank, lower", values=found["rank_lower"], style="whole"),
        "rank_upper": PageColumn(label="rank, upper", values=found["rank_upper"], style="whole"),
    }


def density(answer: Summarized) -> Curve | None:
    """The population at values of theta: its density, or a stem for each atom."""
    population = answer.fitted()
    if population is None or population.mean.ndim:  # type: ignore[union-attr]
        return None
    if population.atoms is not None and population.spread is None:
        where, weight = np.ravel(population.atoms), np.ravel(population.weights)  # type: ignore[arg-type]
        if not len(where) or population.by_size:
            return None
        seen = weight > 1e-4
        stems = np.array([np.zeros(seen.sum()), weight[seen], np.zeros(seen.sum())]).T
        order = np.argsort(where[seen], kind="stable")
        at = np.repeat(where[seen][order], 3)
        return Curve(name="population", x=at, y=stems[order].ravel())
    points = _support(answer, population)
    if not np.isfinite(points).all():
        return None
    curve = population.density(points)
    if curve is None or not np.isfinite(curve).any():
        return None
    top = float(np.nanmax(np.where(np.isfinite(curve), curve, np.nan)))
    return Curve(name="population", x=points, y=np.where(np.isfinite(curve), curve, top))


def _support(answer: Summarized, population: FittedPopulation) -> np.ndarray:
    """Where the density is drawn: the estimates, and 3.5 standard deviations about the mean."""
    mean, reach = float(population.mean), 3.5 * population.heterogeneity
    low = min(mean - reach, float(np.nanmin(answer.column("personal"))))
    high = max(mean + reach, float(np.nanmax(answer.column("personal"))))
    if answer.kind == "rates":
        low, high = max(low, 1e-6), min(high, 1 - 1e-6)
    if answer.kind == "events":
        low = max(low, 1e-6 * mean)
    return np.linspace(low, high, 200)
