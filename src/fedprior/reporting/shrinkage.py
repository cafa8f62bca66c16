"""The shrinkage plot: raw and personal estimates with intervals, and the population's density.

Up to 60 groups are shown as rows; more groups as a scatter plot of raw against personal. A
meta-analysis has a funnel beside the rows: the effects against their standard errors.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.estimation.intervals import normal_score
from fedprior.estimation.result import Estimates
from fedprior.reporting.figures import BLUE, GRAY, GREEN, ORANGE, evenly_spaced, picture, short

Names = Callable[[Sequence[int]], list[str]]

MOST_ROWS = 60
MOST_POINTS = 4_000  # more points would only overlap
MOST_INTERVALS = 40
_MEAN_LINE: dict[str, Any] = {"color": GREEN, "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 1}


def draw_shrinkage(estimates: Estimates, names: Names, path: Path) -> Path:
    """Draws the picture into a file beside `path`, which is returned to be renamed to it."""
    there = np.flatnonzero(estimates.n > 0)

    def draw(figure: Any) -> None:
        if len(there) <= MOST_ROWS:
            _rows(figure, estimates, there, names)
        else:
            _cloud(figure, estimates, there)

    return picture("estimate", path, draw)


def _rows(figure: Any, estimates: Estimates, there: np.ndarray, names: Names) -> None:
    """One row per group, sorted by personal estimate, below the population's density."""
    order = there[np.argsort(estimates.personal[there], kind="stable")]
    height = 0.2 * max(len(order), 6)
    wide = estimates.meta is not None
    layout = [["body", "funnel"][: 1 + wide]]
    parts: dict[str, Any] = {"width_ratios": [3, 2][: 1 + wide]}
    if _has_margin(estimates):
        layout.insert(0, ["top", "."][: 1 + wide])
        parts["height_ratios"] = [1, height]
    figure.set_size_inches(11 if wide else 7, height + 0.9 + len(layout) - 1)
    axes = figure.subplot_mosaic(layout, gridspec_kw=parts)
    body = axes["body"]
    if "top" in axes:
        axes["top"].sharex(body)
        _margin(axes["top"], estimates, upright=False)
        axes["top"].tick_params(labelbottom=False)
    single = np.ndim(estimates.population.mean) == 0  # shares have a mean for each category
    for part in (axes[name] for name in ("top", "body") if single and name in axes):
        part.axvline(float(estimates.population.mean), **_MEAN_LINE)
    if wide:
        _funnel(axes["funnel"], estimates, there)
    _draw_rows(body, estimates, order)
    body.set_yticks(np.arange(len(order)), [short(name) for name in names(order.tolist())])
    body.set_ylim(-0.7, len(order) - 0.3)
    body.tick_params(axis="y", length=0)
    body.grid(axis="x", color="0.92", linewidth=0.6)
    body.set_axisbelow(True)
    body.set_xlabel("estimate")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)


def _draw_rows(body: Any, estimates: Estimates, order: np.ndarray) -> None:
    """An open circle for raw, an arrow to a filled one for personal, on a band for the interval."""
    place = np.arange(len(order))
    raw, personal = estimates.raw[order], estimates.personal[order]
    low, high = estimates.lower[order], estimates.upper[order]
    level = f"{100 * estimates.level:g}% interval"
    dots = {"linestyle": "", "marker": "o", "markersize": 5}
    body.plot(raw, place, color="white", markeredgecolor=ORANGE, zorder=4, label="raw", **dots)
    body.plot(personal, place, color=BLUE, zorder=5, label="personal", **dots)
    body.hlines(place, low, high, color=BLUE, alpha=0.25, linewidth=5, zorder=2, label=level)
    span = max(raw.max(), high.max()) - min(raw.min(), low.min())
    style = {"arrowstyle": "-|>", "color": GRAY, "linewidth": 0.8, "mutation_scale": 7}
    for row in np.flatnonzero(np.abs(raw - personal) > 0.03 * span):  # less has no room for one
        ends = {"xy": (personal[row], row), "xytext": (raw[row], row)}
        body.annotate("", **ends, arrowprops={**style, "shrinkA": 3, "shrinkB": 3}, zorder=3)


def _funnel(axes: Any, estimates: Estimates, there: np.ndarray) -> None:
    """Effects against standard errors, precise ones on top, and where noise alone puts 95%.

    With covariates the effects are relative to the regression. The dashed lines add the variance
    between groups. An uneven funnel suggests that small studies are missing.
    """
    meta = estimates.meta
    assert meta is not None
    errors = meta.study_errors[there]
    middle = 0.0 if meta.coefficients is not None else meta.mean
    shift = meta.study_means[there] if meta.coefficients is not None else 0.0
    reach = normal_score(meta.level)
    grid = np.linspace(0, 1.08 * float(errors.max()), 100)
    noise, both = reach * grid, reach * np.sqrt(grid**2 + meta.variance)
    axes.fill_betweenx(grid, middle - noise, middle + noise, color="0.93", linewidth=0, zorder=0)
    for side in (-1, 1):
        style = {"color": GRAY, "linewidth": 0.8, "linestyle": (0, (4, 3))}
        axes.plot(middle + side * both, grid, zorder=1, **style)
    axes.axvline(middle, **_MEAN_LINE)
    dots = {"linestyle": "", "marker": "o", "markersize": 5, "color": "white"}
    axes.plot(estimates.raw[there] - shift, errors, markeredgecolor=ORANGE, zorder=4, **dots)
    axes.set_ylim(float(grid[-1]), 0)
    axes.set_ylabel("standard error")
    regressed = meta.coefficients is not None
    axes.set_xlabel("raw value about the regression" if regressed else "raw value")


def _cloud(figure: Any, estimates: Estimates, there: np.ndarray) -> None:
    """Raw against personal, colored by weight, for groups evenly chosen by their raw value."""
    figure.set_size_inches(7, 4.8)
    if _has_margin(estimates):
        body, side = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": [5, 1]})
        _margin(side, estimates, upright=True)
        side.axhline(float(np.mean(estimates.population.mean)), **_MEAN_LINE)
    else:
        body = figure.subplots()
    shown = evenly_spaced(there[np.argsort(estimates.raw[there], kind="stable")], MOST_POINTS)
    raw, personal = estimates.raw[shown], estimates.personal[shown]
    few = evenly_spaced(shown[np.unique(raw, return_index=True)[1]], MOST_INTERVALS)
    low, high = estimates.lower[few], estimates.upper[few]
    level = f"{100 * estimates.level:g}% interval"
    body.vlines(estimates.raw[few], low, high, color=BLUE, alpha=0.3, linewidth=1.2, label=level)
    middle = float(np.mean(raw))
    body.axline((middle, middle), slope=1, color=GRAY, linewidth=0.8, label="personal = raw")
    if np.ndim(estimates.population.mean) == 0:
        mean = float(estimates.population.mean)
        body.axhline(mean, label="population mean", **_MEAN_LINE)
    colors = {"c": estimates.weight[shown], "cmap": "cividis", "vmin": 0, "vmax": 1}
    size = 9 if len(shown) > 500 else 18
    points = body.scatter(raw, personal, s=size, linewidths=0, zorder=3, rasterized=True, **colors)
    body.set_xlabel("raw value")
    body.set_ylabel("personal estimate")
    body.grid(color="0.92", linewidth=0.6)
    body.set_axisbelow(True)
    number = f"{len(shown):,} of {len(there):,}" if len(shown) < len(there) else f"{len(there):,}"
    what = "shares" if estimates.population.kind == "dirichlet" else "groups"
    body.set_title(f"{number} {what}", loc="left", fontsize=9)
    figure.legend(*body.get_legend_handles_labels(), loc="outside upper center", ncols=3,
                  frameon=False)  # fmt: skip
    figure.colorbar(points, ax=figure.axes, label="weight on own data", fraction=0.05, pad=0.02)


def _has_margin(estimates: Estimates) -> bool:
    """Whether the population has a density or atoms that can be drawn."""
    population = estimates.population
    return population.atoms is not None or population.density(np.zeros(1)) is not None


def _margin(axes: Any, estimates: Estimates, *, upright: bool) -> None:
    """Draw the population's density or its atoms, along y if `upright`."""
    population = estimates.population
    axes.set_xticks([]) if upright else axes.set_yticks([])
    axes.spines["bottom" if upright else "left"].set_visible(False)
    smooth = population.spread is not None
    if population.atoms is not None and population.weights is not None and not smooth:
        where, weight = np.ravel(population.atoms), np.ravel(population.weights)
        seen = weight > 1e-4
        stems = axes.hlines if upright else axes.vlines
        stems(where[seen], 0, weight[seen], color=GREEN, linewidth=1.6)
    else:
        points = _support(estimates)
        curve = np.asarray(population.density(points))
        curve = np.where(np.isfinite(curve), curve, np.nan)
        fill = axes.fill_betweenx if upright else axes.fill_between
        fill(points, 0, curve, color=GREEN, alpha=0.25, linewidth=0)
        axes.plot(*((curve, points) if upright else (points, curve)), color=GREEN, linewidth=1.2)
    (axes.set_xlim if upright else axes.set_ylim)(0, None)
    (axes.set_xlabel if upright else axes.set_ylabel)("population")


def _support(estimates: Estimates) -> np.ndarray:
    """The range of the density: the estimates and 3.5 standard deviations about the mean."""
    there, population = estimates.n > 0, estimates.population
    mean, reach = float(np.mean(population.mean)), 3.5 * population.heterogeneity
    low = min(mean - reach, float(estimates.lower[there].min()))
    high = max(mean + reach, float(estimates.upper[there].max()))
    if "beta" in (population.kind, population.member):
        low, high = max(low, 1e-6), min(high, 1 - 1e-6)
    if population.kind == "gamma":
        low = max(low, 1e-6 * mean)
    return np.linspace(low, high, 400)
