"""Tables of coefficients and of a meta-analysis, as `fedprior estimate` prints them."""

from collections.abc import Callable, Sequence

import numpy as np
from rich.table import Table

from fedprior.cli.columns import lines_of_facts, named_table
from fedprior.estimation.covariates import Coefficients
from fedprior.estimation.meta import LeaveOneOut, MetaAnalysis

_SHOWN = 20  # groups of which the analysis without them is printed; --json has them all


def coefficients_table(found: Coefficients, *, title: str | None = None) -> Table:
    """One row per coefficient, with its standard error and interval."""
    share = f", R2 {100 * found.r_squared:.1f}%" if np.isfinite(found.r_squared) else ""
    scale = f" ({found.link} scale)" if found.link != "identity" else ""
    title = f"Population mean{scale} by covariates{share}" if title is None else f"{title}{scale}"
    table = named_table(title, "coefficient", "estimate", "std. error", "lower", "upper")
    columns = (found.values, found.standard_errors, found.lower, found.upper)
    for name, *row in zip(found.names, *columns, strict=True):
        table.add_row(name, *(f"{float(each):.4g}" for each in row))
    return table


def meta_lines(found: MetaAnalysis) -> Table:
    """The figures of a meta-analysis, a line each."""
    lines = lines_of_facts()
    level = f"{100 * found.level:g}%"
    regressed = found.coefficients is not None
    lines.add_row("meta-analysis", f"{found.num_studies} groups, restricted likelihood")
    q = f"Q({found.freedom}) = {_number(found.q)}, p = {found.q_p_value:.3g}"
    lines.add_row("differences", q + " about the regression" * regressed)
    lines.add_row("", f"I2 = {100 * found.i_squared:.2f}%, H2 = {_number(found.h_squared, 3)}")
    bounds = f"{level} interval {_number(found.variance_lower)} to {_number(found.variance_upper)}"
    error = f"standard error {_number(found.variance_error)}"
    lines.add_row("variance", f"{_number(found.variance, 6)} ({error}, {bounds})")
    where = "mean at average covariates" if regressed else "mean"
    bounds = f"{level} interval {_number(found.mean_lower)} to {_number(found.mean_upper)}"
    error = f"standard error {_number(found.mean_error)}"
    lines.add_row(where, f"{_number(found.mean, 6)} ({error}, {bounds})")
    bounds = f"{_number(found.prediction_lower)} to {_number(found.prediction_upper)}"
    lines.add_row("new group there" if regressed else "new group",
                  f"{level} prediction interval {bounds}")  # fmt: skip
    if (told := found.coefficients) is not None:
        rows = zip(told.values, told.standard_errors, told.lower, told.upper, strict=True)
        for name, (value, spread, low, high) in zip(told.names, rows, strict=True):
            bounds = f"standard error {spread:.4g}, {level} interval {low:.4g} to {high:.4g}"
            lines.add_row(name, f"{value:.6g} ({bounds})")
    if found.covariate_q is not None:
        test = f"Q = {_number(found.covariate_q)}, p = {found.covariate_p_value:.3g}"
        lines.add_row("covariates", f"{test} (all slopes are 0)")
    lines.add_row("log-likelihood", f"{_number(found.log_likelihood)} (restricted)")
    return lines


def leave_one_out_table(
    found: LeaveOneOut, places: np.ndarray, names: Callable[[Sequence[int]], list[str]]
) -> Table:
    """The analysis without each group; `places` are those of the groups with data."""
    columns = found.columns()
    titles = {"mean_error": "std. error", "q": "Q", "i_squared": "I2"}
    heads = (titles.get(column, column) for column in columns)
    table = named_table("Without each group", "group left out", *heads)
    shown = places[:_SHOWN]
    for row, name in enumerate(names(shown.tolist())):
        share = {"i_squared": f"{100 * float(found.i_squared[row]):.2f}%"}
        cells = (share.get(title, _number(each[row])) for title, each in columns.items())
        table.add_row(name, *cells)
    if len(places) > _SHOWN:
        table.caption = f"The first {_SHOWN} of {len(places):,}; --json has all."
    return table


def _number(value: float, decimals: int = 4) -> str:
    """With so many decimals, or six digits where that is shorter than a long number."""
    fixed = f"{value:.{decimals}f}"
    return fixed if abs(value) < 1e6 else f"{value:.6g}"
