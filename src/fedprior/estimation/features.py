"""The columns of X, whether it is a data frame, an array or a list of rows."""

import inspect
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from fedprior.core import check
from fedprior.data import frames
from fedprior.data.arrow import Frame
from fedprior.estimation import numeric

# scikit-learn 1.6 renamed the argument that lets missing values through.
_LENIENT: dict[str, Any] = (
    {"ensure_all_finite": False}
    if "ensure_all_finite" in inspect.signature(check_array).parameters
    else {"force_all_finite": False}
)


def feature_columns(estimator: Any, X: Any, *, reset: bool) -> list[Any]:
    """Return the columns of X, each with its own type, after scikit-learn's checks.

    On `reset` the estimator stores the names and the number of columns, otherwise it compares them.
    """
    owner = type(estimator).__name__
    X = frames.taken(X)
    if frames.column_names(X) is None:
        # NumPy would convert words and numbers in a list to one type, and NaN to the word "nan".
        kept = object if not hasattr(X, "__array__") and _has_text(X) else None
        X = check_array(X, dtype=kept, **_LENIENT)
    if isinstance(X, Frame):
        _check_names(estimator, X, reset=reset)
    else:
        _check_features(estimator, X, reset=reset)
    rows, number = X.shape
    check.require(rows > 0, owner, "number of rows", "at least 1", "0 sample(s)")
    check.require(number > 0, owner, "number of columns", "at least 1", "0 feature(s)")
    if isinstance(X, Frame):
        return [X[name] for name in X]
    kind = numeric.frame_kind(X)
    if kind == "pandas":
        return [X.iloc[:, column] for column in range(number)]
    return list(X.get_columns()) if kind == "polars" else list(X.T)


def _check_features(estimator: Any, X: Any, *, reset: bool) -> None:
    """Store or compare the names and the number of columns."""
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # scikit-learn before 1.6
        estimator._check_feature_names(X, reset=reset)
        estimator._check_n_features(X, reset=reset)
    else:
        validate_data(estimator, X=X, reset=reset, skip_check_array=True)


def _check_names(estimator: Any, X: Frame, *, reset: bool) -> None:
    """The same for a table that scikit-learn does not know."""
    if reset:
        estimator.feature_names_in_ = np.array(X.names, object)
        estimator.n_features_in_ = len(X)
        return
    owner = type(estimator).__name__
    number = estimator.n_features_in_
    check.require(len(X) == number, owner, "number of columns", f"{number}, as in fit", len(X))
    known = getattr(estimator, "feature_names_in_", None)
    same = known is None or list(known) == X.names
    rule = "those of fit, in their order"
    check.require(same, owner, "names of columns", rule, X.names)


def _has_text(rows: Any) -> bool:
    try:
        return np.asarray(rows).dtype.kind in "USO"
    except ValueError:  # rows of unequal length, for which check_array raises
        return False
