"""Every method by name, with options that are what they say."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedprior
from fedprior.core import random
from fedprior.learning import catalog
from fedprior.learning.judging import PRIOR_SAMPLES, SMOOTHING
from fedprior.learning.method import ChannelNoise
from fedprior.learning.traffic import outline, sketch, traffic

# A value of each option other than its default.
VALUES = {
    "class_frequencies": True,  # AdaMAP's default
    "gradient_norm": 2.0,
    "horizon": 5.0,
    "momentum": 0.5,
    "networks": 2,
    "prior_samples": 1.0,
    "judge_every": 2,
    "smoothing": 1.0,
    "averaging": "gradients",
    "catch_up": 7,
    "clip": 2.0,
    "curvature": "full",
    "curvature_samples": 8,
    "decay": 0.9,
    "degrees": 2.0,
    "digest_rate": 0.2,
    "digest_steps": 1,
    "direction": "reverse",
    "fine_tuning_rate": 0.01,
    "fine_tuning_steps": 3,
    "gamma_rate": 0.2,
    "gamma_share": 0.5,
    "head": "1",
    "head_steps": 2,
    "initial_psi": 2.0,
    "inner_steps": 2,
    "jitter": 0.1,
    "learn_mean": False,
    "method": "paper",
    "mixing": 0.25,
    "mixing_rate": 0.1,
    "newcomer_steps": 0,
    "last_steps": 0,
    "personal_steps": 2,
    "share_floor": 0.1,
    "noise_variance": None,  # for a quantity only
    "normalizer": "exact",
    "num_components": 3,
    "num_draws": 2,
    "num_public": 7,
    "order": "exact",
    "penalty": 0.5,
    "per_coordinate": True,
    "probability": 0.25,
    "psi_floor": 0.1,
    "psi_rate": 0.01,
    "psi_scale": 0.1,
    "public": np.linspace(-2, 2, 24).reshape(6, 4),
    "rank": 3,
    "scale": 0.3,
    "scale_floor": 0.01,
    "server_rate": 0.5,
    "start": "initial",
    "steps_per_epoch": 10,
    "temperature": 2.0,
    "theta_rate": 0.2,
    "theta_share": 0.5,
    "weight": "samples",
    "weight_decay": 1e-3,
}
MODEL = fedprior.mlp((4,), 3, hidden=(5,))  # a body and a head


@pytest.mark.filterwarnings("ignore::fedprior.learning.paper.CollapseWarning")
@pytest.mark.parametrize("name", sorted(catalog.METHODS))
def test_every_method_builds_and_takes_each_option_it_lists(name):
    method = catalog.method(name)
    algorithm = method.build(MODEL, {})
    assert isinstance(algorithm, fedprior.Algorithm)
    options = method.options()
    assert len(set(options)) == len(options)
    for option in options:
        assert isinstance(method.build(MODEL, {option: VALUES[option]}), fedprior.Algorithm)
    assert bool(method.still) == (algorithm.moved is None)  # it says why there is no momentum
    assert ("momentum" in options) == (not method.still)


def test_options_are_listed_where_they_are_understood():
    listed = {name: set(catalog.method(name).options()) for name in catalog.METHODS}
    psi = {"psi_rate", "initial_psi", "psi_floor", "direction", "temperature", "degrees"}
    assert psi <= listed["adaped"]
    # Who trains on between rounds begins at the initial model.
    assert listed["adaped-fine-tuning"] == listed["adaped"] - {"start"}
    assert not psi & listed["fedavg"]
    assert "fine_tuning_steps" in listed["fedavg-fine-tuning"]
    assert "scale" in listed["gaussian-prior"]
    assert "theta_rate" not in listed["fedem"]  # its clients have shares, and no model to move
    for name in ("per-fedavg", "pfedme"):  # everybody's model is made anew from the shared one
        assert {"theta_rate", "weight"} <= listed[name]
        assert not {"newcomer_steps", "start"} & listed[name]
    assert {"theta_share", "gamma_share", "start"} <= listed["mutual-learning"]
    assert "catch_up" not in listed["mutual-learning"]
    assert {"penalty", "direction", "temperature"} <= listed["quped"]
    assert not {"psi_rate", "psi_floor"} & listed["quped"]  # its spread is not learned
    unmoved = {"mixture-clustering", "mean-regularized", "l2gd"}  # gamma is replaced, or stays
    unmoved |= {"local", "local-converged", "fedmd"}
    assert {"theta_rate", "newcomer_steps"}.isdisjoint(listed["ifca"])
    assert "penalty" in listed["ditto"]
    assert "catch_up" not in listed["fedrep"]  # it would be refused: the head is ahead already
    assert {"curvature", "scale", "scale_floor"} <= listed["gaussian-em"]
    assert not {"start", "catch_up"} & listed["gaussian-em"]
    for name, options in listed.items():
        assert "decay" in options
        assert ("gamma_rate" in options) == (name not in unmoved)
        assert (
            not {"local_steps", "model", "population", "name", "batches", "rule", "options"}
            & options
        )


# One number of each kind that a sweep may vary, beside every method's own.
SWEPT = {name for name, value in VALUES.items() if isinstance(value, float)}


@pytest.mark.filterwarnings("ignore::fedprior.learning.paper.CollapseWarning")
@pytest.mark.parametrize("name", sorted(catalog.METHODS))
def test_every_number_that_is_no_count_may_be_an_axis_of_a_sweep(name):
    """The method is built and traced, not compiled, with a tracer for each of them."""
    method = catalog.method(name)
    swept = {option: VALUES[option] for option in method.options() if option in SWEPT}
    assert {"decay", "weight_decay", "clip"} <= swept.keys()

    def one_round(numbers):
        steps = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=2))
        algorithm, key = method.build(MODEL, numbers, steps=steps), random.root(0)
        state = algorithm.init(key)
        memory = algorithm.enroll(state, 0, key)
        message, memory = algorithm.local(state, memory, data, key)
        if algorithm.pools == "gather":
            message = jax.tree.map(lambda leaf: leaf[None], message)
        state = algorithm.update(state, message)
        return state, algorithm.personalize(state, memory, data, key)

    data = jax.tree.map(jnp.asarray, sketch((4,)))
    state, theta = jax.eval_shape(one_round, swept)
    assert jax.tree.leaves(state)
    assert jax.tree.leaves(theta)


def test_options_override_what_all_methods_share():
    method, steps = catalog.method("adaped"), fedprior.Steps(local_steps=1)
    with pytest.raises(ValueError, match="local_steps must be above 1"):
        method.build(MODEL, {"method": "paper"}, steps=steps, method="corrected")
    with pytest.raises(ValueError, match="decay must be in"):
        method.build(MODEL, {"decay": 2.0}, steps=steps)


def test_unknown_names_and_options_are_named_with_the_nearest():
    wording = r"^adaped: option must be one of .*, got 'psi_rat'\. Did you mean psi_rate\?"
    with pytest.raises(ValueError, match=wording):
        catalog.method("adaped").build(MODEL, {"psi_rat": 0.1})
    with pytest.raises(ValueError, match=r"^fedavg: option must be one of .*, got 'psi_rate'"):
        catalog.method("fedavg").build(MODEL, {"psi_rate": 0.1})
    wording = r"^pfedme: option must be one of .*, got 'newcomer_step'"
    with pytest.raises(ValueError, match=wording):
        catalog.method("pfedme").build(MODEL, {"newcomer_step": 1})
    with pytest.raises(ValueError, match=r"got 'fedavrg'\. Did you mean fedavg\?"):
        catalog.method("fedavrg")


# Options of other methods that mean nothing to these.
WITHOUT = {
    "fedavg": ("theta_rate", "start", "newcomer_steps", "catch_up"),
    "local": ("gamma_rate", "start", "weight"),
    "clustered": ("theta_rate", "curvature_samples", "newcomer_steps", "personal_steps"),
    "mean-regularized": ("gamma_rate",),
    "fedper": ("start",),
    "fedbabu": ("theta_rate", "newcomer_steps"),
    "adaped-fine-tuning": ("start",),
}


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_options_without_meaning_may_be_shared_but_not_chosen(name):
    """A caller may give one value to all methods alike; a user's choice would have no effect."""
    method = catalog.method(name)
    for option in WITHOUT[name]:
        value = {option: VALUES[option]}
        assert isinstance(method.build(MODEL, {}, **value), fedprior.Algorithm)
        with pytest.raises(ValueError, match=rf"^{name}: option must be one of .*, got '{option}'"):
            method.build(MODEL, value)
        factory = name.replace("-", "_")
        with pytest.raises(TypeError, match=rf"^{factory}: got an unexpected keyword .*'{option}'"):
            getattr(fedprior.learning, factory)(MODEL, **value)


def test_a_factory_shows_the_options_it_passes_on():
    parameters = inspect.signature(fedprior.learning.fedavg).parameters
    assert list(parameters) == ["model", "steps", "gamma_rate", "weight"]
    assert parameters["gamma_rate"].default == 0.1
    assert catalog.method("fedavg").default("decay") == 1.0


def test_the_description_has_a_row_a_method():
    rows = {row["name"]: row for row in catalog.describe(fedprior.models.logistic(4, 3), (4,))}
    assert list(rows) == list(catalog.METHODS)
    model, clock = 15 * 4, 4  # bytes: 15 parameters; the round's number
    for name, up, down, server in (
        ("fedavg", model, model + clock, "sums only"),
        ("adaped", model + 4, model + 4 + clock, "sums only"),
        ("ifca", 2 * model + 8, 2 * model + 8 + clock, "sums only"),
        ("mixture-clustering", model, 3 * model + 4 * 4 + 4, "every client's model"),
        ("local", 0, 0, "nothing"),
        ("fedper", None, None, None),  # a single layer has no body
    ):
        row = rows[name]
        assert (row["upload_bytes"], row["download_bytes"]) == (up, down), name
        assert row["server_trusted_with"] == server
    assert all(row["population"] and row["sends"] for row in rows.values())


def test_a_network_of_layers_is_refused_by_no_method():
    """A refusal leaves a row without figures, and so would a method that does not build."""
    for row in catalog.describe(fedprior.models.lenet5(), (28, 28, 1)):
        assert row["upload_bytes"] is not None, row["name"]
        assert row["server_trusted_with"] is not None


def test_clients_receive_what_they_read():
    """AdaMAP's momentum stays at the server; its average does, too, if no prior is judged by it."""
    model = fedprior.models.logistic(4, 3)
    own, plain = fedprior.adamap(model), fedprior.learning.fedavg(model)
    judged = traffic(own, (4,))
    alone = traffic(fedprior.adamap(model, judge_every=0), (4,))
    assert alone == traffic(plain, (4,))
    # Weight and usual loss, gains, frequencies.
    numbers = 2 + len(PRIOR_SAMPLES) + len(SMOOTHING) + 3
    assert judged.upload - alone.upload == 4 * numbers
    assert judged.download - alone.download == 4 * (1 + 3 + 15)  # smoothing, pi and the average


def test_a_weight_that_clients_differ_in_is_sent():
    model = fedprior.models.logistic(4, 3)
    plain, weighted = (
        fedprior.learning.fedavg(model, weight=word) for word in ("uniform", "samples")
    )
    assert traffic(weighted, (4,)).upload - traffic(plain, (4,)).upload == 4


def test_an_outline_sends_what_the_model_sends():
    model = fedprior.mlp((4,), 3, hidden=(5,))
    thin = outline(model, (4,))
    for build in (fedprior.adaped, fedprior.learning.fedper, fedprior.learning.gaussian_em):
        assert traffic(build(thin), (4,)) == traffic(build(model), (4,))


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        ({"psi_rate": -1}, "adaped: psi_rate must be a number of at least 0, got -1"),
        ({"start": "end"}, "adaped: start must be one of population, initial, got 'end'"),
        ({"weight": "size"}, "adaped: weight must be one of uniform, samples, got 'size'"),
        ({"newcomer_steps": -1}, "adaped: newcomer_steps must be a whole number of at least 0"),
        ({"catch_up": -1}, "adaped: catch_up must be a whole number of at least 0, got -1"),
        ({"theta_rate": -1}, "adaped: theta_rate must be a number of at least 0, got -1"),
        (
            {"method": "paper", "steps": fedprior.Steps(local_steps=1)},
            "adaped: local_steps must be above 1, got 1. With one local step the printed upload",
        ),
    ],
)
def test_bad_options(options, wording):
    """The last one is ERRATA 39's toy: with tau = 1 the printed upload never moves gamma."""
    with pytest.raises(ValueError, match=f"^{wording}"):
        fedprior.adaped(MODEL, **options)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("adamap", "class_frequencies"),
        ("gaussian-em", "per_coordinate"),
        ("shared-subspace", "learn_mean"),
    ],
)
def test_words_are_no_flags(name, option):
    wording = f"^{name}: {option} must be true or false, without quotes, got 'false'"
    with pytest.raises(TypeError, match=wording):
        catalog.method(name).build(MODEL, {option: "false"})


@pytest.mark.parametrize(
    ("options", "error", "wording"),
    [
        ({"local_steps": 0}, ValueError, "Steps: local_steps must be a whole number of at least 1"),
        ({"local_epochs": 1.5}, TypeError, "Steps: local_epochs must be a whole number"),
        ({"clip": 0.0}, ValueError, "Descent: clip must be a positive number, got 0.0"),
    ],
)
def test_bad_steps(options, error, wording):
    with pytest.raises(error, match=f"^{wording}"):
        fedprior.Steps(**options)


def test_methods_refuse_steps_that_they_do_not_take():
    for options in ({"local_epochs": 1}, {"rule": optax.trace(0.9)}):
        (option,) = options
        with pytest.raises(ValueError, match=f"^pfedme: {option} is not supported"):
            fedprior.learning.pfedme(MODEL, steps=fedprior.Steps(**options))


def test_a_rate_for_an_unknown_block_is_refused():
    with pytest.raises(ValueError, match="alternating: block_rates must be one of mean, psi, got"):
        fedprior.alternating(MODEL, fedprior.populations.Distillation(), block_rates={"phi": 0.1})


@pytest.mark.parametrize(("name", "option"), [("adamap", "momentum"), ("clustered", "share_floor")])
def test_what_noise_calls_for_is_only_what_the_method_takes(name, option):
    method = catalog.method(name)
    options = method.under_noise(MODEL, {}, ChannelNoise(5.0, 1.0, 0.1, 10, 3))
    assert options[option] != method.default(option)
    method.build(MODEL, options)
