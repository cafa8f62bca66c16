"""What the experiments' pictures share: matplotlib, and panels side by side."""

from collections.abc import Sequence
from typing import Any

_WIDTH, _HEIGHT = 4.4, 4.6  # inches of a panel
_ACROSS = 3  # panels in a line


def check_drawing(owner: str) -> None:
    """Raise unless matplotlib, which draws the figures, is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"{owner}: figures need matplotlib. Install it with: pip install 'fedprior[plot]'"
        ) from error


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
