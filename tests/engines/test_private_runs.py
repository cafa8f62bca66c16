"""A private run: recorded before it is spent, stopped by its budget, resumed on its own ledger."""

import os
from dataclasses import replace
from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy.stats import kstest
from toys import averaging

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.chain import Chain
from fedprior.channels.identity import Identity
from fedprior.core.check import PrivacyError
from fedprior.core.files import read_sealed
from fedprior.engines.debug import debug
from fedprior.engines.device import DeviceEngine
from fedprior.engines.run import Run, Saving
from fedprior.engines.simulate import simulate
from fedprior.exchange.agreement import Agreement
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import Everyone, FixedSize, Poisson
from fedprior.privacy.events import Event
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.secure import add_exactly, reach, value
from fedprior.privacy.terms import Terms

FALSE_ALARM = 1e-6
CHANNEL = CentralGaussian(clip=0.5, noise_multiplier=4.0)
COHORT = Poisson(rate=0.5)


def terms(budget=None, **changes):
    fields = {"delta": 1e-5, "relation": "add-remove", "view": "central", "noise": "simulated"}
    return Terms(**fields | {"budget": budget} | changes)


@pytest.fixture
def run(plane, tmp_path):
    algorithm = averaging()

    def go(rounds, *, budget=None, folder="a", resume=False, **changes):
        saving = Saving(folder=tmp_path / folder, every=2, resume=resume)
        options = {"channel": CHANNEL, "cohort": COHORT, "saving": saving, **changes}
        with Ledger(tmp_path / folder / "ledger.jsonl", terms(budget)) as ledger:
            return simulate(algorithm, plane, rounds=rounds, ledger=ledger, **options)

    return go


def sampled(num_clients):
    overflow = COHORT.overflow(num_clients)
    return Event(mechanism="gaussian", noise=4.0, sampling="poisson", rate=0.5, overflow=overflow)


def test_what_was_spent_is_what_ran(run, plane, tmp_path):
    result = run(7)
    found, records = read(tmp_path / "a" / "ledger.jsonl")
    assert result.ended_by == "rounds"
    assert sum(record.get("rounds", 0) for record in records) == 7
    reserved = [record for record in records if record["kind"] == "reserve"]
    expected = epsilon([(sampled(plane.num_clients), 7)], delta=1e-5)
    assert reserved[-1]["epsilon"] == pytest.approx(expected)
    assert found.noise == "simulated"


def test_a_budget_ends_the_run_and_keeps_its_models(run, plane):
    event = sampled(plane.num_clients)
    budget = epsilon([(event, 3)], delta=1e-5) + 1e-9
    result = run(10, budget=budget)
    assert (result.ended_by, result.rounds) == ("budget", 3)
    plain = run(3, folder="b")
    for one, other in zip(jax.tree.leaves(result.state), jax.tree.leaves(plain.state), strict=True):
        np.testing.assert_array_equal(one, other)
    again = run(10, budget=budget, resume=True)
    assert (again.ended_by, again.rounds) == ("budget", 3)


def test_a_resumed_run_has_the_same_bits_and_the_same_bill(run, tmp_path):
    whole = run(6)
    run(3, folder="b")
    resumed = run(6, folder="b", resume=True)
    for one, other in zip(
        jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    bills = [read(tmp_path / name / "ledger.jsonl")[1] for name in "ab"]
    counts = [sum(record.get("rounds", 0) for record in bill) for bill in bills]
    assert counts == [6, 6]


def test_a_crash_inside_a_round_is_charged(run, tmp_path, monkeypatch):
    def crash(self, count):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("fedprior.engines.device.DeviceEngine.advance", crash)
        with pytest.raises(MemoryError):
            run(4)
    records = read(tmp_path / "a" / "ledger.jsonl")[1]
    assert [record["kind"] for record in records] == ["open", "reserve"]
    run(4, resume=True)  # the same release to the bit, so nothing is charged twice
    records = read(tmp_path / "a" / "ledger.jsonl")[1]
    assert sum(record.get("rounds", 0) for record in records) == 4


def test_only_the_run_that_began_repeats_its_rounds(plane, tmp_path, monkeypatch):
    """Another algorithm, data, store or folder, or a token that is gone: other bits under the noise
    of rounds that are on record, which neither cost nothing nor add up.
    """
    saving = Saving(folder=tmp_path / "a", resume=True)
    begun = {"algorithm": averaging(), "federation": plane, "saving": saving, "store": "device"}
    fixed = {"rounds": 4, "channel": CHANNEL, "cohort": COHORT}

    def crash(self, count):
        raise MemoryError

    monkeypatch.setattr("fedprior.engines.device.DeviceEngine.advance", crash)
    monkeypatch.setattr("fedprior.engines.disk.DiskEngine.advance", crash)
    with Ledger(tmp_path / "ledger.jsonl", terms()) as ledger:

        def attempt(**changes):
            given = {**begun, **changes}
            algorithm, clients = given.pop("algorithm"), given.pop("federation")
            simulate(algorithm, clients, ledger=ledger, **fixed, **given)

        with pytest.raises(MemoryError):
            attempt()
        once = ledger.spent
        with pytest.raises(MemoryError):  # the same again, so that it is allowed, for nothing
            attempt()
        moved = replace(plane.train, x=plane.train.x + np.float32(1e-3))
        for changes in (
            {"algorithm": averaging(rate=0.25)},
            {"federation": replace(plane, train=moved)},
            {"store": "disk"},
            {"saving": replace(saving, folder=tmp_path / "b")},
            {"saving": replace(saving, resume=False)},
            {"saving": None},
        ):
            with pytest.raises(PrivacyError, match="noise of round 0 was already used"):
                attempt(**changes)
        saving.token.unlink()
        with pytest.raises(PrivacyError, match="noise of round 0 was already used"):
            attempt()
        assert ledger.spent == once
        for changes in (
            {"algorithm": averaging(name="another")},
            {"saving": replace(saving, identity="another")},
            {"seed": 1},
        ):
            before = ledger.spent
            with pytest.raises(MemoryError):
                attempt(**changes)
            assert ledger.spent > before


def test_a_run_is_named_on_disk_before_anything_is_spent(plane, tmp_path, monkeypatch):
    saving = Saving(folder=tmp_path / "deep" / "a")
    synced = []
    sync = os.fsync

    def note(descriptor):
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    inodes = []

    def reserve(self, *args, **options):
        inodes.extend(place.stat().st_ino for place in (saving.token, saving.folder, tmp_path))
        assert set(inodes) <= set(synced)
        assert len(read_sealed(saving.token).strip()) == 32
        return 0

    monkeypatch.setattr(Ledger, "reserve", reserve)
    with Ledger(tmp_path / "ledger.jsonl", terms()) as ledger:
        options = {"channel": CHANNEL, "cohort": COHORT, "saving": saving}
        simulate(averaging(), plane, rounds=1, ledger=ledger, test=False, **options)
    assert inodes


def test_every_engine_draws_the_same_noise_and_cohorts(plane):
    options = {"rounds": 3, "channel": CHANNEL, "cohort": COHORT, "seed": 5}
    first = simulate(averaging(), plane, **options)
    for other in (
        simulate(averaging(), plane, store="disk", **options),
        debug(averaging(), plane, **options),
    ):
        np.testing.assert_allclose(other.state["gamma"], first.state["gamma"], rtol=1e-5)
        cohorts = [[entry["clients"] for entry in each.history] for each in (first, other)]
        assert cohorts[0] == cohorts[1]
    spread = float(np.abs(first.state["gamma"]).max())
    assert spread > 0.01  # of noise 2 / 3 a round


def test_private_runs_of_one_seed_share_neither_noise_nor_cohorts(plane):
    """Clear ones share both, for a paired comparison; a run again has the same."""
    fields = {"federation": plane, "cohort": COHORT}
    louder = replace(CHANNEL, noise_multiplier=8.0)
    changes = [
        {"channel": CHANNEL},
        {"channel": CHANNEL, "algorithm": averaging(name="another")},
        {"channel": louder},
        {"channel": CHANNEL, "cohort": Poisson(rate=0.4)},
        {"channel": CHANNEL, "identity": "configured"},
        {"channel": CHANNEL, "seed": 1},
    ]

    def shown(given):
        agreed = Agreement.of(**{"algorithm": averaging(), **fields, **given})
        key = tuple(jax.random.key_data(agreed.keys().channel).tolist())
        drawn = tuple(tuple(agreed.draw(number).tolist()) for number in range(40))
        return key, drawn, agreed.draws

    found = [shown(given) for given in changes]
    for part in zip(*found, strict=True):
        assert len(set(part)) == len(changes)
    assert found == [shown(given) for given in changes]
    clear = [shown({**given, "channel": Identity()})[:2] for given in (changes[0], changes[1])]
    assert clear[0] == clear[1]
    drawn = [COHORT.draw(0, number, plane.num_clients).tolist() for number in range(40)]
    assert [list(cohort) for cohort in clear[0][1]] == drawn


def test_a_cut_ledger_stops_the_run(run, tmp_path):
    run(4)
    path = tmp_path / "a" / "ledger.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-2]) + "\n")
    with pytest.raises(PrivacyError, match="truncated or replaced"):
        run(8, resume=True)


@pytest.mark.parametrize("left", ["nothing", "terms", "gone", "another"])
def test_a_ledger_cut_before_the_first_checkpoint_is_no_new_one(
    run, plane, tmp_path, monkeypatch, left
):
    """The folder knows what was recorded before a round runs: a first release is never free."""

    def killed(self):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("fedprior.engines.device.DeviceEngine.save", killed)
        with pytest.raises(MemoryError):
            run(4)
    path = tmp_path / "a" / "ledger.jsonl"
    assert not (tmp_path / "a" / "checkpoint.safetensors").exists()
    if left == "gone":
        path.unlink()
    elif left == "another":
        run(4, folder="b")
        path.write_bytes((tmp_path / "b" / "ledger.jsonl").read_bytes())
    else:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: left == "terms"]))
    with pytest.raises(PrivacyError, match="truncated or replaced"):
        run(4, resume=True)
    saving = Saving(folder=tmp_path / "a", every=2, resume=True)
    options = {"channel": CHANNEL, "cohort": COHORT, "saving": saving}
    with pytest.raises(PrivacyError, match="started with a ledger"):
        simulate(averaging(), plane, rounds=4, **options)


def test_secure_noise_that_was_charged_twice_ends_a_resumed_run_early(plane, tmp_path, monkeypatch):
    """The rounds that a killed run may have released count; what is left is used, and it ends."""
    event = sampled(plane.num_clients)
    budget = epsilon([(event, 6)], delta=1e-5) + 1e-9
    channel = replace(CHANNEL, noise="secure")
    advance, ran = DeviceEngine.advance, []

    def go(resume, dies):
        def step(self, count):
            if dies and len(ran) == 3:
                raise MemoryError
            ran.append(count)
            advance(self, count)

        saving = Saving(folder=tmp_path / "a", every=100, resume=resume)
        options = {"channel": channel, "cohort": COHORT, "saving": saving, "test": False}
        monkeypatch.setattr(DeviceEngine, "advance", step)
        monkeypatch.setattr("fedprior.engines.pace.Pace.rounds", lambda self: 1)
        with Ledger(tmp_path / "ledger.jsonl", terms(budget, noise="secure")) as ledger:
            return simulate(averaging(), plane, rounds=6, ledger=ledger, **options)

    with pytest.raises(MemoryError):
        go(resume=False, dies=True)
    result = go(resume=True, dies=False)
    assert (result.ended_by, result.rounds) == ("budget", 2)  # 4 of the 6 were charged before
    assert (go(resume=True, dies=False).ended_by, sum(ran)) == ("budget", 5)
    assert sum(r.get("rounds", 0) for r in read(tmp_path / "ledger.jsonl")[1]) == 6


def test_a_run_does_not_lose_its_ledger(run, plane, tmp_path):
    run(4)
    saving = Saving(folder=tmp_path / "a", every=2, resume=True)
    with pytest.raises(PrivacyError, match="started with a ledger"):
        simulate(averaging(), plane, rounds=8, channel=CHANNEL, cohort=COHORT, saving=saving)


def test_a_ledger_needs_a_private_channel_of_its_view(plane, tmp_path):
    def run(channel, ledger):
        return Run(
            agreement=Agreement.of(averaging(), plane, channel=channel),
            federation=plane,
            rounds=1,
            ledger=ledger,
        )

    clear = pytest.raises(PrivacyError, match="ledger: the channel must be private")
    with Ledger(tmp_path / "ledger.jsonl", terms()) as ledger, clear:
        run(Identity(), ledger)
    other = pytest.raises(PrivacyError, match="view must be the channel's, central, got local")
    with Ledger(tmp_path / "other.jsonl", terms(view="local")) as ledger, other:
        run(CHANNEL, ledger)


@pytest.mark.parametrize(
    ("cohort", "sampling"),
    [(Everyone(), "everyone"), (FixedSize(size=2), "fixed"), (COHORT, "poisson")],
)
def test_the_sampler_that_draws_is_accounted_for(plane, cohort, sampling):
    agreed = Agreement.of(averaging(), plane, channel=CHANNEL, cohort=cohort)
    assert agreed.event.sampling == sampling
    assert agreed.event.noise == 4.0


def test_a_fixed_size_hides_nobody_whose_messages_tell_of_earlier_rounds(plane):
    cohort = FixedSize(size=2, amplifies=True)
    fields = {"federation": plane, "channel": CHANNEL, "cohort": cohort}
    with pytest.raises(PrivacyError, match="must claim no amplification for averaging"):
        Agreement.of(averaging(), **fields)
    agreed = Agreement.of(replace(averaging(), memoryless=True), **fields)
    assert (agreed.event.sampling, agreed.event.size) == ("fixed", 2)
    assert agreed.event.num_clients == plane.num_clients


def test_delta_of_one_over_clients_is_refused(plane, tmp_path):
    agreed = Agreement.of(averaging(), plane, channel=CHANNEL)
    fields = {"agreement": agreed, "federation": plane, "rounds": 1}
    refused = pytest.raises(PrivacyError, match="delta must be below 1 / clients")
    with Ledger(tmp_path / "ledger.jsonl", terms(delta=0.5)) as ledger, refused:
        Run(**fields, ledger=ledger)
    with Ledger(tmp_path / "other.jsonl", terms(delta=0.5, allow_delta=True)) as ledger:
        Run(**fields, ledger=ledger)


def test_when_a_private_run_ends_does_not_depend_on_scores(plane):
    with pytest.raises(PrivacyError, match="patience must be None under a private channel"):
        simulate(averaging(), plane, rounds=4, channel=CHANNEL, evaluate_every=1, patience=1)


def test_another_seed_on_the_same_ledger_is_charged(plane, tmp_path):
    options = {"rounds": 2, "channel": CHANNEL, "cohort": COHORT}
    with Ledger(tmp_path / "ledger.jsonl", terms()) as ledger:
        simulate(averaging(), plane, ledger=ledger, seed=0, **options)
        once = ledger.spent
        simulate(averaging(), plane, ledger=ledger, seed=1, **options)
        assert ledger.spent > 1.2 * once


@pytest.mark.parametrize("clip", [1e-10, 1.0])
def test_secure_noise_has_the_stated_scale_at_any_clip(clip):
    """Kolmogorov-Smirnov on 2,000 coordinates: would detect a scale wrong by 17%."""
    pytest.importorskip("opendp")
    channel = CentralGaussian(clip=clip, noise_multiplier=2.0, noise="secure")
    noise = channel.decode(np.zeros(2000), None) / (2.0 * clip)
    assert kstest(noise, "norm").pvalue > FALSE_ALARM


def test_secure_noise_costs_no_more_than_is_claimed():
    pytest.importorskip("opendp")
    from fedprior.privacy.secure import _gaussian

    for clip, noise, size in ((1e-6, 2.0, 1000), (1.0, 100.0, 10_000), (50.0, 0.3, 3)):
        assert _gaussian(size, clip, noise).map(reach(clip, size)) <= 1 / (2 * noise**2)


@pytest.mark.parametrize("clip", [0.5, 3e-9, 7e4])
def test_secure_sums_are_exact(clip):
    """A client moves the sum by its own message, cut to a grid; a float32 sum depends on who else
    is there, and in which order, by about 1e-7 clips a client.
    """
    draws = np.random.default_rng(0)
    messages = draws.normal(size=(300, 40)).astype(np.float32) * clip
    messages[0] = 1e-20 * clip
    channel = replace(CHANNEL, clip=clip)
    rows = np.asarray(jax.vmap(lambda row: channel.encode(row, None))(messages))
    total = jax.jit(lambda rows: add_exactly(rows, clip=clip))

    def found(rows):
        return value(np.asarray(total(rows)), clip=clip)

    grid = 2.0 ** (np.floor(np.log2(clip)) - 22)
    cut = np.trunc(rows.astype(np.float64) / grid) * grid
    wanted = [sum(map(Fraction, column), Fraction()) for column in cut.T.tolist()]
    assert [Fraction(each) for each in found(rows).tolist()] == wanted
    assert np.abs(cut - rows).max() < 3e-7 * clip
    other = rows[draws.permutation(300)]
    np.testing.assert_array_equal(found(other), found(rows))
    without = rows.copy()
    without[7] = 0
    moved = found(rows) - found(without)
    np.testing.assert_array_equal(moved, cut[7])
    assert np.linalg.norm(cut, axis=1).max() <= reach(clip, 40)
    floats = [np.asarray(jax.jit(lambda rows: rows.sum(axis=0))(each)) for each in (rows, other)]
    assert (floats[0] != floats[1]).any()  # what the exact sum is for


def test_a_clip_in_float32_keeps_to_its_reach():
    """The longest that a clipped message was in 20 draws of 100,000 coordinates."""
    messages = 10 * np.random.default_rng(1).standard_normal((20, 100_000)).astype(np.float32)
    sent = np.asarray(jax.vmap(lambda row: CHANNEL.encode(row, None))(messages), np.float64)
    assert np.linalg.norm(sent, axis=1).max() <= reach(CHANNEL.clip, 100_000)


def test_secure_noise_is_added_to_the_exact_sum():
    """Compiled, as an engine does it; noise of 1e-6 clips is not enough to hide a wrong sum."""
    pytest.importorskip("opendp")
    channel = CentralGaussian(clip=1.0, noise_multiplier=1e-6, noise="secure")
    rows = np.array([[0.5, -0.25, 0.0], [0.25, 0.125, -1.0]], np.float32)
    for each in (channel, Chain((Identity(), channel))):
        found = jax.jit(lambda rows, each=each: each.decode(each.add(rows), jax.random.key(0)))(
            rows
        )
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, rows.sum(axis=0), atol=1e-5)


def test_noise_of_the_stated_scale_is_added_even_without_anybody():
    """Kolmogorov-Smirnov on 4,000 coordinates: would detect a scale wrong by 12%."""
    total = CHANNEL.decode(jax.numpy.zeros(4000), jax.random.key(3))
    assert kstest(np.asarray(total) / 2.0, "norm").pvalue > FALSE_ALARM


def test_messages_are_clipped_as_one_vector():
    messages = np.array([[3.0, 4.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]])
    sent = CHANNEL.encode(messages, None)
    np.testing.assert_allclose(sent, [[0.3, 0.4, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_secure_noise_is_recorded_and_never_the_same(plane, tmp_path):
    pytest.importorskip("opendp")
    channel = CentralGaussian(clip=0.5, noise_multiplier=4.0, noise="secure")
    options = {"rounds": 2, "channel": channel, "cohort": COHORT}
    with pytest.raises(PrivacyError, match="must be recorded"):
        simulate(averaging(), plane, **options)
    found = []
    for name in "ab":
        with Ledger(tmp_path / name, terms(noise="secure")) as ledger:
            found.append(simulate(averaging(), plane, ledger=ledger, **options))
    assert not np.array_equal(found[0].state["gamma"], found[1].state["gamma"])
    with (
        Ledger(tmp_path / "c", terms()) as ledger,
        pytest.raises(PrivacyError, match="noise must be the channel's"),
    ):
        simulate(averaging(), plane, ledger=ledger, **options)
