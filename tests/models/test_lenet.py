"""LeNet-5 by cells against plain convolutions and pooling."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import tree
from fedprior.models.convolution import convolve_pool_relu, to_cells

BATCH = 3


def reference_layer(x, kernel, bias):
    numbers = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=numbers)
    window = (1, 2, 2, 1)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
    return jax.nn.relu(x + bias)


def reference(parameters, x):
    for layer in parameters[:2]:
        x = reference_layer(x, layer["weight"], layer["bias"])
    x = x.reshape(len(x), -1)
    for layer in parameters[2:4]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
    return x @ parameters[4]["weight"] + parameters[4]["bias"]


@pytest.fixture(scope="module")
def model():
    return fedprior.models.lenet5()


@pytest.fixture(scope="module")
def clients(model):
    """Parameters of two clients, images with a black frame (ties in the pool), labels."""
    draws = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    parameters = jax.tree.map(
        lambda leaf: jnp.asarray(0.1 * draws.normal(size=(2, *leaf.shape)), leaf.dtype), shapes
    )
    x = draws.uniform(size=(2, BATCH, 28, 28, 1)).astype(np.float32)
    x[:, 0, :9] = 0
    x[:, 1] = 0
    return parameters, jnp.asarray(x), jnp.asarray(draws.integers(0, 10, (2, BATCH)))


@pytest.fixture(scope="module")
def both(model, clients):
    """(outputs, gradient) of the clients by the model under vmap, by the reference one by one."""

    def run(apply):
        def loss(parameters, x, y):
            outputs = apply(parameters, x)
            return jnp.sum(model.loss(outputs, y)), outputs

        return jax.value_and_grad(loss, has_aux=True)

    plain = jax.jit(run(reference))
    parts = [plain(*jax.tree.map(operator.itemgetter(i), clients)) for i in range(2)]
    return jax.jit(jax.vmap(run(model.apply)))(*clients), jax.tree.map(
        lambda *leaves: np.stack(leaves), *parts
    )


def test_size(model):
    parameters = jax.eval_shape(model.init, jax.random.key(0))
    assert tree.size(parameters) == 44_426
    shapes = [layer["weight"].shape for layer in parameters]
    assert shapes == [(5, 5, 1, 6), (5, 5, 6, 16), (256, 120), (120, 84), (84, 10)]
    other = jax.eval_shape(fedprior.models.lenet5(3).init, jax.random.key(0))
    assert tree.size(other) == 44_426 - 7 * 85


def test_outputs_are_those_of_plain_convolutions(both):
    ((_, ours), _), ((_, plain), _) = both
    assert ours.shape == (2, BATCH, 10)
    np.testing.assert_allclose(ours, plain, atol=1e-5)
    assert not np.allclose(ours[0], ours[1])


def test_gradients_are_those_of_plain_convolutions(both):
    """Where windows tie (the black frame, the black image) both share what a constant input gives:

    the gradient of the kernel is the same whichever of the equal inputs it is sent to.
    """
    (_, ours), (_, plain) = both
    for first, second in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert np.abs(second).max() > 1e-4
        np.testing.assert_allclose(first, second, atol=2e-5)


@pytest.mark.parametrize(("side", "size"), [(2, 3), (4, 5), (2, 5)])
def test_one_layer_in_cells(side, size):
    draws = np.random.default_rng(1)
    x = jnp.asarray(draws.normal(size=(2, 12, 12, 3)), jnp.float32)
    kernel = jnp.asarray(draws.normal(size=(size, size, 3, 4)), jnp.float32)
    bias = jnp.asarray(draws.normal(size=4), jnp.float32)
    ours = convolve_pool_relu(to_cells(x, side), kernel, bias, side=side)
    plain = reference_layer(x, kernel, bias)
    half = side // 2
    rows = plain.shape[1] // half * half
    np.testing.assert_allclose(ours, to_cells(plain[:, :rows, :rows], half), rtol=1e-4, atol=1e-4)


def test_ties_share_the_gradient():
    """A constant image: each of the four equal windows gets a quarter, and none is lost."""
    kernel, bias = jnp.ones((3, 3, 1, 1)), jnp.zeros(1)

    def total(x):
        return convolve_pool_relu(to_cells(x, 2), kernel, bias, side=2).sum()

    gradient = jax.grad(total)(jnp.ones((1, 4, 4, 1)))[0, :, :, 0]
    counts = np.outer([1, 2, 2, 1], [1, 2, 2, 1])  # windows of 3 x 3 that hold each pixel
    np.testing.assert_allclose(gradient, counts / 4)


def test_wrong_sides_are_refused():
    cells, kernel, bias = jnp.zeros((1, 2, 2, 4)), jnp.zeros((5, 5, 1, 2)), jnp.zeros(2)
    for side in (1, 3):
        with pytest.raises(ValueError, match="convolve_pool_relu: side must be even, and a div"):
            convolve_pool_relu(cells, kernel, bias, side=side)
    with pytest.raises(ValueError, match="each cell must be 4 x 4 x 1 numbers"):
        convolve_pool_relu(cells, kernel, bias, side=4)
