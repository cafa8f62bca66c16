"""Every algorithm that the laws run."""

import pytest

import fedprior

FAST = {"local_steps": 3, "batches": fedprior.Batches(size=4)}


def algorithms():
    model = fedprior.mlp((4,), 3, hidden=(5,))
    return {
        "adaped": lambda: fedprior.adaped(model, **FAST),
        "adaped-paper": lambda: fedprior.adaped(model, upload_stale=True, start="initial", **FAST),
        "adaped-fine-tuning": lambda: fedprior.adaped_fine_tuning(model, catch_up=5, **FAST),
        "fedavg": lambda: fedprior.fedavg(model, weight="samples", **FAST),
        "fedavg-fine-tuning": lambda: fedprior.fedavg_fine_tuning(
            model, fine_tuning_steps=4, **FAST
        ),
        "fedem": lambda: fedprior.fedem(model, **FAST),
        "local": lambda: fedprior.local(model, **FAST),
        "gaussian-prior": lambda: fedprior.gaussian_prior(model, scale=0.5, **FAST),
        "laplace-prior": lambda: fedprior.laplace_prior(model, scale=0.5, **FAST),
    }


@pytest.fixture(scope="session", params=sorted(algorithms()))
def algorithm(request):
    return algorithms()[request.param]()
