"""The laws of a cohort (core/protocols.py), for every one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedprior import privacy
from fedprior.privacy import events

FALSE_ALARM = 1e-6
COHORTS = {
    "everyone": privacy.Everyone(),
    "fixed": privacy.FixedSize(size=4),
    "fixed, amplified": privacy.FixedSize(size=4, amplifies=True),
    "poisson": privacy.Poisson(rate=0.3),
    "poisson, capped": privacy.Poisson(rate=0.3, cap=1000),
    "cyclic": privacy.Cyclic(parts=4),
    "cyclic, sampled": privacy.Cyclic(parts=4, rate=0.3),
}
each_cohort = pytest.mark.parametrize("name", COHORTS)


def test_every_cohort_is_here():
    public = [getattr(privacy, name) for name in privacy.__all__]
    classes = {each for each in public if isinstance(each, type) and hasattr(each, "amplify")}
    assert classes == {type(cohort) for cohort in COHORTS.values()}


@each_cohort
@given(num_clients=st.integers(4, 300), seed=st.integers(0, 2**40), round=st.integers(0, 10**6))
def test_ids_are_distinct_and_within_capacity(name, num_clients, seed, round):
    cohort = COHORTS[name]
    drawn = cohort.draw(seed, round, num_clients)
    assert drawn.dtype == np.int32
    assert len(np.unique(drawn)) == len(drawn) <= cohort.capacity(num_clients) <= num_clients
    assert ((drawn >= 0) & (drawn < num_clients)).all()


@each_cohort
def test_a_draw_depends_on_its_arguments_alone(name):
    """Not on draws before it; on the seed and the round wherever there is a choice."""
    cohort = COHORTS[name]
    asked = [(7, 3), (7, 4), (8, 3), (7, 3)]
    draws = [tuple(cohort.draw(seed, round, 40).tolist()) for seed, round in asked]
    assert draws[0] == draws[3]
    assert len(set(draws)) == {"everyone": 1, "cyclic": 2}.get(name, 3)
    np.random.default_rng(0).random(3)  # nobody else's stream
    assert tuple(cohort.draw(7, 3, 40).tolist()) == draws[0]


@each_cohort
def test_the_expected_size_is_the_mean_size(name):
    """3000 rounds of 20 clients: detects a share of the clients that is off by 0.01."""
    cohort, rounds, num_clients = COHORTS[name], 3000, 20
    sizes = [len(cohort.draw(5, round, num_clients)) for round in range(rounds)]
    expected = cohort.expected_size(num_clients)
    if hasattr(cohort, "overflow") and cohort.rate < 1:
        test = stats.binomtest(sum(sizes), rounds * num_clients, expected / num_clients)
        assert test.pvalue > FALSE_ALARM
    else:
        assert set(sizes) == {expected}


@each_cohort
def test_the_sampler_that_draws_is_the_one_that_is_accounted_for(name):
    cohort, event = COHORTS[name], events.gaussian(2.0)
    amplified = cohort.amplify(event, 20)
    assert (amplified.mechanism, amplified.noise) == (event.mechanism, event.noise)
    said = {"cyclic": "everyone", "cyclic, sampled": "poisson"}.get(name, name.split(",")[0])
    assert amplified.sampling == said
    if said == "poisson":
        assert amplified.rate * 20 / cohort.cycle == pytest.approx(cohort.expected_size(20))
        assert amplified.overflow == cohort.overflow(20)
    if said == "fixed":
        assert (amplified.size, amplified.num_clients) == (cohort.expected_size(20), 20)
        assert amplified.amplified == cohort.amplifies


@each_cohort
def test_nobody_takes_part_out_of_turn(name):
    """A client that takes part in rounds i and j has i = j modulo the cycle."""
    cohort, turns = COHORTS[name], {}
    for round in range(60):
        for client in cohort.draw(3, round, 22).tolist():
            turns.setdefault(client, set()).add(round % cohort.cycle)
    assert len(turns) == 22
    assert all(len(each) == 1 for each in turns.values())


def test_every_client_of_a_sampled_part_is_as_likely_as_any_other():
    """1,000 turns of 5 or 6 clients: detects a probability that is off by 0.1."""
    cohort, num_clients, rounds = COHORTS["cyclic, sampled"], 22, 4_000
    drawn = np.concatenate([cohort.draw(9, round, num_clients) for round in range(rounds)])
    counts = np.bincount(drawn, minlength=num_clients)
    pvalues = [stats.binomtest(int(count), rounds // 4, 0.3).pvalue for count in counts]
    assert min(pvalues) > FALSE_ALARM / num_clients
