"""Parameters of the fitted population with standard errors, and the expected gains."""

from dataclasses import replace

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw, RatioProfile, information
from fedprior.estimation.gaussian.nodes import PopulationNodes
from fedprior.estimation.gaussian.posterior import LinearRule, average_error, spread_about
from fedprior.estimation.gaussian.rows import own_columns
from fedprior.estimation.result import FittedPopulation

_ONE_SIGMA = np.array([0.15865525393145707, 0.5, 0.8413447460685429])  # normal mass below -1, 0, 1


def integrated_population(
    bins: Bins, law: MeanLaw, nodes: PopulationNodes, *, fitted_by: str
) -> FittedPopulation:
    """Posterior mean of the mean, and medians of the variances with half their 68% intervals.

    Medians, because with a handful of groups theta's variance has no finite posterior mean.
    """
    mean, error = _mean_and_error(bins, law, nodes)
    variance = quantiles(nodes.ratio * nodes.noise, nodes.probability)
    noise = quantiles(nodes.noise, nodes.probability)
    errors = {"variance": (variance[2] - variance[0]) / 2}
    if np.isfinite(nodes.freedom):
        spread = (noise[2] - noise[0]) / 2
        errors["noise_variance"] = float(np.hypot(spread, noise[1] * np.sqrt(2 / nodes.freedom)))
    return _population(
        bins,
        law,
        mean=mean,
        variance=variance[1],
        noise=noise[1],
        coefficients=np.tensordot(nodes.probability, nodes.coefficients, axes=1),
        errors={"mean": error, **errors},
        fitted_by=fitted_by,
    )


def plug_in_population(
    bins: Bins, law: MeanLaw, fitted: RatioProfile, *, noise: float, fitted_by: str, known: bool
) -> FittedPopulation:
    """The best fit, with standard errors from the expected information."""
    ratio = float(fitted.ratio[0])
    share = average_row(bins, law)
    error = float(np.sqrt(noise * share @ fitted.covariance[0] @ share))
    inside = information(bins, law, ratio=ratio, noise=noise)
    errors: dict[str, float] = {"mean": error}
    if bins.noise is None and not known:
        spread = np.sqrt(np.diag(np.linalg.inv(inside)))
        errors |= {"variance": float(spread[0]), "noise_variance": float(spread[1])}
    elif not known:
        errors["variance"] = float(1 / np.sqrt(inside[0, 0]))
    elif bins.noise is None:
        errors["noise_variance"] = float(1 / np.sqrt(inside[1, 1]))
    return _population(
        bins,
        law,
        mean=share @ fitted.coefficients[0] + bins.center,
        variance=ratio * noise,
        noise=noise,
        coefficients=fitted.coefficients[0],
        errors=errors,
        fitted_by=fitted_by,
    )


def _population(
    bins: Bins,
    law: MeanLaw,
    *,
    mean: np.ndarray,
    variance: float,
    noise: float,
    coefficients: np.ndarray,
    errors: dict[str, float],
    fitted_by: str,
) -> FittedPopulation:
    """That of the common population, or the average over groups of one that depends on columns."""
    share = average_row(bins, law)
    scatter = law.gram.sum(axis=0) / bins.num_groups - np.outer(share, share)
    between = max(float((coefficients * (scatter @ coefficients)).sum(axis=0).mean()), 0.0)
    noises = {} if bins.each_known else {"noise_variance": float(noise)}
    found = gaussian_population(
        mean, {"variance": float(variance)} | noises, errors, fitted_by=fitted_by
    )
    deviation = float(np.sqrt(variance + between))
    return replace(found, heterogeneity=deviation, by_size=own_columns(bins, law) > 1)


def gaussian_population(
    mean: np.ndarray, parameters: dict[str, float], errors: dict[str, float], *, fitted_by: str
) -> FittedPopulation:
    """N(mean, variance I), with the variance among the parameters; `mean` is (d,).

    Of the errors that of the mean is each coordinate's.
    """
    flat = len(mean) == 1
    names = ["mean"] if flat else [f"mean_{place + 1}" for place in range(len(mean))]
    own = {name: float(each) for name, each in errors.items() if name != "mean"}
    return FittedPopulation(
        kind="gaussian",
        fitted_by=fitted_by,
        mean=float(mean[0]) if flat else mean,
        heterogeneity=float(np.sqrt(parameters["variance"])),
        parameters=dict(zip(names, mean.tolist(), strict=True)) | parameters,
        standard_errors=dict.fromkeys(names, float(errors["mean"])) | own,
    )


def average_row(bins: Bins, law: MeanLaw) -> np.ndarray:
    """The mean of x over groups with data."""
    return bins.count / bins.num_groups @ law.design[:-1]


def _mean_and_error(bins: Bins, law: MeanLaw, nodes: PopulationNodes) -> tuple[np.ndarray, float]:
    """Posterior mean and standard deviation of the population's mean, averaged over the groups."""
    share = average_row(bins, law)
    each = share @ nodes.coefficients
    mean = nodes.probability @ each
    own = nodes.inflation * (nodes.covariance @ share @ share)
    spread = nodes.probability @ (own + ((each - mean) ** 2).mean(axis=1))
    return mean + bins.center, float(np.sqrt(spread))


def quantiles(values: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """The median and the ends of the 68% interval, in order of size."""
    order = np.argsort(values)
    below = np.cumsum(probability[order]) - probability[order] / 2
    return np.interp(_ONE_SIGMA, below, values[order])


def gains(
    bins: Bins, law: MeanLaw, nodes: PopulationNodes, rule: LinearRule
) -> tuple[float, float]:
    """Expected reductions of the mean squared error against raw means and one common mean, in %.

    The errors of the rule, of the raw means and of the common mean are posterior expectations, with
    the population's uncertainty included, so a posterior mean never loses to the others. If both
    variances are known, the error of the raw means is their sampling variance.
    """

    def error_of(other: LinearRule) -> float:
        return average_error(bins, law, spread_about(nodes, other))

    error = error_of(rule)
    nothing = np.zeros_like(rule.offset)
    raw = error_of(LinearRule(slope=np.ones_like(rule.slope), offset=nothing))
    if len(nodes.probability) == 1 and np.isinf(nodes.freedom):
        share = bins.count / bins.num_groups
        raw = float(nodes.noise[0] * share @ bins.unit)  # both variances known: exact (Thm 1)
    common = average_row(bins, law) @ np.tensordot(nodes.probability, nodes.coefficients, axes=1)
    offset = nothing.copy()
    offset[:, : own_columns(bins, law)] = common  # the columns of a bin sum to 1
    pooled = error_of(LinearRule(slope=np.zeros_like(rule.slope), offset=offset))
    return 100 * (1 - error / raw), 100 * (1 - error / pooled)
