"""Clients' scores as pictures: boxes by method, and each client's gain over training alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedprior.reporting.figures import GRAY, Look, looks, short

_WHISKERS = (5, 95)  # percent of the clients
_PLAIN = "0.8"
MOST_NAMED = 30  # clients that have a row of their own
_MOST_METHODS = 4  # whose points can be told apart in a row


def draw_boxes(
    axes: Any,
    scores: Mapping[str, np.ndarray],
    colors: Mapping[str, str],
    *,
    highest: float,
    lower: bool = False,
) -> None:
    """Half of a method's clients lie in its box, nine tenths between its whiskers; dot: the mean.

    The best method stands at the top; one that is far below the others is a figure at the left
    edge. `highest` is the best possible score. With `lower`, scores are minus what they are shown
    as, and so values grow to the left.
    """
    sign = -1 if lower else 1
    values = {name: each[np.isfinite(each)] for name, each in scores.items()}
    values = {name: each for name, each in values.items() if len(each)}
    names = sorted(values, key=lambda name: float(values[name].mean()))
    own = [values[name] for name in names]
    places = range(1, len(own) + 1)
    boxes = axes.boxplot(
        own, orientation="horizontal", whis=_WHISKERS, showfliers=False, patch_artist=True
    )
    for name, box in zip(names, boxes["boxes"], strict=True):
        box.set(facecolor=colors.get(name, _PLAIN), alpha=0.6)
    for line in boxes["medians"]:
        line.set_color("0.2")
    means = [float(each.mean()) for each in own]
    axes.plot(means, places, "o", color="black", markersize=3)
    axes.set_yticks(places, names)
    edge = _left(own, highest)
    axes.set_xlim(edge, highest + (highest - edge) / 40)
    for place, mean, each in zip(places, means, own, strict=True):
        if np.percentile(each, _WHISKERS[0]) < edge:  # the whisker goes on
            axes.plot(edge, place, "<", color="0.2", markersize=4, clip_on=False)
        if mean < edge:
            axes.text(edge, place, f"  {sign * mean:.3g}", va="center", fontsize="small")
    if lower:
        axes.xaxis.set_major_formatter(lambda score, _: f"{0 - score:g}")
    axes.spines[["top", "right"]].set_visible(False)


def _left(values: Sequence[np.ndarray], highest: float) -> float:
    """Where a panel begins: at the lowest whisker, if most others come near it."""
    ends = [highest - float(np.percentile(each, _WHISKERS[0])) for each in values]
    reach = min(max(ends), 3 * float(np.median(ends)))
    if highest != 100:
        return highest - 1.05 * (reach or 1.0)
    return max(0.0, 99.5 - reach)


def draw_gains(axes: Any, gains: Mapping[str, np.ndarray], names: Sequence[str]) -> None:
    """Each client's gain over local, sorted; a client of a row of its own has its name.

    More clients or methods than fit in rows are a curve per method: at the left those who lose.
    """
    own = looks(list(gains))
    if len(names) <= MOST_NAMED and len(gains) <= _MOST_METHODS:
        _rows(axes, gains, names, own)
    else:
        _curves(axes, gains, own)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize="small", borderaxespad=0.2,
        title="gain of each client over local", alignment="left",
    )  # fmt: skip


def gaining(gains: np.ndarray) -> str:
    """The shares of clients that gain and that lose, in percent.

    >>> gaining(np.array([1.0, 2.0, 0.0, -3.0]))
    '50% gain, 25% lose'
    """
    known = gains[np.isfinite(gains)]
    if not len(known):
        return "no scores"
    return f"{100 * (known > 0).mean():.0f}% gain, {100 * (known < 0).mean():.0f}% lose"


def _rows(
    axes: Any, gains: Mapping[str, np.ndarray], names: Sequence[str], own: Mapping[str, Look]
) -> None:
    middle = np.nan_to_num(np.stack(list(gains.values()))).mean(axis=0)
    order = np.argsort(middle, kind="stable")
    places = np.arange(len(order))
    apart = np.linspace(-0.22, 0.22, len(gains)) if len(gains) > 1 else np.zeros(1)
    for shift, (method, each) in zip(apart, gains.items(), strict=True):
        look, label = own[method], f"{method}: {gaining(each)}"
        axes.hlines(places - shift, 0, each[order], color=look.color, linewidth=1, alpha=0.5)
        dots: dict[str, Any] = {"linestyle": "", "marker": look.marker, "markersize": 4}
        axes.plot(each[order], places - shift, color=look.color, label=label, **dots)
    axes.axvline(0, color=GRAY, linewidth=1, zorder=0)
    axes.set_yticks(places, [short(names[place]) for place in order], fontsize="small")
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.92", linewidth=0.6)


def _curves(axes: Any, gains: Mapping[str, np.ndarray], own: Mapping[str, Look]) -> None:
    for method, each in gains.items():
        known = np.sort(each[np.isfinite(each)])
        if not len(known):
            continue
        share = 100 * (np.arange(len(known)) + 0.5) / len(known)
        every = max(1, len(known) // 8)
        label, line = f"{method}: {gaining(each)}", own[method].line()
        axes.plot(share, known, markevery=every, markersize=4, label=label, **line)
    axes.axhline(0, color=GRAY, linewidth=1, zorder=0)
    axes.set_xlabel("clients, sorted by gain (%)")
    axes.grid(axis="y", color="0.92", linewidth=0.6)
