"""Every method by its name on the command line."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning import adaped, priors
from fedprior.learning.alternating import alternating
from fedprior.learning.baselines import fedavg, fedem, local

# Options that a configuration cannot give as a number or a word, or gives elsewhere.
_NOT_OPTIONS = {"model", "population", "name", "options", "batches", "block_rates", "rule"}
_NOT_OPTIONS |= {"block_scales", "unused"}
_NOT_OPTIONS |= {"local_steps"}  # one for all methods: budgets are compared by it


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: how to build it, what it assumes, what leaves a client in a round.

    `alone` methods need no server: every client takes as many steps as the others expect to.
    """

    name: str
    factory: Callable[..., Algorithm]
    population: str
    sends: str
    reference: str
    alone: bool = False
    passes_to: Callable[..., Algorithm] = alternating  # the factory that gets `factory`'s options

    def options(self) -> list[str]:
        """Names of the options that `build` takes for this method."""
        factories = [self.factory, self.passes_to]
        if self.passes_to is not self.factory:
            factories.append(alternating)
        names = [name for each in factories for name in inspect.signature(each).parameters]
        return [name for name in dict.fromkeys(names) if name not in _NOT_OPTIONS]

    def build(self, model: Model, options: Mapping[str, Any], **given: Any) -> Algorithm:
        """The algorithm with the user's `options`, over what the caller has `given`."""
        for option in options:
            check.choice(self.name, "option", option, self.options())
        return self.factory(model, **{**given, **options})


_METHODS = (
    Method(
        name="adaped",
        factory=adaped.adaped,
        population="distillation: a prior on predictions, with a learned spread psi",
        sends="increments of the mean model and of psi",
        reference="Ozkara et al. 2022, Algorithm 5",
    ),
    Method(
        name="adaped-fine-tuning",
        factory=adaped.adaped_fine_tuning,
        population="distillation; clients train on between rounds",
        sends="increments of the mean model and of psi",
        reference="Ozkara et al. 2022, Algorithm 6",
        passes_to=adaped.adaped,
    ),
    Method(
        name="fedavg",
        factory=fedavg.fedavg,
        population="point mass: one model for all",
        sends="increments of the model",
        reference="McMahan et al. 2017",
    ),
    Method(
        name="fedavg-fine-tuning",
        factory=fedavg.fedavg_fine_tuning,
        population="point mass, then steps on own data",
        sends="increments of the model",
        reference="Jiang et al. 2019",
    ),
    Method(
        name="fedem",
        factory=fedem.fedem,
        population="mixture: shares of a client's own over a few models of all",
        sends="increments of every model",
        reference="Marfoq et al. 2021",
        passes_to=fedem.fedem,
    ),
    Method(
        name="gaussian-prior",
        factory=priors.gaussian_prior,
        population="Gaussian around a learned mean (l2 penalty)",
        sends="increments of the mean",
        reference="Ozkara et al. 2022, section 3",
    ),
    Method(
        name="laplace-prior",
        factory=priors.laplace_prior,
        population="Laplace around a learned mean (l1 penalty)",
        sends="increments of the mean",
        reference="Ozkara et al. 2022, section 3",
    ),
    Method(
        name="local",
        factory=local.local,
        population="none: every client alone, at the same number of steps",
        sends="nothing",
        reference="",
        alone=True,
    ),
    Method(
        name="local-converged",
        factory=local.local,
        population="none: every client alone, until validation scores stop rising",
        sends="nothing",
        reference="",
        alone=True,
    ),
)
METHODS = {method.name: method for method in _METHODS}


def method(name: str) -> Method:
    """The method called `name`; the error names the nearest one."""
    check.choice("algorithms", "name", name, METHODS)
    return METHODS[name]


def describe() -> list[dict[str, str]]:
    """One row a method: name, population, sends, reference."""
    columns = ("name", "population", "sends", "reference")
    return [{column: getattr(method, column) for column in columns} for method in _METHODS]
