"""Shared representations: a part of all, and a part of each client's own."""

from dataclasses import replace
from typing import Any

import jax

from fedprior.core import check, random
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State
from fedprior.core.protocols import Model, Population
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import Alternating, alternating
from fedprior.learning.joint import joint_loss
from fedprior.learning.options import passes_on
from fedprior.learning.steps import Steps, go_on
from fedprior.populations.subspace import Subspace

# A client's part begins alike in every round: there is no `start` to choose.
_CLIENT = ("theta_rate", "gamma_rate", "weight", "newcomer_steps", "catch_up")


@passes_on(alternating, "steps", *_CLIENT)
def shared_subspace(
    model: Model,
    *,
    rank: int = 2,
    scale: float | None = None,
    learn_mean: bool = True,
    head_steps: int = 0,
    **options: Any,
) -> Algorithm:
    """theta_i = mean + B w_i: clients learn mean and basis together, and their coordinates alone.

    `scale` is the standard deviation of a normal prior on the coordinates; None is a flat one.
    Without `learn_mean` it is the paper's theta_i = B w_i, for linear models, which start at 0
    (`Subspace`). `head_steps` steps of the coordinates alone come first in a round, on top of those
    by which methods are compared.
    """
    name = "shared-subspace"
    check.flag(name, learn_mean=learn_mean)
    population = Subspace(rank=rank, scale=scale, learn_mean=learn_mean)
    check_start(model, population)
    return head_first(model, population, name=name, head_steps=head_steps, **options)


@passes_on(alternating, *_CLIENT[1:])
def head_first(
    model: Model,
    population: Population,
    *,
    name: str = "head-first",
    steps: Steps = Steps(),
    head_steps: int = 0,
    resting: Population | None = None,
    theta_rate: float = 0.1,
    **options: Any,
) -> Algorithm:
    """`alternating`, but a client begins a round with `head_steps` steps of its w alone.

    They are taken at the gamma that it received; the clock of the rates does not count them, so
    that the first of them and the round's first step have one rate. After them gamma and w move in
    turn, or with `resting` as that population says: one without a w of its own leaves w at rest.
    """
    check.count(name, least=0, head_steps=head_steps)
    if head_steps and options.get("catch_up") is not None:
        raise ValueError(
            f"{name}: catch_up cannot be combined with head_steps. A client that keeps training "
            "between rounds is ahead already."
        )
    if head_steps:
        steps.check_supported(name, rule=True)
    common: dict[str, Any] = {"name": name, "steps": steps, **options}
    plain = alternating(model, population, theta_rate=theta_rate, **common)
    if head_steps == 0 or not population.personal:
        return plain
    then = plain if resting is None else alternating(model, resting, **common)
    descent = steps.descent(theta_rate)

    def local(state: State, memory: Memory, data: ClientData, key: Key) -> tuple[Message, Memory]:
        def objective(w: PyTree, x: Array, y: Array, mask: Array) -> Array:
            return joint_loss(model, population, state["gamma"], w, x, y, mask, data.size)

        ahead = go_on(
            steps, objective, memory, data, descent, number=head_steps, round=state["round"]
        )
        return then.local(state, ahead, data, key)

    return replace(plain, local=local)


class AtOnce(Alternating):
    """The functions of `alternating` where w and the shared part move by one gradient of both."""

    def step(self, carry: Any, batch: Any, size: Array, left: Array) -> Any:
        w, rule, gamma, rules = carry
        x, y, mask, time = batch
        (block,) = self.population.blocks

        def objective(shared: PyTree, w: PyTree) -> Array:
            return self._objective({**gamma, block: shared}, w, x, y, mask, size)

        by_shared, by_w = jax.grad(objective, argnums=(0, 1))(gamma[block], w)
        w, rule = self.own.step(by_w, rule, w, time)
        moved, of_block = self.shared[block].step(by_shared, rules[block], gamma[block], time)
        return w, rule, {**gamma, block: moved}, {block: of_block}


def check_start(model: Model, population: Population) -> None:
    """What does not fit the model's parameters is refused now, not in the first round."""
    jax.eval_shape(lambda: population.start(model.init(random.root(0))))
