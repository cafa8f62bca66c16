"""What an agreement promises its clients, for each who might look, in figures and in words."""

import math
from typing import Any

from fedprior.core.protocols import is_private
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.guarantee import shown
from fedprior.reporting.ledgers import TRUSTS
from fedprior.sites.document import Document


def guarantee(document: Document) -> dict[str, Any] | None:
    """Epsilon for who sees models, and for who also sees traffic; None for a clear run.

    Traffic shows in which rounds a client took part, and sampling then hides nothing. `turns` maps
    how often a client took part, as often as can be expected and as often as it may, to epsilon.
    """
    agreement, privacy = document.agreement, document.config["privacy"]
    channel, number = agreement.channel, agreement.num_clients
    if not is_private(channel):
        return None
    terms = {"delta": privacy["delta"], "relation": privacy["relation"]}
    rounds, (event, count) = document.training.rounds, agreement.charge
    rule, plain = document.turns(agreement), channel.event(agreement.length)
    expected = math.ceil(rounds * agreement.cohort.expected_size(number) / number)
    turns = {}
    for times in sorted({min(expected, rule.most), rule.most}):
        composed = times if agreement.rule is None else 1  # a whole run is one event
        turns[str(times)] = epsilon([(plain, composed)], **terms)
    return {
        **terms,
        "models": epsilon([(event, rounds if count is None else count)], **terms),
        "turns": turns,
        "budget": privacy["epsilon"],
        "trusts": TRUSTS[channel.view],
        "noise": channel.noise,
    }


def counted(clients: int) -> str:
    """How many clients, in words."""
    return "1 client" if clients == 1 else f"{clients:,} clients"


def sentences(document: Document) -> list[str]:
    """What a site agrees to, line by line."""
    training, clients = document.training, counted(document.facts.num_clients)
    lines = [
        f"{document.method}, {training.rounds} rounds, {clients}; a message has "
        f"{document.agreement.length:,} numbers. Agreement {document.token}."
    ]
    promised = guarantee(document)
    if promised is None:
        return [*lines, "No privacy: the server sees every client's message as it is."]
    lines += _private(promised)
    if promised["noise"] == "simulated":
        lines.append("The noise is simulated, for a rehearsal: nothing is valid for release.")
    return lines


def _private(promised: dict[str, Any]) -> list[str]:
    turns = [
        f"{shown(value, digits=4)} if it took part in {times} rounds"
        for times, value in promised["turns"].items()
    ]
    return [
        f"Who sees the models learns of a client at most epsilon "
        f"{shown(promised['models'], digits=4)} at delta {promised['delta']:g} "
        f"({promised['relation']}).",
        f"Who also sees the traffic, and so in which rounds a client took part: "
        f"{', '.join(turns)}.",
        f"A client trusts {promised['trusts']}.",
    ]
