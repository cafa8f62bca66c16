"""Names beside points of a picture: none lies on another, on a point or outside the axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_AWAY = (5.0, 12.0, 22.0, 34.0, 48.0)  # points between a dot and its name, nearest first
_TURNS = np.pi / 4 * np.array([1, 7, 3, 5, 0, 4, 2, 6])  # first to the upper right
_SIZE = 7  # of names, in points
_DOT = 5.0  # pixels kept free around a point, at 100 dpi
_LEADER = 10.0  # points beyond which a line leads to the name


def place_names(
    axes: Any, points: np.ndarray, names: Sequence[str], *, others: np.ndarray
) -> list[Any]:
    """Write each name near its point; a name for which there is no room is left out.

    `others` are further points that names must not cover. Call it when the axes are final.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # the layout decides where points are
    unit = figure.dpi / 72
    frame = axes.get_window_extent()
    dots = axes.transData.transform(np.vstack([points, others]))
    taken = [np.array([x - _DOT, y - _DOT, x + _DOT, y + _DOT]) for x, y in dots]
    drawn = []
    for name, spot in sorted(zip(names, dots, strict=False), key=lambda pair: -pair[1][1]):
        text = figure.text(0, 0, name, fontsize=_SIZE)
        extent = text.get_window_extent()
        text.remove()
        for offset, box in _places(spot, extent.width, extent.height, unit):
            if _fits(box, frame) and not any(_meet(box, each) for each in taken):
                taken.append(box)
                drawn.append(_write(axes, name, spot, offset, box))
                break
    return drawn


def _places(spot: np.ndarray, width: float, height: float, unit: float) -> Any:
    """Offsets in points and the boxes that a name takes there, (x0, y0, x1, y1) in pixels."""
    for away in _AWAY:
        for turn in _TURNS:
            step = away * np.array([np.cos(turn), np.sin(turn)])
            center = spot + unit * step + 0.5 * np.sign(step.round(6)) * (width, height)
            half = 0.5 * np.array([width, height])
            yield away, np.concatenate([center - half, center + half])


def _write(axes: Any, name: str, spot: np.ndarray, away: float, box: np.ndarray) -> Any:
    at = axes.transData.inverted().transform(spot)
    middle = axes.transAxes.inverted().transform((box[:2] + box[2:]) / 2)
    line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
    return axes.annotate(
        name, at, xytext=middle, textcoords="axes fraction", ha="center", va="center",
        fontsize=_SIZE, color="0.25", arrowprops=line if away > _LEADER else None, zorder=7,
    )  # fmt: skip


def _fits(box: np.ndarray, frame: Any) -> bool:
    inside = box[0] >= frame.x0 and box[1] >= frame.y0 and box[2] <= frame.x1
    return bool(inside and box[3] <= frame.y1)


def _meet(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one[:2] < other[2:]).all() and (other[:2] < one[2:]).all())
