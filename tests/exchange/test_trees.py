"""Trees <-> bytes: the same arrays back, and no changed byte goes unnoticed."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from fedprior.exchange import trees

KIND = {"kind": "thing", "format": 3}
TREE = {
    "gamma": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "psi": np.float32(4)},
    "flags": (np.array([True, False, True]), np.arange(3, dtype=np.uint32)),
    "half": jnp.asarray([1.5, -2], jnp.bfloat16),
    "empty": np.zeros((0, 4)),
}


def same(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def unpack(content):
    return trees.unpack(content, source="the file", **KIND)


def test_a_tree_comes_back(tmp_path):
    content = trees.pack(TREE, **KIND, round=7)
    packed = unpack(content)
    assert packed.facts == {"round": 7}
    same(packed.tree(TREE), TREE)
    path = tmp_path / "a.safetensors"
    trees.write(path, TREE, **KIND)
    same(trees.read(path, **KIND).tree(TREE), TREE)
    same(unpack(trees.pack((), **KIND)).tree(()), ())


def test_other_tools_read_it():
    plain = {name: leaf for name, leaf in TREE.items() if name != "half"}
    content = trees.pack(plain, **KIND)
    arrays = load(content)
    assert sorted(arrays) == ["empty", "flags/0", "flags/1", "gamma/psi", "gamma/w"]
    np.testing.assert_array_equal(arrays["gamma/w"], TREE["gamma"]["w"])


@settings(max_examples=200, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_a_changed_byte_is_refused(share, mask):
    content = bytearray(trees.pack(TREE, **KIND))
    content[int(share * len(content))] ^= mask
    with pytest.raises(ValueError, match="the file is damaged"):
        unpack(bytes(content))


def test_cut_or_extended_content_is_refused():
    content = trees.pack(TREE, **KIND)
    for changed in (b"", content[:5], content[:40], content[:-1], content + b"\0"):
        with pytest.raises(ValueError, match="the file is damaged"):
            unpack(changed)


def forged(change):
    """Content with a valid checksum whose header was changed, as a malicious sender can make it."""
    content = trees.pack({"a": np.arange(4.0), "b": np.arange(2.0)}, **KIND)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(change(header) or header).encode()
    head = bytearray(len(text).to_bytes(8, "little") + text)
    head[trees._PLACE] = b"0" * 64
    payload = content[8 + length :]
    head[trees._PLACE] = trees._checksum(head, payload).encode()
    return bytes(head + payload)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("shape", [2**60]),
        ("shape", [-2, -2]),
        ("shape", [1e300]),
        ("shape", "ab"),
        ("data_offsets", [0, 2**70]),
        ("data_offsets", [8, 40]),
        ("data_offsets", None),
        ("dtype", "O"),
        ("dtype", []),
    ],
)
def test_a_header_that_lies_is_refused(name, entry):
    with pytest.raises(ValueError, match="the file is malformed"):
        unpack(forged(lambda header: header["a"].update({name: entry})))


def test_more_lies_are_refused():
    for change in (
        lambda header: header.pop("b") and None,
        lambda header: header["__metadata__"].update(fedprior="[]"),
        lambda header: header["__metadata__"].update(fedprior="[" * 100_000),
        lambda header: header["__metadata__"].update(fedprior='{"kind": "thing", "format": "x"}'),
    ):
        with pytest.raises(ValueError, match="the file is malformed"):
            unpack(forged(change))
    assert unpack(forged(lambda header: None)).arrays["b"][1] == 1


def test_another_kind_format_or_shape_is_refused():
    content = trees.pack(TREE, kind="other", format=3)
    with pytest.raises(ValueError, match="the file is not a thing file"):
        unpack(content)
    with pytest.raises(ValueError, match=r"must be 3, got 4\. It was written by a newer"):
        unpack(trees.pack(TREE, kind="thing", format=4))
    packed = unpack(trees.pack({"a": np.zeros(3)}, **KIND))
    for like, wanted in (
        ({"a": np.zeros(4)}, r"a must be float64 of shape \(4,\), got float64 of shape \(3,\)"),
        ({"a": np.zeros(3, np.float32)}, r"a must be float32 of shape \(3,\), got float64"),
        ({"b": np.zeros(3)}, "a must be absent, got float64"),
        ({"a": np.zeros(3), "b": np.zeros(3)}, "b must be float64 of shape .*, got absent"),
    ):
        with pytest.raises(ValueError, match=wanted):
            packed.tree(like)
