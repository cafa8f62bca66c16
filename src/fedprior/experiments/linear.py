"""The paper's linear regression: 10,000 clients of 10 rows each, with more features than rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprior.core import check
from fedprior.experiments.compare import Watch, unwatched
from fedprior.regression.linear import fit_linear, local_linear, pooled_linear
from fedprior.regression.result import RegressionPopulation, gaussian_population
from fedprior.regression.rows import GroupedRows

# The setting of the paper's implementation details.
SPREAD_VARIANCE = 0.01
NOISE_VARIANCE = 0.05
MEAN_SCALE = 0.1
FEATURE_VARIANCE = 0.05

METHODS = ("known", "default", "paper", "local", "pooled")
# Section 5: less error than local and than FedAvg, more than with the known prior, in percent.
PAPER_GAINS = {50: (8.0, 14.8, 1.0), 100: (9.2, 12.3, 4.7)}


@dataclass(frozen=True, kw_only=True)
class RegressionError:
    """One line: mean over groups of |theta^_i - theta_i|^2; `paper_says` its words, if any."""

    d: int
    method: str
    mse: float
    paper_says: str | None


def run(
    *,
    num_groups: int = 10_000,
    num_rows: int = 10,
    seeds: Sequence[int] = (0,),
    dimensions: Sequence[int] = (50, 100),
    quick: bool = False,
    watch: Watch = unwatched,
) -> list[RegressionError]:
    """theta_i ~ N(mu, 0.01 I), y_i = X_i theta_i + N(0, 0.05): the mean over `seeds` of the errors.

    The paper prints gains and no errors, so `paper_says` is words, on the line of its method. The
    error of `local` moves by 8% from seed to seed with |mu|^2, which the pseudo-inverse pays for;
    seed 0 has the draws of ERRATA table 3.3. `quick`: a tenth of the groups.
    """
    check.count("linear", least=20, num_groups=num_groups)
    check.count("linear", num_rows=num_rows)
    check.require(len(seeds) > 0, "linear", "seeds", "at least one", list(seeds))
    check.require(len(dimensions) > 0, "linear", "dimensions", "at least one", list(dimensions))
    for dimension in dimensions:
        check.count("linear", dimension=dimension)
    seeds = [check.seed("linear", seed) for seed in seeds]
    count = max(num_groups // 10, 20) if quick else num_groups
    rows = []
    for place, dimension in enumerate(dimensions):
        errors = np.zeros(len(METHODS))
        for number, seed in enumerate(seeds):
            errors += _errors(seed, count, num_rows, dimension)
            watch(place * len(seeds) + number + 1, len(seeds) * len(dimensions))
        for method, error in zip(METHODS, errors / len(seeds), strict=True):
            says = _says(dimension) if method == "paper" else None
            rows.append(
                RegressionError(d=dimension, method=method, mse=float(error), paper_says=says)
            )
    return rows


def _says(dimension: int) -> str | None:
    if dimension not in PAPER_GAINS:
        return None
    local, pooled, known = PAPER_GAINS[dimension]
    return f"{local}% below local, {pooled}% below FedAvg, {known}% above the known prior"


def draw(
    seed: int, num_groups: int, num_rows: int, dimension: int
) -> tuple[GroupedRows, np.ndarray, RegressionPopulation]:
    """Rows, the true theta (m, d) and the population they come from."""
    draws = np.random.default_rng(seed)
    mean = draws.normal(0, MEAN_SCALE, dimension)
    theta = mean + np.sqrt(SPREAD_VARIANCE) * draws.normal(size=(num_groups, dimension))
    x = draws.normal(0, np.sqrt(FEATURE_VARIANCE), (num_groups, num_rows, dimension))
    noise = draws.normal(0, np.sqrt(NOISE_VARIANCE), (num_groups, num_rows))
    y = (x @ theta[..., None])[..., 0] + noise
    rows = GroupedRows(
        x=x.reshape(-1, dimension),
        fixed=np.empty((num_groups * num_rows, 0)),
        y=y.ravel(),
        start=num_rows * np.arange(num_groups + 1),
    )
    law = (mean, SPREAD_VARIANCE * np.eye(dimension), np.zeros(0))
    return rows, theta, gaussian_population(*law, kind="known", noise_variance=NOISE_VARIANCE)


def _errors(seed: int, num_groups: int, num_rows: int, dimension: int) -> np.ndarray:
    """The error of each method in METHODS, all on the same draws."""
    rows, theta, population = draw(seed, num_groups, num_rows, dimension)
    answers = (
        fit_linear(rows, prior=population).theta,
        fit_linear(rows).theta,
        fit_linear(rows, method="paper").theta,
        local_linear(rows),
        pooled_linear(rows)[0],
    )
    return np.array([((answer - theta) ** 2).sum(axis=1).mean() for answer in answers])


def remarks(rows: Sequence[RegressionError]) -> list[str]:
    """The paper's claims beside what was found, in plain words (ERRATA 31, 33)."""
    texts = []
    for dimension in dict.fromkeys(row.d for row in rows):
        error = {row.method: row.mse for row in rows if row.d == dimension}
        below = {
            (one, other): 100 * (1 - error[one] / error[other])
            for one in ("known", "default", "paper")
            for other in ("local", "pooled")
        }
        text = (
            f"d = {dimension}: the default's error is {below['default', 'local']:.1f}% below local "
            f"and {below['default', 'pooled']:.1f}% below pooled, "
            f"{100 * (error['default'] / error['known'] - 1):.2f}% above the known prior's. "
        )
        if dimension in PAPER_GAINS:
            local, pooled, known = PAPER_GAINS[dimension]
            text += (
                f"The paper says {local}%, {pooled}% and {known}%. "
                f"Even with the known prior the error is only {below['known', 'pooled']:.1f}% "
                f"below pooled least squares, so {pooled}% is out of reach of any method "
                "unless FedAvg had not converged. "
            )
        text += (
            f"The paper's own algorithm is {below['paper', 'local']:.1f}% below local and "
            f"{below['paper', 'pooled']:.1f}% below pooled: its objective has no minimum, the "
            "spread falls to its floor and every theta to the mean."
        )
        texts.append(text)
    return texts
