"""A table, a target and a group to a fitted regression for every group, in the table's units."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from fedprior.core import check
from fedprior.regression.face.design import (
    Design,
    check_dependent,
    chosen,
    design,
    far_from_zero,
)
from fedprior.regression.face.reading import Reading, read
from fedprior.regression.face.specification import Specification, in_units
from fedprior.regression.linear import local_linear
from fedprior.regression.logistic import (
    local_logistic,
    odds_covariance,
    predictive,
    probabilities,
)
from fedprior.regression.packed import pack
from fedprior.regression.result import RegressionFit
from fedprior.regression.rows import GroupedRows

_LATENT = np.pi**2 / 3  # variance of the noise that turns log odds into a class


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """The fit in the units of the table, and what led to it.

    `rows` are those that were fitted, of the `levels` (labels of groups), features over the
    design's scale. `classes` are None where the target is a number.
    """

    design: Design
    specification: Specification
    levels: np.ndarray
    classes: np.ndarray | None
    rows: GroupedRows
    fit: RegressionFit
    num_dropped: int
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Of theta's columns; with more than two classes, NAME[CLASS]."""
        return self._of_classes(self.design.names)

    @property
    def fixed_names(self) -> list[str]:
        return self._of_classes(self.design.fixed_names)

    @property
    def share_between(self) -> float:
        """Row' covariance row / (row' covariance row + noise) at the mean row (intraclass).

        For classes it is that of the log odds, whose noise has variance pi^2 / 3; with more than
        two, the mean over those that have coefficients.
        """
        row = np.tile(self.rows.x.mean(axis=0) * self.design.scale, self.specification.num_logits)
        population, logits = self.fit.population, self.specification.num_logits
        own = np.kron(np.eye(logits), np.ones((len(row) // logits,) * 2))
        between = float(row @ (population.covariance * own) @ row) / logits
        noise = population.noise_variance
        return between / (between + (_LATENT if noise is None else noise))

    def interval(self, level: float, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`theta` -+ z error of the groups at `place`; -1 is one without rows: the population's."""
        population = self.fit.population
        variance = np.diag(population.covariance)
        if population.mean_errors is not None:
            variance = variance + population.mean_errors**2
        middle = np.vstack([self.fit.theta, population.mean])[place]
        reach = special.ndtri((1 + level) / 2)
        reach = reach * np.vstack([self.fit.errors, np.sqrt(variance)])[place]
        return middle - reach, middle + reach

    def columns(self, level: float) -> dict[str, np.ndarray]:
        """One row per group: group, n, each coefficient, its error, lower, upper, its component.

        A name that is taken (a feature called n) has `_coefficient` behind it; case does not tell
        names apart, as in a database.
        """
        lower, upper = self.interval(level, np.arange(len(self.levels)))
        columns = {"group": self.levels, "n": self.rows.sizes}
        tables = {"": self.fit.theta, "_error": self.fit.errors, "_lower": lower, "_upper": upper}
        share = self.fit.responsibilities
        if share.shape[1] > 1:
            columns |= {f"component_{number}": each for number, each in enumerate(share.T)}
        for number, name in enumerate(self.names):
            taken = {each.casefold() for each in columns}
            while any(f"{name}{end}".casefold() in taken for end in tables):
                name += "_coefficient"
            columns |= {f"{name}{end}": table[:, number] for end, table in tables.items()}
        return columns

    def separate(self) -> np.ndarray:
        """`theta` (m, D) of each group's own rows alone, beside pooled fixed coefficients.

        NaN where the rows do not determine it: too few, or a feature that is the same in all.
        """
        if self.classes is None:
            theta = local_linear(self.rows)
        else:
            theta = local_logistic(self.rows, num_classes=len(self.classes))
        for block in self.rows.blocks():
            poor = np.linalg.matrix_rank(block.x) < self.rows.num_features
            theta[block.groups[poor]] = np.nan
        theta[self.rows.sizes == 0] = np.nan
        return theta / np.tile(self.design.scale, self.specification.num_logits)

    def predict(self, x: np.ndarray, fixed: np.ndarray, place: np.ndarray) -> np.ndarray:
        """`x` theta_i + fixed beta, (rows,), the population's mean where `place` is -1."""
        population = self.fit.population
        theta = np.vstack([self.fit.theta, population.mean])[place]
        return (x * theta).sum(axis=1) + fixed @ population.fixed

    def probabilities(self, x: np.ndarray, fixed: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Class probabilities (rows, C), averaged over theta_i; over the population at place -1."""
        chances = np.empty((len(x), self.specification.num_classes))
        seen, new = place >= 0, place < 0
        chances[seen] = predictive(self.fit, x[seen], place[seen], fixed=fixed[seen])
        chances[new] = self._of_population(x[new], fixed[new])
        return chances

    def _of_population(self, x: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        population, nowhere = self.fit.population, np.zeros(len(x), np.int64)
        parts = [
            each.share
            * probabilities(
                np.broadcast_to(each.mean, (len(x), len(each.mean))),
                x,
                covariance=odds_covariance(pack(each.covariance)[None], x, nowhere),
                fixed=fixed,
                coefficients=population.fixed,
                num_classes=self.specification.num_classes,
            )
            for each in population.components
        ]
        return np.sum(parts, axis=0)

    def _of_classes(self, names: list[str]) -> list[str]:
        if self.classes is None or len(self.classes) == 2:
            return names
        return [f"{name}[{each}]" for each in self.classes.tolist()[1:] for name in names]


def analyze(
    columns: Mapping[str, Any],
    target: Any,
    groups: Any,
    *,
    specification: Specification,
    fixed: Any = None,
    intercept: bool = True,
    center: bool = False,
    standardize: bool = True,
    strict: bool = False,
    target_name: str = "y",
) -> Analysis:
    """Rows with all they need, their features, their fit; the rest is dropped or refused.

    `specification.family` "binomial" stands for classes of any number, which the target tells.
    Errors call the target `target_name`.
    """
    owner, is_class = specification.owner, specification.family != "gaussian"
    common = chosen(owner, fixed, list(columns))
    reading = read(
        owner, columns, target, groups, target_name=target_name, is_class=is_class, strict=strict
    )
    plan = design(
        owner,
        reading.columns,
        reading.table,
        reading.place,
        fixed=common,
        intercept=intercept,
        center=center,
        standardize=standardize,
        constants_vary=specification.method == "paper" and specification.is_gaussian,
    )
    if reading.classes is not None:
        number = len(reading.classes)
        family: Any = "multinomial" if number > 2 else "binomial"
        specification = replace(specification, family=family, num_classes=number)
    return _fit(reading, plan, specification)


def _fit(reading: Reading, plan: Design, specification: Specification) -> Analysis:
    x, beside = plan.split(reading.table)
    rows = GroupedRows.of(
        x / plan.scale, reading.target, reading.place, len(reading.levels), fixed=beside
    )
    check_dependent(plan, rows)
    _check_sizes(specification, int(rows.sizes.max()))
    settled = specification.settled(rows)
    analysis = Analysis(
        design=plan,
        specification=settled,
        levels=reading.levels,
        classes=reading.classes,
        rows=rows,
        fit=in_units(settled.fit(rows), plan.scale),
        num_dropped=reading.num_dropped,
        notes=(),
    )
    return replace(analysis, notes=tuple(_notes(analysis, reading.table)))


def _notes(analysis: Analysis, table: np.ndarray) -> list[str]:
    notes = []
    if analysis.num_dropped:
        notes.append(
            f"Rows without a target, a feature or a group, left out: {analysis.num_dropped}."
        )
    notes += analysis.design.notes
    far = far_from_zero(analysis.design, table)
    if far and analysis.specification.covariance != "full":
        notes.append(
            f"Far from 0, where the {analysis.specification.covariance} covariance takes the "
            f"intercept and other coefficients for independent: {', '.join(far)}. Center them."
        )
    return notes + [_named(note, analysis.names) for note in analysis.fit.notes]


def _named(note: str, names: list[str]) -> str:
    """A note of a fit, which counts columns, with their names."""
    return re.sub(
        r"x column ((?:\d+, )*\d+)",
        lambda match: ", ".join(names[int(place)] for place in match[1].split(", ")),
        note,
    )


def _check_sizes(specification: Specification, largest: int) -> None:
    """With one row per group, only the shape of the noise would tell of the spread."""
    identified = largest > 1 or specification.population == "discrete"
    rule, remedy = "of at least 2 rows", "One row per group does not tell spread from noise."
    check.require(identified, specification.owner, "largest group", rule, largest, remedy)
