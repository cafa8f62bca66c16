"""A page as one HTML file: the template, the style, the script and the data, and nothing else.

The file asks the network for nothing, and its Content-Security-Policy would not let it: only the
style and the script with the right checksums run. Strings from data are escaped by the template, or
are text inside JSON; the script writes them as text, never as markup.
"""

import base64
import hashlib
import json
import time
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.files import write_atomically
from fedprior.core.version import __version__
from fedprior.data.writing import writing
from fedprior.pages import page as parts
from fedprior.pages.pack import pack
from fedprior.pages.page import Block, Curve, Listing, Number, Page, Rows

_CHARTS = (parts.Intervals, parts.Scatter, parts.Curves, parts.Distributions, parts.Stacked)
MOST_POINTS = 1_000  # of a curve; a screen has no more


def render(page: Page, *, version: str = "") -> str:
    """The page as HTML; with `version`, it reloads itself when its server tells of another one."""
    tables = _tables(page)
    described, data = pack(tables)
    charts: list[dict[str, Any]] = []
    for section in page.sections:
        charts += [_spec(block, tables) for block in section.blocks if _drawn(block)]
    spec = {"tables": described, "charts": charts, "version": version}
    script, style = _file("charts.js") + _file("page.js"), _file("page.css")
    policy = {
        "default-src": "'none'",
        "script-src": _checksum(script),
        "style-src": _checksum(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    } | ({"connect-src": "'self'"} if version else {})
    text = _template("page.html").render(
        page=page,
        script=script,
        style=style,
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        spec=_json(spec),
        data=data,
        date=time.strftime("%Y-%m-%d"),
        fedprior=__version__,
    )
    return str(text).encode(errors="replace").decode()


def small(page: Page) -> str:
    """The page's first lines and its small tables without scripts, for notebooks."""
    grids = [
        each for part in page.sections for each in part.blocks if isinstance(each, parts.SmallTable)
    ]
    return _template("small.html").render(page=page, grids=grids[:2])


def write(page: Page, path: Path, *, owner: str, option: str = "--report") -> None:
    """Write the page to `path`, which `option` named, whole or not at all."""
    with writing(path, option, owner=owner):
        write_atomically(path, render(page).encode())


def _drawn(block: Block) -> bool:
    return isinstance(block, (*_CHARTS, Listing))


def _tables(page: Page) -> list[Rows]:
    """The rows that charts and listings share, each of them once."""
    found: list[Rows] = []
    for section in page.sections:
        for block in section.blocks:
            rows = getattr(block, "rows", None)
            if rows is not None and not any(rows is each for each in found):
                found.append(rows)
    return found


def _spec(block: Any, tables: list[Rows]) -> dict[str, Any]:
    """A chart or listing for the script: its fields, its rows by number, curves as lists."""
    fields = {name: getattr(block, name) for name in block.__dataclass_fields__}
    spec = {"kind": type(block).__name__.lower(), **fields}
    if "rows" in spec:
        spec["rows"] = next(place for place, each in enumerate(tables) if each is block.rows)
    if spec.get("curves"):
        spec["curves"] = [_curve(each) for each in spec["curves"]]
    if spec.get("parts"):
        spec["parts"] = {name: [*map(_finite, part)] for name, part in spec["parts"].items()}
    if spec.get("margin"):
        spec["margin"] = _curve(spec["margin"])
    return spec


def _curve(curve: Curve) -> dict[str, Any]:
    number = len(curve.x)
    shown = np.unique(np.linspace(0, number - 1, min(number, MOST_POINTS)).round().astype(int))
    spec: dict[str, Any] = {"name": curve.name, "dashed": curve.dashed}
    for name in ("x", "y", "lower", "upper"):
        values = getattr(curve, name)
        if values is not None:
            spec[name] = [_finite(each) for each in np.asarray(values, float)[shown].tolist()]
    return spec


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _json(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _checksum(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _file(name: str) -> str:
    return resources.files("fedprior.pages").joinpath(name).read_text(encoding="utf-8")


@cache
def _template(name: str) -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["shown"] = shown
    environment.tests["drawn"] = _drawn
    environment.tests["number"] = lambda cell: isinstance(cell, Number)
    environment.filters["kind"] = lambda block: type(block).__name__.lower()
    return environment.get_template(name)


def shown(number: Number) -> str:
    """The number in English, which the script rewrites in the reader's language.

    >>> shown(Number(0.1234, "percent", digits=1)), shown(Number(1234.5, digits=1, sign=True))
    ('12.3%', '+1,234.5')
    """
    if not np.isfinite(number.value):
        return ""
    sign = "+" if number.sign else ""
    if number.style == "percent":
        return f"{100 * number.value:{sign},.{number.digits}f}%"
    return f"{number.value:{sign},.{0 if number.style == 'whole' else number.digits}f}"
