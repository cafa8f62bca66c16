"""One round of one cohort: the client side of the exchange as a batch, then its server side."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedprior.core import random, tree
from fedprior.core.algorithm import Array, Key, Memory, Message, PyTree, State
from fedprior.data.federation import ClientData
from fedprior.engines.batch import over_clients
from fedprior.engines.mesh import added
from fedprior.exchange import client as client_side
from fedprior.exchange.agreement import Keys, Rules
from fedprior.exchange.server import receive

COUNTS = ("clients", "left_out")  # of an entry in the history


class Outcome(NamedTuple):
    """The new state after a round, and the new memories of the accepted clients."""

    state: State
    secrets: PyTree  # of the channel
    memories: Memory  # of the whole cohort; valid where `accepted`
    accepted: Array  # present and finite: the messages of these clients are in the total
    left_out: Array  # number of present clients whose update was not finite

    def entry(self) -> dict[str, Array]:
        """Return the round's entry in the history; the counts are those of this shard."""
        counts = (jnp.sum(self.accepted), self.left_out)
        return {**scalars(self.state), **dict(zip(COUNTS, counts, strict=True))}


def play(
    rules: Rules,
    *,
    state: State,
    secrets: PyTree,
    memories: Memory,
    enrolled: Array,
    data: ClientData,
    axes: ClientData,
    clients: Array,
    present: Array,
    round: Array,
    keys: Keys,
    axis: str | None = None,
) -> Outcome:
    """State <- update(decode(sum of uploads)), with the cohort as a batch axis.

    Slots of the cohort that are not `present` are padding and add exactly zero. So does a client
    whose message or memory is not finite; its memory is not changed. On one of several shards, the
    clients are those of the shard, and `axis` is the name of the axis over which shards add up.
    """
    memories = recall(rules, state, memories, enrolled, clients, keys.root)

    like: list[Message] = []  # shapes of a message, known once a client has been traced

    def send(
        memory: Memory, own: ClientData, slot: tuple[Array, Array]
    ) -> tuple[Array, tuple[Memory, Array]]:
        client, here = slot
        message, after, finite = client_side.learn(
            rules, state, memory, own, client, round, keys.root
        )
        like.append(jax.eval_shape(lambda: message))
        return _upload(rules, message, client, here, finite, round, keys), (after, finite)

    gathers = rules.algorithm.pools == "gather"
    sent, (after, finite) = over_clients(
        send,
        memories,
        data,
        (clients, present),
        axes=axes,
        at_once=rules.at_once,
        add=None if gathers else rules.channel.add,
        copied=state,
    )
    total, secrets = _pooled(rules, sent, like[0], round, keys, secrets, axis)
    state = rules.algorithm.update(state, total)
    return Outcome(state, secrets, after, present & finite, jnp.sum(present & ~finite))


def recall(
    rules: Rules, state: State, memories: Memory, enrolled: Array, clients: Array, root: Key
) -> Memory:
    """Return the clients' memories; clients without one are enrolled."""
    fresh = jax.vmap(lambda client: client_side.enroll(rules, state, client, root))(clients)
    return jax.vmap(tree.where)(enrolled, memories, fresh)


def pool(
    rules: Rules,
    messages: Message,
    present: Array,
    finite: Array,
    clients: Array,
    round: Array,
    keys: Keys,
    secrets: PyTree = (),
    *,
    axis: str | None = None,
) -> tuple[Message, PyTree]:
    """Return what the server sees: the sum of all uploads or, for `gather`, each of them.

    Also return the channel's secrets after it. What follows the sum is computed on every shard
    with the same keys: its noise is one draw.
    """

    def upload(message: Message, client: Array, here: Array, sound: Array) -> Array:
        return _upload(rules, message, client, here, sound, round, keys)

    sent = jax.vmap(upload)(messages, clients, present, finite)
    if rules.algorithm.pools != "gather":
        sent = rules.channel.add(sent)
    like = jax.tree.map(lambda leaf: leaf[0], messages)
    return _pooled(rules, sent, like, round, keys, secrets, axis)


def _upload(
    rules: Rules,
    message: Message,
    client: Array,
    here: Array,
    sound: Array,
    round: Array,
    keys: Keys,
) -> Array:
    key = client_side.upload_key(keys, round, client)
    return jnp.where(here, client_side.send(rules, message, sound, key), 0)


def _pooled(
    rules: Rules,
    sent: Array,
    like: Message,
    round: Array,
    keys: Keys,
    secrets: PyTree,
    axis: str | None,
) -> tuple[Message, PyTree]:
    """What the server makes of the sum of uploads or, for `gather`, of each of them."""
    if rules.algorithm.pools == "gather":
        sent = sent if axis is None else jax.lax.all_gather(sent, axis, tiled=True)
        return jax.vmap(lambda vector: tree.unflatten(vector, like))(sent), secrets
    key = random.fold(keys.channel, "decode", round)
    return receive(rules, added(sent, axis), like, key, secrets)


def scalars(state: State) -> dict[str, Array]:
    """Return the floating-point scalars of the state by name (`psi`), for the history."""
    return {
        name.rsplit("/", 1)[-1]: leaf
        for name, leaf in tree.names(state).items()
        if jnp.ndim(leaf) == 0 and jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)
    }
