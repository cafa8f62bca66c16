"""The laws of a whole run, for every method: engines agree, and nobody else's data matter."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from law_cases import Turns, close, own_data, same

import fedprior
from fedprior.core import random, tree

RUN = {"rounds": 3, "seed": 1}
EVERYBODY = np.arange(4)
NEWCOMER, FAILING = 3, 1  # one who never takes part; one whose samples are NaN
USUAL = Turns(((0, 1), (1, 2), (0, 2)))
WITHOUT = Turns(((0,), (2,), (0, 2)))  # the usual rounds, less the one who fails


def simulated(algorithm, federation, cohort=USUAL, **more):
    """What a run ends with; all runs of a method share their programs."""
    result = fedprior.simulate(algorithm, federation, cohort=cohort, **{**RUN, **more})
    memories, enrolled = result.store.read(EVERYBODY)
    return SimpleNamespace(
        state=jax.device_get(result.state),
        memories=jax.device_get(memories),
        enrolled=np.asarray(enrolled),
        scores=np.asarray(result.scores),
        valid_scores=np.asarray(result.valid_scores),
        thetas=jax.device_get(result.thetas),
        history=result.history,
        left_out=result.left_out,
    )


def of(clients, rows):
    return jax.tree.map(lambda leaf: leaf[np.asarray(clients)], rows)


@pytest.fixture(scope="module")
def plain(algorithm, small):
    return simulated(algorithm, small)


@pytest.fixture(scope="module")
def slow(algorithm, small):
    """One client after the other."""
    result = fedprior.debug(algorithm, small, cohort=USUAL, **RUN)
    kept = jax.device_get(result.store.read(EVERYBODY))
    thetas = [theta_of(algorithm, small, result.state, client, *kept) for client in EVERYBODY]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *thetas)
    return SimpleNamespace(result=result, kept=kept, thetas=stacked)


def theta_of(algorithm, federation, state, client, memories, enrolled):
    """A client's theta; without a memory it is a newcomer."""
    root = random.root(RUN["seed"])
    memory = of(client, memories)
    if not enrolled[client]:
        key = random.fold(root, "enroll", client)
        memory = jax.jit(algorithm.enroll)(state, jnp.int32(client), key)
    key = random.fold(root, "personalize", client)
    data = own_data(federation, client)
    return jax.jit(algorithm.personalize)(state, memory, data, key)


def agree(slow, fast):
    close(slow.result.state, fast.state)
    close(slow.kept, (fast.memories, fast.enrolled))
    np.testing.assert_allclose(slow.result.scores, fast.scores, atol=1e-6)
    np.testing.assert_allclose(slow.result.valid_scores, fast.valid_scores, atol=1e-6)
    close(slow.thetas, fast.thetas)


def test_simulate_agrees_with_debug(slow, plain):
    """In arrays with an empty place, which adds exactly nothing; newcomers included."""
    agree(slow, plain)
    assert plain.enrolled.tolist() == [True, True, True, False]
    assert bool(tree.is_finite(plain.thetas))


def test_simulate_with_memories_on_disk_agrees_with_debug(algorithm, small, slow):
    agree(slow, simulated(algorithm, small, store="disk"))


def test_draws_are_keyed(algorithm, small, plain):
    """Not ordered: places in the cohort's arrays do not matter; another seed does."""
    turned = simulated(algorithm, small, Turns(((1, 0), (2, 1), (2, 0))))
    close((plain.memories, plain.thetas), (turned.memories, turned.thetas), 1e-5)
    if algorithm.pools == "sum":  # one that sees each message may number its components by it
        close(plain.state, turned.state, 1e-6)
    other = simulated(algorithm, small, seed=4)
    assert not np.array_equal(plain.memories["words"], other.memories["words"])


def test_training_is_blind_to_the_test_samples(algorithm, small, plain):
    """With NaN and a class that is unknown in their place until the last round, the same bits."""
    test = replace(small.test, x=small.test.x.copy(), y=small.test.y.copy())
    blind = replace(small, test=test)
    test.x[:], test.y[:] = np.nan, 3  # after the federation's own check

    def reveal(step):
        if step.round == step.rounds:
            test.x[:], test.y[:] = small.test.x, small.test.y

    found = simulated(algorithm, blind, progress=reveal, evaluate_every=1)
    whole = simulated(algorithm, small, progress=lambda step: None, evaluate_every=1)
    same(vars(found), vars(whole))
    assert all("valid" in entry for entry in found.history[:-1])  # evaluated on the way
    same((found.state, found.memories), (plain.state, plain.memories))


def test_a_client_that_fails_is_left_out(algorithm, small):
    """One whose samples are NaN: the run is that of the others alone, and it keeps no memory."""
    train = replace(small.train, x=small.train.x.copy())
    broken = replace(small, train=train)
    first, size = small.train.start[FAILING], small.train.size[FAILING]
    train.x[first : first + size] = np.nan
    found, others = (simulated(algorithm, broken, cohort) for cohort in (USUAL, WITHOUT))
    assert (found.left_out, others.left_out) == (2, 0)
    same((found.state, found.memories), (others.state, others.memories))
    assert found.enrolled.tolist() == others.enrolled.tolist() == [True, False, True, False]
    sound = [client for client in EVERYBODY if client != FAILING]
    same(of(sound, found.thetas), of(sound, others.thetas))
    assert bool(tree.is_finite((found.state, of(sound, found.thetas))))


def test_an_absent_client_changes_nothing(algorithm, small, plain):
    """Another takes the place of one who never comes: the same state, memories and thetas."""
    train = replace(small.train, x=small.train.x.copy(), y=small.train.y.copy())
    first, size = small.train.start[NEWCOMER], small.train.size[NEWCOMER]
    train.x[first : first + size] *= -7
    train.y[first : first + size] = 2
    found = simulated(algorithm, replace(small, train=train))
    same((found.state, found.memories), (plain.state, plain.memories))
    same(of([0, 1, 2], found.thetas), of([0, 1, 2], plain.thetas))
