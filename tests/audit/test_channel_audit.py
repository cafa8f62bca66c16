"""The audit of single channels: sound ones pass, broken ones are caught."""

import numpy as np
import pytest
from faults import (
    POWER,
    BlockClip,
    HalfLocalNoise,
    HalfNoise,
    HalfShares,
    KeptSymbol,
    LoudBit,
    NoClip,
    NoLocalClip,
    OneNoise,
    UnclippedBit,
    power_of_event,
)
from scipy.stats import binom, chi2, norm

from fedprior.audit import channels, draws, responses
from fedprior.audit.noise import deviations, upper_scale
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import KaryResponse, OneBit

FALSE_ALARM = 1e-6
CONFIDENCE = 1 - FALSE_ALARM
DELTA = 0.01
DRAWS = 20_000
AT = {"seed": 0, "draws": DRAWS, "confidence": CONFIDENCE, "delta": DELTA}
PURE = {"seed": 0, "draws": DRAWS, "confidence": CONFIDENCE}
CENTRAL = {"clip": 0.5, "noise_multiplier": 1.0}
LOCAL = {"clip": 1.0, "scale": 2.0, "center": (3.0, -1.0)}


def test_sound_central_noise_passes():
    channel = CentralGaussian(**CENTRAL)
    attack = channels.attack_central(channel, **AT)
    assert attack.passed
    assert attack.lower_bound > 0.5 * attack.claimed  # the attack has teeth
    noise = draws.check_central_noise(channel, **AT)
    assert noise.passed, noise
    assert noise.lower_bound > 0.95 * noise.claimed
    assert draws.check_central_clip(channel, seed=0, delta=DELTA).passed


def test_sound_local_noise_passes():
    channel = LocalGaussian(**LOCAL)
    attack = channels.attack_local(channel, **AT)
    assert attack.passed
    assert attack.lower_bound > 0.5 * attack.claimed
    assert draws.check_local_noise(channel, **AT).passed
    assert draws.check_local_clip(channel, seed=0, delta=DELTA).passed


@pytest.mark.parametrize("dimension", [1, 3])
def test_sound_bits_pass(dimension):
    channel = OneBit(epsilon=1.5, low=(-2.0,) * dimension, high=(3.0,) * dimension)
    attack = channels.attack_one_bit(channel, **PURE)
    assert attack.passed
    assert attack.lower_bound > 0.9 * attack.claimed
    exact = responses.check_one_bit(channel, **PURE)
    assert exact.passed, exact
    assert exact.lower_bound == pytest.approx(1.5, abs=1e-4)


@pytest.mark.parametrize(("epsilon", "num_symbols"), [(0.1, 2), (2.0, 3), (6.0, 11)])
def test_sound_responses_pass(epsilon, num_symbols):
    channel = KaryResponse(epsilon=epsilon, num_symbols=num_symbols)
    assert channels.attack_response(channel, **PURE).passed
    exact = responses.check_response(channel, **PURE)
    assert exact.passed, exact
    assert exact.lower_bound == pytest.approx(epsilon, abs=1e-4)


def test_the_exact_law_is_that_of_the_printed_table():
    channel = KaryResponse(epsilon=2.0, num_symbols=5)
    found = [
        [float(chance) for chance in responses._law_of_answers(channel, symbol)]
        for symbol in range(5)
    ]
    np.testing.assert_allclose(found, channel.matrix(), rtol=1e-14)
    bit = OneBit(epsilon=2.0, low=-1.0, high=1.0)
    for share in (0.0, 0.3, 1.0):
        chance = responses._probability_of_one(bit, -1 + 2 * share)
        assert float(chance) == pytest.approx(float(bit.probability(np.float64(share))), abs=1e-15)


def test_secure_noise_passes():
    pytest.importorskip("opendp")
    channel = CentralGaussian(**CENTRAL, noise="secure")
    assert draws.check_central_noise(channel, **AT | {"draws": 2000}).passed


def test_sound_shares_of_the_noise_pass_and_half_shares_are_caught():
    """Power above 0.999: as half the local noise, below."""
    fields = {"clip": 0.5, "noise_multiplier": 2.0, "size": 4, "missing": 1}
    attack = channels.attack_distributed(DistributedGaussian(**fields), **AT)
    assert attack.passed
    assert attack.lower_bound > 0.5 * attack.claimed
    assert not channels.attack_distributed(HalfShares(**fields), **AT).passed


@pytest.mark.parametrize("missing", [0, 1])
def test_secure_shares_of_the_noise_pass(missing):
    pytest.importorskip("opendp")
    channel = DistributedGaussian(
        clip=0.5, noise_multiplier=1.0, size=3, missing=missing, noise="secure"
    )
    assert channels.attack_distributed(channel, **AT | {"draws": 1000}).passed


def test_half_the_central_noise_is_caught_by_the_attack():
    """Power above 0.999: with sigma = 1/2 of the clip in place of 1, the event {sum > 1.2 clips}
    has rates 0.345 and 0.0082 with and without the canary. Of 10,000 tested runs each the bound
    log((0.345 - 0.01) / 0.0082) = 3.7, less its confidence limits, passes the claimed 2.32 with
    probability above 1 - 1e-9 (both binomials summed exactly, below).
    """
    likely, rare = norm.sf((1.2 - 1) / 0.5), norm.sf(1.2 / 0.5)
    found = channels.attack_central(HalfNoise(**CENTRAL), **AT)
    power = power_of_event(
        likely, rare, runs=DRAWS // 2, claimed=found.claimed, delta=DELTA, confidence=CONFIDENCE
    )
    assert power > POWER
    assert not found.passed
    assert found.lower_bound > found.claimed


def test_half_the_noise_is_caught_by_its_scale():
    """Power above 0.999: a sum of 20,000 squares of N(0, 1/4) is a quarter of a chi-square and
    lies below the lower critical value of a chi-square but for a probability below 1e-300.
    """
    critical = chi2.ppf((1 - CONFIDENCE) / 6 / 2 / 2 / 4, DRAWS)
    assert chi2.cdf(4 * critical, DRAWS) > POWER
    for found in (
        draws.check_central_noise(HalfNoise(**CENTRAL), **AT),
        draws.check_local_noise(HalfLocalNoise(**LOCAL), **AT),
    ):
        assert not found.passed
        assert "times the stated scale" in found.faults[0]
        assert found.lower_bound > 1.5 * found.claimed


def test_a_tenth_less_noise_is_caught_where_epsilon_is_small():
    """Conformance has power where no attack has: epsilon 0.07. A chi-square of 20,000 degrees,
    times 0.81, lies below the critical value with probability above 1 - 1e-9.
    """
    critical = chi2.ppf((1 - CONFIDENCE) / 6 / 2 / 2 / 4, DRAWS)
    assert chi2.cdf(critical / 0.81, DRAWS) > POWER
    noise = 0.9 * np.random.default_rng(0).standard_normal((DRAWS, 4))
    assert "times the stated scale" in deviations(noise, 1.0, alarm=1 - CONFIDENCE)[0]
    assert upper_scale(noise, alarm=1 - CONFIDENCE) < 1


def test_half_the_local_noise_is_caught_by_the_attack():
    """Power above 0.999: messages 2 clips apart, sigma = 1 in place of 2; {along > 0.9} has rates
    0.540 and 0.0287, where 2.32 is claimed; summed exactly below.
    """
    found = channels.attack_local(HalfLocalNoise(**LOCAL), **AT)
    power = power_of_event(
        norm.sf(0.9 - 1),
        norm.sf(0.9 + 1),
        runs=DRAWS // 2,
        claimed=found.claimed,
        delta=DELTA,
        confidence=CONFIDENCE,
    )
    assert power > POWER
    assert not found.passed


@pytest.mark.parametrize("channel", [NoClip(**CENTRAL), BlockClip(**CENTRAL)])
def test_a_forgotten_central_clip_is_caught(channel):
    """Power 1: the canary's message is 1000 clips long, so the clip check fails whatever is drawn;
    in the attack the worlds are 500 standard deviations apart or more (in a quarter of the
    coordinates), and 10,000 runs told apart without an error bound epsilon by 6.3 or more.
    """
    clip = draws.check_central_clip(channel, seed=0, delta=DELTA)
    assert not clip.passed
    attack = channels.attack_central(channel, **AT)
    assert not attack.passed
    assert attack.lower_bound > 6


def test_a_forgotten_local_clip_is_caught():
    """Power 1, as for the central clip."""
    assert not draws.check_local_clip(NoLocalClip(**LOCAL), seed=0, delta=DELTA).passed
    assert not channels.attack_local(NoLocalClip(**LOCAL), **AT).passed


def test_noise_shared_between_coordinates_is_caught():
    """Power 1: the coordinates' correlation is exactly 1, and the differences bare the message."""
    found = draws.check_central_noise(OneNoise(**CENTRAL), **AT)
    assert "noise that is shared between coordinates or rounds" in found.faults


def test_noise_of_another_shape_is_caught():
    """Uniform noise of the right variance: Kolmogorov's distance is 0.057, so that 80,000 values
    miss the critical 0.0097 by more than ten of their standard errors (0.0018).
    """
    uniform = np.random.default_rng(1).uniform(-(3**0.5), 3**0.5, (DRAWS, 4))
    assert deviations(uniform, 1.0, alarm=1 - CONFIDENCE) == ("noise that is not normal",)


def test_a_louder_bit_is_caught():
    """Power above 0.999: P(bit) = 0.953 and 0.047 where 0.818 and 0.182 are claimed (epsilon 1.5);
    the exact law leaves nothing to chance.
    """
    channel = LoudBit(epsilon=1.5, low=-1.0, high=1.0)
    loud = 1 / (1 + np.exp(-3.0))
    power = power_of_event(
        loud, 1 - loud, runs=DRAWS // 2, claimed=1.5, delta=0.0, confidence=CONFIDENCE
    )
    assert power > POWER
    assert not channels.attack_one_bit(channel, **PURE).passed
    exact = responses.check_one_bit(channel, **PURE)
    assert exact.lower_bound == pytest.approx(3.0, abs=1e-4)
    assert not exact.passed


def test_a_bit_of_values_out_of_range_is_caught():
    """Power 1: the bit of a value far outside its range is sure."""
    channel = UnclippedBit(epsilon=1.5)
    assert not channels.attack_one_bit(channel, **PURE).passed
    exact = responses.check_one_bit(channel, **PURE)
    assert np.isinf(exact.lower_bound)
    assert exact.describe()["lower_bound"] is None


def test_a_symbol_kept_too_often_is_caught():
    """Power above 0.999: with k = 4, epsilon = 1, c = 0.3, the symbol is told with probability 0.65
    and each other one with 0.117, a ratio of 5.6 = e^1.7; summed exactly below.
    """
    channel = KeptSymbol(epsilon=1.0, num_symbols=4)
    often = channel.keep + 0.5 * (1 - channel.keep)
    power = power_of_event(
        often, (1 - often) / 3, runs=DRAWS // 2, claimed=1.0, delta=0.0, confidence=CONFIDENCE
    )
    assert power > POWER
    assert not channels.attack_response(channel, **PURE).passed
    assert not responses.check_response(channel, **PURE).passed


def test_clipped_messages_at_every_edge_are_finite():
    channel = CentralGaussian(**CENTRAL)
    for message in draws.messages(channel.clip, seed=0):
        assert np.isfinite(message).all()
    assert draws.longest(np.array([np.nan, 1.0])) == np.inf


@pytest.mark.evidence
def test_half_the_noise_is_caught_7000_times_of_7000(monkeypatch):
    """No miss in 7,000 audits puts the power above 0.999 with 99.9% confidence."""
    claimed = channels.attack_central(CentralGaussian(**CENTRAL), **AT).claimed
    monkeypatch.setattr(channels, "epsilon", lambda *spent, **at: claimed)  # is slow
    monkeypatch.setattr(channels, "detects", lambda *runs, **at: "")
    for seed in range(7000):
        found = channels.attack_central(HalfNoise(**CENTRAL), **AT | {"seed": seed})
        assert not found.passed


@pytest.mark.evidence
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_sound_channels_fail_no_more_often_than_is_said(multiplier, monkeypatch):
    """At confidence 0.99, 2,000 audits: a rate of false alarms of 2.3% would be seen."""
    channel = CentralGaussian(clip=0.5, noise_multiplier=multiplier)
    claimed = channels.attack_central(channel, **AT).claimed
    for place in (channels, draws):
        monkeypatch.setattr(place, "epsilon", lambda *spent, **at: claimed)
    monkeypatch.setattr(channels, "detects", lambda *runs, **at: "")  # is slow
    alarms = np.zeros(2, np.int64)
    for seed in range(2000):
        at = AT | {"seed": seed, "confidence": 0.99}
        alarms[0] += not channels.attack_central(channel, **at).passed
        alarms[1] += draws.check_central_noise(channel, **at | {"draws": 2000}).faults != ()
    assert binom.sf(alarms - 1, 2000, 0.01).min() > FALSE_ALARM, alarms
