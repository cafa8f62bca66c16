"""Mixtures of linear and logistic regressions: theta_i is near, or at, one of k centers."""

from typing import Literal, get_args

import numpy as np

from fedprior.core import check
from fedprior.core.threads import one_thread
from fedprior.estimation.clustering import Cluster
from fedprior.regression.mixture.outcome import fit_warnings, known_mixture, outcome
from fedprior.regression.mixture.parts import Spread
from fedprior.regression.mixture.search import search, without_dead
from fedprior.regression.mixture.start import MixtureProblem
from fedprior.regression.paper.mixture import alternate
from fedprior.regression.result import Covariance, Family, RegressionFit, RegressionPopulation
from fedprior.regression.rows import GroupedRows

_OWNER = "fit_mixture"


def fit_mixture(
    rows: GroupedRows,
    *,
    family: Family = "gaussian",
    num_components: int | str = "bic",
    spread: Spread = "component",
    covariance: Covariance | Literal["auto"] = "isotropic",
    method: str = "default",
    prior: RegressionPopulation | None = None,
    noise_variance: float | None = None,
    num_classes: int | None = None,
    cluster: Cluster | None = None,
    rounds: int = 1,
    restarts: int = 8,
    seed: int = 0,
) -> RegressionFit:
    """theta_i = sum_l alpha_il theta_il, alpha_il ~ p_l p(y_i | component l) (ERRATA 20-27, D4).

    With `spread="component"`, theta_il is the posterior mean under N(mean_l, covariance_l), by EM
    that includes the posterior variance, so that no scale collapses (ERRATA 27). With "none",
    theta_il = mean_l, a discrete mixture (D4). The number of components is given, or the one of
    lowest BIC, up to 6; so is the form of their covariances if it is "auto". EM starts from the
    best of `restarts` k-means++ draws among the groups' ridge estimates. A component with less than
    half an expected member is removed, with a note. The likelihood is exact for the Gaussian
    family and for discrete mixtures. Otherwise theta is integrated out by expectation
    propagation for two classes, which is nearly exact, and by Laplace's approximation for more,
    whose variances are too low if groups have few rows (ERRATA 37).

    `errors` are the posterior standard deviations of theta_i under the fitted population. With a
    known population as `prior` nothing is learned. `noise_variance` is learned unless given.

    `method="paper"` is Algorithm 7 ("none") or Algorithm 4 with corrected signs ("component"):
    `rounds` times `cluster(theta, num_components) -> probabilities, centers, scales` on a server
    that sees every theta_i. With more than one round the centers collapse (ERRATA 23).
    """
    known_prior = prior is not None
    _check(rows, family, num_components, spread, covariance, method, rounds, restarts, known_prior)
    seed = check.seed(_OWNER, seed)
    classes = _classes(rows, family, num_classes)
    if noise_variance is not None:
        check.positive(_OWNER, noise_variance=noise_variance)
        check.require(family == "gaussian", _OWNER, "noise_variance", "None", noise_variance)
    problem = MixtureProblem(rows, family, classes, noise_variance)
    if prior is not None:
        return known_mixture(problem, prior)
    _identifiable(rows, family, spread, noise_variance)
    if method == "paper":
        rules = problem.rules(spread, "isotropic" if covariance == "auto" else covariance)
        remedy = "The printed algorithm has no way to find it."
        is_number = not isinstance(num_components, str)
        check.require(is_number, _OWNER, "num_components", "a number", num_components, remedy)
        last = alternate(
            problem,
            rules,
            num_components=int(num_components),
            cluster=cluster,
            rounds=rounds,
            seed=seed,
        )
        return outcome(
            problem, last.parts, rules, theta=last.theta, notes=last.notes, rounds=rounds
        )
    with one_thread():
        found = search(problem, spread, covariance, num_components, restarts=restarts, seed=seed)
        reached, dead = without_dead(problem, found.evidence, found.rules, found.climb)
    notes = found.notes + dead + fit_warnings(problem, found.rules, reached)
    return outcome(problem, reached.parts, found.rules, climb=reached, notes=notes)


def _check(
    rows: GroupedRows,
    family: str,
    num_components: int | str,
    spread: str,
    covariance: str,
    method: str,
    rounds: int,
    restarts: int,
    known: bool,
) -> None:
    """Check the options; with a known population nothing is learned, so any rows will do."""
    check.choice(_OWNER, "family", family, ("gaussian", "binomial", "multinomial"))
    check.choice(_OWNER, "spread", spread, ("component", "none"))
    check.choice(_OWNER, "covariance", covariance, ("auto", *get_args(Covariance)))
    check.choice(_OWNER, "method", method, ("default", "paper"))
    check.count(_OWNER, rounds=rounds, restarts=restarts)
    check.require(rows.num_features > 0, _OWNER, "x", "one column or more", rows.num_features)
    if known:
        return
    if family == "gaussian":
        varied = rows.num_rows > 0 and bool(np.ptp(rows.y) > 0)
        check.expect(varied, _OWNER, "all values of y are equal.")
    some = int((rows.sizes > 0).sum())
    check.require(some > 0, _OWNER, "rows", "of one group or more", some)
    if isinstance(num_components, str):
        check.choice(_OWNER, "num_components", num_components, ("bic",))
        return
    check.count(_OWNER, num_components=num_components)
    rule = f"at most the number of groups with rows ({some})"
    check.require(num_components <= some, _OWNER, "num_components", rule, num_components)


def _classes(rows: GroupedRows, family: Family, num_classes: int | None) -> int:
    """The number of classes, 2 for numbers."""
    if family == "gaussian":
        return 2
    whole = bool((rows.y == np.floor(rows.y)).all() and (rows.y >= 0).all())
    check.expect(whole, _OWNER, "y must contain the classes 0, 1, ... only.")
    largest = int(rows.y.max(initial=0)) + 1
    if family == "binomial":
        check.require(largest <= 2, _OWNER, "y", "0 or 1 for the binomial family", largest - 1)
        num_classes = 2
    classes = largest if num_classes is None else num_classes
    check.count(_OWNER, least=2, num_classes=classes)
    check.require(classes >= largest, _OWNER, "num_classes", f"at least {largest}", classes)
    seen = len(np.unique(rows.y))
    remedy = "Without it the coefficients of the missing class are infinite."
    check.require(seen == classes, _OWNER, "y", f"of all {classes} classes", seen, remedy)
    return classes


def _identifiable(rows: GroupedRows, family: Family, spread: str, noise: float | None) -> None:
    """Raise if noise and spread are confounded: one row per group, all of the same norm."""
    if family != "gaussian" or spread == "none" or noise is not None:
        return
    length = (rows.x**2).sum(axis=1)
    same = np.ptp(length) <= 1e-9 * length.max(initial=1e-300)
    apart = not (same and rows.sizes.max() <= 1)
    sentence = (
        "with one row per group, differences between groups cannot be told from noise. Give "
        "noise_variance, or spread='none'."
    )
    check.expect(apart, _OWNER, sentence)
