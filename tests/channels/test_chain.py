"""Chains: order, one private member, and what stands between clip and noise."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.chain import Chain
from fedprior.channels.identity import Identity
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.channels.randomized_response import OneBit
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import Channel

CENTRAL = CentralGaussian(clip=1.0, noise_multiplier=3.0)
ROUNDING = Quantize(bits_per_coordinate=3, low=-1.0, high=1.0)


@dataclass(frozen=True)
class Doubling(Channel):
    """Doubles every message, and says nothing of it."""

    def encode(self, message, key):
        return 2 * message

    def decode(self, total, key):
        return total / 2


def draws():
    return np.random.default_rng(0)


def test_members_encode_in_order_and_decode_backwards():
    chain = Chain((Doubling(), LocalGaussian(clip=1.0, scale=1e-9)))
    message = np.array([[0.1, 0.2]])
    sent = chain.encode(message, draws())
    np.testing.assert_allclose(sent, [[0.2, 0.4]], atol=1e-6)
    np.testing.assert_allclose(chain.decode(sent, draws()), message, atol=1e-6)


def test_one_private_member_at_most():
    with pytest.raises(ValueError, match="at most one is private"):
        Chain((OneBit(epsilon=1.0), CENTRAL))
    with pytest.raises(ValueError, match="at least one channel"):
        Chain(())
    assert not Chain((Identity(), ROUNDING)).private
    with pytest.raises(PrivacyError, match="must include a private one"):
        Chain((Identity(),)).event(3)


def test_what_follows_a_local_member_is_post_processing():
    chain = Chain((LocalGaussian(clip=1.0, scale=2.0), ROUNDING))
    assert chain.event(5) == LocalGaussian(clip=1.0, scale=2.0).event(5)
    assert chain.view == "local"


def test_a_silent_member_between_clip_and_noise_is_refused():
    with pytest.raises(PrivacyError, match="must state its sensitivity"):
        Chain((CENTRAL, Doubling()))
    Chain((Doubling(), CENTRAL))  # before the clip it is part of the message


@dataclass(frozen=True)
class Stretching(Doubling):
    """States how far it carries a message, but not what it does to the sum."""

    def encode(self, message, key):
        return message

    def decode(self, total, key):
        return 100 * total

    def sensitivity(self, clip, dimension):
        return clip


def test_nothing_acts_on_the_sum_before_its_noise():
    chain = Chain((CENTRAL, Stretching()))
    totals = [chain.decode(total, draws()) for total in (np.zeros((1, 2)), np.ones((1, 2)))]
    np.testing.assert_allclose(totals[1] - totals[0], 1.0)


def test_chains_do_not_nest():
    with pytest.raises(ValueError, match="channels, not chains"):
        Chain((Chain((CENTRAL,)), ROUNDING))


def test_rounding_after_the_clip_costs_what_it_may_add():
    chain = Chain((CENTRAL, ROUNDING))
    dimension = 7
    reach = ROUNDING.sensitivity(1.0, dimension)
    assert chain.event(dimension).noise == pytest.approx(3.0 / reach)
    messages = np.random.default_rng(1).normal(size=(5000, dimension))
    norms = np.linalg.norm(chain.encode(messages, draws()), axis=1)
    assert norms.max() > 1.0  # rounding does pass the clip
    assert norms.max() <= reach
    off_center = Chain((CENTRAL, Quantize(bits_per_coordinate=3, low=0.5, high=1.0)))
    with pytest.raises(ValueError, match="a range that contains 0"):
        off_center.event(dimension)


def test_a_chain_runs_in_the_engine(federation):
    import fedprior

    chain = Chain((CENTRAL, ROUNDING))
    model = fedprior.models.logistic(4, 3)
    algorithm = fedprior.learning.fedavg(
        model, steps=fedprior.Steps(local_steps=1, batches=fedprior.Batches(size=4))
    )
    run = {"rounds": 2, "channel": chain}
    result = fedprior.simulate(algorithm, federation, **run)
    slow = fedprior.debug(algorithm, federation, **run)
    learned, again = (each.state["gamma"]["mean"]["weight"] for each in (result, slow))
    np.testing.assert_allclose(learned, again, atol=1e-5)
    assert np.abs(learned).max() > 0.3  # noise of scale 3 on a mean of five messages
    assert hash(chain) == hash(Chain((CENTRAL, ROUNDING)))
