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
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    if not inner:
        words = [path, *(_argument(each) for each in arguments), "[OPTIONS]"]
        yield from ("```text", " ".join(words), "```", "")
    yield from (_prose(command.help or ""), "")
    context = command.make_context(path, [], resilient_parsing=True)
    for each in (*arguments, *options):
        if each.help and not each.hidden:
            shown = _argument(each).strip("[]") if each in arguments else None
            yield from _option(each, shown or each.get_help_record(context)[0])
    for name, subcommand in inner.items():
        yield from _section(subcommand, f"{path} {name}", depth=depth + 1)


def _argument(each: Any) -> str:
    name = (each.metavar or each.name).upper() + ("..." if each.nargs == -1 else "")
    return name if each.required else f"[{name}]"


def _option(each: Any, shown: str) -> Iterator[str]:
    """An option as a directive, so that it has an address and is found by the search."""
    remarks = []
    if each.required:
        remarks.append("Required.")
    if each.multiple and "repeated" not in each.help:
        remarks.append("May be given several times.")
    if each.default not in (None, (), []) and not isinstance(each.default, bool):
        remarks.append(f"Default: `{each.default}`.")
    yield f":::{{option}} {shown.partition(' / --no-')[0].replace(' / ', ', ')}"
    yield from ("", " ".join([_prose(each.help), *remarks]), ":::", "")


def _prose(text: str) -> str:
    """Help as Markdown: options in code, the example in a block that can be copied."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = (re.sub(r"(--[a-z][a-z-]*)", r"`\1`", part) for part in parts[::2])
    return re.sub(r"^Example: `([^`]+)`", r"```bash\n\1\n```", "".join(parts), flags=re.M)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / FOLDER, pages()))
    return {"parallel_read_safe": True}
