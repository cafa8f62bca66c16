"""Personalized means: theta_i ~ N(mean, A I), x_i ~ N(theta_i, v_i I), for groups of any size."""

from dataclasses import dataclass, replace

import numpy as np

from fedprior.estimation.covariates import Covariates
from fedprior.estimation.gaussian import by_size as by_sizes
from fedprior.estimation.gaussian import options, shaped, unequal
from fedprior.estimation.gaussian.bins import Bins, bins_of
from fedprior.estimation.gaussian.coefficients import (
    coefficients_of,
    explained,
    integrated_coefficients,
)
from fedprior.estimation.gaussian.fit import (
    MeanLaw,
    RatioProfile,
    common_law,
    moment_fit,
    ratio_profile,
    restricted_maximum,
)
from fedprior.estimation.gaussian.lookup import check_collapsed, lookup_of
from fedprior.estimation.gaussian.meta import meta_analysis
from fedprior.estimation.gaussian.nodes import PopulationNodes, integrated, nodes_at
from fedprior.estimation.gaussian.posterior import (
    LinearRule,
    MeanRows,
    apply_rule,
    mean_rule,
    mixture_of,
    spread_about,
)
from fedprior.estimation.gaussian.robust import FEW, robust_half_widths
from fedprior.estimation.gaussian.summary import gains, integrated_population, plug_in_population
from fedprior.estimation.intervals import normal_score
from fedprior.estimation.paper.means import paper_fit
from fedprior.estimation.result import Estimates, FittedPopulation, found_by
from fedprior.estimation.shapes import SHAPES
from fedprior.estimation.statistics import Means


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianFit:
    """A fitted Gaussian population: its law, the best fit, and its posterior uncertainty.

    `rule` maps raw to personal estimates. If `few`, estimates are posterior means and intervals are
    quantiles over `nodes`; otherwise the best fit is plugged in, and `nodes` widen the intervals.
    """

    bins: Bins
    law: MeanLaw
    fitted: RatioProfile
    nodes: PopulationNodes
    rule: LinearRule
    few: bool
    population: FittedPopulation


def estimate_means(
    statistics: Means,
    *,
    population: str = "gaussian",
    fit: str = "likelihood",
    method: str = "default",
    by_size: bool = False,
    covariates: Covariates | None = None,
    theta_variance: float | None = None,
    noise_variance: float | None = None,
    noise: str = "auto",
    level: float = 0.95,
    intervals: str = "default",
    above: float | None = None,
    ranks: bool = False,
    leave_one_out: bool = False,
) -> Estimates:
    """personal_i = x_i - B_i (x_i - mean), B_i = v_i / (v_i + A), v_i = noise variance / n_i.

    The variance A of theta and the noise variance (of one row, per coordinate) are known (paper Thm
    1) or fitted, jointly by restricted likelihood or by moments (ERRATA D1). Below 100 groups the
    estimates average over the posterior of the fit; above, intervals are Morris's, which plug in
    the fit and add its uncertainty. The mean has weights 1 / (v_i + A), which is the plain mean if
    all n are equal.

    `population` is gaussian, point (one value for all groups) or, for one coordinate, scale-mixture
    (Gaussians of one mean and many variances), spike-and-slab (one value for some of the groups, a
    Gaussian for the others), nonparametric, or auto (gaussian, unless another one clearly predicts
    groups that are left out better). `by_size` lets mean and variance depend on
    log n, or on the log standard error if each group has one. `covariates`, one row per group, make
    the mean a regression (Fay and Herriot 1979); a group without rows is predicted by it.
    `method="paper"` plugs the raw variance of the group means into Thm 1, a bias that ERRATA D1
    removes. `noise` is common (one noise variance), moderated (every group has its own, from an
    inverse-gamma population of variances) or auto, which takes moderated where the evidence is
    clear. `intervals="robust"` gives intervals that hold for any shape of the population. `above`
    adds P(theta_i > above). Where rows stand for several groups (`Means.count`), the tests that
    look at single groups are left out, and `lookup` gives each group's numbers from its own mean.
    If each group has a standard error, the result has the figures of a meta-analysis (`meta`),
    which `leave_one_out` repeats without each of the groups.

    >>> statistics = Means(n=np.full(3, 4), mean=np.array([0.0, 1.0, 2.0]))
    >>> estimates = estimate_means(statistics, theta_variance=1.0, noise_variance=4.0)
    >>> estimates.personal.tolist(), estimates.weight.tolist()
    ([0.5, 1.0, 1.5], [0.5, 0.5, 0.5])
    """
    options.check_choices(population, fit, method, noise, intervals)
    options.check_combination(
        statistics, population, fit, method, by_size, theta_variance, ranks, leave_one_out
    )
    options.check_covariates(covariates, len(statistics.n), population, method)
    options.check_numbers(theta_variance, noise_variance, level, above)
    plain = (population, fit, method, intervals) == options.PLAIN and not by_size
    plain = plain and covariates is None
    options.check_noise(statistics, noise, noise_variance, plain=plain)
    check_collapsed(
        statistics,
        **{f"population={population!r}": population in (*SHAPES, "auto")},
        **{"intervals='robust'": intervals == "robust", "noise='moderated'": noise == "moderated"},
        covariates=covariates is not None,
        variance=statistics.variance is not None,
        coordinates=statistics.dimension > 1,
        above=above is not None,
        ranks=ranks,
    )
    bins = bins_of(statistics, noise_variance=noise_variance, covariates=covariates)
    raw = np.asarray(statistics.mean, np.float64).reshape(len(bins.place), -1)
    common = restricted_maximum(bins, common_law(bins), theta_variance=theta_variance)
    notes = unequal.constant_note(statistics, raw, noise_variance)
    if population == "auto":
        population, note = shaped.pick_population(statistics, bins, common)
        notes.append(note)
        plain = (population, fit, method, intervals) == options.PLAIN  # then it is the default
    fixed = by_size or theta_variance is not None  # then the recommended option is not available
    fixed = fixed or statistics.count is not None
    warned = None if fixed else by_sizes.warning(bins, raw, common)
    kind = "point" if population == "point" else method if method == "paper" else fit
    tested = noise_variance is None and kind not in ("point", "paper")
    tested = tested and statistics.count is None
    own, told = unequal.choose(statistics, raw, noise=noise if tested else "common", plain=plain)
    usual = population == "gaussian" and kind != "paper" and not fixed
    shape = None
    if usual and not (warned or told or covariates is not None):
        shape = shaped.warning(statistics, bins, common)
    checks = found_by(size=warned, noise=told, shape=shape)
    if own is not None:
        estimates = unequal.estimate_unequal(
            statistics, bins, raw, own, theta_variance=theta_variance, level=level, above=above
        )
    else:
        gaussian = fit_gaussian(
            bins, common, kind=kind, by_size=by_size, theta_variance=theta_variance
        )
        gaussian = _with_coefficients(gaussian, kind, level, known=theta_variance is not None)
        estimates = _rows_of(gaussian, statistics, raw, level=level, robust=intervals == "robust")
        if above is not None:
            estimates = replace(estimates, above=_chance(gaussian, estimates, raw, above))
        if population in SHAPES:
            estimates = shaped.with_shape(
                estimates,
                statistics,
                bins,
                gaussian.law,
                gaussian.fitted,
                name=population,
                threshold=above,
                robust=intervals == "robust",
            )
    if bins.each_known and bins.dimension == 1 and theta_variance is None:
        figures = meta_analysis(bins, common, raw, level=level, leave_one_out=leave_one_out)
        estimates = replace(estimates, meta=figures)
    if ranks:
        from fedprior.estimation.ranking import rank

        places = rank(estimates.personal, estimates.scale, level=level)
        estimates = replace(estimates, ranks=places)
    found = filter(None, checks.values())
    return replace(estimates, notes=(*notes, *found, *estimates.notes), checks=checks)


def fit_gaussian(
    bins: Bins,
    common: RatioProfile,
    *,
    kind: str = "likelihood",
    by_size: bool = False,
    theta_variance: float | None = None,
) -> GaussianFit:
    """The population fitted by `kind`: likelihood, moments, paper or point.

    `common` is the restricted-likelihood fit of one population for all sizes.
    """
    law, fitted, noise = common_law(bins), common, float(common.noise[0])
    if by_size:
        law = by_sizes.size_law(bins, float(common.ratio[0]))
        fitted = restricted_maximum(bins, law)
    elif kind == "moments":
        fitted, noise = moment_fit(bins, law, theta_variance=theta_variance), bins.noise_guess
    elif kind == "point":
        fitted = ratio_profile(bins, law, np.zeros(1))
    nodes = integrated(bins, law, theta_variance=theta_variance)
    few = kind == "likelihood" and bins.num_groups < FEW
    known = theta_variance is not None
    if kind == "paper":
        (fitted, rule), noise = paper_fit(bins, law, theta_variance), bins.noise_guess
    else:
        rule = mean_rule(nodes if few else nodes_at(bins, law, fitted.ratio, np.ones(1)))
    fitted_by = "known" if known and kind != "paper" else "integrated" if few else kind
    if few and not known:
        described = integrated_population(bins, law, nodes, fitted_by=fitted_by)
    else:
        described = plug_in_population(
            bins, law, fitted, noise=noise, fitted_by=fitted_by, known=known or kind == "point"
        )
    if kind == "point":
        described = replace(described, kind="point", fitted_by="likelihood")
    return GaussianFit(
        bins=bins,
        law=law,
        fitted=fitted,
        nodes=nodes,
        rule=rule,
        few=few,
        population=described,
    )


def _with_coefficients(
    gaussian: GaussianFit, kind: str, level: float, *, known: bool
) -> GaussianFit:
    """The same fit, whose population names the regression on covariates, if there is one."""
    bins, law, fitted = gaussian.bins, gaussian.law, gaussian.fitted
    if bins.covariates is None:
        return gaussian
    share = np.nan
    if not known and kind != "point":
        share = explained(bins, law, fitted, moments=kind == "moments")
    if gaussian.few:
        found = integrated_coefficients(bins, law, gaussian.nodes, level=level, r_squared=share)
    else:
        found = coefficients_of(bins, law, fitted, level=level, r_squared=share)
    return replace(gaussian, population=replace(gaussian.population, coefficients=found))


def _rows_of(
    gaussian: GaussianFit, statistics: Means, raw: np.ndarray, *, level: float, robust: bool
) -> Estimates:
    """The estimates of all groups, with intervals and expected gains."""
    bins, nodes, rule = gaussian.bins, gaussian.nodes, gaussian.rule
    spread = spread_about(nodes, rule)
    half = None
    if robust:
        half = robust_half_widths(
            bins, gaussian.law, nodes, gaussian.fitted, rule, raw, level=level
        )
    score = normal_score(level)
    rows = apply_rule(bins, gaussian.law, raw, rule, spread, score=score, half=half)
    if gaussian.few and not robust:
        rows = _with_quantiles(gaussian, rows, raw, level)
    over_raw, over_pooled = gains(bins, gaussian.law, nodes, rule)
    collapsed = statistics.count is not None
    shape = np.shape(statistics.mean)
    return Estimates(
        n=np.asarray(statistics.n),
        raw=_without_empty(bins, raw).reshape(shape),
        personal=rows.personal.reshape(shape),
        weight=rows.weight,
        scale=rows.scale.reshape(shape),
        lower=rows.lower.reshape(shape),
        upper=rows.upper.reshape(shape),
        level=level,
        population=gaussian.population,
        gain_over_raw=over_raw,
        gain_over_pooled=over_pooled,
        count=statistics.count,
        lookup=lookup_of(bins, gaussian.law, rule, spread, score=score) if collapsed else None,
    )


def _with_quantiles(
    gaussian: GaussianFit, rows: MeanRows, raw: np.ndarray, level: float
) -> MeanRows:
    mixture = mixture_of(gaussian.bins, gaussian.law, gaussian.nodes, raw)
    lower, upper = (mixture.quantile((1 + side * level) / 2) for side in (-1, 1))
    return replace(rows, lower=lower, upper=upper)


def _without_empty(bins: Bins, raw: np.ndarray) -> np.ndarray:
    """Raw means, NaN for groups without rows."""
    empty = bins.place == bins.num_bins
    return np.where(empty[:, None], np.nan, raw) if empty.any() else raw


def _chance(
    gaussian: GaussianFit, estimates: Estimates, raw: np.ndarray, threshold: float
) -> np.ndarray:
    """P(theta_i > threshold) under the posterior that the intervals come from."""
    if gaussian.few:
        mixture = mixture_of(gaussian.bins, gaussian.law, gaussian.nodes, raw)
        return mixture.above(threshold).reshape(estimates.personal.shape)
    from scipy.special import ndtr

    return ndtr((estimates.personal - threshold) / estimates.scale)
