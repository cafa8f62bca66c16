"""The gradient steps that a client takes: how many, on which samples, and how each is shaped."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import optax

from fedprior.core import check
from fedprior.core.algorithm import Array, Memory
from fedprior.data.federation import ClientData
from fedprior.learning.batches import Batches
from fedprior.learning.descent import Descent, Objective, descend


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Options of the gradient steps, the same for every method.

    A round has `local_steps` steps or, with `local_epochs`, that many passes over the client's own
    samples; clients with fewer samples finish sooner. `batches` says which samples a step reads.

    Rates are multiplied by `decay` once per epoch of `steps_per_epoch` global steps (rounds *
    local_steps; with `local_epochs`, rounds * the steps that this client takes in one).
    `weight_decay`, `clip` (an l2 bound on the gradient) and `rule` (an optax transformation without
    a rate) shape each step as in `Descent`.
    """

    local_steps: int = 10
    local_epochs: int | None = None
    batches: Batches = field(default_factory=lambda: Batches(size=20))
    decay: float = 1.0
    steps_per_epoch: int = 60
    weight_decay: float = 0.0
    clip: float | None = None
    rule: optax.GradientTransformation | None = None

    def __post_init__(self) -> None:
        check.count("Steps", local_steps=self.local_steps)
        if self.local_epochs is not None:
            check.count("Steps", local_epochs=self.local_epochs)
        self.descent(0.0)  # checks the rest

    def descent(self, rate: float) -> Descent:
        """Steps of this shape at `rate`."""
        return Descent(
            rate=rate,
            decay=self.decay,
            steps_per_epoch=self.steps_per_epoch,
            weight_decay=self.weight_decay,
            clip=self.clip,
            rule=self.rule,
        )

    def times(self, round: Array) -> Array:
        """Global numbers of a round's steps, (local_steps,): the clock of the rates."""
        return round * self.local_steps + jnp.arange(self.local_steps)

    def bare(self, rate: float) -> Descent:
        """Steps that only decay: for scalars, which need neither weight decay nor clip nor rule."""
        return Descent(rate=rate, decay=self.decay, steps_per_epoch=self.steps_per_epoch)

    def constant(self, rate: float) -> Descent:
        """Steps of one rate throughout, without a rule: for personalization after training."""
        return Descent(rate=rate, weight_decay=self.weight_decay, clip=self.clip)

    def check_supported(self, owner: str, *, epochs: bool = False, rule: bool = False) -> None:
        """Raise for `local_epochs` and for a `rule`, unless the method supports them."""
        if self.local_epochs is not None and not epochs:
            raise ValueError(
                f"{owner}: local_epochs is not supported, because the method counts steps. "
                "Use local_steps."
            )
        if self.rule is not None and not rule:
            raise ValueError(f"{owner}: rule is not supported. Use plain gradient steps.")


def newcomer(owner: str, newcomer_steps: int | None, steps: Steps) -> int:
    """Steps of a client that is personalized without having taken part: as many as in a round."""
    number = steps.local_steps if newcomer_steps is None else newcomer_steps
    check.count(owner, least=0, newcomer_steps=number)
    return number


def go_on(
    steps: Steps,
    objective: Objective,
    memory: Memory,
    data: ClientData,
    descent: Descent,
    *,
    number: Any,
    round: Array,
    length: Any = None,
) -> Memory:
    """The memory after `number` more steps of its w, on the batches behind those it has seen.

    They are timed from the beginning of `round`; rounds have a `length` of `local_steps`, or
    another one.
    """
    w, rule = descend(
        objective,
        memory["w"],
        memory["rule"],
        descent=descent,
        data=data,
        batches=steps.batches,
        words=memory["words"],
        first_step=memory["step"],
        num_steps=number,
        time=round * (steps.local_steps if length is None else length),
    )
    return {**memory, "w": w, "rule": rule, "step": memory["step"] + number}
