"""The page of a simulation in Python."""

from typing import TYPE_CHECKING

import numpy as np

from fedprior.core.protocols import is_private
from fedprior.data.balance import class_counts, largest_shares
from fedprior.engines import blocks as parts
from fedprior.engines.metrics import describe_bins
from fedprior.pages.page import (
    Block,
    Distributions,
    Fact,
    Listing,
    Number,
    Page,
    PageColumn,
    Rows,
    Section,
)

if TYPE_CHECKING:
    from fedprior.engines.result import Result


def result_page(result: "Result", *, whole: bool = True) -> Page:
    """The page of a simulation; without `whole`, what costs no computation.

    With secure noise it shows the rounds and what the server released in them: nothing of clients.
    """
    secure, scores = result.agreement.secure, result.scores
    hidden = ("clients", "left_out", "valid") if secure else ()
    metric = result.metric
    lines = [
        {"round": number + 1, **{k: v for k, v in metric.entry(entry).items() if k not in hidden}}
        for number, entry in enumerate(result.history)
    ]
    known = not secure and scores.size > 0 and not np.isnan(scores).all()
    sections = [*_clients(result)] if known else []
    charts = parts.over_rounds(lines, metric)
    sections += [Section("Over rounds", tuple(charts))] if charts else []
    if known and whole and metric.target is not None:
        sections += _measured(result)
    return Page(
        title=f"Simulation of {result.algorithm.name}",
        lead=_lead(result) if known else _lead_of_rounds(result),
        about=result.federation.name,
        facts=tuple(_facts(result)),
        sections=tuple(sections),
    )


def _lead(result: "Result") -> str:
    metric = result.metric
    known = metric.signed(result.scores[~np.isnan(result.scores)])
    low, high = np.quantile(known, [0.1, 0.9])
    return (
        f"After {result.rounds:,} rounds of {result.algorithm.name}, the clients' own models have "
        f"a mean test {metric.label} of {metric.words(float(known.mean()))}; four of five "
        f"clients lie between {metric.words(float(low))} and {metric.words(float(high))}."
    )


def _lead_of_rounds(result: "Result") -> str:
    why = {
        "rounds": "all of its rounds",
        "patience": "its rounds until validation scores stopped rising",
        "budget": "as many rounds as its privacy budget allowed",
    }
    return f"{result.algorithm.name} ran {why[result.ended_by]}: {result.rounds:,}."


def _facts(result: "Result") -> list[Fact]:
    facts = [Fact("rounds", Number(result.rounds, "whole"))]
    if not result.agreement.secure:
        facts.append(Fact("clients", Number(result.federation.num_clients, "whole")))
        facts.append(Fact("seed", str(result.seed)))
    channel = result.agreement.channel
    if is_private(channel):
        simulated = channel.noise == "simulated"
        note = "not valid for release" if simulated else "the ledger says what was spent"
        facts.append(Fact("noise", channel.noise, note))
    return facts


def _clients(result: "Result") -> list[Section]:
    federation, metric = result.federation, result.metric
    columns = {
        "name": PageColumn(
            label="client", values=[str(name) for name in federation.clients], style="text"
        ),
        "size": PageColumn(label="samples", values=federation.train.size, style="whole"),
        "score": PageColumn(
            label=f"test {metric.label}",
            values=metric.signed(result.scores),
            style=parts.style_of(metric),
            digits=parts.column_digits(metric),
        ),
    }
    rows = Rows(columns=columns, noun="clients")
    blocks: tuple[Block, ...] = (
        Distributions(title="Clients' scores", rows=rows, columns=("score",)),
        Listing(title="All clients", rows=rows, order="score"),
    )
    return [Section("Clients", blocks)]


def _measured(result: "Result") -> list[Section]:
    """All metrics, calibration and class balance, which take a pass over the test samples."""
    federation, measured = result.federation, result.metrics()
    tables = parts.metrics({result.algorithm.name: measured.describe()}, result.metric)
    sections = [Section("Metrics", tuple(tables), parts.METRICS_TEXT)]
    if federation.classes is None or measured.bins is None:
        return sections
    charts = parts.calibration({result.algorithm.name: [describe_bins(measured.bins)]})
    sections += [Section("Calibration", tuple(charts))] if charts else []
    counts = class_counts(federation.train, len(federation.classes))
    columns = {
        "name": PageColumn(
            label="client", values=[str(name) for name in federation.clients], style="text"
        ),
        "largest_class": PageColumn(
            label="most common class", values=largest_shares(counts), style="percent", digits=3
        ),
    }
    totals = dict(zip(map(str, federation.classes), counts.sum(axis=0).tolist(), strict=True))
    balance = parts.balance(totals, Rows(columns=columns, noun="clients"))
    return [*sections, *([] if balance is None else [balance])]
