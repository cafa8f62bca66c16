"""Class probabilities for given theta, and averaged over the posterior of theta."""

import numpy as np

from fedprior.core import check
from fedprior.regression.logistic.quadrature import even_points
from fedprior.regression.logistic.sigmoid import averaged
from fedprior.regression.packed import unpack
from fedprior.regression.result import RegressionFit

_AVERAGED = 32  # quadrature points for softmax
_CELLS = 1 << 21  # numbers of covariances gathered at a time: 16 MB


def probabilities(
    theta: np.ndarray,
    x: np.ndarray,
    *,
    covariance: np.ndarray | None = None,
    fixed: np.ndarray | None = None,
    coefficients: np.ndarray | None = None,
    num_classes: int = 2,
) -> np.ndarray:
    """Class probabilities (rows, C) at log odds x theta + fixed coefficients against class 0.

    `theta` (rows, d c) is that of each row's group, class-major. With the `covariance` (rows, c, c)
    of the log odds, probabilities are averaged over N(log odds, covariance). They are then closer
    to 1 / C than at the mean, and predict better.

    >>> probabilities(np.array([[0.0]]), np.array([[1.0]]))
    array([[0.5, 0.5]])
    """
    own = num_classes - 1
    odds = np.einsum("rd,rcd->rc", x, theta.reshape(len(x), own, x.shape[1]))
    if fixed is not None and coefficients is not None:
        odds = odds + fixed @ coefficients.reshape(own, fixed.shape[1]).T
    if covariance is None:
        return _softmax(odds)
    if own == 1:
        second = averaged(odds[:, 0], np.maximum(covariance[:, 0, 0], 0.0)).value
        return np.stack([1 - second, second], axis=1)
    values, vectors = np.linalg.eigh(covariance)
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    root = scaled @ vectors.transpose(0, 2, 1)
    points = even_points(own, _AVERAGED)
    return np.mean([_softmax(odds + root @ point) for point in points], axis=0)


def odds_covariance(triangles: np.ndarray, x: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Covariance x' Sigma x of each row's log odds, for every pair of classes, (rows, c, c).

    `triangles` (m, ...) are the packed covariances of theta, class-major; `place` (rows,) is the
    group of each row.
    """
    rows, features = x.shape
    width = unpack(triangles[:1]).shape[-1]
    own = width // features
    covariance = np.empty((rows, own, own))
    step = max(1, _CELLS // width**2)
    for low in range(0, rows, step):
        part = slice(low, low + step)
        here = x[part, None, None, :]
        table = unpack(triangles[place[part]]).reshape(-1, own, features, width)
        half = (here @ table).reshape(-1, own, own, features)
        covariance[part] = (half * here).sum(axis=-1)
    return covariance


def predictive(
    fit: RegressionFit, x: np.ndarray, place: np.ndarray, *, fixed: np.ndarray | None = None
) -> np.ndarray:
    """P(class | data), (rows, C): sum_l alpha_il E p(class | theta_il), theta_il ~ its posterior.

    `place` (rows,) is the group of each row. The log odds have variance x' Sigma x, since the
    coefficients of a group are correlated given the data, in particular intercept and slope if x is
    far from 0. The uncertainty of the population itself is ignored.
    """
    if fit.means is None:
        raise ValueError(check.message("predictive", "fit", "that of a classifier", fit.family))
    num_classes = fit.theta.shape[1] // x.shape[1] + 1
    chances = np.zeros((len(x), num_classes))
    for number in range(fit.means.shape[1]):
        spread = None
        if fit.triangles is not None:
            spread = odds_covariance(fit.triangles[:, number], x, place)
        part = probabilities(
            fit.means[place, number],
            x,
            covariance=spread,
            fixed=fixed,
            coefficients=fit.population.fixed,
            num_classes=num_classes,
        )
        chances += fit.responsibilities[place, number, None] * part
    return chances


def _softmax(odds: np.ndarray) -> np.ndarray:
    odds = np.concatenate([np.zeros((len(odds), 1)), odds], axis=1)
    weight = np.exp(odds - odds.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)
