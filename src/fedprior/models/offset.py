"""A model with something added to its outputs."""

from collections.abc import Callable
from dataclasses import dataclass

from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.core.protocols import Model, Predict


@dataclass(frozen=True, eq=False)
class Offset:
    """p(y | apply(theta, x) + offset): with log class frequencies, logits of one client's own."""

    model: Model
    offset: Array

    @property
    def regression(self) -> bool:
        return bool(getattr(self.model, "regression", False))

    @property
    def shape(self) -> tuple[int, ...] | None:
        return getattr(self.model, "shape", None)

    @property
    def init(self) -> Callable[[Key], PyTree]:
        return self.model.init

    @property
    def apply(self) -> Predict:
        return lambda parameters, x: self.model.apply(parameters, x) + self.offset

    def loss(self, outputs: Array, y: Array) -> Array:
        return self.model.loss(outputs, y)

    def score(self, outputs: Array, y: Array) -> Array:
        return self.model.score(outputs, y)
