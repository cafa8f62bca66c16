"""The reference of the command line: a page for every command, from its declaration."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from typer.main import get_command

from extensions import write
from fedprior.cli.main import build

FOLDER = "reference/commands"  # written before every build, never committed


def pages() -> dict[str, str]:
    """A page for each command, with its subcommands as sections."""
    return {
        f"{name}.md": "\n".join(_section(command, f"fedprior {name}", depth=1))
        for name, command in get_command(build()).commands.items()
    }


def _section(command: Any, path: str, *, depth: int) -> Iterator[str]:
    yield from (f"{'#' * depth} {path}", "", f":::{{program}} {path}", ":::", "")
    inner = getattr(command, "commands", {})
    options = [each for each in command.params if each.param_type_name == "option"]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    if not inner:
        words = [_argument(each) for each in arguments]
        yield from ("```text", " ".join([path, *words, "[OPTIONS]"]), "```", "")
    yield from (_prose(command.help or ""), "")
    for each in (*arguments, *options):
        if each.help and not each.hidden:
            yield from _option(each)
    for name, subcommand in inner.items():
        yield from _section(subcommand, f"{path} {name}", depth=depth + 1)


def _argument(each: Any) -> str:
    name = (each.metavar or each.name).upper() + ("..." if each.nargs == -1 else "")
    return name if each.required else f"[{name}]"


def _option(each: Any) -> Iterator[str]:
    """An option as a directive, so that it has an address and is found by the search."""
    names = [*each.opts, *(name for name in each.secondary_opts if name[:5] != "--no-")]
    is_flag = getattr(each, "is_flag", False)
    if each.param_type_name == "argument":
        names = [each.name.upper()]
    elif not is_flag:
        names = [f"{name} {_value(each)}" for name in names]
    remarks = []
    if each.required:
        remarks.append("Required.")
    if getattr(each, "multiple", False) and "repeated" not in each.help:
        remarks.append("May be given several times.")
    if each.default not in (None, (), []) and not is_flag and not callable(each.default):
        remarks.append(f"Default: `{getattr(each.default, 'value', each.default)}`.")
    yield f":::{{option}} {', '.join(names)}"
    yield from ("", " ".join([_prose(each.help), *remarks]), ":::", "")


def _value(each: Any) -> str:
    choices = getattr(each.type, "choices", None)
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    return (each.metavar or each.type.name).upper()


def _prose(text: str) -> str:
    """Help as Markdown: options in code, the example in a block that can be copied."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = (re.sub(r"(--[a-z][a-z-]*)", r"`\1`", part) for part in parts[::2])
    return re.sub(r"^Example: `([^`]+)`", r"```bash\n\1\n```", "".join(parts), flags=re.M)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / FOLDER, pages()))
    return {"parallel_read_safe": True}
