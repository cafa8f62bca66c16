"""What a site answers to the requests of a run: `hello`, `round`, `unmask` and `finish`.

Each answer is (facts, arrays). A site answers for an agreement that it has accepted, from its own
folder, and no request makes it send anything else.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.core import check
from fedprior.core.files import make_folder, read_json, write_json
from fedprior.core.protocols import is_private
from fedprior.data.federation import ClientData
from fedprior.exchange import client as client_side
from fedprior.exchange import memory as memories
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.memory import AskedTooOften
from fedprior.exchange.trees import Packed
from fedprior.sites.document import Document
from fedprior.sites.folder import Site

AgreementOf = Callable[[Document], Agreement]
Answered = tuple[dict[str, Any], Any]


class UnknownRequest(ValueError):
    """The server asks for something that no agreement provides for."""


class AnotherSeat(ValueError):
    """The server gives a client another number than before."""


def answer(site: Site, request: Packed, agreement_of: AgreementOf) -> Answered:
    """The answer to a request, or an exception."""
    document = site.agreed(request.facts["token"], request.facts.get("document"))
    do = _REQUESTS.get(request.facts["do"])
    if do is None:
        raise UnknownRequest(f"there is no request {request.facts['do']!r}.")
    return do(site, document, agreement_of(document), request)


def _hello(site: Site, document: Document, agreement: Agreement, request: Packed) -> Answered:
    """Who is here; with secure sums, the public keys of the clients' masks."""
    found: dict[str, Any] = {"clients": list(site.clients)}
    if _masked(agreement):
        from fedprior.privacy import masks

        found["masks"] = {
            name: masks.public_key(_mask_key(site, document, name)).hex() for name in site.clients
        }
    return found, {}


def _round(site: Site, document: Document, agreement: Agreement, request: Packed) -> Answered:
    """An upload for each client that is asked; one that fails does not concern the others."""
    state, digest = request.tree(agreement.shapes[0]), _digest(request)
    return _each(
        site, request, lambda name: _upload(site, document, agreement, state, digest, name, request)
    )


def _each(site: Site, request: Packed, answer: Callable[[str], dict[str, Any]]) -> Answered:
    """What every client answers by itself; who comes after one that took too long has no time."""
    failed: dict[str, str] = {}
    found: dict[str, Any] = {}
    late = False
    for name, asked in request.facts["clients"].items():
        try:
            if late:
                raise TimeoutError("another client of this node took too long.")
            found[str(asked["number"])] = answer(name)
        except Exception as error:
            late = late or isinstance(error, TimeoutError)
            failed[str(name)] = type(error).__name__
            site.log(error)
    return {"failed_clients": failed}, found


def _upload(
    site: Site,
    document: Document,
    agreement: Agreement,
    state: Any,
    digest: str,
    name: str,
    request: Packed,
) -> dict[str, Any]:
    """One client's upload, after its next memory and its turn are on disk."""
    asked, round = request.facts["clients"][name], request.facts["round"]
    check.count("request", least=0, round=round)
    number, masked = _seat(site, document, name, asked["number"]), _masked(agreement)
    own, channel = _training(site, document, name), agreement.channel
    if asked["accepted"] is not None and asked["accepted"] >= round:
        # From the memory after a round, the same round gives another message.
        before = f"accepted round {asked['accepted']} before round {round} was played."
        raise AskedTooOften(f"the server says that it {before}")
    with memories.held(site.folder / "memory", token=document.token, client=number) as kept:
        memory = kept.read(agreement.shapes[1], accepted=asked["accepted"])
        kept.take_turn(
            round,
            state=digest,
            rule=document.turns(agreement),
            drawn_anew=agreement.secure and is_private(channel) and channel.view != "central",
        )
        learned = client_side.attempt(agreement, state, memory, own, number, round)
        if masked:
            attempt = _attempt(document, agreement, request)
            _note_attempt(site, document, number, attempt.context.decode(), round)
        kept.write(learned.memory if bool(learned.finite) else memory, round=round)
    if not masked:
        return {"upload": client_side.encode(agreement, learned, number, round)}
    units = client_side.masked_units(agreement, learned, number, round)
    upload, sealed = attempt.mask(units, key=_mask_key(site, document, name), own=number)
    blobs = {str(other): np.frombuffer(blob, np.uint8) for other, blob in sealed.items()}
    return {"upload": upload, "sealed": blobs}


def _unmask(site: Site, document: Document, agreement: Agreement, request: Packed) -> Answered:
    """What the server needs to take the masks off the sum: once for an upload, for one set."""
    attempt = _attempt(document, agreement, request)
    return _each(site, request, lambda name: _reveal(site, document, attempt, name, request))


def _reveal(
    site: Site, document: Document, attempt: Any, name: str, request: Packed
) -> dict[str, Any]:
    """One client's shares, after it has noted for whom."""
    number = _seat(site, document, name, request.facts["clients"][name]["number"])
    alive, begin = sorted(request.facts["alive"]), f"sealed/{number}/"
    with memories.held(site.folder / "memory", token=document.token, client=number):
        path = _attempt_file(site, document, number)
        noted = read_json(path)
        if noted["context"] != attempt.context.decode() or noted["alive"] not in (None, alive):
            raise AskedTooOften("the masks of another upload, or of other clients, are asked for.")
        sealed = {
            int(place.removeprefix(begin)): blob.tobytes()
            for place, blob in request.arrays.items()
            if place.startswith(begin)
        }
        key = _mask_key(site, document, name)
        blob = attempt.reveal(key=key, own=number, alive=alive, sealed=sealed)
        write_json(path, {**noted, "alive": alive})
    return {"revealed": np.frombuffer(blob, np.uint8)}


def _attempt(document: Document, agreement: Agreement, request: Packed) -> Any:
    """The attempt that a request is part of; its context is of this run and round alone."""
    from fedprior.privacy import masks

    facts, channel = request.facts, agreement.channel
    assert isinstance(channel, DistributedGaussian)
    members = {int(number): bytes.fromhex(key) for number, key in facts["members"].items()}
    rule = f"{channel.size}, the cohort that was agreed on"
    check.require(len(members) == channel.size, "secure sum", "members", rule, len(members))
    context = f"{document.token} {int(facts['round'])} {facts['attempt']}".encode()
    return masks.Attempt(members=members, context=context, threshold=channel.fewest)


def _note_attempt(site: Site, document: Document, number: int, context: str, round: int) -> None:
    """Note an attempt before anything of it leaves; one that has begun before is refused.

    All attempts of the round are kept, also those that others have followed.
    """
    path = _attempt_file(site, document, number)
    before = read_json(path) if path.is_file() else {"round": None, "begun": []}
    begun = before["begun"] if before["round"] == round else []
    if context in begun:
        raise AskedTooOften("an upload of this attempt was sent before.")
    noted = {"round": round, "context": context, "alive": None, "begun": [*begun, context]}
    write_json(path, noted)


def _finish(site: Site, document: Document, agreement: Agreement, request: Packed) -> Answered:
    """Personal models from the last state, kept at the site; scores only where that was agreed."""
    from fedprior.sites.results import finish

    note, digest = _run_folder(site, document) / "finished.json", _digest(request)
    if note.is_file() and read_json(note)["state"] != digest:
        raise AskedTooOften("the run has ended with another state.")
    write_json(note, {"state": digest})
    scores = finish(site, document, agreement, request, seat=_seat, training=_training)
    agreed = bool(document.config["privacy"]["score_epsilon"])
    return {"scores": scores if agreed or site.share_scores else {}}, {}


_REQUESTS = {"hello": _hello, "round": _round, "unmask": _unmask, "finish": _finish}


def _training(site: Site, document: Document, name: str) -> ClientData:
    return document.facts.client_data(*site.samples(name)["train"])


def _seat(site: Site, document: Document, name: Any, number: Any) -> int:
    """The client's number in the run, which the server gives once and never changes."""
    check.choice("request", "client", name, site.clients)
    check.count("request", least=0, number=number)
    rule = f"below the number of clients ({document.facts.num_clients})"
    check.require(number < document.facts.num_clients, "request", "number", rule, number)
    path = _run_folder(site, document) / "seats.json"
    seats = read_json(path) if path.is_file() else {}
    if seats.get(name, number) != number or number in [
        seat for other, seat in seats.items() if other != name
    ]:
        raise AnotherSeat(f"client {name} has number {seats.get(name)}, not {number}.")
    if name not in seats:
        write_json(path, {**seats, name: int(number)})
    return int(number)


def _run_folder(site: Site, document: Document) -> Path:
    folder = site.folder / "memory" / document.token
    make_folder(folder)
    return folder


def _masked(agreement: Agreement) -> bool:
    return is_private(agreement.channel) and agreement.channel.view == "masked"


def _mask_key(site: Site, document: Document, name: str) -> bytes:
    """The client's own key of its masks in this run, made when it is first needed."""
    from fedprior.privacy import masks
    from fedprior.sites import keys

    path = _run_folder(site, document) / f"{site.clients.index(name)}.mask"
    if not path.is_file():
        keys.write_secret(path, masks.new_key())
    return path.read_bytes()


def _attempt_file(site: Site, document: Document, number: int) -> Path:
    return _run_folder(site, document) / f"{number}.attempt.json"


def _digest(request: Packed) -> str:
    """A hash of the state in a request."""
    digest = hashlib.sha256()
    for name in sorted(request.arrays):
        digest.update(f"{name} {request.arrays[name].dtype} {request.arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(request.arrays[name]).tobytes())
    return digest.hexdigest()[:32]
