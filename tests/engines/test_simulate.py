"""The simulator: history, evaluation, patience, channels, pooling, stores."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Scripted, averaging, points

import fedprior
from fedprior.core.protocols import PrivateChannel
from fedprior.data import synthetic

STORES = ["device", "disk"]


def close(first, second, tolerance=1e-6):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# History and evaluation


@pytest.mark.parametrize("store", STORES)
def test_history_has_an_entry_a_round(toy, plane, store):
    result = fedprior.simulate(
        toy, plane, rounds=7, cohort=fedprior.FixedSize(size=3), evaluate_every=3, store=store
    )
    assert result.rounds == len(result.history) == 7
    for number, entry in enumerate(result.history):
        assert set(entry) - {"valid"} == {"level", "clients", "left_out"}
        assert (entry["clients"], entry["left_out"]) == (3, 0)
        assert ("valid" in entry) == (number + 1 in (3, 6))
    assert result.history[-1]["level"] == float(result.state["level"])
    assert result.scores.shape == result.valid_scores.shape == (6,)


def test_evaluations_are_the_final_scores_of_shorter_runs(toy, plane):
    run = {"cohort": fedprior.FixedSize(size=3), "seed": 4}
    result = fedprior.simulate(toy, plane, rounds=7, evaluate_every=3, **run)
    shorter = fedprior.simulate(toy, plane, rounds=3, **run)
    assert result.history[2]["valid"] == shorter.valid_scores.mean()


def test_no_rounds_at_all(toy, plane):
    result = fedprior.simulate(toy, plane, rounds=0)
    assert result.history == []
    np.testing.assert_array_equal(result.state["gamma"], 0)
    assert np.isfinite(result.scores).all()


def test_test_scores_only_when_asked(toy, plane):
    result = fedprior.simulate(toy, plane, rounds=2, test=False)
    assert result.scores.shape == (0,)
    assert result.valid_scores.shape == (6,)


@pytest.mark.parametrize("store", STORES)
def test_clients_without_samples_have_no_score(toy, plane, store):
    splits = {}
    for name, missing in (("valid", 1), ("test", 5)):
        split = getattr(plane, name)
        rows = [np.arange(s, s + n) for s, n in zip(split.start, split.size, strict=True)]
        rows[missing] = rows[missing][:0]
        splits[name] = fedprior.data.Split.gather(split.x, split.y, rows)
    clients = replace(plane, **splits)
    whole = fedprior.simulate(toy, plane, rounds=2, store=store)
    result = fedprior.simulate(toy, clients, rounds=2, store=store, evaluate_every=1)
    for found, full, missing in (
        (result.valid_scores, whole.valid_scores, 1),
        (result.scores, whole.scores, 5),
    ):
        assert np.isnan(found[missing])
        others = np.arange(6) != missing
        np.testing.assert_allclose(found[others], full[others], rtol=1e-6)
    assert np.isfinite(result.history[0]["valid"])


def test_without_validation_samples_there_is_no_validation_score(toy):
    clients = points(valid=0)
    result = fedprior.simulate(toy, clients, rounds=3, evaluate_every=1)
    assert all("valid" not in entry for entry in result.history)
    assert np.isnan(result.valid_scores).all()
    with pytest.raises(ValueError, match="patience must be None without evaluate_every and valid"):
        fedprior.simulate(toy, clients, rounds=3, evaluate_every=1, patience=1)


def worsening():
    """Scores rise for three visits of everyone and fall from then on."""
    plain = averaging()

    def predict(theta, x):
        return jnp.zeros(len(x)) + jnp.abs(theta["visits"] - 3)

    def personalize(state, memory, data, key):
        return {**plain.personalize(state, memory, data, key), "visits": memory["visits"]}

    return replace(plain, predict=predict, personalize=personalize)


@pytest.mark.parametrize("patience", [1, 3])
def test_patience_ends_a_run(plane, tmp_path, patience):
    """The best score is at round 3; it ends when that is `patience` evaluations old, and saves."""
    algorithm = worsening()
    run = {"rounds": 30, "evaluate_every": 1, "patience": patience}
    result = fedprior.simulate(algorithm, plane, **run)
    assert result.rounds == 3 + patience
    saving = fedprior.Saving(folder=tmp_path, every=100, resume=True)
    fedprior.simulate(algorithm, plane, saving=saving, **run)
    steps = []
    again = fedprior.simulate(algorithm, plane, saving=saving, progress=steps.append, **run)
    assert steps == []
    assert again.history == result.history


def test_progress_tells_rounds_and_scores(toy, plane):
    steps = []
    fedprior.simulate(toy, plane, rounds=9, evaluate_every=4, progress=steps.append)
    rounds = [step.round for step in steps]
    assert rounds == sorted(set(rounds))
    assert {4, 8, 9} <= set(rounds)
    assert all(step.rounds == 9 and step.clients_per_second > 0 for step in steps)
    assert np.isnan(steps[0].score)
    assert np.isfinite(steps[-1].score)


def test_arguments_are_checked(toy, plane):
    for wrong, refusal in (
        ({"rounds": -1}, "rounds must be a whole number of at least 0, got -1"),
        ({"store": "dsk"}, "store must be one of device, disk, got 'dsk'. Did you mean disk"),
        ({"evaluate_every": 0}, "evaluate_every must be a whole number of at least 1"),
        ({"patience": 2}, "patience must be None without evaluate_every"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ):
        with pytest.raises(ValueError, match=refusal):
            fedprior.simulate(toy, plane, **{"rounds": 1, **wrong})
    with pytest.raises(ValueError, match="Saving: every must be a whole number of at least 1"):
        fedprior.Saving(folder="x", every=0)


def test_one_client_of_a_result(toy, plane):
    result = fedprior.simulate(toy, plane, rounds=3)
    np.testing.assert_array_equal(result.theta(2)["own"], result.thetas["own"][2])
    assert result.predict(2, plane.test.x).shape == (12,)
    with pytest.raises(
        ValueError, match=r"client must be below the number of clients \(6\), got 6"
    ):
        result.theta(6)


# Channels


@dataclass(frozen=True)
class Toy(PrivateChannel):
    """Clips to `clip` and adds a known offset to the sum; refuses to carry a weight."""

    clip: float = 0.5
    offset: float = 0.25
    view = "central"

    def encode(self, message, key):
        assert message.shape == (2,), "a weight was sent"
        return message * (self.clip / jnp.maximum(jnp.linalg.norm(message), self.clip))

    def decode(self, total, key):
        return total + self.offset


COHORT = Scripted(((0, 3), (), (1, 2, 5)), 4)  # expected size 4: not the number that came


@pytest.mark.parametrize("store", STORES)
def test_a_private_channel_divides_by_the_public_size(toy, plane, store):
    """By hand: clipped increments, summed, offset, over 4, whoever came."""
    result = fedprior.simulate(toy, plane, rounds=1, cohort=COHORT, channel=Toy(), store=store)
    total = np.full(2, 0.25)
    for client in (0, 3):
        x = plane.train.client(client).x
        moved = 0.5 * x.mean(axis=0)
        total += moved * 0.5 / max(0.5, np.linalg.norm(moved))
    np.testing.assert_allclose(result.state["gamma"], total / 4, rtol=1e-5)


@pytest.mark.parametrize("store", STORES)
def test_noise_is_added_even_when_nobody_came(toy, plane, store):
    run = {"cohort": COHORT, "channel": Toy(), "store": store}
    one = fedprior.simulate(toy, plane, rounds=1, **run)
    two = fedprior.simulate(toy, plane, rounds=2, **run)
    np.testing.assert_allclose(two.state["gamma"] - one.state["gamma"], 0.25 / 4, rtol=1e-5)
    assert two.history[1]["clients"] == 0
    slow = fedprior.debug(toy, plane, rounds=3, cohort=COHORT, channel=Toy())
    fast = fedprior.simulate(toy, plane, rounds=3, **run)
    close(slow.state, fast.state)


def test_a_private_channel_refuses_weights_by_samples(plane):
    refusal = "weight must be 'uniform' for averaging under a private channel"
    for engine in (fedprior.simulate, fedprior.debug):
        with pytest.raises(fedprior.PrivacyError, match=refusal):
            engine(averaging(weight="samples"), plane, rounds=1, channel=Toy())


def test_a_clear_channel_carries_the_weight(plane):
    """Sizes as weights: the first round's gamma moves by half of the mean over all samples."""
    result = fedprior.simulate(averaging(weight="samples"), plane, rounds=1)
    np.testing.assert_allclose(
        result.state["gamma"], 0.5 * plane.train.x.mean(axis=0), rtol=1e-5, atol=1e-6
    )


# Servers that need every message


def median():
    """Gamma moves by the median over those that came; it needs them one by one."""
    plain = averaging(name="median")

    def update(state, total):
        moved = jnp.where(total.weight[:, None] > 0, total.value["gamma"], jnp.nan)
        step = jnp.nan_to_num(jnp.nanmedian(moved, axis=0))
        gamma = state["gamma"] + step
        return {**state, "gamma": gamma, "round": state["round"] + 1}

    return replace(plain, update=update, pools="gather")


def test_a_gathering_server_gets_every_message(plane):
    algorithm = median()
    slow = fedprior.debug(algorithm, plane, rounds=4, cohort=COHORT)
    for store in STORES:
        fast = fedprior.simulate(algorithm, plane, rounds=4, cohort=COHORT, store=store)
        close(slow.state, fast.state)
    first = fedprior.simulate(algorithm, plane, rounds=1)
    means = [0.5 * plane.train.client(client).x.mean(axis=0) for client in range(6)]
    np.testing.assert_allclose(first.state["gamma"], np.median(means, axis=0), rtol=1e-5)


def test_a_gathering_server_is_refused_under_a_private_channel(plane):
    with pytest.raises(fedprior.PrivacyError, match=r"must be Identity\(\) for median, got"):
        fedprior.simulate(median(), plane, rounds=1, channel=Toy())


# Stores


def test_memory_mapped_clients_give_the_same_run(tmp_path):
    """Device and disk store, clients in memory and in mapped files."""
    options = {"num_clients": 8, "samples_per_client": (4, 8), "num_features": 2, "seed": 3}
    mapped = synthetic.classification(folder=tmp_path, **options)
    assert isinstance(mapped.train.x, np.memmap)
    inside = synthetic.classification(**options)
    algorithm = averaging()
    run = {"rounds": 9, "cohort": fedprior.FixedSize(size=3), "seed": 6}
    first = fedprior.simulate(algorithm, inside, store="device", **run)
    for clients, store in ((mapped, "disk"), (inside, "disk"), (mapped, "device")):
        other = fedprior.simulate(algorithm, clients, store=store, **run)
        close(first.state, other.state)
        close(first.store.read(np.arange(8)), other.store.read(np.arange(8)))
        close(first.thetas, other.thetas)
        np.testing.assert_allclose(first.scores, other.scores, rtol=1e-5)
        np.testing.assert_allclose(first.valid_scores, other.valid_scores, rtol=1e-5)
        assert [e["clients"] for e in first.history] == [e["clients"] for e in other.history]


def test_a_client_that_comes_twice_in_a_row_finds_its_memory(plane):
    """The disk engine reads a cohort ahead: what the round before wrote must be in it."""
    algorithm = averaging()
    cohort = Scripted(((0, 1), (0, 1), (1, 2), (0,), (0, 2)), 3)
    run = {"rounds": 10, "cohort": cohort}
    device, disk = (fedprior.simulate(algorithm, plane, store=store, **run) for store in STORES)
    close(device.store.read(np.arange(6)), disk.store.read(np.arange(6)))
    np.testing.assert_array_equal(device.store.memories["visits"], [8, 6, 4, 0, 0, 0])
