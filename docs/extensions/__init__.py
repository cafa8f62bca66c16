"""Pages of the site that are made from the code."""

from pathlib import Path


def write(folder: Path, pages: dict[str, str]) -> None:
    """Make a folder hold these pages alone; those that do not change are not built again."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
