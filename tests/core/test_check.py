"""`Owner: name must be RULE, got VALUE. REMEDY`, at construction, and never on traced values."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.core import check


def test_the_wording():
    assert check.message("Owner", "x", "above 1", 0) == "Owner: x must be above 1, got 0."
    text = check.message("Owner", "x", "above 1", "a", "Raise it.")
    assert text == "Owner: x must be above 1, got 'a'. Raise it."
    for value, shown in ((np.float64(3), "3.0"), (np.str_("a"), "'a'"), (np.array(2), "2")):
        assert check.message("Owner", "x", "above 4", value).endswith(f"got {shown}.")


def test_a_check_without_a_value_is_a_sentence():
    check.expect(True, "Owner", "unused")
    with pytest.raises(ValueError, match=r"^Owner: --value with --epsilon needs --low\.$"):
        check.expect(False, "Owner", "--value with --epsilon needs --low.")


@pytest.mark.parametrize(
    ("function", "good", "bad", "rule"),
    [
        (check.positive, (1, 0.5, np.float32(2)), (0, -1.0), "a positive number"),
        (check.nonnegative, (0, 0.0, 3), (-1, -1e-9), "a number of at least 0"),
        (check.fraction, (1, 0.5), (0, 1.5), r"in \(0, 1\]"),
        (check.share, (0, 0.99), (1, -0.1), r"in \[0, 1\)"),
        (check.unit, (0, 0.5, 1), (-0.1, 1.5), r"in \[0, 1\]"),
        (check.within, (0.01, 0.99), (0, 1), r"in \(0, 1\)"),
    ],
)
def test_ranges(function, good, bad, rule):
    for value in good:
        function("Owner", rate=value)
    for value in (*bad, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"^Owner: rate must be {rule}, got .*{value}"):
            function("Owner", rate=value)
    for value in ("1", None, True, [1.0]):
        with pytest.raises(TypeError, match=rf"^Owner: rate must be {rule}, got "):
            function("Owner", rate=value)


def test_several_values_are_checked_and_the_wrong_one_is_named():
    with pytest.raises(ValueError, match=r"^Owner: second must be a positive number, got -2"):
        check.positive("Owner", first=1.0, second=-2)


def test_count():
    check.count("Owner", steps=1, rounds=np.int64(3))
    check.count("Owner", least=0, steps=0)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1, got 0"):
        check.count("Owner", steps=0)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 3, got 2"):
        check.count("Owner", least=3, steps=2)
    for value in (1.0, "1", True, None):
        with pytest.raises(TypeError, match=r"^Owner: steps must be a whole number"):
            check.count("Owner", steps=value)


def test_seed():
    assert check.seed("Owner", np.int64(5)) == 5
    assert type(check.seed("Owner", np.int64(5))) is int
    with pytest.raises(ValueError, match=r"^Owner: seed must be below 2\*\*31, got 2147483648"):
        check.seed("Owner", 2**31)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        check.seed("Owner", -1)
    with pytest.raises(TypeError, match=r"got 1\.5"):
        check.seed("Owner", 1.5)


def test_choice_names_the_nearest():
    check.choice("Owner", "direction", "forward", ["forward", "reverse"])
    wording = (
        "^Owner: direction must be one of forward, reverse, got 'foward'. Did you mean forward"
    )
    with pytest.raises(ValueError, match=wording):
        check.choice("Owner", "direction", "foward", ["forward", "reverse"])
    with pytest.raises(ValueError, match=r"got 'zzz'\.$"):
        check.choice("Owner", "direction", "zzz", ["forward", "reverse"])


def test_traced_values_are_skipped():
    """A numeric field may be an axis of a compiled sweep."""

    def scaled(rate):
        check.positive("Owner", rate=rate)
        check.nonnegative("Owner", rate=rate)
        check.fraction("Owner", rate=rate)
        check.share("Owner", rate=rate)
        return 2 * rate

    assert not check.is_traced(1.0)
    assert not check.is_traced(jnp.ones(()))
    assert float(jax.jit(scaled)(-1.0)) == -2
    np.testing.assert_array_equal(jax.vmap(scaled)(jnp.array([-1.0, 5.0])), [-2, 10])
    assert float(jax.grad(scaled)(-3.0)) == 2
