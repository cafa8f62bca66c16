"""Groups within groups, or groups that cross: from sums in a file to estimates of every level."""

import numpy as np

from fedprior.data.aggregate import Groups
from fedprior.estimation.levels.design import LevelData
from fedprior.estimation.levels.estimate import fit_levels
from fedprior.estimation.result import Estimates
from fedprior.reporting.question import Question


def level_keys(groups: Groups, question: Question) -> dict[str, np.ndarray]:
    """The labels of the groups, by column."""
    parts = np.array(groups.keys(), object).reshape(-1, len(question.group))
    return dict(zip(question.group, parts.T, strict=True))


def estimate_levels(groups: Groups, question: Question) -> Estimates:
    """The model of several levels that the question asks for, on the groups' sums."""
    places = [
        np.unique(labels.astype(str), return_inverse=True)[1]
        for labels in level_keys(groups, question).values()
    ]
    data = _data(groups, question)._replace(names=question.group, places=places)
    structure = str(question.structure)
    return fit_levels(question.source, data, structure=structure, level=question.level).estimates


def _data(groups: Groups, question: Question) -> LevelData:
    n = np.asarray(groups.n, np.float64)
    if question.kind != "means":
        family = "binomial" if question.kind == "rates" else "poisson"
        return LevelData(family, (), [], np.asarray(groups.successes, np.float64), n)
    mean = np.where(n > 0, np.asarray(groups.mean), 0.0)
    rows, within = int(n.sum()), groups.within
    if groups.variance is not None or question.noise_scale is not None:
        scale = question.noise_scale or 1.0
        with np.errstate(divide="ignore"):
            size = n / scale**2 if groups.variance is None else 1 / np.asarray(groups.variance)
        size = np.where(n > 0, size, 0.0)
        return LevelData("gaussian", (), [], mean, size, num_rows=len(n), known=True, counts=n)
    return LevelData("gaussian", (), [], mean, n, float(np.sum(np.asarray(within))), rows, counts=n)
