"""The matrix mechanism for release: exact sums on the integers, and noise that is drawn once."""

import math
import shutil
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from toys import averaging

from fedprior.channels import MatrixGaussian
from fedprior.core.check import PrivacyError
from fedprior.engines.debug import debug
from fedprior.engines.run import Saving
from fedprior.engines.simulate import simulate
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.server import open_round
from fedprior.privacy import secure
from fedprior.privacy.cohort import Cyclic
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import begin_ledger, read
from fedprior.privacy.participation import Participation
from fedprior.privacy.strategy import GRID_BITS, Banded, Buffered, sensitivity
from fedprior.privacy.terms import Terms

pytest.importorskip("opendp")

FALSE_ALARM = 1e-6
COEFFICIENTS = (1.0, 0.625, 0.25 + 2.0**-GRID_BITS)
ROUNDS = 6
CHANNEL = MatrixGaussian(
    clip=0.7,
    noise_multiplier=2.0,
    strategy=Banded(COEFFICIENTS),
    participation=Participation(rounds=ROUNDS, apart=2),
    noise="secure",
)


def stream(channel, rows):
    """Releases of all rounds; `rows` are the messages of each round, (rounds, clients, d)."""
    memory, released = channel.begin(rows.shape[-1]), []
    for messages in rows:
        out, memory = channel.release(channel.add(messages), None, memory)
        released.append(np.asarray(out))
    return np.stack(released), memory


def inverse(rounds=ROUNDS):
    column = Banded(COEFFICIENTS).column(rounds)
    matrix = [[column[i - j] if i >= j else 0.0 for j in range(rounds)] for i in range(rounds)]
    return np.linalg.inv(matrix)


@pytest.fixture
def no_noise(monkeypatch):
    """OpenDP replaced by the identity; what it was given is kept."""
    seen = []

    def identity(values):
        seen.append(np.array(values, dtype=object))
        return values

    monkeypatch.setattr(secure, "discrete_gaussian", lambda *given: identity)
    return seen


def messages(num, seed=0):
    rows = np.random.default_rng(seed).normal(size=(ROUNDS, num, 4)).astype(np.float32)
    return np.stack([[CHANNEL.encode(row, None) for row in part] for part in rows])


def test_without_noise_the_sums_come_back(no_noise):
    rows = messages(5)
    released, memory = stream(CHANNEL, rows)
    exact = [secure.value(secure.add_exactly(part, clip=0.7), clip=0.7) for part in rows]
    np.testing.assert_allclose(released, exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        memory["sums"], [secure.add_exactly(rows[at], clip=0.7) for at in (-1, -2)]
    )


def test_a_client_moves_the_integers_by_at_most_the_sensitivity(no_noise):
    """C x of two neighbors, in exact arithmetic: the difference is C of the client's own units."""
    rows = messages(5)
    without = rows.copy()
    without[:, 2] = 0
    taking = np.zeros(ROUNDS, bool)
    taking[::2] = True
    without[~taking, 2] = rows[~taking, 2]
    for each in (rows, without):
        stream(CHANNEL, each)
    first, second = no_noise[:ROUNDS], no_noise[ROUNDS:]
    moved = sum(int(d) ** 2 for a, b in zip(first, second, strict=True) for d in a - b)
    unit = secure.grid(0.7) / 2**GRID_BITS
    bound = sensitivity(CHANNEL.strategy, CHANNEL.participation) * secure.reach(0.7, 4) / unit
    assert 0.1 * bound < math.isqrt(moved) <= bound


def test_the_integers_do_not_overflow(no_noise):
    """2^17 clients at the limit of a message, in every round, are far below 2^63."""
    channel = replace(CHANNEL, strategy=Banded((1.0,) * 64))
    total = np.array([[2**30 - 1] * 2, [2**29] * 2], np.int32)
    memory = {"sums": np.stack([total] * 63), "released": np.zeros((63, 2), np.float32)}
    channel.release(total, None, memory)
    exact = 64 * 2**GRID_BITS * ((2**30 - 1) * 2**12 + 2**29)
    assert int(no_noise[0][0]) == exact < 2**63


@pytest.mark.parametrize("namespace", [np, jnp])
def test_the_noise_is_that_of_the_inverse(namespace):
    """Whitened by C, it is N(0, (clip z)^2): detects a scale that is off by 0.05 (6,000 draws)."""
    nothing = namespace.zeros((3, 1, 2000), np.float32)
    released, _ = stream(CHANNEL, nothing)
    white = np.linalg.inv(inverse(3)) @ released / (0.7 * 2.0)
    assert stats.kstest(white.ravel(), "norm").pvalue > FALSE_ALARM
    for one, other in ((0, 1), (0, 2), (1, 2)):
        correlation = white[one] @ white[other] / 2000
        assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 6) / math.sqrt(2000)
    again, _ = stream(CHANNEL, nothing)
    assert (again != released).any(axis=1).all()


def test_the_scale_covers_what_rounding_adds(monkeypatch):
    build, asked = secure.discrete_gaussian, []
    monkeypatch.setattr(secure, "discrete_gaussian", lambda *of: asked.append(of) or build(*of))
    channel = replace(CHANNEL, clip=0.7, noise_multiplier=2.0)
    channel.release(channel.add(np.zeros((1, 5000), "f4")), None, channel.begin(5000))
    mechanism = build(*asked[0])
    unit = secure.grid(0.7) / 2**GRID_BITS
    assert mechanism.map(secure.reach(0.7, 5000) / unit) <= 1 / (2 * 2.0**2)
    assert mechanism.map(0.7 / unit) == pytest.approx(1 / (2 * 2.0**2), rel=1e-3)


def test_strategies_that_cannot_be_exact_are_refused():
    with pytest.raises(PrivacyError, match="strategy must be banded"):
        replace(CHANNEL, strategy=Buffered((0.5,), (0.5,)))
    with pytest.raises(ValueError, match=r"multiples of 2\^-14"):
        replace(CHANNEL, strategy=Banded((1.0, 0.3)))
    with pytest.raises(ValueError, match="sum of at most 64"):
        replace(CHANNEL, strategy=Banded((1.0,) * 65))


@pytest.fixture
def run(plane, tmp_path):
    algorithm = averaging()

    def go(rounds=ROUNDS, *, resume=False, budget=None, store="device", channel=CHANNEL, rate=1.0):
        saving = Saving(folder=tmp_path / "a", every=2, resume=resume)
        terms = Terms(
            delta=1e-5, relation="add-remove", view="central", noise="secure", budget=budget
        )
        with Ledger(tmp_path / "a" / "ledger.jsonl", terms) as ledger:
            return simulate(
                algorithm,
                plane,
                rounds=rounds,
                channel=channel,
                cohort=Cyclic(parts=2, rate=rate),
                saving=saving,
                ledger=ledger,
                store=store,
            )

    return go


def lose(tmp_path, first):
    """What a run leaves that is killed in round `first`."""
    path = tmp_path / "a" / "ledger.jsonl"
    terms, records = read(path)
    source = [record["source"] for record in records if record["kind"] == "reserve"][-1]
    with Ledger(path, terms) as ledger:
        assert ledger.begin(source, first=first, rounds=1)


def charges(tmp_path):
    _, records = read(tmp_path / "a" / "ledger.jsonl")
    return [record["count"] for record in records if record["kind"] == "reserve"]


@pytest.mark.parametrize("store", ["device", "disk"])
def test_a_saved_run_continues_for_what_was_paid(run, tmp_path, store):
    run(3, store=store)
    result = run(resume=True, store=store)
    assert (result.rounds, result.ended_by) == (ROUNDS, "rounds")
    assert charges(tmp_path) == [1]


def test_rounds_that_were_lost_are_paid_for_again(run, tmp_path):
    """Their noise cannot be drawn again, and they may have been seen."""
    run(3)
    lose(tmp_path, 3)
    run(4, resume=True)
    assert charges(tmp_path) == [1, 1]
    lose(tmp_path, 4)
    budget = 1.01 * read_spent(tmp_path)
    result = run(resume=True, budget=budget)
    assert (result.rounds, result.ended_by) == (4, "budget")


@pytest.mark.parametrize(("kept", "samplings"), [(3, "poisson everyone"), (0, "poisson poisson")])
def test_what_is_played_anew_is_not_amplified(run, tmp_path, kept, samplings):
    """The rounds that were kept drew their cohorts once, and both mechanisms tell of them.

    If nothing was kept, all cohorts are drawn anew.
    """
    channel = replace(CHANNEL, strategy=Banded((1.0, 0.625)))
    run(3, channel=channel, rate=0.5)
    if not kept:
        (tmp_path / "a" / "checkpoint.safetensors").unlink()
    lose(tmp_path, 3)
    run(4, resume=True, channel=channel, rate=0.5)
    _, records = read(tmp_path / "a" / "ledger.jsonl")
    events = [record["event"] for record in records if record["kind"] == "reserve"]
    assert [event["sampling"] for event in events] == samplings.split()
    if kept:
        whole = channel.noise_multiplier / sensitivity(channel.strategy, channel.participation)
        assert events[1]["noise"] == whole
        assert charges(tmp_path)[1] == 1


def test_a_copy_of_a_run_pays_for_what_it_plays(plane, tmp_path):
    """Two folders, each with a ledger of its own, within that of a population."""
    begin_ledger(tmp_path / "all.jsonl", epsilon=1e3, delta=1e-5)
    terms = Terms(delta=1e-5, relation="add-remove", view="central", noise="secure")

    def go(folder, rounds, *, resume=False):
        with Ledger(tmp_path / "all.jsonl", terms, existing=True) as whole:
            own = Ledger(tmp_path / folder / "ledger.jsonl", terms, within=whole)
            saving = Saving(folder=tmp_path / folder, resume=resume)
            return simulate(
                averaging(),
                plane,
                rounds=rounds,
                channel=CHANNEL,
                cohort=Cyclic(parts=2),
                saving=saving,
                ledger=own,
            )

    def paid():
        _, records = read(tmp_path / "all.jsonl")
        return [record["kind"] for record in records].count("reserve")

    go("first", 3)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    go("first", ROUNDS, resume=True)
    assert paid() == 1
    go("second", ROUNDS, resume=True)
    assert paid() == 2


def test_a_server_that_opens_a_round_again_pays_again(plane, tmp_path):
    """What it released of the round before cannot be taken back."""
    terms = Terms(delta=1e-5, relation="add-remove", view="central", noise="secure")
    agreement = Agreement.of(averaging(), plane, channel=CHANNEL, cohort=Cyclic(parts=2))
    (tmp_path / "a").mkdir()
    with Ledger(tmp_path / "a" / "ledger.jsonl", terms) as ledger:
        given = {"ledger": ledger, "source": "server", "attendance": agreement.attendance()}
        for round, paid in ((0, 1), (1, 1), (1, 2), (2, 2)):
            assert open_round(agreement, round, **given) is not None
            assert len(charges(tmp_path)) == paid


def read_spent(tmp_path):
    _, records = read(tmp_path / "a" / "ledger.jsonl")
    return [record["epsilon"] for record in records if record["kind"] == "reserve"][-1]


def test_nothing_of_the_secrets_is_in_a_result(run, plane):
    """A model is written from the result; the secrets are in the checkpoint alone."""
    result = run(2)
    assert set(result.state) == {"gamma", "level", "round"}
    assert not any("secret" in name for name in vars(result))
    with pytest.raises(PrivacyError, match="secure noise must be recorded"):
        debug(averaging(), plane, rounds=2, channel=CHANNEL, cohort=Cyclic(parts=2))
