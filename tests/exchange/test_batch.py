"""Rounds of a batch: what is sent is what was charged, and it was charged before."""

import numpy as np
import pytest

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import random
from fedprior.core.check import PrivacyError
from fedprior.exchange.batch import Batch, Rounds
from fedprior.privacy import accounting
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.terms import Terms

ROWS = np.random.default_rng(0).uniform(size=(40, 1))


def open_ledger(path, **changes):
    terms = {"delta": 0.0, "relation": "replace-one", "view": "local", "noise": "secure"}
    return Ledger(path, Terms(**{**terms, "unit": "group", **changes}))


def batch(channel, dimension=1, **changes):
    return Batch.of("a question", channel, dimension, **{"num_clients": 40, **changes})


def test_questions_add_up_on_one_ledger(tmp_path):
    channel = OneBit(epsilon=0.7, noise="secure")
    for _ in range(3):
        with (
            open_ledger(tmp_path / "ledger") as ledger,
            batch(channel).charged(ledger, content=()) as rounds,
        ):
            rounds.gather(channel, ROWS, rounds.key("encode"))
            spent = ledger.spent
    assert spent == pytest.approx(2.1)
    _, records = read(tmp_path / "ledger")
    assert [each["kind"] for each in records] == ["open", *["reserve", "commit"] * 3]


def test_the_reservation_is_on_disk_before_a_key_can_be_had(tmp_path):
    channel = OneBit(epsilon=0.7, noise="secure")
    path = tmp_path / "ledger"
    with open_ledger(path) as ledger:
        charged = batch(channel).charged(ledger, content=())
        assert read(path)[1][-1]["kind"] == "open"
        charged.__enter__()
        assert read(path)[1][-1]["kind"] == "reserve"
        with pytest.raises(KeyboardInterrupt):
            charged.gen.throw(KeyboardInterrupt)
    assert read(path)[1][-1]["kind"] == "reserve"  # spent, and never committed


def test_the_guarantee_is_the_accountants_for_what_was_charged():
    channel = LocalGaussian.calibrated(clip=1.0, epsilon=2.0, delta=1e-5, rounds=3)
    whole = batch(channel, delta=1e-5, rounds=3).guarantee(unit="one group", mechanism="noise")
    spent = [(channel.event(1), 3)]
    assert whole.epsilon == accounting.epsilon(spent, delta=1e-5, relation="replace-one")
    assert whole.epsilon == pytest.approx(2.0)
    assert whole.noise == "simulated"
    assert whole.trust == "nobody (local model)"


@pytest.mark.parametrize(
    ("charged", "sent"),
    [
        (OneBit(epsilon=0.7), OneBit(epsilon=0.8)),
        (OneBit(epsilon=0.7, noise="secure"), OneBit(epsilon=0.7)),
        (LocalGaussian(clip=1.0, scale=3.0), LocalGaussian(clip=1.0, scale=2.9)),
        (LocalGaussian(clip=1.0, scale=3.0), CentralGaussian(clip=1.0, noise_multiplier=3.0)),
        (LocalGaussian(clip=1.0, scale=3.0), OneBit(epsilon=0.1)),
        (OneBit(epsilon=0.7), Quantize(bits_per_coordinate=2, low=0.0, high=1.0)),
    ],
)
def test_a_channel_that_costs_something_else_is_refused(tmp_path, charged, sent):
    terms = {"noise": charged.noise, "delta": 1e-5}
    with (
        open_ledger(tmp_path / "ledger", **terms) as ledger,
        batch(charged, delta=1e-5).charged(ledger, content=()) as rounds,
    ):
        for send in (rounds.gather, lambda *words: rounds.add(*words, dimension=1)):
            with pytest.raises(PrivacyError, match="must"):
                send(sent, ROWS, random.stream(0, "encode"))


def test_more_noise_than_was_charged_is_fine():
    with batch(LocalGaussian(clip=1.0, scale=3.0), delta=1e-5).charged(None, content=()) as rounds:
        rounds.gather(LocalGaussian(clip=2.0, scale=6.1), ROWS, rounds.key("encode"))
    with pytest.raises(PrivacyError, match="must be the one agreed on"):
        Rounds(None).gather(LocalGaussian(clip=1.0, scale=3.0), ROWS, random.stream(0, "encode"))


def test_secure_keys_are_the_operating_systems():
    channel = OneBit(epsilon=0.7, noise="secure")
    assert isinstance(Rounds(batch(channel)).key("encode"), random.Secure)
    keyed = Rounds(batch(OneBit(epsilon=0.7), seed=4)).key("encode", 1)
    assert keyed.random() == random.stream(4, "encode", 1).random()


def test_cohorts_beyond_exact_sums_are_refused_before_anything_is_charged():
    channel = CentralGaussian(clip=1.0, noise_multiplier=3.0, noise="secure")
    with pytest.raises(ValueError, match="limit of exact sums"):
        batch(channel, num_clients=2**17 + 1)


def test_nobody_sends_zero_and_the_noise_is_added():
    channel = CentralGaussian(clip=1.0, noise_multiplier=3.0)
    rounds = Rounds(batch(channel, 2, seed=1))
    total = rounds.add(channel, [], rounds.key("decode", 0), dimension=2)
    np.testing.assert_array_equal(total, 3 * random.stream(1, "decode", 0).standard_normal(2))


def test_the_same_content_with_another_seed_is_another_release(tmp_path):
    channel = OneBit(epsilon=0.5)
    with open_ledger(tmp_path / "ledger", noise="simulated") as ledger:
        for seed, spent in ((0, 0.5), (0, 0.5), (1, 1.0), (0, 1.0)):
            with batch(channel, seed=seed).charged(ledger, content=(ROWS,)):
                assert ledger.spent == spent
        with (
            pytest.raises(PrivacyError, match="Choose another seed"),
            batch(channel, seed=1).charged(ledger, content=(ROWS + 1,)),
        ):
            pytest.fail("two contents with one noise")


def test_no_more_messages_than_were_charged():
    channel = OneBit(epsilon=0.5)
    rounds = Rounds(batch(channel, rounds=2))
    for _ in range(2):
        rounds.gather(channel, ROWS[:10], rounds.key("encode"))
        rounds.gather(channel, ROWS[10:], rounds.key("encode"))
    with pytest.raises(PrivacyError, match="messages must be at most 2 per client"):
        rounds.gather(channel, ROWS[:1], rounds.key("encode"))
    symbols = KaryResponse(epsilon=0.5, num_symbols=3)
    rounds = Rounds(batch(symbols, 3))
    rounds.respond(symbols, np.zeros(40, int), rounds.key("encode"))
    with pytest.raises(PrivacyError, match="messages must be at most 1 per client"):
        rounds.respond(symbols, np.zeros(1, int), rounds.key("encode"))
    sums = CentralGaussian(clip=1.0, noise_multiplier=3.0)
    rounds = Rounds(batch(sums))
    rounds.add(sums, [ROWS[:1]], rounds.key("decode", 0), dimension=1)
    with pytest.raises(PrivacyError, match="messages must be at most 1 per client"):
        rounds.add(sums, [ROWS[:1]], rounds.key("decode", 1), dimension=1)
    with pytest.raises(PrivacyError, match="messages of a round must be at most 40"):
        Rounds(batch(sums)).add(sums, [ROWS, ROWS], rounds.key("decode", 0), dimension=1)


def test_messages_of_a_central_channel_are_not_handed_out_without_noise():
    channel = CentralGaussian(clip=1.0, noise_multiplier=3.0)
    rounds = Rounds(batch(channel))
    with pytest.raises(PrivacyError, match="must cost what was charged"):
        rounds.gather(channel, ROWS, rounds.key("encode"))


def test_secure_messages_are_not_drawn_from_a_seed():
    channel = OneBit(epsilon=0.5, noise="secure")
    with pytest.raises(PrivacyError, match="drawn from"):
        Rounds(batch(channel)).gather(channel, ROWS, random.stream(0, "encode"))
    channel = OneBit(epsilon=0.5)
    with pytest.raises(PrivacyError, match="drawn from"):
        Rounds(batch(channel)).gather(channel, ROWS, random.secure())
