"""What a site answers to the requests of a run: `hello`, `round`, `unmask` and `finish`.

Each answer is (facts, arrays). A site answers for an agreement that it has accepted, from its own
folder, and no request makes it send anything else.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.core import check
from fedprior.core.files import read_json, write_json
from fedprior.core.protocols import is_private
from fedprior.exchange import client as client_side
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.memory import AskedTooOften
from fedprior.exchange.trees import Packed
from fedprior.sites.asked import Asked
from fedprior.sites.document import Document
from fedprior.sites.folder import Site

AgreementOf = Callable[[Document], Agreement]
Answered = tuple[dict[str, Any], Any]


class UnknownRequest(ValueError):
    """The server asks for something that no agreement provides for."""


def answer(site: Site, request: Packed, agreement_of: AgreementOf) -> Answered:
    """The answer to a request, or an exception."""
    document = site.agreed(request.facts["token"], request.facts.get("document"))
    do = _REQUESTS.get(request.facts["do"])
    if do is None:
        raise UnknownRequest(f"there is no request {request.facts['do']!r}.")
    return do(Asked(site, document, agreement_of(document), request))


def _hello(asked: Asked) -> Answered:
    """Who is here; with secure sums, the public keys of the clients' masks."""
    names = asked.site.clients
    found: dict[str, Any] = {"clients": list(names)}
    if asked.masked:
        from fedprior.privacy import masks

        found["masks"] = {name: masks.public_key(_mask_key(asked, name)).hex() for name in names}
    return found, {}


def _round(asked: Asked) -> Answered:
    """An upload for each client that is asked; one that fails does not concern the others."""
    _ = asked.state  # a state that does not fit concerns all of them
    return _each(asked, lambda name: _upload(asked, name))


def _each(asked: Asked, answer: Callable[[str], dict[str, Any]]) -> Answered:
    """What every client answers by itself; who comes after one that took too long has no time."""
    failed: dict[str, str] = {}
    found: dict[str, Any] = {}
    late = False
    for name, told in asked.facts["clients"].items():
        try:
            if late:
                raise TimeoutError("another client of this node took too long.")
            found[str(told["number"])] = answer(name)
        except Exception as error:
            late = late or isinstance(error, TimeoutError)
            failed[str(name)] = type(error).__name__
            asked.site.log(error)
    return {"failed_clients": failed}, found


def _upload(asked: Asked, name: str) -> dict[str, Any]:
    """One client's upload, after its next memory and its turn are on disk."""
    agreement, round = asked.agreement, asked.facts["round"]
    accepted, channel = asked.facts["clients"][name]["accepted"], agreement.channel
    check.count("request", least=0, round=round)
    number = asked.seat(name)
    own = asked.training(name)
    if accepted is not None and accepted >= round:
        # From the memory after a round, the same round gives another message.
        before = f"accepted round {accepted} before round {round} was played."
        raise AskedTooOften(f"the server says that it {before}")
    with asked.memory(number) as kept:
        memory = kept.read(agreement.shapes[1], accepted=accepted)
        kept.take_turn(
            round,
            state=asked.digest,
            rule=asked.document.turns(agreement),
            drawn_anew=agreement.secure and is_private(channel) and channel.view != "central",
        )
        learned = client_side.attempt(agreement, asked.state, memory, own, number, round)
        if asked.masked:
            attempt = _attempt(asked)
            _note_attempt(asked, number, attempt.context.decode(), round)
        kept.write(learned.memory if bool(learned.finite) else memory, round=round)
    if not asked.masked:
        return {"upload": client_side.encode(agreement, learned, number, round)}
    units = client_side.masked_units(agreement, learned, number, round)
    upload, sealed = attempt.mask(units, key=_mask_key(asked, name), own=number)
    blobs = {str(other): np.frombuffer(blob, np.uint8) for other, blob in sealed.items()}
    return {"upload": upload, "sealed": blobs}


def _unmask(asked: Asked) -> Answered:
    """What the server needs to take the masks off the sum: once for an upload, for one set."""
    attempt = _attempt(asked)
    return _each(asked, lambda name: _reveal(asked, attempt, name))


def _reveal(asked: Asked, attempt: Any, name: str) -> dict[str, Any]:
    """One client's shares, after it has noted for whom."""
    number = asked.seat(name)
    alive, begin = sorted(asked.facts["alive"]), f"sealed/{number}/"
    with asked.memory(number):
        path = _attempt_file(asked, number)
        noted = read_json(path)
        if noted["context"] != attempt.context.decode() or noted["alive"] not in (None, alive):
            raise AskedTooOften("the masks of another upload, or of other clients, are asked for.")
        sealed = {
            int(place.removeprefix(begin)): blob.tobytes()
            for place, blob in asked.request.arrays.items()
            if place.startswith(begin)
        }
        key = _mask_key(asked, name)
        blob = attempt.reveal(key=key, own=number, alive=alive, sealed=sealed)
        write_json(path, {**noted, "alive": alive})
    return {"revealed": np.frombuffer(blob, np.uint8)}


def _attempt(asked: Asked) -> Any:
    """The attempt that a request is part of; its context is of this run and round alone."""
    from fedprior.privacy import masks

    facts, channel = asked.facts, asked.agreement.channel
    assert isinstance(channel, DistributedGaussian)
    members = {int(number): bytes.fromhex(key) for number, key in facts["members"].items()}
    rule = f"{channel.size}, the cohort that was agreed on"
    check.require(len(members) == channel.size, "secure sum", "members", rule, len(members))
    context = f"{asked.document.token} {int(facts['round'])} {facts['attempt']}".encode()
    return masks.Attempt(members=members, context=context, threshold=channel.fewest)


def _note_attempt(asked: Asked, number: int, context: str, round: int) -> None:
    """Note an attempt before anything of it leaves; one that has begun before is refused.

    All attempts of the round are kept, also those that others have followed.
    """
    path = _attempt_file(asked, number)
    before = read_json(path) if path.is_file() else {"round": None, "begun": []}
    begun = before["begun"] if before["round"] == round else []
    if context in begun:
        raise AskedTooOften("an upload of this attempt was sent before.")
    noted = {"round": round, "context": context, "alive": None, "begun": [*begun, context]}
    write_json(path, noted)


def _finish(asked: Asked) -> Answered:
    """Personal models from the last state, kept at the site; scores only where that was agreed."""
    from fedprior.sites.results import finish

    note = asked.folder / "finished.json"
    if note.is_file() and read_json(note)["state"] != asked.digest:
        raise AskedTooOften("the run has ended with another state.")
    write_json(note, {"state": asked.digest})
    scores = finish(asked)
    agreed = bool(asked.document.config["privacy"]["score_epsilon"])
    return {"scores": scores if agreed or asked.site.share_scores else {}}, {}


_REQUESTS = {"hello": _hello, "round": _round, "unmask": _unmask, "finish": _finish}


def _mask_key(asked: Asked, name: str) -> bytes:
    """The client's own key of its masks in this run, made when it is first needed."""
    from fedprior.privacy import masks
    from fedprior.sites import keys

    path = asked.folder / f"{asked.site.clients.index(name)}.mask"
    if not path.is_file():
        keys.write_secret(path, masks.new_key())
    return path.read_bytes()


def _attempt_file(asked: Asked, number: int) -> Path:
    return asked.folder / f"{number}.attempt.json"
