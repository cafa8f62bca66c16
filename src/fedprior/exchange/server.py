"""What the server does in a round, from the agreement and what the clients sent.

A round with a ledger goes in this order: `open_round` (reserve, then draw), collect, `admit` each
upload by itself, `close_round` (add in client order, decode, update), save a checkpoint, and
`ledger.commit()`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fedprior.core import random, tree
from fedprior.core.algorithm import Array, Key, Message, State
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import is_private
from fedprior.exchange.agreement import Agreement, Rules
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.plans import check_delta_below


class RefusedUpload(ValueError):
    """An upload that does not belong in the sum, and why."""


def check_ledger(agreement: Agreement, ledger: Ledger | None) -> None:
    """Raise PrivacyError unless the ledger records what the agreement's rounds really cost."""
    channel = agreement.channel
    if ledger is not None and not is_private(channel):
        raise PrivacyError(f"ledger: the channel must be private, got {channel!r}.")
    view = channel.view if is_private(channel) else None
    check_terms(ledger, view=view, noise=channel.noise, num_clients=agreement.num_clients)


def check_terms(ledger: Ledger | None, *, view: str | None, noise: str, num_clients: int) -> None:
    """Raise PrivacyError unless the ledger is kept in the terms of a channel, if it needs one."""
    if ledger is None:
        if noise == "secure":
            raise PrivacyError("ledger: secure noise must be recorded. Pass ledger=Ledger(...).")
        return
    terms = ledger.terms
    check_delta_below(terms.delta, num_clients, allowed=terms.allow_delta)
    if ledger.within is not None:
        check_terms(ledger.within, view=view, noise=noise, num_clients=num_clients)
    for name, wanted in (("view", view), ("noise", noise)):
        got = getattr(terms, name)
        if wanted != got:
            raise PrivacyError(f"ledger: {name} must be the channel's, {wanted}, got {got}.")
    if view == "local" and terms.relation != "replace-one":
        raise PrivacyError(
            f"ledger: relation must be replace-one for a local channel, got {terms.relation}. A "
            "visible upload reveals that its client takes part."
        )


def open_round(
    agreement: Agreement, round: int, *, ledger: Ledger | None = None, source: str | None = None
) -> np.ndarray | None:
    """Reserve the round on the ledger, then draw its clients; None where the budget ends.

    `source`, required with a ledger, names the run that releases the round: the ledger takes a
    round that the same source repeats with simulated noise for the same release. The draw comes
    after the reservation, so that whatever happens to the round later, it has been charged.
    """
    check_ledger(agreement, ledger)
    if ledger is not None:
        if not source:
            raise PrivacyError("ledger: a round must name the run it belongs to. Pass source=...")
        reserved = ledger.reserve(
            agreement.event, first=round, rounds=1, source=source, draws=agreement.draws
        )
        if not reserved:
            return None
    return agreement.draw(round)


def admit(agreement: Agreement, upload: Any) -> np.ndarray:
    """The upload as it may be added: of the agreed type and length, finite, and no longer than
    the channel allows.

    A client may send anything, so its clip is enforced again, and a weight, where one is sent, is
    at most a client's number of samples. An honest upload passes unchanged.
    """
    length = upload_length(agreement)
    if not isinstance(upload, np.ndarray) or upload.dtype != np.float32:
        kind = getattr(upload, "dtype", type(upload).__name__)
        raise RefusedUpload(f"an upload must be a float32 array, got {kind}.")
    if upload.shape != (length,):
        raise RefusedUpload(f"an upload must have shape {(length,)}, got {upload.shape}.")
    if not np.isfinite(upload).all():
        raise RefusedUpload("an upload must be finite, got NaN or infinity.")
    if not agreement.channel.private:
        heaviest = 1 if agreement.algorithm.unit_weight else agreement.facts.most_samples
        if not 0 <= upload[-1] <= heaviest:
            raise RefusedUpload(f"a weight must be in [0, {heaviest}], got {upload[-1]:g}.")
    longest = agreement.channel.longest(length)
    if longest is None:
        return upload
    exact = upload.astype(np.float64)  # in float32, the factor of a huge upload would be rounded
    norm = float(np.linalg.norm(exact))
    if norm <= longest:
        return upload
    # A little shorter than the bound: rounding to float32 may lengthen it again.
    return (exact * (longest / norm * (1 - 2.0**-20))).astype(np.float32)


def upload_length(agreement: Agreement) -> int:
    """Coordinates of one upload: the message's, and its weight unless the channel is private."""
    message = agreement.message
    return tree.size(message.value if agreement.channel.private else message)


def close_round(
    agreement: Agreement,
    state: State,
    uploads: Mapping[int, Array],
    round: int,
    *,
    compiled: bool = True,
) -> State:
    """The next state from the admitted uploads, by client id.

    To be called once per round: with secure noise, a second call would be a second release.
    """
    rules = agreement.rules
    known = all(0 <= client < agreement.num_clients for client in uploads)
    if len(uploads) > agreement.capacity or not known:
        raise ValueError(
            f"close_round: uploads must be of at most {agreement.capacity} clients with numbers "
            f"below {agreement.num_clients}, got {len(uploads)} from {sorted(uploads)[-3:]}."
        )
    rows = [uploads[client] for client in sorted(uploads)]  # never in order of arrival
    if rules.algorithm.pools == "gather":
        total = _gather(agreement, rows)
    else:
        key = random.fold(agreement.keys().channel, "decode", np.int32(round))
        total = receive(rules, add(agreement, rows), agreement.message, key)
    return (_jitted() if compiled else _update)(rules, state, total)


def add(agreement: Agreement, rows: list[Array]) -> Array:
    """The sum of the uploads as the channel takes it, one after the other."""
    import jax.numpy as jnp

    channel = agreement.channel
    total = channel.add(jnp.zeros((1, upload_length(agreement)), jnp.float32))
    for row in rows:
        total = total + channel.add(jnp.asarray(row)[None])
    return total


def receive(rules: Rules, total: Array, like: Message, key: Key) -> Message:
    """The decoded sum as a message; a private channel's weight is the public expected size."""
    import jax.numpy as jnp

    total = rules.channel.decode(total, key)
    if not rules.channel.private:
        return tree.unflatten(total, like)
    weight = jnp.asarray(rules.expected_size, jnp.float32)
    return Message(tree.unflatten(total, like.value), weight)


def _gather(agreement: Agreement, rows: list[Array]) -> Message:
    """Every message by itself, with a leading axis; places that nobody took are zero."""
    import jax
    import jax.numpy as jnp

    vectors = jnp.zeros((agreement.capacity, upload_length(agreement)), jnp.float32)
    if rows:
        vectors = vectors.at[: len(rows)].set(jnp.stack([jnp.asarray(row) for row in rows]))
    return jax.vmap(lambda vector: tree.unflatten(vector, agreement.message))(vectors)


def _update(rules: Rules, state: State, total: Message) -> State:
    return rules.algorithm.update(state, total)


@lru_cache
def _jitted() -> Any:
    import jax

    return jax.jit(_update, static_argnums=0)
