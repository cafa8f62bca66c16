"""Methods of personalized learning: each factory returns an `Algorithm`."""

from fedprior.learning.adamap import adamap
from fedprior.learning.adaped import adaped, adaped_fine_tuning
from fedprior.learning.adaptive_clip import adaptive_clip
from fedprior.learning.alternating import alternating
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
from fedprior.learning.baselines.l2gd import l2gd
from fedprior.learning.baselines.lg_fedavg import lg_fedavg
from fedprior.learning.baselines.local import local
from fedprior.learning.baselines.mean_regularized import mean_regularized
from fedprior.learning.baselines.mutual_learning import mutual_learning
from fedprior.learning.baselines.per_fedavg import per_fedavg
from fedprior.learning.baselines.pfedme import pfedme
from fedprior.learning.baselines.pfedvem import pfedvem
from fedprior.learning.baselines.quped import quped
from fedprior.learning.batches import Batches
from fedprior.learning.cautious import cautious
from fedprior.learning.em import em
from fedprior.learning.multitask import multitask
from fedprior.learning.optimizer import optimized
from fedprior.learning.paper import mixture_clustering
from fedprior.learning.priors import (
    clustered,
    discrete_mixture,
    gaussian_em,
    gaussian_prior,
    laplace_em,
    laplace_prior,
    mixture_em,
)
from fedprior.learning.representation import shared_subspace
from fedprior.learning.steps import Steps

__all__ = [
    "Batches",
    "Steps",
    "adamap",
    "adaped",
    "adaped_fine_tuning",
    "adaptive_clip",
    "alternating",
    "apfl",
    "cautious",
    "clustered",
    "discrete_mixture",
    "ditto",
    "em",
    "fedavg",
    "fedavg_fine_tuning",
    "fedbabu",
    "fedem",
    "fedmd",
    "fedper",
    "fedprox",
    "fedrep",
    "fedrod",
    "gaussian_em",
    "gaussian_prior",
    "ifca",
    "l2gd",
    "laplace_em",
    "laplace_prior",
    "lg_fedavg",
    "local",
    "mean_regularized",
    "mixture_clustering",
    "mixture_em",
    "multitask",
    "mutual_learning",
    "optimized",
    "per_fedavg",
    "pfedme",
    "pfedvem",
    "quped",
    "shared_subspace",
]
