"""The tables of the page on configuration files: every key with its type, default and meaning."""

import inspect
import re
from dataclasses import fields
from typing import Any, get_type_hints

from sphinx.application import Sphinx

from fedprior.learning.catalog import METHODS
from fedprior.learning.method import Method
from fedprior.reporting import config

PAGE = "reference/configuration"


def tables() -> str:
    """A table for each part of a configuration, then the options of each method."""
    lines: list[str] = []
    default = config.Config()
    for table in ("", "data", "model", "training", "privacy"):
        group = getattr(default, table) if table else default
        kind = type(group)
        heading = f"`[{table}]`" if table else "Top level"
        lines += [f"## {heading}", "", inspect.getdoc(kind) or "", ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        notes = dict(re.findall(r"^    (\w+): .*?#\s+(.+)$", inspect.getsource(kind), re.M))
        types = get_type_hints(kind)
        for key in fields(kind):
            value = getattr(group, key.name)
            if hasattr(value, "__dataclass_fields__"):
                continue
            cells = (f"`{key.name}`", _cell(_shown_type(types[key.name])), f"`{_toml(value)}`")
            lines.append(f"| {' | '.join(cells)} | {notes.get(key.name, '')} |")
        lines.append("")
    lines += ["## `[options.METHOD]`", ""]
    lines += ["Options of a single method. Those that `[training]` also has default to its values."]
    lines.append("")
    for name, method in METHODS.items():
        lines.append(f"- `{name}`: " + ", ".join(_option(method, key) for key in method.options()))
    return "\n".join(lines) + "\n"


def _option(method: Method, name: str) -> str:
    default = method.default(name)
    if default is None or name in config.Schedule.__dataclass_fields__:
        return f"`{name}`"
    return f"`{name} = {_toml(default)}`"


def _shown_type(annotation: Any) -> str:
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", inspect.formatannotation(annotation))


def _cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the tables to the page."""
    if name == PAGE:
        source[0] += tables()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
