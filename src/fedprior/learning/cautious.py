"""Caution under noise: clients follow the population as far as it stands out from its noise."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.data.federation import ClientData

_COORDINATES = 4096  # of all twins together: the relative error of their energy is sqrt(2 / 4096)
_MOST_TWINS = 16
_DEVIATIONS = 3.0  # by which an energy must exceed that of noise alone to count as signal
_SMALL = 0.1  # of the largest block: smaller ones are numbers that go with it
_PARTS = ("gamma", "average")  # of a state: what clients use of the population
_ADDED = ("twins", "start", "trust")  # to the state of the method itself


def cautious(algorithm: Algorithm, alone: Algorithm, *, deviation: Any) -> Algorithm:
    """The same method, whose clients discount the noise that a private channel adds to totals.

    `deviation` is the standard deviation of the noise per coordinate of a total: one number, or one
    per round. Clients use start + trust (state - start) in place of the state, the positive-part
    James-Stein estimate of what the population has learned since its start:

        trust = max(0, 1 - noise / |state - start|^2)

    Here `noise` is what |state - start|^2 would be if all uploads were zero. It comes from twins of
    the state that receive nothing but noise of the same distribution, so it holds for any `update`.
    Everything in it is public or has been released, and costs no privacy.

    A client predicts with probability sqrt(trust), the correlation of that estimate with what it
    estimates, as `algorithm` does and otherwise as `alone` does (for a quantity, the weighted mean
    of both). If the state is nothing but noise, trust is 0 and a client has exactly what it
    learns from its own samples.
    """
    deviations = np.atleast_1d(np.asarray(deviation, np.float32))
    check.positive(algorithm.name, deviation=float(deviations.min()))
    functions = _Cautious(method=algorithm, alone=alone, deviations=deviations)
    names = ("init", "enroll", "local", "update", "personalize", "predict")
    own = {name: getattr(functions, name) for name in names}
    return replace(algorithm, discounts_noise=True, **own)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cautious:
    """The functions of `cautious`.

    State: the method's own, its twins along a leading axis, the key of the start, and the trust.
    """

    method: Algorithm
    alone: Algorithm
    deviations: np.ndarray

    def init(self, key: Key) -> State:
        state = self.method.init(key)
        twins = tree.combine(lambda leaf: jnp.stack([leaf] * _num_twins(state)), state)
        return {**state, "twins": twins, "start": random.words(key), "trust": jnp.zeros(())}

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return self.method.enroll(self._trusted(state), client, key)

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        return self.method.local(self._trusted(state), memory, data, key)

    def update(self, state: State, total: Message) -> State:
        round = state["round"]
        key = random.fold(_key(state), "decode", round)
        deviation = jnp.asarray(self.deviations)[jnp.minimum(round, len(self.deviations) - 1)]

        def noised(twin: State, number: Array) -> State:
            flat = tree.flatten(total.value)
            noise = deviation * random.normal(jax.random.fold_in(key, number), flat.shape)
            value = tree.unflatten(noise, total.value)
            # A clip that follows the updates scales the noise of all of them.
            if "clip" in twin:
                twin = {**twin, "clip": state["clip"]}
            return self.method.update(twin, total._replace(value=value))

        own = self.method.update(_own(state), total)
        twins = jax.vmap(noised)(state["twins"], jnp.arange(_num_twins(own)))
        new = {**own, "twins": twins, "start": state["start"]}
        parts = [jnp.stack(list(blocks.values())).min() for blocks in self._trust(new).values()]
        return {**new, "trust": jnp.max(jnp.stack(parts))}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        start = self.alone.init(_key(state))
        fresh = self.alone.enroll(start, jnp.zeros((), jnp.int32), key)
        return {
            "population": self.method.personalize(self._trusted(state), memory, data, key),
            "own": self.alone.personalize(start, fresh, data, key),
            "trust": state["trust"],
        }

    def predict(self, theta: Theta, x: Array) -> Array:
        weight = jnp.sqrt(theta["trust"])
        shared = self.method.predict(theta["population"], x)
        own = self.alone.predict(theta["own"], x)
        if getattr(self.method.model, "regression", False):
            mixed = own + weight * (shared - own)
        else:
            shared, own = jax.nn.log_softmax(shared), jax.nn.log_softmax(own)
            mixed = jnp.logaddexp(jnp.log(weight) + shared, jnp.log1p(-weight) + own)
        return jnp.where(weight > 0, mixed, own)  # noise may have made `shared` infinite

    def _trusted(self, state: State) -> State:
        """The method's state as clients use it: its parts moved back toward their start."""
        start, moved = self.method.init(_key(state)), {}
        for part, trusts in self._trust(state).items():
            old, new = _blocks(start[part]), _blocks(state[part])
            near = {name: _toward(old[name], new[name], share) for name, share in trusts.items()}
            moved[part] = near if isinstance(state[part], dict) else near[""]
        return {**_own(state), **moved}

    def _trust(self, state: State) -> dict[str, dict[str, Array]]:
        """The trust in each block of each part.

        A few numbers beside a single model (psi, a scale) count with it. Of several large blocks,
        one may stand out from noise while another is noise, so each is judged by itself.
        """
        start, trusts = self.method.init(_key(state)), {}
        for part in (name for name in _PARTS if name in start):
            blocks, new, twins = (_blocks(each[part]) for each in (start, state, state["twins"]))
            largest = max(tree.size(block) for block in blocks.values())
            large = [name for name in blocks if tree.size(blocks[name]) >= _SMALL * largest]
            if len(large) == 1:
                trusts[part] = dict.fromkeys(blocks, _stands_out(blocks, new, twins))
                continue
            own = {name: _stands_out(blocks[name], new[name], twins[name]) for name in large}
            least = jnp.min(jnp.stack(list(own.values())))
            trusts[part] = {**dict.fromkeys(blocks, least), **own}
        return trusts


def _stands_out(start: PyTree, new: PyTree, twins: PyTree) -> Array:
    """The share of |new - start|^2 that is more than noise, which is 1 without noise."""
    energy, noise = _energy(new, start), _energy(twins, start) / _length(twins)
    surely = noise * (1 + _DEVIATIONS * (2 / tree.size(start)) ** 0.5)
    share = jnp.where(jnp.isfinite(energy) & (energy > surely), 1 - surely / energy, 0)
    return jnp.where(noise > 0, share, 1.0)


def _own(state: State) -> State:
    """The state of the method itself."""
    return {name: part for name, part in state.items() if name not in _ADDED}


def _key(state: State) -> Key:
    return jax.random.wrap_key_data(state["start"])


def _toward(old: PyTree, new: PyTree, share: Array) -> PyTree:
    """Old + share (new - old); whole numbers are not moved back."""

    def move(before: Array, after: Array) -> Array:
        if not jnp.issubdtype(after.dtype, jnp.floating):
            return after
        return jnp.where(share > 0, before + share * (after - before), before)

    return tree.combine(move, old, new)


def _energy(new: PyTree, old: PyTree) -> Array:
    return tree.squared_norm(tree.combine(jnp.subtract, new, old))


def _blocks(part: PyTree) -> dict[str, PyTree]:
    """The blocks of gamma by name; a model is a single one."""
    return part if isinstance(part, dict) else {"": part}


def _length(twins: PyTree) -> int:
    return int(jax.tree.leaves(twins)[0].shape[0])


def _num_twins(state: State) -> int:
    """The number of twins: a small state has more, because their energies vary more."""
    return min(_MOST_TWINS, -(-_COORDINATES // tree.size(state["gamma"])))
