"""Bytes from anywhere: read as a message of ours, or refused as a BadMessage."""

import json
import pickle

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import example, given, settings
from hypothesis import strategies as st
from in_memory import carried

from fedprior.deploy import wire
from fedprior.exchange import trees

GOOD = wire.content(
    {"4": {"upload": np.arange(16, dtype=np.float32), "units": np.arange(3)}},
    {"nonce": "0123", "failed_clients": {}},
)

pytestmark = pytest.mark.usefixtures("one_process")


def message(payload, signature=b"signed"):
    return wire.request(3, payload, seconds=60)


def read(payload, most=2**20):
    """What arrives of some bytes, or None where they are refused; anything else is a failure."""
    array = Array(dtype="uint8", shape=(len(payload),), stype="fedprior", data=payload)
    records = {"content": ArrayRecord({"bytes": array}), "signature": ConfigRecord({"bytes": b""})}
    sent = Message(RecordDict(records), dst_node_id=3, message_type="train")
    try:
        return wire.read(sent, most=most)[0]
    except wire.BadMessage:
        return None


def test_what_was_sent_arrives(one_process):
    request = carried(wire.request(3, GOOD, seconds=60))
    packed, payload, signature = wire.read(request, most=100)
    assert (payload, signature) == (GOOD, b"")
    assert packed.facts == {"nonce": "0123", "failed_clients": {}}
    np.testing.assert_array_equal(packed.arrays["4/upload"], np.arange(16))
    assert packed.arrays["4/units"].dtype == np.int64
    answer = carried(wire.reply(request, GOOD, b"signed"))
    assert wire.read(answer, most=100)[2] == b"signed"
    assert answer.metadata.reply_to_message_id == request.metadata.message_id


@settings(max_examples=150, deadline=None)
@given(payload=st.binary(max_size=400))
@example(payload=b"")
@example(payload=b"\xff" * 200)
@example(payload=pickle.dumps({"a": np.zeros(3)}))
def test_any_bytes(payload):
    assert read(payload) is None


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 8 * len(GOOD) - 1))
def test_any_bit_that_is_flipped(place):
    spoiled = bytearray(GOOD)
    spoiled[place // 8] ^= 1 << place % 8
    assert read(bytes(spoiled)) is None


@settings(max_examples=60, deadline=None)
@given(length=st.integers(0, len(GOOD) - 1), more=st.binary(max_size=20))
def test_any_message_that_is_cut_or_longer(length, more):
    assert read(GOOD[:length]) is None
    assert read(GOOD + more) is None or not more


def forged(header, payload=b""):
    """Bytes with a header of somebody who can compute the checksum."""
    text = json.dumps(header) if isinstance(header, dict) else header
    if isinstance(header, dict):
        meta = {
            "sha256": "0" * 64,
            "fedprior": header.pop("facts", '{"kind": "exchange", "format": 1}'),
        }
        text = json.dumps({"__metadata__": meta, **header})
    text = text.encode()
    head = bytearray(len(text).to_bytes(8, "little") + text)
    content = head + payload
    if len(content) > trees._PLACE.stop:
        content[trees._PLACE] = trees._checksum(content).encode()
    return bytes(content)


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_a_forged_header_that_is_right_is_read():
    assert list(read(forged({"x": entry()}, bytes(4))).arrays) == ["x"]


@pytest.mark.parametrize(
    "header",
    [
        {"x": entry(shape=[2**62, 4])},
        {"x": entry(shape=[-1])},
        {"x": entry(shape=[1.5])},
        {"x": entry(shape=["1"])},
        {"x": entry(shape=[[1]])},
        {"x": entry(shape=5)},
        {"x": entry(shape=[1] * 200)},
        {"x": entry(shape=[2**70, 0], offsets=[0, 0])},
        {"x": entry(dtype="O")},
        {"x": entry(dtype="object")},
        {"x": entry(dtype=None)},
        {"x": entry(dtype=["F32"])},
        {"x": entry(offsets=[0, 8])},
        {"x": entry(offsets=[4, 8])},
        {"x": entry(offsets=[-4, 0])},
        {"x": entry(offsets=[0.0, 4.0])},
        {"x": entry(offsets=[float("nan"), 4])},
        {"x": entry(offsets=[0, 10**400])},
        {"x": entry(offsets=[])},
        {"x": entry(), "y": entry()},
        {"x": {}},
        {"x": None},
        {"x": []},
        {},
        {"facts": "[]"},
        {"facts": "{"},
        {"facts": '{"kind": "exchange"}'},
        {"facts": '{"kind": "exchange", "format": NaN}'},
        {"facts": '{"kind": "exchange", "format": Infinity}'},
        {"facts": '{"kind": "exchange", "format": 2}'},
        {"facts": '{"kind": "memory", "format": 1}'},
        {"facts": "[" * 10**5},
        {"facts": None},
        {"facts": 1},
    ],
)
def test_a_header_that_does_not_describe_what_follows(header):
    assert read(forged(header, bytes(4))) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(entry=_json, facts=_json, payload=st.binary(max_size=16))
def test_any_header_with_a_checksum(entry, facts, payload):
    """Whoever computes the checksum can put any JSON there."""
    told = json.dumps(facts)
    read(forged({"x": entry, "facts": told}, payload))
    read(forged({"x": entry}, payload))


@settings(max_examples=100, deadline=None)
@given(
    dtype=st.sampled_from([*trees._CODES.values(), "F8", ""]),
    shape=st.lists(st.integers(-2, 5), max_size=4),
    offsets=st.lists(st.integers(-3, 20), min_size=1, max_size=3),
    payload=st.binary(max_size=20),
)
def test_any_array(dtype, shape, offsets, payload):
    found = read(forged({"x": entry(dtype, shape, offsets)}, payload))
    if found is not None:
        assert found.arrays["x"].shape == tuple(shape)
        assert found.arrays["x"].nbytes == len(payload)


def test_size_is_looked_at_before_anything_is_read(monkeypatch):
    def unpack(*given, **named):
        raise AssertionError("it was read")

    monkeypatch.setattr(trees, "unpack", unpack)
    large = bytes(2**20 + 101)
    with pytest.raises(AssertionError):
        read(large, most=101)
    assert read(large, most=100) is None


def test_a_checksum_is_looked_at_before_the_header(monkeypatch):
    def loads(text):
        raise AssertionError("it was parsed")

    spoiled = bytearray(GOOD)
    spoiled[-1] ^= 1
    monkeypatch.setattr(trees.json, "loads", loads)
    assert read(bytes(spoiled)) is None
