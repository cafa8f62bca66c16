"""A sweep as a picture: validation scores against the values of one option."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.engines.sweep import Sweep
from fedprior.reporting.figures import Look, label_ends

_WIDE = 8  # ratio of values above which their axis is logarithmic


def draw_options(
    axes: Any, swept: Mapping[str, Sweep], option: str, looks: Mapping[str, Look]
) -> None:
    """Mean validation value against the values of `option`, the chosen point as a star.

    Lines go through the chosen point: other options have their chosen values. Points of other
    values are small dots.
    """
    own = {name: each for name, each in swept.items() if option in each.points[0]}
    every = list(dict.fromkeys(point[option] for each in own.values() for point in each.points))
    numbers = all(isinstance(value, int | float) and type(value) is not bool for value in every)
    every = sorted(every) if numbers else every
    metric = next(iter(own.values())).metric
    spots = every if numbers and len(every) > 1 else range(len(every))
    at = dict(zip(map(str, every), spots, strict=True))
    if numbers and min(every) > 0 and max(every) / min(every) >= _WIDE:
        axes.set_xscale("log")
    ends = []
    for name, each in own.items():
        means = metric.unit * metric.signed(_means(each))
        places = [at[str(point[option])] for point in each.points]
        look = looks[name]
        axes.plot(
            places,
            np.where(np.isfinite(means), means, np.nan),
            ".",
            color=look.color,
            markersize=4,
            alpha=0.5,
        )
        others = [name for name in each.chosen if name != option]
        alike = [all(p[name] == each.chosen[name] for name in others) for p in each.points]
        line = sorted((at[str(p[option])], means[i]) for i, p in enumerate(each.points)
                      if alike[i] and np.isfinite(means[i]))  # fmt: skip
        if not line:
            continue
        axes.plot(*zip(*line, strict=True), markersize=5, linewidth=1.3, **look.line())
        best = (at[str(each.chosen[option])], means[each.best])
        axes.plot(*best, marker="*", markersize=15, color=look.color, markeredgecolor="white")
        ends.append((*line[-1], name, look.color))
    axes.set_xticks(list(spots), [str(each) for each in every])
    axes.minorticks_off()
    axes.set_xlabel(f"{option} (star: chosen)")
    axes.set_ylabel(f"validation {metric.label}" + " (%)" * metric.share)
    axes.grid(color="0.92", linewidth=0.6)
    label_ends(axes, ends)


def _means(swept: Sweep) -> np.ndarray:
    """Of each point over clients and seeds; not finite where a training diverged."""
    return np.nanmean(swept.valid, axis=2).mean(axis=1)
