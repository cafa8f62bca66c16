"""Pages of fitted estimators and of estimates in Python, from the same numbers as a summary."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedprior.core.plain import picked
from fedprior.core.version import __version__
from fedprior.estimation.page.parts import Parts
from fedprior.estimation.page.whole import estimates_page
from fedprior.estimation.result import Estimates
from fedprior.pages.page import Page

_SIMPLE = (str, int, float, bool, tuple, list)


def page_of(
    estimates: Estimates,
    names: Any,
    *,
    coordinates: Sequence[str] | None = None,
    **more: Any,
) -> Page:
    """The page of estimates whose groups have these names; `more` goes to the summary.

    Without names, and of private estimates, it is that of the population alone.
    """
    summary = {**estimates.summary(), "version": __version__, "labels": 1, **more}
    if estimates.meta is not None:
        summary["study_errors"] = estimates.meta.study_errors.tolist()
    if names is None or estimates.guarantee is not None or estimates.count is not None:
        return estimates_page(summary)
    words = np.array([str(each) for each in names], object)
    if np.ndim(estimates.raw) > 1:
        found = _parts(estimates, words.tolist(), coordinates)
        return estimates_page(summary, {"group": words}, coordinates=found)
    return estimates_page(summary, {"group": words, **estimates.columns()})


def _parts(estimates: Estimates, names: list[str], coordinates: Sequence[str] | None) -> Parts:
    number = estimates.raw.shape[1]
    return Parts(
        names=names,
        parts=list(coordinates or (f"coordinate {place}" for place in range(number))),
        n=np.asarray(estimates.n, np.float64),
        weight=np.asarray(estimates.weight, np.float64),
        **picked(estimates, "raw", "personal", "lower", "upper"),
    )


def settings(model: Any) -> dict[str, Any]:
    """Parameters of an estimator that differ from their defaults, as far as they can be shown."""
    defaults: Mapping[str, Any] = inspect.signature(type(model).__init__).parameters
    return {
        name: value
        for name, value in model.get_params(deep=False).items()
        if isinstance(value, _SIMPLE) and value != defaults[name].default
    }
