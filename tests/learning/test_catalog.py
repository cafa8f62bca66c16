"""Every method by name, with options that are what they say."""

import pytest

import fedprior
from fedprior.learning import catalog

# A value of each option other than its default.
VALUES = {
    "catch_up": 7,
    "clip": 2.0,
    "curvature": "full",
    "curvature_samples": 8,
    "decay": 0.9,
    "degrees": 2.0,
    "direction": "reverse",
    "fine_tuning_rate": 0.01,
    "fine_tuning_steps": 3,
    "gamma_rate": 0.2,
    "head": "1",
    "head_steps": 2,
    "initial_psi": 2.0,
    "jitter": 0.1,
    "learn_mean": False,
    "local_steps": 4,
    "newcomer_steps": 0,
    "personal_steps": 2,
    "share_floor": 0.1,
    "noise_variance": None,  # for a quantity only
    "normalizer": "exact",
    "num_components": 3,
    "per_coordinate": True,
    "psi_floor": 0.1,
    "psi_rate": 0.01,
    "psi_scale": 0.1,
    "rank": 3,
    "scale": 0.3,
    "scale_floor": 0.01,
    "start": "initial",
    "steps_per_epoch": 10,
    "temperature": 2.0,
    "theta_rate": 0.2,
    "upload_stale": True,
    "weight": "samples",
    "weight_decay": 1e-3,
}
MODEL = fedprior.mlp((4,), 3, hidden=(5,))  # a body and a head


@pytest.mark.filterwarnings("ignore::fedprior.learning.clustering.CollapseWarning")
@pytest.mark.parametrize("name", sorted(catalog.METHODS))
def test_every_method_builds_and_takes_each_option_it_lists(name):
    method = catalog.method(name)
    algorithm = method.build(MODEL, {})
    assert isinstance(algorithm, fedprior.Algorithm)
    options = method.options()
    assert len(set(options)) == len(options)
    for option in options:
        assert isinstance(method.build(MODEL, {option: VALUES[option]}), fedprior.Algorithm)


def test_options_are_listed_where_they_are_understood():
    listed = {name: set(catalog.method(name).options()) for name in catalog.METHODS}
    psi = {"psi_rate", "initial_psi", "psi_floor", "direction", "temperature", "degrees"}
    assert psi <= listed["adaped"]
    assert listed["adaped-fine-tuning"] == listed["adaped"]
    assert not psi & listed["fedavg"]
    assert "fine_tuning_steps" in listed["fedavg-fine-tuning"]
    assert "scale" in listed["gaussian-prior"]
    assert "theta_rate" not in listed["fedem"]  # its clients have shares, and no model to move
    assert "gamma_rate" not in listed["mixture-clustering"]  # its mixture is replaced, not moved
    assert {"curvature", "scale", "scale_floor"} <= listed["gaussian-em"]
    assert not {"start", "catch_up", "upload_stale"} & listed["gaussian-em"]
    for name, options in listed.items():
        assert "decay" in options
        assert "gamma_rate" in options or name == "mixture-clustering"
        assert (
            not {"local_steps", "model", "population", "name", "batches", "rule", "options"}
            & options
        )


def test_what_is_given_yields_to_the_options():
    method = catalog.method("adaped")
    with pytest.raises(ValueError, match="local_steps must be above 1"):
        method.build(MODEL, {"upload_stale": True}, local_steps=1, upload_stale=False)


def test_unknown_names_and_options_are_named_with_the_nearest():
    wording = r"^adaped: option must be one of .*, got 'psi_rat'\. Did you mean psi_rate\?"
    with pytest.raises(ValueError, match=wording):
        catalog.method("adaped").build(MODEL, {"psi_rat": 0.1})
    with pytest.raises(ValueError, match=r"^fedavg: option must be one of .*, got 'psi_rate'"):
        catalog.method("fedavg").build(MODEL, {"psi_rate": 0.1})
    with pytest.raises(ValueError, match=r"got 'fedavrg'\. Did you mean fedavg\?"):
        catalog.method("fedavrg")


def test_the_description_has_a_row_a_method():
    rows = catalog.describe()
    assert [row["name"] for row in rows] == list(catalog.METHODS)
    assert all(set(row) == {"name", "population", "sends", "reference"} for row in rows)


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        ({"local_steps": 0}, "adaped: local_steps must be a whole number of at least 1, got 0"),
        ({"psi_rate": -1}, "adaped: psi_rate must be a number of at least 0, got -1"),
        ({"start": "end"}, "adaped: start must be one of population, initial, got 'end'"),
        ({"weight": "size"}, "adaped: weight must be one of uniform, samples, got 'size'"),
        ({"newcomer_steps": -1}, "adaped: newcomer_steps must be a whole number of at least 0"),
        ({"catch_up": -1}, "adaped: catch_up must be a whole number of at least 0, got -1"),
        (
            {"upload_stale": True, "local_steps": 1},
            "adaped: local_steps must be above 1, got 1. With one local step the printed upload",
        ),
    ],
)
def test_bad_options(options, wording):
    """The last one is ERRATA 39's toy: with tau = 1 the printed upload never moves gamma."""
    with pytest.raises(ValueError, match=f"^{wording}"):
        fedprior.adaped(MODEL, **options)


def test_a_rate_for_an_unknown_block_is_refused():
    with pytest.raises(ValueError, match="alternating: block_rates must be one of mean, psi, got"):
        fedprior.alternating(MODEL, fedprior.Distillation(), block_rates={"phi": 0.1})
