"""What any method can have: momentum, an average, class frequencies, several networks.

None of it is about personalization, and all of it moves scores. As options of every method, it
lets methods be compared with the same optimizer (`reproduce --equal`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import (
    Algorithm,
    Array,
    Key,
    Memory,
    Message,
    Moved,
    State,
    Theta,
)
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import toward
from fedprior.learning.ensemble import ensemble
from fedprior.learning.frequencies import in_all_outputs

# Noise to signal at which momentum is halved: it amplifies noise as well as increments.
_CALM = 0.2
_ADDED = ("velocity", "average")  # to the state of the method itself


def optimized(
    factory: Callable[..., Algorithm],
    model: Model,
    *,
    momentum: float = 0.0,
    horizon: float = 1.0,
    class_frequencies: bool = False,
    smoothing: float = 0.1,
    networks: int = 1,
    **options: Any,
) -> Algorithm:
    """`factory(model, **options)` with momentum, an average, class frequencies, several networks.

    The server adds `momentum` to the mean increments of the networks (and bases) that clients train
    by gradient steps, and keeps an average of them over about `horizon` rounds, at least 1: that is
    the newest alone. Rounds go on from the newest; personal models are made from the average. A
    round in which nobody took part changes neither. Refused for a method whose server does not add
    up increments.

    With `class_frequencies`, client i predicts P_i(y | x) ~ exp(f(theta_i, x)_y) pi_i(y) in every
    part of the method. pi_i are the class frequencies of its own training samples, `smoothing`
    added to every count; they stay with the client. A quantity has none.

    With several `networks`, clients train all of them, from different initial draws, and average
    their predictions: p(y | x) = mean of p(y | x, theta_i^k), or the mean output for a quantity.
    Messages are that many times as large, and clients take that many times as many steps.

    With the defaults it is the method itself.

    >>> import fedprior
    >>> method = fedprior.learning.fedrep
    >>> fedprior.learning.optimized(method, fedprior.mlp((4,), 3), momentum=0.9, horizon=30.0).name
    'fedrep'
    """
    algorithm = factory(model, **options)
    owner = algorithm.name
    check.share(owner, momentum=momentum)
    check.positive(owner, horizon=horizon, smoothing=smoothing)
    enough = check.is_traced(horizon) or horizon >= 1
    check.require(enough, owner, "horizon", "a number of at least 1", horizon)
    check.flag(owner, class_frequencies=class_frequencies)
    if class_frequencies and not getattr(model, "regression", False):
        algorithm = in_all_outputs(
            algorithm, lambda own: factory(own, **options), model, smoothing=smoothing
        )
    given = {"momentum": momentum, "horizon": horizon}
    served = [name for name, kept in _kept(**given).items() if kept]
    if served:
        if algorithm.moved is None:
            rule = "left out: the server adds up no increments of a shared model"
            raise ValueError(check.message(owner, served[0], rule, given[served[0]]))
        server = _Server(method=algorithm, moved=algorithm.moved, **given)
        names = ("init", "enroll", "local", "update", "personalize")
        algorithm = replace(algorithm, **{name: getattr(server, name) for name in names})
    return ensemble(algorithm, networks)


def calmed(momentum: float, noise_to_signal: float) -> float:
    """Momentum for noisy increments: it falls with the noise-to-signal ratio of the run."""
    return momentum / (1 + (noise_to_signal / _CALM) ** 2)


def _kept(momentum: float, horizon: float) -> dict[str, bool]:
    """Whether there is momentum, and an average: a traced number may be any."""
    return {
        "momentum": check.is_traced(momentum) or momentum > 0,
        "horizon": check.is_traced(horizon) or horizon > 1,
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Server:
    """The functions of a method with momentum and an average of what its clients move.

    State: the method's own and, of the blocks that clients move, the velocity where there is
    momentum and the average where it is one. Clients read neither in a round.
    """

    method: Algorithm
    moved: Moved
    momentum: float
    horizon: float

    def init(self, key: Key) -> State:
        state = self.method.init(key)
        start, kept = self.moved.of(state["gamma"]), _kept(self.momentum, self.horizon)
        added: State = {}
        if kept["momentum"]:
            added["velocity"] = tree.combine(jnp.zeros_like, start)
        if kept["horizon"]:
            added["average"] = start
        return {**state, **added}

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return self.method.enroll(_own(state), client, key)

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        return self.method.local(_own(state), memory, data, key)

    def update(self, state: State, total: Message) -> State:
        after = self.method.update(_own(state), total)
        new = {"gamma": after["gamma"]}
        if "velocity" in state:
            before, moved = (self.moved.of(each["gamma"]) for each in (state, after))
            increment = tree.combine(jnp.subtract, moved, before)
            new["velocity"] = tree.combine(
                lambda old, step: self.momentum * old + step, state["velocity"], increment
            )
            moved = tree.combine(jnp.add, before, new["velocity"])
            new["gamma"] = self.moved.to(after["gamma"], moved)
        if "average" in state:
            rate = 1 / jnp.minimum(state["round"] + 1, self.horizon)
            new["average"] = toward(state["average"], self.moved.of(new["gamma"]), rate)
        kept = {name: state[name] for name in new}
        return {**after, **tree.where(total.weight > 0, new, kept)}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        own = _own(state)
        if "average" in state:
            own["gamma"] = self.moved.to(own["gamma"], state["average"])
        return self.method.personalize(own, memory, data, key)


def _own(state: State) -> State:
    """The state of the method itself."""
    return {name: part for name, part in state.items() if name not in _ADDED}
