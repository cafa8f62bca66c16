"""The shrinkage plot of regressions: the separate and the personal fit of each group.

Two coefficients are plotted against each other with ellipses of the population; a single one as
separate against personal. In a mixture, groups have the color and the marker of their kind.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedprior.regression.face.analysis import Analysis
from fedprior.reporting.figures import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    Look,
    evenly_spaced,
    looks,
    picture,
    short,
)
from fedprior.reporting.labels import place_names

MOST_GROUPS = 200  # more arrows would only overlap
_FEW = 20  # up to so many groups are named
_KEPT = 0.02  # share of the separate fits at each end that may lie outside the plot
_FAR = 1.5  # times the span of all else: how far a separate fit of few groups may lie outside it
_AXIS = 60  # letters of an axis
_LEGEND = 110  # letters of a legend in one line


def draw_coefficients(found: Analysis, path: Path) -> Path:
    """Draws the picture into a file beside `path`, which is returned to be renamed to it."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(7, 5.2)
        axes = figure.subplots()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.6g}")
        axes.grid(color="0.92", linewidth=0.6)
        axes.set_axisbelow(True)
        (_plane if len(found.names) > 1 else _line)(axes, found)

    return picture("regress", path, draw)


def _kinds(found: Analysis, shown: np.ndarray) -> list[tuple[str, Look, np.ndarray]]:
    """For each kind of groups its name, its look and which of `shown` are probably of it."""
    components = found.fit.population.components
    if len(components) == 1:
        return [("personal", Look(BLUE, "o", "-"), np.ones(len(shown), bool))]
    likeliest = found.fit.responsibilities[shown].argmax(axis=1)
    names = [
        f"personal, component {number} ({100 * each.share:.0f}%)"
        for number, each in enumerate(components)
    ]
    own = looks(names)
    return [(name, own[name], likeliest == number) for number, name in enumerate(names)]


def _plane(axes: Any, found: Analysis) -> None:
    """Arrows from the separate fit of (coefficient 0, coefficient 1) to the personal one."""
    shown = evenly_spaced(np.arange(len(found.levels)), MOST_GROUPS)
    alone = found.separate()[shown][:, :2]
    personal = found.fit.theta[shown][:, :2]
    fitted = np.isfinite(alone).all(axis=1)
    _limits(axes, alone[fitted], found)
    kinds = _kinds(found, shown)
    _ellipses(axes, found, [GREEN] if len(kinds) == 1 else [look.color for _, look, _ in kinds])
    step = personal - alone
    axes.quiver(
        *alone[fitted].T, *step[fitted].T, angles="xy", scale_units="xy", scale=1, color=GRAY,
        alpha=0.5, width=0.0016, headwidth=5, zorder=2,
    )  # fmt: skip
    dots = {"linestyle": "", "marker": "o", "markersize": 3.5, "color": "white"}
    axes.plot(*alone[fitted].T, markeredgecolor=ORANGE, zorder=3, label="separate fit", **dots)
    size = 3.5 if len(kinds) == 1 else 4.5
    if found.fit.population.kind == "discrete":
        size = 8.0  # all groups of a kind are at one place
    for name, look, own in kinds:
        mark = {"linestyle": "", "marker": look.marker, "markersize": size}
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.4} if len(kinds) > 1 else {}
        axes.plot(*personal[own].T, color=look.color, zorder=6, label=name, **mark, **edge)
    axes.set_xlabel(short(found.names[0], _AXIS))
    axes.set_ylabel(short(found.names[1], _AXIS))
    few = int((~fitted).sum())
    left = f"; {few:,} without a fit of their own" if few else ""
    outside = int((~_inside(axes, alone[fitted])).sum())
    left += f"; {outside:,} separate fit{'s' * (outside != 1)} outside the plot" if outside else ""
    _finish(axes, f"{_counted(found, shown)}{left}")
    if len(shown) <= _FEW:
        names = [short(str(name), 24) for name in found.levels[shown].tolist()]
        place_names(axes, personal, names, others=alone[fitted & _inside(axes, alone)])


def _inside(axes: Any, points: np.ndarray) -> np.ndarray:
    low, high = (np.array(each) for each in zip(axes.get_xlim(), axes.get_ylim(), strict=True))
    return np.asarray(((points >= low) & (points <= high)).all(axis=1))


def _finish(axes: Any, title: str) -> None:
    """The title, and the legend above it, which the layout counts before names are placed."""
    axes.set_title(title, loc="left", fontsize=9)
    handles, names = axes.get_legend_handles_labels()
    short_enough = sum(len(name) + 8 for name in names) <= _LEGEND
    columns = {"ncols": len(names) if short_enough else 3, "frameon": False, "fontsize": 8}
    axes.figure.legend(handles, names, loc="outside upper center", **columns)


def _line(axes: Any, found: Analysis) -> None:
    """The separate fit against the personal one, with its standard error."""
    shown = evenly_spaced(np.argsort(found.fit.theta[:, 0], kind="stable"), MOST_GROUPS)
    alone, personal = found.separate()[shown, 0], found.fit.theta[shown, 0]
    error = found.fit.errors[shown, 0]
    kinds = _kinds(found, shown)
    for name, look, own in kinds:
        label = "personal and its standard error" if len(kinds) == 1 else name
        axes.errorbar(
            alone[own], personal[own], yerr=error[own], fmt=look.marker, color=look.color,
            ecolor=look.color, elinewidth=0.8, alpha=0.7, markersize=3.5, label=label,
        )  # fmt: skip
    mean = float(found.fit.population.mean[0])
    axes.axline((mean, mean), slope=1, color=GRAY, linewidth=0.8, label="personal = separate")
    axes.axhline(mean, color=GREEN, linewidth=1, linestyle=(0, (4, 3)), label="population mean")
    axes.set_xlabel(short(f"{found.names[0]}, separate fit", _AXIS))
    axes.set_ylabel(short(f"{found.names[0]}, personal", _AXIS))
    _finish(axes, _counted(found, shown))


def _ellipses(axes: Any, found: Analysis, colors: list[str]) -> None:
    """One and two standard deviations of every component about its mean."""
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for number, (each, color) in enumerate(zip(_components(found), colors, strict=True)):
        mean, covariance = each
        if not covariance.any():  # of a discrete population
            continue
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        label = "population mean, 1 and 2 sd" if number == 0 else None
        axes.plot(*mean, marker="+", color=color, markersize=14, linestyle="", zorder=5)
        for reach in (1, 2):
            curve = mean[:, None] + reach * root @ circle
            axes.plot(*curve, color=color, linewidth=1, label=label if reach == 1 else None)


def _components(found: Analysis) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and covariance of the first two coefficients in each component."""
    return [(each.mean[:2], each.covariance[:2, :2]) for each in found.fit.population.components]


def _limits(axes: Any, alone: np.ndarray, found: Analysis) -> None:
    """Include all personal fits, the ellipses, and nearly all separate fits, except outliers."""
    ends = [
        mean + side * 2.2 * np.sqrt(np.diag(covariance))
        for mean, covariance in _components(found)
        for side in (-1, 1)
    ]
    inside = np.vstack([found.fit.theta[:, :2], *ends])
    if len(found.levels) <= _FEW:
        span = np.ptp(inside, axis=0)
        low, high = inside.min(axis=0) - _FAR * span, inside.max(axis=0) + _FAR * span
        inside = np.vstack([inside, alone[((alone >= low) & (alone <= high)).all(axis=1)]])
    elif len(alone):
        inside = np.vstack([inside, np.quantile(alone, [_KEPT, 1 - _KEPT], axis=0)])
    low, high = inside.min(axis=0), inside.max(axis=0)
    room = 0.05 * np.where(high > low, high - low, 1.0)
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])


def _counted(found: Analysis, shown: np.ndarray) -> str:
    number = len(found.levels)
    return f"{len(shown):,} of {number:,} groups" if len(shown) < number else f"{number:,} groups"
