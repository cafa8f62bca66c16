import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.data.federation import ClientData, Federation, Split, encode_labels
from fedprior.data.partition import split_rows


def split_of(sizes, shape=(3,), seed=0):
    rng = np.random.default_rng(seed)
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    x = rng.normal(size=(sum(sizes), *shape)).astype(np.float32)
    return Split.gather(x, rng.integers(0, 4, sum(sizes)).astype(np.int32), rows)


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=12),
    shape=st.sampled_from([(), (3,), (2, 2, 1)]),
    seed=st.integers(0, 99),
)
@settings(max_examples=100, deadline=None)
def test_padded_rows_are_the_clients_own(sizes, shape, seed):
    split = split_of(sizes, shape, seed)
    clients = np.random.default_rng(seed).integers(0, len(sizes), 5)
    data = split.padded(clients)
    assert data.x.shape == (5, split.largest, *shape)
    assert type(data.x) is np.ndarray
    for place, client in enumerate(clients):
        own = split.client(client)
        size = int(data.size[place])
        assert size == sizes[client]
        np.testing.assert_array_equal(data.x[place, :size], own.x)
        np.testing.assert_array_equal(data.y[place, :size], own.y)
        filler = own.x[-1] if size else np.zeros(shape)
        assert (data.x[place, size:] == filler).all()  # never a row of somebody else


@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=12))
@settings(deadline=None)
def test_pooled_and_padded_agree(sizes):
    split = split_of(sizes)
    for client in range(len(sizes)):
        pooled = split.pooled(client).all()
        padded = split.padded(np.array([client]))
        for one, other in zip(pooled[:2], padded[:2], strict=True):
            np.testing.assert_array_equal(one, other[0])


def test_bytes_are_pixels():
    """Kept as bytes, read as x / 255; tables of small integers and floats are what they are."""
    images = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(3, 2, 2, 1) * 20
    y, clients = np.array([0, 1, 0]), np.zeros(3, int)
    options = {"valid_share": 0, "test_share": 0}
    found = Federation.from_arrays(images, y, clients, **options)
    assert found.train.x.dtype == np.uint8
    for data in (found.train.client(0), found.train.pooled(0)):
        x, _, _ = data.all()
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, found.train.x / 255, rtol=1e-6)
    device, _, _ = ClientData(*map(jnp.asarray, found.train.client(0))).all()
    np.testing.assert_array_equal(device, x)  # to the bit
    table = Federation.from_arrays(images.reshape(3, 4), y, clients, **options)
    assert table.train.x.dtype == np.float32
    assert table.train.x.max() == images.max()
    scaled = Federation.from_arrays(images / 255, y, clients, **options)
    np.testing.assert_allclose(scaled.train.client(0).all()[0], x, rtol=1e-6)


def test_padded_reads_mapped_files(tmp_path):
    split = split_of([4, 2, 5])
    np.save(tmp_path / "x.npy", split.x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    on_disk = Split(mapped, split.y, split.start, split.size)
    clients = np.array([2, 0])
    assert type(on_disk.padded(clients).x) is np.ndarray
    np.testing.assert_array_equal(on_disk.padded(clients).x, split.padded(clients).x)


@given(
    count=st.integers(1, 50),
    shares=st.tuples(st.floats(0, 0.5), st.floats(0, 0.49)),
    client=st.integers(0, 99),
)
def test_split_rows_is_a_partition_with_a_training_row(count, shares, client):
    rows = np.arange(count) + 7
    parts = split_rows(rows, *shares, seed=1, client=client)
    assert sorted(np.concatenate(parts)) == rows.tolist()
    assert len(parts[0]) >= 1


def test_from_arrays_groups_by_client():
    x = np.arange(24.0).reshape(12, 2)
    y = np.array(list("abab" * 3))
    federation = Federation.from_arrays(x, y, np.repeat([5, 3, 4], 4))
    assert federation.clients.tolist() == ["3", "4", "5"]
    assert federation.classes == ("a", "b")
    first = {float(row[0]) for row in federation.train.client(0).x}
    assert first <= {8.0, 10.0, 12.0, 14.0}


def test_errors():
    split, empty = split_of([2, 3]), split_of([0, 0])
    parts = {"train": split, "valid": split, "test": split}
    names = np.array(["a", "b"])
    with pytest.raises(ValueError, match="valid must hold 2 clients, got 3"):
        Federation(**(parts | {"valid": split_of([1, 1, 1])}), clients=names, classes=tuple("0123"))
    with pytest.raises(ValueError, match="has no training samples"):
        Federation(**(parts | {"train": empty}), clients=names, classes=tuple("0123"))
    with pytest.raises(ValueError, match=r"each label must be a class code in 0\.\.1, got"):
        Federation(**parts, clients=names, classes=("0", "1"))
    bad = split_of([2, 3])
    bad.x[3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity in row 1 of client number 1"):
        Federation(**(parts | {"train": bad}), clients=names, classes=tuple("0123"))
    with pytest.raises(ValueError, match="each label must be one of a, b, got 'c'"):
        encode_labels(np.array(["a", "c"]), ["a", "b"])
