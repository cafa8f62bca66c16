"""The result of a linear fit, from a fitted or a known population."""

import numpy as np

from fedprior.regression.linear.freedom import CoefficientDoubt, coefficients_of_few
from fedprior.regression.linear.likelihood import CovarianceProfile
from fedprior.regression.linear.maximum import ALL_SPREAD, room
from fedprior.regression.linear.posterior import posterior
from fedprior.regression.linear.reduction import Reduction
from fedprior.regression.linear.structure import expand, num_covariance_parameters
from fedprior.regression.linear.uncertainty import MOST_PARAMETERS, variance_errors
from fedprior.regression.result import RegressionFit, RegressionPopulation, gaussian_population
from fedprior.regression.rows import GroupedRows


def described(
    rows: GroupedRows,
    reduction: Reduction,
    profile: CovarianceProfile,
    *,
    coefficients: np.ndarray,
    noise: float,
    restricted: bool,
    method: str,
    log_likelihood: float,
    rounds: int,
    converged: bool,
    history: tuple[float, ...] = (),
) -> RegressionFit:
    """The fit with standard errors, and notes on parameters at a boundary."""
    notes = _notes(rows, reduction, profile, converged=converged)
    if num_covariance_parameters(reduction.covariance, rows.num_features) >= MOST_PARAMETERS:
        notes.append("There are too many variances to compute their standard errors.")
    doubt = coefficients_of_few(rows, profile, reduction, noise)
    population = _population(reduction, profile, coefficients, noise, doubt, restricted=restricted)
    theta, theta_errors = posterior(rows, population, coefficient_covariance=doubt.table)
    return RegressionFit(
        family="gaussian",
        method=method,
        criterion="reml" if restricted else "ml",
        population=population,
        theta=theta,
        errors=theta_errors,
        responsibilities=np.ones((rows.num_groups, 1)),
        log_likelihood=log_likelihood,
        rounds=rounds,
        converged=converged,
        notes=tuple(notes),
        history=history,
    )


def _population(
    reduction: Reduction,
    profile: CovarianceProfile,
    coefficients: np.ndarray,
    noise: float,
    doubt: CoefficientDoubt,
    *,
    restricted: bool,
) -> RegressionPopulation:
    """In the units of the original columns."""
    width = reduction.num_features
    inner = reduction.transform[:width, :width]
    spread = noise * inner @ expand(profile.relative, width=width) @ inner.T
    spread_errors, noise_error = None, None
    if num_covariance_parameters(reduction.covariance, width) < MOST_PARAMETERS:
        spread_errors, noise_error = variance_errors(
            profile, reduction, noise, restricted=restricted
        )
    errors = np.sqrt(np.diag(doubt.table))
    return gaussian_population(
        coefficients[:width],
        spread,
        coefficients[width:],
        noise_variance=noise,
        mean_errors=errors[:width],
        covariance_errors=spread_errors,
        fixed_errors=errors[width:],
        noise_error=noise_error,
        corrected_errors=doubt.errors,
        freedom=doubt.freedom,
    )


def _notes(
    rows: GroupedRows, reduction: Reduction, profile: CovarianceProfile, *, converged: bool
) -> list[str]:
    notes = []
    if not converged:
        notes.append("The search did not converge. Raise max_rounds.")
    relative = profile.relative
    if not np.any(relative):
        notes.append("No variation between groups was found: every theta is the population's mean.")
    elif relative.ndim == 1 and (relative == 0).any():
        places = ", ".join(str(j) for j in np.flatnonzero(relative == 0))
        notes.append(f"No variation between groups was found in x column {places}.")
    elif relative.ndim == 2 and not room(relative):
        notes.append("The covariance is singular: a combination of coefficients does not vary.")
    if np.max(relative) > ALL_SPREAD and reduction.has_residuals:
        notes.append(
            "The noise is tiny beside the differences between groups: how much they differ, and "
            "the errors of the means, are rough."
        )
    elif np.max(relative) > ALL_SPREAD:
        notes.append("No noise was found: all residual variation is between groups.")
    return notes + empty_note(rows)


def empty_note(rows: GroupedRows) -> list[str]:
    """A note on groups without rows, if there are any."""
    count = int((rows.sizes == 0).sum())
    return [f"{count} groups without rows have the population's mean."] if count else []


def known_linear(
    rows: GroupedRows,
    prior: RegressionPopulation,
    *,
    method: str = "known",
    theta: np.ndarray | None = None,
    notes: tuple[str, ...] = (),
    rounds: int = 0,
) -> RegressionFit:
    """Posterior under `prior` (Thm6); `theta` replaces its mean if the method has its own."""
    mean, errors = posterior(rows, prior)
    return RegressionFit(
        family="gaussian",
        method=method,
        criterion="none",
        population=prior,
        theta=mean if theta is None else theta,
        errors=errors,
        responsibilities=np.ones((rows.num_groups, 1)),
        log_likelihood=None,
        rounds=rounds,
        converged=True,
        notes=(*notes, *empty_note(rows)),
    )
