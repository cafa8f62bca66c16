"""The scikit-learn face of regression: a table and its groups in, coefficients per group out."""

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score

from fedprior.core import check
from fedprior.estimation import numeric
from fedprior.regression.face.analysis import Analysis
from fedprior.regression.face.counts import deviances
from fedprior.regression.face.estimator import PersonalEstimator


class PersonalRegression(RegressorMixin, PersonalEstimator):
    """y = x theta_i + fixed beta + noise, theta_i ~ population: theta_i of every group i.

    A linear mixed model. `population` is gaussian, mixture (a few kinds of groups that vary) or
    discrete (a few kinds whose members are equal); the last two have `num_components`, a number or
    "bic". `covariance` of theta is full, diagonal or isotropic; auto uses full if there are 5
    groups with enough rows for each of its parameters, else diagonal, else isotropic. `criterion`
    is reml, ml or auto (reml if available); `method` is default, em (messages that add) or paper
    (Algorithm 2, ERRATA 31). `fixed` lists columns, by name or position, that have one coefficient
    for all groups; columns that are constant within every group are always fixed.

    `standardize` divides features by their root mean square during the fit. This matters if the
    covariance is isotropic, which then does not depend on units; coefficients are always reported
    in the units of the table. `center` subtracts the means of the features, so that the intercept
    is the value at the mean row.

    >>> import numpy as np
    >>> place = np.repeat(np.arange(20), 6)
    >>> x = np.tile(np.arange(6.0), 20)
    >>> y = 1 + (2 + np.sin(place)) * x + np.cos(np.arange(120) ** 2)
    >>> model = PersonalRegression(covariance="diagonal").fit(x[:, None], y, place)
    >>> model.coefficient_names_, model.theta_.shape
    (['intercept', 'x0'], (20, 2))
    >>> model.predict([[1.0], [1.0]], groups=[3, 99]).shape
    (2,)
    """

    _family = "gaussian"

    def __init__(
        self,
        *,
        population: str = "gaussian",
        covariance: str = "auto",
        criterion: str = "auto",
        method: str = "default",
        num_components: int | str = "bic",
        fixed: Any = None,
        intercept: bool = True,
        center: bool = False,
        standardize: bool = True,
        restarts: int = 8,
        max_rounds: int | None = None,
        seed: int = 0,
        level: float = 0.95,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    def predict(self, X: Any, groups: Any) -> np.ndarray:
        """Return x theta_i + fixed beta; for a group not seen in `fit`, with the mean theta."""
        asked = self._asked(X, groups)
        return self.analysis_.predict(*asked)

    def score(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> float:
        """Return R^2 of `predict`."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))


class PersonalPoisson(RegressorMixin, PersonalEstimator):
    """y ~ Poisson(exposure exp(x theta_i + fixed beta)), theta_i ~ N(mean, covariance).

    A Poisson mixed model with log link: theta_i of every group i. `approximation` of the integral
    over theta is auto, laplace, quadrature (up to 3 coefficients per group), variational or
    expectation-propagation; `method` is default or em. The other parameters are those of
    `PersonalRegression`; the population is Gaussian. `dispersion_` is Pearson's statistic with its
    degrees of freedom; if it is far above them, there is a note.

    >>> import numpy as np
    >>> place = np.repeat(np.arange(30), 8)
    >>> y = np.floor(np.exp(np.sin(place) + np.cos(np.arange(240) ** 2)))
    >>> model = PersonalPoisson().fit(np.cos(np.arange(240.0))[:, None], y, place)
    >>> model.theta_.shape
    (30, 2)
    >>> model.predict([[0.0], [0.0]], groups=[3, 99], exposure=[1.0, 2.0]).shape
    (2,)
    """

    _family = "poisson"

    def __init__(
        self,
        *,
        covariance: str = "auto",
        approximation: str = "auto",
        method: str = "default",
        fixed: Any = None,
        intercept: bool = True,
        center: bool = False,
        standardize: bool = True,
        max_rounds: int | None = None,
        seed: int = 0,
        level: float = 0.95,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    def fit(self, X: Any, y: Any, groups: Any, *, exposure: Any = None) -> Self:
        """Fit to rows with features X, counts y and the label of each row's group.

        `exposure` is one positive number per row (time, people, area), 1 by default.
        """
        return self._fit(X, y, groups, exposure)

    def predict(self, X: Any, groups: Any, *, exposure: Any = None) -> np.ndarray:
        """Return expected counts for the exposure of each row (default: 1, which gives rates).

        They are averaged over what is not known of theta_i; for a group not seen in `fit`, over the
        population. That is more than exp of the mean log rate.
        """
        asked = self._asked(X, groups)
        return self.analysis_.counts(*asked, self._exposure(exposure, len(asked[0])))

    def score(
        self, X: Any, y: Any, groups: Any, *, exposure: Any = None, sample_weight: Any = None
    ) -> float:
        """Return D^2, the share of the Poisson deviance of one common rate that is explained.

        If that rate explains every count, D^2 is 0, as scikit-learn has it (1 if both do).
        """
        found = self.predict(X, groups, exposure=exposure)
        over = self._exposure(exposure, len(found))
        counts = numeric.numbers(self._owner, "y", y)
        _check_present(self._owner, "y", counts)
        weight = np.ones(len(found)) if sample_weight is None else np.asarray(sample_weight)
        numeric.same_length(self._owner, X=found, y=counts, sample_weight=weight)
        common = over * (weight @ counts) / (weight @ over)
        own, whole = (float(weight @ deviances(counts, each)) for each in (found, common))
        return 1 - own / whole if whole > 0 else float(own <= 0)

    def _exposure(self, exposure: Any, rows: int) -> np.ndarray:
        if exposure is None:
            return np.ones(rows)
        over = numeric.numbers(self._owner, "exposure", exposure)
        fits = len(over) == rows
        check.require(fits, self._owner, "exposure", f"one number for {rows} rows", len(over))
        _check_present(self._owner, "exposure", over)
        return over

    def _learn(self, analysis: Analysis) -> None:
        super()._learn(analysis)
        self.dispersion_ = analysis.dispersion


def _check_present(owner: str, name: str, values: np.ndarray) -> None:
    """Raise unless all values are there and at least 0."""
    missing = np.isnan(values)
    row = int(np.argmax(missing)) + 1
    check.require(not missing.any(), owner, name, "without missing values", f"one in row {row}")
    numeric.check_rows(owner, name, values, values >= 0, "at least 0")


class PersonalClassifier(ClassifierMixin, PersonalEstimator):
    """log odds = x theta_i + fixed beta, theta_i ~ population: theta_i of every group i.

    A logistic mixed model or, with more than two classes, a softmax model whose coefficients are
    relative to the first of `classes_`. `approximation` of the integral over theta is auto,
    laplace, quadrature, variational or expectation-propagation; `method="paper"` is Algorithm 3
    with its sign corrected (ERRATA 35, 37). The other parameters are those of `PersonalRegression`.

    >>> import numpy as np
    >>> place = np.repeat(np.arange(30), 8)
    >>> y = np.where(np.sin(np.arange(240) ** 2) + np.sin(place) > 0, "yes", "no")
    >>> model = PersonalClassifier().fit(np.cos(np.arange(240.0))[:, None], y, place)
    >>> model.classes_.tolist()
    ['no', 'yes']
    >>> model.predict_proba([[0.0], [0.0]], groups=[3, 99]).shape
    (2, 2)
    """

    _family = "binomial"

    def __init__(
        self,
        *,
        population: str = "gaussian",
        covariance: str = "auto",
        approximation: str = "auto",
        method: str = "default",
        num_components: int | str = "bic",
        fixed: Any = None,
        intercept: bool = True,
        center: bool = False,
        standardize: bool = True,
        restarts: int = 8,
        max_rounds: int | None = None,
        seed: int = 0,
        level: float = 0.95,
        strict: bool = False,
    ) -> None:
        self._set_options(locals())

    def predict_proba(self, X: Any, groups: Any) -> np.ndarray:
        """Return the probabilities of `classes_`, one row per sample.

        For a group not seen in `fit` they are averaged over the population.
        """
        asked = self._asked(X, groups)
        return self.analysis_.probabilities(*asked)

    def predict_log_proba(self, X: Any, groups: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X, groups))

    def predict(self, X: Any, groups: Any) -> np.ndarray:
        """Return the most probable class."""
        place = self.predict_proba(X, groups).argmax(axis=1)
        return np.asarray(self.classes_)[place]

    def score(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _learn(self, analysis: Analysis) -> None:
        super()._learn(analysis)
        self.classes_ = analysis.classes
