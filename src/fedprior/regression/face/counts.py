"""What only a regression of counts has: expected counts, their deviance, their dispersion."""

from typing import NamedTuple

import numpy as np
from scipy import special

from fedprior.estimation.notes import UNEVEN
from fedprior.regression.logistic import odds_covariance
from fedprior.regression.packed import pack, unpack
from fedprior.regression.result import RegressionFit
from fedprior.regression.rows import GroupedRows

_CHANCE = 1e-3  # of a false alarm of the note on dispersion
_FAR = 1.1  # times the degrees of freedom: less does not matter for standard errors


class Dispersion(NamedTuple):
    """Pearson's sum of (y - mu)^2 / mu over rows, its degrees of freedom, and the chance of more.

    The chance is that of a sum this large if counts are Poisson given their group.
    """

    statistic: float
    degrees: float
    chance: float

    @property
    def ratio(self) -> float:
        return self.statistic / self.degrees

    @property
    def note(self) -> str | None:
        """One sentence if the counts vary more within groups than Poisson counts do."""
        if self.chance > _CHANCE or self.ratio < _FAR:
            return None
        return (
            f"{UNEVEN} within groups than Poisson counts do: Pearson's statistic is "
            f"{self.ratio:.2f} times its degrees of freedom, so that errors within groups are too "
            f"small by a factor of about {np.sqrt(self.ratio):.2f}. A feature or a finer group may "
            "be missing."
        )


def expected_counts(
    fit: RegressionFit,
    x: np.ndarray,
    fixed: np.ndarray,
    place: np.ndarray,
    exposure: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Exposure times E exp(x theta_i + fixed beta), (rows,), with theta_i ~ N given the data.

    The mean of exp(a) is exp(E a + Var a / 2). `place` -1 is a group that was not seen, whose
    theta comes from the population.
    """
    population = fit.population
    assert fit.triangles is not None
    theta = np.vstack([fit.theta, population.mean])[place]
    triangles = np.vstack([fit.triangles[:, 0], pack(population.covariance)])
    variance = odds_covariance(triangles, x, np.where(place < 0, len(triangles) - 1, place))
    log_rate = (x * theta).sum(axis=1) + fixed @ population.fixed
    return exposure * np.exp(log_rate + variance[:, 0, 0] / 2)


def rates_at(rows: GroupedRows, theta: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Expected counts of the rows at each row's theta (rows, D), with common coefficients beta."""
    log_rate = (rows.x * theta).sum(axis=1) + rows.fixed @ beta
    return np.exp(log_rate + (0.0 if rows.offset is None else rows.offset))


def deviances(y: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """2 (y log(y / mu) - y + mu) of each row.

    >>> deviances(np.array([0.0, 3.0]), np.array([1.5, 3.0])).tolist()
    [3.0, 0.0]
    """
    return 2 * (special.xlogy(y, y) - special.xlogy(y, expected) - y + expected)


def dispersion_of(rows: GroupedRows, fit: RegressionFit) -> Dispersion:
    """The dispersion of the counts about the personal fits.

    The degrees of freedom are rows - sum_i trace(I - inverse(covariance) Cov(theta_i)) - the common
    coefficients: in a linear model the expectation of the statistic. Given mu, a row's term has
    variance 2 + 1 / mu and third cumulant 8 + 22 / mu + 1 / mu^2, to which a shifted Gamma
    distribution is matched, since few expected events make the sum skewed.
    """
    offset = 0.0 if rows.offset is None else rows.offset
    mean = expected_counts(fit, rows.x, rows.fixed, rows.place, np.exp(offset))
    mean = np.maximum(mean, 1e-12)
    statistic = float(((rows.y - mean) ** 2 / mean).sum())
    own = _own_degrees(fit)
    common = len(fit.theta.T) * (1 - own / max(fit.theta.size, 1)) + rows.num_fixed
    degrees = max(rows.num_rows - own - common, 1.0)
    share = degrees / rows.num_rows
    variance = share * float((2 + 1 / mean).sum())
    skew = share * float((8 + 22 / mean + 1 / mean**2).sum()) / variance**1.5
    shape = 4 / skew**2
    place = shape + np.sqrt(shape) * (statistic - degrees) / np.sqrt(variance)
    return Dispersion(statistic, degrees, float(special.gammaincc(shape, max(place, 0.0))))


def _own_degrees(fit: RegressionFit) -> float:
    """Degrees of freedom that the groups' own coefficients use: sum_i trace(I - P^-1 Cov_i)."""
    assert fit.triangles is not None
    inverse = np.linalg.pinv(fit.population.covariance, hermitian=True)
    total = unpack(fit.triangles[:, 0].sum(axis=0))
    width = fit.theta.shape[1]
    rank = float(np.trace(inverse @ fit.population.covariance)) / width
    used = rank * fit.theta.size - float(np.trace(inverse @ total))
    return min(max(used, 0.0), float(fit.theta.size))
