"""Clients in chunks: of any number, computed as in one batch, each of them counted once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.data.federation import PADDED_AXES, ClientData
from fedprior.engines import batch

NUMBERS = (1, 2, 5, 7, 12)


def mapped(number, at_once, add):
    """Each client's own sum, which is sent, and its memory plus one, which it keeps."""
    x = jnp.arange(3.0 * number).reshape(number, 3)
    data = ClientData(x, x[:, 0], jnp.zeros(number, int), jnp.ones(number, int), jnp.arange(1))

    def one(memory, own, client):
        found = own.x * client
        return (found, memory + 1) if add else found

    memories = jnp.arange(number)
    return jax.jit(
        lambda: batch.over_clients(
            one, memories, data, memories + 1, axes=PADDED_AXES, at_once=at_once, add=add
        )
    )()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
def test_chunks_add_up_to_the_whole(number, at_once):
    total, kept = mapped(number, at_once, lambda rows: rows.sum(axis=0))
    x = np.arange(3.0 * number).reshape(number, 3) * (1 + np.arange(number))[:, None]
    np.testing.assert_allclose(total, x.sum(axis=0))
    np.testing.assert_array_equal(kept, 1 + np.arange(number))
    np.testing.assert_allclose(mapped(number, at_once, None), x)


@pytest.mark.parametrize(
    ("number", "at_once", "length"), [(67, 33, 23), (67, 66, 34), (64, 16, 16), (5, 9, 5)]
)
def test_no_number_of_clients_is_cut_into_single_ones(number, at_once, length):
    assert batch.chunk_length(number, (), at_once=at_once) == length


@pytest.mark.parametrize(("number", "length"), [(67, 5), (10, 10), (11, 4), (500, 5)])
def test_chunks_fit_into_the_cache(number, length, monkeypatch):
    memories = np.zeros((number, 25), np.float32)
    monkeypatch.setattr(batch, "CPU_CHUNK_BYTES", 500)  # 5 clients
    assert batch.chunk_length(number, memories) == length


def test_a_model_larger_than_the_cache_is_computed_alone(monkeypatch):
    monkeypatch.setattr(batch, "CPU_CHUNK_BYTES", 500)
    assert batch.chunk_length(7, (), copied=np.zeros(1000)) == 1
