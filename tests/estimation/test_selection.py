"""`population="auto"`: another population has to lower the estimated error by more than chance."""

import numpy as np
import pytest

from fedprior.estimation.conjugate.estimate import estimate_events, estimate_rates
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.nonparametric.atoms import posterior
from fedprior.estimation.nonparametric.counts import count_rows
from fedprior.estimation.nonparametric.normal import normal_rows
from fedprior.estimation.shapes.choice import ShapeComparison, compare, few_groups, pick
from fedprior.estimation.shapes.mixtures import usual
from fedprior.estimation.statistics import Counts, Events, Means, collapse, collapse_events


def means(draws, theta, scale=1.0):
    variance = scale**2 * draws.choice([0.5, 1.0, 2.0], len(theta))
    return normal_rows(theta + np.sqrt(variance) * draws.standard_normal(len(theta)), variance)


def rates(draws, theta, n):
    n = np.full(len(theta), n)
    return count_rows(collapse(Counts(n=n, successes=draws.binomial(n, theta))))


def events(draws, theta, exposure):
    over = exposure * draws.uniform(0.5, 2, len(theta))
    found = Events(exposure=over, events=draws.poisson(over * theta))
    return count_rows(collapse_events(found))


def test_another_population_has_to_win_by_two_standard_errors():
    def clear(gain, num_groups):
        return ShapeComparison(name="x", gain=gain, error=1.0, num_groups=num_groups).clear

    assert clear(2.1, 1000)
    assert not clear(1.9, 1000)
    assert not clear(2.9, 20)
    assert clear(3.1, 20)


@pytest.mark.parametrize(
    ("theta", "sample"),
    [
        (lambda draws: draws.normal(size=4000), means),
        (lambda draws: draws.beta(2, 6, 4000), lambda draws, p: rates(draws, p, 8)),
        (lambda draws: draws.gamma(2, 1, 4000), lambda draws, p: events(draws, p, 3.0)),
    ],
    ids=["means", "rates", "events"],
)
def test_the_loss_is_unbiased(theta, sample):
    """Estimated differences of squared errors agree with true ones, to 4 standard errors each."""
    draws = np.random.default_rng(0)
    true, guess = [], []
    for _ in range(20):
        values = theta(draws)
        rows = sample(draws, values)
        wide = usual(rows)
        narrow = usual(rows).__class__(
            atoms=wide.atoms, weights=wide.weights, spread=wide.spread / 2
        )
        losses = [rows.loss(lambda each, a=a: posterior(each, a)) for a in (wide, narrow)]
        guess.append(rows.count @ (losses[1] - losses[0]) / rows.num_groups)
        found = [_bayes_risk(rows, wide, each) for each in (wide, narrow)]
        true.append(found[1] - found[0])
    error = np.std(guess) / np.sqrt(len(guess))
    assert np.mean(guess) == pytest.approx(np.mean(true), abs=5 * error + 0.1 * np.mean(true))


def _bayes_risk(rows, population, rule):
    """The error of a rule if the population is the conjugate one that was fitted."""
    best, variance = posterior(rows, population)
    other, _ = posterior(rows, rule)
    return rows.count @ (variance + (best - other) ** 2) / rows.num_groups


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_spikes_are_found_with_much_and_with_little_noise(scale):
    draws = np.random.default_rng(1)
    theta = 3.0 * draws.integers(0, 7, 1500)
    assert pick(means(draws, theta, scale))[0] == "nonparametric"
    smooth = means(draws, draws.normal(size=1500), scale)
    assert pick(smooth)[0] == "gaussian"


def test_rates_and_events_with_a_spike_are_told_from_smooth_ones():
    draws = np.random.default_rng(2)
    sparse = np.where(draws.random(3000) < 0.9, 0.02, draws.uniform(size=3000))
    assert pick(rates(draws, sparse, 40))[0] in ("spike-and-slab", "nonparametric")
    assert pick(rates(draws, draws.beta(2, 6, 3000), 40))[0] == "beta"
    assert pick(events(draws, 10 * sparse, 4.0))[0] in ("spike-and-slab", "nonparametric")
    assert pick(events(draws, draws.gamma(2, 1, 3000), 4.0))[0] == "gamma"


def test_heavy_tails_are_a_scale_mixture():
    draws = np.random.default_rng(3)
    assert pick(means(draws, draws.standard_t(3, 4000)))[0] == "scale-mixture"


def test_rows_that_groups_share_count_as_often():
    draws = np.random.default_rng(4)
    values, count = draws.normal(size=40), draws.integers(1, 9, 40)
    rows = normal_rows(values, np.full(40, 0.3), count)
    found = compare(rows)
    assert [each.num_groups for each in found] == [count.sum()] * 3
    wide = normal_rows(values, np.full(40, 0.3))
    assert compare(wide)[0].num_groups == 40


def test_few_groups_keep_the_default_and_say_so():
    few = Means(n=np.full(19, 4), mean=np.arange(19.0) % 2 * 9, within=np.ones(19))
    found = estimate_means(few, population="auto")
    assert "picked gaussian: fewer than 50 groups" in found.notes[0]
    counts = Counts(n=np.full(19, 20), successes=20 * (np.arange(19) % 2))
    assert "picked beta: fewer than 50" in estimate_rates(counts, population="auto").notes[0]
    both = Means(n=np.full(60, 4), mean=np.eye(60)[:, :2] * 9, within=np.ones(60))
    assert "one coordinate" in estimate_means(both, population="auto").notes[0]
    none = Events(exposure=np.ones(60), events=np.zeros(60, int))
    assert "all outcomes are equal" in estimate_events(none, population="auto").notes[0]


def test_the_same_data_give_the_same_choice():
    draws = np.random.default_rng(5)
    rows = means(draws, draws.normal(size=300))
    assert pick(rows) == pick(rows)


def test_few_groups_are_warned():
    assert few_groups(100, safer="beta") is None
    assert 'population="beta" is safer below' in str(few_groups(99, safer="beta"))
