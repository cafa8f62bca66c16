"""The matrix mechanism in a configuration: who takes turns, the noise of a budget, refusals."""

import pytest

from fedprior.channels import MatrixGaussian
from fedprior.core.check import PrivacyError
from fedprior.exchange.facts import Facts
from fedprior.privacy import strategy
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import Cyclic
from fedprior.privacy.participation import Participation
from fedprior.privacy.strategy import Banded, Buffered, sensitivity
from fedprior.reporting.config import read
from fedprior.reporting.noise import equivalent_noise
from fedprior.reporting.training import Study

FACTS = Facts(num_clients=101, shape=(2,), num_classes=3, most_samples=5)
MATRIX = [
    "privacy.epsilon=4",
    "privacy.delta=1e-3",
    "privacy.mechanism=matrix",
    "privacy.coefficients=[1.0, 0.5]",
    "model.name=logistic",
    "training.rounds=20",
    "training.cohort_size=20",
]


def setting(*changes):
    return Study(read(None, [*MATRIX, *changes]), FACTS).training("fedavg-fine-tuning")


def test_clients_take_turns_and_the_noise_keeps_to_the_budget():
    found = setting()
    assert found.cohort == Cyclic(parts=5)
    channel = found.channel
    assert isinstance(channel, MatrixGaussian)
    assert channel.participation == Participation(rounds=20, apart=5, most=4)
    event, count = channel.charge(found.cohort, 101, 1)
    assert 3.9 < epsilon([(event, count)], delta=1e-3) <= 4
    found.check_affordable(101)
    # Two bands: the last turn of a client moves two coordinates of C x like all others.
    assert sensitivity(channel.strategy, channel.participation) == pytest.approx(5**0.5)


def test_sampling_in_turn_needs_less_noise_for_those_who_see_models():
    turns, sampled = setting(), setting("training.sampling_rate=0.2", "training.cohort=cyclic")
    assert sampled.cohort == Cyclic(parts=5, rate=0.2)
    assert sampled.channel.noise_multiplier < 0.7 * turns.channel.noise_multiplier


def test_noise_that_cancels_is_worth_less_of_independent_noise():
    channel, privacy = setting().channel, read(None, MATRIX).privacy
    assert equivalent_noise(channel, privacy) < 0.75 * channel.noise_multiplier


def test_secure_noise_needs_sums_that_are_exact():
    one = ["privacy.noise=secure", 'methods=["fedavg-fine-tuning"]']
    assert setting(*one).channel.noise == "secure"
    with pytest.raises(PrivacyError, match="strategy must be banded for secure noise"):
        setting(*one, "privacy.strategy=buffered")


def test_other_rules_and_strategies():
    found = setting("privacy.separation=2", "privacy.participations=3", "training.cohort=everyone")
    assert found.channel.participation == Participation(rounds=20, apart=2, most=3)
    buffered = setting("privacy.strategy=buffered", "privacy.coefficients=[0.9, 0.5]")
    assert buffered.channel.strategy == Buffered((0.9,), (0.5,))
    assert setting().channel.strategy == Banded((1.0, 0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("privacy.mechanism=gaussian", "coefficients must be left out"),
        ("privacy.adaptive_clip=0.5", "adaptive_clip must be 0"),
        ("privacy.epsilon=0", "epsilon must be given"),
        ("privacy.bands=-1", "bands must be a whole number"),
        ("training.parts=5", "parts must be left out"),
    ],
)
def test_refusals(change, words):
    with pytest.raises((ValueError, PrivacyError), match=words):
        setting(change).cohort.capacity(101)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["training.parts=5"], "parts must be left out"),
        (["training.parts=5", "training.cohort=fixed"], "parts must be left out"),
        (["privacy.strategy=buffered", "privacy.epsilon=1", "privacy.delta=1e-3"], "strategy must"),
    ],
)
def test_keys_without_effect_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        read(None, changes)


def test_more_parts_than_clients_are_refused():
    with pytest.raises(ValueError, match="parts must be at most the number of clients"):
        setting("training.cohort_size=0", "training.parts=500").cohort.capacity(101)


def test_coefficients_spare_a_run_the_optimizer(monkeypatch):
    """A machine without jax-privacy runs, and loads, what another one has optimized."""
    monkeypatch.setattr(strategy, "find_spec", lambda name: None)
    strategy._banded.cache_clear()
    assert setting().channel.noise_multiplier > 0
    with pytest.raises(PrivacyError, match=r"pip install 'fedprior\[matrix\]'"):
        setting("privacy.coefficients=[]")
