"""Parts of pages about trainings: scores over rounds, calibration, classes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedprior.core.scores import METRICS, Metric
from fedprior.pages.page import (
    Block,
    Curve,
    Curves,
    Distributions,
    Number,
    Rows,
    Section,
    SmallTable,
    Stacked,
    Style,
    Text,
)

Line = Mapping[str, Any]  # of a history: round, and figures by name; method and seed, if several
_NOT_SCALARS = {"method", "seed", "round", "rounds", "seconds", "clients", "left_out", "valid"}
_LARGEST = "largest_class"  # the column of shares of clients' most common classes
_MOST_CLASSES = 20  # shown by name
_FEW = 10  # samples of a bin below which its share of correct predictions says little

# What is said of the scalars of a state that readers will ask about.
_SCALARS = {
    "psi": "How far personal models may be from the shared one: a small psi ties them to it.",
    "trust": "How far clients follow the shared model, from 0 (it is all noise) to 1 (no noise).",
    "clip": "The bound on the length of a client's message.",
}


def style_of(metric: Metric) -> Style:
    """How the values of a metric are shown: shares in percent."""
    return "percent" if metric.share else "number"


def column_digits(metric: Metric) -> int | None:
    """The decimals that a column of the metric keeps, as fractions; None: by the spread."""
    return 3 if metric.share else None


def figure(
    value: float | None, metric: Metric, *, values: Sequence[float | None] = ()
) -> Number | None:
    """A value of the metric in a small table, beside other `values`; None of what is not finite."""
    if value is None or not np.isfinite(value):
        return None
    return Number(value, style_of(metric), digits=metric.decimals(values or [value]))


def gain(
    value: float | None, metric: Metric, *, values: Sequence[float | None] = ()
) -> Number | None:
    """A difference of scores, beside `values` of the metric, in points for shares."""
    if value is None or not np.isfinite(value):
        return None
    digits = metric.decimals(values or [value])
    return Number(metric.unit * value, digits=digits, sign=True)


def over_rounds(lines: Iterable[Line], metric: Metric) -> list[Block]:
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
                y_label=f"mean validation {metric.label}" if valid else name,
                style=style_of(metric) if valid else "number",
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


METRICS_TEXT = (
    "Overall takes all test samples together; the mean over clients counts each client once, "
    "however many samples it has, and leaves out those for which a value is not defined, such as "
    "the AUC of samples of one class."
)


def metrics(described: Mapping[str, Mapping[str, Mapping[str, Any]]], first: Metric) -> list[Block]:
    """All metrics of each row, such as a method, overall and as a mean over clients.

    `described` are those of `Metrics.describe`; the metric `first` comes first.
    """
    known = {key for own in described.values() for key in own}
    shown = sorted(
        (each for each in METRICS.values() if each.key in known), key=lambda each: each != first
    )
    titles = {"overall": "All test samples together", "mean": "Mean over clients"}
    tables: list[Block] = []
    for part, title in titles.items():
        cells = []
        for name, own in described.items():
            values = [own.get(each.key, {}).get(part) for each in shown]
            cells.append((name, *map(figure, values, shown)))
        head = ("", *(each.label for each in shown))
        tables.append(SmallTable(title=title, head=head, cells=tuple(cells)))
    counts = {
        each.label: {own[each.key]["clients"] for own in described.values() if each.key in own}
        for each in shown
    }
    largest = max((max(found) for found in counts.values() if found), default=0)
    fewer = {label: max(found) for label, found in counts.items() if max(found) < largest}
    if fewer:
        words = ", ".join(f"{label} for {number:,}" for label, number in fewer.items())
        tables.append(Text(f"Defined for fewer than all {largest:,} clients: {words}."))
    return tables


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


def balance(classes: Mapping[str, int] | None, rows: Rows | None) -> Section | None:
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
    if rows is not None and _LARGEST in rows.columns:
        share = np.asarray(rows.columns[_LARGEST].values, float)
        text = (
            f"The most common class of all is {names[0]}, with {classes[names[0]] / whole:.0%} of "
            f"the training samples. In the median client, the client's own most common class has "
            f"{np.nanmedian(share):.0%}."
        )
        title = "How uneven clients are: share of each client's most common class"
        blocks.append(Distributions(title=title, rows=rows, columns=(_LARGEST,)))
    return Section("Classes", tuple(blocks), text)
