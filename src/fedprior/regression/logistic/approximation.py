"""Which approximation of the integral over theta, and what is to be said of it."""

from typing import Literal, get_args

from fedprior.core import check
from fedprior.regression.logistic.posterior import (
    Solve,
    laplace_posterior,
    propagated_posterior,
    variational_posterior,
)
from fedprior.regression.logistic.quadrature import by_points

Approximation = Literal["auto", "laplace", "quadrature", "variational", "expectation-propagation"]

_FEW = 2  # coefficients per group up to which a product rule costs no more than a sweep or two
_MOST = 24  # coefficients per group up to which free points are better than none
_PRODUCT = 3
_SOLVES: dict[str, Solve] = {
    "laplace": laplace_posterior,
    "variational": variational_posterior,
    "expectation-propagation": propagated_posterior,
}


def choose_approximation(
    owner: str, approximation: Approximation, *, width: int, num_classes: int
) -> Approximation:
    """The approximation by name; "auto" is the least biased one at a reasonable cost."""
    check.choice(owner, "approximation", approximation, get_args(Approximation))
    two = num_classes == 2
    if approximation == "auto":
        if width <= (_FEW if two else _MOST):
            return "quadrature"
        return "expectation-propagation" if two else "laplace"
    rule = "laplace or quadrature with more than two classes"
    held = two or approximation in ("laplace", "quadrature")
    check.require(held, owner, "approximation", rule, approximation)
    return approximation


def solver(approximation: Approximation, *, num_classes: int) -> Solve:
    """The function that finds posteriors."""
    if approximation == "quadrature":
        return by_points(propagated_posterior if num_classes == 2 else laplace_posterior)
    return _SOLVES[approximation]


def slack(approximation: Approximation, *, width: int) -> float:
    """How far per group the evidence may fall below its best (see `EvidenceProblem`).

    Free points move with the posterior, and so does their error.
    """
    return 1e-3 if approximation == "quadrature" and width > _PRODUCT else 1e-9


def remark(approximation: Approximation, *, width: int) -> str:
    """In words, with its bias."""
    if approximation == "laplace":
        return (
            "theta integrated out by Laplace's approximation, which biases spread and mean toward "
            "0 where groups have few rows."
        )
    if approximation == "variational":
        return (
            "theta integrated out by a variational bound, which biases the spread down where "
            "groups have few rows."
        )
    if approximation == "expectation-propagation":
        return "theta integrated out by expectation propagation."
    if width <= _PRODUCT:
        return "theta integrated out by Gauss-Hermite quadrature."
    return "theta integrated out by quadrature with 64 points per group."
