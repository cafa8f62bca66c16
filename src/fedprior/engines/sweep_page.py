"""The page of a sweep: what was tried, what was chosen, and how it tests."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.core.scores import Metric
from fedprior.engines import blocks as parts
from fedprior.engines.grid import Point
from fedprior.pages.page import (
    Block,
    Curve,
    Curves,
    Fact,
    Listing,
    Number,
    Page,
    PageColumn,
    Rows,
    Section,
    SmallTable,
)

if TYPE_CHECKING:
    from fedprior.engines.sweep import Sweep


def sweep_page(sweep: "Sweep") -> Page:
    """The page of a sweep: values and their scores, the choice, and how it tests."""
    rows = [{"method": "", **row} for row in sweep.rows()]
    chosen = {"": {"chosen": sweep.chosen, **_tested(sweep)}}
    about = f"{len(sweep.points)} points"
    return trainings_page(rows, chosen, about=about, metric=sweep.metric)


def _tested(sweep: "Sweep") -> dict[str, Any]:
    signed = sweep.metric.signed
    tests = signed(np.nanmean(sweep.scores, axis=1)) if sweep.scores.size else np.array([])
    return {
        "points": len(sweep.points),
        "valid": float(signed(np.nanmean(sweep.valid[sweep.best]))),
        "test": float(tests.mean()) if tests.size else None,
        "test_sd": float(tests.std(ddof=1)) if tests.size > 1 else None,
    }


def trainings_page(
    rows: list[dict[str, Any]],
    methods: dict[str, dict[str, Any]],
    *,
    about: str,
    metric: Metric,
    folded: tuple[SmallTable, ...] = (),
    command: str = "",
) -> Page:
    """The page of swept trainings: `rows` as in `Sweep.rows`, `methods` the choice of each."""
    fixed = {"method", "seed", "valid", "chosen", "test"}
    options = list(dict.fromkeys(name for row in rows for name in row if name not in fixed))
    sections = [_choices(methods, metric), *_by_value(rows, options, metric)]
    sections.append(Section("Trainings", (_listing(rows, options, metric),)))
    seeds = {row["seed"] for row in rows}
    tried = sum(row["points"] for row in methods.values())
    facts = (
        Fact("points tried", Number(tried, "whole")),
        Fact("seeds", Number(len(seeds), "whole")),
        Fact("trainings", Number(len(rows), "whole")),
    )
    return Page(
        title="Sweep",
        lead=_sweep_lead(methods, metric),
        about=about,
        facts=facts,
        sections=tuple(sections),
        folded=folded,
        command=command,
    )


def point_words(point: Point | None) -> str:
    """A point in words."""
    if point is None:
        return "nothing: every training diverged"
    return ", ".join(f"{name} = {value}" for name, value in point.items()) or "no option"


def _sweep_lead(methods: dict[str, dict[str, Any]], metric: Metric) -> str:
    tested = {name: row for name, row in methods.items() if row["test"] is not None}
    if not tested:
        return "Values were compared on validation scores; nothing was tested."
    best = max(tested, key=lambda name: metric.signed(tested[name]["test"]))
    row, whose = tested[best], f"{best} with " if best else ""
    shown = f"{100 * row['test']:.2f}%" if metric.share else f"{row['test']:.4g}"
    spread = ""
    if row["test_sd"] is not None:
        sd = f"{100 * row['test_sd']:.2f}" if metric.share else f"{row['test_sd']:.2g}"
        spread = f" ± {sd} over seeds"
    several = "With the same tuning for all, the best is "
    first = several if len(methods) > 1 else "Chosen on validation scores: "
    what = f"Its mean test {metric.label} is {shown}{spread}."
    return f"{first}{whose}{point_words(row['chosen'])}. {what}"


def _choices(methods: dict[str, dict[str, Any]], metric: Metric) -> Section:
    cells = tuple(
        (
            name or "chosen",
            point_words(row["chosen"]),
            Number(row["points"], "whole"),
            parts.figure(row["valid"], metric),
            parts.figure(row["test"], metric),
            parts.figure(row["test_sd"], metric),
        )
        for name, row in methods.items()
    )
    head = ("method", "chosen", "of", "validation", "test", "± over seeds")
    text = (
        "Each method was tried at the same values of the options that it has. The mean validation "
        f"{metric.label} decides; test samples are read once, for the choice."
    )
    return Section(
        "What was chosen", (SmallTable(title="By method", head=head, cells=cells),), text
    )


def _by_value(rows: list[dict[str, Any]], options: list[str], metric: Metric) -> list[Section]:
    """A chart for each option with numbers: the best validation score at each of its values."""
    charts: list[Block] = []
    for option in options:
        curves: list[Curve] = []
        marks: list[Curve] = []
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == method and _is_number(row.get(option))]
            if len({row[option] for row in own}) < 2:
                continue
            values = sorted({float(row[option]) for row in own})
            best = [_best([row for row in own if row[option] == value], metric) for value in values]
            curves.append(Curve(name=method or "validation", x=values, y=best))
            chosen = {float(row[option]) for row in own if row["chosen"]}
            for value in chosen:
                mark = f"{method or 'validation'}, chosen"
                marks.append(Curve(name=mark, x=[value], y=[best[values.index(value)]]))
        if curves:
            charts.append(
                Curves(
                    title=f"Validation scores by {option}",
                    curves=(*curves, *marks),
                    x_label=option,
                    y_label=f"mean validation {metric.label}",
                    style=parts.style_of(metric),
                    dots=True,
                    text=_chosen_words(marks),
                )
            )
    return [Section("Validation by value", tuple(charts))] if charts else []


def _chosen_words(marks: list[Curve]) -> str:
    """What a chart by value shows, and the values that were chosen."""
    chosen = ", ".join(f"{mark.x[0]:g} ({mark.name.removesuffix(', chosen')})" for mark in marks)
    text = "At each value, the best of the other options, as a mean over seeds."
    return f"{text} Chosen: {chosen}." if chosen else text


def _best(rows: list[dict[str, Any]], metric: Metric) -> float:
    """The best mean over seeds of the points among these trainings."""
    fixed = ("method", "seed", "valid", "chosen", "test")
    found: dict[str, list[float]] = {}
    for row in rows:
        point = repr(sorted((k, str(v)) for k, v in row.items() if k not in fixed))
        found.setdefault(point, []).append(np.nan if row["valid"] is None else row["valid"])
    means = [float(np.mean(values)) for values in found.values()]
    known = [mean for mean in means if np.isfinite(mean)]
    return max(known, key=metric.signed) if known else float("nan")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)


def _listing(rows: list[dict[str, Any]], options: list[str], metric: Metric) -> Listing:
    names = [
        ", ".join([*([row["method"]] if row["method"] else []), f"seed {row['seed']}"])
        for row in rows
    ]
    columns = {"name": PageColumn(label="training", values=names, style="text")}
    for option in options:
        values = [row.get(option) for row in rows]
        if all(value is None or _is_number(value) for value in values):
            numbers = np.array([np.nan if value is None else value for value in values], float)
            columns[option] = PageColumn(label=option, values=numbers)
        else:
            words = ["" if value is None else str(value) for value in values]
            columns[option] = PageColumn(label=option, values=words, style="text")
    for part in ("valid", "test"):
        values = [np.nan if row[part] is None else row[part] for row in rows]
        label = "validation" if part == "valid" else part
        columns[part] = PageColumn(
            label=f"{label} {metric.label}",
            values=np.array(values, float),
            style=parts.style_of(metric),
        )
    marks = ["chosen" if row["chosen"] else "" for row in rows]
    columns["chosen"] = PageColumn(label="choice", values=marks, style="text")
    rows_of_all = Rows(columns=columns, noun="trainings")
    order = "valid" if metric.lower else "-valid"
    return Listing(title="All trainings", rows=rows_of_all, order=order)
