"""A personal model is made of its client's training samples, whatever it is scored on."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from toys import averaging, points

import fedprior
from fedprior.engines import evaluate

RUN = {"rounds": 2, "cohort": fedprior.FixedSize(size=3)}


def adapting():
    """Theta is the mean of the samples that `personalize` is given."""

    def personalize(state, memory, data, key):
        x, _, mask = data.all()
        return {"own": jnp.sum(x * mask[:, None], axis=0) / data.size}

    return replace(averaging(), personalize=personalize)


def by_hand(federation, part):
    """Minus the mean distance of a client's samples to the mean of its training samples."""
    found = []
    for client in range(federation.num_clients):
        center = federation.train.client(client).x.mean(axis=0)
        x = getattr(federation, part).client(client).x
        found.append(-np.abs(x - center).sum(axis=1).mean())
    return np.array(found)


@pytest.mark.parametrize("store", ["device", "disk"])
def test_simulated_clients_adapt_to_their_training_samples(store):
    federation = points()
    found = fedprior.simulate(adapting(), federation, store=store, **RUN)
    np.testing.assert_allclose(found.scores, by_hand(federation, "test"), rtol=1e-5)
    np.testing.assert_allclose(found.valid_scores, by_hand(federation, "valid"), rtol=1e-5)


def test_swept_clients_adapt_to_their_training_samples():
    federation = points()
    found = fedprior.sweep(lambda rate: adapting(), federation, over={"rate": [0.1]}, **RUN)
    np.testing.assert_allclose(found.scores[0], by_hand(federation, "test"), rtol=1e-5)
    np.testing.assert_allclose(found.valid[0, 0], by_hand(federation, "valid"), rtol=1e-5)


def test_adapting_to_the_test_samples_is_noticed(monkeypatch):
    """Planted: each split is scored by models that were adapted to it."""
    federation = points()
    whole = evaluate.scores

    def planted(algorithm, *, train, splits, **rest):
        return {
            name: whole(algorithm, train=source, splits={name: source}, **rest)[name]
            for name, source in splits.items()
        }

    monkeypatch.setattr("fedprior.engines.simulate.scores", planted, raising=False)
    found = fedprior.simulate(adapting(), federation, **RUN)
    assert np.abs(found.scores - by_hand(federation, "test")).max() > 1e-3
