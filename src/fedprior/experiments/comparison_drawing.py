"""The comparison as a picture: the clients' scores of every method, a panel a setting."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedprior.core.files import write_atomically
from fedprior.experiments.comparison import Part
from fedprior.experiments.comparison_report import OURS
from fedprior.experiments.comparison_settings import Setting
from fedprior.experiments.dp_drawing import side_by_side

_COLORS = {OURS: "#0072B2", "adaped": "#D55E00"}  # told apart without red and green
_LOWEST = 2  # percent of the clients' scores that may lie left of a panel


def draw(parts: Sequence[Part], settings: Sequence[Setting], file: Path) -> None:
    """Half of a method's clients lie in its box, nine tenths between its whiskers; dot: the mean.

    Clients of all seeds are one distribution. The best method stands at the top.
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
            values, orientation="horizontal", whis=(5, 95), showfliers=False, patch_artist=True
        )
        for part, box in zip(own, boxes["boxes"], strict=True):
            box.set(facecolor=_COLORS.get(part.method, "0.8"), alpha=0.6)
        for line in boxes["medians"]:
            line.set_color("0.2")
        means = [100 * float(part.means.mean()) for part in own]
        place.plot(means, range(1, len(own) + 1), "o", color="black", markersize=3)
        place.set_yticks(range(1, len(own) + 1), [part.method for part in own])
        low = min(float(np.percentile(each, _LOWEST)) for each in values)
        place.set_xlim(max(0.0, low - 1), 100.5)
        place.set_xlabel("test accuracy of a client (%)")
        place.set_title(setting.title, fontsize="medium")
        place.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format="png")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, drawn.getvalue())
