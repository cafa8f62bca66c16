"""Logistic regressions of 10,000 groups of 5 to 40 rows: personal, local and pooled, held out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check, random
from fedprior.experiments.compare import Watch, unwatched
from fedprior.regression.logistic import (
    fit_logistic,
    local_logistic,
    pooled_logistic,
    predictive,
    probabilities,
)
from fedprior.regression.result import RegressionFit, RegressionPopulation, gaussian_population
from fedprior.regression.rows import GroupedRows
from fedprior.reporting.figures import AMBER, BLUE, GREEN, ORANGE, label_ends, side_by_side

SCALES = (0.25, 1.0, 2.0)  # of theta between groups: hardly different, as different as alike, more
MEAN = (-0.5, 1.0, -1.0, 0.5, 0.0)  # the intercept first; the other features are N(0, 1)
SIZES = (5, 40)
NUM_TEST = 20  # rows held out of each group
# The best of these for all groups together is chosen with the rows held out, in local's favor.
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
TINY_RIDGE = 0.01
BANDS = ((5, 9), (10, 19), (20, 29), (30, 40))
# Color, marker, dashes, width. Personal lies on the known population, which is broad and below it.
_STYLES: dict[str, tuple[str, str, Any, float]] = {
    "known": ("0.75", "", "-", 7.0),
    "personal": (BLUE, "o", "-", 1.6),
    "local": (ORANGE, "v", (0, (5, 2)), 1.4),
    "local, tuned": (AMBER, "^", (0, (5, 2, 1, 2)), 1.4),
    "pooled": (GREEN, "s", (0, (1, 1.5)), 1.6),
}
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)  # of the log-loss


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One line: held-out log-loss, mean over groups, and how far it lies behind personal.

    `behind` is the mean over groups of the difference to `personal`, `behind_se` its standard
    error. `variance` is that of theta as the method learned it. `by_size` is the log-loss above
    that of the true theta, by the group's rows.
    """

    scale: float
    method: str
    log_loss: float
    behind: float
    behind_se: float
    variance: float | None
    note: str
    by_size: dict[str, float]


class _Case(NamedTuple):
    rows: GroupedRows
    theta: np.ndarray
    x: np.ndarray  # (m, NUM_TEST, d), held out
    y: np.ndarray


def logistic(
    *,
    num_groups: int = 10_000,
    scales: Sequence[float] = SCALES,
    seed: int = 0,
    quick: bool = False,
    watch: Watch = unwatched,
) -> list[Loss]:
    """P(y = 1) = 1 / (1 + exp(-x theta_i)), theta_i ~ N(MEAN, scale^2 I), 5 to 40 rows a group.

    All methods see the same draws. `personal` averages over what it does not know of theta
    (see `predictive`), `plug-in` is the same theta alone. `quick`: a tenth of the groups.
    """
    check.count("logistic", least=200, num_groups=num_groups)
    check.require(len(scales) > 0, "logistic", "scales", "at least one", list(scales))
    for scale in scales:
        check.positive("logistic", scale=scale)
    seed = check.seed("logistic", seed)
    count = max(num_groups // 10, 200) if quick else num_groups
    found = []
    for place, scale in enumerate(scales):
        case = _draw(random.stream(seed, "partition", place), count, scale)
        found += _losses(case, scale)
        watch(place + 1, len(scales))
    return found


def _draw(draws: np.random.Generator, num_groups: int, scale: float) -> _Case:
    width = len(MEAN)
    theta = np.array(MEAN) + scale * draws.standard_normal((num_groups, width))
    sizes = draws.integers(*SIZES, num_groups, endpoint=True)
    place = np.repeat(np.arange(num_groups), sizes)
    train, train_y = _rows(draws, theta[place])
    test, test_y = _rows(draws, np.repeat(theta, NUM_TEST, axis=0))
    rows = GroupedRows.of(train, train_y, place, num_groups)
    return _Case(
        rows, theta, test.reshape(num_groups, NUM_TEST, width), test_y.reshape(num_groups, NUM_TEST)
    )


def _rows(draws: np.random.Generator, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = draws.standard_normal(theta.shape)
    x[:, 0] = 1.0
    odds = (x * theta).sum(axis=1)
    return x, (draws.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(np.float64)


def _losses(case: _Case, scale: float) -> list[Loss]:
    """The lines of one scale."""
    truth = _known(scale)
    fit = fit_logistic(case.rows)
    paper = fit_logistic(case.rows, method="paper")
    laplace = fit_logistic(case.rows, approximation="laplace", tolerance=1e-6)
    known = fit_logistic(case.rows, prior=truth)
    pooled = np.broadcast_to(pooled_logistic(case.rows).coefficients, case.theta.shape)
    tiny = local_logistic(case.rows, ridge=TINY_RIDGE)
    ridge, best = _best_ridge(case)
    floor = _score(case, case.theta)
    losses = {
        "known": (_averaged(case, known), scale**2, ""),
        "personal": (_averaged(case, fit), _variance(fit.population), ""),
        "plug-in": (_score(case, fit.theta), _variance(fit.population), "theta alone"),
        "laplace": (_averaged(case, laplace), _variance(laplace.population), ""),
        "paper": (
            _averaged(case, paper),
            _variance(paper.population),
            "at the floor" if any("Floor" in note for note in paper.notes) else "",
        ),
        "local": (_score(case, tiny), None, f"ridge {TINY_RIDGE}"),
        "local, tuned": (best, None, f"ridge {ridge:g}"),
        "pooled": (_score(case, pooled), None, ""),
    }
    own = losses["personal"][0]
    return [
        Loss(
            scale=scale,
            method=method,
            log_loss=float(loss.mean()),
            behind=float((loss - own).mean()),
            behind_se=float((loss - own).std(ddof=1) / np.sqrt(len(own))),
            variance=variance,
            note=note,
            by_size=_by_size(case.rows.sizes, loss - floor),
        )
        for method, (loss, variance, note) in losses.items()
    ]


def _score(case: _Case, theta: np.ndarray) -> np.ndarray:
    """The held-out log-loss of each group, (m,), at its theta."""
    x, place = _held_out(case)
    return _log_loss(case, probabilities(theta[place], x))


def _averaged(case: _Case, fit: RegressionFit) -> np.ndarray:
    """The same, averaged over what the fit does not know of theta."""
    x, place = _held_out(case)
    return _log_loss(case, predictive(fit, x, place))


def _held_out(case: _Case) -> tuple[np.ndarray, np.ndarray]:
    groups, count, width = case.x.shape
    return case.x.reshape(-1, width), np.repeat(np.arange(groups), count)


def _log_loss(case: _Case, chance: np.ndarray) -> np.ndarray:
    right = chance[np.arange(len(chance)), case.y.ravel().astype(int)]
    return -np.log(np.maximum(right, 1e-300)).reshape(case.y.shape).mean(axis=1)


def _best_ridge(case: _Case) -> tuple[float, np.ndarray]:
    scored = [(ridge, _score(case, local_logistic(case.rows, ridge=ridge))) for ridge in RIDGES]
    return min(scored, key=lambda pair: float(pair[1].mean()))


def _known(scale: float) -> RegressionPopulation:
    covariance = scale**2 * np.eye(len(MEAN))
    return gaussian_population(np.array(MEAN), covariance, np.zeros(0), kind="known")


def _variance(population: RegressionPopulation) -> float:
    return float(np.trace(population.covariance)) / len(population.mean)


def _by_size(sizes: np.ndarray, loss: np.ndarray) -> dict[str, float]:
    return {
        f"{low}-{high}": float(loss[(sizes >= low) & (sizes <= high)].mean()) for low, high in BANDS
    }


def remarks(rows: Sequence[Loss]) -> list[str]:
    """In words, with the figures: whether personal is ahead everywhere, and why it averages."""
    table = {(row.scale, row.method): row for row in rows}
    rivals = ("local", "local, tuned", "pooled")
    behind = [table[scale, name] for scale in {row.scale for row in rows} for name in rivals]
    closest = min(behind, key=lambda row: row.behind / row.behind_se)
    ahead = closest.behind > 2 * closest.behind_se
    most = max(scale for scale, _ in table)
    plug = table[most, "plug-in"]
    return [
        f"Personal is {'ahead of' if ahead else 'not clearly ahead of'} local and pooled at every "
        f"scale; the nearest is {closest.method} at scale {closest.scale:g}, behind by "
        f"{closest.behind:.4f} +- {closest.behind_se:.4f}.",
        "The ridge of `local, tuned` was chosen with the rows that it is scored on.",
        "A theta determined by few rows is uncertain: predicting with its mean alone "
        f"loses {plug.behind:.4f} at scale {most:g}.",
    ]


def draw_losses(rows: Sequence[Loss], path: Path) -> None:
    """A panel a scale: log-loss above that of the true theta against a group's rows."""
    scales = list(dict.fromkeys(row.scale for row in rows))
    figure, axes = side_by_side(len(scales), height=4.2)
    drawn = [value for row in rows if row.method in _STYLES for value in row.by_size.values()]
    for place, scale in zip(axes, scales, strict=True):
        place.set_yscale("log")
        place.set_ylim(0.8 * min(drawn), 1.2 * max(drawn))
        place.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        place.set_ylim(0.8 * min(drawn), 1.2 * max(drawn))
        place.minorticks_off()
        own = {row.method: row for row in rows if row.scale == scale}
        ends = []
        for method in filter(own.__contains__, _STYLES):
            color, marker, dash, width = _STYLES[method]
            y = list(own[method].by_size.values())
            look: dict[str, Any] = {"marker": marker, "linestyle": dash, "linewidth": width}
            place.plot(list(own[method].by_size), y, color=color, **look)
            name, shade = ("known population", "0.4") if method == "known" else (method, color)
            ends.append((len(y) - 1, y[-1], name, shade))
        label_ends(place, ends)
        place.set_title(f"scale of theta {scale:g}", fontsize="medium")
        place.set_xlabel("rows of the group")
        place.grid(axis="y", color="0.92", linewidth=0.6)
        place.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("held-out log-loss above the true theta's")
    figure.savefig(path, dpi=150)
