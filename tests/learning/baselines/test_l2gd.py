"""L2GD against its Algorithm 1 in NumPy, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom
from softmax_twin import (
    MODEL,
    PLAIN,
    ROUNDS,
    STEPS,
    THETA_RATE,
    agree,
    close,
    moved,
    played_by,
    rate,
    slope,
    stacked,
    times,
)

import fedprior
from fedprior.core import random
from fedprior.learning.baselines.l2gd import CutWarning, remaining, runs

FALSE_ALARM = 1e-6
NUMBER = 20_000  # rounds
PENALTY, P = 0.7, 1 / STEPS
SEED = 61  # its coins make two gradient steps a round, and a run of moves between them


@jax.jit
def draw(words, probability):
    return jax.vmap(lambda round_: jnp.stack(runs(words, round_, probability)))(jnp.arange(NUMBER))


def coins(words, probability):
    """(moves, steps) of the first rounds."""
    return np.asarray(draw(words, probability))


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.l2gd(MODEL, penalty=PENALTY, theta_rate=THETA_RATE, **PLAIN)
    first = algorithm.init(random.fold(random.root(SEED), "init"))  # p = 1 / local_steps
    return played_by(algorithm, federation, state=first)


def test_rounds_are_runs_of_moves_and_of_steps(played):
    """x_i <- x_i - a grad f_i / (n (1 - p)), or x_i <- x_i - a penalty / (n p) (x_i - mean).

    With theta_rate = a / (n (1 - p)); the mean is taken anew at every move, and stays. The rate of
    a round's moves is that of its first step.
    """
    drawn = coins(played.first["words"], P)[:ROUNDS]
    assert drawn.tolist() == [[1, 2], [3, 2]]
    begin = stacked(played.first["gamma"]["mean"])
    own, a = [begin, begin], THETA_RATE * 2 * (1 - P)
    for round_, (moves, steps) in enumerate(drawn):
        time = round_ * STEPS
        for _ in range(moves):
            mean = played.mean(own)
            own = [v - a * rate(time) * PENALTY / (2 * P) * (v - mean) for v in own]
        for client in played.cohort:
            for number in range(steps):
                _, x, y = played.batch(client, time + number)
                gradient = slope(own[client], x, y)
                own[client] = moved(own[client], gradient, a / (2 * (1 - P)), time + number)
    agree(played.state["gamma"]["mean"], played.mean(own))
    for client in played.cohort:
        agree(played.theta(client), own[client])
    np.testing.assert_array_equal(played.memories["step"], [4, 4, 0])


def test_a_newcomer_steps_from_the_mean_and_is_held_toward_it(played):
    v = mean = stacked(played.state["gamma"]["mean"])
    for number, time in enumerate(times(ROUNDS)):
        _, x, y = played.batch(played.newcomer, number)
        v = moved(v, slope(v, x, y) + PENALTY * (v - mean), THETA_RATE, time)
    agree(played.theta(played.newcomer), v)


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


def test_a_share_that_is_cut_is_said():
    """0.2 * 3 * 9 = 5.4 of the way: penalties above 3 / 5.4 make no difference."""
    given = {"theta_rate": 0.2, "probability": 0.1}
    with pytest.warns(CutWarning, match=r"^l2gd: moves .*Here it is 5.4: .* above 0\.556 are all"):
        fedprior.learning.l2gd(MODEL, penalty=3.0, **given)
    fedprior.learning.l2gd(MODEL, penalty=0.5, **given)


def test_one_step_a_round_leaves_no_coin():
    with pytest.raises(ValueError, match=r"^l2gd: local_steps must be above 1, got 1\. A client"):
        fedprior.learning.l2gd(MODEL, steps=fedprior.Steps(local_steps=1))
    with pytest.raises(ValueError, match=r"^l2gd: probability must be in \(0, 1\), got 1.0"):
        fedprior.learning.l2gd(MODEL, probability=1.0)
