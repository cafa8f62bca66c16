"""Related clients: each is drawn to where the others' models say that its own should be."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.descent import Descent, mean_loss, reading
from fedprior.learning.steps import Steps, go_on, newcomer
from fedprior.populations.multitask import Coupling, Multitask


def multitask(
    model: Model,
    population: Multitask,
    *,
    coupling: Coupling = "bound",
    learn_mean: bool = False,
    steps: Steps = Steps(),
    theta_rate: float = 0.1,
    newcomer_steps: int | None = None,
) -> Algorithm:
    """Steps on mean loss + ||theta_i - center_i||^2 / (2 variance_i n_i), center_i from the others.

    The server holds every client's theta and tells client i where the others draw it: with
    `coupling="conditional"` E and Var of theta_i given them, with `"bound"` a weaker pull that lets
    all clients move at once (`Multitask.curvature`); both settle at the mode of the joint
    posterior. A client that never took part counts as being where the model starts; when it is
    personalized it begins at its expectation given the others and takes `newcomer_steps` steps
    (default: `local_steps`).

    The mean is where the model starts, or with `learn_mean` the best one for the thetas so far.

    The server sees each theta by name (`pools="gather"`), so private channels and secure
    aggregation are refused, and a message passes a clear channel only: it holds the client's
    number. The federation must have as many clients as the covariance has rows.
    """
    name = "multitask"
    steps.check_supported(name, rule=True)
    check.flag(name, learn_mean=learn_mean)
    method = _Multitask(
        model=model,
        population=population,
        curvature=population.curvature(coupling),
        learn_mean=learn_mean,
        steps=steps,
        descent=steps.descent(theta_rate),
        newcomer_steps=newcomer(name, newcomer_steps, steps),
    )
    return Algorithm.of(
        method, model, name=name, pools="gather", num_clients=population.num_clients
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Multitask:
    """The functions of `multitask`.

    State: the mean, every client's theta as a row, the precision between clients and how strongly
    each is held (in the state because arrays that a compiled function closes over become constants
    of it), the number of rounds. A deployment would send a client its center and variance alone.
    Memory: the client's number and theta, its rule's state, the key of its batches, its steps.
    """

    model: Model
    population: Multitask
    curvature: np.ndarray
    learn_mean: bool
    steps: Steps
    descent: Descent
    newcomer_steps: int

    def init(self, key: Key) -> State:
        mean = self.model.init(key)
        rows = jnp.tile(tree.flatten(mean), (self.population.num_clients, 1))
        return {
            "gamma": {"mean": mean, "thetas": rows},
            "precision": jnp.asarray(self.population.precision),
            "curvature": jnp.asarray(self.curvature),
            "round": jnp.zeros((), jnp.int32),
        }

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        gamma = state["gamma"]
        w = tree.unflatten(gamma["thetas"][client], gamma["mean"])
        return {
            "client": jnp.asarray(client, jnp.int32),
            "w": w,
            "rule": self.descent.init(w),
            **reading(key),
        }

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        pull = self._pull(state, memory["client"], state["curvature"])
        memory = self._move(state, memory, data, pull, self.steps.local_steps)
        value = {
            "client": memory["client"].astype(jnp.float32),  # exact below 2**24 clients
            "theta": tree.flatten(memory["w"]),
        }
        return Message(value, jnp.ones(())), memory

    def update(self, state: State, total: Message) -> State:
        """Every gathered theta into its client's row; those of weight 0 are absent."""
        gamma = state["gamma"]
        number = self.population.num_clients
        there = total.weight > 0
        client = jnp.where(there, jnp.round(total.value["client"]).astype(jnp.int32), number)
        thetas = gamma["thetas"].at[client].set(total.value["theta"], mode="drop")
        mean = gamma["mean"]
        if self.learn_mean:
            mean = tree.unflatten(self.population.mean(thetas), mean)
        return {**state, "gamma": {"mean": mean, "thetas": thetas}, "round": state["round"] + 1}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        fresh = memory["step"] == 0  # never took part: begins where the others expect it
        pull = self._pull(state, memory["client"], jnp.diagonal(state["precision"]))
        expected = {**memory, "w": tree.unflatten(pull[0], memory["w"])}
        memory = tree.where(fresh, expected, memory)
        steps = jnp.where(fresh & (data.size > 0), self.newcomer_steps, 0)
        return self._move(state, memory, data, pull, steps)["w"]

    def _pull(self, state: State, client: Array, curvature: Array) -> tuple[Array, Array]:
        """Center and variance of the client's penalty, as the server works them out."""
        mean, thetas = tree.flatten(state["gamma"]["mean"]), state["gamma"]["thetas"]
        return self.population.pull(mean, thetas, client, state["precision"], curvature)

    def _move(
        self,
        state: State,
        memory: Memory,
        data: ClientData,
        pull: tuple[Array, Array],
        steps: Any,
    ) -> Memory:
        """`steps` steps of theta on its own loss and the penalty's share of one sample."""
        center, variance = pull

        def objective(w: PyTree, x: Array, y: Array, mask: Array) -> Array:
            loss = mean_loss(self.model)(w, x, y, mask)
            away = tree.flatten(w) - center
            return loss + jnp.sum(away**2) / (2 * variance * data.size)

        return go_on(
            self.steps, objective, memory, data, self.descent, number=steps, round=state["round"]
        )
