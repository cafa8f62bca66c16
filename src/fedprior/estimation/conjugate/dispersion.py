"""Whether the rows of one group vary more than counts with one rate do."""

import numpy as np

from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.statistics import Repeats

_SIGNIFICANT = 4.0  # standard errors
_MATERIAL = 1.2  # below it intervals are too short by 10% at most


def dispersion_note(
    family: CountFamily, n: np.ndarray, z: np.ndarray, repeats: Repeats | None
) -> str | None:
    """W_i = sum (y - t z_i / n_i)^2 / t over a group's rows has mean (rows - 1) V(theta_i).

    V(theta_i) has an unbiased estimate of its own, so the sum over groups of the difference has
    mean 0 for any rates, if the rows of a group have one. The note is empty if nothing was found,
    and None if no group has several rows. The variance of a row's term is
    2 V^2 + V (1 - 6 e V) / t, e the family's excess.
    """
    if repeats is None:
        return None
    size, excess = np.asarray(n, np.float64), family.excess
    some = (repeats.number > 1) & (size > max(excess, 0.0))
    size, total = size[some], np.asarray(z, np.float64)[some]
    number, squares, inverses = (each[some] for each in repeats)
    inner = family.variance(total / size) * size / (size - excess)
    within = squares - total**2 / size
    expected = (number - 1) * inner
    spread = 2 * number * inner**2 + np.maximum(inner * (1 - 6 * excess * inner) * inverses, 0.0)
    error = float(np.sqrt(spread.sum()))
    found, usual = float(within.sum()), float(expected.sum())
    if usual <= 0:
        return None
    if found - usual <= _SIGNIFICANT * error or found < _MATERIAL * usual:
        return ""
    rows = "binomial" if family.top == 1 else "Poisson"
    return (
        f"The rows of a group vary more than {rows} counts of one rate: {found / usual:.2g} times "
        f"as much. Intervals allow for chance in {rows} counts only and are too short, by a factor "
        f"of about {np.sqrt(found / usual):.2g}. Use groups within groups with a name for each row "
        "(GroupLevels, --nested), or means of a rate per row (GroupMeans, --value)."
    )
