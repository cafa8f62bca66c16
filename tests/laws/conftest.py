"""Every algorithm that the laws run.

Those of `ON_DEMAND` share their functions with another one here, or have a twin of whole rounds in
tests/learning/baselines, and run with `-m evidence`: each costs 10 to 25 seconds of compilation.
"""

import numpy as np
import pytest

import fedprior
from fedprior.learning.paper import CollapseWarning

ON_DEMAND = {
    "adamap",
    "adaped-paper",
    "apfl",
    "discrete-mixture",
    "ditto",
    "fedavg",
    "fedprox",
    "fedrep",
    "gaussian-prior",
    "ifca",
    "l2gd",
    "laplace-em",
    "laplace-prior",
    "local",
    "mean-regularized",
    "mixture-clustering",
    "mixture-em",
    "mutual-learning",
    "per-fedavg",
    "pfedme",
    "quped",
    "shared-body",
    "shared-subspace",
}
FAST = {"steps": fedprior.Steps(local_steps=3, batches=fedprior.Batches(size=4))}


def algorithms():
    model, small = fedprior.mlp((4,), 3, hidden=(5,)), fedprior.logistic(4, 3)
    return {
        "adamap": lambda: fedprior.adamap(small, newcomer_steps=3, **FAST),
        "adaped": lambda: fedprior.adaped(model, **FAST),
        "adaped-paper": lambda: fedprior.adaped(model, method="paper", start="initial", **FAST),
        "adaped-fine-tuning": lambda: fedprior.adaped_fine_tuning(model, catch_up=5, **FAST),
        "fedavg": lambda: fedprior.fedavg(model, **FAST),
        "fedavg-fine-tuning": lambda: fedprior.fedavg_fine_tuning(
            model, fine_tuning_steps=4, weight="samples", **FAST
        ),
        "fedem": lambda: fedprior.fedem(model, **FAST),
        "apfl": lambda: fedprior.apfl(small, mixing_rate=0.1, **FAST),
        "ditto": lambda: fedprior.ditto(small, **FAST),
        "fedprox": lambda: fedprior.fedprox(small, **FAST),
        "fedrep": lambda: fedprior.fedrep(model, head_steps=2, **FAST),
        "ifca": lambda: fedprior.ifca(small, **FAST),
        "l2gd": lambda: fedprior.l2gd(small, **FAST),
        "mean-regularized": lambda: fedprior.mean_regularized(small, **FAST),
        "local": lambda: fedprior.local(model, **FAST),
        "mutual-learning": lambda: fedprior.mutual_learning(small, **FAST),
        "per-fedavg": lambda: fedprior.per_fedavg(small, order="exact", **FAST),
        "pfedme": lambda: fedprior.pfedme(small, weight="samples", **FAST),
        "quped": lambda: fedprior.quped(small, **FAST),
        "gaussian-prior": lambda: fedprior.gaussian_prior(model, scale=0.5, **FAST),
        "laplace-prior": lambda: fedprior.laplace_prior(model, scale=0.5, **FAST),
        # Those of em share their functions; the smaller model compiles in half the time.
        "clustered": lambda: fedprior.clustered(small, **FAST),
        "discrete-mixture": lambda: fedprior.discrete_mixture(small, **FAST),
        "laplace-em": lambda: fedprior.laplace_em(small, scale=0.5, **FAST),
        "shared-subspace": lambda: fedprior.shared_subspace(small, rank=2, **FAST),
        "gaussian-em": lambda: fedprior.gaussian_em(model, scale=0.5, **FAST),
        "mixture-clustering": lambda: mixture_clustering(small),
        "mixture-em": lambda: fedprior.mixture_em(small, scale=0.5, **FAST),
        "multitask": lambda: fedprior.multitask(
            model, fedprior.Multitask(covariance=0.5 * np.eye(5) + 0.5), **FAST
        ),
        "shared-body": lambda: fedprior.shared_body(model, head_steps=2, **FAST),
    }


def mixture_clustering(model):
    with pytest.warns(CollapseWarning):
        return fedprior.mixture_clustering(model, **FAST)


def marked(name):
    return pytest.param(name, marks=pytest.mark.evidence) if name in ON_DEMAND else name


@pytest.fixture(scope="session", params=[marked(name) for name in sorted(algorithms())])
def algorithm(request):
    return algorithms()[request.param]()
