"""The comparison as a picture: the clients' scores of every method, one panel per setting."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fedprior.core.files import write_atomically
from fedprior.experiments.comparison import Part
from fedprior.experiments.comparison_report import OURS
from fedprior.experiments.comparison_settings import Setting
from fedprior.reporting.client_drawing import draw_boxes
from fedprior.reporting.figures import BLUE, ORANGE, side_by_side

_COLORS = {OURS: BLUE, "adaped": ORANGE}
_LETTERS = 38  # of a title, in a line


def draw(parts: Sequence[Part], settings: Sequence[Setting], file: Path) -> None:
    """A panel of boxes per setting; clients of all seeds are one distribution."""
    shown = [
        (setting, own)
        for setting in settings
        if (own := [part for part in parts if part.setting == setting.name])
    ]
    tallest = max(len(own) for _, own in shown)
    figure, axes = side_by_side(len(shown), height=1.2 + 0.3 * tallest)
    for place, (setting, own) in zip(axes, shown, strict=True):
        scores = {part.method: 100 * part.clients.ravel() for part in own}
        draw_boxes(place, scores, _COLORS, highest=100)
        place.set_xlabel("test accuracy of a client (%)")
        place.set_title(textwrap.fill(setting.title, _LETTERS), fontsize="medium")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format="png")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, drawn.getvalue())
