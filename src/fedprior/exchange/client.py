"""What one client does in a round, from the agreement, the state and its own data.

`enroll`, `learn`, `send`, `personalize`, `score_rows` and `output_rows` can be traced: engines map
them over many clients. `take_part`, `personal_model`, `score` and `outputs` are the same for a
single client, compiled.
"""

from typing import Any, NamedTuple

import numpy as np

from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.core import random, tree
from fedprior.core.algorithm import Array, Key, Memory, Message, State, Theta
from fedprior.core.check import PrivacyError
from fedprior.core.programs import called
from fedprior.core.protocols import is_private
from fedprior.core.scores import OWN, Metric
from fedprior.data.federation import ClientData
from fedprior.exchange.agreement import Agreement, Keys, Rules

_BLOCK = 256  # rows that are scored at a time, so that one large client does not set the memory


class Learned(NamedTuple):
    """A client's message and its next memory; neither is used unless all of it is `finite`."""

    message: Message
    memory: Memory
    finite: Array


def enroll(rules: Rules, state: State, client: Array, root: Key) -> Memory:
    """The memory of a client that has none yet."""
    return rules.algorithm.enroll(state, client, random.fold(root, "enroll", client))


def learn(
    rules: Rules,
    state: State,
    memory: Memory,
    data: ClientData,
    client: Array,
    round: Array,
    root: Key,
) -> Learned:
    """One round at one client; of other clients nothing is known but the public bound."""
    data = rules.open(data)
    key = random.fold(root, "local", round, client)
    message, after = rules.algorithm.local(state, memory, data, key)
    return Learned(message, after, tree.is_finite((message, after)))


def send(rules: Rules, message: Message, finite: Array, key: Key) -> Array:
    """What leaves the client: a flat vector, the weight last unless the channel is private.

    A message that is not finite counts as zero. Through a private channel the client still adds
    its noise, because a missing upload would tell of it; through a clear one it adds exactly zero.
    """
    import jax.numpy as jnp

    channel = rules.channel
    vector = tree.flatten(message.value if channel.private else message)
    # where, not a product: NaN * 0 is NaN
    upload = channel.encode(jnp.where(finite, vector, 0), key)
    return upload if channel.private else jnp.where(finite, upload, 0)


def personalize(
    rules: Rules, state: State, memory: Memory, data: ClientData, client: Array, root: Key
) -> Theta:
    """The client's own parameters, which are never sent."""
    key = random.fold(root, "personalize", client)
    return rules.algorithm.personalize(state, memory, data, key)


def score_rows(rules: Rules, theta: Theta, data: ClientData, metric: Metric = OWN) -> Array:
    """Score of a client's own model on its rows, by a metric that is a mean; NaN without rows."""
    import jax
    import jax.numpy as jnp

    def added(x: Array, y: Array, mask: Array) -> Array:
        return jnp.sum(_each(rules, rules.algorithm.predict(theta, x), y, metric) * mask)

    if data.rows is None:
        total = data.sum_in_turn(added, _BLOCK)
    else:
        total = jnp.sum(jax.lax.map(lambda rows: added(*_block(data, rows)), _blocks(data)))
    total = jnp.where(jnp.isnan(total), -jnp.inf, total)  # a diverged model scores lowest
    mean = total / jnp.maximum(data.size, 1)
    if metric.name == "rmse":
        mean = -jnp.sqrt(-mean)
    return jnp.where(data.size > 0, mean, jnp.nan)


def _each(rules: Rules, outputs: Array, y: Array, metric: Metric) -> Array:
    """What a metric is the mean of, one value per sample; more is better."""
    import jax
    import jax.numpy as jnp

    if metric.name == "rmse":
        return -((outputs - y) ** 2)
    if metric.name == "log-loss":
        return jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], axis=-1)[:, 0]
    return rules.algorithm.score(outputs, y)


def output_rows(rules: Rules, theta: Theta, data: ClientData) -> Array:
    """Outputs of a client's own model for its rows, padded to `data.most` of them."""
    import jax

    def block(rows: Array) -> Array:
        return rules.algorithm.predict(theta, _block(data, rows)[0])

    found = jax.lax.map(block, _blocks(data))
    return found.reshape(-1, *found.shape[2:])[: data.most]


def _blocks(data: ClientData) -> Array:
    """The positions of a client's rows, a block of them at a time, so that activations are few."""
    import jax.numpy as jnp

    width = min(_BLOCK, data.most)
    return jnp.arange(-(-data.most // width) * width).reshape(-1, width)


def _block(data: ClientData, rows: Array) -> tuple[Array, Array, Array]:
    import jax.numpy as jnp

    return *data.take(jnp.clip(rows, 0, data.size - 1)), rows < data.size


def take_part(
    agreement: Agreement,
    state: State,
    memory: Memory | None,
    data: ClientData,
    client: int,
    round: int,
    *,
    compiled: bool = True,
) -> tuple[np.ndarray, Memory | None]:
    """The client's upload and its next memory; without a memory it is enrolled first.

    A client whose update is not finite keeps the memory that it had.
    """
    learned = attempt(agreement, state, memory, data, client, round, compiled=compiled)
    upload = encode(agreement, learned, client, round, compiled=compiled)
    return upload, learned.memory if bool(learned.finite) else memory


def attempt(
    agreement: Agreement,
    state: State,
    memory: Memory | None,
    data: ClientData,
    client: int,
    round: int,
    *,
    compiled: bool = True,
) -> Learned:
    """What the client learns in a round, before anything leaves it."""
    rules, keys = agreement.rules, agreement.keys()
    number = np.int32(client)
    if memory is None:
        memory = called(enroll, compiled)(rules, state, number, keys.root)
    return called(learn, compiled)(rules, state, memory, data, number, np.int32(round), keys.root)


def local_inputs(
    agreement: Agreement,
    state: State,
    memory: Memory | None,
    data: ClientData,
    client: int,
    round: int,
) -> dict[str, Any]:
    """The arguments of `algorithm.local` in a round, to repeat a call that failed."""
    rules, root, number = agreement.rules, agreement.keys().root, np.int32(client)
    if memory is None:
        memory = enroll(rules, state, number, root)
    key = random.fold(root, "local", np.int32(round), number)
    return {"state": state, "memory": memory, "data": data, "key": key}


def encode(
    agreement: Agreement, learned: Learned, client: int, round: int, *, compiled: bool = True
) -> np.ndarray:
    """The upload of what was learned; a client's secure noise comes from the operating system.

    With secure noise that is to be masked, it is in whole units (`masked_units`).
    """
    rules, channel = agreement.rules, agreement.channel
    if agreement.secure and is_private(channel) and channel.view != "central":
        vector = np.where(learned.finite, tree.flatten(learned.message.value), 0)
        if isinstance(channel, DistributedGaussian):
            return channel.units(vector, random.secure())
        return np.asarray(channel.encode(vector, random.secure()), np.float32)
    key = upload_key(agreement.keys(), np.int32(round), np.int32(client))
    return np.asarray(called(send, compiled)(rules, learned.message, learned.finite, key))


def masked_units(
    agreement: Agreement, learned: Learned, client: int, round: int, *, compiled: bool = True
) -> np.ndarray:
    """The upload in whole units of the channel's grid (int64), as it is to be masked.

    With simulated noise, it is the very upload of `encode`. Call it once per round: with secure
    noise, a second call draws anew, and the two uploads together would have less noise.
    """
    channel = agreement.channel
    if not isinstance(channel, DistributedGaussian):
        raise PrivacyError(
            f"masked_units: channel must be a DistributedGaussian, got {channel!r}. Other uploads "
            "have no noise of their own, or are not whole numbers."
        )
    upload = encode(agreement, learned, client, round, compiled=compiled)
    return upload if agreement.secure else channel.to_units(upload)


def upload_key(keys: Keys, round: Array, client: Array) -> Key:
    """The key of what the channel draws for one upload."""
    return random.fold(keys.channel, "encode", round, client)


def personal_model(
    agreement: Agreement,
    state: State,
    memory: Memory | None,
    data: ClientData,
    client: int,
    *,
    compiled: bool = True,
) -> Theta:
    """The client's own parameters; a client without a memory is enrolled from the state."""
    rules, root = agreement.rules, agreement.keys().root
    number = np.int32(client)
    if memory is None:
        memory = called(enroll, compiled)(rules, state, number, root)
    return called(personalize, compiled)(rules, state, memory, data, number, root)


def score(
    agreement: Agreement,
    theta: Theta,
    data: ClientData,
    *,
    metric: Metric = OWN,
    compiled: bool = True,
) -> float:
    """The client's score on its own rows, by a metric that is a mean; NaN without rows."""
    return float(called(score_rows, compiled, 0, 3)(agreement.rules, theta, data, metric))


def outputs(agreement: Agreement, theta: Theta, data: ClientData) -> np.ndarray:
    """The outputs of the client's own model for its own rows."""
    return np.asarray(called(output_rows, True)(agreement.rules, theta, data))
