"""Parameters of estimators: the arguments of `__init__`, as scikit-learn has them."""

from typing import Any, ClassVar

from sklearn.base import BaseEstimator

from fedprior.core import check


class Parameters(BaseEstimator):
    """An estimator whose `__init__` does nothing but store its arguments."""

    _choices: ClassVar[dict[str, tuple[str, ...]]] = {}

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _check_choices(self) -> None:
        for name, known in self._choices.items():
            check.choice(self._owner, name, getattr(self, name), known)

    def _set_options(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of `__init__`, its `locals()`, under their own names.

        They are those of the class that calls, not of a subclass with other ones.
        """
        for name, value in arguments.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)
