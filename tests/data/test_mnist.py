import gzip
import hashlib
import io
import urllib.error

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprior.data import datasets, download, mnist
from fedprior.data.idx import read_idx


def idx_bytes(array, code=0x08):
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_mnist(folder, *, rows=(120, 60), seed=0):
    rng = np.random.default_rng(seed)
    for part, count in zip(("train", "t10k"), rows, strict=True):
        images = rng.integers(0, 256, (count, 28, 28)).astype(np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple),
    kind=st.sampled_from([(0x08, np.uint8), (0x0B, np.int16), (0x0C, np.int32), (0x0D, "f4")]),
    zipped=st.booleans(),
)
def test_idx_round_trip(tmp_path_factory, shape, kind, zipped):
    array = np.arange(np.prod(shape)).reshape(shape).astype(kind[1])
    path = tmp_path_factory.mktemp("idx") / "file"
    content = idx_bytes(array, kind[0])
    path.write_bytes(gzip.compress(content, mtime=0) if zipped else content)
    back = read_idx(path, dtype=np.dtype(kind[1]).name, shape=(None,) * len(shape))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


WHOLE = idx_bytes(np.zeros((3, 4), np.uint8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be an idx file, got first bytes none"),
        (b"PNG image", "must be an idx file, got first bytes 504e4720"),
        (WHOLE[:9], "must be a whole idx file, got 9 bytes"),
        (WHOLE[:-1], "must be a whole idx file of 24 bytes, got 23 bytes"),
        (WHOLE + b"\0", "must be a whole idx file of 24 bytes, got 25 bytes"),
        (gzip.compress(WHOLE, mtime=0)[:-9], "must be a whole gzip file, got"),
        (gzip.compress(WHOLE, mtime=0)[:12] + b"garbage", "must be a whole gzip file, got"),
        (idx_bytes(np.zeros((3, 5), np.uint8)), "must be of shape any x 4, got 3 x 5"),
        (idx_bytes(np.zeros(3, np.uint8)), "must be of shape any x 4, got 3"),
        (idx_bytes(np.zeros((3, 4), np.int32), 0x0C), "must be of type uint8, got int32"),
    ],
)
def test_idx_errors_name_the_file(tmp_path, content, message):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path, dtype="uint8", shape=(None, 4))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mnist_from_a_small_copy(tmp_path):
    write_mnist(tmp_path)
    federation = mnist.mnist(
        tmp_path, num_clients=4, train_samples=20, valid_samples=5, test_samples=6
    )
    assert federation.shape == (28, 28, 1)
    assert federation.train.x.dtype == np.uint8
    assert 0.9 < federation.train.client(0).all()[0].max() <= 1  # as networks read it
    assert federation.train.size.tolist() == [20] * 4
    for client in range(4):
        train, valid = federation.train.client(client), federation.valid.client(client)
        rows = np.concatenate([train.x, valid.x]).reshape(25, -1)
        assert len(np.unique(rows, axis=0)) == 25
        own = set(train.y.tolist()) | set(valid.y.tolist())
        assert len(own) == 3
        assert set(federation.test.client(client).y.tolist()) <= own
    images = [{row.tobytes() for row in part.x} for part in (federation.train, federation.valid)]
    assert not images[0] & images[1]


def test_without_validation_images_all_are_there_for_training(tmp_path):
    write_mnist(tmp_path)
    found = mnist.mnist(tmp_path, num_clients=2, train_samples=36, valid_samples=0, test_samples=1)
    assert found.valid.size.tolist() == [0, 0]
    assert found.train.size.tolist() == [36, 36]


def test_dirichlet_shares_deal_every_image_once(tmp_path):
    write_mnist(tmp_path)
    options = {"num_clients": 3, "concentration": 0.1, "min_samples": 5}
    found = mnist.mnist_dirichlet(tmp_path, seed=1, **options)
    parts = [getattr(found, part) for part in ("train", "valid", "test")]
    images = sum(len(part.x) for part in parts)
    assert images == sum(int(part.size.sum()) for part in parts) == 120 + 60
    whole = sum(part.size for part in parts)
    assert whole.min() >= 5
    again = mnist.mnist_dirichlet(tmp_path, seed=1, **options)
    np.testing.assert_array_equal(found.train.x, again.train.x)
    other = mnist.mnist_dirichlet(tmp_path, seed=2, **options)
    assert other.train.size.tolist() != found.train.size.tolist()


def test_mnist_errors(tmp_path):
    write_mnist(tmp_path)
    with pytest.raises(ValueError, match="samples_per_client must be at most the 30 rows"):
        mnist.mnist(tmp_path, num_clients=1)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(59, np.uint8)))
    with pytest.raises(ValueError, match="must be of shape 60, got 59"):
        mnist.mnist(tmp_path, num_clients=1, train_samples=9, valid_samples=1, test_samples=1)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.full(60, 12, np.uint8)))
    with pytest.raises(ValueError, match=r"must be in 0\.\.9, got 12"):
        mnist.mnist(tmp_path, num_clients=1, train_samples=9, valid_samples=1, test_samples=1)


def test_writers_from_archive_and_from_the_original(tmp_path):
    write_mnist(tmp_path)
    ids = (np.arange(120) // 10).astype(np.int16)
    with pytest.raises(ValueError, match=r"contains neither qmnist-train-labels.*download_writers"):
        mnist.mnist_writers(tmp_path, tmp_path, num_clients=3)
    original = np.zeros((120, 8), np.int32)
    original[:, 2] = ids
    (tmp_path / "qmnist-train-labels-idx2-int").write_bytes(idx_bytes(original, 0x0C))
    one = mnist.mnist_writers(tmp_path, tmp_path, num_clients=3)
    np.savez(tmp_path / "mnist_writers.npz", train_writer=ids)
    two = mnist.mnist_writers(tmp_path, tmp_path, num_clients=3)
    np.testing.assert_array_equal(one.train.x, two.train.x)
    assert one.train.size.tolist() == [24] * 3
    assert one.test.size.tolist() == [3] * 3
    assert all(len(name.split("+")) == 3 for name in one.clients)
    with pytest.raises(ValueError, match="num_ids must be at most the 12 ids, got 15"):
        mnist.mnist_writers(tmp_path, tmp_path, num_clients=5)
    np.savez(tmp_path / "mnist_writers.npz", train_writer=ids[:-1])
    with pytest.raises(ValueError, match="must be one id for each of the 120 training images"):
        mnist.mnist_writers(tmp_path, tmp_path, num_clients=3)


def test_real_mnist(data_root):
    federation = datasets.load_dataset("mnist", root=data_root, num_clients=3)
    assert federation.train.size.tolist() == [1200] * 3
    assert federation.valid.size.tolist() == [200] * 3
    assert federation.test.size.tolist() == [200] * 3
    assert 0.08 < federation.train.x.mean() / 255 < 0.2  # MNIST's mean pixel is 0.13


def test_real_writers(data_root):
    federation = datasets.load_dataset("mnist-writers", root=data_root)
    assert federation.num_clients == 66
    size = federation.train.size
    assert 150 <= size.min() < 250 < np.median(size) < 290 < size.max() <= 315
    total = size + federation.valid.size + federation.test.size
    np.testing.assert_allclose(federation.test.size, total * 0.1, atol=0.5)
    writers = [writer for name in federation.clients for writer in name.split("+")]
    assert len(set(writers)) == 198


class Network:
    """Stands in for urlopen: content by file name, and the addresses that were asked for."""

    def __init__(self, contents):
        self.contents, self.asked = contents, []

    def __call__(self, address, timeout):
        self.asked.append(address)
        content = self.contents.get(address)
        if content is None:
            raise urllib.error.URLError("no route to host")
        return io.BytesIO(content)


def test_download_tries_mirrors_and_checks_md5(tmp_path, monkeypatch):
    good, damaged = b"digits", b"digit"
    digest = hashlib.md5(good).hexdigest()
    source = download.Files(name="mnist", mirrors=("one/", "two/", "three/"), files={"a": digest})
    network = Network({"two/a": damaged, "three/a": good})
    monkeypatch.setattr("urllib.request.urlopen", network)
    download.fetch(source, tmp_path / "new")
    assert (tmp_path / "new" / "a").read_bytes() == good
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a"]
    download.fetch(source, tmp_path / "new")  # there already: nothing is asked for
    assert network.asked == ["one/a", "two/a", "three/a"]


def test_download_says_what_to_do_offline(tmp_path, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", Network({}))
    with pytest.raises(ValueError, match=r"no route to host.*copy the file into a folder mnist"):
        mnist.download(tmp_path)
    with pytest.raises(ValueError, match="copy the file into a folder mnist_writers"):
        mnist.download_writers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_published_checksums(data_root):
    for source in (download.MNIST, download.WRITERS):
        for name, digest in source.files.items():
            path = data_root / source.name / name
            if path.is_file():
                assert hashlib.md5(path.read_bytes()).hexdigest() == digest
