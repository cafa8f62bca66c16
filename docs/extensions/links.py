"""Links that work on a repository host also work on the site, whose pages all lie in docs/."""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
# Pages of the site whose text lies elsewhere in the repository.
OUTSIDE = {
    "project/benchmarks": "benchmarks/README.md",
    "project/changes": "CHANGELOG.md",
    "project/security": "SECURITY.md",
    "project/contributing": "CONTRIBUTING.md",
}
_PAGES = {path: f"/{name}.md" for name, path in OUTSIDE.items()} | {"README.md": "/index.md"}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Take the text from where it lies, and lead its links to pages of the site."""
    path = OUTSIDE.get(name)
    if path:
        app.env.note_dependency(ROOT / path)
        source[0] = (ROOT / path).read_text()
    folder = (ROOT / path if path else Path(app.env.doc2path(name))).parent
    source[0] = rewrite(source[0], folder)


def rewrite(text: str, folder: Path) -> str:
    """The text of a file in this folder, with links from the root of the site."""
    return _LINK.sub(lambda found: _link(folder, *found.groups()), text)


def _link(folder: Path, text: str, target: str, anchor: str | None) -> str:
    if target.startswith("/"):
        return f"[{text}]({target}{anchor or ''})"
    place = Path(os.path.normpath(folder / target)).relative_to(ROOT)
    if str(place) in _PAGES:
        return f"[{text}]({_PAGES[str(place)]})"
    if place.parts[0] != "docs":  # a file of the source tree comes with the site
        return f"{{download}}`{text} </../{place}>`"
    inside = place.relative_to("docs")
    return f"[{text}](/{inside}{anchor or ''})"


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
