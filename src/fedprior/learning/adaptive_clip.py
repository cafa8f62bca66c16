"""A clip that follows a quantile of the updates' norms (Andrew et al. 2021)."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State, Theta
from fedprior.core.check import PrivacyError

_FARTHEST = 30.0  # of the clip from its initial value, on a logarithmic scale
SHARE = 0.01


def adaptive_clip(
    algorithm: Algorithm,
    *,
    quantile: float = 0.5,
    initial: float = 1.0,
    rate: float = 0.2,
    share: float = SHARE,
) -> Algorithm:
    """Return `algorithm` with messages clipped to the `quantile` of their norms, and scaled to 1.

    The clip C is the entry `clip` of the public state, which must be a dict. A client sends its
    message, clipped to norm C and divided by it, together with one number that says whether its
    norm was below C. Both are one vector of norm at most 1, of which the number takes a `share` of
    the squared norm, so a central channel with clip 1 covers both by a single event: z^-2 =
    z_message^-2 + z_number^-2. The server
    sets C <- C exp(-rate (fraction below C - quantile)), from what it releases and nothing else.
    """
    owner = "adaptive_clip"
    check.within(owner, quantile=quantile, share=share)
    check.positive(owner, initial=initial, rate=rate)
    if not algorithm.unit_weight or algorithm.pools != "sum":
        raise PrivacyError(
            f"{owner}: {algorithm.name} must send sums of messages of weight 1. Use "
            "weight='uniform', and a method whose server does not need every message."
        )
    return replace(
        algorithm,
        name=f"{algorithm.name}, adaptive clip",
        bound=1.0,
        **_functions(algorithm, quantile, initial, rate, share),
    )


def message_noise(noise_multiplier: float, share: float = SHARE) -> float:
    """Return the noise multiplier of the message itself, relative to the clip it follows."""
    return noise_multiplier / math.sqrt(1 - share)


def _functions(
    algorithm: Algorithm, quantile: float, initial: float, rate: float, share: float
) -> dict[str, Any]:
    length = math.sqrt(1 - share)  # of a message at the clip, once it is scaled
    unit = math.sqrt(share) / max(quantile, 1 - quantile)  # |below - quantile| is at most the max

    def init(key: Key) -> State:
        return {**algorithm.init(key), "clip": jnp.asarray(initial, jnp.float32)}

    def enroll(state: State, client: Array, key: Key) -> Memory:
        return algorithm.enroll(_own(state), client, key)

    def local(state: State, memory: Memory, data: Any, key: Key) -> tuple[Message, Memory]:
        message, memory = algorithm.local(_own(state), memory, data, key)
        clip, norm = state["clip"], jnp.sqrt(tree.squared_norm(message.value))
        scale = length / jnp.maximum(norm, clip)
        value = jax.tree.map(lambda leaf: leaf * scale, message.value)
        below = unit * ((norm <= clip) - quantile)
        return message._replace(value={"message": value, "below": below}), memory

    def update(state: State, total: Message) -> State:
        clip = state["clip"]
        value = jax.tree.map(lambda leaf: leaf * (clip / length), total.value["message"])
        inner = algorithm.update(_own(state), total._replace(value=value))
        people = jnp.where(total.weight > 0, total.weight, 1)
        above = jnp.clip(-total.value["below"] / (unit * people), -1, 1)
        moved = jnp.clip(jnp.log(clip / initial) + rate * above, -_FARTHEST, _FARTHEST)
        return {**inner, "clip": initial * jnp.exp(moved)}

    def personalize(state: State, memory: Memory, data: Any, key: Key) -> Theta:
        return algorithm.personalize(_own(state), memory, data, key)

    return {
        "init": init,
        "enroll": enroll,
        "local": local,
        "update": update,
        "personalize": personalize,
    }


def _own(state: State) -> State:
    """The state of the method itself."""
    return {name: part for name, part in state.items() if name != "clip"}
