"""From a table, a target and groups to a fitted regression per group, in the table's units."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.regression.face.counts import Dispersion, dispersion_of, expected_counts
from fedprior.regression.face.design import Design, check_dependent, chosen, design, far_from_zero
from fedprior.regression.face.reading import Reading, read
from fedprior.regression.face.specification import Specification, in_units
from fedprior.regression.face.spread import few_note, spread_of
from fedprior.regression.linear import local_linear
from fedprior.regression.linear.integrated import ThetaSpread
from fedprior.regression.logistic import (
    local_logistic,
    local_poisson,
    odds_covariance,
    predictive,
    probabilities,
)
from fedprior.regression.packed import pack
from fedprior.regression.result import RegressionFit, quantile
from fedprior.regression.rows import GroupedRows

_LATENT = np.pi**2 / 3  # variance of the logistic distribution


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """The fit in the units of the table, with the data and the options that it comes from.

    `rows` are the fitted rows, with features divided by the scale of the design; `levels` are the
    labels of the groups. `classes` is None if the target is a number or a count; counts have a
    `dispersion`.
    """

    design: Design
    specification: Specification
    levels: np.ndarray
    classes: np.ndarray | None
    rows: GroupedRows
    fit: RegressionFit
    num_dropped: int
    notes: tuple[str, ...]
    dispersion: Dispersion | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns of theta; NAME[CLASS] with more than two classes."""
        return self._of_classes(self.design.names)

    @property
    def fixed_names(self) -> list[str]:
        return self._of_classes(self.design.fixed_names)

    @property
    def covariance(self) -> str:
        """The form of the covariance: full, diagonal or isotropic."""
        return self.fit.form or self.specification.covariance

    @property
    def share_between(self) -> float:
        """Intraclass correlation at the mean row: row' covariance row / (same + noise).

        For classes it is that of the log odds, whose noise has variance pi^2 / 3; with more than
        two classes, the mean over all classes but the reference. For counts it is that of the log
        rate, and the noise is that of a count at the mean of all counts, log(1 + 1 / mean).
        """
        row = np.tile(self.rows.x.mean(axis=0) * self.design.scale, self.specification.num_logits)
        population, logits = self.fit.population, self.specification.num_logits
        own = np.kron(np.eye(logits), np.ones((len(row) // logits,) * 2))
        between = float(row @ (population.covariance * own) @ row) / logits
        noise = _LATENT if population.noise_variance is None else population.noise_variance
        if self.fit.family == "poisson":
            noise = float(np.log1p(1 / self.rows.y.mean()))
        return between / (between + noise)

    def interval(self, level: float, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Limits theta -+ t scale of the groups at `place`; -1 gives those of the population.

        Scale and degrees of freedom are those of `spread`; those of a new group are those of the
        population's mean.
        """
        population, width = self.fit.population, len(self.fit.population.mean)
        variance = np.diag(population.covariance)
        if population.mean_errors is not None:
            variance = variance + population.mean_errors**2
        freedom = population.freedom
        new = quantile(level, None if freedom is None else freedom[:width]) * np.sqrt(variance)
        middle = np.vstack([self.fit.theta, population.mean])[place]
        reach = np.vstack([quantile(level, self.spread.freedom) * self.spread.scale, new])[place]
        return middle - reach, middle + reach

    @cached_property
    def spread(self) -> ThetaSpread:
        """The scale and the degrees of freedom of theta about its estimate, for intervals."""
        return spread_of(self.fit, self.rows, self.specification, self.design.scale)

    def columns(self, level: float) -> dict[str, np.ndarray]:
        """One row per group: group, n, components, each coefficient with error, lower and upper.

        A name that is already taken (a feature called n) gets the suffix `_coefficient`. Names are
        compared without regard to case, as in a database.
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
        """`theta` (m, D) fitted to each group's rows alone, with pooled fixed coefficients.

        NaN if a group's rows do not determine it: too few rows, or a constant feature.
        """
        if self.fit.family == "poisson":
            theta = local_poisson(self.rows)
        elif self.classes is None:
            theta = local_linear(self.rows)
        else:
            theta = local_logistic(self.rows, num_classes=len(self.classes))
        for block in self.rows.blocks():
            poor = np.linalg.matrix_rank(block.x) < self.rows.num_features
            theta[block.groups[poor]] = np.nan
        theta[self.rows.sizes == 0] = np.nan
        return theta / np.tile(self.design.scale, self.specification.num_logits)

    def predict(self, x: np.ndarray, fixed: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Predictions x theta_i + fixed beta, (rows,); `place` -1 uses the population's mean."""
        population = self.fit.population
        theta = np.vstack([self.fit.theta, population.mean])[place]
        return (x * theta).sum(axis=1) + fixed @ population.fixed

    def counts(
        self, x: np.ndarray, fixed: np.ndarray, place: np.ndarray, exposure: np.ndarray | float
    ) -> np.ndarray:
        """Expected counts (rows,), averaged over theta_i, or over the population if `place` -1."""
        return expected_counts(self.fit, x, fixed, place, exposure)

    def probabilities(self, x: np.ndarray, fixed: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Class probabilities (rows, C), averaged over theta_i, or over the population if -1."""
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
    exposure: Any = None,
) -> Analysis:
    """Fit the complete rows; incomplete rows are dropped, or refused if `strict`.

    `specification.family` "binomial" stands for any number of classes, which is read from the
    target. `exposure` is that of each row's count. Error messages call the target `target_name`.
    """
    owner, family = specification.owner, specification.family
    common = chosen(owner, fixed, list(columns))
    reading = read(
        owner,
        columns,
        target,
        groups,
        target_name=target_name,
        family=family,
        strict=strict,
        exposure=exposure,
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
        family = "multinomial" if number > 2 else "binomial"
        specification = replace(specification, family=family, num_classes=number)
    return _fit(reading, plan, specification)


def _fit(reading: Reading, plan: Design, specification: Specification) -> Analysis:
    x, beside = plan.split(reading.table)
    rows = GroupedRows.of(
        x / plan.scale,
        reading.target,
        reading.place,
        len(reading.levels),
        fixed=beside,
        offset=None if reading.exposure is None else np.log(reading.exposure),
    )
    check_dependent(plan, rows)
    _check_sizes(specification, int(rows.sizes.max()))
    settled = specification.settled(rows)
    fit = settled.fit(rows)
    analysis = Analysis(
        design=plan,
        specification=settled,
        levels=reading.levels,
        classes=reading.classes,
        rows=rows,
        fit=in_units(fit, plan.scale),
        num_dropped=reading.num_dropped,
        notes=(),
        dispersion=dispersion_of(rows, fit) if fit.family == "poisson" else None,
    )
    return replace(analysis, notes=tuple(_notes(analysis, reading.table)))


def _notes(analysis: Analysis, table: np.ndarray) -> list[str]:
    notes = []
    if analysis.num_dropped:
        over = "" if analysis.rows.offset is None else ", the exposure"
        notes.append(
            f"Rows dropped because the target, a feature{over} or the group is missing: "
            f"{analysis.num_dropped}."
        )
    notes += analysis.design.notes
    notes += few_note(analysis.rows, analysis.specification)
    far = far_from_zero(analysis.design, table)
    if far and analysis.covariance != "full":
        notes.append(
            f"Features far from 0: {', '.join(far)}. The {analysis.covariance} "
            "covariance treats the intercept and slopes as independent. Center them."
        )
    notes += [_named(note, analysis.names) for note in analysis.fit.notes]
    spread = None if analysis.dispersion is None else analysis.dispersion.note
    return notes if spread is None else [*notes, spread]


def _named(note: str, names: list[str]) -> str:
    """Replace column numbers in a note by the names of the columns."""
    return re.sub(
        r"x column ((?:\d+, )*\d+)",
        lambda match: ", ".join(names[int(place)] for place in match[1].split(", ")),
        note,
    )


def _check_sizes(specification: Specification, largest: int) -> None:
    """Raise if every group has one row: then only the shape of the noise identifies the spread."""
    identified = largest > 1 or specification.population == "discrete"
    rule = "of at least 2 rows"
    remedy = "With one row per group, differences between groups cannot be told from noise."
    check.require(identified, specification.owner, "largest group", rule, largest, remedy)
