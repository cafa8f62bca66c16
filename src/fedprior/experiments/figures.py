"""What the experiments' pictures share: matplotlib, and panels side by side."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedprior.core import check

_SUFFIXES = (".png", ".pdf", ".svg")
_WIDTH, _HEIGHT = 4.4, 4.6  # inches of a panel
_ACROSS = 3  # panels in a line


def check_drawing(owner: str, what: str = "figures need") -> None:
    """Raise unless matplotlib, which draws the figures, is installed."""
    sentence = f"{what} matplotlib. Install it with: pip install 'fedprior[plot]'"
    check.expect(find_spec("matplotlib") is not None, owner, sentence)


def check_plot(owner: str, path: Path) -> None:
    """A figure can be drawn to `path`: suffix known, folder there, matplotlib installed."""
    rule = "a .png, .pdf or .svg file"
    check.require(path.suffix in _SUFFIXES, owner, "--plot", rule, str(path))
    folder = path.resolve().parent
    check.require(folder.is_dir(), owner, "--plot", "in a folder that exists", str(path))
    check_drawing(owner, "--plot needs")


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
