"""The CNN and the residual network against plain convolutions, client by client."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import tree
from fedprior.models import images

NUMBERS = ("NHWC", "HWIO", "NHWC")


def plain_convolve(x, kernel, *, stride=1, padding=0):
    pad = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), pad, dimension_numbers=NUMBERS)


def plain_cnn(parameters, x):
    x = 2 * x - 1
    for layer in parameters[:2]:
        x = plain_convolve(x, layer["weight"])
        window = (1, 2, 2, 1)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        x = jax.nn.relu(x + layer["bias"])
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ parameters[2]["weight"] + parameters[2]["bias"])
    return x @ parameters[3]["weight"] + parameters[3]["bias"]


def clients(model, shape, batch=2):
    """Parameters of two clients near their initial values, images and labels."""
    draws = np.random.default_rng(0)
    parameters = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(0.05 * draws.normal(size=(2, *leaf.shape)), leaf.dtype),
        model.init(jax.random.key(0)),
    )
    x = jnp.asarray(draws.uniform(size=(2, batch, *shape)), jnp.float32)
    return parameters, x, jnp.asarray(draws.integers(0, 3, (2, batch)))


def with_gradient(model, apply):
    def loss(parameters, x, y):
        outputs = apply(parameters, x)
        return jnp.sum(model.loss(outputs, y)), outputs

    return jax.value_and_grad(loss, has_aux=True)


def check_same(model, plain, given):
    """Outputs and gradients of all clients under vmap are those of the plain form one by one."""
    (_, ours), gradient = jax.jit(jax.vmap(with_gradient(model, model.apply)))(*given)
    one = jax.jit(with_gradient(model, plain))
    for client in range(2):
        (_, outputs), slope = one(*jax.tree.map(operator.itemgetter(client), given))
        np.testing.assert_allclose(ours[client], outputs, rtol=1e-3, atol=1e-3)
        for first, second in zip(jax.tree.leaves(gradient), jax.tree.leaves(slope), strict=True):
            scale = np.abs(second).max() + 1e-3
            np.testing.assert_allclose(first[client] / scale, second / scale, atol=1e-3)


@pytest.mark.parametrize("shape", [(16, 20, 3), (17, 18, 1)])  # in cells, and in patches
def test_cnn_is_made_of_plain_convolutions(shape):
    model = fedprior.cnn(shape, 3)
    check_same(model, plain_cnn, clients(model, shape))


def test_cnn_size():
    parameters = jax.eval_shape(fedprior.cnn((32, 32, 3)).init, jax.random.key(0))
    assert tree.size(parameters) == 878_538
    shapes = [layer["weight"].shape for layer in parameters]
    assert shapes == [(5, 5, 3, 32), (5, 5, 32, 64), (1600, 512), (512, 10)]


def test_resnet_is_made_of_plain_convolutions():
    model = fedprior.resnet((8, 8, 3), 3)
    given = clients(model, (8, 8, 3))

    def plain(parameters, x):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(images, "convolve", plain_convolve)
            return model.apply(parameters, x)

    check_same(model, plain, given)


def test_resnet_size_and_depth():
    def size(depth):
        model = fedprior.resnet((32, 32, 3), depth=depth)
        return tree.size(jax.eval_shape(model.init, jax.random.key(0)))

    assert size(8) == 77_850
    assert size(20) > 2 * size(8)
    with pytest.raises(ValueError, match="resnet: depth must be 6 n \\+ 2 for a whole n"):
        fedprior.resnet((32, 32, 3), depth=18)


def test_both_treat_images_one_by_one_and_keep_their_scale():
    """Group normalization does not read the other images of a batch."""
    draws = np.random.default_rng(0)
    x = jnp.asarray(draws.uniform(size=(3, 16, 16, 1)), jnp.float32)
    for model in (fedprior.cnn((16, 16, 1), 3), fedprior.resnet((16, 16, 1), 3)):
        parameters, apply = model.init(jax.random.key(1)), jax.jit(model.apply)
        outputs = apply(parameters, x)
        others = apply(parameters, x.at[1:].set(0.5))
        np.testing.assert_allclose(outputs[0], others[0], rtol=1e-4, atol=1e-5)
        assert 0.1 < float(jnp.std(outputs)) < 10


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: fedprior.cnn((15, 32, 3)), r"cnn: shape must be .* at least 16 x 16, got \(15, "),
        (lambda: fedprior.cnn((3072,)), r"cnn: shape must be \(height, width, channels\)"),
        (lambda: fedprior.cnn((32, 32, 3), 1), "cnn: num_classes must be .* at least 2, got 1"),
        (lambda: fedprior.resnet((3, 8, 1)), "resnet: shape must be .* at least 4 x 4"),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()
