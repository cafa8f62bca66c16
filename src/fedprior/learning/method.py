"""A method by its name: how it is built, which options it takes, what it does under noise."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.optimizer import calmed, optimized
from fedprior.learning.options import settable
from fedprior.learning.steps import Steps
from fedprior.privacy.planning import noise_to_signal

# Fields of `Steps` that a method's options may change. The number of steps is the same for all
# methods, because budgets are compared by it.
_STEP_OPTIONS = ("decay", "steps_per_epoch", "weight_decay", "clip")
# Options of `optimized`: of a server that adds up increments, and of clients with classes.
_SERVER_OPTIONS = ("momentum", "horizon")
_UNUSED = {"class_frequencies": False, "smoothing": 1.0}  # what a quantity may have: no effect


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
    `several` networks can be trained side by side, unless the server needs each client's message.
    `called` is its name where that is not the factory's.
    `still` says why there are no increments of a shared model to add momentum to, if that is so.
    """

    factory: Callable[..., Algorithm]
    population: str
    sends: str
    reference: str
    alone: bool = False
    personal: bool = True
    remark: str = ""
    still: str = ""
    several: bool = True
    called: str = ""
    adapt: Callable[..., Mapping[str, Any]] | None = None

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.called or self.factory.__name__.replace("_", "-")

    def options(self) -> list[str]:
        """Names of the options that a configuration may set for this method."""
        own = settable(self.factory)
        added = (*(() if self.still else _SERVER_OPTIONS), *_UNUSED)
        added += ("networks",) if self.several else ()
        return [*own, *_STEP_OPTIONS, *(name for name in added if name not in own)]

    def default(self, option: str) -> Any:
        """The default of an option."""
        for owner in (self.factory, Steps, optimized):
            taken = inspect.signature(owner).parameters
            if option in taken:
                return taken[option].default
        raise KeyError(option)

    def check_option(self, owner: str, word: str, option: str) -> None:
        """Raise where the method has no such option; `word` is what `owner` calls options."""
        if self.still and option in _SERVER_OPTIONS:
            raise ValueError(f"{owner}: {option} is not supported, because {self.still}.")
        check.choice(owner, word, option, self.options())

    def build(
        self, model: Model, options: Mapping[str, Any], *, steps: Steps = Steps(), **shared: Any
    ) -> Algorithm:
        """The algorithm with the user's `options`.

        They override `steps` and the `shared` options, of which a method takes those it has.
        """
        quantity = getattr(model, "regression", False)
        for option, value in options.items():
            self.check_option(self.name, "option", option)
            if quantity and option in _UNUSED:
                unused = check.is_traced(value) or value == _UNUSED[option]
                rule = "left out: the target is a quantity, which has no class frequencies"
                check.require(bool(unused), self.name, option, rule, value)
            small = not isinstance(value, int) or abs(value) < 2**31  # the device's whole numbers
            check.require(small, self.name, option, "below 2**31", value)
        known = self.options()
        own = {name: value for name, value in shared.items() if name in known} | dict(options)
        shape = {name: own.pop(name) for name in _STEP_OPTIONS if name in own}
        taken = inspect.signature(self.factory).parameters
        added = {name: own.pop(name) for name in list(own) if name not in taken}
        factory = partial(self.factory, steps=replace(steps, **shape), **own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MethodWarning)  # `remark` says it
            return optimized(factory, model, **added)

    def under_noise(
        self, model: Model, options: Mapping[str, Any], noise: ChannelNoise
    ) -> dict[str, Any]:
        """The user's `options` with the changes that the noise of a private channel calls for."""
        changed, known = dict(options), self.options()
        if self.adapt is not None:
            takes = inspect.signature(self.adapt).parameters
            chosen = {name: value for name, value in options.items() if name in takes}
            adapted = self.adapt(model, noise, **chosen).items()
            changed |= {name: value for name, value in adapted if name in known}
        if "momentum" in known:
            momentum = options.get("momentum", self.default("momentum"))
            if check.is_traced(momentum) or momentum > 0:
                size = tree.size(jax.eval_shape(model.init, random.root(0)))
                check.count(self.name, networks=options.get("networks", 1))
                size *= options.get("networks", 1)
                changed["momentum"] = calmed(momentum, noise.to_signal(size))
        return changed
