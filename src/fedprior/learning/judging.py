"""A prior judged by prediction: clients learn from half of their samples and predict the rest.

How far a client should go from the shared model, and how much its class frequencies should count,
are numbers of the population: every client tries several values on its own samples and sends how
well each predicted. Messages add, so a server that sees only sums knows the best value.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import mean_share, toward
from fedprior.learning.descent import masked_mean
from fedprior.learning.frequencies import left_out

ENTIRELY = 1e6  # samples that outweigh those of any client: it keeps the shared model
PRIOR_SAMPLES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, ENTIRELY)
SMOOTHING = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, ENTIRELY)
_ROWS = 512  # of a client that take part in a trial, at most: they are copied
_RECENT = 3  # the k-th trial has weight k^3: a quarter of the trials, the last ones, decide
_MARGIN = 0.005  # of the loss: what a value nearer to the shared model may predict worse


def judged(algorithm: Algorithm, *, every: int, smoothing: bool) -> Algorithm:
    """The same method, whose `prior_samples` (and `smoothing`) are those that predict best.

    Both are numbers in the method's state that its `personalize` reads. In one round of `every` a
    client makes its personal model from a random half of its samples (512 of them at most, both
    halves together), and sends the loss on the other half, for every value of `prior_samples`,
    minus that of the shared model, and the latter. For every `smoothing` it sends the loss of the
    shared model on all of these samples, each predicted with the class frequencies of the others,
    minus the loss without frequencies. (Where samples are few, half of them often lack a class that
    the client has.) The server averages all of it over clients and rounds. The state has the
    largest value within half a percent of the least loss: the most cautious one, because the shared
    model has seen both halves, so that going away from it seems cheaper than it is. Since that
    model is among the values, personal models are on average no worse than it is.

    The shared model is the one that personal models are made from, such as an average over rounds:
    steps away from the newest one would also be judged by how well they undo its noise. Clients
    therefore receive both.
    """
    check.count(algorithm.name, judge_every=every)
    values = {"prior_samples": jnp.asarray(PRIOR_SAMPLES)}
    if smoothing:
        values["smoothing"] = jnp.asarray(SMOOTHING)
    functions = _Judged(method=algorithm, every=every, values=values)
    rounds = {name: getattr(functions, name) for name in ("init", "local", "update")}
    return replace(algorithm, **rounds, bears_noise=False)  # noise would choose among the values


def shrunk(mean: PyTree, w: PyTree, size: Array, prior_samples: Array) -> PyTree:
    """Return mean + size / (size + prior_samples) (w - mean); without samples, the mean itself."""
    moves = (size > 0) & (prior_samples < ENTIRELY)
    share = size / jnp.maximum(size + prior_samples, 1)
    return tree.where(moves, toward(mean, w, share), mean)  # also where w has diverged


@dataclass(frozen=True, kw_only=True, eq=False)
class _Judged:
    """The functions of `judged`.

    State: the method's own, the number of trials, the mean of what they found: the loss of the
    shared model (`held_out_loss`), and by how much every value changes it.
    """

    method: Algorithm
    every: int
    values: dict[str, Array]

    def init(self, key: Key) -> State:
        trials = jnp.zeros((), jnp.int32)
        return {**self.method.init(key), "found": self._nothing(), "trials": trials}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        message, after = self.method.local(_own(state), memory, data, key)
        due = (state["round"] % self.every == self.every // 2) & (data.size > 1)

        def body(number: Array, found: PyTree) -> PyTree:
            words = random.vary(memory["words"], state["round"] + number)
            return self._trial(_own(state), memory, _drawn(data, words), key)

        # A loop, not a condition: in a batch of trainings, both sides of a condition are run. The
        # samples depend on its counter, or XLA would move the trial out of the loop, to all rounds.
        found = jax.lax.fori_loop(0, jnp.where(due, 1, 0), body, self._nothing())
        weight = jnp.where(due, message.weight, 0)
        trial = {"weight": weight, "found": tree.combine(lambda one: weight * one, found)}
        return Message({"method": message.value, "trial": trial}, message.weight), after

    def update(self, state: State, total: Message) -> State:
        new = self.method.update(_own(state), Message(total.value["method"], total.weight))
        weight = total.value["trial"]["weight"]
        # Noise and rounding give a weight to rounds without a trial, too.
        some = (state["round"] % self.every == self.every // 2) & (weight > 0)
        trials = state["trials"] + some
        share, rate = mean_share(Message({}, weight)), (_RECENT + 1) / (trials + _RECENT)
        latest = tree.combine(lambda one: share * one, total.value["trial"]["found"])
        found = tree.where(some, toward(state["found"], latest, rate), state["found"])
        best = {name: _most_cautious(found, name, each) for name, each in self.values.items()}
        kept = {name: state[name] for name in best}
        return {**new, **tree.where(some, best, kept), "found": found, "trials": trials}

    def _nothing(self) -> PyTree:
        """What no trial has found."""
        return {"held_out_loss": jnp.zeros(()), **tree.combine(jnp.zeros_like, self.values)}

    def _trial(self, state: State, memory: Memory, drawn: ClientData, key: Key) -> PyTree:
        """Mean loss of the shared model on one half, and what every value adds to it."""
        places = jnp.arange(drawn.y.shape[0])
        seen, whole = drawn._replace(size=drawn.size // 2), places < drawn.size
        rest = whole & (places >= seen.size)

        def made(prior_samples: Array) -> PyTree:
            numbers = {**state, "prior_samples": prior_samples}
            return self.method.personalize(numbers, memory, seen, key)

        def loss(theta: PyTree, mask: Array) -> Array:
            outputs = self.method.predict(theta, drawn.x)
            return masked_mean(self.method.loss(outputs, drawn.y), mask)

        shared, own = made(jnp.asarray(ENTIRELY)), made(jnp.zeros(()))
        usual = loss(shared, rest)

        def nearer(value: Array) -> Array:
            return _bounded(loss(shrunk(shared, own, seen.size, value), rest) - usual, usual)

        def smoothed(value: Array) -> Array:
            others = left_out({**state, "smoothing": value}, shared, drawn.y, whole)
            return loss(others, whole)

        found = {"prior_samples": jax.lax.map(nearer, self.values["prior_samples"])}
        if "smoothing" in self.values:
            losses = jax.lax.map(smoothed, self.values["smoothing"])
            gains = losses - losses[-1]
            found["smoothing"] = jnp.where(jnp.all(jnp.isfinite(gains)), gains, 0.0)
        return {"held_out_loss": jnp.where(jnp.isfinite(usual), usual, 0.0), **found}


def _drawn(data: ClientData, words: Array) -> ClientData:
    """At most 512 of the client's samples, in a random order."""
    width = _ROWS if data.rows is None else min(_ROWS, data.most)
    size = jnp.maximum(data.size, 1)
    number = jnp.minimum(size, width)
    places = jnp.minimum(jnp.arange(width), number - 1)
    x, y = data.take(random.permuted(words, places, size))
    rows = None if data.rows is None else jnp.arange(width)
    return ClientData(x, y, jnp.zeros_like(data.start), number, rows)


def _bounded(gain: Array, usual: Array) -> Array:
    """The gain, at most as large as the loss itself: no client's divergence decides for all."""
    most = jnp.where(jnp.isfinite(usual), jnp.abs(usual), 0.0)
    return jnp.where(jnp.isfinite(gain), jnp.clip(gain, -most, most), most)


def _most_cautious(found: PyTree, name: str, values: Array) -> Array:
    """The largest of the ascending values whose loss is close to the least."""
    gains, margin = found[name], _MARGIN * jnp.abs(found["held_out_loss"])
    return jnp.max(jnp.where(gains <= jnp.min(gains) + margin, values, values[0]))


def _own(state: State) -> State:
    """The state of the method itself."""
    return {name: part for name, part in state.items() if name not in ("found", "trials")}
