"""FedMD: models that exchange what they predict for public inputs (Li and Wang 2019)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import check, random
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData, network_input, stored_input
from fedprior.learning.averaging import AveragedModel, Weight, begun
from fedprior.learning.descent import Descent, descend, masked_mean, mean_loss, reading
from fedprior.learning.steps import Steps, go_on, newcomer
from fedprior.models.offset import Offset

Public = Literal["noise", "digits"]
_LEAST_SIDE = 16  # of images that the 8 x 8 digits are enlarged to


def fedmd(
    model: Model,
    *,
    steps: Steps = Steps(),
    public: Array | Public = "noise",
    num_public: int = 500,
    digest_steps: int | None = None,
    digest_rate: float = 0.3,
    theta_rate: float = 0.1,
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
) -> Algorithm:
    """Every client has a network of its own; all of them agree on outputs for public inputs.

    A round of a client: `digest_steps` steps (`local_steps` where it is not given) that bring the
    outputs of its network for the public inputs to the consensus, on the mean absolute difference,
    at `digest_rate`; then `local_steps` steps on its own samples. It sends its outputs for the
    public inputs, and the consensus becomes their mean over the cohort. No weights are sent.

    `public` are inputs, without labels, that are no client's: an array, one input a row; `"noise"`,
    `num_public` draws from N(0, 1), which need a model that states its `shape`; or `"digits"`, the
    first `num_public` of scikit-learn's 8 x 8 digits, enlarged to the model's images. All
    clients receive them. What the method is worth depends on them: it was made for public samples
    much like the clients' own, and noise says little about those.

    The paper pretrains on labels of public samples, and its clients' networks differ; here there
    are no such labels, and all networks begin alike. A newcomer takes `newcomer_steps` steps
    toward the consensus and as many on its own samples.
    """
    name = "fedmd"
    steps.check_supported(name)
    digest_steps = steps.local_steps if digest_steps is None else digest_steps
    check.count(name, least=0, digest_steps=digest_steps)
    check.count(name, num_public=num_public)
    check.nonnegative(name, digest_rate=digest_rate, theta_rate=theta_rate)
    return _Agreeing(
        model=model,
        steps=steps,
        inputs=_inputs(name, public, num_public, getattr(model, "shape", None)),
        own=steps.descent(theta_rate),
        digest=steps.descent(digest_rate),
        digest_steps=digest_steps,
        weight=weight,
        newcomer_steps=newcomer(name, newcomer_steps, steps),
    ).algorithm(name, memoryless=False, moved=None)


def _inputs(owner: str, public: Any, number: int, shape: Any) -> Callable[[Key], Array]:
    """What makes the public inputs from the key of the run."""
    if not isinstance(public, str):
        given = network_input(stored_input(np.asarray(public)))
        fine = given.ndim > 1 and len(given) > 0 and bool(np.isfinite(given).all())
        check.require(fine, owner, "public", "finite inputs, one a row", given.shape)
        return lambda key: jnp.asarray(given)
    check.choice(owner, "public", public, ("noise", "digits"))
    remedy = "Give the model its shape, or the inputs themselves."
    check.require(shape is not None, owner, "model", "one with a shape", "none", remedy)
    if public == "noise":
        return lambda key: jax.random.normal(key, (number, *shape))
    image = len(shape) == 3 and min(shape[:2]) >= _LEAST_SIDE
    rule = f"noise, or for images of at least {_LEAST_SIDE} x {_LEAST_SIDE}, digits"
    check.require(image, owner, "public", rule, f"digits for {tuple(shape)}")
    return lambda key: _digits(number, shape)


def _digits(number: int, shape: tuple[int, ...]) -> Array:
    from sklearn.datasets import load_digits

    images = load_digits().images[:number].astype(np.float32) / 16
    large = jax.image.resize(images, (len(images), *shape[:2]), "linear")
    return jnp.broadcast_to(large[..., None], (len(images), *shape))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Agreeing(AveragedModel):
    """The functions of `fedmd`. gamma: the consensus. Memory: the client's network as `w`, its
    rule's state, the key of its batches, its steps.

    State, besides: the public inputs, whether anybody has answered, the key of the first network.
    """

    inputs: Callable[[Key], Array]
    own: Descent
    digest: Descent
    digest_steps: int
    newcomer_steps: int

    def init(self, key: Key) -> State:
        public, words = self.inputs(random.fold(key, "init")), random.words(key)
        outputs = jax.eval_shape(self.model.apply, self._first(words), public)
        consensus = jnp.zeros(outputs.shape, outputs.dtype)
        known = {"public": public, "heard": jnp.zeros(()), "words": words}
        return {**begun({"consensus": consensus}), **known}

    def _first(self, words: Array) -> PyTree:
        """The network with which all clients begin, remade from its key instead of being sent."""
        return self.model.init(jax.random.wrap_key_data(words))

    @property
    def _shared(self) -> Model:
        """The network without class frequencies: they stay with the client."""
        return self.model.model if isinstance(self.model, Offset) else self.model

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        w = self._first(state["words"])
        return {"w": w, "rule": self.own.init(w), **reading(key)}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        memory = self._digest(state, memory, self.digest_steps)
        memory = self._revisit(state, memory, data, self.steps.local_steps)
        outputs = self._shared.apply(memory["w"], state["public"])
        return self.message({"consensus": outputs}, state["gamma"], data), memory

    def update(self, state: State, total: Message) -> State:
        after = super().update(state, total)
        return {**after, "heard": jnp.where(total.weight > 0, 1.0, state["heard"])}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        fresh = memory["step"] == 0
        memory = self._digest(state, memory, jnp.where(fresh, self.newcomer_steps, 0))
        number = jnp.where(fresh & (data.size > 0), self.newcomer_steps, 0)
        return self._revisit(state, memory, data, number)["w"]

    def _digest(self, state: State, memory: Memory, number: Any) -> Memory:
        """Steps toward the consensus, if there is one, on inputs as everybody has them."""
        public, consensus = state["public"], state["gamma"]["consensus"]
        length = len(public)
        zero, rows = jnp.zeros((), jnp.int32), jnp.arange(length)
        inputs = ClientData(public, consensus, zero, jnp.asarray(length, jnp.int32), rows)

        def objective(w: PyTree, x: Array, wanted: Array, mask: Array) -> Array:
            gap = jnp.abs(self._shared.apply(w, x) - wanted)
            return masked_mean(gap.reshape(len(gap), -1).mean(axis=1), mask)

        w, rule = descend(
            objective,
            memory["w"],
            memory["rule"],
            descent=self.digest,
            data=inputs,
            batches=replace(self.steps.batches, augment=None),
            words=memory["words"],
            first_step=memory["step"],
            num_steps=jnp.where(state["heard"] > 0, number, 0),
            time=state["round"] * self.steps.local_steps,
        )
        return {**memory, "w": w, "rule": rule}

    def _revisit(self, state: State, memory: Memory, data: ClientData, number: Any) -> Memory:
        """Steps on the client's own samples."""
        return go_on(
            self.steps,
            mean_loss(self.model),
            memory,
            data,
            self.own,
            number=number,
            round=state["round"],
        )
