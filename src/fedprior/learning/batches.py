"""Which of a client's samples a gradient step reads: without replacement within an epoch."""

from dataclasses import dataclass
from typing import get_args

import jax.numpy as jnp

from fedprior.core import check, random
from fedprior.core.algorithm import Array
from fedprior.data.federation import ClientData
from fedprior.learning.augmentation import Augment, check_images, crop_flip


@dataclass(frozen=True, kw_only=True)
class Batches:
    """`size` samples per step, or `steps_per_epoch` steps of about n_i / steps_per_epoch samples.

    With a size, the last step of an epoch takes what is left. With steps_per_epoch (the paper's
    experiments) the n_i samples are cut into that many runs whose lengths differ by at most one,
    and a client with fewer samples reads one sample per step.

    `augment="crop-flip"` shifts and flips the images that a step reads, at random
    (`learning.augmentation`). What is not a gradient step (scores, shares, curvatures) reads
    samples as they are.
    """

    size: int | None = None
    steps_per_epoch: int | None = None
    augment: Augment | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.size, self.steps_per_epoch) if value is not None]
        rule = "the only one given of size, steps_per_epoch"
        check.require(len(given) == 1, "Batches", "size or steps_per_epoch", rule, given)
        check.count("Batches", least=1, **{"size or steps_per_epoch": given[0]})
        if self.augment is not None:
            check.choice("Batches", "augment", self.augment, get_args(Augment))

    def width(self, data: ClientData) -> int:
        """Samples of the largest batch that a client of this population can have."""
        if self.size is not None:
            return self.size if data.rows is None else min(self.size, data.most)
        assert self.steps_per_epoch is not None
        return -(-data.most // self.steps_per_epoch)

    def epoch(self, data: ClientData) -> Array:
        """Steps of one pass over the client's samples."""
        if self.size is None:
            return jnp.asarray(self.steps_per_epoch)
        return -(-data.size // self.width(data))

    def at(self, words: Array, step: Array, data: ClientData) -> tuple[Array, Array]:
        """The client's sample positions at its step number `step`, (..., width), and their mask."""
        width = self.width(data)
        step, places = jnp.asarray(step)[..., None], jnp.arange(width)
        if self.size is not None:
            steps_per_epoch = -(-data.size // width)
            first = step % steps_per_epoch * width
            length = jnp.minimum(width, data.size - first)
        else:
            assert self.steps_per_epoch is not None
            steps_per_epoch = jnp.asarray(self.steps_per_epoch)
            position = step % steps_per_epoch
            # floor(p n / S) without the product overflowing for n S up to 2**31
            first = position * data.size // steps_per_epoch
            length = jnp.maximum((position + 1) * data.size // steps_per_epoch - first, 1)
        offset = jnp.minimum(first + places, data.size - 1)
        epoch_words = random.vary(words, step // steps_per_epoch)
        return random.permuted(epoch_words, offset, data.size), places < length

    def read(self, words: Array, step: Array, data: ClientData) -> tuple[Array, Array, Array]:
        """(x, y, mask) of the client's step number `step`, augmented."""
        index, mask = self.at(words, step, data)
        x, y = data.take(index)
        check_images("Batches", self.augment, x.shape[index.ndim :])
        if self.augment is not None:
            x = crop_flip(words, step, x)
        return x, y, mask
