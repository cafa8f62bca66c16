"""Shared representations: a basis or a body of all, coordinates or a head of each client's own."""

from dataclasses import replace
from typing import Any

import jax

from fedprior.core import check, random
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State
from fedprior.core.protocols import Model, Population
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import alternating
from fedprior.learning.batches import Batches
from fedprior.learning.descent import Descent, go_on
from fedprior.learning.joint import joint_loss
from fedprior.populations.shared_body import Head, SharedBody
from fedprior.populations.subspace import Subspace


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
    (`Subspace`). `head_steps` as in `shared_body`. `options` go to `alternating`.
    """
    name = "shared-subspace"
    check.flag(name, learn_mean=learn_mean)
    population = Subspace(rank=rank, scale=scale, learn_mean=learn_mean)
    check_start(model, population)
    return head_first(model, population, name=name, head_steps=head_steps, **options)


def shared_body(
    model: Model, *, head: Head | None = None, head_steps: int = 0, **options: Any
) -> Algorithm:
    """A network with a body of all and a head of each client's own; only the body is sent.

    Head and body move in turn in every step (as FedPer, which moves them at once); `head_steps`
    more steps of the head come first (`fedrep`: the head then rests), on top of those by which
    methods are compared. `head` names the leaves of the head, the last layer by default
    (`SharedBody`). `options` go to `alternating`.
    """
    population = SharedBody(head=head)
    check_start(model, population)
    return head_first(model, population, name="shared-body", head_steps=head_steps, **options)


def head_first(
    model: Model,
    population: Population,
    *,
    name: str = "head-first",
    head_steps: int = 0,
    resting: Population | None = None,
    local_steps: int = 10,
    batches: Batches | None = None,
    theta_rate: float = 0.1,
    decay: float = 1.0,
    steps_per_epoch: int = 60,
    weight_decay: float = 0.0,
    clip: float | None = None,
    **options: Any,
) -> Algorithm:
    """`alternating`, but a client begins a round with `head_steps` steps of its w alone.

    They are taken at the gamma that it received; the clock of the rates does not count them, so
    that the first of them and the round's first step have one rate. What moves after them is gamma
    and w in turn, or what `resting` says: a population like this one without a w of its own leaves
    w at rest.
    """
    check.count(name, least=0, head_steps=head_steps)
    if head_steps:
        alone = options.get("catch_up")
        remedy = "A client that trains on between rounds is ahead already."
        check.require(alone is None, name, "catch_up", "None with head_steps", alone, remedy)
        epochs, remedy = options.get("local_epochs"), "The clock of the rates counts local_steps."
        check.require(epochs is None, name, "local_epochs", "None with head_steps", epochs, remedy)
    batches = Batches(size=20) if batches is None else batches
    shaped: dict[str, Any] = {
        "decay": decay,
        "steps_per_epoch": steps_per_epoch,
        "weight_decay": weight_decay,
        "clip": clip,
    }
    common: dict[str, Any] = {"local_steps": local_steps, "batches": batches, **shaped, **options}
    plain = alternating(model, population, name=name, theta_rate=theta_rate, **common)
    if head_steps == 0 or not population.personal:
        return plain
    then = plain if resting is None else alternating(model, resting, name=name, **common)
    descent = Descent(rate=theta_rate, rule=options.get("rule"), **shaped)

    def local(state: State, memory: Memory, data: ClientData, key: Key) -> tuple[Message, Memory]:
        def objective(w: PyTree, x: Array, y: Array, mask: Array) -> Array:
            return joint_loss(model, population, state["gamma"], w, x, y, mask, data.size)

        ahead = go_on(
            objective,
            memory,
            descent=descent,
            data=data,
            batches=batches,
            num_steps=head_steps,
            time=state["round"] * local_steps,
        )
        return then.local(state, ahead, data, key)

    return replace(plain, local=local)


def check_start(model: Model, population: Population) -> None:
    """What does not fit the model's parameters is refused now, not in the first round."""
    jax.eval_shape(lambda: population.start(model.init(random.root(0))))
