"""Any model with any population, by alternating gradient steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from fedprior.core import check, random, tree
from fedprior.core.algorithm import (
    Algorithm,
    Array,
    Key,
    Memory,
    Message,
    Moved,
    PyTree,
    State,
    Theta,
)
from fedprior.core.protocols import Gamma, Model, Population
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import Weight, increment, mean_share, moved, weight_of
from fedprior.learning.descent import Descent, reading
from fedprior.learning.joint import joint_loss
from fedprior.learning.steps import Steps, go_on, newcomer

Start = Literal["population", "initial"]
# Options of `alternating` that a method with models of the clients' own passes on.
CLIENT = ("steps", "theta_rate", "gamma_rate", "start", "weight", "newcomer_steps", "catch_up")


def alternating(
    model: Model,
    population: Population,
    *,
    name: str = "alternating",
    steps: Steps = Steps(),
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    block_rates: Mapping[str, float] | None = None,
    block_scales: Mapping[str, float] | None = None,
    start: Start = "population",
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
    catch_up: int | None = None,
    functions: type["Alternating"] | None = None,
) -> Algorithm:
    """Steps on mean loss(realize(gamma, w)) + penalty, for w, then for the client's copy of gamma.

    In each step of a round a client moves its own w, then each learned block of its copy of gamma
    in the population's order, every one at the newest values of those before it. It sends the
    increments of gamma; the server adds their mean to gamma.

    `block_rates` gives a block of gamma its own rate; such a block (a scalar like psi) has neither
    weight decay nor clip nor rule. `block_scales` divides a block's increment in the message (and
    multiplies it back at the server), so that a clip of the whole message leaves a small block its
    share (ERRATA D7: psi / s_psi).

    `start`: a client's w begins at the population it first receives, or at the initial one.
    `newcomer_steps`: steps on its own data that a client takes when it is personalized without
    having taken part; it begins at the learned population (default: `local_steps`).
    `catch_up`: clients keep training alone between participations, at most this many steps at a
    time, with the gamma that they received last (paper, Algorithm 6; they catch up when next
    called). `functions` replaces the functions of a round (`learning.paper`).
    """
    check.nonnegative(name, theta_rate=theta_rate, gamma_rate=gamma_rate)
    check.choice(name, "start", start, get_args(Start))
    check.choice(name, "weight", weight, get_args(Weight))
    if catch_up is not None:
        check.count(name, least=0, catch_up=catch_up)
        steps.check_supported(name, rule=True)
    rates, scales = dict(block_rates or {}), dict(block_scales or {})
    for option, blocks in {"block_rates": rates, "block_scales": scales}.items():
        for block in blocks:
            check.choice(name, option, block, population.blocks)
    check.positive(name, **{f"scale of {block}": scale for block, scale in scales.items()})
    method = (functions or Alternating)(
        model=model,
        population=population,
        steps=steps,
        own=steps.descent(theta_rate),
        shared={
            block: steps.bare(rates[block]) if block in rates else steps.descent(gamma_rate)
            for block in population.blocks
        },
        scales={block: scales.get(block, 1.0) for block in population.blocks},
        start=start,
        weight=weight,
        newcomer_steps=newcomer(name, newcomer_steps, steps),
        catch_up=catch_up,
    )
    networks = tuple(block for block in population.blocks if block not in rates)
    return Algorithm.of(
        method,
        model,
        name=name,
        unit_weight=weight == "uniform",
        memoryless=not population.personal,
        moved=Moved(networks, population.project) if networks else None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Alternating:
    """The functions of `alternating`, over its checked arguments.

    State: gamma, the number of rounds done, the key that initialized it. Memory: w and its rule's
    state, the key of the client's batches, the number of steps it has taken; with `catch_up` also
    the gamma received last and the round up to which the client has trained.
    """

    model: Model
    population: Population
    steps: Steps
    own: Descent
    shared: Mapping[str, Descent]
    scales: Mapping[str, float]
    start: Start
    weight: Weight
    newcomer_steps: int
    catch_up: int | None

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
        memory = {"w": w, "rule": self.own.init(w), **reading(key)}
        if self.catch_up is not None:
            memory |= {"gamma": gamma, "round": jnp.zeros((), jnp.int32)}
        return memory

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        memory = self._catch_up(state, memory, data)
        received, own = state["gamma"], self._length(data)
        rules = {block: rule.init(received[block]) for block, rule in self.shared.items()}
        carry = (memory["w"], memory["rule"], received, rules)
        w, rule, gamma, _ = self._steps(carry, state["round"], memory, data)
        memory = {**memory, "w": w, "rule": rule, "step": memory["step"] + own}
        if self.catch_up is not None:
            memory |= {"gamma": received, "round": state["round"] + 1}
        return self._message(received, gamma, data), memory

    def _steps(self, carry: Any, round: Array, memory: Memory, data: ClientData) -> Any:
        """The steps of a round; its clock is the client's own, and no other client's."""
        batches, words, own = self.steps.batches, memory["words"], self._length(data)
        time = round * own
        # Without a w of its own a client's batches follow the rounds: its message does not tell
        # how often it took part.
        first = memory["step"] if self.population.personal else time

        def step(number: Array, carry: Any) -> Any:
            samples = batches.read(words, first + number, data)
            return self.step(carry, (*samples, time + number), data.size, own - number)

        def step_on(carry: Any, batch: Any) -> tuple[Any, None]:
            *samples, left = batch
            return self.step(carry, samples, data.size, left), None

        if self.steps.local_epochs is not None:  # each client ends where its samples do
            return jax.lax.fori_loop(0, own, step, carry)
        numbers = jnp.arange(self.steps.local_steps)
        batch = batches.read(words, first + numbers, data)
        return jax.lax.scan(step_on, carry, (*batch, time + numbers, own - numbers))[0]

    def _length(self, data: ClientData) -> int | Array:
        """Steps of a round of this client."""
        steps = self.steps
        if steps.local_epochs is None:
            return steps.local_steps
        return steps.local_epochs * steps.batches.epoch(data)

    def step(self, carry: Any, batch: Any, size: Array, left: Array) -> Any:
        """One step of w, then of each learned block of gamma, at the newest values of the rest.

        `left` counts the steps that the round still has, this one included.
        """
        w, rule, gamma, rules = carry
        x, y, mask, time = batch
        if self.population.personal:
            gradient = jax.grad(self._objective, argnums=1)(gamma, w, x, y, mask, size)
            w, rule = self.own.step(gradient, rule, w, time)
        rules = dict(rules)
        for block, descent in self.shared.items():

            def of_block(value: PyTree, gamma: Gamma = gamma, block: str = block) -> Array:
                return self._objective({**gamma, block: value}, w, x, y, mask, size)

            gradient = jax.grad(of_block)(gamma[block])
            value, rules[block] = descent.step(gradient, rules[block], gamma[block], time)
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
        missed = (state["round"] - memory["round"]) * self.steps.local_steps
        steps = jnp.where(data.size > 0, jnp.minimum(missed, self.catch_up), 0)
        return self._alone(memory["gamma"], memory, data, steps, memory["round"])

    def _alone(
        self, gamma: Gamma, memory: Memory, data: ClientData, steps: Array, round: Array
    ) -> Memory:
        """`steps` steps of w at a fixed gamma, timed from the beginning of `round`."""

        def objective(w: PyTree, x: Array, y: Array, mask: Array) -> Array:
            return self._objective(gamma, w, x, y, mask, data.size)

        return go_on(
            self.steps,
            objective,
            memory,
            data,
            self.own,
            number=steps,
            round=round,
            length=self._length(data),
        )
