"""What a private run or a ledger has spent, on a page: budget, guarantee, trust, and its limits."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.check import PrivacyError
from fedprior.pages.page import (
    Block,
    Curve,
    Curves,
    Flow,
    Note,
    Notes,
    Party,
    Section,
    Stacked,
    Text,
)
from fedprior.privacy.charging import total
from fedprior.privacy.opening import read
from fedprior.privacy.records import Record, reservations
from fedprior.privacy.terms import Terms
from fedprior.reporting.population import figure, views

POINTS = 48  # epsilons that are computed for a page, of all curves together
FEW_POINTS = 16  # for a page that is made again and again, while a run goes on
_SEES = {
    "central": "who sees what was released",
    "local": "who sees the messages of clients",
    "masked": "who sees the sums of messages, the server included",
}
_NEIGHBORS = {
    "add-remove": "adding or removing one {unit}'s whole data",
    "replace-one": "replacing one {unit}'s whole data by any other",
}
_CHANGES = {"add-remove": "absent", "replace-one": "replaced by any other data"}
_OWN_MODEL = "A client's own model is computed where its data are and passes to nobody."
_LARGEST = 700.0  # epsilons whose e^epsilon is a float


def guarantee_sentence(row: dict[str, Any], what: str) -> str:
    """The guarantee of a ledger's row (`ledgers.spent`) in one sentence, with all it depends on."""
    spent = figure(row["epsilon"])
    change = _NEIGHBORS[row["relation"]].format(unit=row["unit"])
    noise = (
        "noise seeded by the operating system"
        if row["noise"] == "secure"
        else "noise that was only simulated, so that the guarantee is not valid for a release"
    )
    return (
        f"{what} is differentially private with epsilon = {spent} and delta = {row['delta']:g} "
        f"with respect to {change} ({row['relation']}), against anyone "
        f"{_SEES.get(row['view'], '')} ({row['view']} view), with {row['sampling']} and with "
        f"{noise}; for it to hold, a client has to trust {row['trusts']}."
    )


def meaning(row: dict[str, Any]) -> str:
    """What the figures mean, in plain words."""
    epsilon = float(row["epsilon"])
    if not np.isfinite(epsilon):
        return "In plain words: epsilon is infinite, so nothing is protected."
    factor = f" = {np.exp(epsilon):,.4g}" if epsilon <= _LARGEST else ""
    return (
        f"In plain words: if one {row['unit']}'s data were {_CHANGES[row['relation']]}, the "
        f"probability of any released result would change by at most a factor of "
        f"e^{figure(epsilon)}{factor}, except with probability {row['delta']:g}. The smaller "
        f"epsilon is, the less anybody can learn about a single {row['unit']}."
    )


def privacy_section(
    ledgers: Sequence[tuple[str, Path, dict[str, Any]]], *, points: int = POINTS
) -> Section:
    """The section of ledgers: each with a name, its place, and its row of `ledgers.spent`.

    `points` is how many epsilons are computed at most, about 20 ms each.
    """
    rows = [row for _, _, row in ledgers]
    blocks: list[Block] = [
        Text(guarantee_sentence(row, f"What was released by {name}")) for name, _, row in ledgers
    ]
    blocks += [Text(meaning(rows[0]))]
    blocks += [budget([name for name, _, _ in ledgers], rows)]
    spent = _over_rounds([(name, path) for name, path, _ in ledgers], points)
    blocks += [spent] if spent is not None else []
    kinds = {(row["view"], "rule of participation" in row["sampling"]): row for row in rows}
    blocks += [flow(view, correlated=matrix) for view, matrix in kinds]
    return Section("Privacy", tuple(blocks))


def budget(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> Stacked:
    """A bar for each ledger: what of its budget is spent, and what is left."""
    spent = tuple(float(row["epsilon"]) for row in rows)
    left = tuple(
        max(0.0, (row["budget"] or 0.0) - each) for row, each in zip(rows, spent, strict=True)
    )
    parts = {"spent": spent} | ({"left": left} if any(row["budget"] for row in rows) else {})
    text = "" if "left" in parts else "The ledger has no budget: it only records what is spent."
    title = "Budget: epsilon spent and left"
    return Stacked(title=title, labels=tuple(names), parts=parts, rest="left", text=text)


def _over_rounds(ledgers: Sequence[tuple[str, Path]], points: int) -> Curves | None:
    """Epsilon after each round for who sees what, computed anew from the events."""
    curves: list[Curve] = []
    several = len(ledgers) > 1
    for name, path in ledgers:
        terms, records = read(path)
        each = points // max(1, len(ledgers))
        by_view = _path(records, terms, most=max(2, each // 2))
        for adversary, path_of_epsilon in by_view.items():
            label = f"{name}: anyone who {adversary}" if several else f"anyone who {adversary}"
            rounds, spent = zip(*path_of_epsilon, strict=True)
            curves.append(Curve(name=label, x=rounds, y=spent, dashed="also" in adversary))
    if not curves:
        return None
    text = (
        "Each curve is what somebody can learn of one client at most, by what that person sees. "
        "For anybody who is missing here, nothing is proven."
    )
    return Curves(
        title="Epsilon over rounds",
        curves=tuple(curves),
        x_label="rounds charged",
        y_label="epsilon",
        text=text,
    )


def _path(records: list[Record], terms: Terms, *, most: int) -> dict[str, list[tuple[int, float]]]:
    """Points (rounds, epsilon) of each adversary for whom something is proven.

    Adversaries who learn as much as one before them have no curve of their own.
    """
    whole = sum(record["rounds"] for record in reservations(records))
    found: dict[str, list[tuple[int, float]]] = {}
    for number in sorted({round(each) for each in np.linspace(1, whole, most)} if whole else ()):
        part = [*_first(records, number)]
        try:
            spent = total(part, terms)
            for view in views(part, terms, spent):
                if view["epsilon"] is not None:
                    found.setdefault(view["adversary"], []).append((number, view["epsilon"]))
        except PrivacyError:  # mechanisms that have no common proof
            continue
    kept: dict[str, list[tuple[int, float]]] = {}
    for adversary, points in found.items():
        if points not in kept.values():
            kept[adversary] = points
    return kept


def _first(records: list[Record], number: int) -> Iterator[Record]:
    """The reservations of the first `number` rounds, the last of them cut short.

    What is charged as a whole is charged before its first round.
    """
    for record in reservations(records):
        if number <= 0:
            return
        rounds = min(number, record["rounds"])
        whole = record["count"] != record["rounds"]
        yield {**record, "rounds": rounds, "count": record["count"] if whole else rounds}
        number -= rounds


def flow(view: str, *, correlated: bool = False, asked: bool = False) -> Flow:
    """Who is trusted with what, for the view of a channel.

    `asked` says that clients answered one question (an estimate), and that no model was trained.
    """
    result = "answer" if asked else "shared model"
    client = {
        "central": "Keeps its data. Bounds the length of its message.",
        "local": "Keeps its data. Adds noise to its message before it leaves.",
        "masked": "Keeps its data. Adds its share of the noise and a mask to its message.",
    }
    kind = "noise that is correlated over rounds" if correlated else "noise"
    server = {
        "central": Party("Server", f"Draws who takes part, adds up messages, adds {kind}.", True),
        "local": Party("Server", "Sees every message, each with noise of its own.", False),
        "masked": Party(
            "Server",
            "Sees the sum with its noise, no single message; has to follow the protocol.",
            False,
        ),
    }
    passes = {
        "central": ("message, bounded", "sum with noise"),
        "local": ("message with noise", result),
        "masked": ("masked message", result),
    }
    if view not in server:
        view = "central"
    seen = "Sees the answer." if asked else "Sees the shared model after every round."
    return Flow(
        title="Who is trusted with what",
        parties=(
            Party("Client", client[view], True),
            server[view],
            Party("Everybody else", seen, False),
        ),
        passes=passes[view],
        text="" if asked else _OWN_MODEL,
    )


def limits(*, secure: bool, scores: bool, ledgers: int = 1) -> Notes:
    """What is not protected; `scores` says whether those of clients were written down."""
    notes = []
    if not secure:
        text = (
            "The noise is drawn from the run's seed, and whoever knows the seed can subtract it. "
            "The figures show what a run with secure noise would cost; nothing is protected here."
        )
        notes.append(Note("The noise is simulated.", text, "warning"))
    if scores:
        text = "They were computed on the clients' own test samples, and no noise covers them."
        notes.append(Note("Scores of single clients are not protected.", text, "warning"))
    notes += [
        Note(
            "Personal models are not protected.",
            "Each is made from its client's own data. Whoever is given one learns about them.",
        ),
        Note(
            "What was taken as public is not protected.",
            "The number of clients, the classes, the columns and the bound on samples per client "
            "were known before the run and are not covered by its noise.",
        ),
        Note(
            "That a client takes part may be seen by others.",
            "Traffic, the times of rounds and the lengths of messages tell who was there.",
        ),
        Note(
            "The guarantee is for one client at a time.",
            "A person with records at several clients is protected at each of them, not for all "
            "of them together.",
        ),
    ]
    if ledgers > 1:
        text = (
            "Each method and seed has a budget of its own. A client that took part in several "
            "trainings has spent more than each of them says."
        )
        notes.append(Note("Trainings add up.", text, "warning"))
    return Notes(tuple(notes))
