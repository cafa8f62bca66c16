"""The columns of X as an estimator gets them: a frame's own, or those of an array or of rows."""

import inspect
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from fedprior.core import check
from fedprior.estimation import numeric

# scikit-learn 1.6 renamed the argument that lets missing values through.
_LENIENT: dict[str, Any] = (
    {"ensure_all_finite": False}
    if "ensure_all_finite" in inspect.signature(check_array).parameters
    else {"force_all_finite": False}
)


def feature_columns(estimator: Any, X: Any, *, reset: bool) -> list[Any]:
    """The columns of X, each with its own type; scikit-learn's checks of shape and names.

    Names and number of columns are remembered by the estimator on `reset`, else compared.
    """
    owner = type(estimator).__name__
    if numeric.column_names(X) is None:
        # NumPy would make one type of a list's words and numbers, and the word "nan" of NaN.
        kept = object if not hasattr(X, "__array__") and _has_text(X) else None
        X = check_array(X, dtype=kept, **_LENIENT)
    _check_features(estimator, X, reset=reset)
    rows, number = X.shape
    check.require(rows > 0, owner, "number of rows", "at least 1", "0 sample(s)")
    check.require(number > 0, owner, "number of columns", "at least 1", "0 feature(s)")
    kind = numeric.frame_kind(X)
    if kind == "pandas":
        return [X.iloc[:, column] for column in range(number)]
    return list(X.get_columns()) if kind == "polars" else list(X.T)


def _check_features(estimator: Any, X: Any, *, reset: bool) -> None:
    """Names and number of columns, remembered or compared."""
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # scikit-learn before 1.6
        estimator._check_feature_names(X, reset=reset)
        estimator._check_n_features(X, reset=reset)
    else:
        validate_data(estimator, X=X, reset=reset, skip_check_array=True)


def _has_text(rows: Any) -> bool:
    try:
        return np.asarray(rows).dtype.kind in "USO"
    except ValueError:  # rows of unequal length, which check_array refuses in its own words
        return False
