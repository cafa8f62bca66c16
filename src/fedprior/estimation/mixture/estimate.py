"""theta_i is one of k centers: a discrete mixture of means, known or learned (paper sec. 2.3)."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from fedprior.core import check
from fedprior.estimation.choices import METHODS
from fedprior.estimation.clustering import Cluster, cluster_points, k_means
from fedprior.estimation.mixture import em
from fedprior.estimation.mixture.em import DiscreteMixture, responsibilities
from fedprior.estimation.mixture.start import best_start
from fedprior.estimation.mixture.summary import center_errors, separation, summarize_mixture
from fedprior.estimation.paper.mixture import paper_mixture
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Means
from fedprior.estimation.stein import with_checked_gains

_OWNER = "estimate_mixture"
_MOST_COMPONENTS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureEstimates:
    """The groups' estimates, and the probabilities of the centers that they belong to.

    `responsibilities` (groups, components) are the posterior probabilities of the centers;
    `centers` is (components,) or (components, d), like the means. `noise_variance` is that of one
    value (NaN if each mean came with its own variance). `log_likelihood` is the sum over groups.
    """

    estimates: Estimates
    responsibilities: np.ndarray
    centers: np.ndarray
    probabilities: np.ndarray
    noise_variance: float
    log_likelihood: float


def estimate_mixture(
    statistics: Means,
    *,
    num_components: int | str | None = None,
    centers: np.ndarray | None = None,
    probabilities: np.ndarray | None = None,
    noise_variance: float | None = None,
    method: str = "default",
    cluster: Cluster | None = None,
    rounds: int = 1,
    level: float = 0.95,
    seed: int = 0,
) -> MixtureEstimates:
    """personal_i = sum_l alpha_il center_l, alpha_il ~ p_l exp(-n_i |mean_i - center_l|^2 / (2 v)).

    If `centers` and `probabilities` are known, this is Thm 5 (ERRATA 20, 21); with centers alone,
    their probabilities are fitted by EM. With neither, EM on the raw means (D4) starts from the
    best of several k-means++ draws, or
    from `cluster(means, num_components) -> probabilities, centers, scales`; `num_components="auto"`
    takes the least BIC among 1..8. `noise_variance`, that of one value, is pooled from `within`
    unless known. `method="paper"` is Algorithm 1 as printed: `rounds` times, cluster the shrunken
    estimates and shrink again (ERRATA 22, 23: with rounds > 1 the centers collapse).

    The intervals hold for theta drawn from such a mixture. In each coordinate they extend from the
    lowest to the highest center that the group may belong to, widened by the standard errors of the
    centers. If theta varies continuously instead, the intervals are too short.

    >>> statistics = Means(n=np.full(4, 9), mean=np.array([0.1, -0.2, 4.9, 5.1]))
    >>> found = estimate_mixture(statistics, num_components=2, noise_variance=1.0)
    >>> sorted(found.centers.round(2).tolist())
    [-0.05, 5.0]
    """
    _check(
        statistics, num_components, centers, probabilities, noise_variance, method, rounds, level
    )
    seed = check.seed(_OWNER, seed)
    mean = np.asarray(statistics.mean, np.float64).reshape(len(statistics.n), -1)
    noise, variance, notes = _variances(statistics, mean, noise_variance)
    some = np.isfinite(variance)
    seen, own = mean[some], variance[some]
    known = _known(centers, probabilities, mean.shape[1])
    fit_notes: tuple[str, ...] = ()
    how = "paper" if known is None and method == "paper" else "likelihood"
    if known is not None and probabilities is not None:
        mixture, how = known, "known"
    elif known is not None:
        mixture, fit_notes = _learn(seen, own, known, fixed=True)
    elif method == "paper":
        mixture, fit_notes = paper_mixture(
            seen,
            own,
            _count(num_components, len(seen)),
            cluster=cluster or partial(k_means, seed=seed),
            rounds=rounds,
        )
    else:
        mixture, fit_notes = _choose(seen, own, num_components, cluster, seed)
    errors = center_errors(seen, own, mixture) if known is None else 0 * mixture.centers
    table, log_likelihood = responsibilities(mean, variance, mixture)
    estimates = summarize_mixture(
        statistics,
        variance,
        mixture,
        table,
        errors,
        noise=noise,
        level=level,
        fitted_by=how,
        notes=(*notes, *fit_notes, _apart(mixture, own)),
    )
    rows = (seen, own, table[some], mixture.centers)
    estimates = with_checked_gains(estimates, *rows, learned=known is None)
    shown = mixture.centers if np.ndim(statistics.mean) == 2 else mixture.centers[:, 0]
    return MixtureEstimates(
        estimates=estimates,
        responsibilities=table,
        centers=shown,
        probabilities=mixture.probabilities,
        noise_variance=noise,
        log_likelihood=float(log_likelihood.sum()),
    )


def _check(
    statistics: Means,
    num_components: int | str | None,
    centers: np.ndarray | None,
    probabilities: np.ndarray | None,
    noise_variance: float | None,
    method: str,
    rounds: int,
    level: float,
) -> None:
    check.choice(_OWNER, "method", method, METHODS)
    check.count(_OWNER, rounds=rounds)
    check.positive(_OWNER, level=level)
    check.require(level < 1, _OWNER, "level", "below 1", level)
    if noise_variance is not None:
        check.positive(_OWNER, noise_variance=noise_variance)
    check.require(bool((statistics.n > 0).any()), _OWNER, "n", "above 0 for some group", 0)
    if centers is None:
        rule = "given only together with centers"
        check.require(probabilities is None, _OWNER, "probabilities", rule, probabilities)
        rule = "a number of components or 'auto'"
        check.require(num_components is not None, _OWNER, "num_components", rule, num_components)
        if isinstance(num_components, str):
            check.choice(_OWNER, "num_components", num_components, ["auto"])
            rule = "a number where method is 'paper'"
            check.require(method == "default", _OWNER, "num_components", rule, num_components)
        else:
            check.count(_OWNER, num_components=num_components)


def _known(
    centers: np.ndarray | None, probabilities: np.ndarray | None, dimension: int
) -> DiscreteMixture | None:
    """The given mixture, with equal probabilities if only the centers are known."""
    if centers is None:
        return None
    points = np.asarray(centers, np.float64)
    points = points.reshape(len(points), -1) if points.ndim else points.reshape(1, 1)
    rule = f"(components, {dimension})"
    check.require(points.shape[1] == dimension, _OWNER, "centers", f"of shape {rule}", points.shape)
    check.require(bool(np.isfinite(points).all()), _OWNER, "centers", "finite", centers)
    if probabilities is None:
        return DiscreteMixture(points, np.full(len(points), 1 / len(points)))
    share = np.asarray(probabilities, np.float64)
    rule = f"{len(points)} numbers of at least 0 with sum 1"
    fits = share.shape == (len(points),) and bool((share >= 0).all())
    fits = fits and abs(float(share.sum()) - 1) < 1e-6
    check.require(fits, _OWNER, "probabilities", rule, probabilities)
    return DiscreteMixture(points, share / share.sum())


def _variances(
    statistics: Means, mean: np.ndarray, noise_variance: float | None
) -> tuple[float, np.ndarray, tuple[str, ...]]:
    """Variance of one value, sampling variance of each mean (inf without data), and notes."""
    n = np.asarray(statistics.n, np.float64)
    if statistics.variance is not None:
        return np.nan, np.where(n > 0, statistics.variance, np.inf), ()
    notes: tuple[str, ...] = ()
    if noise_variance is None:
        free = float((n - 1)[n > 1].sum()) * mean.shape[1]
        remedy = "It needs groups of two rows or more with `within`, or give noise_variance."
        pooled = statistics.within is not None and free > 0
        check.require(pooled, _OWNER, "noise_variance", "given or identifiable", None, remedy)
        noise_variance = float(np.sum(np.asarray(statistics.within)[n > 1])) / free
        # If all rows of a group are equal, every likelihood would be infinite.
        floor = max(1e-10 * float(mean[n > 0].var(axis=0).mean()), 1e-200)
        if noise_variance < floor:
            noise_variance = floor
            notes = (f"The rows of a group do not differ: noise variance set to {floor:.1e}.",)
    with np.errstate(divide="ignore"):
        return float(noise_variance), noise_variance / n, notes


def _count(num_components: int | str | None, num_groups: int) -> int:
    count = int(num_components) if num_components is not None else 1
    rule = f"at most the number of groups with data ({num_groups})"
    check.require(count <= num_groups, _OWNER, "num_components", rule, count)
    return count


def _learn(
    mean: np.ndarray, variance: np.ndarray, start: DiscreteMixture, *, fixed: bool = False
) -> tuple[DiscreteMixture, tuple[str, ...]]:
    """EM to convergence, and a note if it did not converge."""
    fitted = em.fit_discrete(mean, variance, start, fixed_centers=fixed)
    late = f"EM had not converged after {fitted.num_rounds} rounds."
    return fitted.mixture, () if fitted.converged else (late,)


def _choose(
    mean: np.ndarray,
    variance: np.ndarray,
    num_components: int | str | None,
    cluster: Cluster | None,
    seed: int,
) -> tuple[DiscreteMixture, tuple[str, ...]]:
    """EM with the given number of components, or with the one of lowest BIC."""

    def start(count: int) -> DiscreteMixture:
        if cluster is None:
            return best_start(mean, variance, count, seed)
        clusters = cluster_points(cluster, mean, count)
        return DiscreteMixture(clusters.centers, clusters.probabilities)

    if num_components != "auto":
        return _learn(mean, variance, start(_count(num_components, len(mean))))
    scores, tried = [], []
    for count in range(1, min(_MOST_COMPONENTS, len(mean)) + 1):
        # Superfluous components converge slowly; an approximate maximum is enough for a comparison.
        near = em.fit_discrete(mean, variance, start(count), most_rounds=200, tolerance=1e-7)
        free = near.mixture.centers.size + count - 1
        scores.append(-2 * len(mean) * near.log_likelihood + free * float(np.log(len(mean))))
        tried.append(near.mixture)
    best = int(np.argmin(scores))
    mixture, notes = _learn(mean, variance, tried[best])
    return mixture, (_picked(scores, best), *notes)


def _picked(scores: list[float], best: int) -> str:
    """The note on the number of components, best + 1, by the BIC of each number."""
    others = np.delete(scores, best)
    margin = f" ({others.min() - scores[best]:.1f} below the next)" if len(others) else ""
    word = "component" + "s" * (best > 0)
    return f"{best + 1} {word} picked among 1..{len(scores)} by BIC{margin}."


def _apart(mixture: DiscreteMixture, variance: np.ndarray) -> str:
    if len(mixture.centers) == 1:
        return "One center for all groups."
    distance = separation(mixture, variance)
    return f"Nearest two centers: {distance:.2f} standard deviations of a typical group mean apart."
