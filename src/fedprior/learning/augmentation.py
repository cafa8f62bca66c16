"""Training images changed at random, by draws that are keyed like all others."""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from fedprior.core import check, random
from fedprior.core.algorithm import Array

Augment = Literal["crop-flip"]
_PURPOSE = np.uint32(2**32 - 1)  # an epoch that no client reaches: no batch has its words


def crop_flip(words: Array, step: Array, x: Array) -> Array:
    """Each image, shifted by up to an eighth of its sides and flipped left to right or not.

    That is a crop at random from the image in a frame of zeros (4 pixels wide for 32 x 32) and a
    coin for the flip. Draws are keyed by the client's `words`, the number of the `step` and the
    place in its batch: x is (..., width, height, width, channels), `step` its leading axes.
    """
    *lead, height, width, channels = x.shape
    own = random.vary(random.vary(jnp.asarray(words), _PURPOSE), step)
    drawn = random.vary(own[..., None, :], jnp.arange(lead[-1]))
    drawn = jnp.broadcast_to(drawn, (*lead, 2)).reshape(-1, 2)
    tall, wide = (2 * (side // 8) + 1 for side in (height, width))
    place = random.high_word(drawn[:, 0], tall * wide).astype(jnp.int32)
    rows = jnp.arange(height) + (place // wide)[:, None] - height // 8
    columns = jnp.arange(width) + (place % wide)[:, None] - width // 8
    columns = jnp.where(drawn[:, 1:] & 1 == 1, columns[:, ::-1], columns)
    inside = _within(rows, height)[:, :, None] & _within(columns, width)[:, None, :]
    images = x.reshape(-1, height, width, channels)
    rows, columns = jnp.clip(rows, 0, height - 1), jnp.clip(columns, 0, width - 1)
    number = jnp.arange(len(images))[:, None, None]
    moved = images[number, rows[:, :, None], columns[:, None, :]]
    return jnp.where(inside[..., None], moved, 0).reshape(x.shape)


def check_images(owner: str, augment: Augment | None, shape: tuple[int, ...]) -> None:
    """Raise for samples that cannot be cropped: `shape` is that of one of them."""
    rule = "left out for samples that are no images (height, width, channels)"
    remedy = f"A sample has the shape {tuple(shape)}."
    check.require(augment is None or len(shape) == 3, owner, "augment", rule, augment, remedy)


def _within(places: Array, length: int) -> Array:
    return (places >= 0) & (places < length)
