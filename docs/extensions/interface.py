"""The reference of the Python interface: a page for every public name, made by autodoc.

The names are the `__all__` of `fedprior` and of its namespaces. A build fails where one of them has
no docstring, no entry in the reference, or an argument without a type or an explanation. Arguments
are explained in the docstring or, where they mean the same everywhere, in reference/arguments.md.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import fedprior
from extensions import write
from fedprior.core.scores import Metric

# Folders that are written before every build and never committed.
OVERVIEWS, PAGES = "reference/api", "reference/names"
ARGUMENTS = Path(__file__).parents[1] / "reference" / "arguments.md"


@cache
def namespaces() -> dict[str, ModuleType]:
    """`fedprior` itself, then its public namespaces."""
    spaces = [name for name in fedprior.__all__ if inspect.ismodule(getattr(fedprior, name))]
    return {path: import_module(path) for path in ("fedprior", *(f"fedprior.{s}" for s in spaces))}


def names() -> dict[str, dict[str, Any]]:
    """The public objects of every namespace, by the path under which they are described.

    An object that is also exported by `fedprior` itself is described there.
    """
    places: dict[int, str] = {}
    found: dict[str, dict[str, Any]] = {}
    for path, module in namespaces().items():
        values = {name: getattr(module, name) for name in module.__all__ if name[:2] != "__"}
        found[path] = {
            places.setdefault(id(value), f"{path}.{name}"): value
            for name, value in sorted(values.items(), key=lambda item: item[0].casefold())
            if not inspect.ismodule(value)
        }
    return found


@cache
def described() -> dict[str, Any]:
    """Every public object once, by the path under which it is described."""
    return {path: value for space in names().values() for path, value in space.items()}


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that fedprior defines, inherited ones included."""
    for name in sorted(dir(kind)):
        value = inspect.getattr_static(kind, name)
        function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        ours = inspect.isfunction(function) and function.__module__.startswith("fedprior")
        if ours and not name.startswith("_"):
            yield name, value


def problems() -> list[str]:
    """What the reference lacks: docstrings, types, explanations of arguments."""
    found = []
    for path, value in described().items():
        text = inspect.getdoc(value) or ""
        if not text or text.startswith(f"{value.__name__}("):  # what a dataclass writes itself
            found.append(f"{path} has no docstring")
    for path, value in callables().items():
        untyped = [each.name for each in parameters(value) if each.annotation is each.empty]
        found += [f"{path}: {name} has no type" for name in untyped]
        silent = set(unmentioned(path, value)) - set(explanations(path))
        found += [f"{path}: {name} is not explained" for name in sorted(silent)]
    return found


def callables() -> dict[str, Any]:
    """What can be called: the public functions and classes, and the methods of the classes."""
    found = dict(described())
    for path, value in described().items():
        if inspect.isclass(value):
            found |= {f"{path}.{name}": getattr(value, name) for name, _ in members(value)}
    return found


def parameters(value: Any) -> list[inspect.Parameter]:
    """The arguments of a call, without `self`; none for properties, protocols and exceptions."""
    if not callable(value) or (inspect.isclass(value) and getattr(value, "_is_protocol", False)):
        return []
    try:
        found = list(inspect.signature(value).parameters.values())
    except ValueError:
        return []
    return [each for each in found if each.name not in ("self", "cls")]


def unmentioned(path: str, value: Any) -> list[str]:
    """Arguments that do not occur in the docstring of a function, or of a method and its class."""
    text = inspect.getdoc(value) or ""
    owner, _, name = path.rpartition(".")
    for kind in getattr(described().get(owner), "__mro__", ()):
        text += f"\n{kind.__doc__}\n{getattr(getattr(kind, name, None), '__doc__', '')}"
    return [p.name for p in parameters(value) if not re.search(rf"\b{p.name}\b", text)]


@cache
def explanations(path: str) -> dict[str, str]:
    """What arguments.md says for a name: the rows for its namespace before those for everybody."""
    found: dict[str, str] = {}
    for section in re.split(r"^## ", ARGUMENTS.read_text(), flags=re.M)[1:]:
        title = section.split("\n", 1)[0].strip("`")
        place = namespace(path)
        if title in ("Everywhere", place):
            found |= dict(re.findall(r"^\| `(\w+)` \| (.+?) \|$", section, re.M))
    return found


def namespace(path: str) -> str:
    """The namespace in which an object lies, wherever it is exported."""
    for space, module in namespaces().items():
        name = path.removeprefix("fedprior.").split(".")[0]
        if space != "fedprior" and (path.startswith(f"{space}.") or name in module.__all__):
            return space
    return "fedprior"


def overviews() -> dict[str, str]:
    """A page with a table of its names for every namespace."""
    return {f"{space}.rst": "\n".join(_overview(space, list(names()[space]))) for space in names()}


def pages() -> dict[str, str]:
    """A page for every name."""
    return {f"{path}.rst": "\n".join(_page(path, value)) for path, value in described().items()}


def _overview(space: str, paths: list[str]) -> Iterator[str]:
    text = convert(inspect.getdoc(namespaces()[space]) or "")
    yield from (space, "=" * len(space), "", f".. py:module:: {space}", "", *text, "")
    yield from (".. py:currentmodule:: None", "", ".. autosummary::", "   :nosignatures:", "")
    yield from (f"   {path}" for path in paths)
    yield from ("", ".. toctree::", "   :hidden:", "")
    own = [
        (name, path) for path in paths for home, _, name in [path.rpartition(".")] if home == space
    ]
    yield from (f"   {name} <../names/{path}>" for name, path in own)
    yield ""


def _page(path: str, value: Any) -> Iterator[str]:
    yield from (path, "=" * len(path), "")
    if not inspect.isclass(value):
        yield f".. autofunction:: {path}"
        return
    kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    yield from (f".. {kind}:: {path}", "")
    for name, member in members(value):
        what = "method" if callable(getattr(value, name)) else "property"
        if isinstance(member, staticmethod | classmethod):
            what = "method"
        yield from (f"   .. auto{what}:: {name}", "")


def convert(text: str) -> list[str]:
    """A docstring in Markdown as lines of reStructuredText."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        if block.startswith(">>>"):
            lines += [*block.splitlines(), ""]
        elif block.startswith("    "):
            lines += ["::", "", *block.splitlines(), ""]
        else:
            block = re.sub(r"(?<=\n)(?=- )", "\n", block, count=1) if block[:2] != "- " else block
            lines += [*"".join(_inline(block)).splitlines(), ""]
    return lines


def _inline(block: str) -> Iterator[str]:
    """Code becomes code, public names become links; everything else is taken literally."""
    for number, part in enumerate(re.split(r"`([^`]*)`", block)):
        if number % 2 == 0:
            yield re.sub(r"([\\*|_])", r"\\\1", part)
            continue
        word = part.removeprefix("fedprior.")
        target = next((f"{s}.{word}" for s in namespaces() if f"{s}.{word}" in described()), None)
        yield f":py:obj:`{part} <{target}>`\\ " if target else f"``{part}``\\ "


def document(app: Sphinx, what: str, path: str, value: Any, options: Any, lines: list[str]) -> None:
    """Write a docstring for Sphinx, and add what is said elsewhere about its arguments."""
    lines[:] = convert("\n".join(lines))
    if what not in ("function", "method", "class") or path not in callables():
        return
    shared = explanations(path)
    for name in unmentioned(path, value):
        lines.append(f"- ``{name}``: {' '.join(convert(shared[name])).strip()}")


class Shown:
    """A default that prints as a reader would write it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def shorten(app: Sphinx, value: Any, bound: bool) -> None:
    """Defaults in signatures: `Steps()` for one with all its fields, the name of a function."""
    if not inspect.isfunction(value):
        return
    signature = inspect.signature(value)
    made = []
    for each in signature.parameters.values():
        default = each.default
        if isinstance(default, Metric):
            each = each.replace(default=Shown(default.label))
        elif is_dataclass(default) and not isinstance(default, type) and default == type(default)():
            each = each.replace(default=Shown(f"{type(default).__name__}()"))
        elif " at 0x" in repr(default):
            each = each.replace(default=Shown(getattr(default, "__name__", "...")))
        made.append(each)
    value.__signature__ = signature.replace(parameters=made)


def sign(
    app: Sphinx, what: str, path: str, value: Any, options: Any, text: str, returned: str
) -> tuple[str, str] | None:
    """Name what makes the default of a dataclass's field."""
    if not text or not is_dataclass(value):
        return None
    for each in fields(value):
        if each.default_factory is not MISSING:
            text = text.replace("<factory>", repr(each.default_factory()), 1)
    return text, returned


def begin(app: Sphinx) -> None:
    """Write the pages, unless the reference would be incomplete."""
    if found := problems():
        raise ExtensionError("The reference is incomplete:\n" + "\n".join(found))
    write(Path(app.srcdir) / OVERVIEWS, overviews())
    write(Path(app.srcdir) / PAGES, pages())


def complete(app: Sphinx, env: Any) -> None:
    """Every public name is in the index of the reference."""
    known = {entry[0] for entry in env.domains["py"].get_objects()}
    if missing := sorted(set(described()) - known):
        raise ExtensionError(f"The reference lacks {', '.join(missing)}.")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", begin)
    app.connect("autodoc-before-process-signature", shorten)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-process-docstring", document)
    app.connect("env-check-consistency", complete)
    return {"parallel_read_safe": True}
