"""Layers against those of JAX, and any network rewritten to use them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fedprior
from fedprior.models import layers
from fedprior.models.fits import SlowNetworkWarning, check_network
from fedprior.models.rewriting import conv_general_dilated, fast_convolutions, slow_operations
from fedprior.models.winograd import convolve_tiles

NUMBERS = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) / 3, jnp.float32)


def close_with_gradients(ours, plain, *arguments):
    """Both functions and the gradients of a weighted sum of their outputs agree."""
    one, other = ours(*arguments), plain(*arguments)
    assert one.shape == other.shape
    np.testing.assert_allclose(one, other, **CLOSE)
    weight = draw(9, *one.shape)
    places = tuple(range(len(arguments)))
    first, second = (
        jax.grad(lambda *given: jnp.sum(f(*given) * weight), places)(*arguments)  # noqa: B023
        for f in (ours, plain)
    )
    for mine, theirs in zip(first, second, strict=True):
        assert np.abs(theirs).max() > 0
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize(
    ("shape", "window", "options", "plain"),
    [
        ((2, 7, 9, 3), (3, 3), {}, {"window_strides": (1, 1), "padding": "VALID"}),
        (
            (2, 8, 7, 3),
            (5, 3),
            {"stride": (2, 1), "padding": "same"},
            {"window_strides": (2, 1), "padding": "SAME"},
        ),
        (
            (2, 6, 6, 4),
            (3, 2),
            {"stride": 2, "padding": (1, (0, 2)), "dilation": (2, 1), "groups": 2},
            {
                "window_strides": (2, 2),
                "padding": ((1, 1), (0, 2)),
                "rhs_dilation": (2, 1),
                "feature_group_count": 2,
            },
        ),
        (
            (2, 6, 6, 4),
            (3, 3),
            {"padding": 1, "groups": 4},
            {"window_strides": (1, 1), "padding": ((1, 1),) * 2, "feature_group_count": 4},
        ),
        ((2, 9, 7, 3), (4, 3), {"stride": (4, 3)}, {"window_strides": (4, 3), "padding": "VALID"}),
        ((2, 11, 3), (4,), {"stride": 3}, {"window_strides": (3,), "padding": "VALID"}),
        (
            (1, 4, 5, 4, 2),
            (2, 3, 1),
            {"padding": "same"},
            {"window_strides": (1, 1, 1), "padding": "SAME"},
        ),
    ],
)
def test_convolution_is_that_of_jax(shape, window, options, plain):
    kernel = draw(1, *window, shape[-1] // options.get("groups", 1), 8)
    numbers = NUMBERS[len(window)]

    def reference(x, kernel):
        return lax.conv_general_dilated(x, kernel, dimension_numbers=numbers, **plain)

    def ours(x, kernel):
        return layers.convolve(x, kernel, **options)

    close_with_gradients(ours, reference, draw(0, *shape), kernel)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_tiles_are_a_convolution(size):
    """Sides that are no multiple of a tile, and outputs smaller than one."""

    def reference(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=NUMBERS[2])

    for shape in ((2, 9, 12, 16), (1, 5, 6, 16)):
        kernel = draw(1, size, size, 16, 3) / size
        x = draw(0, *shape)
        one, other = convolve_tiles(x, kernel), reference(x, kernel)
        np.testing.assert_allclose(one, other, **CLOSE)
        close_with_gradients(convolve_tiles, reference, x, kernel)
    many = jax.vmap(convolve_tiles)(jnp.stack([x, 2 * x]), jnp.stack([kernel, kernel]))
    np.testing.assert_allclose(many[1], 2 * other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("numbers", "options"),
    [
        (("NCHW", "OIHW", "NCHW"), {"padding": "SAME"}),
        (("HWCN", "HWIO", "CNHW"), {"padding": ((1, 0), (0, 1)), "lhs_dilation": (2, 3)}),
        (("NCHW", "OIHW", "NHWC"), {"padding": "VALID", "batch_group_count": 2}),
    ],
)
def test_the_drop_in_takes_any_layout(numbers, options):
    """Axes in any order, transposed convolutions, and groups of samples, as in gradients."""
    sizes = {"N": 4, "C": 3, "H": 6, "W": 5, "I": 3, "O": 4}
    x = draw(0, *(sizes[axis] for axis in numbers[0]))
    sizes |= {"H": 3, "W": 2}
    kernel = draw(1, *(sizes[axis] for axis in numbers[1]))
    options = {"window_strides": (1, 2), "dimension_numbers": numbers, **options}
    close_with_gradients(
        lambda x, kernel: conv_general_dilated(x, kernel, **options),
        lambda x, kernel: lax.conv_general_dilated(x, kernel, **options),
        *(x, kernel),
    )


@pytest.mark.parametrize(
    "options", [{}, {"window": (3, 2), "stride": 2}, {"window": 3, "stride": 2, "padding": "same"}]
)
def test_pools_are_those_of_jax(options):
    x = draw(0, 2, 7, 8, 3)
    window = options.get("window", 2)
    window = (1, *((window,) * 2 if isinstance(window, int) else window), 1)
    stride = (1, 2, 2, 1)
    padding = options.get("padding", "valid").upper()
    close_with_gradients(
        lambda x: layers.max_pool(x, **options),
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, window, stride, padding),
        x,
    )
    close_with_gradients(
        lambda x: layers.average_pool(x, **options),
        lambda x: lax.reduce_window(x, 0.0, lax.add, window, stride, padding) / np.prod(window),
        x,
    )


@pytest.mark.parametrize("reduce", [lax.max, lax.min, lax.add])
@pytest.mark.parametrize(
    ("window", "stride", "options"),
    [
        ((14, 15), (1, 1), {}),  # as large as the image
        ((12, 12), (12, 12), {}),
        ((131, 1), (1, 1), {"base_dilation": (1, 10, 1, 1)}),
        ((2, 3), (1, 2), {"window_dilation": (1, 3, 2, 1)}),
        ((3, 3), (2, 2), {"padding": ((0, 0), (-1, 2), (1, 0), (0, 0))}),
    ],
)
def test_pools_of_any_kind_are_made_fast(reduce, window, stride, options):
    empty = {lax.max: -jnp.inf, lax.min: jnp.inf, lax.add: 0.0}[reduce]

    def apply(_, x):
        return lax.reduce_window(
            x, empty, reduce, (1, *window, 1), (1, *stride, 1), **{"padding": "VALID", **options}
        )

    x, fast = draw(0, 2, 14, 15, 3), fast_convolutions(apply)
    assert operations(fast, (), x) == set()
    np.testing.assert_allclose(fast((), x), apply((), x), **CLOSE)
    if not options:  # JAX has no gradient of a maximum with them
        close_with_gradients(lambda x: fast((), x), lambda x: apply((), x), x)


def test_half_precision_is_that_of_jax():
    """The sums of a depthwise kernel's gradient need more digits than its members have."""

    def plain(x, kernel, kind=None):
        moves = {"dimension_numbers": NUMBERS[2], "feature_group_count": 4}
        return lax.conv_general_dilated(
            x, kernel, (1, 1), "VALID", preferred_element_type=kind, **moves
        )

    x = (1 + draw(0, 8, 16, 16, 4)).astype(jnp.bfloat16)
    kernel = draw(1, 1, 1, 1, 4).astype(jnp.bfloat16)
    assert fast_convolutions(lambda kernel, x: plain(x, kernel, jnp.float32))(
        kernel, x
    ).dtype == jnp.dtype("float32")
    one, other = (
        jax.grad(lambda kernel: f(kernel, x).astype(jnp.float32).sum())(kernel)  # noqa: B023
        for f in (fast_convolutions(lambda kernel, x: plain(x, kernel)), lambda k, x: plain(x, k))
    )
    np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=0.01)


def test_equal_members_of_a_window_share_its_gradient():
    gradient = jax.grad(lambda x: layers.max_pool(x).sum())(jnp.ones((1, 2, 2, 1)))
    np.testing.assert_allclose(gradient[0, :, :, 0], np.full((2, 2), 0.25))


def test_group_normalization_is_that_of_equinox():
    x, scale, bias = draw(0, 3, 4, 5, 6), draw(1, 6), draw(2, 6)
    theirs = eqx.nn.GroupNorm(2, 6)
    theirs = eqx.tree_at(lambda norm: (norm.weight, norm.bias), theirs, (scale, bias))
    close_with_gradients(
        lambda x: layers.group_normalize(x, scale, bias, groups=2),
        lambda x: jnp.moveaxis(jax.vmap(theirs)(jnp.moveaxis(x, -1, 1)), 1, -1),
        x,
    )


def test_wrong_arguments_are_refused():
    x, kernel = jnp.zeros((1, 4, 4, 3)), jnp.zeros((3, 3, 3, 2))
    with pytest.raises(ValueError, match=r"^convolve: stride must be a positive number, or 2 of"):
        layers.convolve(x, kernel, stride=(1, 1, 1))
    with pytest.raises(ValueError, match=r"^convolve: padding must be \"valid\", \"same\", a num"):
        layers.convolve(x, kernel, padding="some")
    with pytest.raises(
        ValueError, match=r"^convolve: kernel must be of 4 axes, as x, got \(3, 2\)"
    ):
        layers.convolve(x, kernel[0, 0])
    with pytest.raises(ValueError, match=r"^convolve: the channels of kernel must be"):
        layers.convolve(x, kernel, groups=3)
    with pytest.raises(ValueError, match=r"^windows: size must be at most \(1, 4, 4, 3\), got"):
        layers.max_pool(x, window=5)
    with pytest.raises(ValueError, match=r"^group_normalize: groups must be a divisor of the 3 c"):
        layers.group_normalize(x, 1.0, 0.0, groups=2)


class Images(eqx.Module):
    """A small convolutional network of Equinox, samples one by one and channels first."""

    first: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d
    second: eqx.nn.Conv2d
    mean: eqx.nn.AvgPool2d
    last: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(2, 4, 3, padding=1, key=keys[0])
        self.pool = eqx.nn.MaxPool2d(2, 2)
        self.second = eqx.nn.Conv2d(4, 6, 3, groups=2, key=keys[1])
        self.mean = eqx.nn.AvgPool2d(2)
        self.last = eqx.nn.Linear(6, 3, key=keys[2])

    def __call__(self, x):
        x = self.pool(jax.nn.relu(self.first(jnp.moveaxis(x, -1, 0))))
        return self.last(self.mean(jax.nn.relu(self.second(x))).mean(axis=(1, 2)))


def equinox_network(**options):
    _, static = eqx.partition(Images(jax.random.key(0)), eqx.is_array)

    def init(key):
        return eqx.partition(Images(key), eqx.is_array)[0]

    def apply(parameters, x):
        return jax.vmap(eqx.combine(parameters, static))(x)

    return fedprior.network(init, apply, **options)


def operations(apply, *arguments):
    return set(slow_operations(jax.make_jaxpr(apply)(*arguments).jaxpr))


def test_a_network_of_equinox_is_made_fast():
    fast, plain = equinox_network(), equinox_network(fast=False)
    parameters, x = fast.init(jax.random.key(1)), draw(0, 5, 8, 8, 2)
    assert operations(plain.apply, parameters, x) == {"conv_general_dilated", "reduce_window_max"}
    assert operations(fast.apply, parameters, x) == set()
    close_with_gradients(
        lambda x: fast.apply(parameters, x), lambda x: plain.apply(parameters, x), x
    )


def looped(kernel, x):
    """Convolutions within loops, a branch, a jit and a rematerialized part."""

    def step(x, _):
        return lax.cond(x.sum() > 0, lambda x: convolved(kernel, x), jnp.tanh, x), None

    x, _ = lax.scan(step, x, length=2)
    twice = lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, convolved(kernel, c[1])), (0, x)
    )
    x = x + lax.stop_gradient(twice[1])
    return jax.checkpoint(convolved)(kernel, jax.jit(convolved)(kernel, x))


def convolved(kernel, x):
    return jnp.tanh(
        lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NUMBERS[2])
    )


def test_convolutions_within_control_flow_are_made_fast():
    kernel, x = draw(0, 3, 3, 2, 2), draw(1, 2, 4, 4, 2)
    fast = fast_convolutions(looped)
    assert operations(fast, kernel, x) == set()
    assert operations(jax.jit(jax.vmap(fast)), jnp.stack([kernel] * 2), jnp.stack([x] * 2)) == set()
    close_with_gradients(fast, looped, kernel, x)


def test_rewriting_keeps_rules_of_its_own():
    """A custom gradient without a convolution is the user's own; so is a network without one."""

    @jax.custom_jvp
    def double(x):
        return x

    double.defjvp(lambda values, moves: (values[0], 2 * moves[0]))
    fast = fast_convolutions(lambda kernel, x: double(convolved(kernel, x)))
    kernel, x = draw(0, 1, 1, 1, 1), draw(1, 1, 2, 2, 1)
    own = jax.grad(lambda x: convolved(kernel, x).sum())(x)
    np.testing.assert_allclose(jax.grad(lambda x: fast(kernel, x).sum())(x), 2 * own, rtol=1e-6)
    assert fast_convolutions(fast) is fast
    assert fast_convolutions(looped) == fast_convolutions(looped)


def test_a_convolution_without_pixels_is_a_product():
    def apply(kernel, x):
        return lax.conv_general_dilated(x, kernel, (), "VALID")

    kernel, x = draw(0, 2, 3), draw(1, 4, 3)
    np.testing.assert_allclose(fast_convolutions(apply)(kernel, x), x @ kernel.T, **CLOSE)


def test_windows_side_by_side_are_no_larger_than_images():
    with pytest.raises(ValueError, match="windows: size must be at most"):
        layers.convolve(draw(0, 2, 3, 5, 1), draw(1, 4, 5, 1, 2), stride=(4, 5))


def test_large_windows_stay_as_they_are():
    """A slice for each of 144 places would take long to compile."""

    def apply(kernel, x):
        return lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=NUMBERS[2])

    kernel, x = draw(0, 12, 12, 1, 2), draw(1, 2, 13, 13, 1)
    assert operations(fast_convolutions(apply), kernel, x) == {"conv_general_dilated"}


@pytest.mark.parametrize(
    ("window", "sides", "stride"),
    [((12, 13), (25, 40), (12, 13)), ((12, 13), (13, 13), (5, 1)), ((2, 90), (7, 90), (1, 1))],
)
def test_large_patches_side_by_side_are_made_fast(window, sides, stride):
    """They are a transposition, whatever their size: the first layer of many transformers, a window
    as large as the image, or as wide.
    """

    def apply(kernel, x):
        return lax.conv_general_dilated(x, kernel, stride, "VALID", dimension_numbers=NUMBERS[2])

    kernel, x = draw(0, *window, 3, 2), draw(1, 2, *sides, 3)
    fast = fast_convolutions(apply)
    assert operations(fast, kernel, x) == set()
    close_with_gradients(fast, apply, kernel, x)


def test_slow_networks_are_named_before_they_are_compiled():
    slow = equinox_network(fast=False)
    with pytest.warns(SlowNetworkWarning, match=r"network: conv_general_dilated and reduce_window"):
        check_network(slow, (8, 8, 2), (3,))
    check_network(equinox_network(), (8, 8, 2), (3,))
