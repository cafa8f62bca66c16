"""What all pictures share: colors, looks of lines, panels, labels at the ends of lines, files."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.data.writing import writing

# Okabe and Ito's palette, which the color-blind can tell apart.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
AMBER, SKY, PINK, BLACK = "#E69F00", "#56B4E9", "#CC79A7", "#333333"

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "fedprior",
    "text.parse_math": False,  # a $ in a name is a dollar
}
_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # for reproducible files
_WIDTH, _HEIGHT = 4.4, 4.6  # inches of a panel
_ACROSS = 3  # panels in a line
_NEAR = 0.8  # share of the axes beyond which the end of a line is near the right
_SIZE = 8  # of names of lines, in points
_LINE = 1.25  # height of a line of text, in font sizes


class Look(NamedTuple):
    """How a line is told from others: in print and by the color-blind, too."""

    color: str
    marker: str
    dash: Any

    def line(self) -> dict[str, Any]:
        """Arguments of `plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dash}


_COLORS = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK)
_MARKERS = "osD^vPX*<>"
_DASHES = ("-", (0, (5, 2)), (0, (5, 2, 1, 2)), (0, (1, 1.5)))


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name: no two have the same color, marker and dashes."""
    return {
        name: Look(_COLORS[i % len(_COLORS)], _MARKERS[i % len(_MARKERS)], _DASHES[i % 4])
        for i, name in enumerate(names)
    }


def check_drawing(owner: str, what: str = "figures need") -> None:
    """Raise unless matplotlib, which draws the figures, is installed."""
    sentence = f"{what} matplotlib. Install it with: pip install 'fedprior[plot]'"
    check.expect(importlib.util.find_spec("matplotlib") is not None, owner, sentence)


def side_by_side(count: int, *, height: float = _HEIGHT) -> tuple[Any, Sequence[Any]]:
    """A figure of `count` panels side by side, three at most, in lines `height` inches tall."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines, across = -(-count // _ACROSS), min(count, _ACROSS)
    figure = Figure(figsize=(max(6.4, _WIDTH * across), height * lines), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(lines, across, squeeze=False).ravel()
    for place in places[count:]:
        place.set_visible(False)
    return figure, list(places[:count])


def label_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Name lines at the right of the axes: (x, y, text, color) of each end, none on another.

    A line that ends far from there is named at its end. Call it when all is drawn.
    """
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # final
    to_axes = axes.transData + axes.transAxes.inverted()
    at = {"va": "center", "fontsize": _SIZE, "annotation_clip": False}
    for x, y, text, color in ends:
        if to_axes.transform((x, y))[0] < _NEAR:
            axes.annotate(text, (x, y), (6, 0), textcoords="offset points", color=color, **at)
    ends = [end for end in ends if to_axes.transform(end[:2])[0] >= _NEAR]
    spots = [to_axes.transform(end[:2]) for end in ends]
    inches = axes.figure.get_figheight() * axes.get_position().height
    gap = _LINE * _SIZE / 72 / inches
    heights = spread([float(spot[1]) for spot in spots], gap)
    for (x, y, text, color), height in zip(ends, heights, strict=True):
        leader = {"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 2}
        place = {"xytext": (1.04, height), "textcoords": "axes fraction"}
        axes.annotate(text, (x, y), color=color, arrowprops=leader, **place, **at)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places moved apart as little as needed to be `gap` from each other, order kept.

    >>> spread([0.5, 0.0, 0.5], 0.25)
    [0.375, 0.0, 0.625]
    """
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    # Least squares under an order: pool neighbors that would change places.
    pools: list[list[float]] = []
    for value in np.asarray(places, float)[order] - steps:
        pools.append([float(value)])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    moved = [np.mean(pool) for pool in pools for _ in pool] + steps
    found = np.empty(len(places))
    found[order] = moved
    return [float(each) for each in found]


def picture(owner: str, path: Path, draw: Callable[[Any], None]) -> Path:
    """What `draw` puts on a figure, in a file beside `path`, which is returned to be renamed to it.

    The file's ending says the format.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    aside = path.with_name(path.name + ".tmp")
    with writing(path, "--plot", owner=owner), mpl.rc_context(STYLE):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure = Figure(layout="constrained")
        draw(figure)
        save_figure(figure, aside, path.suffix[1:])
    return aside


def save_figure(figure: Any, aside: Path, kind: str) -> None:
    """Save the figure reproducibly; remove the file if that fails."""
    try:
        figure.savefig(aside, format=kind, dpi=160, metadata=_NO_DATE.get(kind))
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def evenly_spaced(places: np.ndarray, number: int) -> np.ndarray:
    """At most `number` of the places, evenly spaced from the first to the last."""
    if len(places) <= number:
        return places
    return places[np.linspace(0, len(places) - 1, number).round().astype(int)]


def short(name: str, letters: int = 28) -> str:
    """Shorten a long name in the middle, because its end may distinguish it from others."""
    if len(name) <= letters:
        return name
    tail = (letters - 1) * 4 // 9
    return f"{name[: letters - 1 - tail]}…{name[-tail:]}"
