"""Populations of other shapes for every family: mixtures, intervals, and the check of shape."""

import numpy as np
import pytest
from scipy import stats

from fedprior.estimation.conjugate.estimate import estimate_events, estimate_rates
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.events import GroupEvents
from fedprior.estimation.families.binomial import BINOMIAL
from fedprior.estimation.families.poisson import POISSON
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.nonparametric.atoms import Atoms, above, quantiles, responsibilities
from fedprior.estimation.nonparametric.counts import CountRows
from fedprior.estimation.nonparametric.normal import normal_rows
from fedprior.estimation.shapes import SHAPES
from fedprior.estimation.shapes.lack_of_fit import chance_of_shape, shape_warning
from fedprior.estimation.shapes.mixtures import fit_scale_mixture, fit_spike_and_slab
from fedprior.estimation.statistics import Counts, Events, Means
from fedprior.estimation.table import GroupMeans, GroupRates

MIXTURES = ("scale-mixture", "spike-and-slab")
MIXED = Atoms(
    atoms=np.array([0.3, 0.3, 0.5]),
    weights=np.array([0.5, 0.3, 0.2]),
    spread=np.array([0.02, 0.15, 0.0]),
)


def studies(draws, theta, variance=1.0):
    variance = np.broadcast_to(variance, len(theta)).astype(float)
    mean = theta + np.sqrt(variance) * draws.standard_normal(len(theta))
    return Means(n=np.ones(len(theta), int), mean=mean, variance=variance)


def sparse(draws, m):
    return np.where(draws.random(m) < 0.1, draws.normal(0, 4, m), 0.0)


def warned(found):
    return [note for note in found.notes if "does not have the shape" in note]


def twins():
    """Posterior cdfs of a row under MIXED by brute force, and the rows."""
    normal = normal_rows(np.array([0.1, 0.45]), np.array([0.02, 0.1]))
    n, z = np.array([12.0, 5.0]), np.array([2.0, 4.0])
    trials = CountRows(n=n, z=z, count=np.ones(2), family=BINOMIAL)
    events = CountRows(n=n / 4, z=z, count=np.ones(2), family=POISSON)

    def of_normal(row, j):
        own, prior = normal.variance[row], MIXED.spread[j] ** 2
        mean = (normal.value[row] * prior + MIXED.atoms[j] * own) / (prior + own)
        return stats.norm(mean, np.sqrt(own * prior / (own + prior)))

    def of_trials(row, j):
        m = MIXED.atoms[j]
        size = m * (1 - m) / MIXED.spread[j] ** 2 - 1
        return stats.beta(m * size + z[row], (1 - m) * size + n[row] - z[row])

    def of_events(row, j):
        m = MIXED.atoms[j]
        size = m / MIXED.spread[j] ** 2
        return stats.gamma(m * size + z[row], scale=1 / (size + n[row] / 4))

    return [(normal, of_normal), (trials, of_trials), (events, of_events)]


@pytest.mark.parametrize("number", range(3), ids=["normal", "binomial", "poisson"])
def test_quantiles_and_tails_are_those_of_the_mixture_of_posteriors(number):
    rows, law = twins()[number]
    share = responsibilities(rows, MIXED)

    def below(row, at):
        smooth = [share[row, j] * law(row, j).cdf(at) for j in range(2)]
        return sum(smooth) + share[row, 2] * (at >= 0.5)

    for level in (0.025, 0.3, 0.9):
        found = quantiles(rows, MIXED, level)
        for row in range(2):
            assert below(row, found[row] - 1e-5) <= level + 1e-4
            assert below(row, found[row] + 1e-5) >= level - 1e-4
    chance = above(rows, MIXED, 0.35)
    assert chance == pytest.approx([1 - below(row, 0.35) for row in range(2)], abs=1e-6)


def test_a_quantile_on_an_atom_is_that_atom():
    rows = normal_rows(np.array([0.01]), np.array([1.0]))
    spike = Atoms(atoms=np.zeros(2), weights=np.array([0.9, 0.1]), spread=np.array([0.0, 1.0]))
    ends = [quantiles(rows, spike, level)[0] for level in (0.1, 0.9)]
    assert ends == pytest.approx([0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("fit", [fit_scale_mixture, fit_spike_and_slab])
def test_mixtures_find_a_spike_and_its_slab(fit):
    draws = np.random.default_rng(0)
    theta = sparse(draws, 4000)
    rows = normal_rows(theta + draws.standard_normal(4000), np.ones(4000))
    found = fit(rows)
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights[found.spread < 0.3].sum() == pytest.approx(0.9, abs=0.05)
    assert found.variance == pytest.approx(1.6, rel=0.25)


def test_spike_and_slab_names_its_parts():
    draws = np.random.default_rng(1)
    found = estimate_means(studies(draws, 5 + sparse(draws, 3000)), population="spike-and-slab")
    parts = found.population.parameters
    assert parts["spike"] == pytest.approx(5, abs=0.1)
    assert parts["spike_share"] == pytest.approx(0.9, abs=0.05)
    assert parts["slab_scale"] == pytest.approx(4, rel=0.25)
    assert found.population.member == "gaussian"
    points = np.linspace(-10, 20, 4001)
    assert np.trapezoid(found.population.density(points), points) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_of_means_gain_and_cover(name):
    """Coverage over 3,000 groups has a standard error of 0.4 points: 2 would be seen."""
    draws = np.random.default_rng(2)
    theta = sparse(draws, 3000)
    data = studies(draws, theta)
    found, default = estimate_means(data, population=name, above=1.0), estimate_means(data)
    error, plain = (np.mean((each.personal - theta) ** 2) for each in (found, default))
    assert error < 0.7 * plain
    assert np.mean((found.lower <= theta) & (theta <= found.upper)) > 0.93
    assert np.mean(found.upper - found.lower) < 0.7 * np.mean(default.upper - default.lower)
    assert found.gain_over_raw == pytest.approx(100 * (1 - error), abs=5)
    assert np.mean(found.above) == pytest.approx(np.mean(theta > 1), abs=0.02)


@pytest.mark.parametrize("options", [{}, {"by_size": True}, {"intervals": "robust"}, "covariates"])
def test_chances_of_exceeding_a_threshold_are_those_of_the_mixture(options):
    """Not of the Gaussian fit, whose chances are near 1/2 for groups that the mixture pulls in."""
    draws = np.random.default_rng(8)
    theta = sparse(draws, 3000)
    data, wide = studies(draws, theta, draws.uniform(0.5, 1.5, 3000)), draws.normal(size=(3000, 1))
    if options == "covariates":
        options = {"covariates": Covariates(names=("wide",), values=wide)}
    found = estimate_means(data, population="scale-mixture", above=1.0, **options)
    chance = found.above
    for low, high in ((0.02, 0.2), (0.2, 0.6), (0.6, 0.95)):
        some = (low <= chance) & (chance < high)
        error = np.sqrt(np.mean(chance[some] * (1 - chance[some])) / some.sum())
        assert np.mean(theta[some] > 1) == pytest.approx(np.mean(chance[some]), abs=5 * error)
    assert np.mean(found.scale**2) < 0.7 * np.mean(estimate_means(data).scale ** 2)


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("kind", ["rates", "events"])
def test_mixtures_of_counts_cover_where_the_population_is_the_usual_one(kind, name):
    draws = np.random.default_rng(3)
    n, theta = draws.integers(2, 40, 2500), draws.beta(2, 8, 2500)
    if kind == "rates":
        data, estimate = Counts(n=n, successes=draws.binomial(n, theta)), estimate_rates
    else:
        data, estimate = (
            Events(exposure=n / 4, events=draws.poisson(n * theta / 4)),
            estimate_events,
        )
    found, default = estimate(data, population=name), estimate(data)
    covered = np.mean((found.lower <= theta) & (theta <= found.upper))
    assert covered == pytest.approx(0.95, abs=0.02)
    assert np.abs(found.personal - default.personal).mean() < 0.01
    assert found.population.mean == pytest.approx(default.population.mean, rel=0.05)


def test_the_unit_of_exposure_does_not_matter():
    draws = np.random.default_rng(4)
    exposure = draws.uniform(0.5, 5, 300)
    happened = draws.poisson(exposure * np.where(draws.random(300) < 0.8, 0.5, 6.0))
    for name in MIXTURES:
        years, days = (
            estimate_events(Events(exposure=unit * exposure, events=happened), population=name)
            for unit in (1.0, 365.0)
        )
        np.testing.assert_allclose(years.personal, 365 * days.personal, rtol=5e-3)
        np.testing.assert_allclose(years.upper, 365 * days.upper, rtol=2e-2)


@pytest.mark.parametrize("name", SHAPES)
def test_groups_without_data_get_the_population(name):
    draws = np.random.default_rng(5)
    n = np.append(draws.integers(2, 20, 200), 0)
    counts = Counts(n=n, successes=draws.binomial(n, 0.3))
    found = estimate_rates(counts, population=name)
    assert found.weight[-1] == 0
    assert found.personal[-1] == pytest.approx(found.population.mean, abs=1e-6)
    mean = np.append(draws.normal(size=200), np.nan)
    within = np.append(draws.chisquare(n[:-1]), 0.0)
    found = estimate_means(Means(n=n, mean=mean, within=within), population=name)
    assert found.personal[-1] == pytest.approx(found.population.mean, abs=1e-6)
    assert np.isfinite(found.upper).all()


@pytest.mark.parametrize("name", SHAPES)
def test_rows_that_stand_for_several_groups_are_those_groups(name):
    draws = np.random.default_rng(6)
    n, count = draws.integers(5, 9, 60), draws.integers(1, 5, 60)
    won = draws.binomial(n, draws.beta(1, 3, 60))
    once = estimate_rates(Counts(n=n, successes=won, count=count), population=name)
    again = np.repeat(np.arange(60), count)
    each = estimate_rates(Counts(n=n[again], successes=won[again]), population=name)
    np.testing.assert_allclose(once.personal[again], each.personal, rtol=1e-6)
    np.testing.assert_allclose(once.upper[again], each.upper, rtol=1e-6)


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("case", ["few", "constant", "ends", "huge", "precise"])
def test_odd_counts_give_finite_answers(name, case):
    n, z = {
        "few": ([5, 8], [1, 7]),
        "constant": ([5, 8, 9], [0, 0, 0]),
        "ends": ([1, 1, 2, 3], [0, 1, 2, 0]),
        "huge": ([10**7, 10**7, 3], [10**6, 5 * 10**6, 1]),
        "precise": ([10**9] * 4, [10**8, 10**8 + 10**4, 10**8 - 10**4, 2 * 10**8]),
    }[case]
    found = estimate_rates(Counts(n=np.array(n), successes=np.array(z)), population=name)
    for each in (found.personal, found.lower, found.upper):
        assert ((each >= 0) & (each <= 1)).all()
    assert (found.lower <= found.upper).all()


def test_estimators_take_the_new_populations():
    draws = np.random.default_rng(7)
    group = np.repeat(np.arange(40), 5)
    values = np.repeat(sparse(draws, 40), 5) + draws.standard_normal(200)
    for name in MIXTURES:
        model = GroupMeans(population=name).fit(values, group)
        assert model.population_.kind == name
        lower, upper = model.interval([999])
        assert lower[0] < upper[0]
        won = draws.binomial(9, 0.3, 40)
        assert GroupRates(population=name).fit_counts(won, np.full(40, 9)).population_.kind == name
        assert GroupEvents(population=name).fit(won).population_.kind == name


def test_by_size_and_covariates_apply_to_standardized_thetas():
    draws = np.random.default_rng(8)
    n = draws.integers(2, 50, 400)
    theta = np.log(n) + sparse(draws, 400)
    data = Means(
        n=n, mean=theta + draws.standard_normal(400) / np.sqrt(n), within=draws.chisquare(n - 1)
    )
    found = estimate_means(data, by_size=True, population="scale-mixture")
    plain = estimate_means(data, by_size=True)
    assert found.population.kind == "scale-mixture"
    assert found.population.atoms is None
    assert np.mean((found.lower <= theta) & (theta <= found.upper)) > 0.92
    error, usual = (np.mean((each.personal - theta) ** 2) for each in (found, plain))
    assert error < usual


def test_robust_intervals_stay_robust_with_mixtures():
    draws = np.random.default_rng(9)
    data = studies(draws, sparse(draws, 400))
    found = estimate_means(data, population="scale-mixture", intervals="robust")
    usual = estimate_means(data, intervals="robust")
    assert (found.upper >= usual.upper - 1e-12).all()


def test_several_coordinates_are_refused():
    flat = Means(n=np.full(60, 4), mean=np.eye(60)[:, :2] * 9, within=np.ones(60))
    with pytest.raises(ValueError, match="population='scale-mixture' needs values of one"):
        estimate_means(flat, population="scale-mixture")


def test_seven_spikes_are_told_with_a_population_to_try():
    draws = np.random.default_rng(10)
    found = estimate_means(studies(draws, draws.integers(0, 7, 1000).astype(float), 1 / 9))
    (note,) = warned(found)
    assert "population='nonparametric' (--population nonparametric on the command line)" in note
    assert "shape of a Gaussian" in note
    n = np.full(1000, 200)
    rate = 0.2 + 0.1 * draws.integers(0, 7, 1000)
    assert warned(estimate_rates(Counts(n=n, successes=draws.binomial(n, rate))))
    exposure = np.full(1000, 30.0)
    happened = draws.poisson(exposure * (10 + 5 * draws.integers(0, 7, 1000)))
    (note,) = warned(estimate_events(Events(exposure=exposure, events=happened)))
    assert "shape of a Gamma" in note


def test_heavy_tails_point_to_a_scale_mixture():
    draws = np.random.default_rng(11)
    (note,) = warned(estimate_means(studies(draws, draws.standard_t(3, 2000))))
    assert "population='scale-mixture'" in note


def test_no_word_on_shape_where_it_is_the_usual_one():
    """Each at p < 0.02: 15 data sets raise four alarms with a probability of 2e-4."""
    alarms = 0
    for seed in range(5):
        draws = np.random.default_rng([seed, 12])
        alarms += bool(warned(estimate_means(studies(draws, draws.normal(size=800)))))
        n = draws.integers(2, 50, 800)
        counts = Counts(n=n, successes=draws.binomial(n, draws.beta(2, 8, 800)))
        alarms += bool(warned(estimate_rates(counts)))
        exposure = draws.uniform(1, 10, 800)
        happened = draws.poisson(exposure * draws.gamma(2, 1, 800))
        alarms += bool(warned(estimate_events(Events(exposure=exposure, events=happened))))
    assert alarms <= 3


def test_the_check_is_silent_where_it_cannot_or_need_not_speak():
    draws = np.random.default_rng(13)
    spikes = studies(draws, draws.integers(0, 7, 1000).astype(float), 1 / 9)
    few = Means(n=spikes.n[:99], mean=spikes.mean[:99], variance=spikes.variance[:99])
    assert not warned(estimate_means(few))
    for options in (
        {"population": "nonparametric"},
        {"population": "auto"},
        {"theta_variance": 4.0},
        {"method": "paper"},
    ):
        assert not warned(estimate_means(spikes, **options))
    n = np.full(500, 50)
    counts = Counts(n=n, successes=draws.binomial(n, draws.choice([0.1, 0.6], 500)))
    assert warned(estimate_rates(counts))
    for options in ({"prior": (1.0, 2.0)}, {"population": "point"}, {"method": "paper"}):
        assert not warned(estimate_rates(counts, **options))
    both = Means(n=np.full(200, 4), mean=draws.choice([-3.0, 3.0], (200, 2)), within=np.ones(200))
    assert not warned(estimate_means(both))


def test_unequal_noise_is_no_matter_of_shape():
    draws = np.random.default_rng(14)
    n = draws.integers(5, 30, 800)
    scale = np.exp(draws.normal(0, 0.8, 800))
    mean = draws.normal(size=800) + scale / np.sqrt(n) * draws.standard_normal(800)
    data = Means(n=n, mean=mean, within=scale**2 * draws.chisquare(n - 1))
    for noise in ("auto", "common"):
        assert not warned(estimate_means(data, noise=noise))


def test_rows_that_groups_share_count_in_the_check():
    draws = np.random.default_rng(15)
    n = np.full(3000, 60)
    won = draws.binomial(n, draws.choice([0.1, 0.6], 3000))
    every = estimate_rates(Counts(n=n, successes=won))
    distinct, count = np.unique(won, return_counts=True)
    once = estimate_rates(Counts(n=np.full(len(distinct), 60), successes=distinct, count=count))
    assert warned(every) == warned(once) != []


def test_a_population_without_spread_has_no_shape():
    rows = normal_rows(np.linspace(-1, 1, 200), np.ones(200))
    assert chance_of_shape(rows, 0.0, 0.0) == 1.0
    assert shape_warning(rows) == ""


@pytest.mark.parametrize("population", ["nonparametric", "scale-mixture"])
def test_robust_intervals_are_not_said_to_be_those_of_another_population(population):
    draws = np.random.default_rng(0)
    n = draws.integers(2, 40, 200)
    counts = Counts(n=n, successes=draws.binomial(n, draws.beta(2, 6, 200)))
    found = estimate_rates(counts, population=population, intervals="robust")
    assert not any("are those of the Beta population" in note for note in found.notes)
    mean = draws.normal(0, 1, 200) + draws.normal(0, 1, 200) / np.sqrt(n)
    means = Means(n=n, mean=mean, variance=1 / n)
    found = estimate_means(means, population=population, intervals="robust")
    assert not any("are those of the Gaussian population" in note for note in found.notes)
