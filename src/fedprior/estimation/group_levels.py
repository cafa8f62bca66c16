"""`GroupLevels`: groups within groups, or groups that cross, in; values of every level out."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedprior.core import check
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.columns import encode, named_columns, read_columns
from fedprior.estimation.covariate_rows import CovariateReader
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.levels.collapse import collapsed
from fedprior.estimation.levels.design import LevelData
from fedprior.estimation.levels.estimate import fit_levels
from fedprior.estimation.levels.result import Values
from fedprior.estimation.levels.table import asked, level_table
from fedprior.estimation.page.on_pages import OnPages
from fedprior.estimation.parameters import Parameters
from fedprior.pages.page import Page


class GroupLevels(OnPages, Parameters):
    """Value of a row = x beta + one effect per grouping column + noise; effects are normal.

    With `structure="nested"`, columns go from coarse to fine (state, county), and a county is
    pulled to its state, a state to the whole; a label means another group in each group above it.
    With `structure="crossed"`, labels mean the same everywhere, and effects of the columns add up.
    `family` is gaussian (values), binomial (outcomes of 0 and 1, or successes of trials) or poisson
    (events over an exposure); rates have effects on logits, events on logarithms, by Laplace's
    approximation. `criterion` is reml (the default for values) or ml.

    Estimates and intervals average over the standard deviations that the data allow, which matters
    where there are few states. Fitted: `levels_` (each level's standard deviation and values, the
    whole, coefficients, log-likelihood), `estimates_` of the finest groups, `notes_`,
    `num_dropped_`.

    >>> import numpy as np
    >>> state, county = np.repeat(["a", "b", "c"], 8), np.tile(np.repeat([0, 1, 2, 3], 2), 3)
    >>> value = np.sin(np.arange(24.0)) + np.repeat([0, 2, 4], 8)
    >>> model = GroupLevels().fit(value, {"state": state, "county": county})
    >>> [(part.name, part.number) for part in model.levels_.parts]
    [('state', 3), ('county', 12)]
    >>> model.predict({"state": ["a", "a", "elsewhere"], "county": [0, 99, 0]}).shape
    (3,)
    """

    _called: str | None = None  # what error messages call it
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "family": ("gaussian", "binomial", "poisson"),
        "structure": ("nested", "crossed"),
        "criterion": ("auto", "reml", "ml"),
    }

    def __init__(
        self,
        *,
        family: str = "gaussian",
        structure: str = "nested",
        criterion: str = "auto",
        noise_variance: float | None = None,
        level: float = 0.95,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    def fit(
        self,
        y: Any,
        groups: Any,
        *,
        trials: Any = None,
        exposure: Any = None,
        standard_errors: Any = None,
        fixed: Any = None,
    ) -> Self:
        """Fit to rows; `groups` has one column of labels per level: a frame, or columns by name.

        `trials` (binomial) and `exposure` (poisson) are 1 by default; `standard_errors` (gaussian)
        are those of y, as in a meta-analysis. `fixed` are columns with one coefficient for all.
        """
        self._check()
        values = numeric.numbers(self._owner, "y", y)
        table = named_columns(self._owner, "level", groups)
        factors = [labels.factorize(self._owner, name, cells) for name, cells in table.items()]
        size = self._size(values, trials, exposure, standard_errors)
        places = {name: factor.place for name, factor in zip(table, factors, strict=True)}
        numeric.same_length(self._owner, y=values, size=size, **_titled(places))
        encoded = self._encode(fixed, len(values))
        keep = ~np.isnan(values) & ~np.isnan(size)
        for factor in factors:
            keep &= factor.place >= 0
        if encoded is not None:
            keep &= ~np.isnan(encoded).any(axis=1)
        self.num_dropped_ = numeric.check_complete(
            self._owner,
            keep,
            strict=self.strict,
            missing="a missing value or group",
            whole="a value and groups",
        )
        kept = [factor.keep(keep) for factor in factors]
        self._frame = numeric.frame_kind(y, groups)
        self.names_ = tuple(table)
        data = LevelData(
            family=self.family,
            names=self.names_,
            places=[factor.place for factor in kept],
            y=values[keep],
            size=size[keep],
            num_rows=int(keep.sum()),
            known=standard_errors is not None or self.noise_variance is not None,
            counts=np.ones(int(keep.sum())) if self.family == "gaussian" else None,
            fixed=None
            if encoded is None
            else Covariates(names=self._reader.names, values=encoded[keep]),
        )
        return self._learn(data, [factor.levels for factor in kept])

    def predict(self, groups: Any) -> np.ndarray:
        """Return the estimate of each row of labels, at the mean of the fixed columns.

        A county not seen in `fit` gets the value of its state, a wholly new one that of the whole.
        """
        return self._asked(groups).personal

    def interval(self, groups: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper limits for each row of labels, seen or not."""
        found = self._asked(groups)
        return found.lower, found.upper

    def to_frame(self) -> Any:
        """Return one row per group of every level: level, labels, n, raw, personal and so on.

        The first row, of level "all", is the whole. Labels below a row's level are empty.
        """
        check_is_fitted(self, "estimates_")
        return labels.to_frame(level_table(self.estimates_, self.keys_), self._frame)

    def _page(self, *, whole: bool) -> Page:
        from fedprior.estimation.page.fitted import settings
        from fedprior.estimation.page.whole import estimates_page

        told = {"labels": 1 + len(self.names_), "kind": self._kind}
        told |= {"notes": list(self.notes_), "settings": settings(self)}
        table = level_table(self.estimates_, self.keys_)
        return estimates_page({**self.estimates_.summary(), **told}, table)

    @property
    def _kind(self) -> str:
        """What a page calls the values."""
        return {"gaussian": "means", "binomial": "rates", "poisson": "events"}[self.family]

    @property
    def _owner(self) -> str:
        return self._called or type(self).__name__

    def _check(self) -> None:
        self._check_choices()
        check.fraction(self._owner, level=self.level)
        check.require(self.level < 1, self._owner, "level", "below 1", self.level)
        if self.noise_variance is not None:
            check.positive(self._owner, noise_variance=self.noise_variance)
            only = self.family == "gaussian"
            sentence = "noise_variance belongs to the family gaussian."
            check.expect(only, self._owner, sentence)

    def _size(
        self, values: np.ndarray, trials: Any, exposure: Any, standard_errors: Any
    ) -> np.ndarray:
        """Trials, exposure, or 1 / variance of each row."""
        given = {"trials": trials, "exposure": exposure, "standard_errors": standard_errors}
        own = {"binomial": "trials", "poisson": "exposure", "gaussian": "standard_errors"}
        for name, cells in given.items():
            fits = cells is None or own[self.family] == name
            family = next(key for key, value in own.items() if value == name)
            check.expect(fits, self._owner, f"{name} belong to the family {family}.")
        if self.family == "gaussian":
            return self._precision(values, standard_errors)
        numeric.check_whole(self._owner, "y", values)
        cells = given[own[self.family]]
        size = np.ones(len(values))
        if cells is not None:
            size = numeric.numbers(self._owner, own[self.family], cells)
            numeric.same_length(self._owner, y=values, **{own[self.family]: size})
        if self.family == "binomial":
            numeric.check_trials(self._owner, "y", values, size)
        else:
            numeric.check_exposure(self._owner, "y", values, size)
        return size

    def _precision(self, values: np.ndarray, standard_errors: Any) -> np.ndarray:
        if standard_errors is None:
            return np.full(len(values), 1 / (self.noise_variance or 1.0))
        both = self.noise_variance is not None
        sentence = "noise_variance must be left out with standard_errors."
        check.expect(not both, self._owner, sentence)
        errors = numeric.numbers(self._owner, "standard_errors", standard_errors)
        numeric.check_rows(self._owner, "standard_errors", errors, errors > 0, "above 0")
        return errors**-2.0

    def _encode(self, fixed: Any, rows: int) -> np.ndarray | None:
        if fixed is None:
            return None
        table = named_columns(self._owner, "covariate", fixed)
        self._reader = CovariateReader(self._owner, read_columns(self._owner, table))
        found = encode(self._owner, self._reader.columns, table, lenient=True)
        rule = f"one row for each of the {rows} rows"
        check.require(len(found) == rows, self._owner, "fixed", rule, len(found))
        return found

    def _learn(self, data: LevelData, levels: list[np.ndarray]) -> Self:
        if data.fixed is None:
            data = collapsed(data)
        self.fitted_ = fit_levels(
            self._owner,
            data,
            structure=self.structure,
            criterion=self.criterion,
            level=self.level,
        )
        self._labels = dict(zip(data.names, levels, strict=True))
        self._places = dict(zip(data.names, data.places, strict=True))
        source = self.fitted_.source
        self.keys_ = {name: levels[k][data.places[k][source]] for k, name in enumerate(data.names)}
        self.estimates_, self.levels_ = self.fitted_.estimates, self.fitted_.levels
        dropped = f"Rows dropped because the value or a group is missing: {self.num_dropped_}."
        self.notes_ = (*[dropped] * bool(self.num_dropped_), *self.estimates_.notes)
        return self

    def _asked(self, groups: Any) -> Values:
        """Values of the rows of labels, of cells that are known and of further ones."""
        check_is_fitted(self, "estimates_")
        table = named_columns(self._owner, "level", groups)
        same = set(table) == set(self.names_)
        rule = ", ".join(map(repr, self.names_))
        check.require(same, self._owner, "columns of groups", rule, list(table))
        places = {
            name: labels.look_up(self._owner, name, known, table[name], any_kind=True)
            for name, known in self._labels.items()
        }
        numeric.same_length(self._owner, **_titled(places))
        return asked(self.fitted_, self._places, places)


def _titled(places: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns under names that no argument has."""
    return {f"groups {name!r}": place for name, place in places.items()}
