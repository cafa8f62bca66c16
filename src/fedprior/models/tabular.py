"""Networks for tables: as wide as the number of rows allows, in the units of what they predict."""

from dataclasses import replace
from math import log2

from fedprior.core import check
from fedprior.core.algorithm import Array, PyTree
from fedprior.models.network import Network

BINS = 8  # of a number's piecewise-linear encoding, where validation rows call for one
_LEAST, _MOST = 16, 256  # hidden units


def width(num_rows: int) -> int:
    """The power of two nearest to the root of the number of training rows, from 16 to 256.

    >>> [width(rows) for rows in (50, 1_000, 4_000, 12_000, 1_000_000)]
    [16, 32, 64, 128, 256]
    """
    check.count("width", num_rows=num_rows)
    return int(min(max(2 ** round(log2(num_rows) / 2), _LEAST), _MOST))


def deeper(width: int) -> tuple[int, int]:
    """Two hidden layers, each of four times as many units, up to 256.

    >>> deeper(32), deeper(128)
    ((128, 128), (256, 256))
    """
    units = min(4 * width, _MOST)
    return units, units


def in_units(network: Network, *, center: float, scale: float) -> Network:
    """The network with outputs center + scale * f(x), and its loss in units of `scale`.

    What is predicted in thousands, or in thousandths, is then learned at the rates and with the
    prior of what varies by about 1. Scores keep the units of the target.
    """
    owner = "in_units"
    check.require(
        network.regression, owner, "network", "one that predicts a quantity", network.name
    )
    check.positive(owner, scale=scale)

    def apply(parameters: PyTree, x: Array) -> Array:
        return center + scale * network.apply(parameters, x)

    return replace(network, apply=apply, scale=scale * network.scale)
