"""Simulated groups whose mean, rate or rate of events depends on a number and a word."""

import numpy as np

from fedprior.estimation import (
    Counts,
    Covariates,
    Events,
    Means,
    estimate_events,
    estimate_means,
    estimate_rates,
)

SLOPES = (0.6, 0.4)
ESTIMATORS = {"means": estimate_means, "rates": estimate_rates, "events": estimate_events}


def draw(kind, num_groups, random, *, spread=1.0, base=None, sizes=(4, 40)):
    """(statistics with the last two groups empty, covariates, theta, intercept and slopes).

    `spread` scales what the covariates leave: a standard deviation of 0.5 for means, M = 10 for
    rates, a shape of 10 for events.
    """
    number = num_groups + 2
    word = np.zeros((number, 1))
    word[random.permutation(number)[: number // 2]] = 1.0
    x = np.column_stack([random.normal(size=number), word])
    base = {"means": 1.0, "rates": -1.0, "events": -1.0}[kind] if base is None else base
    eta = base + x @ SLOPES
    n = random.integers(*sizes, number)
    n[-2:] = 0
    truth = np.array([base, *SLOPES])
    covariates = Covariates(names=("age", "west"), values=x)
    if kind == "means":
        theta = eta + 0.5 * spread * random.normal(size=number)
        mean = theta + 2 * random.normal(size=number) / np.sqrt(np.maximum(n, 1))
        within = 4 * random.chisquare(np.maximum(n - 1, 1)) * (n > 1)
        statistics = Means(n=n, mean=np.where(n > 0, mean, np.nan), within=within)
        return statistics, covariates, theta, truth
    size = 10 / spread**2 if spread else np.inf
    if kind == "rates":
        center = 1 / (1 + np.exp(-eta))
        theta = random.beta(center * size, (1 - center) * size) if spread else center
        statistics = Counts(n=n, successes=random.binomial(n, theta))
        return statistics, covariates, theta, truth
    center = np.exp(eta)
    theta = center * random.gamma(size, size=number) / size if spread else center
    exposure = n * random.uniform(0.7, 1.3, number)
    statistics = Events(exposure=exposure, events=random.poisson(exposure * theta))
    return statistics, covariates, theta, truth


def repeat(kind, num_groups, runs, *, seed=0, **setting):
    """Percent covered: groups, groups without data, slopes, intercept; gains in percent.

    `gain` is over the estimates without covariates, `over_raw` over raw values, and `promised` what
    the estimates expect of the latter.
    """
    found = {name: [] for name in ("groups", "empty", "slopes", "intercept")}
    errors = dict.fromkeys(("with", "without", "raw"), 0.0)
    promised = 0.0
    for run in range(runs):
        random = np.random.default_rng([seed, num_groups, run])
        statistics, covariates, theta, truth = draw(kind, num_groups, random, **setting)
        if kind != "means":
            counts = statistics.successes if kind == "rates" else statistics.events
            if counts.sum() == 0 or (kind == "rates" and (counts == statistics.n).all()):
                continue
        estimates = ESTIMATORS[kind](statistics, covariates=covariates)
        inside = (estimates.lower <= theta) & (theta <= estimates.upper)
        held = statistics.n > 0
        found["groups"].append(inside[held].mean())
        found["empty"].append(inside[~held].mean())
        told = estimates.population.coefficients
        covered = (told.lower <= truth) & (truth <= told.upper)
        found["slopes"].append(covered[1:].mean())
        found["intercept"].append(covered[0])
        without = ESTIMATORS[kind](statistics)
        errors["with"] += ((estimates.personal - theta)[held] ** 2).mean()
        errors["without"] += ((without.personal - theta)[held] ** 2).mean()
        errors["raw"] += ((estimates.raw - theta)[held] ** 2).mean()
        promised += estimates.gain_over_raw / runs
    result = {name: 100 * float(np.mean(each)) for name, each in found.items()}
    result["gain"] = 100 * (1 - errors["with"] / errors["without"])
    result["over_raw"] = 100 * (1 - errors["with"] / errors["raw"])
    result["promised"] = promised
    return result
