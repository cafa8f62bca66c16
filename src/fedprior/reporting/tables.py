"""Dataclasses <-> nested tables, as TOML and JSON have them."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedprior.core import check


def build(kind: type, tables: Mapping[str, Any], owner: str) -> Any:
    """A dataclass from nested tables; an unknown key is refused, with the nearest known one."""
    hints = get_type_hints(kind)
    known = [each.name for each in fields(kind)]
    values = {}
    for key, value in tables.items():
        check.choice(owner, "key", key, known)
        values[key] = _convert(hints[key], value, owner, key)
    return kind(**values)


def as_tables(config: Any) -> dict[str, Any]:
    """Nested plain tables of a configuration, complete, ready for TOML or JSON."""
    return {
        key: as_tables(value) if dataclasses.is_dataclass(value) else _plain(value)
        for key, value in ((each.name, getattr(config, each.name)) for each in fields(config))
    }


def merged(base: dict[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the entries of `tables` in it; it is changed."""
    for key, value in tables.items():
        inner = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = merged(base[key], value) if inner else value
    return base


def put(tables: dict[str, Any], change: str) -> None:
    """`a.b.c=value` into nested tables; a value that is not TOML is taken as text."""
    path, separator, text = change.partition("=")
    if not separator or not path.strip():
        raise ValueError(check.message("config", "--set", "of the form key=value", change))
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *parents, last = path.strip().split(".")
    for parent in parents:
        tables = tables.setdefault(parent, {})
        check.require(isinstance(tables, dict), "config", parent, "a table", tables)
    tables[last] = value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _convert(hint: Any, value: Any, owner: str, key: str) -> Any:
    """`value` as the type that the field declares; whole numbers pass as floats."""
    origin = get_origin(hint)
    if dataclasses.is_dataclass(hint):
        check.require(isinstance(value, Mapping), owner, key, "a table", value)
        return build(hint, value, f"{owner} {key}")  # type: ignore[arg-type]
    if origin is Literal:
        check.choice(owner, key, value, get_args(hint))
        return value
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(get_args(hint)[0], item, owner, key) for item in items)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        check.require(isinstance(value, Mapping), owner, key, "a table", value)
        return dict(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        names = {int: "a whole number", float: "a number", str: "text"}
        raise ValueError(check.message(owner, key, names.get(hint, str(hint)), value))
    return value
