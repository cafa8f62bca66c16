"""What each kind of line of a ledger holds; a line with anything else is forged or damaged."""

import math
import re
from collections.abc import Callable
from typing import Any

from fedprior.core.check import PrivacyError
from fedprior.privacy.events import RELATIONS, Event

VIEWS = ("central", "local", "masked")
NOISES = ("simulated", "secure")
_MOST = 2**53  # a whole number that every reader of JSON keeps exactly
_LONGEST = 200  # characters of a label

Rule = Callable[[Any], bool]


def printable(value: Any) -> bool:
    """Whether a label is text that can be shown on one line."""
    return isinstance(value, str) and value.isprintable() and len(value) <= _LONGEST


def _whole(least: int) -> Rule:
    return lambda value: type(value) is int and least <= value <= _MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _optional(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _hash(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32}", value) is not None


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _one_of(options: tuple[str, ...]) -> Rule:
    return lambda value: isinstance(value, str) and value in options


def _event(value: Any) -> bool:
    try:
        return Event.from_json(value).to_json() == value
    except (PrivacyError, ValueError, TypeError):
        return False


def _head(value: Any) -> bool:
    good = isinstance(value, dict) and set(value) == {"lines", "hash"}
    return good and _whole(1)(value["lines"]) and _hash(value["hash"])


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_whole(1), value))


_budget = _optional(lambda value: _number(value) and value > 0)
_EVERY: dict[str, Rule] = {"kind": _text, "number": _whole(0), "previous": _hash, "hash": _hash}
_KINDS: dict[str, dict[str, Rule]] = {
    "open": {
        "format": _whole(1),
        "id": _id,
        "shared": _flag,
        "key": _optional(_text),
        "purpose": _text,
        "delta": lambda value: _number(value) and value < 1,
        "relation": _one_of(RELATIONS),
        "view": _optional(_one_of(VIEWS)),
        "noise": _optional(_one_of(NOISES)),
        "unit": printable,
        "budget": _budget,
        "allow_delta": _flag,
    },
    "budget": {"budget": _budget},
    "reserve": {
        "id": _id,
        "event": _event,
        "first": _whole(0),
        "rounds": _whole(1),
        "count": _whole(1),
        "source": _text,
        "draws": _optional(_text),
        "epsilon": _number,
        "view": _one_of(VIEWS),
        "noise": _one_of(NOISES),
        "who": printable,
        "clients": _optional(_whole(1)),
        "time": _text,  # for readers; nothing depends on it
        "within": _optional(_head),
    },
    "begin": {"source": _text, "round": _whole(1)},
    "commit": {"reserves": _numbers},
}


def fault(record: dict[str, Any], before: list[dict[str, Any]]) -> str:
    """Return what is wrong with the fields of a line that follows those `before`, or ""."""
    kind = record.get("kind")
    if (kind == "open") != (not before):
        return "a ledger begins with one line of its terms"
    if not isinstance(kind, str) or kind not in _KINDS:
        return f"kind must be one of {', '.join(_KINDS)}, got {kind!r}"
    rules = {**_EVERY, **_KINDS[kind]}
    if set(record) != set(rules):
        names = sorted(set(record) ^ set(rules))
        return f"it must have the fields of a line of kind {kind}, which differ in {names}"
    for name, rule in rules.items():
        if not rule(record[name]):
            return f"{name} must not be {record[name]!r}"
    if kind == "budget" and before[0]["shared"]:
        return "the budget of a population does not change"
    if kind == "commit":
        reserved = [
            number < len(before) and before[number]["kind"] == "reserve"
            for number in record["reserves"]
        ]
        return "" if all(reserved) else f"it commits {record['reserves']}, which reserve nothing"
    return ""
