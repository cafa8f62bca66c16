"""How an answer was made: its settings and versions, folded away at the end of a page."""

from pathlib import Path
from typing import Any

from fedprior.core.version import __version__
from fedprior.pages.page import SmallTable
from fedprior.reporting.config import Config
from fedprior.reporting.tables import as_tables

SHOWS_THE_SAME = "This command shows the same in a terminal:"


def settings(config: Config) -> SmallTable:
    """All settings of config.toml, flat.

    A page may be passed on: of the ledger it says the name alone, of the key that there is one.
    """
    cells = tuple((name, _masked(name, text)) for name, text in _flat(as_tables(config)))
    return SmallTable(title="Settings", head=("setting", "value"), cells=cells, folded=True)


def _masked(name: str, text: str) -> str:
    if name == "privacy.key":
        return "set"
    return Path(text).name if name == "privacy.ledger" else text


def _flat(tables: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in tables.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        elif value not in ("", [], ()):
            shown_value = (
                ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            )
            found.append((f"{prefix}{name}", shown_value))
    return found


def versions() -> SmallTable:
    """The versions of what this page is made with, without importing it."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    cells = [("fedprior", __version__), ("Python", platform.python_version())]
    for name in ("jax", "jaxlib", "numpy", "optax", "dp-accounting"):
        try:
            cells.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return SmallTable(
        title="Versions that made this page",
        head=("program", "version"),
        cells=tuple(cells),
        folded=True,
    )
