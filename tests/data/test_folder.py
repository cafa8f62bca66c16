import numpy as np
import pytest

from fedprior.data.folder import from_folder, read_new


def write(folder, name, **arrays):
    np.savez(folder / f"{name}.npz", **arrays)


def rows(count, *, features=3, start=0):
    x = np.arange(count * features, dtype=float).reshape(count, features) + start
    return x, np.arange(count) % 2


def test_split_by_shares_and_given_parts(tmp_path):
    x, y = rows(20)
    write(tmp_path, "b", x=x, y=y)
    write(tmp_path, "a", x_train=x[:5], y_train=y[:5], x_test=x[5:8], y_test=y[5:8])
    write(
        tmp_path,
        "c",
        **{"x_train": x[:4], "y_train": y[:4], "x_valid": x[4:6], "y_valid": y[4:6]},
        **{"x_test": x[6:7], "y_test": y[6:7]},
    )
    federation = from_folder(tmp_path, seed=3)
    assert federation.clients.tolist() == ["a", "b", "c"]
    assert federation.train.size.tolist() == [5, 12, 4]
    assert federation.valid.size.tolist() == [0, 3, 2]
    assert federation.test.size.tolist() == [3, 5, 1]
    assert federation.classes == ("0", "1")
    np.testing.assert_array_equal(federation.train.client(0).x, x[:5])
    parts = [getattr(federation, part).client(1).x for part in ("train", "valid", "test")]
    assert sorted(np.concatenate(parts)[:, 0]) == x[:, 0].tolist()


def test_fractions_are_regression(tmp_path):
    x, y = rows(6)
    write(tmp_path, "a", x=x, y=y + 0.5)
    assert from_folder(tmp_path).classes is None
    assert from_folder(tmp_path, regression=False).classes == ("0.5", "1.5")


def test_whole_labels_of_two_types_are_the_same_classes(tmp_path):
    x, y = rows(20)
    y = y + 9 * (y > 0)
    write(tmp_path, "a", x_train=x, y_train=y.astype(float), x_test=x, y_test=y)
    write(tmp_path, "b", x=x, y=y - 10 * (np.arange(20) % 3 == 0))
    federation = from_folder(tmp_path)
    assert federation.classes == ("-10", "0", "10")
    np.testing.assert_array_equal(federation.train.client(0).y, federation.test.client(0).y)


def test_images_of_bytes_are_pixels(tmp_path):
    """One client with bytes and one with numbers in [0, 1]: both are read in [0, 1]."""
    draws = np.random.default_rng(0)
    images, y = draws.integers(0, 256, (6, 4, 4, 1)).astype(np.uint8), np.arange(6) % 2
    np.savez(tmp_path / "a.npz", x=images, y=y)
    assert from_folder(tmp_path).train.x.dtype == np.uint8
    np.savez(tmp_path / "b.npz", x=(images / 255).astype(np.float32), y=y)
    mixed = from_folder(tmp_path).train
    assert mixed.x.dtype == np.float32
    assert mixed.x.max() <= 1
    new, _, _ = read_new(tmp_path, shape=(4, 4, 1), classes=("0", "1"))
    np.testing.assert_allclose(new[:6], new[6:], rtol=1e-6)


def test_text_labels(tmp_path):
    x, y = rows(6)
    write(tmp_path, "a", x=x, y=np.array(["no", "yes"])[y])
    assert from_folder(tmp_path).classes == ("no", "yes")
    with pytest.raises(ValueError, match="labels must be numeric for regression"):
        from_folder(tmp_path, regression=True)
    write(tmp_path, "b", x=x, y=y)
    with pytest.raises(ValueError, match=r"all text or all numbers, got int64 in .*b\.npz"):
        from_folder(tmp_path)


def test_errors_name_the_file(tmp_path):
    with pytest.raises(ValueError, match=r"contains no \.npz files"):
        from_folder(tmp_path)
    with pytest.raises(ValueError, match=r"nowhere is not a folder; one \.npz file"):
        from_folder(tmp_path / "nowhere")
    x, y = rows(6)
    write(tmp_path, "a", x=x, y=y)
    for arrays, message in [
        ({"x": x}, r"b\.npz must hold x and y, or x_train.*got x\."),
        ({"x": x, "y": y[:4]}, r"x of .*b\.npz must have shape .* got \(6, 3\) and \(4,\)"),
        ({"x": x[:, 0], "y": y}, r"x of .*b\.npz must have shape .* got \(6,\) and \(6,\)"),
        ({"x": x[:, :2], "y": y}, r"one shape, got \(2,\) in train of .*b\.npz and \(3,\) in"),
        ({"x": x.astype(str), "y": y}, r"x of .*b\.npz must be numeric"),
        ({"x": x[:0], "y": y[:0]}, r"b\.npz has no training rows"),
        ({"x": np.array([{}], object), "y": y[:1]}, r"b\.npz must be an \.npz file of plain"),
    ]:
        write(tmp_path, "b", **arrays)
        with pytest.raises(ValueError, match=message):
            from_folder(tmp_path)
    (tmp_path / "b.npz").write_bytes(b"not a zip file")
    with pytest.raises(ValueError, match=r"b\.npz must be an \.npz file of plain arrays, got"):
        from_folder(tmp_path)


def test_classes_that_are_given_do_not_depend_on_the_labels(tmp_path):
    x, y = rows(6)
    write(tmp_path, "a", x=x, y=y)
    known = ["0", "1", "2"]
    federation = from_folder(tmp_path, classes=known, valid_share=0, test_share=0)
    assert federation.classes == ("0", "1", "2")
    assert sorted(federation.train.y.tolist()) == [0, 0, 0, 1, 1, 1]
    write(tmp_path, "b", x=x, y=y + 3)
    with pytest.raises(ValueError, match="each label must be one of 0, 1, 2, got '3'"):
        from_folder(tmp_path, classes=known)
    for wrong in (["0"], ["0", "0"], "01"):
        with pytest.raises(ValueError, match="classes must be a list of at least 2 names"):
            from_folder(tmp_path, classes=wrong)
    with pytest.raises(ValueError, match="classes must be None for regression"):
        from_folder(tmp_path, classes=known, regression=True)
