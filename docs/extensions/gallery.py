"""The gallery."""

from typing import Any

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    return {}
