"""What covariates are worth on real groups: half of them, or half of each, held out."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import xlogy

from fedprior.estimation import GroupEvents, GroupMeans, GroupRates

ROOT = Path(__file__).resolve().parents[2]


def columns(name, *wanted):
    """Columns of a real table, numbers where all cells are, or a skip."""
    given = os.environ.get("FEDPRIOR_DATA")
    path = (Path(given) if given else ROOT.parent / "shared" / "data") / name
    if not path.is_file():
        pytest.skip(f"real data ({name}): set FEDPRIOR_DATA, or put it in ../shared/data")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [np.array([row[column] for row in rows]) for column in wanted]


def radon():
    y, county, uranium = columns(
        "grouped_regression/radon_minnesota.csv", "log.radon", "county", "uranium"
    )
    return y.astype(float), county, uranium.astype(float)


@pytest.mark.filterwarnings("ignore::fedprior.estimation.EstimationWarning")
def test_uranium_predicts_radon_in_new_counties_and_in_old_ones():
    y, county, uranium = radon()
    place = np.unique(county, return_inverse=True)[1]
    errors = np.zeros((2, 2))  # new counties and old ones, with uranium and without
    for run in range(6):
        random = np.random.default_rng(run)
        rank = np.empty(len(y))
        order = random.permutation(len(y))
        rank[order] = np.arange(len(y))
        first = np.lexsort((rank, place))
        inside = np.empty(len(y), int)
        inside[first] = np.arange(len(y)) - np.searchsorted(place[first], place[first])
        splits = (
            (random.random(place.max() + 1) < 0.5)[place],
            inside < np.bincount(place)[place] // 2,
        )
        for row, kept in enumerate(splits):
            rest = ~kept
            with_it = GroupMeans().fit(y[kept], county[kept], covariates={"uranium": uranium[kept]})
            found = with_it.predict(county[rest], covariates={"uranium": uranium[rest]})
            plain = GroupMeans().fit(y[kept], county[kept]).predict(county[rest])
            errors[row] += [((y[rest] - each) ** 2).mean() for each in (found, plain)]
    gain = 1 - errors[:, 0] / errors[:, 1]
    assert gain[0] > 0.07  # measured 10.7%, of the squared error of single measurements
    assert gain[1] > 0.02  # measured 4.1%


def held_out(model, counted, size, group, covariates, *, runs=6):
    """The deviance of held-out groups from predicted rates: with covariates, and without."""
    errors = np.zeros(2)
    for run in range(runs):
        kept = np.random.default_rng(run).random(len(size)) < 0.5
        rest = ~kept

        def fitted(part, cells, kept=kept):
            more = {} if cells is None else {"covariates": cells}
            return model(counted[part], size[part], group[part], **more)

        with_it = fitted(kept, {name: each[kept] for name, each in covariates.items()})
        new = {name: each[rest] for name, each in covariates.items()}
        found = with_it.predict(group[rest], covariates=new)
        plain = fitted(kept, None).predict(group[rest])
        binary = model is rates
        errors += [deviance(counted[rest], size[rest], each, binary) for each in (found, plain)]
    return errors


def deviance(counted, size, rate, binary):
    """Twice the log-likelihood ratio of raw and predicted rates."""
    total = xlogy(counted, counted / (size * rate)).sum()
    if not binary:
        return 2 * (total - (counted - size * rate).sum())
    return 2 * (total + xlogy(size - counted, (size - counted) / (size * (1 - rate))).sum())


def rates(won, n, group, **more):
    return GroupRates.from_counts(won, n, group, **more)


def events(happened, exposure, group, **more):
    return GroupEvents().fit(happened, group, exposure=exposure, **more)


def test_the_period_predicts_disease_in_other_herds_and_periods():
    herd, sick, size, period = columns("groups/cbpp.csv", "herd", "incidence", "size", "period")
    cell = np.array([f"{a}/{b}" for a, b in zip(herd, period, strict=True)])
    sick, size = sick.astype(float), size.astype(float)
    with_it, plain = held_out(
        rates,
        sick,
        size,
        cell,
        {"period": np.array([f"p{each}" for each in period])},
    )
    assert with_it < 0.96 * plain  # measured 0.923


@pytest.mark.filterwarnings("ignore::fedprior.estimation.EstimationWarning")
def test_height_and_year_predict_ticks_of_new_broods():
    ticks, brood, height, year = columns(
        "groups/grouseticks.csv", "TICKS", "BROOD", "cHEIGHT", "YEAR"
    )
    names, first, place = np.unique(brood, return_index=True, return_inverse=True)
    total, chicks = np.bincount(place, ticks.astype(float)), np.bincount(place).astype(float)
    covariates = {"height": height.astype(float)[first], "year": year[first]}
    with_it, plain = held_out(
        events,
        total,
        chicks,
        names,
        covariates,
    )
    assert with_it < 0.8 * plain  # measured 0.679
