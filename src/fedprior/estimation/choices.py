"""The words that options of estimates take, for functions, estimators and the command line."""

from fedprior.estimation.shapes import SHAPES

FITS = ("likelihood", "moments")
METHODS = ("default", "paper")
NOISES = ("auto", "common", "moderated")
INTERVALS = ("default", "robust")


def populations(usual: str) -> tuple[str, ...]:
    """The populations of estimates whose `usual` one is conjugate."""
    return usual, *SHAPES, "point", "auto"
