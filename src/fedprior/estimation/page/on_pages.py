"""`report` of a fitted estimator, and what a notebook shows of it."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from sklearn.utils.validation import check_is_fitted

from fedprior.pages.page import Page
from fedprior.pages.report import ShownPage, report


class OnPages:
    """A fitted estimator is shown by its answer, one that is not fitted by its parameters."""

    _fitted: ClassVar[str] = "estimates_"

    def report(self, path: str | Path | None = None) -> ShownPage:
        """Return a page about the answer: charts, a table to search, what was checked.

        With `path`, an .html file, the page is written there: one file that needs no network. A
        notebook shows its first lines.
        """
        check_is_fitted(self, self._fitted)
        return report(self._page(whole=True), path)

    @abstractmethod
    def _page(self, *, whole: bool) -> Page:
        """The page; if not `whole`, without what takes another fit or another reading."""

    def _repr_html_inner(self) -> str:
        if not hasattr(self, self._fitted):
            return super()._repr_html_inner()  # type: ignore[misc]
        from fedprior.pages.render import small

        return small(self._page(whole=False))

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        found = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in found and hasattr(self, self._fitted):
            found["text/html"] = self._repr_html_inner()
        return found
