"""The shrinkage plot of regressions: the separate and the personal fit of each group.

Two coefficients are plotted against each other with ellipses of the population; a single one as
separate against personal.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedprior.data.writing import writing
from fedprior.regression.face.analysis import Analysis
from fedprior.reporting.figures import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    STYLE,
    evenly_spaced,
    save_figure,
)

MOST_GROUPS = 200  # more arrows would only overlap
_FEW = 20  # up to so many groups are labeled
_KEPT = 0.02  # share of the separate fits at each end that may lie outside the plot


def draw_coefficients(found: Analysis, path: Path) -> Path:
    """Draws the picture into a file beside `path`, which is returned to be renamed to it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    aside = path.with_name(path.name + ".tmp")
    kind = path.suffix[1:]
    with writing(path, "--plot", owner="regress"), mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 5.2), layout="constrained")
        axes = figure.subplots()
        if len(found.names) > 1:
            _plane(axes, found)
        else:
            _line(axes, found)
        axes.grid(color="0.92", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
        save_figure(figure, aside, kind)
    return aside


def _plane(axes: Any, found: Analysis) -> None:
    """Arrows from the separate fit of (coefficient 0, coefficient 1) to the personal one."""
    shown = evenly_spaced(np.arange(len(found.levels)), MOST_GROUPS)
    alone = found.separate()[shown][:, :2]
    personal = found.fit.theta[shown][:, :2]
    fitted = np.isfinite(alone).all(axis=1)
    _limits(axes, alone[fitted], found)
    _ellipses(axes, found)
    step = personal - alone
    axes.quiver(
        *alone[fitted].T, *step[fitted].T, angles="xy", scale_units="xy", scale=1, color=GRAY,
        alpha=0.5, width=0.0016, headwidth=5, zorder=2,
    )  # fmt: skip
    dots = {"linestyle": "", "marker": "o", "markersize": 3.5}
    axes.plot(
        *alone[fitted].T, color="white", markeredgecolor=ORANGE, zorder=3, label="separate fit",
        **dots,
    )  # fmt: skip
    axes.plot(*personal.T, color=BLUE, zorder=4, label="personal", **dots)
    if len(shown) <= _FEW:
        for name, at in zip(found.levels[shown].tolist(), personal, strict=True):
            offset: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
            axes.annotate(str(name)[:18], at, fontsize=7, color="0.3", clip_on=True, **offset)
    axes.set_xlabel(found.names[0])
    axes.set_ylabel(found.names[1])
    few = int((~fitted).sum())
    left = f"; {few:,} without a fit of their own" if few else ""
    axes.set_title(f"{_counted(found, shown)}{left}", loc="left", fontsize=9)


def _line(axes: Any, found: Analysis) -> None:
    """The separate fit against the personal one, with its standard error."""
    shown = evenly_spaced(np.argsort(found.fit.theta[:, 0], kind="stable"), MOST_GROUPS)
    alone, personal = found.separate()[shown, 0], found.fit.theta[shown, 0]
    error = found.fit.errors[shown, 0]
    axes.errorbar(
        alone, personal, yerr=error, fmt="o", color=BLUE, ecolor=BLUE, elinewidth=0.8, alpha=0.7,
        markersize=3.5, label="personal and its standard error",
    )  # fmt: skip
    mean = float(found.fit.population.mean[0])
    axes.axline((mean, mean), slope=1, color=GRAY, linewidth=0.8, label="personal = separate")
    axes.axhline(mean, color=GREEN, linewidth=1, linestyle=(0, (4, 3)), label="population mean")
    axes.set_xlabel(f"{found.names[0]}, separate fit")
    axes.set_ylabel(f"{found.names[0]}, personal")
    axes.set_title(_counted(found, shown), loc="left", fontsize=9)


def _ellipses(axes: Any, found: Analysis) -> None:
    """One and two standard deviations of every component about its mean."""
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for number, each in enumerate(found.fit.population.components):
        values, vectors = np.linalg.eigh(each.covariance[:2, :2])
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        label = "population mean, 1 and 2 sd" if number == 0 else None
        axes.plot(*each.mean[:2], marker="+", color=GREEN, markersize=11, linestyle="", zorder=5)
        for reach in (1, 2):
            curve = each.mean[:2, None] + reach * root @ circle
            axes.plot(*curve, color=GREEN, linewidth=1, label=label if reach == 1 else None)


def _limits(axes: Any, alone: np.ndarray, found: Analysis) -> None:
    """Include all personal fits, the ellipses, and nearly all separate fits, except outliers."""
    population = found.fit.population
    reach = 2.2 * np.sqrt(np.diag(population.covariance))[:2]
    inside = np.vstack([found.fit.theta[:, :2], population.mean[:2] - reach])
    inside = np.vstack([inside, population.mean[:2] + reach])
    if len(alone):
        inside = np.vstack([inside, np.quantile(alone, [_KEPT, 1 - _KEPT], axis=0)])
    low, high = inside.min(axis=0), inside.max(axis=0)
    room = 0.05 * np.where(high > low, high - low, 1.0)
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])


def _counted(found: Analysis, shown: np.ndarray) -> str:
    number = len(found.levels)
    return f"{len(shown):,} of {number:,} groups" if len(shown) < number else f"{number:,} groups"
