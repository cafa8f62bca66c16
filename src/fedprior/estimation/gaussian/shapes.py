"""Populations other than the Gaussian, and the choice among them."""

from dataclasses import replace

import numpy as np

from fedprior.core import random
from fedprior.estimation import selection
from fedprior.estimation.gaussian.bins import Bins, bins_of
from fedprior.estimation.gaussian.fit import (
    MeanLaw,
    RatioProfile,
    common_law,
    ratio_profile,
    restricted_maximum,
)
from fedprior.estimation.gaussian.rows import locations
from fedprior.estimation.nonparametric import atoms as nonparametric
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.statistics import Means

WIDENED = (
    "Intervals are those of the Gaussian fit, widened to contain the personal estimate, because "
    "quantiles of a nonparametric fit do not cover. Probabilities of exceeding a threshold are "
    "also those of the Gaussian fit."
)


def with_atoms(estimates: Estimates, bins: Bins, law: MeanLaw, fitted: RatioProfile) -> Estimates:
    """Replace the Gaussian posterior means by those under a nonparametric population.

    If the population depends on size or covariates, (theta - f) / sqrt(A) has the common
    distribution. The weight is posterior variance / sampling variance, the slope of the posterior
    mean (Tweedie), which is A / (A + v) for a Gaussian population. `scale`, `lower`, `upper` and
    `above` remain those of the Gaussian fit.
    """
    common = not estimates.population.varies
    spread = 1.0 if common else np.sqrt(fitted.ratio[0] * fitted.noise[0] * law.shape)
    scale = np.broadcast_to(spread, law.shape.shape)[bins.place]
    location = np.zeros(len(scale))
    if not common:
        location = locations(bins, law, fitted.coefficients[0], slice(None))[:, 0] + bins.center[0]
    variance = np.append(fitted.noise[0] * bins.unit, np.inf)[bins.place]
    mean = (estimates.raw - location) / scale
    atoms = nonparametric.fit_means(mean, variance / scale**2)
    inner, uncertainty = nonparametric.posterior_means(mean, variance / scale**2, atoms)
    personal = location + scale * inner
    uncertainty = uncertainty * scale**2
    some = np.isfinite(variance)
    error = float(uncertainty[some].mean())
    middle = atoms.mean if common else estimates.population.mean
    pooled = error + float(((personal[some] - personal[some].mean()) ** 2).mean())
    few = selection.few_groups(bins.num_groups, safer="gaussian")
    return replace(
        estimates,
        personal=personal,
        weight=np.where(some, np.minimum(1.0, uncertainty / variance), 0.0),
        lower=np.minimum(estimates.lower, personal),
        upper=np.maximum(estimates.upper, personal),
        population=_population(estimates.population, atoms, float(middle)),
        gain_over_raw=100 * (1 - error / float(variance[some].mean())),
        gain_over_pooled=100 * (1 - error / pooled) if pooled > 0 else 0.0,
        notes=(*estimates.notes, WIDENED, *([few] if few else [])),
    )


def _population(
    gaussian: FittedPopulation, atoms: nonparametric.Atoms, mean: float
) -> FittedPopulation:
    variance = gaussian.heterogeneity**2 if gaussian.varies else atoms.variance
    return FittedPopulation(
        kind="nonparametric",
        fitted_by="likelihood",
        mean=mean,
        heterogeneity=float(np.sqrt(variance)),
        parameters={**gaussian.parameters, "mean": mean, "variance": float(variance)},
        atoms=None if gaussian.varies else atoms.atoms,
        weights=None if gaussian.varies else atoms.weights,
        by_size=gaussian.by_size,
        coefficients=gaussian.coefficients,
    )


def pick_mean_population(statistics: Means, bins: Bins, fitted: RatioProfile) -> tuple[str, str]:
    """The population that predicts held-out groups best (`selection.pick`), and a note on it.

    The candidates are point, gaussian and, for one coordinate and at least 20 groups,
    nonparametric. The noise variance is that of the fit to all groups.
    """
    some = bins.place < bins.num_bins
    mean = np.asarray(statistics.mean, np.float64).reshape(len(some), -1)[some]
    variance = fitted.noise[0] * bins.unit[bins.place[some]]
    names = ["point", "gaussian"]
    if bins.dimension == 1 and len(mean) >= selection.FEWEST:
        names.append("nonparametric")
    folds = selection.num_folds(len(mean))
    if folds < 2:
        return "gaussian", selection.unpicked("gaussian", "too few groups to hold any out")
    fold = random.stream(0, "split").permutation(len(mean)) % folds
    scores = {name: np.empty(len(mean)) for name in names}
    for held in (fold == number for number in range(folds)):
        for name, row in scores.items():
            row[held] = _score(name, mean[~held], variance[~held], mean[held], variance[held])
    return selection.pick(scores)


def _score(
    name: str,
    mean: np.ndarray,
    variance: np.ndarray,
    new_mean: np.ndarray,
    new_variance: np.ndarray,
) -> np.ndarray:
    """Log-likelihood of held-out group means under a population fitted to the other groups."""
    if name == "nonparametric":
        atoms = nonparametric.fit_means(mean[:, 0], variance)
        return nonparametric.log_likelihood_means(new_mean[:, 0], new_variance, atoms)
    ones = np.ones(len(mean), np.int64)
    bins = bins_of(Means(n=ones, mean=mean, variance=variance))
    law = common_law(bins)
    fitted = (
        ratio_profile(bins, law, np.zeros(1)) if name == "point" else restricted_maximum(bins, law)
    )
    total = new_variance + fitted.ratio[0] + fitted.covariance[0, 0, 0]
    squares = ((new_mean - bins.center - fitted.coefficients[0]) ** 2).sum(axis=1)
    return -(squares / total + bins.dimension * np.log(2 * np.pi * total)) / 2
