"""EM for clients that are one of a few shared models: zero spread, clustered learning."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from fedprior.core import tree
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
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.curvature import Curvature, all_samples, measure, total_loss
from fedprior.learning.descent import Descent, batch_key
from fedprior.learning.noise import Noise
from fedprior.learning.posterior import Walk, rate_at
from fedprior.learning.predictive import mixed, mixture, several
from fedprior.learning.steps import Steps
from fedprior.populations.discrete import Discrete
from fedprior.populations.mixture import per_component, shares_after

_NULL = 1e-5  # eigenvalues below this share of the largest count as zero in a pseudo-inverse
_ROUNDING = 1e-3  # relative; of sums and a solution in 32 bits
_TINY = 1e-30


@dataclass(frozen=True, kw_only=True, eq=False)
class Assignment:
    """alpha_l ~ share_l p(data_i | center_l); center_l moves as its clients, weighted, move it.

    `diagonal`: a client takes `local_steps` gradient steps on each model (its likeliest alone where
    the population is `hard`) and sends alpha_l times the increment; a model's sum is divided by the
    clients that it has, so that one component is federated averaging and hard ones are that within
    each cluster. `full`: it sends alpha_l times its Hessian, gradient and loss, and the server
    solves: exact EM for a linear model (D4), a Newton step for a logistic one, shortened where it
    cannot be right. The Hessian is (1 - rate) the one before and rate the cohort's (stepwise EM):
    with cohorts of K of m clients a rate of K / m forgets nobody. Gradient steps bear a channel's
    noise; a noisy Hessian does not bear being inverted, and private channels are refused.

    A client predicts with the likeliest model where `hard`, else with all of them weighted by
    alpha, p(y | x, data_i). State: gamma, the noise variance of a regression model, in full the
    Hessians (components, d, d), the number of rounds done. Memory: the key of its batches; they
    follow the rounds, not the client's own past.
    """

    model: Model
    population: Discrete
    steps: Steps
    descent: Descent
    curvature: Curvature
    noise: Noise

    def algorithm(self, name: str) -> Algorithm:
        """The functions, as an Algorithm."""
        steps = self.curvature == "diagonal"
        return Algorithm.of(
            self,
            self.model,
            name=name,
            predict=self.model.apply if self.population.hard else mixed(self.model),
            memoryless=True,
            bears_noise=steps,
            moved=Moved(("centers",), self.population.project) if steps else None,
        )

    def init(self, key: Key) -> State:
        population = self.population
        centers = several(self.model, population.num_components, population.jitter, key)
        gamma = population.start_at(centers)
        state = {"gamma": gamma, "round": jnp.zeros((), jnp.int32), **self.noise.init()}
        if self.curvature == "full":
            number = population.num_components
            width = tree.size(centers) // number
            state["hessian"] = jnp.zeros((number, width, width))
        return state

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return batch_key(key)

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        gamma = state["gamma"]
        alpha, sums = self._expect(state, data)
        if self.curvature == "full":
            moves = self._quadratic(gamma["centers"], alpha, sums, data)
        else:
            time = state["round"] * self.steps.local_steps
            number, words = jnp.asarray(self.steps.local_steps), memory["words"]
            walk = Walk(data, self.steps.batches, self.descent, words, time, number, time)
            moves = self._increments(gamma["centers"], alpha, walk)
        value = {
            "share": alpha - jax.nn.softmax(gamma["log_shares"]),
            "moves": moves,
            "noise": self.noise.statistics(state, 2 * jnp.sum(alpha * sums), data.size),
        }
        return Message(value, jnp.ones(())), memory

    def update(self, state: State, total: Message) -> State:
        some = total.weight > 0
        average = tree.combine(lambda one: one / jnp.where(some, total.weight, 1), total.value)
        rate = jnp.ones(())
        if self.curvature == "full":
            rate = rate_at(self.descent, state["round"] * self.steps.local_steps)
        gamma, floor = state["gamma"], self.population.share_floor
        mass, log_shares = shares_after(gamma, average["share"], rate, floor)
        new = state
        if self.curvature == "full":
            moves = average["moves"]
            hessian = state["hessian"] + rate * (moves["hessian"] - state["hessian"])
            new = {**state, "hessian": hessian}
            shift = _solved({**moves, "hessian": hessian}, gamma["centers"], rate)
        else:
            shift = tree.combine(lambda leaf: leaf / per_component(mass, leaf), average["moves"])
        centers = tree.combine(jnp.add, gamma["centers"], shift)
        gamma = self.population.project({"centers": centers, "log_shares": log_shares})
        new = {**new, "gamma": gamma, **self.noise.maximize(state, average["noise"], rate)}
        return {**tree.where(some, new, state), "round": state["round"] + 1}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        alpha, _ = self._expect(state, data)
        centers = state["gamma"]["centers"]
        return _best(centers, alpha) if self.population.hard else mixture(centers, alpha)

    def _expect(self, state: State, data: ClientData) -> tuple[Array, Array]:
        """Alpha, (components,), and the sum of the client's losses under each model."""
        centers = state["gamma"]["centers"]
        sums = jax.vmap(lambda one: total_loss(self.model, one, data))(centers)
        return self.population.belonging(state["gamma"], sums / self.noise.at(state)), sums

    def _increments(self, centers: PyTree, alpha: Array, walk: Walk) -> PyTree:
        """Alpha_l times what the client's steps add to model l."""

        def moved(center: PyTree) -> PyTree:
            def body(number: Array, theta: PyTree) -> PyTree:
                return walk.step(self.model, theta, number)[0]

            theta = jax.lax.fori_loop(0, walk.number, body, center)
            return tree.combine(jnp.subtract, theta, center)

        if self.population.hard:  # one model to train instead of all
            move = moved(_best(centers, alpha))
            return tree.combine(lambda leaf: jnp.multiply.outer(alpha, leaf), move)
        moves = jax.vmap(moved)(centers)
        return tree.combine(lambda leaf: per_component(alpha, leaf) * leaf, moves)

    def _quadratic(
        self, centers: PyTree, alpha: Array, sums: Array, data: ClientData
    ) -> dict[str, Array]:
        """Alpha_l times the Hessian, minus the gradient, and the client's loss at model l."""
        samples = all_samples(data)
        at = jax.vmap(lambda one: measure(self.model, one, samples, curvature="full"))(centers)
        return {
            "hessian": alpha[:, None, None] * at.curvature,
            "slope": -alpha[:, None] * at.gradient,
            "loss": alpha * sums,
        }


def _best(centers: PyTree, alpha: Array) -> PyTree:
    """The likeliest model."""
    return tree.combine(lambda leaf: leaf[jnp.argmax(alpha)], centers)


def _solved(moves: dict[str, Array], centers: PyTree, rate: Array) -> PyTree:
    """Hessian^+ slope of each model, times the rate; shorter where a loss would fall below 0.

    Twice what a quadratic loses in its Newton step is slope' Hessian^+ slope, and no loss that is
    at least 0 can lose more than it has. Where the Hessian promises more (of a logistic model far
    out it is almost 0) the step is the one at which the tangent is 0, Polyak's.
    """

    def one(hessian: Array, slope: Array, loss: Array) -> Array:
        values, vectors = jnp.linalg.eigh((hessian + hessian.T) / 2)
        known = values > _NULL * jnp.max(jnp.abs(values))
        inverse = jnp.where(known, 1 / jnp.where(known, values, 1), 0)
        move = rate * vectors @ (inverse * (vectors.T @ slope))
        promised = jnp.maximum(slope @ move, _TINY)
        holds = promised <= 2 * loss * (1 + _ROUNDING)
        move = jnp.where(holds, 1, loss / promised) * move
        return jnp.where(jnp.all(jnp.isfinite(move)), move, 0)

    shift = jax.vmap(one)(moves["hessian"], moves["slope"], moves["loss"])
    like = tree.combine(lambda leaf: leaf[0], centers)
    return jax.vmap(lambda vector: tree.unflatten(vector, like))(shift)
