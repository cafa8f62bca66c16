"""Parameters of estimators: the arguments of `__init__`, as scikit-learn has them."""

from typing import Any

from sklearn.base import BaseEstimator


class Parameters(BaseEstimator):
    """An estimator whose `__init__` does nothing but store its arguments."""

    def _set_options(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of `__init__` under their own names, as scikit-learn requires."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])
