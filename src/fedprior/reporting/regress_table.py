"""The columns that `fedprior regress` needs: of a file, or of the simulated example."""

import numpy as np

from fedprior.core import random
from fedprior.data.reader import Table, read
from fedprior.reporting.regress_question import RegressQuestion


def read_rows(question: RegressQuestion) -> Table:
    """The rows of the question's file, or of the simulated example."""
    if question.file is None:
        return simulated_shops()
    wanted = [str(question.target), *question.columns]
    wanted += [] if question.exposure is None else [question.exposure]
    return read(question.file, key=question.group, wanted=wanted, missing=question.missing)


def simulated_shops() -> Table:
    """80 shops of 4 to 20 weeks: log sales fall with the price, in each shop by its own amount.

    Simulated: intercept ~ N(5, 0.3^2), slope ~ N(-1.2, 0.5^2), correlation -0.3, a holiday adds
    0.25 everywhere, noise 0.3.
    """
    draws = random.stream(0, "partition")
    sizes = draws.integers(4, 21, 80)
    place = np.repeat(np.arange(80), sizes)
    spread = np.array([[0.09, -0.045], [-0.045, 0.25]])
    theta = draws.multivariate_normal([5.0, -1.2], spread, 80)
    price = draws.normal(0.0, 0.5, len(place)).round(2)
    holiday = (draws.random(len(place)) < 0.15).astype(float)
    sales = theta[place, 0] + theta[place, 1] * price + 0.25 * holiday
    sales = (sales + draws.normal(0.0, 0.3, len(place))).round(3)
    groups = np.array([f"shop {number + 1:02d}" for number in range(80)], object)[place]
    rows = {"shop": groups, "sales": sales, "price": price, "holiday": holiday}
    return read(rows, key=["shop"])
