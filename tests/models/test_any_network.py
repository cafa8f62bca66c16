"""Models from elsewhere, trained as they are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.data.federation import Federation

OPTIONS = {"steps": fedprior.Steps(local_steps=5, batches=fedprior.Batches(size=8))}


@pytest.fixture(scope="module")
def equinox_model():
    """An Equinox module: its arrays are the parameters, the rest stays outside."""

    def build(key):
        return eqx.nn.MLP(4, 3, width_size=8, depth=1, key=key)

    _, static = eqx.partition(eqx.filter_eval_shape(build, jax.random.key(0)), eqx.is_array_like)

    def init(key):
        return eqx.partition(build(key), eqx.is_array)[0]

    def apply(parameters, x):
        return jax.vmap(eqx.combine(parameters, static))(x)

    return fedprior.network(init, apply, name="equinox-mlp")


def mean_loss(result, federation):
    losses = []
    for client in range(federation.num_clients):
        data = federation.train.client(client)
        theta = jax.tree.map(lambda leaf: leaf[client], result.thetas)  # noqa: B023
        outputs = result.algorithm.predict(theta, jnp.asarray(data.x))
        losses.append(float(result.algorithm.loss(outputs, jnp.asarray(data.y)).mean()))
    return np.mean(losses)


def test_an_equinox_model_is_trained_unchanged(equinox_model, federation):
    algorithm = fedprior.adaped(equinox_model, newcomer_steps=0, **OPTIONS)
    before = fedprior.simulate(algorithm, federation, rounds=0)
    after = fedprior.simulate(algorithm, federation, rounds=30)
    assert mean_loss(after, federation) < 0.6 * mean_loss(before, federation)
    assert after.scores.mean() > before.scores.mean() + 0.2
    theta = after.theta(0)
    assert isinstance(theta, eqx.nn.MLP)


@pytest.fixture(scope="module")
def regression():
    """Clients with slopes of their own around a common one."""
    draws = np.random.default_rng(0)
    num_clients, rows = 4, 24
    theta = np.array([1.0, -2.0]) + 0.5 * draws.normal(size=(num_clients, 2))
    x = draws.normal(size=(num_clients * rows, 2)).astype(np.float32)
    own = np.repeat(np.arange(num_clients), rows)
    y = (x * theta[own]).sum(axis=1) + 0.1 * draws.normal(size=len(x))
    return Federation.from_arrays(x, y, own, regression=True)


@pytest.mark.parametrize(
    ("factory", "least"),
    [
        (fedprior.learning.fedavg, 0.7),
        (fedprior.learning.local, 0.95),
        (fedprior.learning.gaussian_prior, 0.95),
    ],
)
def test_regression_removes_most_of_the_squared_error(regression, factory, least):
    """Scores are minus the RMSE; a shared model leaves the clients' differences."""
    algorithm = factory(fedprior.models.linear(2), **OPTIONS)
    before = fedprior.simulate(algorithm, regression, rounds=0)
    after = fedprior.simulate(algorithm, regression, rounds=40)
    assert (after.scores**2).mean() < (1 - least) * (before.scores**2).mean()


def test_adaped_refuses_a_regression_model():
    wording = r"^adaped: model must be a classifier, got 'regression'\. Choose gaussian-prior"
    with pytest.raises(ValueError, match=wording):
        fedprior.adaped(fedprior.models.linear(2))
    with pytest.raises(ValueError, match=r"^adaped-fine-tuning: model must be a classifier"):
        fedprior.learning.adaped_fine_tuning(fedprior.mlp((2,), 1, regression=True))
