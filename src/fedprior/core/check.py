"""Argument checks: `Owner: name must be RULE, got VALUE. REMEDY`, or a plain sentence (`expect`).

Checks run when an object is constructed and skip traced values, so that a numeric field can be an
axis of a compiled sweep (the sweep checks its grid before tracing).
"""

import difflib
import math
import numbers
import sys
from collections.abc import Callable, Iterable
from typing import Any


class PrivacyError(RuntimeError):
    """A budget would be exceeded, an event has no accounting, or a private run is misconfigured."""


def is_traced(value: Any) -> bool:
    """Return whether `value` is a JAX tracer, without importing JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.core.Tracer)


def message(owner: str, name: str, rule: str, value: Any, remedy: str = "") -> str:
    """Return `Owner: name must be RULE, got VALUE. REMEDY`."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()  # 3.0 rather than np.float64(3.0)
    return f"{owner}: {name} must be {rule}, got {value!r}." + (f" {remedy}" if remedy else "")


def require(holds: bool, owner: str, name: str, rule: str, value: Any, remedy: str = "") -> None:
    """Raise ValueError with the wording of `message` unless `holds`."""
    if not holds:
        raise ValueError(message(owner, name, rule, value, remedy))


def expect(holds: bool, owner: str, sentence: str) -> None:
    """Raise ValueError(`Owner: SENTENCE`) unless `holds`; for checks without a value to show."""
    if not holds:
        raise ValueError(f"{owner}: {sentence}")


def _numbers(owner: str, values: dict[str, Any], rule: str, holds: Callable[[float], bool]) -> None:
    for name, value in values.items():
        if is_traced(value):
            continue
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(message(owner, name, rule, value))
        require(math.isfinite(value) and holds(float(value)), owner, name, rule, value)


def positive(owner: str, **values: Any) -> None:
    """Check that each value is a finite number above 0."""
    _numbers(owner, values, "a positive number", lambda value: value > 0)


def nonnegative(owner: str, **values: Any) -> None:
    """Check that each value is a finite number of at least 0."""
    _numbers(owner, values, "a number of at least 0", lambda value: value >= 0)


def fraction(owner: str, **values: Any) -> None:
    """Check that each value lies in (0, 1]."""
    _numbers(owner, values, "in (0, 1]", lambda value: 0 < value <= 1)


def share(owner: str, **values: Any) -> None:
    """Check that each value lies in [0, 1)."""
    _numbers(owner, values, "in [0, 1)", lambda value: 0 <= value < 1)


def unit(owner: str, **values: Any) -> None:
    """Check that each value lies in [0, 1]."""
    _numbers(owner, values, "in [0, 1]", lambda value: 0 <= value <= 1)


def within(owner: str, **values: Any) -> None:
    """Check that each value lies in (0, 1)."""
    _numbers(owner, values, "in (0, 1)", lambda value: 0 < value < 1)


def count(owner: str, *, least: int = 1, **values: Any) -> None:
    """Check that each value is an integer of at least `least`."""
    rule = f"a whole number of at least {least}"
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(message(owner, name, rule, value))
        require(int(value) >= least, owner, name, rule, value)


def flag(owner: str, **values: Any) -> None:
    """Check that each value is a bool; the string "false" would be truthy."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise TypeError(message(owner, name, "true or false, without quotes", value))


def seed(owner: str, value: Any) -> int:
    """Check that `value` is an integer in [0, 2**31), and return it as an int."""
    count(owner, least=0, seed=value)
    require(int(value) < 2**31, owner, "seed", "below 2**31", value)
    return int(value)


def choice(owner: str, name: str, value: Any, known: Iterable[str]) -> None:
    """Check that `value` is one of `known`; the error suggests the closest one."""
    options = list(known)
    if value in options:
        return
    require(False, owner, name, "one of " + ", ".join(options), value, nearest(value, options))


def nearest(value: Any, known: Iterable[str]) -> str:
    """Return `Did you mean X?`, or "" if no known word is close; case is ignored.

    >>> nearest("ROUNS", ["rounds", "seed"])
    'Did you mean rounds?'
    """
    words = {word.casefold(): word for word in known}
    matches = difflib.get_close_matches(str(value).casefold(), words, n=1, cutoff=0.5)
    return f"Did you mean {words[matches[0]]}?" if matches else ""
