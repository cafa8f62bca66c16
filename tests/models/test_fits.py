"""Networks that do not fit the clients are refused before a run."""

import jax
import jax.numpy as jnp
import pytest

import fedprior
from fedprior.models.fits import check_network


def dense(normalize):
    """One layer on 3 features for 2 classes, behind a normalization of the inputs."""

    def init(key):
        return jax.random.normal(key, (3, 2))

    return fedprior.network(init, lambda weight, x: normalize(x) @ weight)


def test_batch_normalization_is_refused():
    by_batch = dense(lambda x: (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3))
    with pytest.raises(ValueError, match=r"^network: the output for a sample changes with the oth"):
        check_network(by_batch, (3,), 2)
    by_sample = dense(lambda x: x - x.mean(axis=1, keepdims=True))
    check_network(by_sample, (3,), 2)


@pytest.mark.parametrize(
    ("model", "shape", "classes"),
    [
        (fedprior.models.lenet5(), (28, 28, 1), 10),
        (fedprior.mlp((4,), 3, hidden=(5,)), (4,), 3),
        (fedprior.models.logistic(4, 3), (4,), 3),
        (fedprior.models.linear(4), (4,), None),
        (fedprior.mlp((4,), 1, hidden=(5,), regression=True), (4,), None),
    ],
)
def test_our_own_networks_fit(model, shape, classes):
    check_network(model, shape, classes)


@pytest.mark.parametrize(("classes", "words"), [(3, "3 classes"), (None, "a quantity")])
def test_outputs_that_do_not_match_the_target_are_refused(classes, words):
    wording = rf"^network: outputs must be of shape .* for 4 samples and {words}, got \(4, 2\)"
    with pytest.raises(ValueError, match=wording):
        check_network(dense(jnp.asarray), (3,), classes)
