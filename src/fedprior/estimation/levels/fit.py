"""The variances of the factors by maximum likelihood, with standard errors."""

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from fedprior.estimation.levels.problem import Problem

_NOTHING = 1e-4  # of the first deviation: below, a factor may have none
_RESTARTS = 30
_FLAT = 0.05  # slope of -2 log L, in units of standard errors: a fortieth of one away
_STEP = 1e-3  # of a logarithm, for second derivatives


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelsFit:
    """`scales` are the standard deviations of the factors in units of the data.

    `scale_errors` are their standard errors, by the second derivative in the logarithms; NaN for a
    factor without variance. `ratios` are the variances relative to the noise variance `noise`.
    `coefficients` are those that the likelihood was maximized in, None if they were profiled out.
    """

    scales: np.ndarray
    scale_errors: np.ndarray
    ratios: np.ndarray
    noise: float
    noise_scale_error: float
    coefficients: np.ndarray | None
    log_likelihood: float


def maximize(problem: Problem) -> LevelsFit:
    """The fit of highest likelihood; a factor that ends without variance is tried once more."""
    first = problem.start()
    number = len(problem.rows.cells.sizes)
    best = _descend(problem, first)
    gone = np.flatnonzero(best.x[:number] < _NOTHING * first[:number])
    for factor in gone:
        again = best.x.copy()
        again[factor] = 0.1 * first[factor]
        other = _descend(problem, again)
        best = other if other.fun < best.fun - 1e-8 else best
    parameters = np.array(best.x)
    for factor in np.flatnonzero(parameters[:number] < _NOTHING * first[:number]):
        parameters[factor] = 0.0
    ratios = parameters[:number] ** 2
    noise = problem.noise(ratios)
    errors, noise_error = _errors(problem, parameters, number, noise)
    twice = problem.objective(parameters)[0]
    return LevelsFit(
        scales=np.sqrt(noise * ratios),
        scale_errors=np.sqrt(noise * ratios) * errors,
        ratios=ratios,
        noise=noise,
        noise_scale_error=float(np.sqrt(noise) * noise_error),
        coefficients=parameters[number:] if len(parameters) > number else None,
        log_likelihood=float(-twice / 2),
    )


def _descend(problem: Problem, start: np.ndarray) -> optimize.OptimizeResult:
    """Minimize -2 log L; coefficients are in units of their standard errors on the way."""
    number, count = len(problem.rows.cells.sizes), len(start)
    unit = np.ones(count)
    if count > number:
        unit[number:] = np.sqrt(np.diag(problem.state(start[:number] ** 2).covariance))

    def scaled(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        twice, slope = problem.objective(parameters * unit)
        return twice, slope * unit

    at = start / unit
    for _ in range(_RESTARTS):  # a step that hits a wall ends a search too early
        found = optimize.minimize(
            scaled,
            at,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * number + [(None, None)] * (count - number),
            options={"ftol": 1e-13, "gtol": 1e-7, "maxiter": 500},
        )
        uphill = np.where((found.x <= 0) & (np.arange(count) < number), 0.0, found.jac)
        if np.abs(uphill).max() < _FLAT or np.array_equal(found.x, at):
            break
        at = found.x
    found.x = found.x * unit
    return found


def _errors(
    problem: Problem, parameters: np.ndarray, number: int, noise: float
) -> tuple[np.ndarray, float]:
    """Standard errors of the logarithms of the deviations, and of that of the noise."""
    alive = np.flatnonzero(parameters[:number] > 0).tolist()
    free = [*alive, *range(number, len(parameters))]

    def moved(place: int, step: float) -> np.ndarray:
        found = parameters.copy()
        found[place] = found[place] * np.exp(step) if place < number else found[place] + step
        return found

    def slope(place: int, step: float) -> np.ndarray:
        at = moved(place, step)
        gradient = problem.objective(at)[1].copy()
        gradient[:number] *= at[:number]
        return gradient[free]

    def logged(place: int, step: float) -> float:
        return float(np.log(problem.noise(moved(place, step)[:number] ** 2)))

    errors = np.full(number, np.nan)
    rows = problem.rows
    freedom = rows.num_rows - rows.num_fixed
    has_noise = rows.family == "gaussian" and not rows.known
    noise_error = np.sqrt(0.5 / freedom) if has_noise else np.nan
    if not alive:
        return errors, float(noise_error)
    table = np.array([slope(k, _STEP) - slope(k, -_STEP) for k in free]) / (2 * _STEP)
    try:
        covariance = 2 * np.linalg.inv((table + table.T) / 2)
    except np.linalg.LinAlgError:
        return errors, float(noise_error)
    inner = covariance[: len(alive), : len(alive)]
    variance = np.diag(inner)
    if has_noise:
        along = np.array([logged(k, _STEP) - logged(k, -_STEP) for k in alive]) / (2 * _STEP)
        of_noise = 2 / freedom + along @ inner @ along
        variance = variance + of_noise / 4 + inner @ along
        noise_error = np.sqrt(of_noise) / 2
    errors[alive] = np.sqrt(np.where(variance > 0, variance, np.nan))
    return errors, float(noise_error)
