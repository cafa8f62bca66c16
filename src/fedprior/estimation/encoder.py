"""Categories as numbers: each becomes its personal estimate of the target."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fedprior.core import check, random
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.choices import populations
from fedprior.estimation.conjugate.estimate import estimate_rates
from fedprior.estimation.features import feature_columns
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.parameters import Parameters
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Counts, Means, counts_of, means_of, with_empty

_OWNER = "GroupEncoder"
_TYPES = ("auto", "binary", "continuous")
_POPULATIONS = populations("default")
_FEW = 4  # below, no shrinkage toward the mean is better everywhere (James and Stein)
_CHANCE = 1e-3  # agreement within all categories more likely than this may well be chance


@dataclass(frozen=True, eq=False)
class Encoding:
    """A column's categories as numbers; `unseen` stands for any other, and for a missing one."""

    values: np.ndarray
    unseen: float
    estimates: Estimates | None = None
    note: str = ""

    def encode(self, place: np.ndarray) -> np.ndarray:
        return np.append(self.values, self.unseen)[place]  # place -1 is the last entry


class GroupEncoder(OneToOneFeatureMixin, TransformerMixin, Parameters):
    """x -> E[theta_x | data]: a category becomes the shrunken mean of the target in its rows.

    How far it shrinks is learned from how much the categories differ, column by column, instead of
    set by hand. An unseen or missing category becomes the population's mean. A target of two
    classes is encoded as the probability of the second (`classes_`); other numbers as they are.

    `fit_transform` encodes each row without its own target: the rows fall into `cv` parts at
    random (keyed by `seed`), and each part is encoded from the others. So it differs from
    `fit(X, y).transform(X)`, whose training rows have seen their own target: train what follows on
    `fit_transform` (a pipeline does), and use `transform` for new rows. `cv=None` turns this off.

    `population` is default (Beta for two classes, else Gaussian), scale-mixture, spike-and-slab,
    nonparametric, point or auto, and `by_size` lets it depend on how often a category occurs.
    Fitted: `categories_`, `encodings_`, `unseen_` (a number a column), `estimates_` (None where
    there was too little to learn from; its reason is in `notes_`), `target_type_`, `target_mean_`,
    `classes_`.

    >>> X = [["red"], ["red"], ["blue"], ["blue"], ["green"], ["green"]]
    >>> encoder = GroupEncoder().fit(X, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> encoder.transform([["red"], ["pink"]]).shape
    (2, 1)
    """

    def __init__(
        self,
        *,
        target_type: str = "auto",
        population: str = "default",
        by_size: bool = False,
        cv: int | None = 5,
        seed: int = 0,
    ) -> None:
        self._set_options(locals())

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the numbers of all categories from all rows."""
        self._learn(X, y)
        return self

    def fit_transform(self, X: Any, y: Any) -> np.ndarray:
        """`fit`, and the training rows encoded out of fold: each from the rows of other parts."""
        target, places = self._learn(X, y)
        if self.cv is None:
            return self._encoded(places)
        fold = self._folds(target, self.cv)
        found = np.empty((len(target), len(places)))
        for part in range(int(fold.max()) + 1):
            out = fold == part
            for column, place in enumerate(places):
                number = len(self.categories_[column])
                encoding = self._encode(target[~out], place[~out], number)
                found[out, column] = encoding.encode(place[out])
        return found

    def transform(self, X: Any) -> np.ndarray:
        """Each category's number, learned from all training rows."""
        check_is_fitted(self, "encodings_")
        columns = feature_columns(self, X, reset=False)
        places = (
            labels.look_up(_OWNER, "X", levels, column, any_kind=True)
            for levels, column in zip(self.categories_, columns, strict=True)
        )
        return self._encoded(places)

    def _encoded(self, places: Iterable[np.ndarray]) -> np.ndarray:
        """The numbers of all rows, a column for each of X."""
        parts = zip(self._encodings, places, strict=True)
        return np.stack([encoding.encode(place) for encoding, place in parts], axis=1)

    def _learn(self, X: Any, y: Any) -> tuple[np.ndarray, list[np.ndarray]]:
        """Fit all columns; the target as numbers, and the place of each row's categories."""
        check.choice(_OWNER, "target_type", self.target_type, _TYPES)
        check.choice(_OWNER, "population", self.population, _POPULATIONS)
        check.seed(_OWNER, self.seed)
        if self.cv is not None:
            check.count(_OWNER, least=2, cv=self.cv)
        remedy = "This encoder requires y to be passed, but the target y is None."
        check.require(y is not None, _OWNER, "y", "one target a row", None, remedy)
        factors = [
            labels.factorize(_OWNER, "X", each) for each in feature_columns(self, X, reset=True)
        ]
        target, self.target_type_, self.classes_ = labels.read_target(_OWNER, y, self.target_type)
        numeric.same_length(_OWNER, X=factors[0].place, y=target)
        self.target_mean_ = float(target.mean())
        self.categories_ = [factor.levels for factor in factors]
        places = [factor.place for factor in factors]
        self._encodings = [
            self._encode(target, place, len(levels))
            for place, levels in zip(places, self.categories_, strict=True)
        ]
        self.encodings_ = [each.values for each in self._encodings]
        self.unseen_ = np.array([each.unseen for each in self._encodings])
        self.estimates_ = [each.estimates for each in self._encodings]
        self.notes_ = self._notes()
        return target, places

    def _encode(self, target: np.ndarray, place: np.ndarray, number: int) -> Encoding:
        """One column's categories, learned from the rows that have one."""
        known = place >= 0
        if not known.any():
            common = float(target.mean())
            return Encoding(np.full(number, common), common, note="No row has a category.")
        target, place = target[known], place[known]
        means = means_of(target, place, number)
        within = np.zeros(number) if means.within is None else means.within
        weak = without_population(means.n, means.mean, within, target)
        if weak is not None:
            return weak
        counts = counts_of(target, place, number) if self.target_type_ == "binary" else None
        sizes = np.unique(means.n[means.n > 0])
        found = self._estimate(counts or means, by_size=self.by_size and len(sizes) > 1)
        unseen = found.population.mean
        if found.population.by_size:  # an unseen category is a rare one
            again = self._estimate(with_empty(counts or means), by_size=True)
            unseen = again.personal[-1]
        return Encoding(found.personal, float(unseen), estimates=found)

    def _estimate(self, statistics: Counts | Means, *, by_size: bool) -> Estimates:
        usual = "beta" if isinstance(statistics, Counts) else "gaussian"
        population = usual if self.population == "default" else self.population
        if isinstance(statistics, Counts):
            return estimate_rates(statistics, population=population, by_size=by_size)
        return estimate_means(statistics, population=population, by_size=by_size)

    def _notes(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        notes = []
        for number, each in enumerate(self._encodings):
            name = f"x{number}" if names is None else names[number]
            said = each.estimates.notes if each.estimates is not None else ()
            notes += [f"{name}: {note}" for note in (each.note, *said) if note]
        return notes

    def _folds(self, target: np.ndarray, cv: int) -> np.ndarray:
        """The part of each row; the two classes are spread evenly over the parts."""
        rows = len(target)
        rule = "at least 2 to encode one from the others"
        check.require(rows > 1, _OWNER, "number of rows", rule, "1 sample")
        shuffled = random.stream(self.seed, "split").permutation(rows)
        if self.target_type_ == "binary":
            shuffled = shuffled[np.argsort(target[shuffled], kind="stable")]
        fold = np.empty(rows, np.int64)
        fold[shuffled] = np.arange(rows) % min(cv, rows)
        return fold

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags


def without_population(
    n: np.ndarray, mean: np.ndarray, within: np.ndarray, target: np.ndarray
) -> Encoding | None:
    """A column that says too little of the population its categories come from; else None."""
    present = int((n > 0).sum())
    common = float(target.mean())
    alike = Encoding(np.full(len(n), common), common)
    if present < 2:
        return replace(alike, note="There is one category only: it has the common mean.")
    if not within.any():
        # Under one common law a category's further rows all repeat its first one with probability
        # at most (share of the most frequent value) ** (number of further rows).
        share = np.unique(target, return_counts=True)[1].max() / len(target)
        if share ** (len(target) - present) > _CHANCE:
            return replace(alike, note="Too few rows share a category: all have the common mean.")
        return Encoding(
            *shrink_linearly(n, mean, within), note="The category determines the target."
        )
    if present < _FEW:
        note = f"{present} categories are too few for a population: shrunken by moments."
        return Encoding(*shrink_linearly(n, mean, within), note=note)
    return None


def shrink_linearly(
    n: np.ndarray, mean: np.ndarray, within: np.ndarray
) -> tuple[np.ndarray, float]:
    """weight_i = n_i A / (n_i A + s), s and A by moments (ERRATA D1): needs no population's shape.

    The numbers of all categories, and the common mean. Some category has two rows or more.
    """
    n, mean = n.astype(float), np.where(n > 0, mean, 0.0)
    rows, present = n.sum(), (n > 0).sum()
    common = (n * mean).sum() / rows
    noise = within.sum() / (rows - present)
    effective = (rows - (n**2).sum() / rows) / (present - 1)  # n itself where all are equal
    spread = (n * (mean - common) ** 2).sum() / (present - 1)
    between = max(0.0, (spread - noise) / effective)
    with np.errstate(invalid="ignore"):  # 0 / 0 for a category without rows and without noise
        weight = n * between / (n * between + noise) if between > 0 else np.zeros(len(n))
    return common + np.where(n > 0, weight * (mean - common), 0.0), float(common)
