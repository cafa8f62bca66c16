"""pFedVEM against the paper in NumPy: evidence bounds of Gaussian heads, confidence as weight."""

import jax
import numpy as np
import pytest
from layers_twin import NETWORK, joined, slopes
from scipy.special import expit
from softmax_twin import (
    COMMON,
    GAMMA_RATE,
    ROUNDS,
    STEPS,
    THETA_RATE,
    close,
    cut,
    moved,
    played_by,
    rate,
    times,
)

import fedprior
from fedprior.core import random
from fedprior.learning import catalog

SCALE, DRAWS, HEAD_STEPS = 0.4, 2, 3


@pytest.fixture(scope="module")
def played(federation):
    options = {"scale": SCALE, "num_draws": DRAWS, "head_steps": HEAD_STEPS}
    algorithm = fedprior.learning.pfedvem(NETWORK, **options, **COMMON)
    assert not algorithm.memoryless
    return played_by(algorithm, federation)


def softplus(raw):
    return np.logaddexp(0, raw)


def draws(key, turn, shape):
    """The library's normal draws of a step: (draws, 1 + hidden, classes), the bias's first."""
    number = int(np.prod(shape))
    noise = np.asarray(jax.random.normal(jax.random.fold_in(key, turn), (DRAWS, number)))
    return noise.reshape(DRAWS, *shape)


def spread(m, raw, mean):
    return np.mean(softplus(raw) ** 2 + (m - mean) ** 2)


def learned_head(played, client, q, body, mean, *, first, time, number, key):
    """Steps on E_q[loss] + KL / n, by the reparametrized gradient and that of the divergence."""
    (m, raw), size = q, len(played.samples(client)[1])
    variance = spread(m, raw, mean)
    for turn in range(number):
        _, x, y = played.batch(client, first + turn)
        noise = draws(key, turn, m.shape)
        s, ds = softplus(raw), expit(raw)
        by_draw = np.stack([slopes(body, m + s * eps, x, y)[1] for eps in noise])
        by_m = by_draw.mean(axis=0) + (m - mean) / variance / size
        by_s = (by_draw * noise).mean(axis=0) + (s / variance - 1 / s) / size
        both = cut(np.stack([by_m, by_s * ds]))
        step = THETA_RATE * rate(time + turn)
        m, raw = m - step * both[0], raw - step * both[1]
    return m, raw


def learned_body(played, client, q, body, round_, key):
    m, raw = q
    for turn, time in enumerate(times(round_)):
        _, x, y = played.batch(client, time)
        noise = draws(key, turn, m.shape)
        by = np.mean([slopes(body, m + softplus(raw) * eps, x, y)[0] for eps in noise], axis=0)
        body = moved(body, by, GAMMA_RATE, time)
    return body


def begun(mean):
    return mean, np.full_like(mean, np.log(np.expm1(SCALE)))


def test_rounds_are_those_of_the_paper(played):
    body = joined(played.first["gamma"]["body"][0])
    mean = joined(played.first["gamma"]["head"][1])
    head_key, body_key = jax.random.split(random.root(7))  # the one key of `played_by`
    own = [begun(mean) for _ in played.cohort]
    for round_ in range(ROUNDS):
        confidence, bodies = [], []
        turn = {"first": round_ * HEAD_STEPS, "time": round_ * STEPS, "number": HEAD_STEPS}
        for client in played.cohort:
            confidence.append(1 / spread(*own[client], mean))
            q = learned_head(played, client, own[client], body, mean, key=head_key, **turn)
            bodies.append(learned_body(played, client, q, body, round_, body_key))
            own[client] = q
        body = played.mean(bodies)
        mean = np.average([q[0] for q in own], axis=0, weights=confidence)
    assert np.abs(mean - np.mean([q[0] for q in own], axis=0)).max() > 2e-4  # it would show
    close(joined(played.state["gamma"]["body"][0]), body)
    close(joined(played.state["gamma"]["head"][1]), mean)
    for client, (m, raw) in enumerate(own):
        kept = jax.tree.map(lambda leaf, client=client: leaf[client], played.memories["w"])
        close(joined(kept["raw"][1]), raw)
        close(joined(played.theta(client)[0]), body)
        close(joined(played.theta(client)[1]), m)


def test_a_newcomer_begins_at_the_learned_mean(played):
    body = joined(played.state["gamma"]["body"][0])
    mean = joined(played.state["gamma"]["head"][1])
    options = {"first": 0, "time": ROUNDS * STEPS, "number": STEPS, "key": random.root(7)}
    m, _ = learned_head(played, played.newcomer, begun(mean), body, mean, **options)
    close(joined(played.theta(played.newcomer)[1]), m)


def test_momentum_is_for_the_body(federation):
    """The mean of heads that clients keep is no end of steps: momentum would throw it past them."""
    method = catalog.method("pfedvem")
    plain, ours = (method.build(NETWORK, own) for own in ({}, {"momentum": 0.9, "horizon": 5.0}))
    data = jax.tree.map(jax.numpy.asarray, federation.train.client(0))
    state, key = ours.init(random.root(1)), random.root(2)
    assert {*state["velocity"]} == {*state["average"]} == {"body"}
    memory = plain.enroll(state, jax.numpy.int32(0), key)
    for _ in range(2):
        message, memory = jax.jit(ours.local)(state, memory, data, key)
        known = {name: state[name] for name in ("gamma", "round")}
        expected = plain.update(known, message)["gamma"]
        state = ours.update(state, message)
        close(joined(state["gamma"]["head"][1]), joined(expected["head"][1]))
    moved_on = joined(state["gamma"]["body"][0]) - joined(expected["body"][0])
    assert np.abs(moved_on).max() > 1e-4


def test_noise_would_spoil_the_sum_of_confidences(federation):
    algorithm = fedprior.learning.pfedvem(NETWORK)
    channel = fedprior.channels.CentralGaussian(clip=1.0, noise_multiplier=1.0)
    with pytest.raises(fedprior.PrivacyError, match="channel must be clear for pfedvem"):
        fedprior.simulate(algorithm, federation, rounds=1, channel=channel)


def test_numbers_are_checked():
    with pytest.raises(ValueError, match=r"^pfedvem: num_draws must be a whole number of at least"):
        fedprior.learning.pfedvem(NETWORK, num_draws=0)
    with pytest.raises(ValueError, match=r"^pfedvem: scale must be a positive number, got 0"):
        fedprior.learning.pfedvem(NETWORK, scale=0)
