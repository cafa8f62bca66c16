"""IFCA: a few shared models, each client training its best one (Ghosh et al. 2020, Algorithm 1)."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import AveragedModel, Weight, begun, mean_share, weight_of
from fedprior.learning.curvature import total_loss
from fedprior.learning.descent import Descent
from fedprior.learning.posterior import Walk
from fedprior.learning.predictive import several
from fedprior.learning.steps import Steps
from fedprior.populations.mixture import per_component

Averaging = Literal["models", "gradients"]


def ifca(
    model: Model,
    *,
    num_components: int = 2,
    averaging: Averaging = "models",
    jitter: float = 0.01,
    steps: Steps = Steps(),
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
) -> Algorithm:
    """A client picks the model of least loss on its samples, trains that, and predicts with it.

    `averaging="models"`: `local_steps` steps on the chosen model; a model becomes the mean of those
    that trained it, and stays where nobody did. `"gradients"`: one gradient per round, whatever
    `local_steps` is, and the mean is over the whole cohort, so that a model of few clients moves
    slowly; both as printed. Models begin at draws of their own, `jitter` added to every entry.

    A client without samples takes the model that most of the last cohort chose. For all others the
    choice is by loss alone; `clustered`, the member of the family, also counts how many clients
    are of a kind. A message has a place for every model and zeros in all but one: the server adds
    them without learning who chose what, and pays for it in bytes.
    """
    name = "ifca"
    steps.check_supported(name)
    check.count(name, num_components=num_components)
    check.choice(name, "averaging", averaging, get_args(Averaging))
    check.nonnegative(name, jitter=jitter, gamma_rate=gamma_rate)
    return _Clusters(
        model=model,
        num_components=num_components,
        averaging=averaging,
        jitter=jitter,
        steps=replace(steps, local_steps=1) if averaging == "gradients" else steps,
        descent=steps.descent(gamma_rate),
        weight=weight,
    ).algorithm(name)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Clusters(AveragedModel):
    """The functions of `ifca`. Memory: the key of a client's batches; they follow the rounds.

    State: the models, the number of rounds done, the shares of the last cohort by model.
    """

    num_components: int
    averaging: Averaging
    jitter: float
    descent: Descent

    def init(self, key: Key) -> State:
        centers = several(self.model, self.num_components, self.jitter, key)
        return {**begun({"centers": centers}), "members": jnp.zeros(self.num_components)}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        chosen, center = self._choose(state, data)
        most = self.steps.local_steps
        time, words = state["round"] * most, memory["words"]
        number, batches = jnp.asarray(most), self.steps.batches
        walk = Walk(data, batches, self.descent, words, time, number, time)

        def body(number: Array, theta: PyTree) -> PyTree:
            return walk.step(self.model, theta, number)[0]

        theta = jax.lax.fori_loop(0, most, body, center)
        weight = weight_of(self.weight, data)
        members = weight * jax.nn.one_hot(chosen, self.num_components)
        moves = tree.combine(lambda new, old: jnp.multiply.outer(members, new - old), theta, center)
        return Message({"members": members, "moves": moves}, weight), memory

    def update(self, state: State, total: Message) -> State:
        """Where nobody chose a model its sum is zero, whatever that is divided by."""
        chosen = total.value["members"]
        share = jnp.full(self.num_components, mean_share(total))
        if self.averaging == "models":
            share = 1 / jnp.maximum(chosen, 1)
        centers = tree.combine(
            lambda old, sum_: old + per_component(share, sum_) * sum_,
            state["gamma"]["centers"],
            total.value["moves"],
        )
        members = jnp.where(total.weight > 0, chosen * mean_share(total), state["members"])
        return {"gamma": {"centers": centers}, "round": state["round"] + 1, "members": members}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        return self._choose(state, data)[1]

    def _choose(self, state: State, data: ClientData) -> tuple[Array, PyTree]:
        """The number of the model of least loss on the client's samples, and that model."""
        centers = state["gamma"]["centers"]
        sums = jax.vmap(lambda center: total_loss(self.model, center, data))(centers)
        chosen = jnp.where(data.size > 0, jnp.argmin(sums), jnp.argmax(state["members"]))
        return chosen, tree.combine(lambda leaf: leaf[chosen], centers)
