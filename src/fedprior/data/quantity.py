"""What a quantity must be to be learned: federations keep targets in 32 bits."""

import numpy as np

from fedprior.core import check

_LOST = 0.01  # share of the standard deviation that rounding to 32 bits may change
_LEAST, _MOST = 1e-15, 1e15  # standard deviations whose squares 32 bits hold


def check_quantity(owner: str, name: str, values: np.ndarray) -> None:
    """Raise where all values are equal, or would be so, or infinite, after rounding.

    >>> check_quantity("table", "label", 1e9 + np.arange(4.0))
    Traceback (most recent call last):
    ValueError: table: label must be ... Subtract a constant from it, or change its unit.
    """
    values = np.asarray(values, np.float64)
    rule = "a quantity with at least 2 distinct values"
    check.require(bool((values != values[0]).any()), owner, name, rule, values[0])
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = float(np.mean(values)), float(np.std(values))
        lost = float(np.abs(values - values.astype(np.float32)).max())
    fits = _LEAST <= spread <= _MOST and lost <= _LOST * spread
    rule = "a quantity whose differences remain in 32 bits"
    got = f"a mean of {mean:.4g} and a standard deviation of {spread:.4g}"
    check.expect(
        fits,
        owner,
        f"{name} must be {rule}, got {got}. Subtract a constant from it, or change its unit.",
    )
