"""Clients one by one on a page: rows of scores, who gains, who loses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprior.core.scores import Metric
from fedprior.engines.blocks import column_digits, figure, gain, style_of
from fedprior.pages.page import (
    Block,
    Cell,
    Distributions,
    Intervals,
    Listing,
    Number,
    PageColumn,
    Rows,
    Scatter,
    Section,
    SmallTable,
)
from fedprior.reporting.summary import over_seeds

MOST_ROWS = 120_000  # of a page; beyond, those of the first seed
PAIRS = "clients and seeds"  # the noun of rows where each seed has clients of its own
_NAMED = 5  # clients with the largest losses and gains
_MANY, _METHODS = 20_000, 5  # beyond so many clients, so many methods are shown client by client

Table = Mapping[str, np.ndarray]  # columns of clients.parquet


def client_rows(
    table: Table, methods: Sequence[str], metric: Metric, *, best: str | None, same: bool
) -> Rows | None:
    """A row per client, with `gain`, that of `best` over local, in points for shares.

    `same` says that a name is the same client in every seed: its scores are then averaged.
    Elsewhere each seed has clients of its own.
    """
    if not table:
        return None
    seeds, noun = np.unique(table["seed"]), "clients"
    names = np.array([str(each) for each in table["client"]], object)
    if len(seeds) > 1 and len(names) > MOST_ROWS and not same:
        kept = table["seed"] == seeds[0]
        table, names = {name: values[kept] for name, values in table.items()}, names[kept]
        noun, seeds = f"clients of seed {int(seeds[0])}", seeds[:1]
    if len(seeds) > 1 and same:
        scores = {name: each for name, each in table.items() if name not in ("client", "seed")}
        table, names = over_seeds(scores, names)
    elif len(seeds) > 1:
        noun, pairs = PAIRS, zip(names, table["seed"], strict=True)
        names = np.array([f"{name}, seed {int(seed)}" for name, seed in pairs], object)
    style, digits = style_of(metric), column_digits(metric)
    columns = {"name": PageColumn(label="client", values=list(names), style="text")}
    if "size" in table:
        columns["size"] = PageColumn(label="samples", values=table["size"], style="whole")
    if "largest_class" in table:
        label = "most common class"
        columns["largest_class"] = PageColumn(
            label=label, values=table["largest_class"], style="percent", digits=3
        )
    for name in _fitting(table, len(names), methods, best, metric):
        values = table.get(name.replace("-", "_"))
        if values is not None:
            columns[name] = PageColumn(label=name, values=values, style=style, digits=digits)
    if best is not None and best in columns and "local" in columns:
        with np.errstate(invalid="ignore"):  # both diverged
            own, local = (np.asarray(columns[name].values, float) for name in (best, "local"))
            gain = metric.unit * metric.signed(own - local)
        label = "gain (points)" if metric.share else "gain"
        columns["gain"] = PageColumn(label=label, values=gain, digits=1 if digits else None)
    return Rows(columns=columns, noun=noun)


@dataclass(frozen=True)
class Gains:
    """How many clients gain over local, lose, and do equally well; and whose models diverged."""

    won: int
    lost: int
    equal: int
    diverged: int

    @property
    def whole(self) -> int:
        return self.won + self.lost + self.equal

    def aside(self, noun: str) -> str:
        """A sentence about those who are not counted; none where nobody is."""
        if not self.diverged:
            return ""
        if self.diverged == 1 and noun == "clients":
            return " One client whose model diverged is not counted."
        return f" Not counted are {self.diverged:,} {noun} whose models diverged."


def gains(rows: Rows | None, best: str | None) -> Gains | None:
    """The clients by what `best` gives them over local; None where nobody has both."""
    if rows is None or best is None or "gain" not in rows.columns:
        return None
    gain = np.asarray(rows.columns["gain"].values, float)
    pair = [np.asarray(rows.columns[name].values, float) for name in (best, "local")]
    if not np.isfinite(gain).any():
        return None
    known, diverged = gain[np.isfinite(gain)], np.isinf(pair[0]) | np.isinf(pair[1])
    won, lost = int((known > 0).sum()), int((known < 0).sum())
    return Gains(won, lost, len(known) - won - lost, int(diverged.sum()))


def _fitting(
    table: Table, number: int, methods: Sequence[str], best: str | None, metric: Metric
) -> Sequence[str]:
    """The methods that a page of many clients has room for: the best, local, and the next ones."""
    if number <= _MANY or len(methods) <= _METHODS:
        return methods
    column = {name: table.get(name.replace("-", "_"), np.array([np.nan])) for name in methods}
    means = {name: float(metric.signed(np.nanmean(each))) for name, each in column.items()}
    order = sorted(methods, key=lambda name: (name not in (best, "local"), -means[name]))
    return [name for name in methods if name in order[:_METHODS]]


def distributions(rows: Rows, methods: Sequence[str], metric: Metric) -> Block | None:
    """The clients' scores as histograms, by method."""
    known = tuple(name for name in methods if name in rows.columns)
    if not known:
        return None
    each = "client and seed" if rows.noun == PAIRS else "client"
    text = f"Each {each} counts once, with the test {metric.label} of its own model."
    return Distributions(title="Clients' scores", rows=rows, columns=known, text=text)


def client_section(rows: Rows, best: str | None, metric: Metric) -> Section:
    """Each client against local, with those that lose and gain most by name; and all of them."""
    blocks: list[Block] = []
    text = ""
    found = gains(rows, best)
    if found is not None and best is not None:
        gain = np.asarray(rows.columns["gain"].values, float)
        known = np.isfinite(gain)
        text = (
            f"With {best}, {found.won:,} of {found.whole:,} {rows.noun} have better models than "
            f"with their own data alone, {found.lost:,} have worse ones, and {found.equal:,} have "
            f"equally good ones.{found.aside(rows.noun)} A client's test samples are few: the "
            "score of a single client is uncertain."
        )
        blocks += [
            Scatter(
                title=f"Local and {best}, client by client",
                rows=rows,
                x="local",
                y=best,
                shade="size" if "size" in rows.columns else "",
                diagonal=True,
                text=f"{'Below' if metric.lower else 'Above'} the line, the client gains.",
            ),
            Intervals(
                title=f"Gain of {best} over local, client by client",
                rows=rows,
                value="gain",
            ),
        ]
        order = np.flatnonzero(known)[np.argsort(gain[known], kind="stable")]
        for title, chosen in (
            ("The largest losses", [place for place in order[:_NAMED] if gain[place] < 0]),
            ("The largest gains", [place for place in order[::-1][:_NAMED] if gain[place] > 0]),
        ):
            if chosen:
                blocks.append(_named(title, rows, best, metric, chosen))
    blocks.append(Listing(title="All clients", rows=rows, order="-gain" if text else "name"))
    return Section("Client by client", tuple(blocks), text)


def _named(title: str, rows: Rows, best: str, metric: Metric, chosen: Sequence[int]) -> SmallTable:
    values = {name: column.values for name, column in rows.columns.items()}
    sized = "size" in values

    def cells(place: int) -> tuple[Cell, ...]:
        size = (Number(float(values["size"][place]), "whole"),) if sized else ()
        return (
            str(values["name"][place]),
            *size,
            figure(float(values["local"][place]), metric),
            figure(float(values[best][place]), metric),
            gain(
                float(values["gain"][place]) / metric.unit,
                metric,
                values=[float(values[best][place])],
            ),
        )

    words = "points" if metric.share else "gain"
    head = ("client", *(("samples",) if sized else ()), "local", best, words)
    return SmallTable(title=title, head=head, cells=tuple(cells(place) for place in chosen))
