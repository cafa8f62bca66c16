"""Numbers may be traced: a sweep makes an axis of any of them."""

import jax
import pytest
from softmax_twin import COMMON, MODEL

from fedprior.core import random
from fedprior.learning import catalog

SHAPED = {"decay": 0.9, "weight_decay": 1e-4, "clip": 1.0}
RATES = {"theta_rate": 0.1, "gamma_rate": 0.1}
NUMBERS = {
    "fedem": {"gamma_rate": 0.1},
    "mutual-learning": {**RATES, "theta_share": 0.2, "gamma_share": 0.3},
    "per-fedavg": RATES,
    "pfedme": {**RATES, "penalty": 0.5, "server_rate": 0.9},
    "quped": {**RATES, "penalty": 0.3, "temperature": 2.0},
}


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_may_be_traced(federation, name):
    def program(numbers, data, key):
        algorithm = catalog.method(name).build(MODEL, numbers, steps=COMMON["steps"])
        state = algorithm.init(key)
        memory = algorithm.enroll(state, 0, key)
        message, memory = algorithm.local(state, memory, data, key)
        state = algorithm.update(state, message)
        return state, algorithm.personalize(state, memory, data, key)

    jax.eval_shape(program, {**SHAPED, **NUMBERS[name]}, federation.train.client(0), random.root(0))
