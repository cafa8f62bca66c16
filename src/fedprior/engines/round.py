"""One round of one cohort, the same pure function in every vectorized engine."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedprior.core import random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State
from fedprior.core.protocols import Channel
from fedprior.data.federation import ClientData
from fedprior.engines.batch import over_clients


class Outcome(NamedTuple):
    """A round's new state, and the memories that accepted clients keep from it."""

    state: State
    memories: Memory  # of the whole cohort; of use where `accepted`
    accepted: Array  # present and finite: these clients' messages are in the total
    left_out: Array  # number of present clients whose update was not finite


def play(
    algorithm: Algorithm,
    channel: Channel,
    expected_size: float,
    *,
    state: State,
    memories: Memory,
    enrolled: Array,
    data: ClientData,
    axes: ClientData,
    clients: Array,
    present: Array,
    round: Array,
    root: Key,
    channel_root: Key,
) -> Outcome:
    """State <- update(decode(sum of encode(local(...)))), over the cohort as a batch axis.

    Slots of the cohort that are not `present` are padding and add exactly zero; so does a client
    whose message or memory turned non-finite, and that client's memory stays as it was. What the
    channel draws comes from `channel_root` (`Run.channel_root`), all else from `root`.
    """
    memories = recall(algorithm, state, memories, enrolled, clients, root)
    keys = jax.vmap(lambda client: random.fold(root, "local", round, client))(clients)

    def local(memory: Memory, own: ClientData, key: Key) -> tuple[Message, Memory]:
        return algorithm.local(state, memory, own, key)

    messages, after = over_clients(local, memories, data, keys, axes=axes)
    finite = jax.vmap(lambda message, memory: tree.is_finite((message, memory)))(messages, after)
    total = pool(
        algorithm, channel, expected_size, messages, present, finite, clients, round, channel_root
    )
    state = algorithm.update(state, total)
    return Outcome(state, after, present & finite, jnp.sum(present & ~finite))


def recall(
    algorithm: Algorithm, state: State, memories: Memory, enrolled: Array, clients: Array, root: Key
) -> Memory:
    """The clients' memories; those that have none yet are enrolled now."""

    def fresh(client: Array) -> Memory:
        return algorithm.enroll(state, client, random.fold(root, "enroll", client))

    return jax.vmap(tree.where)(enrolled, memories, jax.vmap(fresh)(clients))


def pool(
    algorithm: Algorithm,
    channel: Channel,
    expected_size: float,
    messages: Message,
    present: Array,
    finite: Array,
    clients: Array,
    round: Array,
    channel_root: Key,
) -> Message:
    """What the server sees: the sum of what left the channel or, for `gather`, each of it.

    A message that is not finite counts as zero: through a private channel, whose noise a client
    adds to nothing as well (or its absence would tell of it); through a clear one, as if absent.
    """

    def encode(message: Message, client: Array, here: Array, sound: Array) -> Array:
        vector = tree.flatten(message.value if channel.private else message)
        # where, not a product: a NaN times 0 is a NaN
        vector = jnp.where(sound, vector, 0)
        sent = channel.encode(vector, random.fold(channel_root, "encode", round, client))
        return jnp.where(here if channel.private else here & sound, sent, 0)

    sent = jax.vmap(encode)(messages, clients, present, finite)
    like = jax.tree.map(lambda leaf: leaf[0], messages)
    if algorithm.pools == "gather":
        return jax.vmap(lambda vector: tree.unflatten(vector, like))(sent)
    return receive(channel, expected_size, add(channel, sent), like, round, channel_root)


def add(channel: Channel, sent: Array) -> Array:
    """The plain sum of what left the channel, one row a client; taken by the channel if it can."""
    own = getattr(channel, "add", None)
    return jnp.sum(sent, axis=0) if own is None else own(sent)


def receive(
    channel: Channel,
    expected_size: float,
    total: Array,
    like: Message,
    round: Array,
    channel_root: Key,
) -> Message:
    """The decoded sum as a message; a private channel's weight is the public expected size."""
    total = channel.decode(total, random.fold(channel_root, "decode", round))
    if channel.private:
        weight = jnp.asarray(expected_size, jnp.float32)
        return Message(tree.unflatten(total, like.value), weight)
    return tree.unflatten(total, like)


def scalars(state: State) -> dict[str, Array]:
    """The state's floating scalars by name (`psi`), for the history of a run."""
    return {
        name.rsplit("/", 1)[-1]: leaf
        for name, leaf in tree.names(state).items()
        if jnp.ndim(leaf) == 0 and jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)
    }
