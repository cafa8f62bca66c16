"""Groups whose noise variances differ: the test for it, moderated variances, and when to refuse."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from fedprior import GroupMeans
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.gaussian.variances import fit_variances, noise_nodes
from fedprior.estimation.groups import EstimationWarning
from fedprior.estimation.statistics import Means, means_of

VALUES = {
    "normal": lambda r, size: r.standard_normal(size),
    "t5": lambda r, size: r.standard_t(5, size) / np.sqrt(5 / 3),
    "Laplace": lambda r, size: r.laplace(size=size) / np.sqrt(2),
    "uniform": lambda r, size: r.uniform(-np.sqrt(3), np.sqrt(3), size),
}


def drawn(num_groups, *, log_sd, between=0.3, low=3, high=30, values="normal", seed=0, shape=()):
    """Theta, the groups' standard deviations and their sums; log-normal, not inverse gamma."""
    draws = np.random.default_rng([seed, num_groups])
    n = draws.integers(low, high + 1, num_groups)
    place = np.repeat(np.arange(num_groups), n)
    theta = 10 + np.sqrt(between) * draws.standard_normal((num_groups, *shape))
    scale = np.exp(log_sd * draws.standard_normal(num_groups))
    noise = VALUES[values](draws, (len(place), *shape))
    noise = (noise.T * scale[place]).T
    return theta, scale, means_of(theta[place] + noise, place, num_groups)


def skewed(num_groups, seed=0):
    """Amounts: exponential values, whose standard deviation is their mean."""
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(num_groups), draws.integers(3, 30, num_groups))
    theta = draws.gamma(8, 1, num_groups)
    return theta, means_of(draws.exponential(theta[place]), place, num_groups)


def same(first, second):
    names = ("personal", "weight", "scale", "lower", "upper")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names)


def error(estimates, theta):
    return float(np.mean((estimates.personal - theta) ** 2))


# The population of variances.


def test_the_fit_maximizes_the_likelihood_of_scaled_f_variables():
    draws = np.random.default_rng(0)
    freedom = draws.integers(1, 20, 3000).astype(float)
    within = 3 * 6 / draws.chisquare(6, 3000) * draws.chisquare(freedom)

    def objective(logs):
        prior, scale = np.exp(logs)
        return -stats.f.logpdf(within / freedom / scale, freedom, prior).sum() + 3000 * logs[1]

    best = np.exp(optimize.minimize(objective, [1.0, 1.0], method="Nelder-Mead").x)
    found = fit_variances(freedom, within)
    assert found.freedom == pytest.approx(best[0], rel=0.02)  # a posterior mean, not a mode
    assert found.variance == pytest.approx(best[1], rel=0.01)
    assert found.chance < 1e-20


@pytest.mark.parametrize("num_groups", [50, 5000])
def test_variances_of_groups_are_inverse_gamma(num_groups):
    draws = np.random.default_rng(1)
    freedom = draws.integers(0, 9, num_groups).astype(float)
    within = 5 / draws.chisquare(5, num_groups) * draws.chisquare(freedom + 1e-9)
    within[freedom == 0] = 0.0
    found = fit_variances(freedom, within)
    nodes = noise_nodes(found, freedom, within, num_groups=5000)  # the fit plugged in
    chance = np.exp(nodes.log_probability)
    shape, rate = (found.freedom + freedom) / 2, (found.freedom * found.variance + within) / 2
    np.testing.assert_allclose(chance.sum(axis=0), 1)
    np.testing.assert_allclose((chance / nodes.variance).sum(axis=0), shape / rate, rtol=2e-3)
    mixed = noise_nodes(found, freedom, within, num_groups=50)  # averaged over the fit
    average = (np.exp(mixed.log_probability) / mixed.variance).sum(axis=0)
    np.testing.assert_allclose(average, shape / rate, rtol=0.3 if num_groups == 50 else 0.02)


def test_equal_variances_are_rarely_called_unequal():
    # FALSE_ALARM: 4 of 200 at a level of 1e-3 has probability 6e-5.
    draws = np.random.default_rng(2)
    alarms = 0
    for number in range(200):
        freedom = draws.integers(1, (2, 30)[number % 2], 60).astype(float)
        alarms += fit_variances(freedom, draws.chisquare(freedom)).chance < 1e-3
    assert alarms < 4


# The estimates.


def test_the_posterior_is_that_of_the_integral():
    _, _, statistics = drawn(2000, log_sd=0.7, low=1, high=6)
    found = estimate_means(statistics, noise="moderated", theta_variance=0.3)
    mean, variance, prior = (
        found.population.parameters[name] for name in ("mean", "noise_variance", "noise_freedom")
    )
    for group in (0, 1, 2, int(np.argmax(statistics.mean)), int(np.argmax(statistics.within))):
        n, x, within = (each[group] for each in (statistics.n, statistics.mean, statistics.within))
        law = stats.invgamma((prior + n - 1) / 2, scale=(prior * variance + within) / 2)

        def density(log, power=0.0, law=law, n=n, x=x):
            noise = np.exp(log)
            chance = law.pdf(noise) * noise * stats.t.pdf(x, 3, mean, np.sqrt(0.3 + noise / n))
            return chance * (0.3 / (0.3 + noise / n)) ** power

        weight = [integrate.quad(density, -25, 25, args=(p,), limit=400)[0] for p in (1.0, 0.0)]
        expected = weight[0] / weight[1]
        assert found.weight[group] == pytest.approx(expected, abs=2e-3)
        assert found.personal[group] == pytest.approx(mean + expected * (x - mean), abs=2e-2)
    assert np.all((found.lower < found.personal) & (found.personal < found.upper))
    options = {"noise": "moderated", "theta_variance": 0.3, "above": float(found.lower[7])}
    assert estimate_means(statistics, **options).above[7] == pytest.approx(0.975, abs=1e-4)


def test_many_equal_variances_give_what_one_variance_gives():
    _, _, statistics = drawn(3000, log_sd=0.0)
    common = estimate_means(statistics, noise="common")
    found = estimate_means(statistics, noise="moderated")
    np.testing.assert_allclose(found.personal, common.personal, atol=0.03)
    np.testing.assert_allclose(found.upper - found.lower, common.upper - common.lower, rtol=0.05)
    assert found.gain_over_raw == pytest.approx(common.gain_over_raw, abs=0.5)


def test_unequal_noise_is_found_and_taken():
    theta, scale, statistics = drawn(500, log_sd=0.7)
    found = estimate_means(statistics)
    common = estimate_means(statistics, noise="common")
    assert "noise differs between groups" in found.notes[0]
    assert not common.notes
    raw = np.mean((statistics.mean - theta) ** 2)
    assert error(found, theta) < 0.8 * error(common, theta)
    assert found.gain_over_raw == pytest.approx(100 * (1 - error(found, theta) / raw), abs=10)
    inside = (found.lower <= theta) & (theta <= found.upper)
    for quarter in np.array_split(np.argsort(scale), 4):
        assert inside[quarter].mean() > 0.89  # 125 groups; 84% in the noisiest with one variance


@pytest.mark.parametrize("num_groups", [3, 10, 40, 300])
def test_equal_noise_keeps_the_answer_to_the_bit(num_groups):
    _, _, statistics = drawn(num_groups, log_sd=0.0)
    found = estimate_means(statistics)
    assert same(found, estimate_means(statistics, noise="common"))
    assert not found.notes


@pytest.mark.parametrize("moved", [lambda y: 1e6 + y, lambda y: 1e-8 * y, lambda y: -1e9 * y])
def test_units_do_not_matter(moved):
    _, _, statistics = drawn(60, log_sd=0.7, low=1)
    factor = moved(1.0) - moved(0.0)
    other = Means(n=statistics.n, mean=moved(statistics.mean), within=factor**2 * statistics.within)
    found, again = (estimate_means(each) for each in (statistics, other))
    assert len(found.notes) == len(again.notes) == 1
    np.testing.assert_allclose(again.weight, found.weight, rtol=1e-4)
    np.testing.assert_allclose(again.personal, moved(found.personal), rtol=1e-4 * abs(factor))
    np.testing.assert_allclose(again.scale, abs(factor) * found.scale, rtol=1e-4)


def test_groups_of_no_row_and_of_one_row_borrow_all_their_noise():
    _, _, statistics = drawn(400, log_sd=0.7, low=1, high=4)
    n = np.append(statistics.n, 0)
    found = estimate_means(
        Means(n=n, mean=np.append(statistics.mean, np.nan), within=np.append(statistics.within, 0))
    )
    assert found.weight[-1] == 0
    assert np.isnan(found.raw[-1])
    assert found.personal[-1] == pytest.approx(found.population.mean)
    half = (found.upper[-1] - found.lower[-1]) / 2
    assert half == pytest.approx(1.96 * found.population.heterogeneity, rel=0.05)
    assert np.all(np.isfinite(found.upper) & (found.upper > found.lower))
    assert found.weight[n == 1].max() < found.weight[n == 4].max()


def test_two_coordinates_share_their_noise():
    theta, _, statistics = drawn(300, log_sd=0.7, low=2, high=9, shape=(2,))
    found = estimate_means(statistics, above=10.0)
    common = estimate_means(statistics, noise="common")
    assert found.personal.shape == found.above.shape == (300, 2)
    assert error(found, theta) < 0.9 * error(common, theta)
    assert 0.92 < np.mean((found.lower <= theta) & (theta <= found.upper)) < 0.98
    assert set(found.population.parameters) == {
        *("mean_1", "mean_2", "variance", "noise_variance", "noise_freedom")
    }


def test_many_groups_are_fitted_by_a_sample():
    _, _, statistics = drawn(40_000, log_sd=0.5, high=10)
    found = estimate_means(statistics)
    assert found.population.parameters["variance"] == pytest.approx(0.3, rel=0.1)
    assert found.population.mean == pytest.approx(
        10, abs=5 * found.population.standard_errors["mean"]
    )
    assert found.population.standard_errors["mean"] < 0.005


def test_ranks_and_newcomers():
    theta, _, statistics = drawn(100, log_sd=0.7)
    columns = {"within": statistics.within, "ranks": True}
    model = GroupMeans.from_statistics(statistics.n, statistics.mean, **columns)
    assert "noise differs" in model.notes_[0]
    assert stats.spearmanr(model.ranks_.mean, -theta)[0] > 0.5
    lower, upper = model.interval([-1])
    assert lower[0] < model.predict([-1])[0] == model.population_.mean < upper[0]


# When it is not taken.


def test_noise_that_goes_with_the_mean_is_left_alone():
    theta, statistics = skewed(200)
    found = estimate_means(statistics)
    assert "goes with the mean" in found.notes[0]
    assert same(found, estimate_means(statistics, noise="common"))
    moderated = estimate_means(statistics, noise="moderated")
    assert error(moderated, theta) > 1.2 * error(found, theta)  # why it is left alone
    assert "Use noise='common'" in moderated.notes[0]


def test_noise_that_goes_with_the_distance_from_others_is_left_alone():
    """Groups at both ends are noisier: moderated, 62% of the noisiest quarter are covered."""
    rng = np.random.default_rng(3)
    place = np.repeat(np.arange(400), rng.integers(5, 40, 400))
    theta = rng.normal(0, 0.4, 400)
    values = theta[place] + (0.3 + np.abs(theta) / 0.4)[place] * rng.standard_normal(len(place))
    statistics = means_of(values, place, 400)
    found = estimate_means(statistics)
    assert same(found, estimate_means(statistics, noise="common"))
    assert "since the noise goes with the mean" in found.notes[0]


def test_heavy_tails_of_theta_are_not_taken_for_noise():
    """Promise and gain at 200 log-normal thetas, of two to four rows with unequal noise.

    With noise as the only explanation of a mean far away, 74% were promised and 39% came out, less
    than with one common variance.
    """
    errors, promised = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        place = np.repeat(np.arange(200), rng.integers(2, 5, 200))
        theta, scale = np.exp(0.7 * rng.standard_normal((2, 200)))
        values = theta[place] + scale[place] * rng.standard_normal(len(place))
        statistics = means_of(values, place, 200)
        found = estimate_means(statistics, noise="moderated")
        common = estimate_means(statistics, noise="common")
        three = (found.personal, common.personal, found.raw)
        errors.append([np.mean((each - theta) ** 2) for each in three])
        promised.append(found.gain_over_raw)
    own, other, raw = np.mean(errors, axis=0)
    assert own < other
    assert np.mean(promised) - 100 * (1 - own / raw) < 15


def test_rates_given_as_values_are_left_alone():
    draws = np.random.default_rng(0)
    place = np.repeat(np.arange(200), draws.integers(20, 60, 200))
    rate = draws.beta(2, 38, 200)
    statistics = means_of((draws.random(len(place)) < rate[place]) * 1.0, place, 200)
    found = estimate_means(statistics)
    assert "goes with the mean" in found.notes[0]
    assert same(found, estimate_means(statistics, noise="common"))


def test_ties_are_not_silence():
    # Half of the groups do not vary at all: rounding, not certainty.
    draws = np.random.default_rng(0)
    place = np.repeat(np.arange(200), 3)
    theta = draws.normal(0, 0.5, 200)
    statistics = means_of(np.rint(theta[place] + draws.normal(0, 0.4, 600)), place, 200)
    assert np.mean(statistics.within == 0) > 0.3
    found = estimate_means(statistics)
    assert same(found, estimate_means(statistics, noise="common"))
    forced = estimate_means(statistics, noise="moderated")
    assert np.all(forced.scale > 0.1)


def test_few_groups_keep_one_variance_unless_asked():
    draws = np.random.default_rng(0)
    n = np.full(10, 20)
    scale = np.exp(draws.normal(0, 1, 10))
    statistics = Means(
        n=n,
        mean=draws.normal(0, 1, 10) + scale * draws.normal(0, 1, 10) / np.sqrt(n),
        within=scale**2 * draws.chisquare(n - 1),
    )
    found = estimate_means(statistics)
    assert "fewer than 20 groups" in found.notes[0]
    assert same(found, estimate_means(statistics, noise="common"))
    own = estimate_means(statistics, noise="moderated")
    assert np.corrcoef(np.log(own.upper - own.lower), np.log(scale))[0, 1] > 0.8
    three = Means(n=n[:3], mean=statistics.mean[:3], within=statistics.within[:3])
    assert np.isfinite(estimate_means(three, noise="moderated").upper).all()


@pytest.mark.parametrize(
    "options",
    [
        {"by_size": True},
        {"intervals": "robust"},
        {"population": "nonparametric"},
        {"fit": "moments"},
        {"method": "paper"},
        {"population": "point"},
        {"noise_variance": 2.0},
    ],
)
def test_options_that_need_one_variance_have_it_and_refuse_others(options):
    _, _, statistics = drawn(100, log_sd=0.7)
    found = estimate_means(statistics, **options)
    common = estimate_means(statistics, noise="common", **options)
    assert same(found, common)
    silent = "noise_variance" in options or {"paper", "point"} & {*options.values()}
    told = [note for note in found.notes if "the options chosen need it" in note]
    assert len(told) == (0 if silent else 1)
    with pytest.raises(ValueError, match="noise='moderated'"):
        estimate_means(statistics, noise="moderated", **options)


def test_auto_that_picks_the_default_is_the_default():
    _, _, statistics = drawn(100, log_sd=0.7)
    found = estimate_means(statistics, population="auto")
    assert found.population.kind == "gaussian"
    assert same(found, estimate_means(statistics))


def test_moderated_is_refused_where_nothing_shows_the_noise():
    known = Means(n=np.ones(5, int), mean=np.arange(5.0), variance=np.ones(5))
    with pytest.raises(ValueError, match="noise='moderated' needs `within`"):
        estimate_means(known, noise="moderated")
    alike = Means(n=np.full(5, 3), mean=np.arange(5.0), within=np.array([1.0, 2, 0, 0, 0]))
    with pytest.raises(ValueError, match="three groups or more, each with two rows"):
        estimate_means(alike, noise="moderated")
    with pytest.raises(ValueError, match="noise must be one of auto, common, moderated"):
        estimate_means(alike, noise="own")
    constant = Means(n=np.full(30, 3), mean=np.arange(30.0), within=np.zeros(30))
    assert same(estimate_means(constant), estimate_means(constant, noise="common"))
    rounded = means_of(np.repeat(np.arange(30) / 10, 3), np.repeat(np.arange(30), 3), 30)
    assert rounded.within.any()  # 0.1 + 0.1 + 0.1 is no multiple of 0.1
    with pytest.raises(ValueError, match="two rows that differ"):
        estimate_means(rounded, noise="moderated")


def test_the_estimator_warns_where_moderation_was_forced_on_it():
    _, statistics = skewed(100)
    with pytest.warns(EstimationWarning, match="goes with the mean"):
        GroupMeans.from_statistics(
            statistics.n, statistics.mean, within=statistics.within, noise="moderated"
        )


# Evidence: figures of docs/explanation/estimation.md.


def measured(num_groups, runs, *, noise, **setting):
    """Gain over raw means, and coverage in all, in the quietest and in the noisiest quarter."""
    errors, covered = np.zeros(2), []
    for seed in range(runs):
        theta, scale, statistics = drawn(num_groups, seed=seed, **setting)
        found = estimate_means(statistics, noise=noise)
        errors += error(found, theta), np.mean((statistics.mean - theta) ** 2)
        inside = (found.lower <= theta) & (theta <= found.upper)
        order = np.argsort(scale + 1e-9 * theta)
        quarter = num_groups // 4
        covered.append(
            [inside.mean(), inside[order[:quarter]].mean(), inside[order[-quarter:]].mean()]
        )
    return 100 * (1 - errors[0] / errors[1]), 100 * np.mean(covered, axis=0)


@pytest.mark.evidence
@pytest.mark.parametrize(("num_groups", "runs"), [(50, 400), (200, 100), (2000, 20)])
@pytest.mark.parametrize("between", [0.1, 0.3, 1.0])
def test_coverage_and_gain_with_unequal_noise(num_groups, runs, between):
    gain, (average, quiet, noisy) = measured(
        num_groups, runs, noise="auto", log_sd=0.7, between=between
    )
    before, was = measured(num_groups, runs, noise="common", log_sd=0.7, between=between)
    print(  # noqa: T201
        f"m={num_groups} A={between}: common {before:.1f}, {was.round(1)}; "
        f"auto {gain:.1f}, {average:.1f} {quiet:.1f} {noisy:.1f}"
    )
    assert 93.5 <= average <= 96
    assert 92.5 <= quiet <= 97.5
    assert 92.5 <= noisy <= 97.5
    assert gain > before + 5


@pytest.mark.evidence
@pytest.mark.parametrize("values", ["t5", "Laplace", "uniform"])
@pytest.mark.parametrize("low", [2, 20])
def test_values_that_are_not_normal_do_no_harm(values, low):
    setting = {"log_sd": 0.0, "values": values, "low": low, "high": 3 * low}
    gain, covered = measured(200, 100, noise="auto", **setting)
    before, was = measured(200, 100, noise="common", **setting)
    print(  # noqa: T201
        f"{values} n={low}..{3 * low}: common {before:.1f} {was[0]:.1f}, "
        f"auto {gain:.1f} {covered[0]:.1f}"
    )
    assert gain > before - 0.5
    assert 93.5 <= covered[0] <= 96.5


@pytest.mark.evidence
@pytest.mark.parametrize(
    ("num_groups", "high"), [(20, 2), (20, 30), (100, 2), (100, 30), (1000, 5)]
)
def test_level_of_the_test(num_groups, high):
    # FALSE_ALARM: 14 of 4,000 at the level 1e-3 has probability 1e-4.
    draws = np.random.default_rng(high)
    alarms = 0
    for _ in range(4000):
        freedom = draws.integers(1, high, num_groups).astype(float)
        alarms += fit_variances(freedom, draws.chisquare(freedom)).chance < 1e-3
    print(f"m={num_groups} n=2..{high}: {alarms} of 4000")  # noqa: T201
    assert alarms < 14
