"""Secure sums: exact with any dropouts down to the threshold, and nothing else can be opened."""

import hmac
import struct
from dataclasses import replace
from functools import reduce
from hashlib import sha256

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedprior.privacy import masks

FALSE_ALARM = 1e-6  # of each statistical test
KEYS = {number: sha256(b"key %d" % number).digest() for number in range(255)}
PUBLIC = {number: masks.public_key(key) for number, key in KEYS.items()}
LENGTH = 20_000  # coordinates: in 160,000 bytes, one value that is 1.6 times too frequent is seen


def attempt(size=5, threshold=3, context=b"round 1"):
    return masks.Attempt(
        members={number: PUBLIC[number] for number in range(size)},
        context=context,
        threshold=threshold,
    )


def small_units(size, length=LENGTH, seed=0):
    return np.random.default_rng(seed).integers(-1000, 1000, (size, length))


def upload(one, units):
    """Masked vectors and sealed blobs by member, for a mapping or the rows of an array."""
    rows = units if isinstance(units, dict) else dict(enumerate(units))
    sent = {own: one.mask(row, key=KEYS[own], own=own) for own, row in rows.items()}
    return {own: masked for own, (masked, _) in sent.items()}, {
        own: sealed for own, (_, sealed) in sent.items()
    }


def reveals(one, sealed, alive, answering=None):
    return {
        own: one.reveal(
            key=KEYS[own], own=own, alive=alive, sealed={each: sealed[each][own] for each in alive}
        )
        for own in (alive if answering is None else answering)
    }


def total(masked, alive):
    return np.sum([masked[own] for own in alive], axis=0, dtype=np.uint64)


def uniform_p_value(words):
    counts = np.bincount(np.ascontiguousarray(words).view(np.uint8), minlength=256)
    return stats.chisquare(counts).pvalue


# An oracle for GF(256): schoolbook arithmetic, one byte at a time.


def times(one, other):
    product = 0
    for bit in range(8):
        product ^= (one << bit) * (other >> bit & 1)
    for bit in range(14, 7, -1):
        product ^= (0x11D << (bit - 8)) * (product >> bit & 1)
    return product


INVERSE = {one: other for one in range(1, 256) for other in range(1, 256) if times(one, other) == 1}


def rebuilt(shares):
    """The bytes at zero of the polynomials through `shares`, by point."""
    answer = bytes(len(next(iter(shares.values()))))
    for point, share in shares.items():
        factors = [times(other, INVERSE[other ^ point]) for other in shares if other != point]
        weight = reduce(times, factors, 1)
        answer = bytes(a ^ times(weight, b) for a, b in zip(answer, share, strict=True))
    return answer


def opened(blobs):
    """Every secret of 32 bytes that a server can rebuild from reveals; members start at 0."""
    joined = rebuilt({own + 1: blob[:-32] for own, blob in blobs.items()})
    return [joined[start : start + 32] for start in range(0, len(joined), 32)]


def secret(one, own, other):
    return one._keys(KEYS[own], own)[other][0]


@pytest.mark.parametrize(
    ("alive", "answering"),
    [
        (range(5), range(5)),
        ([0, 2, 3, 4], [0, 2, 3, 4]),
        (range(5), [0, 1, 4]),
        ([1, 2, 3, 4], [4, 1, 2]),
        ([0, 2, 4], [0, 2, 4]),
    ],
    ids=["all present", "gone before", "silent after", "both", "exactly the threshold"],
)
def test_the_sum_is_exact_whoever_drops_out(alive, answering):
    one, units = attempt(), small_units(5, 50)
    masked, sealed = upload(one, units)
    answers = reveals(one, sealed, list(alive), answering)
    answer = one.recover(total(masked, alive), alive=list(alive), reveals=answers)
    assert answer.dtype == np.int64
    np.testing.assert_array_equal(answer, units[list(alive)].sum(axis=0))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_members_units_and_dropouts(data):
    numbers = data.draw(st.lists(st.integers(0, 254), min_size=2, max_size=6, unique=True))
    threshold = data.draw(st.integers(2, len(numbers)))
    some = {"min_size": threshold, "unique": True}
    alive = data.draw(st.lists(st.sampled_from(numbers), **some))
    answering = data.draw(st.lists(st.sampled_from(alive), **some))
    length = data.draw(st.integers(0, 4))
    vector = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=length, max_size=length)
    units = {own: np.array(data.draw(vector), np.int64) for own in numbers}
    one = masks.Attempt(
        members={own: PUBLIC[own] for own in numbers},
        context=data.draw(st.binary(max_size=8)),
        threshold=threshold,
    )
    masked, sealed = upload(one, units)
    answers = reveals(one, sealed, alive, answering)
    answer = one.recover(total(masked, alive), alive=alive, reveals=answers)
    plain = total({own: row.view(np.uint64) for own, row in units.items()}, alive)
    np.testing.assert_array_equal(answer, plain.view(np.int64))


def test_large_units_and_wraparound():
    one = attempt(3, 2)
    units = np.array([[2**40, -(2**40), 2**63 - 1], [2**40, -(2**40), 1], [-1, -1, 0]])
    masked, sealed = upload(one, units)
    answers = reveals(one, sealed, range(3))
    answer = one.recover(total(masked, range(3)), alive=range(3), reveals=answers)
    assert answer.tolist() == [2**41 - 1, -(2**41) - 1, -(2**63)]


def test_255_members():
    one, alive = attempt(255, 2), [3, 254]
    masked, sealed = upload(one, {3: np.array([5]), 254: np.array([-7])})
    answers = reveals(one, sealed, alive)
    assert one.recover(total(masked, alive), alive=alive, reveals=answers).tolist() == [-2]


def test_one_reveal_fewer_than_the_threshold_is_too_few():
    one, units = attempt(), small_units(5, 4)
    masked, sealed = upload(one, units)
    answers = reveals(one, sealed, range(5), [1, 3])
    with pytest.raises(masks.TooFewReveals, match="2 reveals, 3 needed"):
        one.recover(total(masked, range(5)), alive=range(5), reveals=answers)


def test_an_upload_is_uniform_unless_a_context_is_used_twice():
    units, others = small_units(2)
    first, second = attempt(context=b"round 1"), attempt(context=b"round 2")
    upload_of_first = first.mask(units, key=KEYS[0], own=0)[0]
    again = first.mask(others, key=KEYS[0], own=0)[0]
    fresh = second.mask(others, key=KEYS[0], own=0)[0]
    assert uniform_p_value(units) < FALSE_ALARM  # what the test detects
    assert uniform_p_value(upload_of_first) > FALSE_ALARM
    assert uniform_p_value(upload_of_first - fresh) > FALSE_ALARM
    assert uniform_p_value(upload_of_first - again) < FALSE_ALARM
    np.testing.assert_array_equal((upload_of_first - again).view(np.int64), units - others)


def test_pair_masks_cancel_in_the_whole_sum_only():
    """Without the members' own masks, single uploads and the sum of all but one are uniform."""
    one, units = attempt(), small_units(5)
    masked, _ = upload(one, units)
    bare = [masked[own] - masks._stream(secret(one, own, own), LENGTH) for own in range(5)]
    assert uniform_p_value(total(masked, range(5))) > FALSE_ALARM
    assert all(uniform_p_value(each) > FALSE_ALARM for each in bare)
    assert uniform_p_value(total(bare, range(4))) > FALSE_ALARM
    assert uniform_p_value(total(bare, range(5))) < FALSE_ALARM


def test_a_reveal_holds_the_secrets_of_the_sum_and_no_other():
    one, alive, gone = attempt(), [0, 2, 3], [1, 4]
    _, sealed = upload(one, small_units(5, 1))
    answers = reveals(one, sealed, alive)
    expected = [secret(one, own, other) for own in alive for other in (own, *gone)]
    assert opened(answers) == expected
    kept = [secret(one, own, own) for own in gone] + [secret(one, 1, 4)]
    kept += [secret(one, 0, 2), secret(one, 0, 3), secret(one, 2, 3)]
    assert not set(expected) & set(kept)
    assert {len(blob) for blob in answers.values()} == {32 * (1 + 3 * 3)}
    assert {len(blob) for blob in sealed[0].values()} == {32 * 5 + 16}


def test_a_late_upload_of_a_gone_member_stays_masked():
    one, units, late = attempt(), small_units(5), 2
    masked, sealed = upload(one, units)
    alive = [own for own in range(5) if own != late]
    secrets = opened(reveals(one, sealed, alive))
    residue = masked[late]
    for own, pair in zip(alive, secrets[1::2], strict=True):
        assert pair == secret(one, late, own)
        stream = masks._stream(pair, LENGTH)
        residue = residue - stream if own > late else residue + stream
    assert uniform_p_value(residue) > FALSE_ALARM
    without_own_mask = residue - masks._stream(secret(one, late, late), LENGTH)
    np.testing.assert_array_equal(without_own_mask.view(np.int64), units[late])


def test_fewer_shares_than_the_threshold_rebuild_another_secret():
    one = attempt(5, 3)
    _, sealed = upload(one, small_units(5, 1))
    answers = reveals(one, sealed, range(5))
    true = [secret(one, own, own) for own in range(5)]
    for few in ([0, 1], [1, 4], [3]):
        wrong = opened({own: answers[own] for own in few})
        assert not set(wrong) & set(true)
    assert opened({own: answers[own] for own in (4, 0, 2)}) == true


def test_a_share_below_the_threshold_is_independent_of_the_secret():
    one = attempt(255, 2)
    _, sealed = upload(one, {0: np.zeros(1, np.int64), 1: np.zeros(1, np.int64)})
    blob = reveals(one, sealed, [0, 1], [1])[1]
    share = np.frombuffer(blob[: 32 * 254], np.uint8)
    others = [0, *range(2, 255)]
    keys = one._keys(KEYS[0], 0)
    secrets = np.frombuffer(b"".join(keys[each][0] for each in others), np.uint8)
    assert uniform_p_value(share) > FALSE_ALARM
    assert uniform_p_value(share ^ secrets) > FALSE_ALARM


def test_a_server_that_lies_about_who_is_alive_does_not_open_an_upload():
    one, units, victim = attempt(5, 3), small_units(5, 3), 0
    masked, sealed = upload(one, units)
    told_alive = reveals(one, sealed, range(5), [0, 1])
    told_gone = reveals(one, sealed, range(1, 5), [2, 3, 4])
    assert secret(one, victim, victim) not in opened(told_alive)  # two shares of the three needed
    with pytest.raises(masks.TooFewReveals):
        one.recover(total(masked, range(5)), alive=range(5), reveals=told_alive)
    with pytest.raises(ValueError, match="reveal of member 2"):
        one.recover(total(masked, range(5)), alive=range(5), reveals=told_alive | told_gone)
    answer = one.recover(total(masked, range(1, 5)), alive=range(1, 5), reveals=told_gone)
    np.testing.assert_array_equal(answer, units[1:].sum(axis=0))


def flipped(blob, place):
    return blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda blob: flipped(blob, 0),
        lambda blob: flipped(blob, len(blob) - 1),
        lambda blob: blob[:-1],
        lambda blob: blob + b"\0",
        lambda blob: b"",
    ],
    ids=["first byte", "last byte", "short", "long", "empty"],
)
def test_damaged_bytes_are_refused_by_member(damage):
    one = attempt(3, 2)
    masked, sealed = upload(one, small_units(3, 2))
    answers = reveals(one, sealed, range(3))
    with pytest.raises(ValueError, match="reveal of member 1"):
        one.recover(
            total(masked, range(3)), alive=range(3), reveals=answers | {1: damage(answers[1])}
        )
    for sender in (0, 1, 2):
        broken = {own: dict(blobs) for own, blobs in sealed.items()}
        broken[sender][1] = damage(broken[sender][1])
        with pytest.raises(ValueError, match=f"blob of member {sender}"):
            reveals(one, broken, range(3), [1])


@pytest.mark.parametrize(
    "other",
    [
        attempt(3, 2, b"round 2"),
        attempt(3, 3),
        attempt(4, 2),
        replace(attempt(3, 2), members={0: PUBLIC[0], 1: PUBLIC[1], 2: PUBLIC[7]}),
    ],
    ids=["context", "threshold", "members", "public key"],
)
def test_what_belongs_to_another_attempt_is_refused(other):
    one, units = attempt(3, 2), small_units(2, 2)
    masked, sealed = upload(one, small_units(3, 2))
    answers = reveals(one, sealed, [0, 1])
    _, sealed_in_other = upload(other, units)
    with pytest.raises(ValueError, match="blob of member 0"):
        reveals(one, {0: sealed_in_other[0], 1: sealed[1]}, [0, 1], [1])
    blob = reveals(other, sealed_in_other, [0, 1], [0])[0] if other.threshold == 2 else b""
    with pytest.raises(ValueError, match="reveal of member 0"):
        one.recover(total(masked, [0, 1]), alive=[0, 1], reveals=answers | {0: blob})


def test_blobs_and_reveals_in_the_wrong_place_are_refused():
    one = attempt(3, 2)
    masked, sealed = upload(one, small_units(3, 2))
    swaps = {
        "receiver": {0: {1: sealed[0][2]}, 1: sealed[1]},
        "sender": {0: {1: sealed[2][1]}, 1: sealed[1]},
        "direction": {0: {1: sealed[1][0]}, 1: sealed[1]},
    }
    for swapped in swaps.values():
        with pytest.raises(ValueError, match="blob of member 0"):
            reveals(one, swapped, [0, 1], [1])
    with pytest.raises(ValueError, match="blob of member 0"):
        one.reveal(key=KEYS[1], own=1, alive=[0, 1], sealed={1: sealed[1][1]})
    answers, fewer = reveals(one, sealed, range(3)), reveals(one, sealed, [0, 1])
    with pytest.raises(ValueError, match="reveal of member 1"):
        one.recover(total(masked, range(3)), alive=range(3), reveals=answers | {1: answers[0]})
    with pytest.raises(ValueError, match="reveal of member 2"):
        one.recover(total(masked, [0, 1]), alive=[0, 1], reveals=fewer | {2: answers[2]})


def test_a_member_reveals_nothing_to_an_unsound_request():
    one = attempt()
    _, sealed = upload(one, small_units(5, 1))
    for own, alive, match in (
        (0, [1, 2, 3], "member 0 is not alive"),
        (0, [0, 1], "at least 3 members"),
        (0, [0, 1, 2, 2], "each once"),
        (0, [0, 1, 2, 9], "at least 3 members"),
    ):
        blobs = {each: sealed[each % 5][own] for each in alive}
        with pytest.raises(ValueError, match=match):
            one.reveal(key=KEYS[own], own=own, alive=alive, sealed=blobs)


def test_keys():
    assert len({masks.new_key() for _ in range(3)}) == 3
    key = masks.new_key()
    assert (
        masks.public_key(key)
        == X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
    )
    units = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="member 0: wrong key"):
        attempt().mask(units, key=KEYS[1], own=0)
    with pytest.raises(ValueError, match="member 9: wrong key"):
        attempt().mask(units, key=KEYS[9], own=9)
    unsafe = replace(attempt(), members=dict(attempt().members) | {4: bytes(32)})
    with pytest.raises(ValueError, match="key of member 4 is unsafe"):
        unsafe.mask(units, key=KEYS[0], own=0)


def test_secrets_come_from_private_keys_and_every_fact_of_the_attempt():
    """HKDF (RFC 5869) by the standard library: of the own key, or of the agreement of two keys."""
    one = attempt(3, 2)
    facts = struct.pack(">5Q", 2, 3, 0, 1, 2) + PUBLIC[0] + PUBLIC[1] + PUBLIC[2]
    digest = sha256(b"fedprior masks 1" + facts + b"round 1").digest()
    agreed = X25519PrivateKey.from_private_bytes(KEYS[0]).exchange(
        X25519PrivateKey.from_private_bytes(KEYS[2]).public_key()
    )
    for known, own, other in ((KEYS[1], 1, 1), (agreed, 0, 2), (agreed, 2, 0)):
        extracted = hmac.digest(bytes(32), known, "sha256")
        info = digest + struct.pack(">2Q", min(own, other), max(own, other))
        assert secret(one, own, other) == hmac.digest(extracted, info + b"\1", "sha256")


def test_arguments():
    members = {number: PUBLIC[number % 255] for number in range(256)}
    for size, threshold in ((256, 3), (3, 1), (3, 4), (0, 2)):
        chosen = {number: members[number] for number in range(size)}
        with pytest.raises(ValueError, match="threshold must be from 2"):
            masks.Attempt(members=chosen, context=b"a", threshold=threshold)
    for wrong in ({-1: PUBLIC[1]}, {2**63: PUBLIC[1]}, {7: PUBLIC[1][:-1]}):
        with pytest.raises(ValueError, match="must have a public key of 32 bytes"):
            replace(attempt(), members=dict(attempt().members) | wrong)
    for units in (np.zeros(2), np.zeros((2, 2), np.int64), np.zeros(2, np.uint64)):
        with pytest.raises(ValueError, match="units must be int64"):
            attempt().mask(units, key=KEYS[0], own=0)
    with pytest.raises(ValueError, match="total must be uint64"):
        attempt().recover(np.zeros(2, np.int64), alive=range(5), reveals={})


def test_masking_is_repeatable_and_leaves_its_arguments_alone():
    one, units = attempt(), small_units(1, 10)[0]
    first, second = (one.mask(units, key=KEYS[0], own=0) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]
    np.testing.assert_array_equal(units, small_units(1, 10)[0])
    members = {np.int64(number): public for number, public in one.members.items()}
    assert replace(one, members=members).mask(units, key=KEYS[0], own=np.int64(0))[1] == first[1]


def test_products_agree_with_schoolbook_arithmetic():
    assert sorted(masks._EXP) == list(range(1, 256))
    generator = np.random.default_rng(0)
    matrix, rows = generator.integers(0, 256, (2, 3)), generator.integers(0, 256, (3, 200))
    expected = [
        [reduce(lambda a, b: a ^ b, map(times, row.tolist(), column.tolist())) for column in rows.T]
        for row in matrix
    ]
    product = masks._product(matrix.astype(np.uint8), rows.astype(np.uint8))
    np.testing.assert_array_equal(product, expected)
