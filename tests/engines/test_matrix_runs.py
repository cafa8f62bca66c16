"""Noise that is correlated over rounds: its law, its price, its rule and its engine."""

import math
from copy import deepcopy
from dataclasses import replace
from itertools import combinations, pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from toys import averaging

from fedprior.channels import CentralGaussian, Chain, MatrixGaussian
from fedprior.core import random
from fedprior.core.check import PrivacyError
from fedprior.engines.debug import debug
from fedprior.engines.run import Saving
from fedprior.engines.simulate import simulate
from fedprior.engines.sweep import sweep
from fedprior.exchange import server
from fedprior.exchange.agreement import Agreement
from fedprior.privacy import events
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import Cyclic, Everyone, Poisson
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.participation import Participation
from fedprior.privacy.strategy import Banded, Buffered, sensitivity
from fedprior.privacy.terms import Terms

FALSE_ALARM = 1e-6
ROUNDS = 6
RULE = Participation(rounds=ROUNDS, apart=2)
BANDED = Banded((1.0, 0.5))
CHANNEL = MatrixGaussian(clip=0.5, noise_multiplier=2.0, strategy=BANDED, participation=RULE)
STRATEGIES = {
    "independent": Banded((2.0,)),
    "banded": Banded((1.0, 0.625, 0.25)),
    "buffered": Buffered((0.9, 0.5), (0.4, 0.3)),
}
each_strategy = pytest.mark.parametrize("name", STRATEGIES)


def matrix(strategy, rounds):
    column = strategy.column(rounds)
    return np.array(
        [[column[i - j] if i >= j else 0.0 for j in range(rounds)] for i in range(rounds)]
    )


def streamed(channel, num, seed=0):
    """`num` streams of noise, (num, rounds), as the coordinates of one message."""
    rounds = channel.participation.rounds
    memory, noises = channel.begin(num), []
    for round in range(rounds):
        key = random.fold(random.root(seed), "decode", round)
        released, memory = channel.release(jnp.zeros(num), key, memory)
        noises.append(np.asarray(released))
    return np.stack(noises, axis=1)


@each_strategy
def test_the_streamed_noise_is_that_of_the_inverse(name):
    """Its covariance is (clip z)^2 C^-1 C^-T: detects an entry that is off by 0.03 of the scale."""
    channel = replace(CHANNEL, strategy=STRATEGIES[name])
    num = 40_000
    noise = streamed(channel, num) / (channel.clip * channel.noise_multiplier)
    white = noise @ matrix(channel.strategy, ROUNDS).T  # C C^-1 z = z, independent and standard
    found = white.T @ white / num
    bound = stats.norm.isf(FALSE_ALARM / ROUNDS**2) * math.sqrt(2 / num)
    np.testing.assert_allclose(found, np.eye(ROUNDS), atol=bound)
    inverse = np.linalg.inv(matrix(channel.strategy, ROUNDS))
    scale = np.max(inverse @ inverse.T)
    np.testing.assert_allclose(noise.T @ noise / num, inverse @ inverse.T, atol=bound * scale)


@each_strategy
@pytest.mark.parametrize(("apart", "most"), [(1, 0), (2, 2), (3, 0), (7, 0)])
def test_the_sensitivity_is_that_of_the_worst_pattern(name, apart, most):
    """Among all patterns that obey the rule, with equal messages, the worst for C >= 0."""
    rule = Participation(rounds=7, apart=apart, most=most)
    c = matrix(STRATEGIES[name], 7)
    worst = 0.0
    for size in range(1, rule.most + 1):
        for chosen in combinations(range(7), size):
            if all(j - i >= apart for i, j in pairwise(chosen)):
                worst = max(worst, float(np.linalg.norm(c[:, chosen].sum(axis=1))))
    found = sensitivity(STRATEGIES[name], rule)
    assert worst <= found == pytest.approx(worst, rel=1e-9)


def test_a_run_costs_one_gaussian_for_any_cohorts():
    event, count = CHANNEL.charge(Cyclic(parts=2), 10, 3)
    assert (event, count) == (events.gaussian(2.0 / sensitivity(BANDED, RULE)), 1)
    # Two bands, two rounds apart: three turns that share no coordinate of C x.
    assert 2.0 / event.noise == pytest.approx(math.sqrt(2 * 1.25 + 1.25))
    assert CHANNEL.charge(Everyone(), 10, 3) == CHANNEL.charge(Poisson(rate=0.5), 10, 3)


def test_cyclic_poisson_cohorts_amplify_only_where_it_is_proven():
    cohort = Cyclic(parts=2, rate=0.3)
    event, count = CHANNEL.charge(cohort, 101, 3)
    assert (event.sampling, event.rate, count) == ("poisson", 0.3, 3)
    assert event.noise == pytest.approx(2.0 / math.sqrt(1.25))
    assert event.overflow == 2 * cohort.overflow(101) > 0
    wider = replace(CHANNEL, strategy=STRATEGIES["banded"])  # more bands than parts
    buffered = replace(CHANNEL, strategy=STRATEGIES["buffered"])
    fewer = replace(CHANNEL, participation=replace(RULE, most=2))  # a refusal would tell
    looser = replace(CHANNEL, participation=replace(RULE, apart=1))
    for other in (wider, buffered, fewer, looser):
        event, count = other.charge(cohort, 101, 3)
        assert (event.sampling, count) == ("everyone", 1)


def test_independent_noise_under_poisson_costs_what_the_central_channel_costs():
    plain = replace(CHANNEL, strategy=Banded((1.0,)), participation=Participation(rounds=ROUNDS))
    central = CentralGaussian(clip=0.5, noise_multiplier=2.0)
    cohort = Poisson(rate=0.2)
    event, count = plain.charge(cohort, 50, 3)
    assert event.noise == pytest.approx(2.0)
    assert (replace(event, noise=2.0), count) == (central.charge(cohort, 50, 3)[0], ROUNDS)


def terms(budget=None):
    return Terms(
        delta=1e-5, relation="add-remove", view="central", noise="simulated", budget=budget
    )


@pytest.fixture
def run(plane, tmp_path):
    algorithm = averaging()

    def go(rounds=ROUNDS, *, folder="a", resume=False, budget=None, clients=plane, **changes):
        saving = Saving(folder=tmp_path / folder, every=2, resume=resume)
        options = {"channel": CHANNEL, "cohort": Cyclic(parts=2), "saving": saving, **changes}
        with Ledger(tmp_path / folder / "ledger.jsonl", terms(budget)) as ledger:
            return simulate(algorithm, clients, rounds=rounds, ledger=ledger, **options)

    return go


def bits(result):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result.state)]


@pytest.mark.parametrize("store", ["device", "disk"])
def test_a_resumed_run_has_the_same_bits_and_is_charged_once(run, tmp_path, store):
    whole = run(store=store)
    run(3, folder="b", store=store)
    again = run(folder="b", resume=True, store=store)
    assert bits(again) == bits(whole)
    _, records = read(tmp_path / "b" / "ledger.jsonl")
    reserved = [record for record in records if record["kind"] == "reserve"]
    assert [(each["first"], each["rounds"], each["count"]) for each in reserved] == [(0, ROUNDS, 1)]
    event = events.gaussian(2.0 / sensitivity(BANDED, RULE))
    assert reserved[0]["epsilon"] == pytest.approx(epsilon([(event, 1)], delta=1e-5))


def test_noise_is_reused_for_the_identical_sums_only(run, plane):
    """A run that goes on with other data would release other sums with the same noise."""
    run(3)
    other = deepcopy(plane)
    other.train.x[0] += 1
    with pytest.raises(PrivacyError, match="was already used by another run"):
        run(resume=True, clients=other)


def test_the_run_is_charged_before_its_first_round_or_does_not_begin(run):
    with pytest.raises(PrivacyError, match="budget must cover"):
        run(1, budget=0.01)


def test_debug_gives_the_same_run(plane):
    algorithm = averaging()
    options = {"rounds": ROUNDS, "channel": CHANNEL, "cohort": Cyclic(parts=2)}
    fast, slow = simulate(algorithm, plane, **options), debug(algorithm, plane, **options)
    for one, other in zip(jax.tree.leaves(fast.state), jax.tree.leaves(slow.state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_sweep_gives_the_same_run(plane):
    options = {"rounds": ROUNDS, "channel": CHANNEL, "cohort": Cyclic(parts=2)}
    swept = sweep(lambda rate: averaging(rate=rate), plane, over={"rate": [0.5, 0.25]}, **options)
    identity = ["", {"rate": 0.5}]
    alone = debug(averaging(), plane, identity=identity, **options)
    levels = [entry["level"] for entry in alone.history]
    np.testing.assert_allclose(swept.history["level"][0, 0], levels, rtol=1e-4, atol=1e-5)


def test_the_noise_of_a_run_cancels(plane):
    """The released state is a prefix sum: its noise is that of the prefix sums of C^-1 z."""
    channel = replace(CHANNEL, clip=1e-6, noise_multiplier=1e6, strategy=STRATEGIES["banded"])
    still = averaging(rate=0.0)
    result = simulate(still, plane, rounds=ROUNDS, channel=channel, cohort=Cyclic(parts=2))
    agreement = Agreement.of(still, plane, channel=channel, cohort=Cyclic(parts=2))
    memory, total = agreement.secrets(), np.zeros(2)
    for round in range(ROUNDS):
        key = random.fold(agreement.keys().channel, "decode", np.int32(round))
        noise, memory = channel.release(jnp.zeros(2), key, memory)
        total += np.asarray(noise) / (plane.num_clients / 2)
    np.testing.assert_allclose(result.state["gamma"], total, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("engine", [simulate, debug])
def test_cohorts_that_break_the_rule_are_refused(plane, engine):
    algorithm = averaging()
    with pytest.raises(PrivacyError, match="must wait 2 rounds between its turns"):
        engine(algorithm, plane, rounds=2, channel=CHANNEL, cohort=Everyone())
    once = replace(CHANNEL, participation=replace(RULE, most=1))
    with pytest.raises(PrivacyError, match="at most 1 times"):
        engine(algorithm, plane, rounds=3, channel=once, cohort=Cyclic(parts=2))
    with pytest.raises(PrivacyError, match="rounds must be at most 6"):
        engine(algorithm, plane, rounds=7, channel=CHANNEL, cohort=Cyclic(parts=2))


def test_the_rule_survives_a_resume(run):
    once = replace(CHANNEL, participation=replace(RULE, most=1))
    run(2, channel=once)
    with pytest.raises(PrivacyError, match="at most 1 times"):
        run(3, channel=once, resume=True)


def test_a_server_without_the_secrets_is_refused(plane):
    agreement = Agreement.of(averaging(), plane, channel=CHANNEL, cohort=Cyclic(parts=2))
    with pytest.raises(PrivacyError, match="Pass attendance"):
        server.open_round(agreement, 0)
    attendance = agreement.attendance()
    assert server.open_round(agreement, 0, attendance=attendance).tolist() == [0, 2, 4]
    with pytest.raises(PrivacyError, match="keeps secrets between rounds"):
        server.close_round(agreement, agreement.initial_state(), {}, 0)
    with pytest.raises(PrivacyError, match="with the noise of the rounds before it"):
        CHANNEL.decode(np.zeros(2), random.root(0))
    with pytest.raises(PrivacyError, match="Use it by itself"):
        Chain((CHANNEL,))


def test_bad_strategies_are_refused():
    with pytest.raises(ValueError, match="not increasing"):
        Banded((0.5, 1.0))
    with pytest.raises(ValueError, match="sum of at most 1"):
        Buffered((0.5,), (1.5,))


def test_a_server_on_the_exchange_gives_the_same_run(plane):
    """Rounds that are opened with an attendance and released with the secrets of the last one."""
    algorithm, cohort = averaging(), Cyclic(parts=2)
    agreement = Agreement.of(algorithm, plane, channel=CHANNEL, cohort=cohort)
    state, secrets, attendance = (
        agreement.initial_state(),
        agreement.secrets(),
        agreement.attendance(),
    )
    for round in range(2):  # after which clients of the reference would send something
        clients = server.open_round(agreement, round, attendance=attendance)
        uploads = {int(client): np.zeros(2, np.float32) for client in clients}
        state, secrets = server.release_round(agreement, state, secrets, uploads, round)
    alone = debug(averaging(rate=0.0), plane, rounds=2, channel=CHANNEL, cohort=cohort)
    np.testing.assert_allclose(state["gamma"], alone.state["gamma"], rtol=1e-5, atol=1e-6)
    assert attendance.taken.tolist() == [1] * 6
    with pytest.raises(PrivacyError, match="one of the 6 that were paid for"):
        server.open_round(agreement, 6, attendance=attendance)
