"""The laws of a channel (core/protocols.py), for every channel."""

from copy import deepcopy
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from law_cases import Turns, algorithm_of, same, small_federation

import fedprior
from fedprior import channels
from fedprior.core import random

NUM = 3  # coordinates of a message
CENTRAL = channels.CentralGaussian(clip=1.0, noise_multiplier=0.5)
LOCAL = channels.LocalGaussian(clip=1.0, scale=0.5)
MATRIX = channels.MatrixGaussian(
    clip=1.0,
    noise_multiplier=0.5,
    strategy=fedprior.privacy.Banded((1.0, 0.5)),
    participation=fedprior.privacy.Participation(rounds=3),
)
MASKED = channels.DistributedGaussian(clip=1.0, noise_multiplier=0.5, size=3, missing=1)
ROUNDING = channels.Quantize(bits_per_coordinate=2, low=-1.0, high=1.0)
CHANNELS = {
    "identity": channels.Identity(),
    "central": CENTRAL,
    "matrix": MATRIX,
    "local": LOCAL,
    "masked": MASKED,
    "quantize": ROUNDING,
    "one bit": channels.OneBit(epsilon=2.0, low=-1.0, high=1.0),
    "k-ary": channels.KaryResponse(epsilon=2.0, num_symbols=NUM),
    "central, rounded": channels.Chain((CENTRAL, ROUNDING)),
    "local, rounded": channels.Chain((LOCAL, ROUNDING)),
}
# How far apart two messages may be once encoded with the same draws, whatever they were.
_ONE_BIT = 2 * NUM / CHANNELS["one bit"].contrast  # one of two values, of one coordinate
REACH = {
    "identity": np.inf,
    "central": 2.0,
    "matrix": 2.0,
    "local": 2.0,
    "masked": 2.0,
    "quantize": 2 * NUM**0.5,
    "one bit": _ONE_BIT,
    "k-ary": 2**0.5 / CHANNELS["k-ary"].keep,
    "central, rounded": 2 * ROUNDING.sensitivity(1.0, NUM),
    "local, rounded": 2 * NUM**0.5,
}
VECTORS = arrays.arrays(np.float32, NUM, elements=st.floats(-(2**60), 2**60, width=32))


def decoded(channel, total, key):
    """The release of a first round; the leading axes of `total` are messages of their own."""
    like = channel.begin(total.shape[-1])
    memory = jax.tree.map(lambda a: np.zeros((a.shape[0], *total.shape), a.dtype), like)
    return channel.release(total, key, memory)[0]


each_channel = pytest.mark.parametrize("name", CHANNELS)


def test_every_channel_is_here():
    known = {getattr(channels, name) for name in channels.__all__}
    classes = {each for each in known if isinstance(each, type) and hasattr(each, "encode")}
    assert classes == {type(channel) for channel in CHANNELS.values()}


@each_channel
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("device", [False, True])
def test_a_message_that_is_not_finite_is_protected(name, value, device):
    """Its upload is finite and within the reach of all others, and depends on the draws alone."""
    channel = CHANNELS[name]
    if not channel.private:
        pytest.skip("The channel protects nothing.")
    one, other = np.zeros((2, NUM), np.float32)
    one[1] = value
    xp = jnp if device else np
    sent = []
    for message in (one, other):
        key = random.fold(random.root(4), "encode") if device else random.stream(4, "encode")
        sent.append(np.asarray(channel.encode(xp.asarray(message), key)))
    assert np.isfinite(sent[0]).all()
    assert np.linalg.norm(sent[0] - sent[1]) <= REACH[name] * (1 + 1e-5)


@each_channel
@given(first=VECTORS, second=VECTORS, seed=st.integers(0, 2**20))
@settings(max_examples=50)
def test_encoding_bounds_a_message(name, first, second, seed):
    """A clip, a range or a set of answers; without one, the message as it is."""
    channel = CHANNELS[name]
    sent = [channel.encode(each, random.stream(seed, "encode")) for each in (first, second)]
    assert all(each.shape == (NUM,) for each in sent)
    if name == "identity":
        same(sent, [first, second])
    else:
        assert np.linalg.norm(sent[0] - sent[1]) <= REACH[name] * (1 + 1e-6)


@pytest.mark.parametrize("name", ["central", "central, rounded"])
@given(message=VECTORS, seed=st.integers(0, 2**20))
def test_a_central_channel_sends_no_more_than_its_event_pays_for(name, message, seed):
    """The event's noise is that of the sum over the longest upload."""
    channel = CHANNELS[name]
    longest = CENTRAL.clip * CENTRAL.noise_multiplier / channel.event(NUM).noise
    sent = channel.encode(message, random.stream(seed, "encode"))
    assert np.linalg.norm(sent) <= longest * (1 + 1e-6)


@each_channel
@given(first=VECTORS, second=VECTORS, seed=st.integers(0, 2**20))
@settings(max_examples=30)
def test_decoding_moves_with_the_sum(name, first, second, seed):
    """Noise and all: decode(a) - decode(b) = a - b, so an update of the sum is one of its mean."""
    channel = CHANNELS[name]
    first, second = (np.clip(each, -100, 100) for each in (first, second))
    found = [decoded(channel, each, random.stream(seed, "decode")) for each in (first, second)]
    np.testing.assert_allclose(found[0] - found[1], first - second, atol=1e-4)


@each_channel
def test_draws_are_keyed(name):
    """The same key gives the same bits, another one others where the channel draws at all."""
    channel, message = CHANNELS[name], jnp.asarray([0.3, -0.2, 0.1])
    keys = [random.fold(random.root(0), "encode", 0, client) for client in range(20)]

    def draw(key):
        return np.stack([channel.encode(message, key), decoded(channel, message, key)])

    uploads = [draw(key) for key in keys]
    same(uploads, [draw(key) for key in keys])
    differing = {upload.tobytes() for upload in uploads}
    assert (len(differing) > 1) == (name != "identity")


@each_channel
def test_numpy_and_jax_agree(name, monkeypatch):
    """With the same draws, to rounding."""
    channel, table = CHANNELS[name], np.random.default_rng(0)
    draws = {"uniform": table.random((6, NUM)), "normal": table.normal(size=(6, NUM))}
    messages = np.random.default_rng(1).normal(size=(6, NUM)).astype("f4")

    def drawn(kind, namespace):
        def draw(key, shape):
            return namespace.asarray(draws[kind][: shape[0], : shape[-1]], "f4")

        return draw

    found = []
    for namespace in (np, jnp):
        for kind in draws:
            monkeypatch.setattr(random, kind, drawn(kind, namespace))
        given = namespace.asarray(messages)
        sent = channel.encode(given, random.root(0))
        received = decoded(channel, sent, random.root(0))
        assert isinstance(received, np.ndarray if namespace is np else jax.Array)
        found.append((sent, received))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-5)


@each_channel
def test_channels_are_values(name):
    """Compiled programs and fingerprints are kept by them."""
    channel = CHANNELS[name]
    twin = deepcopy(channel)
    assert twin == channel
    assert hash(twin) == hash(channel)
    assert channel.private == (name not in ("identity", "quantize"))
    if channel.private:
        assert channel.view in ("central", "local", "masked")
        assert channel.event(NUM).noise > 0


# A masked sum refuses cohorts of varying size; tests/channels/test_channels_in_engines.py has it.
IN_ENGINE = {
    name: channel
    for name, channel in CHANNELS.items()
    if name not in ("quantize", "k-ary", "masked")
} | {
    "quantize": channels.Quantize(bits_per_coordinate=3, low=-1.0, high=1.0, weighted=True),
    "k-ary": channels.KaryResponse(epsilon=2.0, num_symbols=9),  # a message of `fedavg` here
}


@pytest.mark.parametrize("name", IN_ENGINE)
def test_an_absent_client_adds_exactly_zero_and_no_weight_is_encoded(name, monkeypatch):
    """Whatever its samples hold, and noise included; private channels get values alone."""
    channel, widths = IN_ENGINE[name], set()
    encode = type(channel).encode

    def seen(self, message, key):
        widths.add(message.shape[-1])
        return encode(self, message, key)

    monkeypatch.setattr(type(channel), "encode", seen)
    fedavg = replace(algorithm_of("fedavg"))  # another one: compiled anew, and so seen
    absent = Turns(((0, 1), (2,), ()))  # the last client
    states = []
    for spoiled in (False, True):
        clients = small_federation()
        if spoiled:
            clients.train.x[clients.train.start[3] :] = 1e3
        run = {"rounds": 3, "cohort": absent, "channel": channel}
        states.append(fedprior.simulate(fedavg, clients, **run).state)
    same(*states)
    assert widths == ({9} if channel.private else {10})


@pytest.mark.parametrize("method", ["fedavg", "adaped", "gaussian-em"])
def test_nobody_learns_of_the_size_of_another_through_a_private_channel(method):
    """A run of which somebody is absent is the same to the bit with anybody in that place."""
    run = {"rounds": 2, "cohort": Turns(((0, 1), (1, 2))), "channel": CENTRAL}
    states = [
        fedprior.simulate(algorithm_of(method), small_federation(sizes), test=False, **run).state
        for sizes in ((4, 7, 6, 5), (4, 7, 6, 30), (4, 7, 6, 1))
    ]
    same(states[0], states[1])
    same(states[0], states[2])
