import itertools
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2
from statistical import FALSE_ALARM, close_in_mean

from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import random

DRAWS = 20_000
GRID = 2.0**23


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 20.0, 60.0])
def test_one_bit_ratios_are_at_most_e_epsilon(epsilon):
    """Exactly, in the multiples of 2**-23 that a device draws: P(draw < p) = ceil(2^23 p) / 2^23.

    A finer grid (the host's) gives the same probabilities, which are multiples of the coarse one.
    """
    channel = OneBit(epsilon=epsilon)
    shares = channel.probability(np.linspace(0, 1, 101))
    ones = [int(each) for each in np.ceil(shares * GRID)]
    for first, second in itertools.product(ones, repeat=2):
        for a, b in ((first, second), (int(GRID) - first, int(GRID) - second)):
            assert a / b <= np.exp(epsilon)
    if epsilon <= 4:  # and no budget is wasted
        assert ones[-1] / ones[0] == pytest.approx(np.exp(epsilon), rel=1e-4)


def realized(channel, bits):
    """P(answer = s | symbol) for an s that is drawn as rarely as any, from `bits`-bit integers.

    Given s itself, and given another symbol: an integer w stands for the answer
    floor(w * num_symbols / 2^bits), which floor(2^bits / num_symbols) of them do for some s.
    """
    keep = Fraction(channel.keep)
    assert keep * 2**23 == int(keep * 2**23)  # what draws of any stream are compared with exactly
    drawn = Fraction(2**bits // channel.num_symbols, 2**bits)
    return keep + (1 - keep) * drawn, (1 - keep) * drawn


def bounded(ratio, epsilon):
    """Whether ratio <= e^epsilon, in 60 digits."""
    with localcontext(prec=60):
        return Decimal(ratio.numerator) / Decimal(ratio.denominator) <= Decimal(epsilon).exp()


@pytest.mark.parametrize("bits", [32, 53])
@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.5, 3.0, 8.0, 15.0, 40.0])
@pytest.mark.parametrize("num_symbols", [2, 3, 15, 1101, 5000, 100_003, 2**20 + 1])
def test_k_ary_ratios_are_at_most_e_epsilon(epsilon, num_symbols, bits):
    """Exactly, for what streams of the host (53 bits) and of a device (32 bits) really draw."""
    try:
        channel = KaryResponse(epsilon=epsilon, num_symbols=num_symbols)
    except ValueError:  # nothing would be left of the symbol
        assert epsilon * 2**23 / num_symbols**2 < 10
        return
    own, other = realized(channel, bits)
    assert bounded(own / other, epsilon)
    if num_symbols < 100 and 0.1 < epsilon < 5:  # and no budget is wasted
        assert not bounded(own / other, epsilon * (1 - 1e-3))
        rare = np.full(num_symbols, float(other))
        np.testing.assert_allclose(channel.matrix()[0, 1:], rare[1:], rtol=1e-4)


@pytest.mark.parametrize("num_symbols", [2, 7, 1101, 65_537, 2**31 - 1])
def test_integers_are_drawn_as_their_words_say(num_symbols):
    """floor(w k / 2^32) in whole numbers, at both ends of the words that stand for an integer."""
    integers = np.unique(np.linspace(0, num_symbols - 1, 2000).astype(np.int64)).tolist()
    first = [-(-value * 2**32 // num_symbols) for value in integers]
    last = [-(-(value + 1) * 2**32 // num_symbols) - 1 for value in integers]
    for words in (first, last):
        found = [random.high_word(xp.asarray(words, "uint32"), num_symbols) for xp in (np, jnp)]
        for each in found:
            np.testing.assert_array_equal(np.asarray(each), integers)


def test_compiled_answers_follow_the_matrix():
    """Chi-square over 2000 answers, most of them drawn: detects 20% too many of one in ten."""
    channel = KaryResponse(epsilon=3.0, num_symbols=2000)
    symbols = jnp.full(400_000, 1999)
    answers = np.asarray(jax.jit(channel.respond)(symbols, random.root(7)))
    counts = np.bincount(answers, minlength=2000)
    row = (1 - channel.keep) / 2000 + channel.keep * (np.arange(2000) == 1999)
    expected = len(symbols) * row
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, 1999)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("compiled", [False, True])
def test_one_bit_of_a_value_that_is_no_number_is_randomized(value, compiled):
    """NaN like the middle of the range, to the bit; infinity like its end."""
    channel = OneBit(epsilon=1.0, low=-1.0, high=3.0)
    like = {np.inf: 3.0, -np.inf: -1.0}.get(value, 1.0)
    sent = []
    for each in (value, like):
        message = np.full((500, 1), each, np.float32)
        if compiled:
            sent.append(np.asarray(channel.encode(jnp.asarray(message), random.root(3))))
        else:
            sent.append(channel.encode(message, random.stream(3, "encode")))
    np.testing.assert_array_equal(*sent)
    assert len(np.unique(sent[0])) == 2


def test_an_answer_is_never_outside_the_symbols():
    channel = KaryResponse(epsilon=5.0, num_symbols=4)
    for symbol in (-3, 9, 2**40):
        answers = channel.respond(np.full(200, symbol), random.stream(1, "encode"))
        assert set(answers.tolist()) <= {0, 1, 2, 3}
    for symbol in (np.nan, 1.5, np.inf):  # which no honest symbol could become
        with pytest.raises(ValueError, match="symbols must be integers"):
            channel.respond(np.full(200, symbol), random.stream(1, "encode"))
    hot = np.full((200, 4), np.nan)
    sent = channel.encode(hot, random.stream(1, "encode"))
    assert np.isfinite(sent).all()
    assert len(np.unique(sent.argmax(axis=1))) > 1


def test_one_bit_vector_is_unbiased_with_the_stated_variance():
    """Detects a bias of 4% of a coordinate's standard deviation."""
    low, high = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 5.0])
    channel = OneBit(epsilon=1.5, low=low, high=high)
    message = np.array([0.2, 0.1, 4.9])
    sent = channel.encode(np.tile(message, (DRAWS, 1)), random.stream(1, "encode"))
    middle = (low + high) / 2
    second = 3 * (high - low) ** 2 / (4 * channel.contrast**2)  # E (r - mid)^2
    assert close_in_mean(sent, message, np.sqrt(second - (message - middle) ** 2))
    told = (sent != middle).sum(axis=1)
    np.testing.assert_array_equal(told, 1)
    assert channel.bits(3) == 3
    assert OneBit(epsilon=1).bits(1) == 1


def test_one_bit_is_the_papers_q_priv_on_one_coordinate():
    """ERRATA 17: -1 / (e^eps - 1) or e^eps / (e^eps - 1)."""
    growth = np.exp(0.7)
    sent = OneBit(epsilon=0.7).encode(np.full((50, 1), 0.4), random.stream(0, "encode"))
    expected = [-1 / (growth - 1), growth / (growth - 1)]
    np.testing.assert_allclose(np.unique(sent), expected, rtol=1e-5)


def test_one_bit_clips():
    channel = OneBit(epsilon=3.0)
    assert channel.probability(np.array(7.0)) == channel.probability(np.array(1.0))


@pytest.mark.parametrize("key", [random.stream(2, "encode"), random.secure()])
def test_k_ary_answers_follow_the_matrix(key):
    """Chi-square over 5 answers: detects probabilities off by 2 points."""
    channel = KaryResponse(epsilon=1.0, num_symbols=5)
    answers = channel.respond(np.full(DRAWS, 3), key)
    counts = np.bincount(answers, minlength=5)
    expected = DRAWS * channel.matrix()[3]
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(FALSE_ALARM, 4)


def test_k_ary_histograms_add_without_bias():
    channel = KaryResponse(epsilon=1.0, num_symbols=4)
    hot = np.eye(4)[np.full(DRAWS, 1)]
    sent = channel.encode(hot, random.stream(5, "encode"))
    assert close_in_mean(sent, hot[0], sent.std(axis=0))
    np.testing.assert_allclose(sent.sum(axis=1), 1.0)
    assert channel.bits() == 2


def test_numpy_and_jax_agree_in_law():
    keys = jax.random.split(random.root(0), DRAWS)
    bit = OneBit(epsilon=1.0, low=-1.0, high=1.0)
    message = jnp.array([0.5, -1.0])
    sent = np.asarray(jax.vmap(lambda key: bit.encode(message, key))(keys))
    assert close_in_mean(sent, np.asarray(message), sent.std(axis=0))
    many = KaryResponse(epsilon=1.0, num_symbols=3)
    hot = jnp.array([0.0, 0.0, 1.0])
    sent = np.asarray(jax.vmap(lambda key: many.encode(hot, key))(keys))
    assert close_in_mean(sent, np.asarray(hot), sent.std(axis=0))


def test_guarantees_and_refusals():
    found = OneBit(epsilon=2.0).guarantee(noise="secure", dimension=4)
    assert (found.epsilon, found.delta, found.bits) == (2.0, 0.0, 3.0)
    assert KaryResponse(epsilon=2.0, num_symbols=9).guarantee(noise="simulated").bits == 4
    for channel in (OneBit(epsilon=1), KaryResponse(epsilon=1, num_symbols=3)):
        assert channel.private
        assert replace(channel, noise="secure").noise == "secure"
        with pytest.raises(ValueError, match="noise must be one of simulated, secure"):
            replace(channel, noise="none")
        assert channel.decode(np.ones(3), None) is not None
    with pytest.raises(ValueError, match="epsilon must be a positive"):
        OneBit(epsilon=0.0)
    with pytest.raises(ValueError, match="at least 1e-05"):
        OneBit(epsilon=1e-12)
    with pytest.raises(ValueError, match="num_symbols"):
        KaryResponse(epsilon=1.0, num_symbols=1)
    with pytest.raises(ValueError, match="one-hot of length 3"):
        KaryResponse(epsilon=1.0, num_symbols=3).encode(np.zeros(2), random.stream(0, "encode"))


@pytest.mark.parametrize(("epsilon", "num_symbols"), [(1e-5, 1000), (0.1, 10**6), (1.0, 10**7)])
def test_an_answer_that_would_never_be_kept_is_refused(epsilon, num_symbols):
    """On the grid of the draws nothing of the symbol is left; the upload would be infinite."""
    with pytest.raises(ValueError, match=r"epsilon must be larger for .* symbols, because no"):
        KaryResponse(epsilon=epsilon, num_symbols=num_symbols)
