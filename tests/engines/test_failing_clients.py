"""A client whose update is not finite is left out and counted; `debug` names it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from toys import MARK, Scripted, averaging, points

import fedprior
from fedprior.core import tree

FAILING = 2
WITH = Scripted(((0, 2, 4), (1, 2, 3), (2, 3, 5), (0, 1, 5)), 3)
WITHOUT = Scripted(tuple(tuple(c for c in own if c != FAILING) for own in WITH.rounds), 3)


def failing(where, value):
    """`averaging` that gives `value` in its message or its memory to the marked client."""
    plain = averaging()

    def local(state, memory, data, key):
        message, after = plain.local(state, memory, data, key)
        bad = jnp.where(data.take(jnp.int32(0))[0].max() > MARK, value, 0.0)
        if where == "message":
            return message._replace(value={"gamma": message.value["gamma"] + bad}), after
        if where == "weight":
            return message._replace(weight=message.weight + bad), after
        return message, {**after, "own": after["own"] + bad}

    return replace(plain, local=local)


def close(first, second):
    np.testing.assert_allclose(first["gamma"], second["gamma"], rtol=1e-6)
    assert int(first["round"]) == int(second["round"])


@pytest.mark.parametrize("store", ["device", "disk"])
@pytest.mark.parametrize(
    ("where", "value"), [("message", np.nan), ("weight", np.inf), ("memory", -np.inf)]
)
def test_the_run_goes_on_as_if_the_client_were_absent(where, value, store):
    algorithm, clients = failing(where, value), points(marked=FAILING)
    run = {"rounds": 6, "store": store}
    result = fedprior.simulate(algorithm, clients, cohort=WITH, **run)
    absent = fedprior.simulate(algorithm, clients, cohort=WITHOUT, **run)
    assert result.left_out == 5
    assert [entry["left_out"] for entry in result.history] == [1, 1, 1, 0, 1, 1]
    assert [entry["clients"] for entry in result.history] == [2, 2, 2, 3, 2, 2]
    assert absent.left_out == 0
    close(result.state, absent.state)
    everyone = np.arange(6)
    mine, others = (found.store.read(everyone) for found in (result, absent))
    np.testing.assert_array_equal(mine[1], others[1])
    assert not mine[1][FAILING]
    np.testing.assert_allclose(mine[0]["own"], others[0]["own"], rtol=1e-6)
    np.testing.assert_array_equal(mine[0]["visits"], others[0]["visits"])


def test_a_memory_from_better_days_is_kept():
    """A client that fails in its second participation keeps what it had."""
    plain = averaging()

    def local(state, memory, data, key):
        message, after = plain.local(state, memory, data, key)
        bad = jnp.where(memory["visits"] >= 1, jnp.nan, 0.0)
        return message, {**after, "own": after["own"] + bad}

    algorithm = replace(plain, local=local)
    cohort = Scripted(((0, 1), (2, 3), (0, 2), (4, 5)), 2)
    once = fedprior.simulate(algorithm, points(), rounds=2, cohort=cohort)
    result = fedprior.simulate(algorithm, points(), rounds=3, cohort=cohort)
    assert result.left_out == 2
    for name in ("own", "visits"):
        np.testing.assert_array_equal(result.store.memories[name], once.store.memories[name])
    np.testing.assert_array_equal(result.state["gamma"], once.state["gamma"])


def test_a_round_of_failures_changes_nothing_learned():
    algorithm, clients = failing("message", np.nan), points(marked=FAILING)
    cohort = Scripted(((0, 1), (FAILING,)), 2)
    one = fedprior.simulate(algorithm, clients, rounds=1, cohort=cohort)
    two = fedprior.simulate(algorithm, clients, rounds=2, cohort=cohort)
    np.testing.assert_array_equal(one.state["gamma"], two.state["gamma"])
    assert two.history[1]["clients"] == 0


def test_a_real_model_that_overflows_is_left_out():
    """Inputs that are finite and far too large: the gradient is not."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(40, 3)).astype(np.float32)
    clients = np.repeat(np.arange(4), 10)
    x[clients == 1] *= 1e30
    y = (x @ np.ones(3) > 0).astype(int)
    federation = fedprior.Federation.from_arrays(x, y, clients)
    algorithm = fedprior.learning.fedavg(
        fedprior.mlp((3,), 2, hidden=(3,)), steps=fedprior.Steps(local_steps=2)
    )
    result = fedprior.simulate(algorithm, federation, rounds=2)
    assert result.left_out == 2
    assert bool(tree.is_finite(result.state))
    assert np.isfinite(result.scores).all()


@pytest.mark.parametrize("compiled", [True, False])
def test_debug_names_the_client_that_is_not_finite(compiled):
    algorithm, clients = failing("message", np.nan), points(marked=FAILING)
    cohort = Scripted(((0, 1), (FAILING, 3)), 2)
    with pytest.raises(
        fedprior.ClientError, match="client-2 failed in round 1: its update is"
    ) as caught:
        fedprior.debug(algorithm, clients, rounds=4, cohort=cohort, compiled=compiled)
    error = caught.value
    assert (error.client, error.round) == ("client-2", 1)
    assert set(error.inputs) == {"state", "memory", "data", "key"}
    assert int(error.inputs["state"]["round"]) == 1
    assert float(error.inputs["data"].x.max()) > MARK
    message, _ = algorithm.local(*error.inputs.values())  # the failure can be looked at again
    assert np.isnan(message.value["gamma"]).all()


def test_debug_names_the_client_that_raises():
    plain = averaging()

    def local(state, memory, data, key):
        if float(data.x.max()) > MARK:
            raise ZeroDivisionError("by hand")
        return plain.local(state, memory, data, key)

    algorithm, clients = replace(plain, local=local), points(marked=FAILING)
    with pytest.raises(
        fedprior.ClientError, match="client-2 failed in round 0: ZeroDivisionError: by"
    ):
        fedprior.debug(algorithm, clients, rounds=1, compiled=False)
