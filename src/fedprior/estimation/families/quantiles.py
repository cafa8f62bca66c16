"""Quantiles of many Betas and Gammas at one level, from a table."""

from typing import Any

import numpy as np

_MANY = 40_000  # members from which on a table is cheaper than that many inversions
_STEP = 0.1  # between nodes in the logs of both shapes: the linked quantile errs by about 1e-6
_LEAST = 0.1  # below this shape the quantile falls so steeply that it is computed
_MARGIN = 12  # nodes beyond the range; the error of a spline's ends falls by 0.27 from node to node
_MOST = 300.0**2  # nodes, beyond which the table would cost more than it saves


def beta_quantile(first: Any, second: Any, level: Any) -> np.ndarray:
    """The inverse of the incomplete Beta function."""
    from scipy.special import betaincinv, expit

    if np.ndim(level) or np.size(first) < _MANY or np.shape(first) != np.shape(second):
        return betaincinv(first, second, level)
    logs = np.empty((2, np.size(first)))
    for row, each in zip(logs, (first, second), strict=True):
        np.log(np.ravel(each), out=row)
    inside = (logs > np.log(_LEAST)).all(axis=0)
    logs = logs if inside.all() else logs[:, inside]
    nodes = _nodes(logs)
    if nodes is None:
        return betaincinv(first, second, level)
    alpha, beta = (np.exp(each) for each in nodes)
    low = betaincinv(alpha[:, None], beta, level)
    high = betaincinv(beta, alpha[:, None], 1 - level)  # 1 - low without cancellation
    table = np.log(np.maximum(low, 1e-300)) - np.log(np.maximum(high, 1e-300))
    found = np.empty(np.size(first))
    found[inside] = expit(_interpolated(table, nodes, logs))
    rest = ~inside
    found[rest] = betaincinv(np.ravel(first)[rest], np.ravel(second)[rest], level)
    return found.reshape(np.shape(first))


def gamma_quantile(shape: Any, level: Any) -> np.ndarray:
    """The inverse of the incomplete Gamma function, that is, for a rate of 1."""
    from scipy.special import gammaincinv

    if np.ndim(level) or np.size(shape) < _MANY:
        return gammaincinv(shape, level)
    logs = np.log(shape).ravel()[None]
    inside = logs[0] > np.log(_LEAST)
    logs = logs if inside.all() else logs[:, inside]
    nodes = _nodes(logs)
    if nodes is None:
        return gammaincinv(shape, level)
    table = np.log(np.maximum(gammaincinv(np.exp(nodes[0]), level), 1e-300))
    found = np.empty(np.size(shape))
    found[inside] = np.exp(_interpolated(table, nodes, logs))
    found[~inside] = gammaincinv(np.ravel(shape)[~inside], level)
    return found.reshape(np.shape(shape))


def _nodes(logs: np.ndarray) -> list[np.ndarray] | None:
    """Equally spaced nodes over the range of each row, with more at both ends."""
    if logs.shape[1] < _MANY:
        return None
    found = []
    for each in logs:
        low, high = float(each.min()), float(each.max())
        number = int(np.ceil((high - low) / _STEP)) + 1
        found.append(low + _STEP * np.arange(-_MARGIN, number + _MARGIN))
    return found if np.prod([len(each) for each in found]) <= _MOST else None


def _interpolated(table: np.ndarray, nodes: list[np.ndarray], at: np.ndarray) -> np.ndarray:
    from scipy.ndimage import map_coordinates

    places = (at - np.array([[node[0]] for node in nodes])) / _STEP
    return map_coordinates(table, places, order=3, mode="mirror")
