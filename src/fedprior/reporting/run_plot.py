"""Pictures of runs and sweeps: who gains over local, scores by method, scores on the way."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.scores import OWN, Metric
from fedprior.engines.sweep import Sweep
from fedprior.reporting.client_drawing import MOST_NAMED, draw_boxes, draw_gains
from fedprior.reporting.figures import label_ends, looks, picture
from fedprior.reporting.folder import Folder
from fedprior.reporting.record import read_lines
from fedprior.reporting.summary import over_seeds, read_clients
from fedprior.reporting.sweep_drawing import draw_options

_LOCAL = "local"
_POINTS = 20  # validation scores in a curve, where the configuration does not say
Scores = Mapping[str, np.ndarray]  # method -> scores of its clients, all in the same order


def rounds_between(rounds: int) -> int:
    """Rounds between two validation scores of a learning curve.

    >>> rounds_between(200), rounds_between(7)
    (10, 1)
    """
    return max(1, rounds // _POINTS)


def draw_run(folder: Folder, methods: Sequence[str], metric: Metric, path: Path) -> Path:
    """Draws the picture of a run's folder into a file beside `path`, to be renamed to it."""
    names, values = _clients(folder.clients, methods)
    scores = {name: metric.signed(each) for name, each in values.items()}
    history = _history(folder.metrics)
    learning = partial(_learning, history=history, methods=methods, metric=metric)
    return _draw("train", path, names, scores, metric, learning)


def draw_sweep(swept: Mapping[str, Sweep], names: Sequence[str], path: Path) -> Path:
    """Draws the picture of a sweep into a file beside `path`, which is renamed to it.

    Test scores are those of each method's chosen point.
    """
    scores = {name: each.scores.ravel() for name, each in swept.items() if each.scores.size}
    options = list(dict.fromkeys(key for each in swept.values() for key in each.points[0]))
    draws = [
        lambda axes, option=option: draw_options(axes, swept, option, looks(list(swept)))
        for option in options
    ]
    metric = next((each.metric for each in swept.values()), OWN)
    return _draw("sweep", path, list(names), scores, metric, *draws)


def _clients(path: Path, methods: Sequence[str]) -> tuple[list[str], dict[str, np.ndarray]]:
    """The clients' names and their scores by method; one row per seed and client."""
    columns = read_clients(path)
    scores = {name: columns[name.replace("-", "_")] for name in methods}
    return [str(each) for each in columns["client"]], scores


def _history(path: Path) -> dict[str, dict[int, list[float]]]:
    """Validation scores of each method by round, one per seed."""
    found: dict[str, dict[int, list[float]]] = {}
    for entry in read_lines(path):
        if "valid" in entry:
            found.setdefault(entry["method"], {}).setdefault(entry["round"], []).append(
                entry["valid"]
            )
    return found


def _draw(
    owner: str,
    path: Path,
    names: list[str],
    scores: Scores,
    metric: Metric,
    *more: Callable[[Any], None],
) -> Path:
    """Gains at the left where there is local, scores by method, then `more` panels below them."""
    scores = {name: each for name, each in scores.items() if np.isfinite(each).any()}
    names, gains = _gains(names, scores)
    right = [*["boxes"] * bool(scores), *(f"more {place}" for place in range(len(more)))]
    layout: list[Any] = [[*["gains"] * bool(gains), each] for each in right]
    heights = [max(1.5, 0.6 + 0.24 * len(scores)) if each == "boxes" else 3.2 for each in right]
    rows = 0.2 * len(names) + 1.2 if gains and len(names) <= MOST_NAMED else 0.0
    unit = metric.unit

    def draw(figure: Any) -> None:
        figure.set_size_inches(11 if gains else 6.4, max(sum(heights) + 0.6, rows))
        ratios = {"height_ratios": heights, "width_ratios": [1] * len(layout[0])}
        axes = figure.subplot_mosaic(layout, gridspec_kw=ratios)
        if gains:
            draw_gains(axes["gains"], {name: unit * each for name, each in gains.items()}, names)
            label = axes["gains"].set_xlabel if rows else axes["gains"].set_ylabel
            label("gain (points)" if metric.share else "gain")
        if scores:
            colors = {name: look.color for name, look in looks(list(gains)).items()}
            shown = {name: unit * each for name, each in scores.items()}
            best = 0.0 if metric.lower or metric is OWN else unit
            draw_boxes(axes["boxes"], shown, colors, highest=best, lower=metric.lower)
            axes["boxes"].set_xlabel(f"test {metric.label} of a client{_percent(metric)}")
        for place, draw_more in enumerate(more):
            draw_more(axes[f"more {place}"])

    return picture(owner, path, draw)


def _percent(metric: Metric) -> str:
    return " (%)" if metric.share else ""


def _gains(names: list[str], scores: Scores) -> tuple[list[str], dict[str, np.ndarray]]:
    """Each client's gain over local by method, averaged over seeds; none without local."""
    if _LOCAL not in scores or len(scores) < 2:
        return names, {}
    with np.errstate(invalid="ignore"):  # both diverged
        gains = {name: each - scores[_LOCAL] for name, each in scores.items() if name != _LOCAL}
    known = {name: np.where(np.isfinite(each), each, np.nan) for name, each in gains.items()}
    means, clients = over_seeds(known, names)
    return clients.tolist(), means


def _learning(
    axes: Any,
    *,
    history: Mapping[str, Mapping[int, list[float]]],
    methods: Sequence[str],
    metric: Metric,
) -> None:
    """The mean validation value by round; each method is named at the end of its line."""
    own, ends = looks([name for name in methods if name != _LOCAL] + [_LOCAL]), []
    for method, by_round in history.items():
        rounds = sorted(by_round)
        means = [metric.unit * float(np.mean(by_round[each])) for each in rounds]
        axes.plot(rounds, means, markersize=3.5, linewidth=1.3, **own[method].line())
        ends.append((rounds[-1], means[-1], method, own[method].color))
    axes.xaxis.get_major_locator().set_params(integer=True)  # there is no half round
    axes.set_xlabel("round")
    axes.set_ylabel(f"validation {metric.label}{_percent(metric)}")
    axes.grid(color="0.92", linewidth=0.6)
    if ends:
        label_ends(axes, ends)
    else:
        text = "no validation scores on the way:\nset training.evaluate_every"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color="0.4")
        axes.set_xticks([])
        axes.set_yticks([])
