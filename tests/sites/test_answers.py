"""What a node says may be anything; what is not as it should be is left out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.sites.answers import Answer, shown

NUMBERS = {"a": 1, "b": 11, "c": 2}
KEY = "ab" * 32
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a", "b", KEY, "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "z", "adamap"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(
    facts=st.dictionaries(st.sampled_from(["clients", "masks", "scores", "failed_clients"]), _json)
)
def test_any_facts(facts):
    answer = Answer(("a", "b"), None, facts)
    assert all(isinstance(name, str) for name in answer.present)
    assert answer.mask("a") is None or len(answer.mask("a")) == 32
    assert answer.scores("adamap").keys() <= {"a", "b"}
    assert all(isinstance(score, float) for score in answer.scores("adamap").values())
    assert answer.failed_clients.keys() <= {"a", "b"}


def test_what_is_right_is_taken():
    facts = {
        "clients": ["a", "b", "a"],
        "masks": {"a": KEY, "b": KEY[2:]},
        "scores": {"adamap": {"a": 0.5, "b": True, "c": 1.0}, "local": {"b": float("nan")}},
        "failed_clients": {"a": "OSError", "c": "OSError"},
    }
    answer = Answer(("a", "b"), None, facts)
    assert answer.present == ["a", "b"]
    assert answer.mask("a") == bytes.fromhex(KEY)
    assert answer.mask("b") is None
    assert answer.scores("adamap") == {"a": 0.5}
    assert np.isnan(answer.scores("local")["b"])
    assert answer.failed_clients == {"a": "OSError"}


def test_arrays_go_to_the_client_of_their_number():
    """1 is not the beginning of 11."""
    arrays = {place: np.zeros(1) for place in ("1/upload", "11/upload", "2/upload", "x", "1")}
    answer = Answer(("a", "b"), None, {}, arrays)
    assert {number: list(own) for number, own in answer.by_client(NUMBERS)} == {
        1: ["upload"],
        11: ["upload"],
    }
    assert answer.strangers(NUMBERS) == ["2", "x"]


@pytest.mark.parametrize("word", ["a\nINFO: fine", "\x1b[31m", "x" * 10**6, {"a": ["\n"]}, None])
def test_a_word_is_one_short_line(word):
    line = shown(word)
    assert len(line) <= 80
    assert line.isprintable()
