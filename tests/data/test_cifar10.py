"""CIFAR-10 from small files of the official layout, and from the real ones where they are."""

import hashlib
import tarfile

import numpy as np
import pytest

from fedprior.data import cifar10, datasets, download

NAMES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
ROWS = 20  # records a file; two of each class


def records(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (ROWS, 3072)).astype(np.uint8)
    labels = (np.arange(ROWS) % 10).astype(np.uint8)
    return np.concatenate([labels[:, None], pixels], axis=1)


def write_cifar10(folder):
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(records(number).tobytes())
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_cifar10(tmp_path / "cifar10")


def images(federation):
    parts = [getattr(federation, part) for part in ("train", "valid", "test")]
    return [image.tobytes() for part in parts for image in part.x]


def test_a_record_is_a_label_and_three_planes(folder):
    found = cifar10.cifar10(folder, num_clients=10)
    assert (found.shape, found.train.x.dtype) == ((32, 32, 3), np.uint8)
    assert found.classes[3] == "cat"
    whole = np.concatenate([records(number) for number in range(6)])
    by_image = {row[1:].reshape(3, 32, 32).transpose(1, 2, 0).tobytes(): row[0] for row in whole}
    assert sorted(images(found)) == sorted(by_image)  # each image once
    for image, label in zip(found.train.x, found.train.y, strict=True):
        assert by_image[image.tobytes()] == label


def test_three_classes_per_client_and_equal_sizes(folder):
    found = cifar10.cifar10(folder, num_clients=10, seed=3)
    parts = [getattr(found, part) for part in ("train", "valid", "test")]
    assert [part.size.tolist() for part in parts] == [[9] * 10, [1] * 10, [2] * 10]
    for client in range(10):
        labels = [part.client(client).y.tolist() for part in parts]
        assert len({label for own in labels for label in own}) == 3
    again, other = (cifar10.cifar10(folder, num_clients=10, seed=seed) for seed in (3, 4))
    np.testing.assert_array_equal(found.train.y, again.train.y)
    assert (found.train.y != other.train.y).any()


def test_dirichlet_clients_have_equal_sizes(folder):
    found = cifar10.cifar10_dirichlet(folder, num_clients=6, concentration=0.5)
    assert found.train.size.tolist() == [15] * 6
    assert len(set(images(found))) == 120
    assert found.name == "cifar10-dirichlet"


def test_the_archive_is_read_where_files_are_missing(folder, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(folder, "cifar-10-batches-bin")
    one, two = (cifar10.cifar10(place, num_clients=10) for place in (folder, packed))
    np.testing.assert_array_equal(one.train.x, two.train.x)
    folder.rename(tmp_path / "cifar-10-batches-bin")  # as the archive unpacks
    three = datasets.load_dataset("cifar10", root=tmp_path, num_clients=10)
    np.testing.assert_array_equal(one.train.x, three.train.x)


def test_errors_name_the_file(folder, tmp_path):
    file = folder / "data_batch_2.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_2.bin must be whole records of 3073 bytes"):
        cifar10.cifar10(folder)
    file.write_bytes(b"\x0a" + bytes(3072))
    with pytest.raises(ValueError, match=r"labels in .*data_batch_2.bin must be in 0..9, got 10"):
        cifar10.cifar10(folder)
    file.unlink()
    with pytest.raises(ValueError, match=r"contains neither data_batch_1.bin .*download\('"):
        cifar10.cifar10(folder)
    (folder / "cifar-10-binary.tar.gz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"tar.gz must be the archive of CIFAR-10's binary files"):
        cifar10.cifar10(folder)
    whole = write_cifar10(tmp_path / "again")
    with pytest.raises(ValueError, match="small enough for each client to get one of the 120 rows"):
        cifar10.cifar10_dirichlet(whole, num_clients=121)
    with pytest.raises(ValueError, match=r"valid_share \+ test_share must be in"):
        cifar10.cifar10(whole, num_clients=10, valid_share=0.5, test_share=0.5)


def test_download_asks_for_the_published_archive(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(download, "fetch", lambda *given: asked.append(given))
    cifar10.download(tmp_path)
    assert asked == [(download.CIFAR10, tmp_path)]


def test_real_cifar10(data_root):
    folder = data_root / "cifar10"
    if not (folder / NAMES[0]).is_file():
        pytest.skip(f"real data: {folder} does not contain CIFAR-10's binary files")
    found = datasets.load_dataset("cifar10", root=data_root)
    assert found.train.size.tolist() == [450] * 100
    assert found.test.size.tolist() == [100] * 100
    mean = found.train.x.mean((0, 1, 2), dtype=np.float64)
    np.testing.assert_allclose(mean, [125.3, 123.0, 113.9], atol=1)  # as published
    archive = folder / "cifar-10-binary.tar.gz"
    if archive.is_file():
        (digest,) = download.CIFAR10.files.values()
        assert hashlib.md5(archive.read_bytes()).hexdigest() == digest
