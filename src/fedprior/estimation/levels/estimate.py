"""Estimates of every group, and of every level above it, from groups within or across groups."""

from dataclasses import dataclass, replace

import numpy as np

from fedprior.core import check
from fedprior.estimation.covariates import Coefficients
from fedprior.estimation.intervals import mixture_interval
from fedprior.estimation.levels.answer import LevelAnswers, answers
from fedprior.estimation.levels.cells import Cells
from fedprior.estimation.levels.crossed import kernel
from fedprior.estimation.levels.design import LevelData, LevelDesign, design
from fedprior.estimation.levels.fit import LevelsFit, maximize
from fedprior.estimation.levels.hyper import Hyper, plausible
from fedprior.estimation.levels.links import moments
from fedprior.estimation.levels.result import LevelEstimates, Levels, Values
from fedprior.estimation.result import Estimates, FittedPopulation

KINDS = {"gaussian": "gaussian", "binomial": "logit-normal", "poisson": "log-normal"}
LINKS = {"gaussian": "identity", "binomial": "logit", "poisson": "log"}
_FEW = 10  # levels: below, their variance is hardly known
_LOOSE = 10.0  # standard error of a coefficient of a column of variance 1, in logits
_NO_NOISE = 1e-10  # of the variance of y


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedLevels:
    """The estimates, and what predictions for further groups need.

    `source` is, for each row of the estimates, a row of the data in the same cell; `row` is the row
    of the estimates of each cell.
    """

    estimates: Estimates
    source: np.ndarray
    row: np.ndarray
    design: LevelDesign
    hyper: Hyper
    level: float

    @property
    def levels(self) -> Levels:
        assert self.estimates.levels is not None
        return self.estimates.levels

    @property
    def cells(self) -> Cells:
        return self.design.problem.rows.cells

    def further(self, places: tuple[np.ndarray, ...], sizes: tuple[int, ...]) -> Values:
        """Values of further cells without rows; places beyond the known levels are new levels."""
        problem, number = self.design.problem, self.cells.number
        cells = self.cells.extended(places, sizes)
        rows = replace(problem.rows, cells=cells)
        wider = replace(problem, rows=rows, kernel=kernel("GroupLevels", cells))
        found = answers(wider, self.hyper, center=self.design.center, level=self.level).cells
        fields = ("n", "raw", "personal", "scale", "weight", "lower", "upper")
        return Values(**{name: getattr(found, name)[number:] for name in fields})


def fit_levels(
    owner: str,
    data: LevelData,
    *,
    structure: str = "nested",
    criterion: str = "auto",
    level: float = 0.95,
) -> FittedLevels:
    """Fit by REML or maximum likelihood, and average over the variances that the data allow."""
    check.choice(owner, "structure", structure, ("nested", "crossed"))
    check.choice(owner, "criterion", criterion, ("auto", "reml", "ml"))
    normal = data.family == "gaussian"
    fits = normal or criterion != "reml"
    check.require(fits, owner, "criterion", "ml (or auto) but for numbers", criterion)
    restricted = normal and criterion != "ml"
    found = design(owner, data, nested=structure == "nested", restricted=restricted)
    problem = found.problem
    fit = _maximized(owner, data, found)
    hyper = plausible(problem, fit)
    answer = answers(problem, hyper, center=found.center, level=level)
    row, source = _order(found)
    levels = _levels(data, found, fit, hyper, answer, row, structure, restricted, level)
    return FittedLevels(
        estimates=_estimates(data, found, levels, answer, row, level),
        source=source,
        row=row,
        design=found,
        hyper=hyper,
        level=level,
    )


def _maximized(owner: str, data: LevelData, found: LevelDesign) -> LevelsFit:
    """The fit; raises if groups leave no noise, where there should be some."""
    noisy = data.family == "gaussian" and not data.known
    sentence = "the groups explain all values to the digit: there is no noise to estimate."
    try:
        fit = maximize(found.problem)
    except np.linalg.LinAlgError:
        raise ValueError(f"{owner}: {sentence}") from None
    spread = float(np.var(found.problem.rows.y)) + data.within / max(data.num_rows, 1)
    check.expect(not noisy or fit.noise > _NO_NOISE * spread, owner, sentence)
    return fit


def _order(found: LevelDesign) -> tuple[np.ndarray, np.ndarray]:
    """The row of the estimates of each cell, and a row of the data for each row of the estimates.

    Estimates have the order of the data where these have one row per cell.
    """
    number = found.problem.rows.cells.number
    of_data = np.empty(number, np.int64)
    of_data[found.cell[::-1]] = np.arange(len(found.cell))[::-1]
    if len(found.cell) == number:
        return of_data, np.arange(number)
    return np.arange(number), of_data


def _levels(
    data: LevelData,
    found: LevelDesign,
    fit: LevelsFit,
    hyper: Hyper,
    answer: LevelAnswers,
    row: np.ndarray,
    structure: str,
    restricted: bool,
    level: float,
) -> Levels:
    cells = found.problem.rows.cells
    parts = []
    for k, name in enumerate(cells.names):
        example = np.empty(cells.sizes[k], np.int64)
        example[cells.places[k]] = row
        parts.append(
            LevelEstimates(
                name=name,
                deviation=float(fit.scales[k]),
                error=float(fit.scale_errors[k]),
                values=answer.levels[k],
                example=example,
            )
        )
    noisy = data.family == "gaussian" and not data.known
    correction = 0.0
    if restricted and found.scaled is not None:  # X'V^-1 X in the units of the columns
        correction = float(np.log(found.scaled.scale).sum())
    return Levels(
        family=data.family,
        structure=structure,
        chain=cells.nested,
        criterion="reml" if restricted else "ml",
        log_likelihood=fit.log_likelihood - correction,
        noise=float(np.sqrt(fit.noise)) if noisy else None,
        noise_error=fit.noise_scale_error,
        whole=answer.whole,
        parts=tuple(parts),
        coefficients=_coefficients(found, fit, hyper, level),
    )


def _coefficients(
    found: LevelDesign, fit: LevelsFit, hyper: Hyper, level: float
) -> Coefficients | None:
    """Intercept and slopes in the units of the columns, at the fit, with averaged intervals."""
    if found.scaled is None:
        return None
    rows = found.problem.rows
    back, names = found.scaled.in_units(rows.num_fixed)
    state = found.problem.state(fit.ratios)
    beta = state.beta if fit.coefficients is None else fit.coefficients
    states = [found.problem.state(point) for point in hyper.ratios]
    location = np.array([back @ each.beta for each in states])
    spread = np.array([np.diag(back @ each.covariance @ back.T) for each in states])
    freedom = states[0].freedom
    lower, upper = mixture_interval(
        level, hyper.probability, location, np.sqrt(spread), freedom=freedom
    )
    shift = np.zeros(len(back))
    shift[0] = found.center
    return Coefficients(
        names=names,
        values=back @ beta + shift,
        standard_errors=np.sqrt(np.diag(back @ state.covariance @ back.T)),
        lower=lower + shift,
        upper=upper + shift,
        level=level,
        r_squared=np.nan,
        link=LINKS[rows.family],
    )


def _estimates(
    data: LevelData,
    found: LevelDesign,
    levels: Levels,
    answer: LevelAnswers,
    row: np.ndarray,
    level: float,
) -> Estimates:
    """One row per cell."""
    values = answer.cells
    rows = found.problem.rows
    whole = float(levels.whole.personal[0])
    there = values.n > 0
    personal = values.personal[there]
    size = rows.totals(rows.size[None])[0][there]
    chance = {
        "gaussian": np.full(len(size), 1.0 if levels.noise is None else levels.noise**2),
        "binomial": np.maximum(personal * (1 - personal) - values.scale[there] ** 2, 0.0),
        "poisson": personal,
    }[data.family]
    own, pooled = values.scale[there] ** 2, (personal - whole) ** 2
    risk, by_raw = float(own.mean()), float((chance / size).mean())
    by_whole = float((own + pooled).mean())
    deviations = np.array([part.deviation for part in levels.parts])
    between = moments(
        data.family,
        np.array([answer.location]),
        np.array([float((deviations**2).sum())]),
    ).variance
    parameters = {f"{part.name}_sd": part.deviation for part in levels.parts}
    errors = {f"{part.name}_sd": part.error for part in levels.parts}
    if levels.noise is not None:
        parameters["noise_sd"], errors["noise_sd"] = levels.noise, levels.noise_error
    cell = np.argsort(row)
    scale = np.zeros(0) if found.scaled is None else found.scaled.scale
    return Estimates(
        n=values.n[cell] if data.family == "poisson" else values.n[cell].astype(np.int64),
        raw=values.raw[cell],
        personal=values.personal[cell],
        weight=values.weight[cell],
        scale=values.scale[cell],
        lower=values.lower[cell],
        upper=values.upper[cell],
        level=level,
        population=FittedPopulation(
            kind=KINDS[data.family],
            fitted_by=f"{levels.structure}, {levels.criterion.upper()}",
            mean=whole,
            heterogeneity=float(np.sqrt(between[0])),
            parameters=parameters,
            standard_errors=errors,
        ),
        gain_over_raw=100 * (1 - risk / by_raw) if by_raw > 0 else np.nan,
        gain_over_pooled=100 * (1 - risk / by_whole) if by_whole > 0 else np.nan,
        notes=_notes(levels, rows.cells, scale),
        levels=levels,
        size_name="exposure" if data.family == "poisson" else "n",
    )


def _notes(levels: Levels, cells: Cells, scale: np.ndarray) -> tuple[str, ...]:
    notes = []
    if levels.structure == "crossed" and cells.nested and len(cells.names) > 1:
        chain = ", ".join(repr(name) for name in cells.names)
        notes.append(f"These groups are nested, coarse to fine: {chain}. They are taken as nested.")
    found = levels.coefficients
    if found is not None and levels.family != "gaussian":
        loose = found.standard_errors[1:] * scale > _LOOSE
        names = ", ".join(np.array(found.names[1:])[loose])
        if names:
            notes.append(
                f"The outcomes hardly bound the coefficients of {names}: these columns may "
                "separate them."
            )
    for part in levels.parts:
        if part.deviation == 0:
            notes.append(
                f"The groups {part.name!r} do not differ by more than chance: their estimated "
                "standard deviation is 0. Intervals allow for others."
            )
        elif part.number < _FEW:
            notes.append(
                f"There are only {part.number} groups {part.name!r}: how much they differ is "
                "hardly known, and intervals allow for it."
            )
    return tuple(notes)
