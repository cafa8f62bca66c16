"""IFCA against its Algorithm 1 in NumPy, model and gradient averaging."""

import numpy as np
import pytest
from softmax_rounds import COMMON, GAMMA_RATE, ROUNDS, STEPS, close, loss, personal, samples
from softmax_twin import MODEL, slope, stacked

import fedprior
from fedprior.core import random

CHOICES = {name: value for name, value in COMMON.items() if name != "theta_rate"}


@pytest.fixture(scope="module")
def kinds():
    """Two clients of one kind and one of another."""
    draws = np.random.default_rng(2)
    x, own = draws.normal(size=(30, 4)), np.repeat(np.arange(3), 10)
    labels = np.argmax(x @ draws.normal(size=(4, 3)) * np.where(own < 2, 3, -3)[:, None], axis=1)
    y = np.array(list("abc"))[labels]
    return fedprior.Federation.from_arrays(x, y, own, valid_share=0.0, test_share=0.0)


@pytest.mark.parametrize("averaging", ["models", "gradients"])
def test_rounds_are_those_of_algorithm_1(play, kinds, averaging):
    """Three models, one of which nobody takes: it stays where it is."""
    algorithm = fedprior.ifca(MODEL, num_components=3, averaging=averaging, **CHOICES)
    first = algorithm.init(random.fold(random.root(0), "init"))
    state, memories = play(algorithm, kinds, ROUNDS, state=first)
    models = stacked(first["gamma"]["centers"]).astype(float)
    for _ in range(ROUNDS):
        chosen, ends = [], []
        for x, y in samples(kinds):
            chosen.append(int(np.argmin([loss(model, x, y) for model in models])))
            end = models[chosen[-1]]
            for _ in range(STEPS if averaging == "models" else 1):
                end = end - GAMMA_RATE * slope(end, x, y)
            ends.append(end)
        for number in set(chosen):
            moves = [
                end - models[number] for c, end in zip(chosen, ends, strict=True) if c == number
            ]
            over = len(moves) if averaging == "models" else len(chosen)
            models[number] = models[number] + np.sum(moves, axis=0) / over
    assert sorted(np.bincount(chosen, minlength=3)) == [0, 1, 2]
    close(stacked(state["gamma"]["centers"]), models)
    best = [models[np.argmin([loss(model, x, y) for model in models])] for x, y in samples(kinds)]
    close(stacked(personal(algorithm, kinds, state, memories)), np.stack(best))
    assert algorithm.memoryless
