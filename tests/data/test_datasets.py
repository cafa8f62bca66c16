import subprocess
import sys

import numpy as np
import pytest

from fedprior.data import datasets, digits

HEAVY = ("jax", "duckdb", "pandas", "sklearn")


def test_nothing_heavy_is_imported():
    modules = "cells cifar10 datasets digits download encoder federation folder idx mnist partition"
    code = (
        f"import sys, importlib\nfor name in '{modules} reader synthetic table'.split():\n"
        "    importlib.import_module('fedprior.data.' + name)\n"
        f"found = [name for name in {HEAVY} if name in sys.modules]\n"
        "sys.exit(', '.join(found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_describe_and_load_agree():
    rows = datasets.describe()
    names = ["digits", "mnist", "mnist-dirichlet", "mnist-writers", "cifar10", "cifar10-dirichlet"]
    assert [row["name"] for row in rows] == [*names, "synthetic"]
    assert all(set(row) == {"name", "description", "num_clients", "needs"} for row in rows)
    for row in rows:
        if row["needs"].startswith("nothing"):
            assert datasets.load_dataset(row["name"]).num_clients == row["num_clients"]


def test_load_errors(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDPRIOR_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"name must be one of .* got 'digit'. Did you mean digits"
    ):
        datasets.load_dataset("digit")
    with pytest.raises(ValueError, match=r"'num_client'. Did you mean num_clients"):
        datasets.load_dataset("digits", num_client=3)
    with pytest.raises(ValueError, match=r"needs a data folder.*FEDPRIOR_DATA"):
        datasets.load_dataset("mnist")
    with pytest.raises(
        ValueError, match=f"mnist: {tmp_path} contains neither train-images.*download"
    ):
        datasets.load_dataset("mnist", root=tmp_path)
    monkeypatch.setenv("FEDPRIOR_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    with pytest.raises(
        ValueError, match=f"mnist: {tmp_path / 'mnist'} contains neither train-images"
    ):
        datasets.load_dataset("mnist")


def test_digits_shape_and_parts():
    federation = digits.digits()
    assert federation.num_clients == 30
    assert federation.shape == (8, 8, 1)
    assert federation.num_classes == 10
    assert federation.train.x.dtype == np.float32
    for part in (federation.train, federation.valid, federation.test):
        assert part.x.min() >= 0
        assert part.x.max() <= 1
    assert federation.train.size.min() >= 10
    assert federation.train.size.max() <= 30
    assert federation.train.size.min() < federation.train.size.max()
    assert (federation.valid.size == 8).all()
    assert (federation.test.size >= 15).all()


def test_digits_clients_keep_to_their_classes():
    federation = digits.digits(classes_per_client=3, seed=5)
    for client in range(federation.num_clients):
        seen = [getattr(federation, part).client(client).y for part in ("train", "valid", "test")]
        assert len(np.unique(np.concatenate(seen))) == 3


def test_digits_are_a_function_of_the_seed():
    one, two, other = digits.digits(seed=1), digits.digits(seed=1), digits.digits(seed=2)
    np.testing.assert_array_equal(one.train.x, two.train.x)
    assert one.train.x.shape != other.train.x.shape or (one.train.x != other.train.x).any()


def test_digits_use_an_image_once(monkeypatch):
    monkeypatch.setattr(digits, "_styled", lambda images, draws: images)
    federation = digits.digits()
    pools = [getattr(federation, part).x for part in ("train", "valid", "test")]
    images = np.concatenate(pools).reshape(-1, 64)
    assert len(np.unique(images, axis=0)) == len(images)


def test_digits_styles_differ_between_clients():
    image = np.zeros((1, 8, 8), np.float32)
    image[0, 1:7, 3:5] = 0.7
    drawn = [
        digits._styled(image, np.random.default_rng(client)).ravel().tolist() for client in range(9)
    ]
    assert len({tuple(each) for each in drawn}) == 9
    np.testing.assert_allclose(digits._shift(0.0), np.eye(8))
    np.testing.assert_allclose(digits._shift(1.0) @ np.eye(8)[2], np.eye(8)[3])


def test_digits_too_many_clients():
    with pytest.raises(ValueError, match="num_clients must be small enough for 32 of the 1,797"):
        digits.digits(num_clients=200)


def test_the_digits_are_those_of_scikit_learn_however_they_are_read(monkeypatch):
    from sklearn.datasets import load_digits

    from fedprior.data import digits

    wanted = load_digits()
    for found in (digits.find_spec, lambda name: None):
        monkeypatch.setattr(digits, "find_spec", found)
        images, labels = digits._embedded()
        np.testing.assert_array_equal(images, wanted.images.astype(np.float32) / 16)
        np.testing.assert_array_equal(labels, wanted.target)
        assert (images.dtype, labels.dtype) == (np.float32, np.int32)
