"""Fed-RoD: a generic and a personal predictor on one body (Chen and Chao 2022)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import AveragedModel, Weight, begun
from fedprior.learning.descent import Descent, masked_mean, reading
from fedprior.learning.frequencies import log_frequencies
from fedprior.learning.predictive import require_classifier
from fedprior.learning.representation import check_start
from fedprior.learning.steps import Steps, go_on, newcomer
from fedprior.models.offset import Offset
from fedprior.populations.shared_body import Head, SharedBody

_ABSENT = 1e-30  # stands for a count of 0: no probability in float32, and a finite logarithm


def fedrod(
    model: Model,
    *,
    steps: Steps = Steps(),
    head: Head | None = None,
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
) -> Algorithm:
    """Logits of client i are f(mean, x) + f((body, w_i), x): a head of its own on top of all's.

    The mean, a whole network, is the generic predictor. Clients train it on the balanced softmax,
    -log softmax(f(mean, x) + log n_i)_y with n_i the counts of the client's own classes, so that
    clients of different classes pull it to one aim; its increments are averaged. A personal head
    w_i learns from the plain loss of the sum of logits, mean and body at rest. Both take one step
    per batch, at the same values. Personal heads begin at zero: at the generic predictor.

    This is the paper's linear variant, without the hypernetwork that would make the heads from
    class counts. With `class_frequencies` the balanced softmax has those, and personal heads add to
    it. The paper's server weighs by `weight="samples"`. `head` names the leaves of the
    head, the last layer by default (`SharedBody`). A newcomer's head takes `newcomer_steps` steps.
    A client of one class has nothing to teach the generic predictor, and learns its own head.
    """
    name = "fedrod"
    steps.check_supported(name)
    require_classifier(name, model)
    check.nonnegative(name, theta_rate=theta_rate, gamma_rate=gamma_rate)
    parts = SharedBody(head=head)
    check_start(model, parts)
    functions = _TwoPredictors(
        model=model,
        parts=parts,
        steps=steps,
        own=steps.descent(theta_rate),
        shared=steps.descent(gamma_rate),
        weight=weight,
        newcomer_steps=newcomer(name, newcomer_steps, steps),
    )

    def predict(theta: Theta, x: Array) -> Array:
        return model.apply(theta["mean"], x) + functions.correction(theta["mean"], theta["w"], x)

    return functions.algorithm(name, predict=predict)


@dataclass(frozen=True, kw_only=True, eq=False)
class _TwoPredictors(AveragedModel):
    """The functions of `fedrod`. Memory: the personal head as `w`, its rule's state, its batches'
    key, its steps. Batches follow the rounds: no message tells of earlier ones.
    """

    parts: SharedBody
    own: Descent
    shared: Descent
    newcomer_steps: int

    def init(self, key: Key) -> State:
        return begun({"mean": self.model.init(key)})

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        head = self.parts.start(state["gamma"]["mean"])["head"]
        w = tree.combine(jnp.zeros_like, head)
        return {"w": w, "rule": self.own.init(w), **reading(key)}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received, counts = state["gamma"]["mean"], self._log_counts(data)
        time = self.steps.times(state["round"])
        batch = self.steps.batches.read(memory["words"], time, data)

        def generic_loss(mean: PyTree, x: Array, y: Array, mask: Array) -> Array:
            return masked_mean(self.model.loss(self.model.apply(mean, x) + counts, y), mask)

        def step(carry: Any, row: Any) -> tuple[Any, None]:
            mean, rule, w, own_rule = carry
            *samples, now = row
            by_mean = jax.grad(generic_loss)(mean, *samples)
            by_w = jax.grad(self._personal_loss)(w, mean, *samples)
            moved = self.shared.step(by_mean, rule, mean, now)
            return (*moved, *self.own.step(by_w, own_rule, w, now)), None

        start = (received, self.shared.init(received), memory["w"], memory["rule"])
        (mean, _, w, rule), _ = jax.lax.scan(step, start, (*batch, time))
        steps = memory["step"] + self.steps.local_steps
        message = self.message({"mean": mean}, {"mean": received}, data)
        return message, {**memory, "w": w, "rule": rule, "step": steps}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        mean, fresh = state["gamma"]["mean"], memory["step"] == 0

        def objective(w: PyTree, x: Array, y: Array, mask: Array) -> Array:
            return self._personal_loss(w, mean, x, y, mask)

        after = go_on(
            self.steps,
            objective,
            memory,
            data,
            self.own,
            number=jnp.where(fresh & (data.size > 0), self.newcomer_steps, 0),
            round=state["round"],
        )
        return {"mean": mean, "w": after["w"]}

    def correction(self, mean: PyTree, w: PyTree, x: Array) -> Array:
        """What a personal head adds to the logits: its own on the mean's body, less those of 0."""
        gamma, zero = self.parts.start(mean), tree.combine(jnp.zeros_like, w)
        own, none = (self.model.apply(self.parts.realize(gamma, each), x) for each in (w, zero))
        return own - none

    def _personal_loss(self, w: PyTree, mean: PyTree, x: Array, y: Array, mask: Array) -> Array:
        outputs = self.model.apply(mean, x) + self.correction(mean, w, x)
        return masked_mean(self.model.loss(outputs, y), mask)

    def _log_counts(self, data: ClientData) -> Array:
        """Log class frequencies of the client's samples, unless its outputs hold them already."""
        if isinstance(self.model, Offset):
            return jnp.zeros(())
        return log_frequencies(self.model, data, smoothing=_ABSENT)
