"""Class frequencies: what a client knows best of its classes, added to the outputs of networks."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from fedprior.core import random
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import increment, mean_share, moved
from fedprior.models.offset import Offset

Build = Callable[[Model], Algorithm]
# Of the increment of the population's frequencies in a message: a quantizer, whose error grows with
# the whole message, leaves the increments of the network their share.
_SHARE = 0.1
# Samples with which a client's own frequencies count half in its rounds. Of 0, 50 and infinity, on
# validation samples (decision 0083).
_FEW = 50.0


def in_all_outputs(method: Algorithm, build: Build, model: Model, *, smoothing: float) -> Algorithm:
    """P_i(y | x) ~ exp(f(theta_i, x)_y) pi_i(y) wherever the method uses outputs of client i.

    pi_i are the class frequencies of its own samples, `smoothing` added to every count.
    """
    functions = _Everywhere(build=_quiet(build), model=model, smoothing=smoothing)
    names = ("local", "personalize", "predict")
    return replace(method, **{name: getattr(functions, name) for name in names})


def from_population(
    method: Algorithm, build: Build, model: Model, *, smoothing: float, num_classes: int
) -> Algorithm:
    """P_i(y | x) ~ exp(f(theta_i, x)_y) pi_i(y) / pi(y), the pi_i drawn around the population's pi.

    pi is the mean of the clients' class frequencies: what a network that is trained on everybody's
    samples learns with the rest. pi_i is the posterior mean under a Dirichlet prior around it,

        pi_i(y) = (count_i(y) + smoothing num_classes pi(y)) / (n_i + smoothing num_classes),

    so that a client without samples, and one with a very large `smoothing`, uses the network as it
    is. In a round clients train with (50 pi_i + n_i pi) / (50 + n_i) in place of pi_i. With many
    samples that is nearly the network alone, which has to tell a client's classes from all others,
    too, and learns more by it; with few, it would learn the samples by heart.

    State: the method's own and pi, which begins at equal frequencies and counts them as one of the
    rounds that it is the mean of. A message has `num_classes` numbers more.
    """
    functions = _FromPopulation(
        build=_quiet(build),
        model=model,
        smoothing=smoothing,
        method=method,
        num_classes=num_classes,
    )
    names = ("init", "local", "update", "personalize", "predict")
    return replace(method, **{name: getattr(functions, name) for name in names})


def number_of_classes(model: Model) -> int | None:
    """Outputs of a classifier; None where the shape of its inputs is not known."""
    shape = getattr(model, "shape", None)
    if shape is None:
        return None
    x = jnp.zeros((1, *shape))
    outputs = jax.eval_shape(lambda: model.apply(model.init(random.root(0)), x))
    return int(outputs.shape[-1])


def log_frequencies(model: Model, data: ClientData, smoothing: float) -> Array:
    """Log of the class frequencies of the client's samples, (classes,)."""
    return _log_odds({}, _counts(model, data), smoothing)


def left_out(state: State, theta: Theta, y: Array, mask: Array) -> Theta:
    """The personal model, whose class frequencies for each sample are those of the other samples.

    `y` are the labels of the client's samples, in the order in which they will be predicted, and
    `mask` is False for padded rows. The smoothing is that of the state.
    """
    own = jax.nn.one_hot(y, theta["log_frequencies"].shape[-1]) * mask[:, None]
    others = jnp.sum(own, axis=0) - own
    return {**theta, "log_frequencies": _log_odds(state, others, state["smoothing"])}


def _log_odds(state: State, counts: Array, smoothing: Array | float) -> Array:
    """Log pi_i / pi by the client's counts of classes; log pi_i where no pi is learned."""
    num_classes, pi = counts.shape[-1], state.get("frequencies")
    around = jnp.full(num_classes, 1 / num_classes) if pi is None else pi
    found = counts + smoothing * num_classes * around
    own = jnp.log(found / jnp.sum(found, axis=-1, keepdims=True))
    return own if pi is None else own - jnp.log(pi)


def _counts(model: Model, data: ClientData) -> Array:
    """Samples of each class, (classes,)."""

    def block(x: Array, y: Array, mask: Array) -> Array:
        outputs = jax.eval_shape(lambda: model.apply(model.init(random.root(0)), x))
        return jnp.sum(jax.nn.one_hot(y, outputs.shape[-1]) * mask[:, None], axis=0)

    return data.sum_in_turn(block)


def _quiet(build: Build) -> Build:
    """Without the warnings that the first call has given."""

    def built(model: Model) -> Algorithm:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build(model)

    return built


@dataclass(frozen=True, kw_only=True, eq=False)
class _Everywhere:
    """A method's client whose outputs have an offset of its own.

    The method is built anew, with a model of the client's own, wherever one of its functions is
    traced; the compiled program is of one piece.
    """

    build: Build
    model: Model
    smoothing: float

    def offset(self, state: State, data: ClientData) -> Array:
        """That of the client; a method that learns the smoothing has it in its state."""
        counts = _counts(self.model, data)
        return _log_odds(state, counts, state.get("smoothing", self.smoothing))

    def _at(self, offset: Array) -> Algorithm:
        return self.build(Offset(self.model, offset))

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        return self._at(self.offset(state, data)).local(state, memory, data, key)

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        offset = self.offset(state, data)
        theta = self._at(offset).personalize(state, memory, data, key)
        return {"theta": theta, "log_frequencies": offset}

    def predict(self, theta: Theta, x: Array) -> Array:
        return self._at(theta["log_frequencies"]).predict(theta["theta"], x)


@dataclass(frozen=True, kw_only=True, eq=False)
class _FromPopulation(_Everywhere):
    """A method's client whose frequencies are drawn around the population's, which are learned."""

    method: Algorithm
    num_classes: int

    def init(self, key: Key) -> State:
        equal = jnp.full(self.num_classes, 1 / self.num_classes)
        return {**self.method.init(key), "frequencies": equal}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        pi, share = state["frequencies"], _FEW / (_FEW + data.size)
        odds = jnp.exp(self.offset(state, data))
        offset = jnp.log(share * odds + (1 - share))
        message, after = self._at(offset).local(_own(state), memory, data, key)
        seen = _counts(self.model, data) / jnp.maximum(data.size, 1)
        weight = jnp.where(data.size > 0, _SHARE * message.weight, 0)
        value = {"method": message.value, "frequencies": increment(seen, pi, weight)}
        return Message(value, message.weight), after

    def update(self, state: State, total: Message) -> State:
        after = self.method.update(_own(state), Message(total.value["method"], total.weight))
        rounds = state["round"] + 2  # with the one that equal frequencies count as
        rate = mean_share(total) / (_SHARE * rounds)
        pi = moved(state["frequencies"], total.value["frequencies"], rate)
        # What equal frequencies leave to every class; a quantizer's error can take a class lower.
        pi = jnp.maximum(pi, 1 / (self.num_classes * rounds))
        return {**after, "frequencies": pi / jnp.sum(pi)}


def _own(state: State) -> State:
    """The state of the method itself."""
    return {name: part for name, part in state.items() if name != "frequencies"}
