"""Parameters of estimators: the arguments of `__init__`, as scikit-learn has them."""

from typing import Any

from sklearn.base import BaseEstimator


class Parameters(BaseEstimator):
    """An estimator whose `__init__` does nothing but store its arguments."""

    def _set_options(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of `__init__`, its `locals()`, under their own names.

        They are those of the class that calls, not of a subclass with other ones.
        """
        for name, value in arguments.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)
