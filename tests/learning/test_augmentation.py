"""Crops and flips: what they may do, how often, and by which keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedprior
from fedprior.learning.augmentation import crop_flip

FALSE_ALARM = 1e-6
WORDS = np.array([5, 7], np.uint32)
moved = jax.jit(crop_flip)


def images(*lead, side=16, channels=2):
    draws = np.random.default_rng(0)
    return jnp.asarray(draws.uniform(0.1, 1, (*lead, side, side, channels)), jnp.float32)


def every_change(image, reach):
    """All crops of an image in a frame of zeros, plain and flipped, by (row, column, flip)."""
    side = image.shape[0]
    framed = np.pad(image, ((reach, reach), (reach, reach), (0, 0)))
    for row in range(2 * reach + 1):
        for column in range(2 * reach + 1):
            crop = framed[row : row + side, column : column + side]
            yield (row, column, False), crop
            yield (row, column, True), crop[:, ::-1]


def test_each_image_is_a_crop_or_its_mirror_image_and_all_are_as_likely():
    """2,000 draws of 50 kinds: a chi-square test sees shares that are wrong by a quarter."""
    image = images(side=16)
    copies = jnp.broadcast_to(image, (2000, *image.shape))
    found = np.asarray(moved(WORDS, jnp.int32(0), copies))
    known = {change.tobytes(): kind for kind, change in every_change(np.asarray(image), 2)}
    kinds = [known[each.tobytes()] for each in found]  # a KeyError for anything else
    counts = np.unique([hash(kind) for kind in kinds], return_counts=True)[1]
    assert len(counts) == 50
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_draws_are_keyed_by_client_step_and_place():
    batch = jnp.broadcast_to(images(), (3, 40, 16, 16, 2))
    steps = jnp.array([4, 5, 2**30])
    together = moved(WORDS, steps, batch)
    for number, step in enumerate(steps):
        np.testing.assert_array_equal(moved(WORDS, step, batch[0]), together[number])
    assert (together[0] != together[1]).any()
    assert (together[0, 0] != together[0, 1:]).any()
    assert (moved(WORDS + 1, steps, batch) != together).any()
    narrow = moved(WORDS, steps, batch[:, :7])  # how wide a batch is does not matter
    np.testing.assert_array_equal(narrow, together[:, :7])


def test_steps_of_consecutive_numbers_draw_independently():
    """Place 0 of 2,000 steps: flips are fair, and those of neighboring steps are uncorrelated."""
    image = images(side=8, channels=1)
    batch = jnp.broadcast_to(image, (2000, 1, *image.shape))
    found = np.asarray(moved(WORDS, jnp.arange(2000), batch))[:, 0]
    known = {change.tobytes(): kind[2] for kind, change in every_change(np.asarray(image), 1)}
    flips = np.array([known[each.tobytes()] for each in found])
    assert stats.binomtest(int(flips.sum()), 2000).pvalue > FALSE_ALARM
    changes = int((flips[1:] != flips[:-1]).sum())
    assert stats.binomtest(changes, 1999).pvalue > FALSE_ALARM


def data_of(x):
    rows = jnp.arange(len(x))
    return fedprior.data.ClientData(x, rows, jnp.int32(0), jnp.int32(len(x)), rows)


def test_batches_augment_what_they_read_and_not_what_they_choose():
    data = data_of(images(10))
    plain = fedprior.Batches(size=4)
    both = fedprior.Batches(size=4, augment="crop-flip")
    first, second = (each.read(WORDS, jnp.arange(3), data) for each in (plain, both))
    np.testing.assert_array_equal(first[1], second[1])
    np.testing.assert_array_equal(first[2], second[2])
    np.testing.assert_array_equal(second[0], crop_flip(WORDS, jnp.arange(3), first[0]))
    np.testing.assert_array_equal(data.all()[0], data.x)


def test_errors():
    with pytest.raises(ValueError, match="Batches: augment must be one of crop-flip, got 'flip'"):
        fedprior.Batches(size=4, augment="flip")
    table = data_of(jnp.zeros((5, 3)))
    with pytest.raises(ValueError, match=r"Batches: augment must be left out .* shape \(3,\)"):
        fedprior.Batches(size=4, augment="crop-flip").read(WORDS, jnp.int32(0), table)
