"""Populations of another shape than the Gaussian, and the choice among them."""

from dataclasses import replace

import numpy as np

from fedprior.core import random
from fedprior.estimation import nonparametric
from fedprior.estimation.gaussian_bins import Bins, bins_of
from fedprior.estimation.gaussian_fit import Law, Profile, common_law, profile, restricted_maximum
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.statistics import Means

_FOLDS = 5
_FEWEST = 20  # groups for which a nonparametric population is considered

WIDENED = (
    "Intervals are those of the Gaussian fit, widened to hold the personal estimate: quantiles of "
    "a nonparametric fit do not cover."
)


def with_atoms(found: Estimates, bins: Bins, law: Law, fitted: Profile) -> Estimates:
    """`found` with a nonparametric population's posterior means in place of the Gaussian ones.

    Where the population depends on size, (theta - f) / sqrt(A) is what has the common distribution.
    The weight is the posterior variance over the sampling variance: the slope of the posterior mean
    (Tweedie), A / (A + v) for a Gaussian population. `scale`, `lower`, `upper` and `above` stay
    those of the Gaussian fit.
    """
    spread = (
        np.sqrt(fitted.ratio[0] * fitted.noise[0] * law.shape) if found.population.by_size else 1
    )
    scale = np.broadcast_to(spread, law.shape.shape)[bins.place]
    location = (law.design @ fitted.coefficients[0])[bins.place, 0] + bins.center[0]
    location = location if found.population.by_size else np.zeros(len(scale))
    variance = np.append(fitted.noise[0] * bins.unit, np.inf)[bins.place]
    mean = (found.raw - location) / scale
    atoms = nonparametric.fit_means(mean, variance / scale**2)
    inner, uncertainty = nonparametric.posterior_means(mean, variance / scale**2, atoms)
    personal = location + scale * inner
    uncertainty = uncertainty * scale**2
    some = np.isfinite(variance)
    error = float(uncertainty[some].mean())
    middle = found.population.mean if found.population.by_size else atoms.mean
    pooled = error + float(((personal[some] - personal[some].mean()) ** 2).mean())
    return replace(
        found,
        personal=personal,
        weight=np.where(some, np.minimum(1.0, uncertainty / variance), 0.0),
        lower=np.minimum(found.lower, personal),
        upper=np.maximum(found.upper, personal),
        population=_population(found.population, atoms, float(middle)),
        gain_over_raw=100 * (1 - error / float(variance[some].mean())),
        gain_over_pooled=100 * (1 - error / pooled) if pooled > 0 else 0.0,
        notes=(*found.notes, WIDENED),
    )


def _population(
    gaussian: FittedPopulation, atoms: nonparametric.Atoms, mean: float
) -> FittedPopulation:
    variance = gaussian.heterogeneity**2 if gaussian.by_size else atoms.variance
    return FittedPopulation(
        kind="nonparametric",
        fitted_by="likelihood",
        mean=mean,
        heterogeneity=float(np.sqrt(variance)),
        parameters={**gaussian.parameters, "mean": mean, "variance": float(variance)},
        atoms=None if gaussian.by_size else atoms.atoms,
        weights=None if gaussian.by_size else atoms.weights,
        by_size=gaussian.by_size,
    )


def choose(statistics: Means, bins: Bins, fitted: Profile) -> tuple[str, str]:
    """The population of highest likelihood on groups held out, in 5 folds, and a note on it.

    Among point, gaussian and, for one coordinate and 20 groups or more, nonparametric. The noise
    variance is that of the whole fit. A population with more freedom has to win by more than a
    standard error of the difference.
    """
    some = bins.place < bins.num_bins
    mean = np.asarray(statistics.mean, np.float64).reshape(len(some), -1)[some]
    variance = fitted.noise[0] * bins.unit[bins.place[some]]
    names = ["point", "gaussian"]
    if bins.dimension == 1 and len(mean) >= _FEWEST:
        names.append("nonparametric")
    folds = min(_FOLDS, len(mean) // 2)
    if folds < 2:
        return "gaussian", "population='auto' picked gaussian: too few groups to hold any out."
    fold = random.stream(0, "split").permutation(len(mean)) % folds
    scores = np.empty((len(names), len(mean)))
    for held in (fold == number for number in range(folds)):
        for row, name in zip(scores, names, strict=True):
            row[held] = _score(name, mean[~held], variance[~held], mean[held], variance[held])
    best = 0
    for other in range(1, len(names)):
        won = scores[other] - scores[best]
        if won.sum() > won.std() * np.sqrt(len(won)):
            best = other
    listed = ", ".join(
        f"{name} {each:.4f}" for name, each in zip(names, scores.mean(axis=1), strict=True)
    )
    picked = names[best]
    return picked, f"population='auto' picked {picked} by held-out likelihood: {listed} a group."


def _score(
    name: str,
    mean: np.ndarray,
    variance: np.ndarray,
    new_mean: np.ndarray,
    new_variance: np.ndarray,
) -> np.ndarray:
    """log-likelihood of held-out group means under a population fitted to the others."""
    if name == "nonparametric":
        atoms = nonparametric.fit_means(mean[:, 0], variance)
        return nonparametric.log_likelihood_means(new_mean[:, 0], new_variance, atoms)
    ones = np.ones(len(mean), np.int64)
    bins = bins_of(Means(n=ones, mean=mean, variance=variance))
    law = common_law(bins)
    fitted = profile(bins, law, np.zeros(1)) if name == "point" else restricted_maximum(bins, law)
    total = new_variance + fitted.ratio[0] + fitted.covariance[0, 0, 0]
    squares = ((new_mean - bins.center - fitted.coefficients[0]) ** 2).sum(axis=1)
    return -(squares / total + bins.dimension * np.log(2 * np.pi * total)) / 2
