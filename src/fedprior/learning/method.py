"""A method by its name: how it is built, which options it takes, what it says of itself."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.em import em

# Options that a configuration cannot give as a number or a word, or gives elsewhere.
_NOT_OPTIONS = {"model", "population", "name", "options", "batches", "block_rates", "rule"}
_NOT_OPTIONS |= {"block_scales", "unused", "cluster", "resting"}
_NOT_OPTIONS |= {"local_steps"}  # one for all methods: budgets are compared by it


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: how to build it, what it assumes, what leaves a client in a round.

    `alone` methods need no server: every client takes as many steps as the others expect to.
    `ignores` names options of all methods that have no meaning here: a caller may give them to
    every method alike, a user may not.
    """

    name: str
    factory: Callable[..., Algorithm]
    population: str
    sends: str
    reference: str
    alone: bool = False
    passes_to: Callable[..., Algorithm] = alternating  # the factory that gets `factory`'s options
    ignores: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """Names of the options that `build` takes for this method."""
        factories = [self.factory, self.passes_to]
        if self.passes_to not in (self.factory, em):
            factories.append(alternating)
        names = [name for each in factories for name in inspect.signature(each).parameters]
        hidden = _NOT_OPTIONS.union(self.ignores)
        return [name for name in dict.fromkeys(names) if name not in hidden]

    def build(self, model: Model, options: Mapping[str, Any], **given: Any) -> Algorithm:
        """The algorithm with the user's `options`, over what the caller has `given`."""
        for option in options:
            check.choice(self.name, "option", option, self.options())
        heeded = {name: value for name, value in given.items() if name not in self.ignores}
        return self.factory(model, **{**heeded, **options})
