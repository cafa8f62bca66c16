"""Any model with a population that has an EM step: learned scales, from posterior spreads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State, Theta
from fedprior.core.protocols import ClientPosterior, Gamma, Maximizable, Model, Population
from fedprior.data.federation import ClientData
from fedprior.learning.assignment import Assignment
from fedprior.learning.curvature import Curvature, all_samples, some_samples
from fedprior.learning.descent import Descent, reading
from fedprior.learning.noise import Noise
from fedprior.learning.posterior import Fit, Walk, full_fit, gradient_fit, rate_at
from fedprior.learning.predictive import mixed, mixture, several
from fedprior.learning.steps import Steps, newcomer
from fedprior.populations.discrete import Discrete
from fedprior.populations.mixture import GaussianMixture


def em(
    model: Model,
    population: Population,
    *,
    name: str = "em",
    steps: Steps = Steps(),
    theta_rate: float = 0.1,
    gamma_rate: float | None = None,
    curvature: Curvature = "diagonal",
    curvature_samples: int | None = None,
    noise_variance: float | None = None,
    newcomer_steps: int | None = None,
    personal_steps: int = 0,
) -> Algorithm:
    """Clients send statistics of p(theta_i | data_i, gamma); gamma <- argmax of their mean.

    In a round a client moves w toward its posterior mode and measures its posterior spread,
    1 / (curvature + prior precision). `diagonal`: `local_steps` gradient steps on minibatches, the
    prior by an implicit step that no small scale can make unstable, then the diagonal Gauss-Newton
    curvature of all its samples (of `curvature_samples` of them, drawn anew each round, where that
    is given: it costs a backward pass an output and sample). `full`: `local_steps` Gauss-Newton
    steps and the whole posterior covariance, for models of some hundred parameters; one step is
    exact for a linear model, and the rounds are then exact EM over the cohort (D5).

    The scales are the maxima of the marginal likelihood (of its approximation at the mode, where
    the model is not linear: biased low with few samples, ERRATA 37), never of the joint mode, whose
    scale runs to zero (ERRATA 31). EM learns them slowly where most coordinates of theta are not
    determined by a client's samples, as in networks. Begin wide there: a narrow scale holds every
    client, and so the mean, where they are.

    `gamma_rate`: how much of the moments behind the new gamma are this cohort's, the rest being
    those of the gamma before (stepwise EM). 1, the default, is exact EM with everyone; with
    cohorts of K of m clients K / m forgets nobody, and under noise it averages the noise.
    A regression model's `noise_variance` is learned as well unless it is given.

    With parts (a mixture) a client keeps a w for each and predicts with all, weighted by their
    posterior probabilities. With `Discrete` it has no w to move or to measure, and `gamma_rate` is
    the rate of its gradient steps on the shared models (default 0.1): see `learning.assignment`.
    A newcomer takes `newcomer_steps` steps (default: `local_steps`) from the population's centers.
    A client that took part is personalized where its last round left it, as with `alternating`, and
    weighs its parts anew; `personal_steps` more steps bring it to the newest gamma, on top of those
    by which methods are compared.
    """
    steps.check_supported(name)
    check.count(name, least=0, personal_steps=personal_steps)
    check.choice(name, "curvature", curvature, get_args(Curvature))
    if curvature_samples is not None:
        check.count(name, curvature_samples=curvature_samples)
    noise = Noise.of(model, noise_variance, name)
    if isinstance(population, Discrete):
        usual = 1.0 if curvature == "full" else 0.1
        return Assignment(
            model=model,
            population=population,
            steps=steps,
            descent=steps.descent(usual if gamma_rate is None else gamma_rate),
            curvature=curvature,
            noise=noise,
        ).algorithm(name)
    if not isinstance(population, Maximizable):
        rule = "one with an EM step: Gaussian, Laplace, GaussianMixture or Discrete"
        raise TypeError(check.message(name, "population", rule, population))
    rate = 1.0 if gamma_rate is None else gamma_rate
    check.fraction(name, gamma_rate=rate)
    return _Em(
        model=model,
        population=population,
        steps=steps,
        descent=steps.descent(theta_rate),
        server=steps.bare(rate),
        curvature=curvature,
        curvature_samples=curvature_samples,
        noise=noise,
        newcomer_steps=newcomer(name, newcomer_steps, steps),
        personal_steps=personal_steps,
    ).algorithm(name)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Em:
    """The functions of `em`, over its checked arguments.

    State: gamma, the noise variance of a regression model, the number of rounds done. Memory: the
    client's posterior (share, w, spread, by part), the key of its batches, its number of steps.
    """

    model: Model
    population: Maximizable
    steps: Steps
    descent: Descent
    server: Descent
    curvature: Curvature
    curvature_samples: int | None
    noise: Noise
    newcomer_steps: int
    personal_steps: int

    def algorithm(self, name: str) -> Algorithm:
        return Algorithm.of(
            self,
            self.model,
            name=name,
            predict=mixed(self.model) if self.population.num_parts > 1 else self.model.apply,
        )

    def init(self, key: Key) -> State:
        if isinstance(self.population, GaussianMixture):
            population = self.population
            centers = several(self.model, population.num_components, population.jitter, key)
            gamma = population.start_at(centers)
        else:
            gamma = self.population.start(self.model.init(key))
        return {"gamma": gamma, "round": jnp.zeros((), jnp.int32), **self.noise.init()}

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return {**self.population.prior(state["gamma"])._asdict(), **reading(key)}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        posterior, squares = self._posterior(
            state, memory, data, jnp.asarray(self.steps.local_steps)
        )
        value = {
            "population": self.population.statistics(state["gamma"], posterior),
            "noise": self.noise.statistics(state, squares, data.size),
        }
        memory = {**memory, **posterior._asdict(), "step": memory["step"] + self.steps.local_steps}
        return Message(value, jnp.ones(())), memory

    def update(self, state: State, total: Message) -> State:
        some = total.weight > 0
        average = tree.combine(lambda one: one / jnp.where(some, total.weight, 1), total.value)
        rate = rate_at(self.server, state["round"] * self.steps.local_steps)
        gamma = self.population.maximize(state["gamma"], average["population"], rate)
        noise = self.noise.maximize(state, average["noise"], rate)
        new = {**state, "gamma": gamma, **noise}
        return {**tree.where(some, new, state), "round": state["round"] + 1}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        fresh = memory["step"] == 0
        steps = jnp.where(fresh, self.newcomer_steps, self.personal_steps)
        posterior, _ = self._posterior(state, memory, data, jnp.where(data.size > 0, steps, 0))
        if self.population.num_parts > 1:
            return mixture(posterior.w, posterior.share)
        return tree.combine(lambda leaf: leaf[0], posterior.w)

    def _posterior(
        self, state: State, memory: Memory, data: ClientData, number: Array
    ) -> tuple[ClientPosterior, Array]:
        """The client's posterior after `number` steps, and its expected squared residuals."""
        gamma: Gamma = state["gamma"]
        before = ClientPosterior(memory["share"], memory["w"], memory["spread"])
        parts = self.population.parts(gamma, before)
        samples = all_samples(data)
        if self.curvature_samples is not None:
            samples = some_samples(data, self.curvature_samples, memory["words"], state["round"])
        common: dict[str, Any] = {"variance": self.noise.at(state), "samples": samples}
        fit: Callable[..., Fit] = partial(full_fit, self.model, number=number, **common)
        if self.curvature == "diagonal":
            time = state["round"] * self.steps.local_steps
            words, first = memory["words"], memory["step"]
            walk = Walk(data, self.steps.batches, self.descent, words, first, number, time)
            fit = partial(gradient_fit, self.model, walk=walk, **common)
        fits = jax.vmap(fit)(parts.center, parts.precision, parts.certainty, before.w)
        share = jax.nn.softmax(parts.log_share + fits.evidence)
        return ClientPosterior(share, fits.w, fits.spread), jnp.sum(share * fits.squares)
