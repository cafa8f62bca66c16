"""Write the reference pages from the code: `python docs/reference/generate.py`."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from fedprior.learning.catalog import METHODS
from fedprior.learning.method import Method
from fedprior.reporting import config

FOLDER = Path(__file__).parent
NOTE = "<!-- Written by docs/reference/generate.py; do not edit. -->"
NAMESPACES = (
    *("", "learning", "privacy", "channels", "populations", "models"),
    *("estimation", "regression", "data", "exchange"),
)
WIDTH = 100


def configuration() -> str:
    """Every key of a configuration file with its type, default and meaning."""
    lines = ["# Configuration", "", NOTE, "", "Keys of a TOML file for `fedprior train`.", ""]
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


def interface() -> str:
    """Every public name with its signature and docstring, by namespace."""
    lines = ["# Python interface", "", NOTE, ""]
    written: dict[int, str] = {}
    for namespace in NAMESPACES:
        path = f"fedprior.{namespace}" if namespace else "fedprior"
        module = import_module(path)
        names = [name for name in getattr(module, "__all__", ()) if not name.startswith("__")]
        names = [name for name in names if not inspect.ismodule(getattr(module, name))]
        if not names:
            continue
        lines += [f"## {path}", "", inspect.getdoc(module) or "", ""]
        for name in sorted(names, key=str.casefold):
            value = getattr(module, name)
            lines += [f"### {path}.{name}", ""]
            if id(value) in written:
                lines += [f"The same as `{written[id(value)]}`.", ""]
                continue
            written[id(value)] = f"{path}.{name}"
            lines += [*_entry(name, value), ""]
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, value: Any) -> Iterator[str]:
    """Signature, docstring and, for a class, its public methods."""
    if callable(value) and (text := _signature(name, value)):
        yield from ("```text", text, "```", "")
    yield _prose(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        members = [_member(*item) for item in _methods(value)]
        if members:
            yield from ("", *members)


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that fedprior defines, in the order of their names."""
    for name in sorted(dir(kind)):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(kind, name)
        function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        if not inspect.isfunction(function) or not function.__module__.startswith("fedprior"):
            continue
        yield name, value


def _member(name: str, value: Any) -> str:
    text = f"- `{name}`"
    function = getattr(value, "__func__", value)
    if inspect.isfunction(function):
        text = f"- `{_signature(name, function, method=True, width=10_000)}`"
    first = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return f"{text}: {first}" if first else text


def _signature(name: str, value: Any, *, method: bool = False, width: int = WIDTH) -> str:
    """`name(argument: type = default, ...) -> type`, on several lines if it is long."""
    if inspect.isclass(value) and (
        getattr(value, "_is_protocol", False) or issubclass(value, BaseException)
    ):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    types, defaults = _annotations(value), _defaults(value)
    parts: list[str] = []
    starred = False
    for parameter in list(signature.parameters.values())[method:]:
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        if keyword and not starred:
            parts.append("*")
            starred = True
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = mark + parameter.name
        written = types.get(parameter.name, "")
        evaluated = _shown_type(parameter.annotation)
        if kind := evaluated if evaluated.startswith("Literal") or not written else written:
            text += f": {kind}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter, defaults.get(parameter.name))}"
        parts.append(text)
    ending = f" -> {types['return']}" if types.get("return") and not inspect.isclass(value) else ""
    line = f"{name}({', '.join(parts)}){ending}"
    if len(line) <= width:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){ending}"])


def _shown_type(annotation: Any) -> str:
    """An evaluated annotation, for arguments that a method takes over from another one."""
    if annotation is inspect.Parameter.empty:
        return ""
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", inspect.formatannotation(annotation))


def _default(parameter: inspect.Parameter, source: ast.expr | None) -> str:
    """The default as written in the source, unless that is the name of a constant."""
    named = isinstance(source, ast.Name | ast.Attribute)
    if source is not None and not named:
        factory = next(
            (word.value for word in _keywords(source) if word.arg == "default_factory"), None
        )
        if isinstance(factory, ast.Lambda):
            return ast.unparse(factory.body)
        return f"{ast.unparse(factory)}()" if factory is not None else ast.unparse(source)
    value = parameter.default
    if is_dataclass(value) and not isinstance(value, type) and value == type(value)():
        return f"{type(value).__name__}()"
    text = repr(value)
    return getattr(value, "__name__", "...") if " at 0x" in text else text


def _keywords(source: ast.expr) -> list[ast.keyword]:
    is_field = isinstance(source, ast.Call) and getattr(source.func, "id", "") == "field"
    return source.keywords if is_field else []


def _annotations(value: Any) -> dict[str, str]:
    """Types by argument, as written in the source: `Array` rather than its alias `Any`."""
    found: dict[str, str] = {}
    for node in _nodes(value):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = ast.unparse(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            for argument in _arguments(node):
                if argument.annotation:
                    found[argument.arg] = ast.unparse(argument.annotation)
            if node.returns:
                found["return"] = ast.unparse(node.returns)
    return {
        name: text.replace("'", "") if text[0] in "'\"" else text for name, text in found.items()
    }


def _defaults(value: Any) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in _nodes(value):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
        elif isinstance(node, ast.FunctionDef):
            positional = [*node.args.posonlyargs, *node.args.args]
            last = zip(reversed(positional), reversed(node.args.defaults), strict=False)
            pairs = [*last, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
            found |= {argument.arg: default for argument, default in pairs if default is not None}
    return found


def _nodes(value: Any) -> Iterator[ast.stmt]:
    """The syntax of a function; or of a class and its bases: fields, and `__init__`."""
    if not inspect.isclass(value):
        yield from _parse(inspect.unwrap(value))
        return
    for kind in reversed(value.__mro__):
        if kind.__module__.startswith("fedprior"):
            for node in _parse(kind):
                for child in node.body:
                    if isinstance(child, ast.AnnAssign) or getattr(child, "name", "") == "__init__":
                        yield child


def _parse(value: Any) -> list[Any]:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(value))).body
    except (OSError, TypeError):
        return []


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    args = node.args
    extra = [argument for argument in (args.vararg, args.kwarg) if argument is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]


def _prose(text: str) -> str:
    """A docstring with its doctests in fences."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        if inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


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


PAGES = {"configuration.md": configuration, "interface.md": interface}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (FOLDER / page).write_text(write())
        sys.stdout.write(f"{page}\n")
