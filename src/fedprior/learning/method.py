"""A method by its name: how it is built, which options it takes, what it does under noise."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.options import settable
from fedprior.learning.steps import Steps
from fedprior.privacy.planning import noise_to_signal

# Fields of `Steps` that a method's options may change. The number of steps is the same for all
# methods, because budgets are compared by it.
_STEP_OPTIONS = ("decay", "steps_per_epoch", "weight_decay", "clip")


class MethodWarning(UserWarning):
    """Something about a method that its users should know; `Method.remark` says it, too."""


class ChannelNoise(NamedTuple):
    """Public facts of a private channel: its noise, and how many clients share it in a round."""

    noise_multiplier: float
    clip: float
    rate: float  # expected share of the clients in a round
    num_clients: int
    rounds: int

    def to_signal(self, num_parameters: int) -> float:
        """Noise to signal of the whole run for messages of `num_parameters` coordinates."""
        return noise_to_signal(
            noise=self.noise_multiplier,
            num_parameters=num_parameters,
            rate=self.rate,
            num_clients=self.num_clients,
            rounds=self.rounds,
        )


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: how to build it, what it assumes, what leaves a client in a round.

    The keyword arguments of `factory` are the method's options, with their defaults; its checks are
    what the method refuses. `adapt` gives the options that noise calls for: a function of the
    model, the `ChannelNoise` and those of its keyword arguments that a user has chosen.
    `alone` methods need no server: every client takes as many steps as the others expect to take.
    `personal` methods give each client a model of its own, so that in a private run a client can
    fall back to its own data (`cautious`); the others have nothing but the shared model.
    `remark` is what the command line says before a run, where Python warns.
    """

    name: str
    factory: Callable[..., Algorithm]
    population: str
    sends: str
    reference: str
    alone: bool = False
    personal: bool = True
    remark: str = ""
    adapt: Callable[..., Mapping[str, Any]] | None = None

    def options(self) -> list[str]:
        """Names of the options that a configuration may set for this method."""
        return [*settable(self.factory), *_STEP_OPTIONS]

    def default(self, option: str) -> Any:
        """The default of an option."""
        owner = Steps if option in _STEP_OPTIONS else self.factory
        return inspect.signature(owner).parameters[option].default

    def build(
        self, model: Model, options: Mapping[str, Any], *, steps: Steps = Steps(), **shared: Any
    ) -> Algorithm:
        """The algorithm with the user's `options`.

        They override `steps` and the `shared` options, of which a method takes those it has.
        """
        known = self.options()
        for option, value in options.items():
            check.choice(self.name, "option", option, known)
            small = not isinstance(value, int) or abs(value) < 2**31  # the device's whole numbers
            check.require(small, self.name, option, "below 2**31", value)
        own = {name: value for name, value in shared.items() if name in known} | dict(options)
        shape = {name: own.pop(name) for name in _STEP_OPTIONS if name in own}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MethodWarning)  # `remark` says it
            return self.factory(model, steps=replace(steps, **shape), **own)

    def under_noise(
        self, model: Model, options: Mapping[str, Any], noise: ChannelNoise
    ) -> dict[str, Any]:
        """The user's `options` with the changes that the noise of a private channel calls for."""
        if self.adapt is None:
            return dict(options)
        takes = inspect.signature(self.adapt).parameters
        chosen = {name: value for name, value in options.items() if name in takes}
        changed, known = self.adapt(model, noise, **chosen), self.options()
        return {**options, **{name: value for name, value in changed.items() if name in known}}
