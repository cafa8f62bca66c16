"""Scores of methods on a terminal: the run's metric by client, then every metric."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.table import Table

from fedprior.cli.bars import Bar, add_bars
from fedprior.cli.columns import keep_numbers
from fedprior.core.scores import ACCURACY, METRICS, Metric
from fedprior.data.standard_input import shown as shown_path

if TYPE_CHECKING:
    from fedprior.reporting.config import Config

Row = Mapping[str, Any]  # of a method, as in summary.json
# The share of the largest class above which classes are uneven, and how often it is the share of
# a class where all have the same.
_UNEVEN, _TIMES = 0.7, 3


def tables(config: "Config", summary: Mapping[str, Any], console: Console) -> Group:
    """What a run found: a table of its metric, and one of every metric where they are known."""
    metric = METRICS[summary["metric"]]
    rows = {**summary["methods"], **summary.get("baseline", {})}
    guessed = named(summary.get("guesses", {}))
    first = with_bars(table(config, rows, metric, guessed), [*rows.values()], console, metric)
    known = {name: row["metrics"] for name, row in (rows | guessed).items() if "metrics" in row}
    if not known:
        return first
    return Group(first, keep_numbers(every_metric(known, metric), console.width))


def named(guesses: Mapping[str, Row]) -> dict[str, Row]:
    """What needs no model, under the names that tables have for it."""
    from fedprior.engines.guesses import LABELS

    return {f"guess: {LABELS[name]}": row for name, row in guesses.items()}


def table(
    config: "Config",
    methods: Mapping[str, Row],
    metric: Metric = ACCURACY,
    guesses: Mapping[str, Row] | None = None,
) -> Table:
    """One row per method: values of the metric over clients, shares in percent, gains in points."""
    read = shown_path(config.data.path) or config.data.name
    unit = ", in percent" if metric.share else ""
    title = f"Test {metric.label} of the clients' own models{unit}, {read}"
    if config.seeds > 1:
        title += f", {config.seeds} seeds"
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("method", no_wrap=True)
    for column in ("mean", "worst\ndecile", "best\ndecile", "gain over\nlocal", "clients\ngaining"):
        shown.add_column(column, justify="right", no_wrap=True)
    every = [*methods.values(), *(guesses or {}).values()]
    means = [row["mean"] for row in every]

    def show(value: float | None, sign: str = "") -> str:
        return metric.text(value, values=means, sign=sign)

    def cells(name: str, row: Row, alone: bool) -> tuple[str, ...]:
        gain, error = row["gain_over_local"], row["gain_se"]
        spread = f" ± {show(row['mean_sd'])}" if row["mean_sd"] is not None else ""
        over = "" if alone else show(gain / metric.unit, "+")
        over += f" ± {show(error / metric.unit)}" if error and not alone else ""
        gaining = None if alone else row["share_gaining"]
        return (
            name,
            show(row["mean"]) + spread,
            show(row["worst_decile"]),
            show(row["best_decile"]),
            over,
            "" if gaining is None else f"{100 * gaining:.1f}",
        )

    last = len(methods) - 1
    for place, (name, row) in enumerate(methods.items()):
        alone = name == "local" or row["gain_over_local"] is None
        shown.add_row(*cells(name, row, alone), end_section=bool(guesses) and place == last)
    for name, row in (guesses or {}).items():
        shown.add_row(*cells(name, row, True))
    return shown


def every_metric(described: Mapping[str, Mapping[str, Row]], first: Metric) -> Table:
    """One row per method: every metric of all test samples together, the run's own first."""
    known = {key for own in described.values() for key in own}
    every = (each for each in METRICS.values() if each.key in known)
    chosen = sorted(every, key=lambda each: each != first)
    title = "All test samples together"
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("method", no_wrap=True)
    columns = []
    for metric in chosen:
        shown.add_column(metric.short, justify="right", no_wrap=True)
        values = [own.get(metric.key, {}).get("overall") for own in described.values()]
        columns.append([metric.text(value, values=values) for value in values])
    for name, *cells in zip(described, *columns, strict=True):
        shown.add_row(name, *cells)
    return shown


def with_bars(
    shown: Table, rows: Sequence[Row], console: Console, metric: Metric = ACCURACY
) -> Group:
    """The table with bars from the worst decile to the best, if the console has room for them."""
    names = ("worst_decile", "mean", "best_decile")
    known = [[row[name] for name in names] for row in rows]
    bars = [
        None if None in row else Bar(*sorted(metric.unit * value for value in row)) for row in known
    ]
    bars += [None] * (shown.row_count - len(bars))
    return keep_numbers(add_bars(shown, console, bars, names=("mean", "")), console.width)


def remarks(summary: Mapping[str, Any]) -> Iterator[str]:
    """What the tables do not say: uneven classes, and metrics that few clients have."""
    largest = summary.get("largest_class")
    if largest is not None and largest["share"] > min(_UNEVEN, _TIMES / largest["classes"]):
        yield (
            f"Classes are uneven: {str(largest['name'])!r} has {100 * largest['share']:.1f}% of "
            "the training samples. Compare with guess: largest class; --metric balanced-accuracy "
            "counts all classes equally."
        )
    counts = {
        METRICS[name.replace("_", "-")].label: each["clients"]
        for row in list(summary["methods"].values())[:1]
        for name, each in row.get("metrics", {}).items()
    }
    most = max(counts.values(), default=0)
    if counts and not most:
        yield "No client has test samples, so nothing is scored."
    for name, number in counts.items():
        if number < most:
            yield f"{name} is defined for {number:,} of the {most:,} clients with test samples."
