"""Noise in shares: its scale, its grid, and the same sum under masks and in the clear."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest
from statistical import FALSE_ALARM

import fedprior
from fedprior.channels import Chain, DistributedGaussian, Quantize
from fedprior.core import random, tree
from fedprior.core.check import PrivacyError
from fedprior.engines.run import Run
from fedprior.exchange import client, server
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.batch import Batch
from fedprior.exchange.facts import Facts
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic
from fedprior.privacy import events, secure
from fedprior.privacy.cohort import Cyclic, Everyone, FixedSize, Poisson
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms

CHANNEL = DistributedGaussian(clip=0.5, noise_multiplier=2.0, size=3, missing=1)
SECURE = {"noise": "secure"}


def drawn(channel, message, key):
    """What one client sends in units, with draws of either kind."""
    return channel.units(message, random.secure() if channel.noise == "secure" else key)


@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_the_noise_on_the_sum_is_that_of_the_event(noise):
    """5,000 sums of 4 numbers: with `missing` absent the scale is clip * noise_multiplier, with all
    of them total_scale; a chi-square of 20,000 degrees detects 4% of either.
    """
    if noise == "secure":
        pytest.importorskip("opendp")
    channel, draws = replace(CHANNEL, noise=noise), 5000
    key, nothing = np.random.default_rng(0), np.zeros((draws, 4))
    uploads = [drawn(channel, nothing, key) * channel.unit for _ in range(3)]
    wanted = {2: channel.clip * channel.noise_multiplier, 3: channel.total_scale}
    assert wanted[3] == pytest.approx(wanted[2] * math.sqrt(3 / 2))
    for number, scale in wanted.items():
        squares = (sum(uploads[:number]) ** 2).sum() / scale**2
        tail = min(chi2.cdf(squares, 4 * draws), chi2.sf(squares, 4 * draws))
        assert tail > FALSE_ALARM / 4
    shape = kstest(uploads[0].ravel() / channel.share, "norm")
    assert shape.pvalue > FALSE_ALARM


def test_secure_shares_cost_what_is_claimed_by_the_account_of_opendp():
    """Of `fewest` shares together, a move of the longest message costs at most 1 / (2 z^2)."""
    pytest.importorskip("opendp")
    channel, size = replace(CHANNEL, size=20, missing=5, **SECURE), 50_000
    reach = channel._reach(size)
    mechanism = secure.discrete_gaussian(size, reach, channel._multiplier)
    alone = mechanism.map(reach)  # rho of one share
    assert alone / 15 <= 1 / (2 * channel.noise_multiplier**2)
    assert alone / 15 == pytest.approx(1 / (2 * channel.noise_multiplier**2), rel=1e-9)
    assert reach * channel.unit > 1.002 * channel.clip  # the rounding of the clip counts
    assert channel.event(size) == events.gaussian(channel.noise_multiplier)


@given(
    clip=st.floats(1e-20, 1e20),
    noise=st.floats(0.05, 1e4),
    size=st.integers(1, 2**17),
    missing=st.floats(0, 0.99),
)
def test_uploads_fit_into_24_bits_and_shares_are_fine(clip, noise, size, missing):
    channel = DistributedGaussian(
        clip=clip, noise_multiplier=noise * size**0.5, size=size, missing=int(missing * size)
    )
    assert math.frexp(channel.unit)[0] == 0.5  # a power of 2
    assert (clip + 16 * channel.share) / channel.unit < 2**23
    assert channel.share / channel.unit >= 2**12


def test_the_message_is_clipped_and_truncated_toward_zero():
    """Uploads with the same noise differ by the messages, in whole units that never lengthen."""
    draws = np.random.default_rng(0)
    for length in (0.3, 0.5, 5.0, 1e9):
        message = draws.normal(size=6).astype("f4")
        message *= np.float32(length / np.linalg.norm(message))
        nothing, sent = (
            CHANNEL.units(each, random.stream(1, "encode")) for each in (0 * message, message)
        )
        assert sent.dtype == np.int64
        moved = (sent - nothing) * CHANNEL.unit
        short = message * min(1, CHANNEL.clip / np.linalg.norm(message.astype("f8")))
        assert np.linalg.norm(moved) <= secure.reach(CHANNEL.clip, 6)
        assert (np.abs(moved) <= np.abs(short) * (1 + 1e-6)).all()
        np.testing.assert_allclose(moved, short, atol=1.01 * CHANNEL.unit, rtol=1e-6)


@pytest.mark.parametrize("noise", ["simulated", "secure"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_message_that_is_not_finite_counts_as_zero(noise, value):
    if noise == "secure":
        pytest.importorskip("opendp")
    channel = replace(CHANNEL, noise=noise)
    broken, key = np.array([0.1, value, 0.2], "f4"), random.stream(0, "encode")
    sent = drawn(channel, broken, key)
    assert (np.abs(sent) < 2**24).all()
    assert sent.any()
    if noise == "simulated":
        zero = drawn(channel, 0 * broken[:1].repeat(3), random.stream(0, "encode"))
        np.testing.assert_array_equal(sent, zero)


def test_sums_under_masks_and_in_the_clear_are_the_same_to_the_bit():
    """On the host, in JAX and compiled; for sums of any size, and of either sign."""
    size, length = 40, 1001
    channel = DistributedGaussian(clip=0.7, noise_multiplier=3.0, size=size, missing=13)
    messages = jax.random.normal(random.root(1), (size, length))
    keys = [random.fold(random.root(0), "encode", number) for number in range(size)]
    encode = jax.jit(jax.vmap(channel.encode))
    rows = encode(messages, jnp.stack(keys))
    assert rows.dtype == jnp.float32
    units = [channel.to_units(row) for row in rows]
    one = channel.encode(messages[3], keys[3])  # not compiled: the norm is rounded differently
    np.testing.assert_array_equal(channel.to_units(one), channel.units(messages[3], keys[3]))
    assert np.abs(units[3] - channel.to_units(one)).max() <= 1
    np.testing.assert_array_equal(np.stack(units) * channel.unit, np.asarray(rows, "f8"))
    masked = channel.decode(channel.total(sum(units)), None)
    clear = [
        channel.decode(channel.add(rows), None),
        channel.decode(channel.add(np.asarray(rows)), None),
        jax.jit(lambda rows: channel.decode(channel.add(rows), None))(rows),
        channel.decode(channel.add(rows[:7]) + channel.add(rows[7:]), None),
    ]
    assert masked.dtype == np.float32
    for found in clear:
        assert np.asarray(found).tobytes() == masked.tobytes()
    np.testing.assert_allclose(masked, sum(units) * channel.unit, rtol=2e-7)


compiled_decode = jax.jit(lambda total: CHANNEL.decode(total, None))


@settings(deadline=None)  # a new length is compiled
@given(units=st.lists(st.integers(-(2**42), 2**42), min_size=1, max_size=5))
def test_any_sum_is_decoded_to_its_value(units):
    units = np.array(units, np.int64)
    total = CHANNEL.total(units)
    np.testing.assert_array_equal(secure.units(total), units)
    on_host = CHANNEL.decode(total, None)
    np.testing.assert_allclose(on_host, units * CHANNEL.unit, rtol=2e-7)
    assert np.asarray(compiled_decode(total)).tobytes() == on_host.tobytes()


def test_a_sum_that_no_clients_can_have_sent_is_refused():
    for units in (np.array([2**43]), np.array([-(2**63)]), np.array([1.0])):
        with pytest.raises(ValueError, match=r"secure sum: units must be 64-bit integers of at m"):
            CHANNEL.total(units)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"missing": 3}, ValueError, r"missing must be below size \(3\).*has to add noise"),
        ({"missing": -1}, ValueError, "missing must be a whole number of at least 0"),
        ({"size": 0, "missing": 0}, ValueError, "size must be a whole number of at least 1"),
        ({"size": 2**17 + 1}, ValueError, "cohort size must be at most 131,072"),
        ({"noise_multiplier": 1e-3}, PrivacyError, "a share of at least 4096 units of the grid"),
        ({"clip": 1e-37}, PrivacyError, "a share of at least 4096 units of the grid"),
        ({"noise": "none"}, ValueError, "noise must be one of simulated, secure"),
    ],
)
def test_refusals(changes, error, words):
    with pytest.raises(error, match=words):
        replace(CHANNEL, **changes)


def test_secure_uploads_are_made_and_added_under_masks_only():
    pytest.importorskip("opendp")
    channel, message = replace(CHANNEL, **SECURE), np.zeros(3, "f4")
    with pytest.raises(PrivacyError, match=r"made in whole units.*Call units\(message, random.sec"):
        channel.encode(message, random.stream(0, "encode"))
    with pytest.raises(PrivacyError, match=r"drawn from the operating system.*random.secure\(\)"):
        channel.units(message, random.stream(0, "encode"))
    with pytest.raises(PrivacyError, match="added under their masks"):
        channel.add(message[None])
    first, second = (channel.units(message, random.secure()) for _ in range(2))
    assert (first != second).any()
    with pytest.raises(PrivacyError, match="a secure stream cannot draw floating-point"):
        CHANNEL.units(message, random.secure())


@pytest.mark.parametrize(
    "cohort",
    [
        Poisson(rate=0.5),
        Poisson(rate=1.0),
        Cyclic(parts=2),
        FixedSize(size=2),
        FixedSize(size=3, amplifies=True),
        Everyone(),
    ],
)
def test_cohorts_of_another_size_are_refused(cohort, federation):
    words = r"cohort must have 3 known clients in every round .*Use FixedSize\(size=3\)"
    with pytest.raises(PrivacyError, match=words):
        Agreement.of(fedavg(logistic(4, 3)), federation, channel=CHANNEL, cohort=cohort)
    if isinstance(cohort, Everyone):
        CHANNEL.charge(cohort, 3, 1)


def test_sampling_hides_nobody():
    event, count = CHANNEL.charge(FixedSize(size=3), 9, 1)
    assert count is None
    assert (event.sampling, event.size, event.num_clients) == ("fixed", 3, 9)
    assert not event.amplified
    assert CHANNEL.charge(Everyone(), 3, 1)[0] == events.gaussian(2.0)
    assert CHANNEL.longest(9) is None  # nobody can clip what is masked


def test_it_is_used_by_itself():
    with pytest.raises(PrivacyError, match="members must not need masks"):
        Chain((CHANNEL, Quantize(bits_per_coordinate=2, low=-1.0, high=1.0)))
    with pytest.raises(ValueError, match="view must be one of central, local"):
        Batch.of("x", CHANNEL, 3, num_clients=3)


@pytest.fixture(scope="module")
def agreement(federation):
    algorithm = fedavg(logistic(4, 3), steps=Steps(local_steps=2))
    cohort = FixedSize(size=3)
    return Agreement.of(algorithm, federation, channel=CHANNEL, cohort=cohort)


def own(federation, number):
    rows = federation.train.client(number)
    return Facts.of(federation).client_data(rows.x, rows.y)


def test_a_rehearsal_is_the_masked_run_to_the_bit(agreement, federation):
    """`debug` adds float uploads; here, their units are added, as masks would have it."""
    state, memories = agreement.initial_state(), {}
    for number in range(2):
        units = []
        for member in server.open_round(agreement, number).tolist():
            learned = client.attempt(
                agreement, state, memories.get(member), own(federation, member), member, number
            )
            upload = client.encode(agreement, learned, member, number)
            units.append(client.masked_units(agreement, learned, member, number))
            np.testing.assert_array_equal(units[-1] * CHANNEL.unit, upload)
            np.testing.assert_array_equal(server.admit(agreement, upload), upload)
            memories[member] = learned.memory
        state, secrets = server.release_sum(
            agreement, state, agreement.secrets(), sum(units), number
        )
        assert not tree.size(secrets)
    run = {"rounds": 2, "channel": CHANNEL, "cohort": agreement.cohort}
    twin = fedprior.debug(agreement.algorithm, federation, **run)
    for name, leaf in tree.names(state).items():
        np.testing.assert_array_equal(leaf, tree.names(twin.state)[name])
    simulated = fedprior.simulate(agreement.algorithm, federation, **run)
    for name, leaf in tree.names(state).items():
        np.testing.assert_allclose(leaf, tree.names(simulated.state)[name], atol=1e-5)


def test_a_client_draws_secure_shares_from_the_operating_system(agreement, federation):
    pytest.importorskip("opendp")
    real = replace(agreement, channel=replace(CHANNEL, **SECURE))
    state, data = real.initial_state(), own(federation, 0)
    learned = client.attempt(real, state, None, data, 0, 0)
    sent = [client.masked_units(real, learned, 0, 0), client.take_part(
        real, state, None, data, 0, 0)[0]]  # fmt: skip
    assert all(each.dtype == np.int64 and each.shape == (real.length,) for each in sent)
    assert (sent[0] != sent[1]).any()
    with pytest.raises(server.RefusedUpload, match="must be a float32 array, got int64"):
        server.admit(real, sent[0])
    after, _ = server.release_sum(real, state, (), sent[0] + sent[1], 0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after["gamma"]))
    with pytest.raises(PrivacyError, match="a masked channel must have simulated noise"):
        Run(agreement=real, federation=federation, rounds=1)


def test_what_is_not_a_masked_sum_is_refused(agreement):
    state, central = agreement.initial_state(), fedprior.channels.CentralGaussian(
        clip=1.0, noise_multiplier=1.0
    )  # fmt: skip
    with pytest.raises(ValueError, match="units must have shape"):
        server.release_sum(agreement, state, (), np.zeros(3, np.int64), 0)
    other = replace(agreement, channel=central)
    with pytest.raises(PrivacyError, match="release_sum: channel must be a DistributedGaussian"):
        server.release_sum(other, state, (), np.zeros(other.length, np.int64), 0)
    with pytest.raises(PrivacyError, match="masked_units: channel must be a DistributedGaussian"):
        client.masked_units(other, None, 0, 0)


def test_the_ledger_must_say_replace_one_and_masked(agreement, tmp_path):
    usual = {"delta": 1e-3, "relation": "replace-one", "view": "masked", "noise": "simulated"}
    for changes, words in (
        ({"relation": "add-remove"}, "relation must be replace-one for a masked channel"),
        ({"view": "central"}, "view must be the channel's, masked, got central"),
    ):
        with (
            Ledger(tmp_path / f"{len(words)}", Terms(**{**usual, **changes})) as ledger,
            pytest.raises(PrivacyError, match=words),
        ):
            server.open_round(agreement, 0, ledger=ledger, source="a")
    with Ledger(tmp_path / "ledger", Terms(**usual)) as ledger:
        assert len(server.open_round(agreement, 0, ledger=ledger, source="a")) == 3
        assert ledger.spent > 0
