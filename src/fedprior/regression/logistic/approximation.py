"""The choice of the approximation to the integral over theta, and a note on its bias."""

from typing import Literal, get_args

from fedprior.core import check
from fedprior.regression.logistic.laws import CLASSES, COUNTS, RowLaw
from fedprior.regression.logistic.posterior import (
    Solve,
    laplace_posterior,
    propagated_posterior,
    variational_posterior,
)
from fedprior.regression.logistic.quadrature import by_points

Approximation = Literal["auto", "laplace", "quadrature", "variational", "expectation-propagation"]

_FEW = 2  # coefficients per group up to which a product rule is as cheap as a sweep or two
_MOST = 24  # coefficients per group up to which scattered points are better than none
_PRODUCT = 3
_SOLVES: dict[str, Solve] = {
    "laplace": laplace_posterior,
    "variational": variational_posterior,
    "expectation-propagation": propagated_posterior,
}


def choose_approximation(
    owner: str,
    approximation: Approximation,
    *,
    width: int,
    num_classes: int,
    law: RowLaw = CLASSES,
) -> Approximation:
    """The name of the approximation; "auto" is the least biased one at a reasonable cost."""
    check.choice(owner, "approximation", approximation, get_args(Approximation))
    two = num_classes == 2
    if approximation == "auto":
        if width <= (_FEW if two else _MOST):
            return "quadrature"
        return "expectation-propagation" if two else "laplace"
    rule = "laplace or quadrature with more than two classes"
    held = two or approximation in ("laplace", "quadrature")
    check.require(held, owner, "approximation", rule, approximation)
    held = law is not COUNTS or approximation != "quadrature" or width <= _PRODUCT
    rule = f"another one than quadrature with more than {_PRODUCT} coefficients per group"
    check.require(held, owner, "approximation", rule, approximation)
    return approximation


def solver(approximation: Approximation, *, num_classes: int) -> Solve:
    """The function that computes posteriors."""
    if approximation == "quadrature":
        return by_points(propagated_posterior if num_classes == 2 else laplace_posterior)
    return _SOLVES[approximation]


def slack(approximation: Approximation, *, width: int) -> float:
    """The tolerated decrease of the evidence per group below its best (see `EvidenceProblem`).

    Scattered points move with the posterior, and so does their error.
    """
    return 1e-3 if approximation == "quadrature" and width > _PRODUCT else 1e-9


def remark(approximation: Approximation, *, width: int, law: RowLaw = CLASSES) -> str:
    """A note that names the approximation and its bias."""
    few = "few events" if law is COUNTS else "few rows"
    if approximation == "laplace":
        toward = "is biased" if law is COUNTS else "biases variance and mean toward 0"
        return (
            f"theta is integrated out by Laplace's approximation, which {toward} if groups have "
            f"{few}."
        )
    if approximation == "variational":
        return (
            "theta is integrated out by a variational bound, which biases the variance downward if "
            f"groups have {few}."
        )
    if approximation == "expectation-propagation":
        return "theta is integrated out by expectation propagation."
    if width <= _PRODUCT:
        return "theta is integrated out by Gauss-Hermite quadrature."
    return "theta is integrated out by quadrature with 64 points per group."
