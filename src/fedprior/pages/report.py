"""What `report()` returns: a page that a notebook shows, and that may be written to a file."""

from dataclasses import dataclass
from pathlib import Path

from fedprior.core import check
from fedprior.pages.page import Page


@dataclass(frozen=True, eq=False)
class ShownPage:
    """A page about a result; a notebook shows its first lines, `write` saves all of it.

    `page` describes it, and `path` is the file that it was written to, if it was.
    """

    page: Page
    path: Path | None = None

    def write(self, path: str | Path) -> "ShownPage":
        """Write the page to an .html file, which is replaced if it exists."""
        from fedprior.pages.render import write

        target = Path(path)
        check.require(target.suffix == ".html", "report", "path", "an .html file", str(path))
        write(self.page, target, owner="report")
        return ShownPage(self.page, target)

    def html(self) -> str:
        """Return the whole page."""
        from fedprior.pages.render import render

        return render(self.page)

    def __repr__(self) -> str:
        where = "" if self.path is None else f", {str(self.path)!r}"
        return f"ShownPage({self.page.title!r}{where})"

    def _repr_html_(self) -> str:
        from fedprior.pages.render import small

        return small(self.page)


def report(page: Page, path: str | Path | None) -> ShownPage:
    """The report of a page, written to `path` if it is given."""
    found = ShownPage(page)
    return found if path is None else found.write(path)
