"""Parts of pages about trainings: scores over rounds, calibration, classes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedprior.core.scores import are_errors
from fedprior.pages.page import (
    Block,
    Curve,
    Curves,
    Distributions,
    Number,
    Rows,
    Section,
    Stacked,
    Style,
)

Line = Mapping[str, Any]  # of a history: round, and figures by name; method and seed, if several
_NOT_SCALARS = {"method", "seed", "round", "rounds", "seconds", "clients", "left_out", "valid"}
_MOST_CLASSES = 20  # shown by name
_FEW = 10  # samples of a bin below which its share of correct predictions says little

# What is said of the scalars of a state that readers will ask about.
_SCALARS = {
    "psi": "How far personal models may be from the shared one: a small psi ties them to it.",
    "trust": "How far clients follow the shared model, from 0 (it is all noise) to 1 (no noise).",
    "clip": "The bound on the length of a client's message.",
}


def style_of(scores: Any, *, classes: bool | None = None) -> Style:
    """Shares of correct predictions are shown in percent; minus a squared error is no share.

    `classes` says whether classes are predicted; where that is not known, the scores tell.
    """
    return "number" if classes is False or are_errors(scores) else "percent"


def score_name(style: Style) -> str:
    """What a score is called."""
    return "accuracy" if style == "percent" else "score (minus the mean squared error)"


def score(value: float | None, style: Style, *, sign: bool = False) -> Number | None:
    """A score, or a difference of scores, in a small table."""
    if value is None:
        return None
    return Number(value, style, digits=1 if style == "percent" else 4, sign=sign)


def over_rounds(lines: Iterable[Line], style: Style) -> list[Block]:
    """Validation scores and the scalars of the state, a chart each with a curve for each method.

    Several seeds are one curve, their mean, in a band from the lowest to the highest.
    """
    by_method: dict[str, list[Line]] = {}
    names: dict[str, None] = {}
    for line in lines:
        by_method.setdefault(str(line.get("method", "")), []).append(line)
        names.update(dict.fromkeys(name for name in line if name not in _NOT_SCALARS))
    charts: list[Block] = []
    for name in ("valid", *names):
        curves = [_curve(method, own, name) for method, own in by_method.items()]
        found = tuple(curve for curve in curves if curve is not None)
        if not found:
            continue
        valid = name == "valid"
        charts.append(
            Curves(
                title="Validation scores over rounds" if valid else f"{name} over rounds",
                curves=found,
                x_label="round",
                y_label=f"mean validation {score_name(style)}" if valid else name,
                style=style if valid else "number",
                text="" if valid else _SCALARS.get(name, ""),
            )
        )
    return charts


def _curve(method: str, lines: Sequence[Line], name: str) -> Curve | None:
    """The mean over seeds by round, and its range; None where no line has the name."""
    values: dict[int, list[float]] = {}
    for line in lines:
        value = line.get(name)
        if value is not None and np.isfinite(value):
            values.setdefault(int(line["round"]), []).append(float(value))
    if not values:
        return None
    rounds = sorted(values)
    several = any(len(each) > 1 for each in values.values())
    return Curve(
        name=method or name,
        x=rounds,
        y=[float(np.mean(values[each])) for each in rounds],
        lower=[min(values[each]) for each in rounds] if several else None,
        upper=[max(values[each]) for each in rounds] if several else None,
    )


def calibration(described: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Block]:
    """How often predictions are right at each confidence, by method; seeds are added up."""
    curves, words = [], []
    for method, own in described.items():
        count = np.sum([each["count"] for each in own], axis=0)
        if not count.sum():
            continue
        known = count > 0
        confidence, right = (
            _pooled(own, name, count)[known] for name in ("confidence", "accuracy")
        )
        error = float(np.abs(confidence - right) @ count[known] / count.sum())
        words.append(f"{method} {100 * error:.1f}")
        many = count[known] >= _FEW
        curves.append(Curve(name=method, x=confidence[many], y=right[many]))
    if not curves:
        return []
    text = (
        "On the diagonal, predictions are right as often as they claim; below it they are "
        f"overconfident. Mean distance from it, in points: {', '.join(words)}. Bins with "
        f"fewer than {_FEW} samples are not drawn."
    )
    return [
        Curves(
            title="Confidence and accuracy",
            curves=tuple(curves),
            x_label="probability of the predicted class",
            y_label="share of correct predictions",
            style="percent",
            diagonal=True,
            dots=True,
            text=text,
        )
    ]


def _pooled(described: Sequence[Mapping[str, Any]], name: str, count: np.ndarray) -> np.ndarray:
    """The mean of a share over seeds, by samples."""
    sums = np.zeros(len(count))
    for each in described:
        shares = np.array([0.0 if share is None else share for share in each[name]])
        sums += shares * np.asarray(each["count"])
    return sums / np.maximum(count, 1)


def balance(
    classes: Mapping[str, int] | None, rows: Rows | None, column: str = "largest_class"
) -> Section | None:
    """The classes of all training samples, and how uneven clients are."""
    if not classes:
        return None
    whole = sum(classes.values())
    names = sorted(classes, key=lambda name: -classes[name])
    shown, rest = names[:_MOST_CLASSES], names[_MOST_CLASSES:]
    parts: dict[str, tuple[float, ...]] = {name: (classes[name] / whole,) for name in shown}
    if rest:
        parts[f"{len(rest)} more classes"] = (sum(classes[name] for name in rest) / whole,)
    title = "Classes of all training samples"
    blocks: list[Block] = [
        Stacked(title=title, labels=("all clients",), parts=parts, style="percent")
    ]
    text = ""
    if rows is not None and column in rows.columns:
        share = np.asarray(rows.columns[column].values, float)
        text = (
            f"The most common class of all is {names[0]}, with {classes[names[0]] / whole:.0%} of "
            f"the training samples. In the median client, the client's own most common class has "
            f"{np.nanmedian(share):.0%}."
        )
        title = "How uneven clients are: share of each client's most common class"
        blocks.append(Distributions(title=title, rows=rows, columns=(column,)))
    return Section("Classes", tuple(blocks), text)
