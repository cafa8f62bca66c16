"""Poisson regression for every group: dense quadrature twins, the face, dispersion, coverage."""

import csv
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special, stats

from fedprior.regression.face.counts import deviances, dispersion_of
from fedprior.regression.face.holdout import compare
from fedprior.regression.face.personal import PersonalPoisson
from fedprior.regression.face.specification import Specification
from fedprior.regression.logistic import fit_poisson, local_poisson, pooled_poisson
from fedprior.regression.logistic.rate import tilted
from fedprior.regression.result import gaussian_population
from fedprior.regression.rows import GroupedRows

ROOT = Path(__file__).resolve().parents[2]
GRID = np.linspace(-7, 7, 241)


def drawn(seed=0, num_groups=60, mean=(-0.5,), covariance=((0.5,),), fixed=0.3, dispersion=None):
    """Rows of counts with exposures, and the true theta; `dispersion` beyond Poisson's."""
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(num_groups), draws.integers(2, 8, num_groups))
    x = np.column_stack([np.ones(len(place)), draws.normal(size=(len(place), len(mean) - 1))])
    beside, exposure = draws.normal(size=(len(place), 1)), draws.uniform(0.5, 3, len(place))
    theta = draws.multivariate_normal(mean, covariance, num_groups)
    rate = exposure * np.exp((x * theta[place]).sum(axis=1) + fixed * beside[:, 0])
    if dispersion is not None:
        rate = rate * draws.gamma(1 / dispersion, dispersion, len(rate))
    y = draws.poisson(rate)
    order = draws.permutation(len(y))
    rows = GroupedRows.of(
        x[order], y[order], place[order], num_groups, fixed=beside[order],
        offset=np.log(exposure[order]),
    )  # fmt: skip
    return rows, theta


def dense(rows, mean, covariance, fixed):
    """Log p(y) by sums over a fine grid of z, theta = mean + root z, one group after another."""
    width = len(mean)
    z = np.stack(np.meshgrid(*[GRID] * width, indexing="ij"), axis=-1).reshape(-1, width)
    log_weight = stats.norm.logpdf(z).sum(axis=1) + width * np.log(GRID[1] - GRID[0])
    theta = mean + z @ np.linalg.cholesky(covariance).T
    total = 0.0
    for place in range(rows.num_groups):
        own = slice(rows.start[place], rows.start[place + 1])
        shift = rows.fixed[own] @ fixed + rows.offset[own]
        log_rate = theta @ rows.x[own].T + shift
        each = rows.y[own] * log_rate - np.exp(log_rate) - special.gammaln(rows.y[own] + 1)
        total += special.logsumexp(log_weight + each.sum(axis=1))
    return total


@pytest.mark.parametrize(
    ("a", "variance", "y"),
    [(0, 1, 0), (2, 4, 0), (1, 1, 3), (-5, 4, 2), (0, 4, 20), (0, 1e-6, 3), (10, 0.01, 3e4)],
)
def test_the_average_of_the_likelihood_and_its_slopes(a, variance, y):
    grid = np.linspace(-14, 14, 100_001)

    def log_average(center):
        b = center + np.sqrt(variance) * grid
        return special.logsumexp(y * b - np.exp(b) + stats.norm.logpdf(grid)) + np.log(2.8e-4)

    found = tilted(np.array([float(a)]), np.array([float(variance)]), np.array([float(y)]))
    step = 1e-3 * max(np.sqrt(variance), 0.1)
    below, here, above = (log_average(a + k * step) for k in (-1, 0, 1))
    assert found.log[0] == pytest.approx(here, abs=3e-5, rel=1e-9)
    assert found.pull[0] == pytest.approx((above - below) / (2 * step), abs=3e-5, rel=1e-3)
    curvature = (2 * here - above - below) / step**2
    assert found.weight[0] == pytest.approx(curvature, abs=1e-4, rel=1e-2)


@pytest.mark.parametrize(
    ("mean", "covariance"),
    [((-0.5,), ((0.5,),)), ((-1.5, 0.4), ((1.2, 0.3), (0.3, 0.8)))],
)
def test_quadrature_is_the_dense_integral(mean, covariance):
    rows, _ = drawn(mean=mean, covariance=covariance, num_groups=30)
    fixed = np.array([0.3])
    prior = gaussian_population(np.array(mean), np.array(covariance), fixed)
    wanted = dense(rows, np.array(mean), np.array(covariance), fixed)
    found = {
        name: fit_poisson(rows, prior=prior, approximation=name).log_likelihood
        for name in ("quadrature", "expectation-propagation", "variational", "laplace")
    }
    assert found["quadrature"] == pytest.approx(wanted, abs=5e-3)
    assert found["expectation-propagation"] == pytest.approx(wanted, abs=0.02 * 30)
    assert found["variational"] < wanted
    assert found["laplace"] == pytest.approx(wanted, abs=0.05 * 30)


def test_random_intercepts_maximize_the_dense_likelihood():
    rows, _ = drawn()
    fit = fit_poisson(rows)

    def loss(point):
        mean, log_scale, beta = point
        return -dense(rows, np.array([mean]), np.exp([[2 * log_scale]]), np.array([beta]))

    twin = optimize.minimize(loss, [0.0, -0.5, 0.0], method="BFGS")
    assert fit.log_likelihood == pytest.approx(-twin.fun, abs=1e-4)
    assert fit.population.mean[0] == pytest.approx(twin.x[0], abs=1e-3)
    assert fit.population.covariance[0, 0] == pytest.approx(np.exp(2 * twin.x[1]), rel=2e-3)
    assert fit.population.fixed[0] == pytest.approx(twin.x[2], abs=1e-3)
    curvature = optimize.approx_fprime(
        twin.x, lambda point: optimize.approx_fprime(point, loss, 1e-4), 1e-4
    )
    errors = np.sqrt(np.diag(np.linalg.inv((curvature + curvature.T) / 2)))
    assert fit.population.mean_errors[0] == pytest.approx(errors[0], rel=0.02)
    assert fit.population.fixed_errors[0] == pytest.approx(errors[2], rel=0.02)
    deviation = np.sqrt(fit.population.covariance[0, 0])
    found = fit.population.covariance_errors[0, 0] / (2 * deviation**2)  # of the log sd
    assert found == pytest.approx(errors[1], rel=0.05)


def test_em_ends_where_newton_does():
    rows, _ = drawn(mean=(0.0, 0.3), covariance=((0.5, 0.1), (0.1, 0.3)))
    first = fit_poisson(rows, covariance="full")
    second = fit_poisson(rows, covariance="full", method="em")
    assert second.log_likelihood == pytest.approx(first.log_likelihood, abs=1e-3)
    np.testing.assert_allclose(second.population.mean, first.population.mean, atol=5e-3)


def test_the_unit_of_exposure_moves_the_intercept_alone():
    rows, _ = drawn()
    first = fit_poisson(rows)
    more = GroupedRows(
        x=rows.x, fixed=rows.fixed, y=rows.y, start=rows.start, offset=rows.offset + np.log(1e6)
    )
    second = fit_poisson(more)
    np.testing.assert_allclose(second.theta, first.theta - np.log(1e6), atol=1e-5)
    np.testing.assert_allclose(second.errors, first.errors, rtol=1e-4)
    assert second.log_likelihood == pytest.approx(first.log_likelihood, abs=1e-6)
    np.testing.assert_allclose(local_poisson(more), local_poisson(rows) - np.log(1e6), atol=1e-6)


@pytest.mark.parametrize("log_rate", [12.0, -2.5])
def test_large_and_rare_counts(log_rate):
    rows, _ = drawn(mean=(log_rate,), num_groups=150)
    fit = fit_poisson(rows)
    assert fit.converged
    assert fit.population.mean[0] == pytest.approx(log_rate, abs=5 * fit.population.mean_errors[0])
    assert 0.1 < fit.population.covariance[0, 0] < 1.5


def test_pooled_counts_are_the_maximum_of_their_likelihood():
    rows, _ = drawn()
    found = pooled_poisson(rows)
    columns = np.column_stack([rows.x, rows.fixed])
    expected = np.exp(columns @ found.coefficients + rows.offset)
    np.testing.assert_allclose(columns.T @ (rows.y - expected), 0, atol=1e-6)


def test_features_that_tell_where_counts_are_0():
    rows, _ = drawn()
    flag = (rows.y > 0) * 1.0
    told = GroupedRows(
        x=rows.x, fixed=flag[:, None], y=rows.y, start=rows.start, offset=rows.offset
    )
    fit = fit_poisson(told)
    assert np.isfinite(fit.theta).all()
    assert any("tell where counts are 0" in note for note in fit.notes)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"y": -1.0}, "y must be a count, a whole number of at least 0, got -1"),
        ({"y": 0.5}, "y must be a count, a whole number of at least 0, got 0.5"),
    ],
)
def test_what_is_no_count(change, wanted):
    rows, _ = drawn()
    y = rows.y.copy()
    y[3] = change["y"]
    bad = GroupedRows(x=rows.x, fixed=rows.fixed, y=y, start=rows.start, offset=rows.offset)
    with pytest.raises(ValueError, match=wanted):
        fit_poisson(bad)


def test_no_events_and_too_many_coefficients():
    rows, _ = drawn()
    none = GroupedRows(x=rows.x, fixed=rows.fixed, y=0 * rows.y, start=rows.start)
    with pytest.raises(ValueError, match="y must be above 0 in some row, got 0"):
        fit_poisson(none)
    wide, _ = drawn(mean=(0.0,) * 4, covariance=np.eye(4) / 4)
    with pytest.raises(ValueError, match="another one than quadrature with more than 3"):
        fit_poisson(wide, approximation="quadrature")
    assert "expectation propagation" in fit_poisson(wide).notes[0]


# The face.


def table(seed=1, num_groups=50):
    rows, theta = drawn(seed, num_groups, mean=(0.2, 0.4), covariance=((0.4, 0), (0, 0.1)))
    frame = pd.DataFrame({"price": rows.x[:, 1], "promo": rows.fixed[:, 0]})
    labels = np.array([f"shop {k}" for k in range(num_groups)])[rows.place]
    return frame, rows.y, labels, np.exp(rows.offset), rows, theta


def test_the_face_is_the_fit():
    frame, y, labels, exposure, rows, _ = table()
    model = PersonalPoisson(fixed="promo", standardize=False, covariance="full")
    model.fit(frame, y, labels, exposure=exposure)
    fit = fit_poisson(rows, covariance="full")
    order = np.argsort([f"shop {k}" for k in range(50)])
    np.testing.assert_allclose(model.theta_, fit.theta[order], atol=1e-5)
    assert model.log_likelihood_ == pytest.approx(fit.log_likelihood, abs=1e-5)
    assert model.coefficient_names_ == ["intercept", "price"]
    assert model.population_.mean_errors is not None
    lower, upper = model.interval()
    assert ((lower < model.theta_) & (model.theta_ < upper)).all()
    assert {"intercept", "intercept_lower", "price_error"} <= set(model.to_frame().columns)
    assert 0 < model.share_between_ < 1


def test_predictions_are_exposure_times_averaged_rates():
    frame, y, labels, exposure, _, _ = table()
    model = PersonalPoisson(fixed="promo").fit(frame, y, labels, exposure=exposure)
    asked = frame[:2]
    once = model.predict(asked, groups=[labels[0], "nowhere"])
    np.testing.assert_allclose(
        model.predict(asked, groups=[labels[0], "nowhere"], exposure=[2.0, 3.0]), once * [2, 3]
    )
    row = np.array([1.0, frame["price"][1]])
    population = model.population_
    log_rate = row @ population.mean + frame["promo"][1] * population.fixed[0]
    variance = row @ population.covariance @ row
    assert once[1] == pytest.approx(np.exp(log_rate + variance / 2))
    assert 0 < model.score(frame, y, labels, exposure=exposure) < 1
    total = model.predict(frame, labels, exposure=exposure).sum()
    assert total == pytest.approx(y.sum(), rel=0.03)


def test_held_out_counts_are_compared_by_deviance():
    frame, y, labels, exposure, rows, _ = table(num_groups=200)
    model = PersonalPoisson(fixed="promo").fit(frame, y, labels, exposure=exposure)
    held = model.held_out()
    assert held.metric == "deviance"
    assert held.personal < min(held.separate, held.pooled)
    same = compare(rows, Specification(owner="x", family="poisson", covariance="full"))
    assert same.metric == "deviance"
    peer = pytest.importorskip("sklearn.metrics").mean_poisson_deviance
    counts, expected = np.array([0.0, 2.0, 5.0]), np.array([0.5, 2.5, 3.0])
    assert deviances(counts, expected).mean() == pytest.approx(peer(counts, expected))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"y": (2, -1)}, "y must be a count, a whole number of at least 0, got -1. See row 3"),
        ({"y": (2, 1.5)}, "y must be a count, a whole number of at least 0, got 1.5. See row 3"),
        ({"exposure": (4, 0.0)}, "exposure must be above 0, got 0. See row 5"),
        ({"exposure": (4, -2.0)}, "exposure must be above 0, got -2. See row 5"),
        ({"exposure": (4, np.inf)}, "exposure must be finite, got inf"),
        ({"y": (slice(None), 0)}, "y must be above 0 in some row, got 0"),
    ],
)
def test_bad_counts_and_exposures(change, wanted):
    frame, y, labels, exposure, _, _ = table()
    columns = {"y": y.astype(float), "exposure": exposure}
    for name, (place, value) in change.items():
        columns[name][place] = value
    with pytest.raises(ValueError, match=wanted):
        PersonalPoisson().fit(frame, columns["y"], labels, exposure=columns["exposure"])


def test_missing_cells_are_dropped_and_counted_or_refused():
    frame, y, labels, exposure, _, _ = table()
    y, exposure = y.astype(float), exposure.copy()
    y[0], exposure[1] = np.nan, np.nan
    model = PersonalPoisson(fixed="promo").fit(frame, y, labels, exposure=exposure)
    assert model.num_dropped_ == 2
    assert "the exposure or the group is missing: 2" in model.notes_[0]
    with pytest.raises(ValueError, match="got 2"):
        PersonalPoisson(strict=True).fit(frame, y, labels, exposure=exposure)
    with pytest.raises(ValueError, match="of one length"):
        PersonalPoisson().fit(frame, y, labels, exposure=exposure[:-1])
    with pytest.raises(ValueError, match="exposure must be one number for 2 rows, got 3"):
        model.predict(frame[:2], labels[:2], exposure=[1, 2, 3])


def test_scores_of_counts_without_spread_and_missing_exposures():
    draws = np.random.default_rng(9)
    x, place = draws.normal(size=(60, 1)), np.repeat(np.arange(6), 10)
    model = PersonalPoisson().fit(x, draws.poisson(3.0, 60), place)
    assert model.score(x, np.full(60, 3.0), place) == 0.0
    for values in ({"exposure": np.where(np.arange(60) == 4, np.nan, 1.0)}, {"y": [-1.0] * 60}):
        asked = {"y": np.full(60, 3.0), **values}
        with pytest.raises(ValueError, match=r"got 'one in row 5'|y must be at least 0, got -1"):
            model.score(x, groups=place, **asked)
    with pytest.raises(ValueError, match="sample_weight must be of one length"):
        model.score(x, np.full(60, 3.0), place, sample_weight=[1.0])
    gaps = np.where(np.arange(60) == 4, np.nan, 1.0)
    with pytest.raises(ValueError, match=r"missing target, exposure, feature or group"):
        PersonalPoisson(strict=True).fit(x, draws.poisson(3.0, 60), place, exposure=gaps)


@pytest.mark.parametrize("seed", [2, 23, 30])
def test_a_variance_that_vanishes_does_not_spoil_the_errors(seed):
    """A search that ends just above the smallest variance: errors as if it were 0, and a note."""
    draws = np.random.default_rng(seed)
    place, x = np.repeat(np.arange(15), 4), np.tile(np.arange(1.0, 5), 15)
    y = draws.poisson(np.exp(0.8 + 0.5 * draws.normal(size=15)[place] - 0.4 * x))
    model = PersonalPoisson(covariance="diagonal").fit(x[:, None], y, place)
    assert np.sqrt(np.diag(model.population_.covariance)).min() < 0.01
    assert model.population_.mean_errors == pytest.approx([0.25, 0.1], rel=0.6)
    assert any("at its lower bound" in note for note in model.notes_)


def test_other_populations_are_refused():
    with pytest.raises(ValueError, match="population must be gaussian for counts, got 'mixture'"):
        Specification(owner="x", family="poisson", population="mixture")
    with pytest.raises(ValueError, match="method must be one of default, em, got 'paper'"):
        Specification(owner="x", family="poisson", method="paper")
    with pytest.raises(ValueError, match="criterion must be ml"):
        Specification(owner="x", family="poisson", criterion="reml")


def test_dispersion_beyond_poisson_is_noted():
    frame, y, labels, exposure, _, _ = table()
    plain = PersonalPoisson(fixed="promo").fit(frame, y, labels, exposure=exposure)
    assert plain.dispersion_.note is None
    rows, _ = drawn(1, 50, mean=(0.2, 0.4), covariance=((0.4, 0), (0, 0.1)), dispersion=0.8)
    wide = PersonalPoisson(fixed="promo").fit(frame, rows.y, labels, exposure=exposure)
    assert wide.dispersion_.ratio > 1.3
    assert any("vary more within groups than Poisson counts do" in note for note in wide.notes_)


def test_grouse_ticks_by_brood_maximize_the_dense_likelihood():
    """One grouping factor; the dense sum over each brood's intercept is the twin."""
    given = os.environ.get("FEDPRIOR_DATA")
    root = Path(given) if given else ROOT.parent / "shared" / "data"
    path = root / "groups" / "grouseticks.csv"
    if not path.is_file():
        pytest.skip("real data (grouseticks.csv): set FEDPRIOR_DATA, or put it in ../shared/data")
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    height = np.array([float(line["HEIGHT"]) for line in lines])
    height = (height - height.mean()) / height.std(ddof=1)
    frame = pd.DataFrame({"height": height, "year": [f"y{line['YEAR']}" for line in lines]})
    ticks = np.array([float(line["TICKS"]) for line in lines])
    broods = [line["BROOD"] for line in lines]
    model = PersonalPoisson(fixed=["height", "year"]).fit(frame, ticks, broods)
    rows, population = model.analysis_.rows, model.population_
    assert rows.offset is None

    def loss(point):
        given = GroupedRows(
            x=rows.x, fixed=rows.fixed, y=rows.y, start=rows.start, offset=0 * rows.y
        )
        return -dense(given, point[:1], np.exp([[2 * point[1]]]), point[2:])

    at = np.array([population.mean[0], np.log(population.covariance[0, 0]) / 2, *population.fixed])
    assert -loss(at) == pytest.approx(model.log_likelihood_, abs=5e-3)
    slope = optimize.approx_fprime(at, loss, 1e-5)
    assert np.abs(slope).max() < 0.05
    assert model.dispersion_.ratio == pytest.approx(2.2, abs=0.2)


def dispersion_alarms(runs, log_rate, seed):
    """How often the note on dispersion appears where counts are Poisson."""
    alarms = 0
    for run in range(runs):
        rows, _ = drawn(seed + run, 80, mean=(log_rate,))
        fit = fit_poisson(rows, approximation="expectation-propagation", tolerance=1e-5)
        alarms += dispersion_of(rows, fit).note is not None
    return alarms


@pytest.mark.evidence
@pytest.mark.parametrize("log_rate", [-3.0, -1.5, 0.0, 2.0])
def test_the_note_on_dispersion_is_rare_where_counts_are_poisson(log_rate):
    """FALSE_ALARM = 1e-6: of 1,000 fits at most 17 notes, if their chance is 0.5%."""
    FALSE_ALARM = 1e-6
    runs = 1000
    assert dispersion_alarms(runs, log_rate, 1000) <= stats.binom.isf(FALSE_ALARM, runs, 0.005)


def coverage(runs, seed, num_groups=60):
    """Shares of intervals that hold: theta, the population's mean, the fixed coefficient."""
    held = np.zeros(3)
    z = stats.norm.isf(0.025)
    for run in range(runs):
        rows, theta = drawn(seed + run, num_groups)
        fit = fit_poisson(rows, tolerance=1e-6)
        population = fit.population
        held += [
            (np.abs(fit.theta - theta) < z * fit.errors).mean(),
            abs(population.mean[0] + 0.5) < z * population.mean_errors[0],
            abs(population.fixed[0] - 0.3) < z * population.fixed_errors[0],
        ]
    return held / runs


@pytest.mark.evidence
def test_intervals_cover():
    """95% within 4.9 binomial errors (FALSE_ALARM = 1e-6) and 2 points of approximation."""
    FALSE_ALARM = 1e-6
    runs = 600
    reach = stats.norm.isf(FALSE_ALARM / 6) * np.sqrt(0.95 * 0.05 / runs) + 0.02
    assert (np.abs(coverage(runs, 5000) - 0.95) < reach).all()
