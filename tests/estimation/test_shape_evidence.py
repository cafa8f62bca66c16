"""What the check of shape, `auto` and the mixtures promise, by simulation (`-m evidence`)."""

import numpy as np
import pytest

from fedprior.estimation.conjugate.estimate import estimate_events, estimate_rates
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.statistics import Counts, Events, Means

pytestmark = pytest.mark.evidence


RUNS = 1.0  # of the full number of runs


def means(theta, n, draws, noise=1.0):
    """Groups of n rows about theta, with a noise variance that is not known."""
    mean = theta + np.sqrt(noise / n) * draws.standard_normal(len(theta))
    within = noise * draws.chisquare(np.maximum(n - 1, 0.5)) * (n > 1)
    return Means(n=n, mean=mean, within=within), estimate_means


def studies(theta, variance, draws):
    mean = theta + np.sqrt(variance) * draws.standard_normal(len(theta))
    return Means(n=np.ones(len(theta), int), mean=mean, variance=variance), estimate_means


def rates(theta, n, draws):
    return Counts(n=n, successes=draws.binomial(n, theta)), estimate_rates


def events(theta, exposure, draws):
    return Events(exposure=exposure, events=draws.poisson(exposure * theta)), estimate_events


def sizes(draws, m):
    return draws.integers(2, 51, m)


SETTINGS = {
    "means, few groups": lambda d: means(d.normal(size=120), sizes(d, 120), d, 4.0),
    "means, many groups": lambda d: means(d.normal(size=3000), sizes(d, 3000), d, 4.0),
    "means, hardly different": lambda d: means(d.normal(0, 0.1, 1000), sizes(d, 1000), d),
    "means, huge n": lambda d: means(d.normal(size=500), 100 * sizes(d, 500), d),
    "studies, unequal errors": lambda d: studies(d.normal(size=400), d.gamma(1, 1, 400) + 0.05, d),
    "rates, skewed": lambda d: rates(d.beta(0.5, 20, 1000), sizes(d, 1000), d),
    "rates, at both ends": lambda d: rates(d.beta(0.2, 0.2, 500), np.full(500, 10), d),
    "rates, huge n": lambda d: rates(d.beta(5, 5, 200), 100 * sizes(d, 200), d),
    "rates, unequal sizes": lambda d: rates(
        d.beta(2, 8, 2000), np.rint(np.exp(d.normal(2.5, 1.2, 2000))).astype(int) + 1, d
    ),
    "events": lambda d: events(d.gamma(2, 1, 500), d.uniform(0.5, 20, 500), d),
    "events, rare": lambda d: events(d.gamma(0.5, 0.1, 2000), d.uniform(0.5, 20, 2000), d),
}


def said(found):
    return any("does not have the shape" in note for note in found.notes)


@pytest.mark.parametrize("setting", SETTINGS)
def test_false_alarms_of_the_check_of_shape(setting):
    """At most 6% where the population has the usual shape."""
    alarms, runs = 0, round(400 * RUNS)
    for seed in range(runs):
        data, estimate = SETTINGS[setting](np.random.default_rng([seed, 1]))
        alarms += said(estimate(data))
    print(f"{setting}: {100 * alarms / runs:.1f}%")  # noqa: T201
    assert alarms <= 0.06 * runs


SPIKES = {
    "means, 200": lambda d: studies(d.integers(0, 7, 200).astype(float), np.full(200, 1 / 9), d),
    "means, 1000": lambda d: studies(d.integers(0, 7, 1000).astype(float), np.full(1000, 1 / 9), d),
    "means by rows, 300": lambda d: means(d.integers(0, 7, 300), d.integers(5, 15, 300), d),
    "means, huge n": lambda d: means(d.integers(0, 7, 200), np.full(200, 1000), d),
    "rates, 200 of 200": lambda d: rates(0.2 + 0.1 * d.integers(0, 7, 200), np.full(200, 200), d),
    "rates, 500 of 200": lambda d: rates(0.2 + 0.1 * d.integers(0, 7, 500), np.full(500, 200), d),
    "rates, huge n": lambda d: rates(0.2 + 0.1 * d.integers(0, 7, 200), np.full(200, 5000), d),
    "events": lambda d: events(10.0 + 5 * d.integers(0, 7, 300), d.uniform(20, 40, 300), d),
}


@pytest.mark.parametrize("setting", SPIKES)
def test_seven_spikes_are_found(setting):
    """In at least 80% of the cases."""
    found, runs = 0, round(100 * RUNS)
    for seed in range(runs):
        data, estimate = SPIKES[setting](np.random.default_rng([seed, 2]))
        found += said(estimate(data))
    print(f"{setting}: {100 * found / runs:.0f}%")  # noqa: T201
    assert found >= 0.8 * runs


POPULATIONS = {
    "normal": lambda d, m: d.normal(size=m),
    "slight": lambda d, m: d.normal(0, 0.3, m),
    "equal": lambda d, m: np.zeros(m),
    "t3": lambda d, m: d.standard_t(3, m),
    "Laplace": lambda d, m: d.laplace(size=m),
    "95% zeros": lambda d, m: np.where(d.random(m) < 0.05, d.normal(0, 3, m), 0.0),
    "two values": lambda d, m: d.choice([-1.0, 1.0], m),
    "seven spikes": lambda d, m: d.integers(0, 7, m) * 1.5,
}


def measured(theta, found):
    """Squared error, that of raw values, coverage, expected error."""
    error = np.mean((found.personal - theta) ** 2)
    covered = np.mean((found.lower <= theta) & (theta <= found.upper))
    return error, np.mean((found.raw - theta) ** 2), covered, found.gain_over_raw


@pytest.mark.parametrize("num_groups", [10, 20, 50, 200, 2000])
@pytest.mark.parametrize("family", ["means", "rates"])
@pytest.mark.parametrize("population", POPULATIONS)
def test_auto_is_not_worse_than_the_default(population, family, num_groups):
    """Beyond noise: at most 1% of the default's error, plus three standard errors."""
    runs = round(RUNS * {10: 200, 20: 200, 50: 100, 200: 60, 2000: 15}[num_groups])
    pairs, picked = [], {}
    for seed in range(runs):
        draws = np.random.default_rng([seed, num_groups, 3])
        theta = POPULATIONS[population](draws, num_groups)
        if family == "rates":
            theta = 1 / (1 + np.exp(1 - theta))
            data, estimate = rates(theta, draws.integers(5, 41, num_groups), draws)
        else:
            data, estimate = studies(theta, draws.choice([0.5, 1.0, 2.0], num_groups), draws)
        auto, default = estimate(data, population="auto"), estimate(data)
        picked[auto.population.kind] = picked.get(auto.population.kind, 0) + 1
        pairs.append([measured(theta, each)[0] for each in (auto, default)])
    auto, default = np.mean(pairs, axis=0)
    error = np.std(np.diff(pairs, axis=1)) / np.sqrt(runs)
    print(f"{family} {population} {num_groups}: {100 * (1 - auto / default):.1f}% {picked}")  # noqa: T201
    assert auto <= 1.01 * default + 3 * error


@pytest.mark.parametrize("num_groups", [50, 200, 2000])
@pytest.mark.parametrize("name", ["scale-mixture", "spike-and-slab"])
@pytest.mark.parametrize("population", ["normal", "slight", "t3", "Laplace", "95% zeros"])
def test_coverage_and_gain_of_mixtures(population, name, num_groups):
    """95% intervals cover at least 92.5% of the groups, 90% if they come from another shape."""
    runs = round(RUNS * {50: 200, 200: 60, 2000: 10}[num_groups])
    rows, usual = [], []
    for seed in range(runs):
        draws = np.random.default_rng([seed, num_groups, 4])
        theta = POPULATIONS[population](draws, num_groups)
        data, estimate = studies(theta, draws.choice([0.5, 1.0, 2.0], num_groups), draws)
        rows.append(measured(theta, estimate(data, population=name)))
        usual.append(measured(theta, estimate(data)))
    (error, raw, covered, promised), default = np.mean(rows, axis=0), np.mean(usual, axis=0)
    print(  # noqa: T201
        f"{name} {population} {num_groups}: gain {100 * (1 - error / raw):.1f} (promised "
        f"{promised:.1f}, default {100 * (1 - default[0] / raw):.1f}), coverage "
        f"{100 * covered:.1f} (default {100 * default[2]:.1f})"
    )
    wrong = name == "spike-and-slab" and population in ("t3", "Laplace")
    assert covered >= (0.9 if wrong else 0.925)


@pytest.mark.parametrize("name", ["scale-mixture", "spike-and-slab"])
@pytest.mark.parametrize("family", ["rates", "events"])
@pytest.mark.parametrize("sparse", [False, True])
def test_coverage_of_mixtures_of_counts(family, name, sparse):
    """Except of a scale mixture where most rates are low and few high: it has one mean for all."""
    rows, usual = [], []
    for seed in range(round(40 * RUNS)):
        draws = np.random.default_rng([seed, 5])
        theta = draws.beta(2, 8, 400)
        if sparse:
            theta = np.where(draws.random(400) < 0.9, 0.02, draws.uniform(size=400))
        if family == "rates":
            data, estimate = rates(theta, sizes(draws, 400), draws)
        else:
            data, estimate = events(10 * theta, draws.uniform(0.5, 5, 400), draws)
            theta = 10 * theta
        rows.append(measured(theta, estimate(data, population=name)))
        usual.append(measured(theta, estimate(data)))
    (error, raw, covered, promised), default = np.mean(rows, axis=0), np.mean(usual, axis=0)
    print(  # noqa: T201
        f"{family} {name} sparse={sparse}: gain {100 * (1 - error / raw):.1f} (promised "
        f"{promised:.1f}, default {100 * (1 - default[0] / raw):.1f}), coverage "
        f"{100 * covered:.1f} (default {100 * default[2]:.1f})"
    )
    assert covered >= 0.925 or (sparse and name == "scale-mixture")
