"""A model with a tempered likelihood."""

from collections.abc import Callable
from dataclasses import dataclass

from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.core.protocols import Model, Predict


@dataclass(frozen=True)
class Tempered:
    """p(y | theta)**power: the loss of `model` times `power`, with the same outputs and scores."""

    model: Model
    power: float

    @property
    def init(self) -> Callable[[Key], PyTree]:
        return self.model.init

    @property
    def apply(self) -> Predict:
        return self.model.apply

    def loss(self, outputs: Array, y: Array) -> Array:
        return self.power * self.model.loss(outputs, y)

    def score(self, outputs: Array, y: Array) -> Array:
        return self.model.score(outputs, y)
