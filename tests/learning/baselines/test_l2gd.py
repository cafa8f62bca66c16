"""L2GD against its Algorithm 1 in NumPy, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom
from softmax_rounds import COMMON, ROUNDS, STEPS, THETA_RATE, close, pair, personal, samples
from softmax_twin import MODEL, slope, stacked

import fedprior
from fedprior.core import random
from fedprior.learning.baselines.l2gd import remaining, runs

FALSE_ALARM = 1e-6
NUMBER = 20_000  # rounds
PENALTY, P = 0.7, 1 / STEPS
SEED = 61  # its coins make two gradient steps a round, and a run of moves between them
CHOICES = {name: value for name, value in COMMON.items() if name != "gamma_rate"}


@jax.jit
def draw(words, probability):
    return jax.vmap(lambda round_: jnp.stack(runs(words, round_, probability)))(jnp.arange(NUMBER))


def coins(words, probability):
    """(moves, steps) of the first rounds."""
    return np.asarray(draw(words, probability))


def test_rounds_are_runs_of_moves_and_of_steps(play):
    """x_i <- x_i - a grad f_i / (n (1 - p)), or x_i <- x_i - a penalty / (n p) (x_i - mean).

    With theta_rate = a / (n (1 - p)); the mean is taken anew at every move, and stays.
    """
    clients = pair()
    algorithm = fedprior.l2gd(MODEL, penalty=PENALTY, **CHOICES)  # p = 1 / local_steps
    first = algorithm.init(random.fold(random.root(SEED), "init"))
    drawn = coins(first["words"], P)[:ROUNDS]
    assert drawn.tolist() == [[1, 2], [3, 2]]
    state, memories = play(algorithm, clients, ROUNDS, state=first)
    begin = stacked(first["gamma"]["mean"]).astype(float)
    own, a = np.stack([begin, begin]), THETA_RATE * 2 * (1 - P)
    for moves, steps in drawn:
        for _ in range(moves):
            own = own - a * PENALTY / (2 * P) * (own - own.mean(axis=0))
        for _ in range(steps):
            slopes = [slope(v, x, y) for v, (x, y) in zip(own, samples(clients), strict=True)]
            own = own - a / (2 * (1 - P)) * np.stack(slopes)
    close(stacked(state["gamma"]["mean"]), own.mean(axis=0))
    close(stacked(personal(algorithm, clients, state, memories)), own)
    np.testing.assert_array_equal(memories["step"], 4)


def test_runs_are_those_of_a_coin():
    """P(moves > k) = p^k, P(steps > k) = (1 - p)^k; a run one too short or long would show."""
    moves, steps = coins(random.words(random.root(5)), 0.3).T
    for drawn, again in ((moves, 0.3), (steps, 0.7)):
        assert drawn.min() == 1
        for more in (1, 3):
            low, high = binom.ppf([FALSE_ALARM / 8, 1 - FALSE_ALARM / 8], NUMBER, again**more)
            assert low <= np.sum(drawn > more) <= high


def test_a_move_does_not_pass_the_mean():
    close(remaining(np.array([0.25, 1.5]), np.array([2, 3])), [0.5625, 0])


def test_one_step_a_round_leaves_no_coin():
    with pytest.raises(ValueError, match=r"^l2gd: local_steps must be above 1, got 1\. A client"):
        fedprior.l2gd(MODEL, local_steps=1)
    with pytest.raises(ValueError, match=r"^l2gd: probability must be in \(0, 1\), got 1.0"):
        fedprior.l2gd(MODEL, probability=1.0)
