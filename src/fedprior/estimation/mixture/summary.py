"""Estimate, weight and interval of each group under a fitted mixture, and the expected gain."""

import numpy as np

from fedprior.estimation.mixture.em import DiscreteMixture, responsibilities
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.statistics import Means


def separation(mixture: DiscreteMixture, variance: np.ndarray) -> float:
    """Smallest distance of two centers / sqrt(median variance of a mean); inf with one center.

    Below about 1 a single group cannot distinguish the centers; 0 is a collapsed mixture.
    """
    return float(np.sqrt(nearest_squared(mixture.centers) / np.median(variance)))


def nearest_squared(centers: np.ndarray) -> float:
    """The least squared distance of two centers; infinite for one."""
    squares = ((centers[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    return float(squares.min())


def center_errors(mean: np.ndarray, variance: np.ndarray, mixture: DiscreteMixture) -> np.ndarray:
    """Standard errors of the centers, (components, d), from the inverse information.

    The information is the sum over groups of the outer products of the scores of one coordinate's
    centers and of the probabilities, so that overlap between components increases the errors;
    correlation between coordinates is ignored. A vague prior, as wide as the means themselves,
    keeps the error finite for a center that no group belongs to.
    """
    table, _ = responsibilities(mean, variance, mixture)
    count = len(mixture.probabilities)
    share = np.maximum(mixture.probabilities, 1e-12)
    free = table[:, :-1] / share[:-1] - table[:, -1:] / share[-1]  # scores of the probabilities
    errors = np.empty(mixture.centers.shape)
    for column in range(mean.shape[1]):
        values, center = mean[:, column], mixture.centers[:, column]
        scores = np.hstack([table * (values[:, None] - center) / variance[:, None], free])
        width = float(values.var() + variance.mean())
        vague = np.concatenate([np.full(count, 1 / width), np.full(count - 1, 1.0)])
        information = scores.T @ scores + np.diag(vague)
        size = np.sqrt(np.diag(information))  # to a diagonal of 1: the units differ
        inverse = np.linalg.inv(information / np.outer(size, size))
        errors[:, column] = (np.sqrt(np.diag(inverse)) / size)[:count]
    return errors


def summarize_mixture(
    statistics: Means,
    variance: np.ndarray,
    mixture: DiscreteMixture,
    table: np.ndarray,
    errors: np.ndarray,
    *,
    noise: float,
    level: float,
    fitted_by: str,
    notes: tuple[str, ...],
) -> Estimates:
    """Posterior mean sum_l alpha_il center_l and its variance, with the error of the centers.

    `weight` is d personal / d raw = posterior variance / sampling variance, averaged over
    coordinates and at most 1.
    """
    flat = np.ndim(statistics.mean) == 1
    raw = np.asarray(statistics.mean, np.float64).reshape(len(table), -1)
    some = np.isfinite(variance)
    raw = np.where(some[:, None], raw, np.nan)
    personal = table @ mixture.centers
    spread = np.stack(
        [
            (table * (column - own[:, None]) ** 2).sum(axis=1)
            for column, own in zip(mixture.centers.T, personal.T, strict=True)
        ],
        axis=1,
    )
    weight = np.minimum(1.0, (spread / variance[:, None]).mean(axis=1))
    total = spread + table @ errors**2
    lower, upper = _limits(mixture, table, errors, level)
    population = _population(mixture, errors, noise=noise, fitted_by=fitted_by)
    over_raw, over_pooled = _gains(mixture, total[some], variance[some])

    def shape(values: np.ndarray) -> np.ndarray:
        return values[:, 0] if flat else values

    return Estimates(
        n=np.asarray(statistics.n),
        raw=shape(raw),
        personal=shape(personal),
        weight=weight,
        scale=shape(np.sqrt(total)),
        lower=shape(lower),
        upper=shape(upper),
        level=level,
        population=population,
        gain_over_raw=over_raw,
        gain_over_pooled=over_pooled,
        notes=notes,
    )


def _limits(
    mixture: DiscreteMixture, table: np.ndarray, errors: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of the posterior over centers in each coordinate, minus and plus z errors.

    If the centers were learned, half of 1 - level is spent on which center it is and half on where
    that center lies. By the union bound, coverage is at least `level`.
    """
    from scipy.special import ndtri

    miss = 1 - level
    reach = 0.0
    if errors.any():
        miss, reach = miss / 2, float(ndtri(1 - miss / 4))
    lower = np.empty((len(table), mixture.centers.shape[1]))
    upper = np.empty_like(lower)
    for column, center in enumerate(mixture.centers.T):
        order = np.argsort(center, kind="stable")
        below = np.cumsum(table[:, order], axis=1)
        first = (below <= miss / 2).sum(axis=1)  # centers that can be excluded at the lower end
        last = (below < 1 - miss / 2).sum(axis=1)
        first, last = (np.minimum(each, len(center) - 1) for each in (first, last))
        widened = reach * errors[order, column]
        lower[:, column] = (center[order] - widened)[first]
        upper[:, column] = (center[order] + widened)[last]
    return lower, upper


def _population(
    mixture: DiscreteMixture, errors: np.ndarray, *, noise: float, fitted_by: str
) -> FittedPopulation:
    mean = mixture.probabilities @ mixture.centers
    between = mixture.probabilities @ (mixture.centers - mean) ** 2
    parameters = {"num_components": float(len(mixture.centers))}
    if np.isfinite(noise):
        parameters["noise_variance"] = noise
    standard_errors: dict[str, float] = {}
    for place, share in enumerate(mixture.probabilities):
        parameters[f"probability_{place + 1}"] = float(share)
        if mixture.centers.shape[1] == 1:
            parameters[f"center_{place + 1}"] = float(mixture.centers[place, 0])
            standard_errors[f"center_{place + 1}"] = float(errors[place, 0])
    flat = mixture.centers.shape[1] == 1
    return FittedPopulation(
        kind="mixture",
        fitted_by=fitted_by,
        mean=float(mean[0]) if flat else mean,
        heterogeneity=float(np.sqrt(between.mean())),
        parameters=parameters,
        standard_errors=standard_errors,
        atoms=mixture.centers[:, 0] if flat else mixture.centers,
        weights=mixture.probabilities,
    )


def _gains(
    mixture: DiscreteMixture, error: np.ndarray, variance: np.ndarray
) -> tuple[float, float]:
    """Expected reductions of the squared error, in percent, over raw means and a common mean."""
    own, pooled = float(error.mean()), pooled_error(mixture, variance)
    return 100 * (1 - own / float(variance.mean())), 100 * (1 - own / pooled)


def pooled_error(mixture: DiscreteMixture, variance: np.ndarray) -> float:
    """Expected squared error of the common mean, taken for every group, with its own error."""
    mean = mixture.probabilities @ mixture.centers
    between = float((mixture.probabilities @ (mixture.centers - mean) ** 2).mean())
    return between + 1 / float((1 / variance).sum())
