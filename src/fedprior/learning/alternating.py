"""Any model with any population, by alternating gradient steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Gamma, Model, Population
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import Weight, increment, mean_share, moved, weight_of
from fedprior.learning.batches import Batches
from fedprior.learning.descent import Descent, go_on
from fedprior.learning.joint import joint_loss

Start = Literal["population", "initial"]


def alternating(
    model: Model,
    population: Population,
    *,
    name: str = "alternating",
    local_steps: int = 10,
    local_epochs: int | None = None,
    batches: Batches | None = None,
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    block_rates: Mapping[str, float] | None = None,
    block_scales: Mapping[str, float] | None = None,
    decay: float = 1.0,
    steps_per_epoch: int = 60,
    weight_decay: float = 0.0,
    clip: float | None = None,
    rule: optax.GradientTransformation | None = None,
    start: Start = "population",
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
    catch_up: int | None = None,
    upload_stale: bool = False,
) -> Algorithm:
    """Steps on mean loss(realize(gamma, w)) + penalty, for w, then for the client's copy of gamma.

    In each of `local_steps` steps a client moves its own w, then each learned block of its copy of
    gamma in the population's order, every one at the newest values of those before it. It sends the
    increments of gamma; the server adds their mean to gamma.

    `local_epochs` makes a round that many passes over the client's own samples instead of
    `local_steps` steps; clients of fewer samples are done sooner.

    Rates decay by `decay` an epoch of `steps_per_epoch` global steps (rounds * local_steps).
    `block_rates` gives a block of gamma a rate of its own; such a block (a scalar like psi) has
    neither weight decay nor clip nor rule. `block_scales` divides a block's increment in the
    message (and multiplies it back at the server), so that a clip of the whole message leaves a
    small block its share (ERRATA D7: psi / s_psi).

    `start`: a client's w begins at the population it first receives, or at the initial one.
    `newcomer_steps`: steps on its own data that a client takes when it is personalized without
    having taken part; it begins at the learned population (default: `local_steps`).
    `catch_up`: clients go on alone between participations, at most this many steps at a time, with
    the gamma that they received last (paper, Algorithm 6; they catch up when next called).
    `upload_stale` sends gamma without its last step, as printed (ERRATA 39).
    """
    check.count(name, local_steps=local_steps)
    check.nonnegative(name, theta_rate=theta_rate, gamma_rate=gamma_rate)
    check.flag(name, upload_stale=upload_stale)
    check.choice(name, "start", start, get_args(Start))
    check.choice(name, "weight", weight, get_args(Weight))
    if catch_up is not None:
        check.count(name, least=0, catch_up=catch_up)
    if newcomer_steps is None:
        newcomer_steps = local_steps
    check.count(name, least=0, newcomer_steps=newcomer_steps)
    if local_epochs is not None:
        check.count(name, local_epochs=local_epochs)
        alone = "None with upload_stale or catch_up, which count steps"
        fits = not upload_stale and catch_up is None
        check.require(fits, name, "local_epochs", alone, local_epochs)
    if upload_stale:
        remedy = "With one local step the printed upload never changes gamma."
        check.require(local_steps > 1, name, "local_steps", "above 1", local_steps, remedy)
    common: dict[str, Any] = {"decay": decay, "steps_per_epoch": steps_per_epoch}
    shaped = {**common, "weight_decay": weight_decay, "clip": clip, "rule": rule}
    rates = dict(block_rates or {})
    for block in rates:
        check.choice(name, "block_rates", block, population.blocks)
    scales = dict(block_scales or {})
    for block, scale in scales.items():
        check.choice(name, "block_scales", block, population.blocks)
        check.positive(name, **{f"scale of {block}": scale})
    method = _Alternating(
        model=model,
        population=population,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batches=Batches(size=20) if batches is None else batches,
        own=Descent(rate=theta_rate, **shaped),
        shared={
            block: Descent(rate=rates[block], **common)
            if block in rates
            else Descent(rate=gamma_rate, **shaped)
            for block in population.blocks
        },
        scales={block: scales.get(block, 1.0) for block in population.blocks},
        start=start,
        weight=weight,
        newcomer_steps=newcomer_steps,
        catch_up=catch_up,
        upload_stale=upload_stale,
    )
    return Algorithm.of(
        method,
        model,
        name=name,
        unit_weight=weight == "uniform",
        memoryless=not population.personal,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Alternating:
    """The functions of `alternating`, over its checked arguments.

    State: gamma, the number of rounds done, the key that initialized it. Memory: w and its rule's
    state, the key of the client's batches, the number of steps it has taken; with `catch_up` also
    the gamma received last and the round up to which the client has trained.
    """

    model: Model
    population: Population
    local_steps: int
    local_epochs: int | None
    batches: Batches
    own: Descent
    shared: Mapping[str, Descent]
    scales: Mapping[str, float]
    start: Start
    weight: Weight
    newcomer_steps: int
    catch_up: int | None
    upload_stale: bool

    def init(self, key: Key) -> State:
        words = random.words(key)
        return {"gamma": self._initial(words), "round": jnp.zeros((), jnp.int32), "words": words}

    def _initial(self, words: Array) -> Gamma:
        """Gamma before the first round, remade from its key instead of being kept."""
        return self.population.start(self.model.init(jax.random.wrap_key_data(words)))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        late = self.start == "population" and self.catch_up is None
        gamma = state["gamma"] if late else self._initial(state["words"])
        w = self.population.center(gamma)
        memory = {
            "w": w,
            "rule": self.own.init(w),
            "words": random.words(random.fold(key, "batches")),
            "step": jnp.zeros((), jnp.int32),
        }
        if self.catch_up is not None:
            memory |= {"gamma": gamma, "round": jnp.zeros((), jnp.int32)}
        return memory

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        memory = self._catch_up(state, memory, data)
        received = state["gamma"]
        most, own = self._length(data)
        numbers = jnp.arange(most)
        time = state["round"] * most + numbers
        # Without a w of its own a client's batches follow the rounds: its message does not tell
        # how often it took part.
        first = memory["step"] if self.population.personal else state["round"] * own
        batch = self.batches.read(memory["words"], first + numbers, data)
        moves = numbers < (own - 1 if self.upload_stale else own)

        def step(carry: Any, batch: Any) -> tuple[Any, None]:
            after = self._step(carry, batch, data.size)
            if self.local_epochs is not None:  # a client that is done rests
                after = tree.where(batch[-1], after, carry)
            return after, None

        rules = {block: rule.init(received[block]) for block, rule in self.shared.items()}
        carry = (memory["w"], memory["rule"], received, rules)
        (w, rule, gamma, _), _ = jax.lax.scan(step, carry, (*batch, time, moves))
        memory = {**memory, "w": w, "rule": rule, "step": memory["step"] + own}
        if self.catch_up is not None:
            memory |= {"gamma": received, "round": state["round"] + 1}
        return self._message(received, gamma, data), memory

    def _length(self, data: ClientData) -> tuple[int, int | Array]:
        """Steps of a round: of the client with most of them, and of this one."""
        if self.local_epochs is None:
            return self.local_steps, self.local_steps
        most, own = self.batches.epoch(data)
        return self.local_epochs * most, self.local_epochs * own

    def _step(self, carry: Any, batch: Any, size: Array) -> Any:
        """One step of w, then of each learned block of gamma, at the newest values of the rest."""
        w, rule, gamma, rules = carry
        x, y, mask, time, moves = batch
        if self.population.personal:
            gradient = jax.grad(self._objective, argnums=1)(gamma, w, x, y, mask, size)
            w, rule = self.own.step(gradient, rule, w, time)
        rules = dict(rules)
        for block, descent in self.shared.items():

            def of_block(value: PyTree, gamma: Gamma = gamma, block: str = block) -> Array:
                return self._objective({**gamma, block: value}, w, x, y, mask, size)

            gradient = jax.grad(of_block)(gamma[block])
            value, rules[block] = descent.step(gradient, rules[block], gamma[block], time)
            if self.upload_stale:
                value = tree.where(moves, value, gamma[block])
            gamma = self.population.project({**gamma, block: value})
        return w, rule, gamma, rules

    def _objective(
        self, gamma: Gamma, w: PyTree, x: Array, y: Array, mask: Array, size: Array
    ) -> Array:
        return joint_loss(self.model, self.population, gamma, w, x, y, mask, size)

    def _message(self, received: Gamma, gamma: Gamma, data: ClientData) -> Message:
        weight = weight_of(self.weight, data)
        value = {
            block: increment(gamma[block], received[block], weight / scale)
            for block, scale in self.scales.items()
        }
        return Message(value, weight)

    def update(self, state: State, total: Message) -> State:
        share = mean_share(total)
        gamma = dict(state["gamma"])
        for block, scale in self.scales.items():
            gamma[block] = moved(gamma[block], total.value[block], scale * share)
        return {**state, "gamma": self.population.project(gamma), "round": state["round"] + 1}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        gamma = state["gamma"]
        if not self.population.personal:
            return self.population.realize(gamma, memory["w"])
        fresh = memory["step"] == 0  # never took part: begins at the learned population
        caught_up = self._catch_up(state, memory, data)
        memory = tree.where(fresh, {**memory, "w": self.population.center(gamma)}, caught_up)
        steps = jnp.where(fresh & (data.size > 0), self.newcomer_steps, 0)
        memory = self._alone(gamma, memory, data, steps, state["round"])
        return self.population.realize(gamma, memory["w"])

    def _catch_up(self, state: State, memory: Memory, data: ClientData) -> Memory:
        """The steps that the client would have taken since it last took part, up to the cap."""
        if self.catch_up is None or not self.population.personal:
            return memory
        missed = (state["round"] - memory["round"]) * self.local_steps
        steps = jnp.where(data.size > 0, jnp.minimum(missed, self.catch_up), 0)
        return self._alone(memory["gamma"], memory, data, steps, memory["round"])

    def _alone(
        self, gamma: Gamma, memory: Memory, data: ClientData, steps: Array, round: Array
    ) -> Memory:
        """`steps` steps of w at a fixed gamma, timed from the beginning of `round`."""

        def objective(w: PyTree, x: Array, y: Array, mask: Array) -> Array:
            return self._objective(gamma, w, x, y, mask, data.size)

        return go_on(
            objective,
            memory,
            descent=self.own,
            data=data,
            batches=self.batches,
            num_steps=steps,
            time=round * self._length(data)[0],
        )
