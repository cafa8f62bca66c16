"""A client's memory file: what the server accepted is what the client remembers."""

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.exchange import memory

TOKEN = "0123456789abcdef" * 2
LIKE = {"theta": np.zeros(2), "step": np.zeros((), np.int32)}


def value(number):
    return {"theta": np.array([number, -number], float), "step": np.int32(number)}


def take_part(folder, accepted, round, number=None):
    """One attempt at a round; the memory that it began from, as its number."""
    with memory.held(folder, token=TOKEN, client=3) as own:
        before = own.read(LIKE, accepted=accepted)
        own.write(value(round if number is None else number), round=round)
    return None if before is None else int(before["step"])


def test_pending_becomes_settled_when_it_was_accepted(tmp_path):
    assert take_part(tmp_path, None, 0) is None
    assert take_part(tmp_path, None, 2) is None  # round 0 was not accepted
    assert take_part(tmp_path, 2, 5) == 2
    assert take_part(tmp_path, 2, 6) == 2  # round 5 was not
    assert take_part(tmp_path, 2, 6, number=60) == 2  # the same round, asked for again
    assert take_part(tmp_path, 6, 9) == 60
    assert [path.name for path in (tmp_path / TOKEN).iterdir()] == ["3.memory"]


@settings(max_examples=40, deadline=None)
@given(accepts=st.lists(st.booleans(), max_size=12))
def test_any_order_of_lost_and_accepted_rounds(tmp_path_factory, accepts):
    folder, accepted = tmp_path_factory.mktemp("memory"), None
    for round, arrives in enumerate(accepts):
        assert take_part(folder, accepted, round) == accepted
        accepted = round if arrives else accepted


def test_a_client_whose_first_update_was_not_finite_enrolls_again(tmp_path):
    """The server cannot tell its upload from others and accepts it; there is no memory yet."""

    def attempt(accepted, round, after):
        with memory.held(tmp_path, token=TOKEN, client=3) as own:
            before = own.read(LIKE, accepted=accepted)
            own.write(after, round=round)
        return before

    assert attempt(None, 0, None) is None
    assert attempt(0, 1, None) is None
    assert attempt(1, 2, value(2)) is None
    assert attempt(1, 3, value(3)) is None  # round 2 was not accepted
    assert attempt(3, 4, value(4))["step"] == 3


def test_a_server_that_forgot_its_clients_does_not_make_them_forget(tmp_path):
    take_part(tmp_path, None, 0)
    take_part(tmp_path, None, 1)  # round 0 was not accepted
    take_part(tmp_path, 1, 2)
    with pytest.raises(ValueError, match=r"3.memory .* after round 1, .* accepted none"):
        take_part(tmp_path, None, 3)
    assert take_part(tmp_path, 2, 3) == 2


def test_the_values_come_back_with_their_types(tmp_path):
    take_part(tmp_path, None, 4)
    with memory.held(tmp_path, token=TOKEN, client=3) as own:
        back = own.read(LIKE, accepted=4)
    np.testing.assert_array_equal(back["theta"], [4, -4])
    assert back["step"].dtype == np.int32


def test_what_does_not_fit_the_server_is_refused(tmp_path):
    with (
        memory.held(tmp_path, token=TOKEN, client=3) as own,
        pytest.raises(ValueError, match=r"3.memory is missing: the server accepted round 2"),
    ):
        own.read(LIKE, accepted=2)
    take_part(tmp_path, None, 0)
    take_part(tmp_path, 0, 1)
    with memory.held(tmp_path, token=TOKEN, client=3) as own:
        with pytest.raises(ValueError, match=r"after round 0 or 1, not after round 7, which"):
            own.read(LIKE, accepted=7)
        with pytest.raises(ValueError, match=r"theta must be float64 of shape \(5,\)"):
            own.read({**LIKE, "theta": np.zeros(5)}, accepted=1)
        with pytest.raises(RuntimeError, match="read must be called before write"):
            own.write(value(3), round=2)
    other = tmp_path / TOKEN / "4.memory"
    other.write_bytes((tmp_path / TOKEN / "3.memory").read_bytes())
    with (
        memory.held(tmp_path, token=TOKEN, client=4) as own,
        pytest.raises(ValueError, match=r"4.memory belongs to another run or client"),
    ):
        own.read(LIKE, accepted=1)


@pytest.mark.parametrize("token", ["", "../../etc", "A" * 32, "0" * 15, "0" * 65, "0/" * 9, None])
def test_a_token_becomes_part_of_a_path_only_if_it_is_one(tmp_path, token):
    with (
        pytest.raises(ValueError, match="token must be 16 to 64 hexadecimal digits"),
        memory.held(tmp_path, token=token, client=0),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_one_process_at_a_time(tmp_path):
    with memory.held(tmp_path, token=TOKEN, client=3):
        with (
            pytest.raises(ValueError, match=rf"3.memory is in use by process {os.getpid()}"),
            memory.held(tmp_path, token=TOKEN, client=3),
        ):
            pass
        with memory.held(tmp_path, token=TOKEN, client=4):
            pass


@pytest.mark.parametrize("share", np.linspace(0, 0.999, 12))
def test_a_changed_byte_is_refused(tmp_path, share):
    take_part(tmp_path, None, 0)
    take_part(tmp_path, 0, 1)
    path = tmp_path / TOKEN / "3.memory"
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"3.memory is damaged"):
        take_part(tmp_path, 1, 2)


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_memory
print("begun", flush=True)
for round in range(1, 100_000):
    assert test_memory.take_part(Path(sys.argv[2]), round - 1, round) == round - 1
    print(round, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.011, 0.023])
def test_killed_at_any_moment(tmp_path, delay):
    """What was written last is there in full, or the one before it; nothing else is."""
    take_part(tmp_path, None, 0)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, os.path.dirname(__file__), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "begun\n"
        told = [process.stdout.readline()]
        time.sleep(delay)
        process.kill()
        told += process.stdout.readlines()
    found = []
    for accepted in range(5000):
        with contextlib.suppress(ValueError):
            found.append(take_part(tmp_path, accepted, accepted + 1))
        if found:
            break
    assert len(told) - 1 <= found[0] <= len(told)  # the round before the one that was told last
    assert [path.name for path in (tmp_path / TOKEN).iterdir()] == ["3.memory"]
