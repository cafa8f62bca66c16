"""What the server does in a round, from the agreement and what the clients sent.

A round with a ledger goes in this order: `open_round` (reserve, then draw), collect, `admit` each
upload by itself, `close_round` (add in client order, decode, update), save a checkpoint, and
`ledger.commit()`. If the channel keeps secrets between rounds, `release_round` takes the place of
`close_round`, and the checkpoint, with secrets and attendance, is saved before the state is sent.
If uploads are added under masks, nobody admits single ones, and `release_sum` takes the sum.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.core import random, tree
from fedprior.core.algorithm import Array, Key, Message, PyTree, State
from fedprior.core.check import PrivacyError
from fedprior.core.programs import called
from fedprior.core.protocols import is_private
from fedprior.exchange.agreement import Agreement, Rules
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.participation import Attendance
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
    if view != "central" and terms.relation != "replace-one":
        raise PrivacyError(
            f"ledger: relation must be replace-one for a {view} channel, got {terms.relation}. "
            "The server sees which clients take part."
        )


def open_round(
    agreement: Agreement,
    round: int,
    *,
    ledger: Ledger | None = None,
    source: str | None = None,
    attendance: Attendance | None = None,
) -> np.ndarray | None:
    """Reserve the round on the ledger, then draw its clients; None where the budget ends.

    `source`, required with a ledger, names the run that releases the round: the ledger takes a
    round that the same source repeats with simulated noise for the same release. The draw comes
    after the reservation, so that whatever happens to the round later, it has been charged.
    `attendance` is who took part before, required where the channel has a rule for it.
    """
    check_ledger(agreement, ledger)
    if agreement.rule is not None and attendance is None:
        raise PrivacyError(
            "open_round: a channel with a rule of participation must know who took part before. "
            "Pass attendance=agreement.attendance(), the same one in every round."
        )
    if ledger is not None:
        if not source:
            raise PrivacyError("ledger: a round must name the run it belongs to. Pass source=...")
        paid = attendance or agreement.attendance()
        if not reserve(agreement, ledger, paid, first=round, rounds=1, source=source):
            return None
    clients = agreement.draw(round)
    return clients if attendance is None else attendance.admit(round, clients)


def reserve(
    agreement: Agreement,
    ledger: Ledger,
    attendance: Attendance,
    *,
    first: int,
    rounds: int,
    source: str,
) -> int:
    """Record and return how many of the rounds starting with `first` may run.

    A channel that correlates its rounds is charged for all of them before the first, and again
    where a server that lost rounds with secure noise plays them anew: what it released of them and
    what it will release are two mechanisms, each of which moves by at most the sensitivity. If it
    kept some rounds, the second one is not amplified by sampling: it contains the clear sums of
    these rounds, and the releases that were lost told of their cohorts.
    """
    event, count = agreement.charge
    channel, draws, rule = agreement.channel, agreement.draws, agreement.rule
    if rule is not None and agreement.secure and first and is_private(channel):
        event, count = channel.event(agreement.length), 1
    if rule is None:
        return ledger.reserve(event, first=first, rounds=rounds, source=source, draws=draws)
    while True:
        if not attendance.paid:
            granted = ledger.reserve(
                event, first=0, rounds=rule.rounds, source=source, draws=draws, count=count
            )
            attendance.paid = granted == rule.rounds
        if not attendance.paid:
            return 0
        if not agreement.secure or ledger.begin(source, first=first, rounds=rounds):
            return rounds
        attendance.paid = False  # these rounds have begun before, and count as released


def admit(agreement: Agreement, upload: Any) -> np.ndarray:
    """The upload as it may be added: of the agreed type and length, finite, and no longer than
    the channel allows.

    A client may send anything, so its clip is enforced again, and a weight, where one is sent, is
    at most a client's number of samples. An honest upload passes unchanged.
    """
    length = agreement.length
    if not isinstance(upload, np.ndarray) or upload.dtype != np.float32:
        kind = getattr(upload, "dtype", type(upload).__name__)
        raise RefusedUpload(f"an upload must be a float32 array, got {kind}.")
    if upload.shape != (length,):
        raise RefusedUpload(f"an upload must have shape {(length,)}, got {upload.shape}.")
    if not np.isfinite(upload).all():
        raise RefusedUpload("an upload must be finite, got NaN or infinity.")
    if not agreement.channel.private:
        heaviest = 1 if agreement.algorithm.unit_weight else (agreement.facts.most_samples or 1)
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


def close_round(
    agreement: Agreement,
    state: State,
    uploads: Mapping[int, Array],
    round: int,
    *,
    compiled: bool = True,
) -> State:
    """The next state from the admitted uploads, by client id.

    To be called once per round: with secure noise, a second call would be a second release. If the
    channel keeps secrets from round to round, call `release_round`.
    """
    secrets = agreement.secrets()
    if tree.size(secrets):
        raise PrivacyError(
            f"close_round: {type(agreement.channel).__name__} keeps secrets between rounds. Call "
            "release_round with those of the round before."
        )
    return release_round(agreement, state, secrets, uploads, round, compiled=compiled)[0]


def release_round(
    agreement: Agreement,
    state: State,
    secrets: PyTree,
    uploads: Mapping[int, Array],
    round: int,
    *,
    compiled: bool = True,
) -> tuple[State, PyTree]:
    """The next state, and what the channel keeps secret after this round.

    `secrets` begin with `agreement.secrets()`; save them with the state, and never send them.
    """
    known = all(0 <= client < agreement.num_clients for client in uploads)
    if len(uploads) > agreement.capacity or not known:
        raise ValueError(
            f"close_round: uploads must be of at most {agreement.capacity} clients with numbers "
            f"below {agreement.num_clients}, got {len(uploads)} from {sorted(uploads)[-3:]}."
        )
    rows = [uploads[client] for client in sorted(uploads)]  # never in order of arrival
    if agreement.algorithm.pools == "gather":
        return called(_update, compiled)(agreement.rules, state, _gather(agreement, rows)), secrets
    return _release(agreement, state, secrets, add(agreement, rows), round, compiled=compiled)


def release_sum(
    agreement: Agreement,
    state: State,
    secrets: PyTree,
    units: np.ndarray,
    round: int,
    *,
    compiled: bool = True,
) -> tuple[State, PyTree]:
    """The same from the sum of the round's uploads in `units` (int64), as masks reveal it.

    Like `release_round`, it is to be called once per round. The sum must be of at least
    `agreement.channel.fewest` clients of the round: with fewer, it has less noise than was charged.
    """
    import jax.numpy as jnp

    channel = agreement.channel
    if not isinstance(channel, DistributedGaussian):
        raise PrivacyError(
            f"release_sum: channel must be a DistributedGaussian, whose noise is in the sum, got "
            f"{channel!r}."
        )
    rule = (agreement.length,)
    if units.shape != rule:
        raise ValueError(f"release_sum: units must have shape {rule}, got {units.shape}.")
    total = jnp.asarray(channel.total(units))
    return _release(agreement, state, secrets, total, round, compiled=compiled)


def _release(
    agreement: Agreement,
    state: State,
    secrets: PyTree,
    total: Array,
    round: int,
    *,
    compiled: bool,
) -> tuple[State, PyTree]:
    """The next state from the sum of the uploads, and the channel's secrets after this round."""
    rules = agreement.rules
    key = random.fold(agreement.keys().channel, "decode", np.int32(round))
    message, secrets = receive(rules, total, agreement.message, key, secrets)
    return called(_update, compiled)(rules, state, message), secrets


def add(agreement: Agreement, rows: list[Array]) -> Array:
    """The sum of the uploads as the channel takes it, one after the other."""
    import jax.numpy as jnp

    channel = agreement.channel
    total = channel.add(jnp.zeros((1, agreement.length), jnp.float32))
    for row in rows:
        total = total + channel.add(jnp.asarray(row)[None])
    return total


def receive(
    rules: Rules, total: Array, like: Message, key: Key, secrets: PyTree
) -> tuple[Message, PyTree]:
    """The decoded sum as a message, and the channel's secrets after it.

    A private channel's weight is the public expected size.
    """
    import jax.numpy as jnp

    total, secrets = rules.channel.release(total, key, secrets)
    if not rules.channel.private:
        return tree.unflatten(total, like), secrets
    weight = jnp.asarray(rules.expected_size, jnp.float32)
    return Message(tree.unflatten(total, like.value), weight), secrets


def _gather(agreement: Agreement, rows: list[Array]) -> Message:
    """Every message by itself, with a leading axis; places that nobody took are zero."""
    import jax
    import jax.numpy as jnp

    vectors = jnp.zeros((agreement.capacity, agreement.length), jnp.float32)
    if rows:
        vectors = vectors.at[: len(rows)].set(jnp.stack([jnp.asarray(row) for row in rows]))
    return jax.vmap(lambda vector: tree.unflatten(vector, agreement.message))(vectors)


def _update(rules: Rules, state: State, total: Message) -> State:
    return rules.algorithm.update(state, total)
