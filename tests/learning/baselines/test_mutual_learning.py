"""Federated mutual learning against a NumPy twin of Shen et al. 2020."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy.special import rel_entr, softmax
from softmax_twin import (
    COMMON,
    GAMMA_RATE,
    MODEL,
    ROUNDS,
    STEPS,
    THETA_RATE,
    agree,
    moved,
    played_by,
    slope,
    stacked,
    student_slope,
    times,
)

import fedprior
from fedprior.learning.baselines.mutual_learning import mutual_loss

ALPHA, BETA = 0.3, 0.6


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.mutual_learning(
        MODEL, theta_share=ALPHA, gamma_share=BETA, **COMMON
    )
    assert not algorithm.unit_weight
    assert not algorithm.memoryless
    return played_by(algorithm, federation)


def of(share, own, teacher, x, y):
    """Gradient by a model of share * cross entropy + (1 - share) KL(p_teacher || p_own)."""
    return share * slope(own, x, y) + (1 - share) * student_slope(own, teacher, x)


def trained(played, client, theta, meme, round_):
    """Both models move at once, each at the other's old values."""
    for time in times(round_):
        _, x, y = played.batch(client, time)
        slopes = of(ALPHA, theta, meme, x, y), of(BETA, meme, theta, x, y)
        theta = moved(theta, slopes[0], THETA_RATE, time)
        meme = moved(meme, slopes[1], GAMMA_RATE, time)
    return theta, meme


def test_rounds_are_those_of_the_paper(played):
    mean = stacked(played.first["gamma"]["mean"])
    thetas = [mean for _ in played.cohort]
    for round_ in range(ROUNDS):
        memes = []
        for client in played.cohort:
            thetas[client], meme = trained(played, client, thetas[client], mean, round_)
            memes.append(meme)
        mean = played.mean(memes)
    agree(played.state["gamma"]["mean"], mean)
    for client in played.cohort:
        agree(played.theta(client), thetas[client])
    np.testing.assert_array_equal(played.memories["step"], [ROUNDS * STEPS, ROUNDS * STEPS, 0])


def test_a_newcomer_is_taught_by_the_learned_mean(played):
    theta = mean = stacked(played.state["gamma"]["mean"])
    for number, time in enumerate(times(ROUNDS)):
        _, x, y = played.batch(played.newcomer, number)
        theta = moved(theta, of(ALPHA, theta, mean, x, y), THETA_RATE, time)
    agree(played.theta(played.newcomer), theta)


def single(draws, *shape):
    return draws.normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def drawn():
    draws = np.random.default_rng(0)
    theta, mean = ({"intercept": single(draws, 3), "weight": single(draws, 4, 3)} for _ in range(2))
    return theta, mean, single(draws, 6, 4), draws.integers(0, 3, 6)


def test_divergences_are_sums_over_classes(drawn):
    theta, mean, x, y = drawn
    own, shared = (softmax(x @ each["weight"] + each["intercept"], axis=1) for each in drawn[:2])
    losses = [-np.log(p[np.arange(6), y]) for p in (own, shared)]
    wanted = ALPHA * losses[0] + (1 - ALPHA) * rel_entr(shared, own).sum(axis=1)
    wanted = wanted + BETA * losses[1] + (1 - BETA) * rel_entr(own, shared).sum(axis=1)
    found = jax.jit(partial(mutual_loss, MODEL))(theta, mean, x, y, ALPHA, BETA)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_teachers_carry_no_gradient(drawn):
    """What the mean learns from theta does not move theta, and the other way round."""
    theta, mean, x, y = drawn

    @jax.jit
    def slopes(theta_share, gamma_share):
        def total(theta, mean):
            return mutual_loss(MODEL, theta, mean, x, y, theta_share, gamma_share).sum()

        return jax.grad(total, argnums=(0, 1))(theta, mean)

    first, second = slopes(0.2, 0.9), slopes(0.2, 0.1)
    np.testing.assert_array_equal(first[0]["weight"], second[0]["weight"])
    assert np.abs(first[1]["weight"] - second[1]["weight"]).max() > 0.1
    third = slopes(0.8, 0.9)
    np.testing.assert_array_equal(first[1]["weight"], third[1]["weight"])
    assert np.abs(first[0]["weight"] - third[0]["weight"]).max() > 0.1


@pytest.mark.parametrize(
    ("option", "wording"),
    [
        ({"theta_share": 1.0}, r"theta_share must be in \(0, 1\), got 1.0"),
        ({"theta_share": 0.0}, r"theta_share must be in \(0, 1\), got 0.0"),
        ({"gamma_share": 1.1}, r"gamma_share must be in \(0, 1\], got 1.1"),
    ],
)
def test_bad_options(option, wording):
    with pytest.raises(ValueError, match=f"^mutual-learning: {wording}"):
        fedprior.learning.mutual_learning(MODEL, **option)
