"""Every method by its name on the command line."""

import contextlib
from collections.abc import Sequence
from typing import Any

from fedprior.core import check
from fedprior.learning.adamap import adamap, fixed_under_noise
from fedprior.learning.adaped import adaped, adaped_fine_tuning
from fedprior.learning.baselines.apfl import apfl
from fedprior.learning.baselines.ditto import ditto
from fedprior.learning.baselines.fedavg import fedavg, fedavg_fine_tuning
from fedprior.learning.baselines.fedbabu import fedbabu
from fedprior.learning.baselines.fedem import fedem
from fedprior.learning.baselines.fedmd import fedmd
from fedprior.learning.baselines.fedper import fedper
from fedprior.learning.baselines.fedprox import fedprox
from fedprior.learning.baselines.fedrep import fedrep
from fedprior.learning.baselines.fedrod import fedrod
from fedprior.learning.baselines.ifca import ifca
from fedprior.learning.baselines.l2gd import CUT, l2gd
from fedprior.learning.baselines.lg_fedavg import lg_fedavg
from fedprior.learning.baselines.local import local
from fedprior.learning.baselines.mean_regularized import mean_regularized
from fedprior.learning.baselines.mutual_learning import mutual_learning
from fedprior.learning.baselines.per_fedavg import per_fedavg
from fedprior.learning.baselines.pfedme import pfedme
from fedprior.learning.baselines.pfedvem import pfedvem
from fedprior.learning.baselines.quped import quped
from fedprior.learning.method import Method
from fedprior.learning.paper import COLLAPSE, mixture_clustering
from fedprior.learning.priors import (
    clustered,
    discrete_mixture,
    gaussian_em,
    gaussian_prior,
    laplace_em,
    laplace_prior,
    mixture_em,
    shares_under_noise,
)
from fedprior.learning.representation import shared_subspace
from fedprior.learning.traffic import outline, traffic, trusted_with
from fedprior.models.network import Network

# Why a server cannot add momentum, or average over rounds.
_STATISTICS = "its server fits the population to statistics of the clients' posteriors"
_THETAS = "its mean is the average of the clients' own models, not the end of steps"
_NOBODY = "nothing is shared"
_METHODS = (
    Method(
        factory=adamap,
        adapt=fixed_under_noise,
        population="a shared network that counts as a learned number of samples; class frequencies",
        sends="increments of network and class frequencies; how well 20 priors predict",
        reference="fedprior's own: docs/explanation/adamap.md",
    ),
    Method(
        factory=adaped,
        population="distillation: a prior on predictions, with a learned spread psi",
        sends="increments of the mean model and of psi",
        reference="Ozkara et al. 2022, Algorithm 5",
    ),
    Method(
        factory=adaped_fine_tuning,
        population="distillation; clients train on between rounds",
        sends="increments of the mean model and of psi",
        reference="Ozkara et al. 2022, Algorithm 6",
    ),
    Method(
        factory=apfl,
        population="point mass; a client mixes a model of its own with the shared one",
        sends="increments of the shared model",
        reference="Deng et al. 2020",
    ),
    Method(
        factory=clustered,
        adapt=shares_under_noise,
        population="a few models of all, each client being of one kind",
        sends="increments of the client's likeliest model",
        reference="after Ghosh et al. 2020 (ifca), with learned shares",
    ),
    Method(
        factory=discrete_mixture,
        adapt=shares_under_noise,
        population="a few models of all, each client probably of one kind",
        sends="increments of every model, weighted by the client's probabilities",
        reference="Ozkara et al. 2022, Algorithm 7",
    ),
    Method(
        factory=ditto,
        population="point mass, and a Gaussian around it for a client's own model",
        sends="increments of the shared model",
        reference="Li, Hu et al. 2021",
    ),
    Method(
        factory=fedavg,
        personal=False,
        population="point mass: one model for all",
        sends="increments of the model",
        reference="McMahan et al. 2017",
    ),
    Method(
        factory=fedavg_fine_tuning,
        population="point mass, then steps on own data",
        sends="increments of the model",
        reference="Jiang et al. 2019",
    ),
    Method(
        factory=fedbabu,
        population="a network's body of all under a random head, then steps on own data",
        sends="increments of the body",
        reference="Oh et al. 2022",
    ),
    Method(
        factory=fedem,
        population="mixture: shares of a client's own over a few models of all",
        sends="increments of every model",
        reference="Marfoq et al. 2021",
    ),
    Method(
        factory=fedmd,
        population="networks of the clients' own, which agree on outputs for public inputs",
        sends="the network's outputs for public inputs minus the consensus",
        reference="Li and Wang 2019, without public labels",
        still="its clients send outputs for public inputs, and no network",
    ),
    Method(
        factory=fedper,
        population="a network's body of all, a head (last layer) of each client's own",
        sends="increments of the body",
        reference="Arivazhagan et al. 2019",
    ),
    Method(
        factory=fedprox,
        personal=False,
        population="point mass; clients stay near the model received",
        sends="increments of the model",
        reference="Li, Sahu et al. 2020",
    ),
    Method(
        factory=fedrep,
        population="a network's body of all, a head of each client's own, learned first",
        sends="increments of the body",
        reference="Collins et al. 2021",
    ),
    Method(
        factory=fedrod,
        population="a network of all, of balanced classes; a head of each client's own on top",
        sends="increments of the network",
        reference="Chen and Chao 2022, linear",
    ),
    Method(
        factory=gaussian_em,
        population="Gaussian with a learned mean and spread",
        sends="statistics of the client's posterior: mean, squared distance",
        reference="Ozkara et al. 2022, section 3.1",
        still=_STATISTICS,
    ),
    Method(
        factory=gaussian_prior,
        population="Gaussian around a learned mean (l2 penalty)",
        sends="increments of the mean",
        reference="Ozkara et al. 2022, section 3",
    ),
    Method(
        factory=ifca,
        population="a few models of all, each client being of the kind that fits best",
        sends="increments of the client's model, zeros for the others",
        reference="Ghosh et al. 2020",
    ),
    Method(
        factory=l2gd,
        population="Gaussian around the thetas' average, approached at random moments",
        sends="the client's model minus the average",
        reference="Hanzely and Richtarik 2020",
        remark=CUT,
        still=_THETAS,
    ),
    Method(
        factory=laplace_em,
        population="Laplace with a learned mean and spread",
        sends="statistics of the client's posterior: weighted mean, weights, distance",
        reference="Ozkara et al. 2022, section 3",
        still=_STATISTICS,
    ),
    Method(
        factory=laplace_prior,
        population="Laplace around a learned mean (l1 penalty)",
        sends="increments of the mean",
        reference="Ozkara et al. 2022, section 3",
    ),
    Method(
        factory=lg_fedavg,
        population="a network's head of all, a body of each client's own",
        sends="increments of the head",
        reference="Liang et al. 2020",
    ),
    Method(
        factory=local,
        population="none: every client alone, at the same number of steps",
        sends="nothing",
        reference="",
        alone=True,
        still=_NOBODY,
    ),
    Method(
        called="local-converged",
        factory=local,
        population="none: every client alone, until validation scores stop rising",
        sends="nothing",
        reference="",
        alone=True,
        still=_NOBODY,
    ),
    Method(
        factory=mean_regularized,
        population="Gaussian around the thetas' average (l2 penalty)",
        sends="the client's model minus the average",
        reference="Evgeniou and Pontil 2004; Smith et al. 2017",
        still=_THETAS,
    ),
    Method(
        factory=mixture_clustering,
        population="Gaussian mixture, by clustering (collapses: prefer mixture-em)",
        sends="the client's model, seen by the server",
        reference="Ozkara et al. 2022, Algorithm 4",
        remark=COLLAPSE,
        still="its server clusters the clients' models",
        several=False,
    ),
    Method(
        factory=mixture_em,
        adapt=shares_under_noise,
        population="Gaussian mixture with learned shares, centers and spreads",
        sends="statistics of the client's posterior by component",
        reference="Ozkara et al. 2022, Algorithm 4, corrected",
        still=_STATISTICS,
    ),
    Method(
        factory=mutual_learning,
        population="a private and a shared model at each client, teaching each other",
        sends="increments of the shared model",
        reference="Shen et al. 2020",
    ),
    Method(
        factory=per_fedavg,
        population="one model for all, then one step on own data, which it was trained for",
        sends="increments of the model",
        reference="Fallah et al. 2020",
    ),
    Method(
        factory=pfedme,
        population="Gaussian of one l2 penalty around a learned mean (Moreau envelopes)",
        sends="increments of the mean",
        reference="Dinh et al. 2020",
    ),
    Method(
        factory=pfedvem,
        population="a body of all; Gaussian heads around a mean, each of a spread of its own",
        sends="increments of the body, of the head by confidence, and the confidence",
        reference="Zhu et al. 2023",
    ),
    Method(
        factory=quped,
        population="distillation: a prior on predictions, of a fixed spread",
        sends="increments of the mean model",
        reference="Ozkara et al. 2021, without quantization",
    ),
    Method(
        factory=shared_subspace,
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


def describe(model: Network, shape: Sequence[int]) -> list[dict[str, Any]]:
    """One row per method, with its bytes per client and round for `model`.

    Bytes are None where the method refuses the model.
    """
    network = outline(model, shape)
    rows = []
    for method in _METHODS:
        row: dict[str, Any] = {
            "name": method.name,
            "population": method.population,
            "sends": method.sends,
            "upload_bytes": None,
            "download_bytes": None,
            "server_trusted_with": None,
            "reference": method.reference,
            "options": ", ".join(method.options()),
        }
        with contextlib.suppress(ValueError):
            algorithm = method.build(network, {})
            upload, download = traffic(algorithm, shape, regression=model.regression)
            row |= {"upload_bytes": upload, "download_bytes": download}
            row |= {"server_trusted_with": trusted_with(algorithm, upload)}
        rows.append(row)
    return rows
