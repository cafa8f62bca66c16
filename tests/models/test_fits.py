"""Networks that do not fit the clients are refused before a run."""

from dataclasses import dataclass

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
        check_network(by_batch, (3,), (2,))
    by_sample = dense(lambda x: x - x.mean(axis=1, keepdims=True))
    check_network(by_sample, (3,), (2,))


def test_dropout_by_a_fixed_key_is_refused():
    """Its mask depends on a sample's place in the batch, and is the same in every step."""

    def dropped(x):
        return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), x, 0)

    with pytest.raises(ValueError, match=r"^network: .* changes with its place in the batch, as w"):
        check_network(dense(dropped), (3,), (2,))


def test_a_layer_that_wants_a_key_or_changes_statistics_is_told_how_networks_are_applied():
    def wants(x):
        raise RuntimeError("Dropout requires a key.")

    with pytest.raises(
        ValueError, match=r"of shape .3,.: Dropout requires a key\. A run applies networks as for p"
    ):
        check_network(dense(wants), (3,), (2,))


def test_statistics_of_batches_are_not_parameters():
    """`init` of a Flax module returns both."""

    def init(key):
        return {"params": jnp.ones((3, 2)), "batch_stats": {"norm": {"var": jnp.ones(3)}}}

    model = fedprior.network(init, lambda given, x: x @ given["params"])
    with pytest.raises(ValueError, match=r"^network: parameters must be without batch_stats, whic"):
        check_network(model, (3,), (2,))


def test_outputs_that_are_not_finite_are_named():
    with pytest.raises(ValueError, match=r"^network: outputs must be finite .* got nan for inputs"):
        check_network(dense(lambda x: jnp.log(-x)), (3,), (2,))


def test_half_precision_within_a_network_fits():
    """Rows of a product may be rounded in other ways."""
    check_network(dense(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32)), (3,), (2,))


@dataclass
class Scaled:
    """A model of one's own that cannot be hashed, with scales that must stay positive."""

    by_batch: bool = False

    def init(self, key):
        return {"scale": jnp.ones(20), "weight": jax.random.normal(key, (20, 2))}

    def apply(self, parameters, x):
        x = x - x.mean(axis=0) if self.by_batch else x
        return x * jnp.log(2 * parameters["scale"]) @ parameters["weight"]


def test_a_model_of_ones_own_may_be_a_plain_dataclass_with_parameters_of_a_limited_range():
    check_network(Scaled(), (20,), (2,))
    with pytest.raises(ValueError, match="batch normalization"):
        check_network(Scaled(by_batch=True), (20,), (2,))


def test_initial_parameters_are_drawn_only_where_others_are_out_of_range():
    """Compiling their draws takes longer than all the rest."""
    drawn = []

    class Counted(Scaled):
        def init(self, key):
            drawn.append(not isinstance(key, jax.core.Tracer))
            return super().init(key)

    check_network(Counted(), (20,), (2,))
    assert drawn == [False, True]
    drawn.clear()
    Counted.apply = lambda self, parameters, x: x * parameters["scale"] @ parameters["weight"]
    check_network(Counted(), (20,), (2,))
    assert drawn == [False]


@pytest.mark.parametrize(
    ("model", "shape", "outputs"),
    [
        (fedprior.models.lenet5(), (28, 28, 1), (10,)),
        (fedprior.mlp((4,), 3, hidden=(5,)), (4,), (3,)),
        (fedprior.models.logistic(4, 3), (4,), (3,)),
        (fedprior.models.linear(4), (4,), ()),
        (fedprior.mlp((4,), 1, hidden=(5,), regression=True), (4,), ()),
    ],
)
def test_our_own_networks_fit(model, shape, outputs):
    """Their own target, and no other."""
    check_network(model, shape, outputs)
    with pytest.raises(ValueError, match=r"^network: outputs for 4 samples must be of shape"):
        check_network(model, shape, (2,) if outputs == () else ())


@pytest.mark.parametrize(("outputs", "words"), [((3,), "one per class .3."), ((), "one number")])
def test_outputs_that_do_not_match_the_target_are_refused(outputs, words):
    wording = rf"^network: outputs for 4 samples must be of shape .*{words}.* got \(4, 2\)"
    with pytest.raises(ValueError, match=wording):
        check_network(dense(jnp.asarray), (3,), outputs)


@pytest.mark.parametrize("engine", [fedprior.simulate, fedprior.debug])
def test_a_run_of_a_network_that_does_not_fit_ends_before_it_begins(federation, engine):
    few = fedprior.mlp(federation.shape, 2, hidden=(3,))  # of 3 classes
    with pytest.raises(ValueError, match="one per class"):
        engine(fedprior.learning.fedavg(few), federation, rounds=1)
    wide = fedprior.mlp(federation.shape, 3, hidden=(3,))
    by_batch = fedprior.network(wide.init, lambda theta, x: wide.apply(theta, x - x.mean(axis=0)))
    with pytest.raises(ValueError, match="batch normalization"):
        engine(fedprior.adaped(by_batch), federation, rounds=1)


def test_a_network_for_other_inputs_is_refused():
    with pytest.raises(
        ValueError, match=r"^network: it cannot be applied to float32 samples of shape .3,."
    ):
        check_network(fedprior.models.linear(2), (3,), ())


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        (lambda key: jnp.arange(3), r"got int32 at more/0\. Keep what is not trained out of them"),
        (lambda key: jnp.ones(3, bool), "got bool at more/0"),
        (lambda key: key, "got key<fry> at more/0"),
        (lambda key: jnp.ones(3, jnp.bfloat16), r"got bfloat16 at more/0\. Convert it in init"),
        (lambda key: jnp.ones(3, complex), r"got complex64 at more/0\. Train its real and its im"),
        (lambda key: jnp.tanh, r"parameters must be arrays\. Keep what is not trained out of them"),
    ],
)
def test_parameters_that_no_gradient_can_train_are_refused(part, rule):
    def init(key):
        return {"weight": jax.random.normal(key, (3, 2)), "more": [part(key)]}

    model = fedprior.network(init, lambda parameters, x: x @ parameters["weight"])
    with pytest.raises(TypeError, match=f"^network: .*{rule}"):
        check_network(model, (3,), (2,))


@pytest.mark.parametrize(
    ("outputs", "rule"),
    [
        (lambda y: (y, y.sum()), r"outputs must be one array, got \(\(4, 2\), \(\)\)"),
        (lambda y: {"logits": y}, r"outputs must be one array, got {'logits': \(4, 2\)}"),
        (lambda y: y.astype(jnp.bfloat16), "outputs must be real numbers of at least 32 bits, got"),
        (lambda y: y + 1j, "outputs must be real numbers of at least 32 bits, got complex64"),
        (lambda y: y @ y, r"it cannot be applied to float32 samples of shape \(3,\): "),
        (lambda y: [][0], r"it cannot be applied to float32 samples of shape \(3,\): list index"),
    ],
)
def test_outputs_other_than_an_array_of_real_numbers_are_refused(outputs, rule):
    def init(key):
        return jax.random.normal(key, (3, 2))

    model = fedprior.network(init, lambda weight, x: outputs(x @ weight))
    with pytest.raises(ValueError, match=f"^network: {rule}"):
        check_network(model, (3,), (2,))
