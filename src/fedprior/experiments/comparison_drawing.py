"""The comparison as a picture: the clients' scores of every method, one panel per setting."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedprior.core.files import write_atomically
from fedprior.experiments.comparison import Part
from fedprior.experiments.comparison_report import OURS
from fedprior.experiments.comparison_settings import Setting
from fedprior.reporting.figures import side_by_side

_COLORS = {OURS: "#0072B2", "adaped": "#D55E00"}  # told apart without red and green
_WHISKERS = (5, 95)  # percent of the clients
_LETTERS = 38  # of a title, in a line


def draw(parts: Sequence[Part], settings: Sequence[Setting], file: Path) -> None:
    """Half of a method's clients lie in its box, nine tenths between its whiskers; dot: the mean.

    Clients of all seeds are one distribution. The best method stands at the top; one that is far
    below the others is a figure at the left edge.
    """
    shown = [
        (setting, own)
        for setting in settings
        if (own := [part for part in parts if part.setting == setting.name])
    ]
    tallest = max(len(own) for _, own in shown)
    figure, axes = side_by_side(len(shown), height=1.2 + 0.3 * tallest)
    for place, (setting, own) in zip(axes, shown, strict=True):
        own = sorted(own, key=lambda part: float(part.means.mean()))
        values = [100 * part.clients[~np.isnan(part.clients)] for part in own]
        boxes = place.boxplot(
            values, orientation="horizontal", whis=_WHISKERS, showfliers=False, patch_artist=True
        )
        for part, box in zip(own, boxes["boxes"], strict=True):
            box.set(facecolor=_COLORS.get(part.method, "0.8"), alpha=0.6)
        for line in boxes["medians"]:
            line.set_color("0.2")
        means = [100 * float(part.means.mean()) for part in own]
        place.plot(means, range(1, len(own) + 1), "o", color="black", markersize=3)
        place.set_yticks(range(1, len(own) + 1), [part.method for part in own])
        edge = _left(values)
        place.set_xlim(edge, 100 + (100 - edge) / 40)
        for height, (mean, scores) in enumerate(zip(means, values, strict=True), 1):
            if np.percentile(scores, _WHISKERS[0]) < edge:  # the whisker goes on
                place.plot(edge, height, "<", color="0.2", markersize=4, clip_on=False)
            if mean < edge:
                place.text(edge, height, f"  {mean:.1f}", va="center", fontsize="small")
        place.set_xlabel("test accuracy of a client (%)")
        place.set_title(textwrap.fill(setting.title, _LETTERS), fontsize="medium")
        place.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format="png")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, drawn.getvalue())


def _left(values: Sequence[np.ndarray]) -> float:
    """Where a panel begins: at the lowest whisker, if most others come near it."""
    ends = [100 - float(np.percentile(each, _WHISKERS[0])) for each in values]
    return max(0.0, 99.5 - min(max(ends), 3 * float(np.median(ends))))
