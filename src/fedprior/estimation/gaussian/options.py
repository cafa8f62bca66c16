"""The options of `estimate_means`, checked before anything is computed."""

import numpy as np

from fedprior.core import check
from fedprior.estimation.choices import FITS, INTERVALS, METHODS, NOISES, populations
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.shapes import SHAPES
from fedprior.estimation.statistics import Means

PLAIN = ("gaussian", "likelihood", "default", "default")  # choices that allow for unequal noise
_OWNER = "estimate_means"


def check_choices(population: str, fit: str, method: str, noise: str, intervals: str) -> None:
    """Every choice is one of those known."""
    check.choice(_OWNER, "population", population, populations("gaussian"))
    check.choice(_OWNER, "fit", fit, FITS)
    check.choice(_OWNER, "method", method, METHODS)
    check.choice(_OWNER, "noise", noise, NOISES)
    check.choice(_OWNER, "intervals", intervals, INTERVALS)


def check_combination(
    statistics: Means,
    population: str,
    fit: str,
    method: str,
    by_size: bool,
    theta_variance: float | None,
    ranks: bool,
    leave_one_out: bool,
) -> None:
    """No option is given that another one excludes."""
    one = statistics.dimension == 1
    studies = statistics.variance is not None and one and theta_variance is None
    sentence = (
        "leave_one_out needs values of one coordinate with a standard error for each group, and no "
        "theta_variance."
    )
    check.expect(studies or not leave_one_out, _OWNER, sentence)
    sentence = f"population={population!r} needs values of one coordinate."
    check.expect(one or population not in SHAPES, _OWNER, sentence)
    check.expect(one or not ranks, _OWNER, "ranks need values of one coordinate.")
    free = method == "default" and fit == "likelihood" and theta_variance is None
    free = free and population not in ("point", "auto")
    sentence = (
        "by_size cannot be combined with method='paper', fit='moments', population='point' or "
        "'auto', or theta_variance."
    )
    check.expect(free or not by_size, _OWNER, sentence)
    rule = "gaussian with method='paper' and with theta_variance"
    valid = (method == "default" and theta_variance is None) or population == "gaussian"
    check.require(valid, _OWNER, "population", rule, population)
    used = method == "default" and population in ("gaussian", "auto")
    sentence = f"fit={fit!r} has no effect with method='paper' or another population than gaussian."
    check.expect(used or fit == "likelihood", _OWNER, sentence)


def check_covariates(
    covariates: Covariates | None, num_groups: int, population: str, method: str
) -> None:
    """There is a row of covariates for each group, and a population that can depend on them."""
    if covariates is None:
        return
    rows = len(covariates.values)
    rule = f"one row for each of the {num_groups} groups"
    check.require(rows == num_groups, _OWNER, "covariates", rule, rows)
    sentence = "covariates cannot be combined with method='paper' or population='auto'."
    check.expect(method == "default" and population != "auto", _OWNER, sentence)


def check_noise(
    statistics: Means, noise: str, noise_variance: float | None, *, plain: bool
) -> None:
    """Moderated variances are asked for only where the options and the data allow for them."""
    if noise != "moderated":
        return
    sentence = (
        "noise='moderated' needs population='gaussian', fit='likelihood', method='default' and "
        "intervals='default', and cannot be combined with by_size or covariates."
    )
    check.expect(plain, _OWNER, sentence)
    sentence = "noise='moderated' needs `within`, and cannot be combined with known variances."
    known = noise_variance is not None or statistics.variance is not None
    check.expect(statistics.within is not None and not known, _OWNER, sentence)


def check_numbers(
    theta_variance: float | None,
    noise_variance: float | None,
    level: float,
    above: float | None,
) -> None:
    """Variances, level and threshold are numbers in their ranges."""
    if theta_variance is not None:
        check.nonnegative(_OWNER, theta_variance=theta_variance)
    if noise_variance is not None:
        check.positive(_OWNER, noise_variance=noise_variance)
    check.share(_OWNER, level=level)
    check.positive(_OWNER, level=level)
    if above is not None:
        rule = "a finite number"
        check.require(bool(np.isfinite(above)), _OWNER, "above", rule, above)
