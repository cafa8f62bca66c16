"""Writes the reference pages from the code: `python docs/reference/generate.py`."""

import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path

import fedprior
from fedprior.learning.catalog import METHODS
from fedprior.reporting import config

FOLDER = Path(__file__).parent
NOTE = "<!-- Written by docs/reference/generate.py; do not edit. -->"


def configuration() -> str:
    """Every key of a configuration file with its default and meaning."""
    lines = ["# Configuration", "", NOTE, "", "Keys of a TOML file for `fedprior train`.", ""]
    for table, kind in (
        ("", config.Config),
        ("data", config.Data),
        ("model", config.ModelChoice),
        ("training", config.Schedule),
        ("privacy", config.Privacy),
    ):
        heading = f"`[{table}]`" if table else "Top level"
        lines += [f"## {heading}", "", kind.__doc__ or "", "", "| key | default | meaning |"]
        lines += ["|---|---|---|"]
        notes = dict(re.findall(r"^    (\w+): .*?#\s+(.+)$", inspect.getsource(kind), re.M))
        default = kind()
        for each in fields(kind):
            value = getattr(default, each.name)
            if hasattr(value, "__dataclass_fields__"):
                continue
            lines.append(f"| `{each.name}` | `{_toml(value)}` | {notes.get(each.name, '')} |")
        lines.append("")
    lines += ["## `[options.METHOD]`", "", "A method's own options, over what `training` says.", ""]
    for name, method in METHODS.items():
        lines.append(f"- `{name}`: " + ", ".join(f"`{option}`" for option in method.options()))
    return "\n".join(lines) + "\n"


def interface() -> str:
    """Every public name with the first sentence of its docstring."""
    lines = ["# Python interface", "", NOTE, "", "What can be imported from `fedprior` itself.", ""]
    for name in fedprior.__all__:
        if name == "__version__":
            continue
        value = getattr(fedprior, name)
        first = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
        lines.append(f"- **`{name}`**: {first}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value)


PAGES = {"configuration.md": configuration, "interface.md": interface}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (FOLDER / page).write_text(write())
        sys.stdout.write(f"{page}\n")
