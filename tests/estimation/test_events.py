"""Rates of events over an exposure: the Gamma population against SciPy's negative binomial."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from fedprior.estimation.conjugate.estimate import estimate_events, estimate_rates
from fedprior.estimation.conjugate.fit import by_likelihood, by_moments
from fedprior.estimation.conjugate.likelihood import log_likelihood, slope_at, tally
from fedprior.estimation.events import GroupEvents
from fedprior.estimation.families.poisson import POISSON
from fedprior.estimation.statistics import Counts, Events, collapse_events


def drawn(seed, m, shape, mean, exposure):
    draws = np.random.default_rng(seed)
    exposures = exposure * draws.lognormal(0, 1, m)
    theta = draws.gamma(shape, mean / shape, m)
    return Events(exposure=exposures, events=draws.poisson(exposures * theta)), theta


def negative_binomial(events, mean, size):
    chance = size / (size + events.exposure)
    return stats.nbinom.logpmf(events.events, mean * size, chance).sum()


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 5.0), st.floats(-4, 6), st.integers(0, 100))
def test_likelihood_differs_from_the_negative_binomial_by_a_constant(mean, log_size, seed):
    events, _ = drawn(seed, 20, 2.0, 0.4, 10.0)
    pairs = collapse_events(events)
    data, size = tally(pairs), np.exp(log_size)

    def ours(mean, size):
        return log_likelihood(data, np.array([mean * pairs.unit]), np.array([size / pairs.unit]))[0]

    change = ours(mean, size) - ours(0.3, 2.0)
    expected = negative_binomial(events, mean, size) - negative_binomial(events, 0.3, 2.0)
    assert change == pytest.approx(expected, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("log_size", [-3.0, 0.0, 4.0, 9.0])
def test_derivatives_are_those_of_the_likelihood(log_size):
    data = tally(collapse_events(drawn(1, 50, 2.0, 0.4, 10.0)[0]))
    place, step = np.array([0.2, log_size]), 1e-4

    def value(at):
        return log_likelihood(data, np.exp(at[:1]), np.exp(at[1:]))[0]

    found = slope_at(data, *np.exp(place))
    for number, unit in enumerate(np.eye(2) * step):
        slope = (value(place + unit) - value(place - unit)) / (2 * step)
        assert found.gradient[number] == pytest.approx(slope, rel=1e-4, abs=1e-5)
        beside = [slope_at(data, *np.exp(place + s * unit)).gradient for s in (1, -1)]
        expected = (beside[0] - beside[1]) / (2 * step)
        np.testing.assert_allclose(found.hessian[number], expected, rtol=1e-4, atol=1e-5)


def test_the_fit_is_the_maximum():
    events, _ = drawn(0, 200, 2.0, 0.2, 8.0)
    found = estimate_events(events).population
    best = optimize.minimize(
        lambda at: -negative_binomial(events, *np.exp(at)),
        [np.log(0.2), np.log(10.0)],
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-10},
    )
    expected = np.exp(best.x)
    assert found.parameters["mean"] == pytest.approx(expected[0], rel=1e-5)
    assert found.parameters["rate"] == pytest.approx(expected[1], rel=1e-5)
    assert found.parameters["shape"] == pytest.approx(expected.prod(), rel=1e-5)
    assert found.heterogeneity == pytest.approx(np.sqrt(expected[0] / expected[1]), rel=1e-5)


def test_personal_rates_are_posterior_means():
    events, _ = drawn(3, 300, 2.0, 0.2, 8.0)
    found = estimate_events(events)
    shape, rate = found.population.parameters["shape"], found.population.parameters["rate"]
    expected = (events.events + shape) / (events.exposure + rate)
    np.testing.assert_allclose(found.personal, expected, rtol=1e-9)
    np.testing.assert_allclose(found.weight, events.exposure / (events.exposure + rate), rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"by_size": True},
        {"intervals": "robust"},
        {"fit": "moments"},
        {"population": "nonparametric"},
        {"population": "point"},
        {"population": "auto"},
        {"above": 0.25, "ranks": True},
    ],
)
@pytest.mark.parametrize("m", [12, 150])
def test_results_do_not_depend_on_the_unit_of_exposure(m, options):
    events, _ = drawn(4, m, 2.0, 0.2, 8.0)
    days = 365.25
    in_days = Events(exposure=days * events.exposure, events=events.events)
    scaled = {**options, "above": options["above"] / days} if "above" in options else options
    one, other = estimate_events(events, **options), estimate_events(in_days, **scaled)
    for name in ("personal", "lower", "upper"):
        np.testing.assert_allclose(getattr(other, name) * days, getattr(one, name), rtol=1e-6)
    np.testing.assert_allclose(other.weight, one.weight, rtol=1e-6)
    assert other.gain_over_raw == pytest.approx(one.gain_over_raw, rel=1e-6)
    assert other.population.mean * days == pytest.approx(one.population.mean)
    if "above" in options:
        np.testing.assert_allclose(other.above, one.above, rtol=1e-6)


def test_a_known_population():
    events = Events(exposure=np.array([0.0, 10.0, 40.0]), events=np.array([0, 2, 4]))
    found = estimate_events(events, prior=(3, 20), above=0.1, level=0.9)
    twin = stats.gamma(3 + events.events, scale=1 / (20 + events.exposure))
    np.testing.assert_allclose(found.personal, twin.mean())
    np.testing.assert_allclose(found.scale, twin.std())
    np.testing.assert_allclose(found.lower, twin.ppf(0.05), rtol=1e-4)
    np.testing.assert_allclose(found.upper, twin.ppf(0.95), rtol=1e-4)
    np.testing.assert_allclose(found.above, twin.sf(0.1), rtol=1e-6)
    assert np.isnan(found.raw[0])


def test_rare_events_agree_with_rates():
    """A Binomial of many trials at a low rate is a Poisson; the populations agree, too."""
    draws = np.random.default_rng(5)
    n = draws.integers(20_000, 200_000, 400)
    successes = draws.binomial(n, draws.gamma(3, 1e-4 / 3, 400))
    rates = estimate_rates(Counts(n=n, successes=successes))
    events = estimate_events(Events(exposure=n.astype(float), events=successes))
    np.testing.assert_allclose(events.personal, rates.personal, rtol=1e-3)
    np.testing.assert_allclose(events.upper, rates.upper, rtol=5e-3)
    assert events.gain_over_raw == pytest.approx(rates.gain_over_raw, abs=0.2)


def test_moments_of_equal_exposures_are_unbiased():
    draws = np.random.default_rng(6)
    variances = []
    for _ in range(400):
        theta = draws.gamma(4, 0.5, 30)
        events = Events(exposure=np.full(30, 3.0), events=draws.poisson(3 * theta))
        pairs = collapse_events(events)
        data = tally(pairs)
        mean = data.total_successes / data.total_size
        raw = np.repeat(events.events / 3.0, 1) * pairs.unit
        variances.append((raw.var(ddof=1) - mean / pairs.n[0]) / pairs.unit**2)
        fit = by_moments(data)
        if not fit.is_point:
            assert fit.variance / pairs.unit**2 == pytest.approx(variances[-1])
    error = np.std(variances) / 20
    assert abs(np.mean(variances) - 1.0) < 5 * error  # 4 * 0.5^2


def test_events_that_do_not_vary_are_a_point_mass():
    found = by_likelihood(
        tally(collapse_events(Events(exposure=np.full(50, 4.0), events=np.full(50, 3))))
    )
    assert found.is_point
    assert found.family is POISSON


def test_no_events_at_all():
    events = Events(exposure=np.array([5.0, 1.0, 30.0]), events=np.zeros(3, int))
    found = estimate_events(events)
    assert (found.personal > 0).all()
    assert (found.lower == 0).all()
    assert (found.upper < 5 / 36 * 20).all()
    assert any("No group had an event" in note for note in found.notes)


def test_many_exposures_are_binned_without_a_trace():
    events, _ = drawn(7, 30_000, 2.0, 0.2, 8.0)
    data = tally(collapse_events(events))
    assert len(data.n) <= 8193
    found = estimate_events(events).population
    best = found.parameters["mean"], found.parameters["concentration"]
    at = negative_binomial(events, *best)
    for moved in ((1.001, 1.0), (1 / 1.001, 1.0), (1.0, 1.003), (1.0, 1 / 1.003)):
        assert at > negative_binomial(events, best[0] * moved[0], best[1] * moved[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exposure": [1.0, -2.0], "events": [0, 0]}, "Events: exposure must be at least 0"),
        ({"exposure": [1.0, 2.0], "events": [0, 1.5]}, "Events: events must be whole numbers"),
        ({"exposure": [1.0, 0.0], "events": [0, 1]}, "0 where the exposure is 0"),
        ({"exposure": [1.0, np.inf], "events": [0, 1]}, "Events: exposure must be at least 0"),
    ],
)
def test_impossible_events_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Events(**{name: np.array(each) for name, each in arguments.items()})


def test_options_are_checked():
    events, _ = drawn(8, 5, 2.0, 0.2, 8.0)
    with pytest.raises(ValueError, match="estimate_events: above must be a rate of at least 0"):
        estimate_events(events, above=-1.0)
    with pytest.raises(ValueError, match="population"):
        estimate_events(events, population="beta")
    with pytest.raises(ValueError, match="rate must be"):
        estimate_events(events, prior=(1.0, 0.0))
    one = Events(exposure=np.array([3.0]), events=np.array([2]))
    with pytest.raises(ValueError, match="at least 2, with an exposure above 0"):
        estimate_events(one)


@pytest.mark.evidence
@pytest.mark.parametrize("m", [3, 5, 10, 30, 100, 1000])
@pytest.mark.parametrize(
    ("shape", "mean", "exposure"), [(2, 0.2, 8), (0.3, 1, 5), (20, 0.05, 50), (5, 3, 1)]
)
def test_coverage_and_gain(m, shape, mean, exposure):
    inside, own, raw, others = [], [], [], []
    for seed in range(max(10, 3000 // m)):
        events, theta = drawn(seed, m, shape, mean, exposure)
        found = estimate_events(events)
        inside.append(np.mean((found.lower <= theta) & (theta <= found.upper)))
        own.append(np.mean((found.personal - theta) ** 2))
        raw.append(np.mean((found.raw - theta) ** 2))
        others.append(np.mean((theta - mean) ** 2))
    assert 0.92 < np.mean(inside) < 0.99
    assert np.mean(own) < 1.05 * np.mean(raw)
    if m >= 30:
        assert np.mean(own) < 1.02 * np.mean(others)


def test_group_events():
    model = GroupEvents(above=0.2, ranks=True).fit(
        [1, 2, 0, None, 4], ["x", "x", "y", "y", "z"], exposure=[10.0, 5.0, 3.0, 1.0, 12.0]
    )
    assert model.groups_.tolist() == ["x", "y", "z"]
    assert model.n_.tolist() == [15.0, 3.0, 12.0]
    np.testing.assert_allclose(model.raw_, [0.2, 0.0, 1 / 3])
    columns = ["group", "exposure", "raw", "personal", "weight", "lower", "upper", "above", "rank"]
    assert list(model.to_frame())[:9] == columns
    assert model.predict(["new"])[0] == pytest.approx(model.population_.mean)
    plain = GroupEvents().fit([3, 4, 0])
    assert plain.n_.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="0 where exposure is 0"):
        GroupEvents().fit([3, 4], exposure=[1.0, 0.0])
    with pytest.raises(ValueError, match="See row 2 of 2"):
        GroupEvents().fit([3, 4.5], exposure=[1.0, 1.0])


def test_a_handful_of_groups_does_not_make_the_population_run_away():
    model = GroupEvents().fit([10, 10], ["a", "b"], exposure=[10.0, 10.0])
    assert model.predict(["new"])[0] == model.population_.mean == pytest.approx(1.0, abs=0.2)
    assert model.population_.standard_errors["mean"] < 1
    assert model.population_.standard_errors["heterogeneity"] < 1
