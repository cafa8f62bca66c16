"""A method by its name: how it is built, which options it takes, what it says of itself."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.adaped import trust_under_noise
from fedprior.learning.alternating import alternating
from fedprior.learning.baselines.l2gd import CutWarning
from fedprior.learning.clustering import CollapseWarning
from fedprior.learning.em import em
from fedprior.learning.priors import shares_under_noise

# Options that a configuration cannot give as a number or a word, or gives elsewhere.
_NOT_OPTIONS = {"model", "population", "name", "options", "batches", "block_rates", "rule"}
_NOT_OPTIONS |= {"block_scales", "cluster", "resting"}
_NOT_OPTIONS |= {"local_steps", "local_epochs"}  # one for all methods: budgets are compared by it


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: how to build it, what it assumes, what leaves a client in a round.

    `alone` methods need no server: every client takes as many steps as the others expect to.
    `ignores` names options of all methods that have no meaning here: a caller may give them to
    every method alike, a user may not. `remark` is what the command line says before it runs one,
    where Python warns.
    """

    name: str
    factory: Callable[..., Algorithm]
    population: str
    sends: str
    reference: str
    alone: bool = False
    remark: str = ""
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
        for option, value in options.items():
            effective = option not in self.ignores
            check.require(effective, self.name, option, "left out", value, "It has no effect here.")
            check.choice(self.name, "option", option, self.options())
        heeded = {name: value for name, value in given.items() if name not in self.ignores}
        with warnings.catch_warnings():
            for said in (CollapseWarning, CutWarning):  # by `remark`
                warnings.simplefilter("ignore", said)
            return self.factory(model, **{**heeded, **options})

    def under_noise(
        self,
        model: Model,
        options: Mapping[str, Any],
        *,
        noise_multiplier: float,
        clip: float,
        rate: float,
        num_clients: int,
    ) -> dict[str, Any]:
        """The user's `options` with the floors that a private channel's noise calls for."""
        known, given = self.options(), dict(options)
        noise: dict[str, Any] = {"noise_multiplier": noise_multiplier, "rate": rate}
        noise["num_clients"] = num_clients
        if "psi_floor" in known:
            noise |= _chosen(given, "psi_floor", "initial_psi")
            floors = trust_under_noise(model, **noise)
            return given | {name: value for name, value in floors.items() if name in known}
        if "share_floor" in known:
            noise |= _chosen(given, "share_floor", "num_components")
            return given | shares_under_noise(clip=clip, **noise)
        return given


def _chosen(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}
