"""Privacy on the page of an estimate: the guarantee, what it does not cover, and the budget."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedprior.estimation.page.answer import Summarized, known
from fedprior.pages.page import Block, Flow, Note, Notes, Page, Party, Section, Stacked
from fedprior.privacy.guarantee import shown

_EXPOSED = Note(
    "The groups on this page are not protected",
    "They are shown as they are, as --release-groups requested. The guarantee covers the "
    "population alone, and anybody who has this page sees the groups' own numbers.",
    "warning",
)


def sections(answer: Summarized) -> list[Section]:
    """The guarantee in a sentence, who sees what, and what the ledger says."""
    found = answer.summary.get("privacy")
    if not found:
        return []
    notes = [*[_EXPOSED] * (answer.table is not None), *_notes(found)]
    blocks: list[Block] = [Notes(tuple(notes)), _flow(found)]
    if answer.summary.get("ledger"):
        blocks += _budget(answer.summary["ledger"])
    return [Section("Privacy", tuple(blocks), text=sentence(found))]


def sentence(found: Mapping[str, Any]) -> str:
    """The guarantee, as one sentence that can be quoted."""
    epsilon, delta = known(found["epsilon"]), known(found.get("delta"))
    factor = shown(math.exp(epsilon), digits=3) if epsilon < 50 else f"e^{epsilon:g}"
    rest = f", except with probability {delta:g}" if delta > 0 else ""
    return (
        f"Whatever else is known: if {found['unit']} had been different, the probability of what "
        f"was sent would have changed by at most a factor of {factor}{rest} "
        f"(differential privacy with epsilon = {shown(epsilon, digits=6)}"
        + (f", delta = {delta:g}" if delta > 0 else "")
        + f"; {found['neighbors']})."
    )


def _notes(found: Mapping[str, Any]) -> list[Note]:
    valid = bool(found.get("valid_for_release"))
    release = (
        "It was seeded by the operating system and cannot be reproduced."
        if valid
        else "It was simulated from a seed, so that it can be reproduced. The result is not valid "
        "for release."
    )
    return [
        Note("Mechanism", f"Each group sent {found['mechanism']}."),
        Note("Noise", release, "good" if valid else "warning"),
        Note(
            "Not protected",
            "That a group takes part, the number of groups and the size of each count as public.",
        ),
    ]


def _flow(found: Mapping[str, Any]) -> Flow:
    trusted = not str(found["trust"]).startswith("nobody")
    return Flow(
        title="Who sees what",
        parties=(
            Party("A group", "keeps its own data", True),
            Party("Whoever collects", "sees private reports only", trusted),
            Party("Everybody else", "may see the population", False),
        ),
        passes=("one private report", "the population"),
        text=f"Trusted: {found['trust']}.",
    )


def _budget(spent: Mapping[str, Any]) -> list[Block]:
    epsilon, budget = known(spent["epsilon"]), known(spent.get("budget"))
    text = f"Total of all questions recorded in the ledger {Path(spent['file']).name}."
    parts: dict[str, tuple[float, ...]] = {"spent": (epsilon,)}
    if math.isfinite(budget):
        parts["left"] = (max(budget - epsilon, 0.0),)
    else:
        text += " It has no limit: --budget sets one."
    return [Stacked(title="Epsilon", labels=("epsilon",), parts=parts, rest="left", text=text)]


def command_text(answer: Summarized) -> str:
    """What the command of the page does if it is run again."""
    if not answer.summary.get("privacy"):
        return Page.command_text
    if "--seed" not in (answer.summary.get("settings") or {}):
        return "This command asks again, with new noise, and spends its epsilon again:"
    return "This command gives the same answer again, and spends its epsilon again:"
