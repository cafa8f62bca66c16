"""Noise, rounds and clients for a budget: each answer is the least, or the most, that holds."""

import math
from dataclasses import replace

import pytest

from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Event, gaussian
from fedprior.privacy.planning import (
    clients_needed,
    noise_multiplier,
    noise_to_signal,
    rounds_affordable,
)

SAMPLED = Event(mechanism="gaussian", noise=1.0, sampling="poisson", rate=0.01)


def spent(noise, rounds, relation="add-remove"):
    event = Event(mechanism="gaussian", noise=noise, sampling="poisson", rate=0.01)
    return epsilon([(event, rounds)], delta=1e-5, relation=relation)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_noise_is_the_least_that_holds(relation):
    found = noise_multiplier(SAMPLED, target=1.0, delta=1e-5, rounds=100, relation=relation)
    assert spent(found, 100, relation) <= 1.0
    assert spent(0.995 * found, 100, relation) > 1.0


@pytest.mark.evidence
@pytest.mark.parametrize("target", [40.0, 1000.0, 1e6])
def test_a_budget_that_hides_nothing_is_planned_for_as_well(target):
    event = Event(mechanism="gaussian", noise=1.0, sampling="poisson", rate=0.1)
    found = noise_multiplier(event, target=target, delta=1e-5, rounds=10)
    for noise, holds in ((found, True), (0.99 * found, False)):
        spent = epsilon([(replace(event, noise=noise), 10)], delta=1e-5)
        assert (spent <= target) == holds


def test_noise_without_sampling_is_analytic():
    found = noise_multiplier(gaussian(1.0), target=0.7, delta=1e-6, rounds=9)
    assert epsilon([(gaussian(found), 9)], delta=1e-6) <= 0.7
    assert epsilon([(gaussian(0.999 * found), 9)], delta=1e-6) > 0.7


@pytest.mark.parametrize(
    ("rate", "target", "rounds"),
    [(0.01, 3.0, 500), (0.001, 0.03, 3000), (0.2, 8.0, 40), (1 / 3, 1.0, 240)],
)
def test_what_is_planned_fits_when_it_is_typed_in_again(rate, target, rounds):
    """At the last round and at every one before, as a ledger asks, and with five digits."""
    event = Event(mechanism="gaussian", noise=1.0, sampling="poisson", rate=rate)
    found = noise_multiplier(event, target=target, delta=1e-5, rounds=rounds)
    assert float(f"{found:.5g}") == found
    typed = replace(event, noise=float(f"{found:.5g}"))
    for at in (rounds - 3, rounds - 2, rounds - 1, rounds):
        assert epsilon([(typed, at)], delta=1e-5) <= target
    assert rounds_affordable(typed, target=target, delta=1e-5) >= rounds


def test_rounds_are_the_most_that_hold():
    event = Event(mechanism="gaussian", noise=1.1, sampling="poisson", rate=0.05)
    found = rounds_affordable(event, target=2.0, delta=1e-5)
    assert epsilon([(event, found)], delta=1e-5) <= 2.0
    assert epsilon([(event, found + 2)], delta=1e-5) > 2.0
    assert rounds_affordable(gaussian(0.5), target=0.1, delta=1e-5) == 0


def test_clients_are_the_fewest_that_hold():
    found = clients_needed(noise=1.0, cohort_size=100, target=1.0, delta=1e-6, rounds=100)
    for clients, holds in ((found, True), (0.99 * found, False)):
        event = Event(mechanism="gaussian", noise=1.0, sampling="poisson", rate=100 / clients)
        assert (epsilon([(event, 100)], delta=1e-6) <= 1.0) == holds


def test_noise_to_signal_of_the_errata():
    """ERRATA 3.4: z sqrt(d + 1)/K = 158 at epsilon 1 (16.53, d = 44,426, K = 22)."""
    found = noise_to_signal(noise=16.53, num_parameters=44_427, rate=1 / 3, num_clients=66)
    assert found == pytest.approx(158, rel=0.01)
    assert found == pytest.approx(16.53 * math.sqrt(44_427) / 22)
    run = noise_to_signal(
        noise=16.53, num_parameters=44_427, rate=1 / 3, num_clients=66, rounds=100
    )
    assert run == pytest.approx(found / 10)  # updates add up, noise partly cancels
