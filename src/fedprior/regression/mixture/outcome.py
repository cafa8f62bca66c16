"""The result of fitting a mixture of regressions, from its parameters."""

import numpy as np

from fedprior.core import check
from fedprior.regression.mixture.em import MixtureClimb
from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules, Spread
from fedprior.regression.mixture.start import MixtureProblem
from fedprior.regression.result import Component, Covariance, RegressionFit, RegressionPopulation

_NEGLIGIBLE = 1e3  # times the floor, which is still 1e-3 of a coefficient's sampling variance
_FAR = 15.0  # a logit whose probability differs from 0 or 1 by 3e-7


def outcome(
    problem: MixtureProblem,
    parts: MixtureParameters,
    rules: MixtureRules,
    *,
    notes: tuple[str, ...],
    climb: MixtureClimb | None = None,
    theta: np.ndarray | None = None,
    rounds: int = 0,
    kind: str | None = None,
) -> RegressionFit:
    """theta_i = sum alpha_il theta_il unless `theta` is given, and its posterior deviations.

    Variance: sum alpha_il (Sigma_il + theta_il^2) - theta_i^2. Components by falling share.
    """
    order = np.argsort(-parts.shares, kind="stable")
    parts = parts._replace(
        shares=parts.shares[order], means=parts.means[order], covariances=parts.covariances[order]
    )
    posterior = problem.evidence(rules).posterior(parts)
    table = posterior.responsibilities[:, :, None]
    mean = (table * posterior.theta).sum(axis=1)
    variance = (table * (posterior.variances + (posterior.theta - mean[:, None]) ** 2)).sum(axis=1)
    # For the printed algorithm, its own theta is the center of the posterior.
    away = 0.0 if theta is None else (theta - mean)[:, None]
    kind = kind or ("mixture" if rules.spread == "component" else "discrete")
    return RegressionFit(
        family=problem.family,
        method="em" if climb else ("known" if kind == "known" else "paper"),
        criterion="ml",
        population=_population(problem, parts, kind),
        theta=mean if theta is None else theta,
        errors=np.sqrt(variance),
        responsibilities=posterior.responsibilities,
        log_likelihood=float(posterior.log_likelihood.sum()),
        rounds=climb.rounds if climb else rounds,
        converged=climb.converged if climb else kind == "known",
        notes=notes,
        history=climb.history if climb else (),
        means=None if problem.exact else posterior.theta + away,
        triangles=posterior.triangles,
        form=rules.covariance,
    )


def _population(
    problem: MixtureProblem, parts: MixtureParameters, kind: str
) -> RegressionPopulation:
    mean = parts.shares @ parts.means
    away = parts.means - mean
    within = np.tensordot(parts.shares, parts.covariances, 1)
    return RegressionPopulation(
        kind=kind,
        mean=mean,
        covariance=within + (away * parts.shares[:, None]).T @ away,
        components=tuple(
            Component(share=float(share), mean=center, covariance=covariance)
            for share, center, covariance in zip(*parts[:3], strict=True)
        ),
        fixed=parts.fixed,
        noise_variance=parts.noise if problem.exact else None,
    )


def known_mixture(problem: MixtureProblem, prior: RegressionPopulation) -> RegressionFit:
    """Every group's posterior under a known population; nothing is learned."""
    owner = "fit_mixture"
    noise = prior.noise_variance if problem.noise is None else problem.noise
    remedy = "The prior has none: give noise_variance."
    if problem.exact:
        check.require(noise is not None, owner, "noise_variance", "known", None, remedy)
    parts = MixtureParameters(
        np.array([each.share for each in prior.components]),
        np.stack([np.asarray(each.mean, np.float64) for each in prior.components]),
        np.stack([np.asarray(each.covariance, np.float64) for each in prior.components]),
        np.asarray(prior.fixed, np.float64),
        float(noise or 1.0),
    )
    size = problem.num_logits * problem.rows.num_features
    check.require(
        parts.means.shape[1] == size, owner, "prior", f"of {size} coefficients", parts.means.shape
    )
    common = problem.num_logits * problem.rows.num_fixed
    check.require(
        parts.fixed.shape == (common,), owner, "prior.fixed", f"of shape ({common},)", parts.fixed
    )
    rules = problem.rules(*_form(parts.covariances))
    return outcome(problem, parts, rules, notes=(), kind="known")


def _form(covariances: np.ndarray) -> tuple[Spread, Covariance]:
    """The simplest form that can represent the covariances."""
    if not covariances.any():
        return "none", "isotropic"
    round_ones = covariances[:, :1, :1] * np.eye(covariances.shape[1])
    return "component", "isotropic" if (covariances == round_ones).all() else "full"


def fit_warnings(
    problem: MixtureProblem, rules: MixtureRules, reached: MixtureClimb
) -> tuple[str, ...]:
    """Notes on floors, approximations, separated classes and missing convergence."""
    notes = []
    parts = reached.parts
    if _collinear(problem):
        notes.append(
            "Some features are linear combinations of others, or nearly so, as features far from 0 "
            "are of the intercept (center them): of all coefficients that fit equally "
            "well, those of smallest norm are given."
        )
    if rules.spread == "component":
        least = np.linalg.eigvalsh(parts.covariances)[:, 0]
        few = int((least <= _NEGLIGIBLE * rules.spread_floor).sum())
        if few:
            notes.append(
                f"The spread of {few} of {len(least)} components is at or near its floor "
                f"({np.sqrt(rules.spread_floor):.2g}): their members do not differ."
            )
        if problem.num_logits > 1:
            notes.append(
                "Laplace's approximation underestimates the spread within a component if groups "
                "have few rows (ERRATA 37)."
            )
    if rules.learns_noise and parts.noise <= rules.noise_floor * (1 + 1e-6):
        notes.append("The rows are fitted perfectly: the noise variance is at its floor.")
    if not problem.exact and _separated(problem, parts):
        notes.append(
            "The features separate the classes within a component: its coefficients are unbounded, "
            "and their size has no meaning."
        )
    if not reached.converged:
        notes.append(f"EM had not converged after {reached.rounds} rounds.")
    return tuple(notes)


def _collinear(problem: MixtureProblem) -> bool:
    """Whether the rows of all groups together do not determine some direction of coefficients."""
    design = np.concatenate([problem.rows.x, problem.rows.fixed], axis=1)
    lengths = np.linalg.norm(design, axis=0)
    square = (design.T @ design) / np.maximum(np.outer(lengths, lengths), 1e-300)
    return bool(np.linalg.eigvalsh(square)[0] < 1e-10)


def _separated(problem: MixtureProblem, parts: MixtureParameters) -> bool:
    """Whether half of all rows have a logit beyond 15 under some component."""
    rows = problem.rows
    common = rows.fixed @ parts.fixed.reshape(problem.num_logits, -1).T
    for mean in parts.means:
        logits = rows.x @ mean.reshape(problem.num_logits, -1).T + common
        if np.median(np.abs(logits).max(axis=1)) > _FAR:
            return True
    return False
