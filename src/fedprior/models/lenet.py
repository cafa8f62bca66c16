"""LeNet-5 as the paper uses it."""

import jax

from fedprior.core import check
from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.models.convolution import convolve_pool_relu, to_cells
from fedprior.models.network import Network, dense


def lenet5(num_classes: int = 10) -> Network:
    """5x5x6, pool, 5x5x16, pool, 256-120-84-classes, ReLU, on 28 x 28 x 1 images.

    44,426 parameters with 10 classes (paper, appendix "Federated Setting").
    """
    check.count("lenet5", least=2, num_classes=num_classes)
    widths = ((25, 6), (150, 16), (256, 120), (120, 84), (84, num_classes))

    def init(key: Key) -> PyTree:
        layers = [dense(k, *w) for k, w in zip(jax.random.split(key, 5), widths, strict=True)]
        for layer, channels in zip(layers, (1, 6), strict=False):
            layer["weight"] = layer["weight"].reshape(5, 5, channels, -1)
        return layers

    def apply(parameters: PyTree, x: Array) -> Array:
        x = to_cells(x, 4)
        for layer, side in zip(parameters, (4, 2), strict=False):
            x = convolve_pool_relu(x, layer["weight"], layer["bias"], side=side)
        x = x.reshape(x.shape[0], -1)
        for layer in parameters[2:4]:
            x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
        return x @ parameters[4]["weight"] + parameters[4]["bias"]

    return Network(name="lenet5", init=init, apply=apply, shape=(28, 28, 1))
