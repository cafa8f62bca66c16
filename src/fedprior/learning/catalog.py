"""Every method by its name on the command line."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning import adaped, clustering, priors, representation
from fedprior.learning.alternating import alternating
from fedprior.learning.baselines import fedavg, fedem, local
from fedprior.learning.em import em

# Options that a configuration cannot give as a number or a word, or gives elsewhere.
_NOT_OPTIONS = {"model", "population", "name", "options", "batches", "block_rates", "rule"}
_NOT_OPTIONS |= {"block_scales", "unused", "cluster"}
_NOT_OPTIONS |= {"local_steps"}  # one for all methods: budgets are compared by it


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: how to build it, what it assumes, what leaves a client in a round.

    `alone` methods need no server: every client takes as many steps as the others expect to.
    `remark` is what the command line says before it runs one, where Python warns.
    """

    name: str
    factory: Callable[..., Algorithm]
    population: str
    sends: str
    reference: str
    alone: bool = False
    remark: str = ""
    passes_to: Callable[..., Algorithm] = alternating  # the factory that gets `factory`'s options

    def options(self) -> list[str]:
        """Names of the options that `build` takes for this method."""
        factories = [self.factory, self.passes_to]
        if self.passes_to not in (self.factory, em):
            factories.append(alternating)
        names = [name for each in factories for name in inspect.signature(each).parameters]
        return [name for name in dict.fromkeys(names) if name not in _NOT_OPTIONS]

    def build(self, model: Model, options: Mapping[str, Any], **given: Any) -> Algorithm:
        """The algorithm with the user's `options`, over what the caller has `given`."""
        for option in options:
            check.choice(self.name, "option", option, self.options())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", clustering.CollapseWarning)  # said by `remark`
            return self.factory(model, **{**given, **options})

    def under_noise(
        self,
        model: Model,
        options: Mapping[str, Any],
        *,
        noise_multiplier: float,
        clip: float,
        rate: float,
        num_clients: int,
    ) -> dict[str, Any]:
        """The user's `options` with the floors that a private channel's noise calls for."""
        known, given = self.options(), dict(options)
        noise: dict[str, Any] = {"noise_multiplier": noise_multiplier, "rate": rate}
        noise["num_clients"] = num_clients
        if "psi_floor" in known:
            noise |= _chosen(given, "psi_floor", "initial_psi")
            return given | adaped.trust_under_noise(model, **noise)
        if "share_floor" in known:
            noise |= _chosen(given, "share_floor", "num_components")
            return given | priors.shares_under_noise(clip=clip, **noise)
        return given


def _chosen(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


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
        name="clustered",
        factory=priors.clustered,
        population="a few models of all, each client being of one kind",
        sends="increments of the client's likeliest model",
        reference="Ghosh et al. 2020",
        passes_to=em,
    ),
    Method(
        name="discrete-mixture",
        factory=priors.discrete_mixture,
        population="a few models of all, each client probably of one kind",
        sends="increments of every model, weighted by the client's probabilities",
        reference="Ozkara et al. 2022, Algorithm 7",
        passes_to=em,
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
        name="gaussian-em",
        factory=priors.gaussian_em,
        population="Gaussian with a learned mean and spread",
        sends="statistics of the client's posterior: mean, squared distance",
        reference="Ozkara et al. 2022, section 3.1",
        passes_to=em,
    ),
    Method(
        name="gaussian-prior",
        factory=priors.gaussian_prior,
        population="Gaussian around a learned mean (l2 penalty)",
        sends="increments of the mean",
        reference="Ozkara et al. 2022, section 3",
    ),
    Method(
        name="laplace-em",
        factory=priors.laplace_em,
        population="Laplace with a learned mean and spread",
        sends="statistics of the client's posterior: weighted mean, weights, distance",
        reference="Ozkara et al. 2022, section 3",
        passes_to=em,
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
    Method(
        name="mixture-clustering",
        factory=clustering.mixture_clustering,
        population="Gaussian mixture, by clustering (collapses: prefer mixture-em)",
        sends="the client's model, seen by the server",
        reference="Ozkara et al. 2022, Algorithm 4",
        remark=clustering.COLLAPSE,
        passes_to=clustering.mixture_clustering,
    ),
    Method(
        name="mixture-em",
        factory=priors.mixture_em,
        population="Gaussian mixture with learned shares, centers and spreads",
        sends="statistics of the client's posterior by component",
        reference="Ozkara et al. 2022, Algorithm 4, corrected",
        passes_to=em,
    ),
    Method(
        name="shared-body",
        factory=representation.shared_body,
        population="a network's body of all, a head (last layer) of each client's own",
        sends="increments of the body",
        reference="Arivazhagan et al. 2019; Collins et al. 2021",
    ),
    Method(
        name="shared-subspace",
        factory=representation.shared_subspace,
        population="a mean and a basis of all, coordinates of each client's own: mean + B w",
        sends="increments of the mean and of the basis",
        reference="Ozkara et al. 2022, section 3.6",
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
