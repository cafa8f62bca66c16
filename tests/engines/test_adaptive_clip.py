"""A clip that follows a quantile: of released values only, covered by one event."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import averaging, points

from fedprior.channels import CentralGaussian, Identity, LocalGaussian, MatrixGaussian
from fedprior.core import tree
from fedprior.core.algorithm import Algorithm, Message
from fedprior.core.check import PrivacyError
from fedprior.engines.debug import debug
from fedprior.engines.simulate import simulate
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts
from fedprior.learning.adaptive_clip import adaptive_clip, message_noise
from fedprior.privacy.cohort import Cyclic, Everyone, Poisson
from fedprior.privacy.participation import Participation
from fedprior.privacy.strategy import Banded
from fedprior.reporting.config import read
from fedprior.reporting.training import Study

CHANNEL = CentralGaussian(clip=1.0, noise_multiplier=2.0)


@pytest.fixture(scope="module")
def many():
    return points(60, valid=0, test=0)


def steady(**options):
    """Messages are a client's mean input, the same in every round."""
    plain = averaging()

    def local(state, memory, data, key):
        x, _, mask = data.all()
        return Message({"gamma": jnp.sum(x * mask[:, None], 0) / data.size}, jnp.ones(())), memory

    return adaptive_clip(replace(plain, local=local), **options)


def norms(federation):
    train = federation.train
    rows = [train.x[a : a + n].mean(axis=0) for a, n in zip(train.start, train.size, strict=True)]
    return np.linalg.norm(rows, axis=1)


@pytest.mark.parametrize(("quantile", "initial"), [(0.5, 0.01), (0.8, 20.0)])
def test_the_clip_finds_the_quantile(many, quantile, initial):
    """From far below or above, within 0.1 of the distribution, with noise of sd 0.03 or 0.05."""
    algorithm = steady(quantile=quantile, initial=initial)
    options = {"channel": replace(CHANNEL, noise_multiplier=0.3), "cohort": Poisson(rate=0.5)}
    result = simulate(algorithm, many, rounds=150, test=False, **options)
    clips = [entry["clip"] for entry in result.history[-50:]]
    below = np.mean(norms(many)[:, None] <= np.array(clips))
    assert abs(below - quantile) < 0.1


def test_without_noise_the_mean_is_that_of_the_clipped_messages(many):
    algorithm = steady(quantile=0.5, initial=0.7)
    agreement = Agreement.of(algorithm, many)
    state = agreement.initial_state()
    after = simulate(algorithm, many, rounds=1, test=False).state
    lengths = norms(many)
    train = many.train
    rows = [train.x[a : a + n].mean(axis=0) for a, n in zip(train.start, train.size, strict=True)]
    clipped = np.array(rows) * np.minimum(1, 0.7 / lengths)[:, None]
    np.testing.assert_allclose(after["gamma"], clipped.mean(axis=0), rtol=1e-5)
    moved = float(after["clip"] / state["clip"])
    assert moved == pytest.approx(np.exp(-0.2 * (np.mean(lengths <= 0.7) - 0.5)), rel=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_a_message_and_its_number_have_norm_one(scale, quantile):
    """One event covers both, in shares of the squared norm."""
    data = points(1)
    whole = constant(scale)
    algorithm = adaptive_clip(whole, quantile=quantile, share=0.01)
    state = algorithm.init(jax.random.key(0))
    message, _ = algorithm.local(state, (), data, None)
    assert float(jnp.sqrt(tree.squared_norm(message.value))) <= 1 + 1e-6
    assert float(jnp.linalg.norm(message.value["message"])) <= 0.99**0.5 + 1e-6
    assert abs(float(message.value["below"])) <= 0.1 + 1e-6


def constant(scale):
    message = scale * jnp.array([0.6, -0.8])
    return Algorithm(
        name="constant",
        init=lambda key: {"gamma": jnp.zeros(2)},
        enroll=lambda state, client, key: (),
        local=lambda state, memory, data, key: (Message(message, jnp.ones(())), memory),
        update=lambda state, total: {"gamma": state["gamma"] + total.value},
        personalize=lambda state, memory, data, key: state,
        predict=lambda theta, x: x,
        loss=lambda outputs, y: outputs,
        score=lambda outputs, y: outputs,
    )


def test_the_price_of_the_number_is_in_the_event():
    """z^-2 = z_message^-2 + z_number^-2, with the number between -1 and 1 times its scale."""
    z, share = 2.0, 0.01
    number = z / share**0.5
    assert z**-2 == pytest.approx(message_noise(z, share) ** -2 + number**-2)


def test_debug_and_secure_noise(many):
    """The same run one client at a time; secure noise covers the number, too, on its grid."""
    algorithm = steady(quantile=0.5)
    options = {"rounds": 2, "channel": CHANNEL, "cohort": Poisson(rate=0.3), "test": False}
    fast, slow = simulate(algorithm, many, **options), debug(algorithm, many, **options)
    for one, other in zip(jax.tree.leaves(fast.state), jax.tree.leaves(slow.state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    secure = Agreement.of(algorithm, many, channel=replace(CHANNEL, noise="secure"))
    released = secure.channel.decode(secure.channel.add(np.zeros((2, 3), np.float32)), None)
    assert released.shape == (3,) == (secure.length,)


def test_the_clip_depends_on_released_values_only():
    """Two runs with the same noisy total have the same next clip."""
    algorithm = adaptive_clip(constant(1.0))
    state = algorithm.init(jax.random.key(0))
    value = {"message": jnp.ones(2), "below": jnp.asarray(-3.0)}
    after = algorithm.update(state, Message(value, jnp.asarray(10.0)))
    assert float(after["clip"]) == pytest.approx(np.exp(0.2 * min(1, 3.0 / (10 * 0.2))))


def test_other_channels_are_refused(many):
    algorithm = steady()
    matrix = MatrixGaussian(
        clip=1.0,
        noise_multiplier=1.0,
        strategy=Banded((1.0,)),
        participation=Participation(rounds=3),
    )
    for channel in (LocalGaussian(clip=1.0, scale=1.0), matrix, replace(CHANNEL, clip=0.5)):
        with pytest.raises(PrivacyError, match="channel must be CentralGaussian"):
            Agreement.of(algorithm, many, channel=channel, cohort=Cyclic(parts=2))
    Agreement.of(algorithm, many, channel=Identity(), cohort=Everyone())
    with pytest.raises(PrivacyError, match="weight 1"):
        adaptive_clip(averaging(weight="samples"))
    with pytest.raises(ValueError, match=r"quantile must be in \(0, 1\)"):
        adaptive_clip(averaging(), quantile=1.0)


def test_a_configuration_turns_it_on():
    facts = Facts(num_clients=100, shape=(2,), num_classes=3, most_samples=5)
    changes = ["privacy.epsilon=2", "privacy.delta=1e-3", "privacy.clip=0.3", "training.rounds=5"]
    fixed, moving = (
        Study(read(None, [*changes, *more]), facts).training("fedavg")
        for more in ([], ["privacy.adaptive_clip=0.4"])
    )
    assert moving.channel == replace(fixed.channel, clip=1.0)
    state = moving.algorithm.init(jax.random.key(0))
    assert float(state["clip"]) == pytest.approx(0.3)
    assert moving.identity != fixed.identity
