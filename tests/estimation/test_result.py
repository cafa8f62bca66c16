"""The plain sentence in each regime, the summary as JSON, and a guarantee read aloud."""

import json

import numpy as np
import pytest
from scipy.integrate import quad

from fedprior.estimation.result import Estimates, FittedPopulation, gain_sentence
from fedprior.privacy.guarantee import Guarantee

POPULATION = FittedPopulation(
    kind="beta",
    fitted_by="likelihood",
    mean=0.25,
    heterogeneity=0.1,
    parameters={"alpha": 2.0, "beta": 6.0},
)


def estimates(**changes):
    ones = np.ones(2)
    fields = dict.fromkeys(("raw", "personal", "weight", "scale", "lower", "upper"), ones)
    fields |= {"n": np.array([3, 4]), "level": 0.95, "population": POPULATION}
    return Estimates(**fields | {"gain_over_raw": 30.0, "gain_over_pooled": 20.0} | changes)


@pytest.mark.parametrize(
    ("raw", "pooled", "words"),
    [(0.5, 90, "hardly helps"), (95, 0.2, "hardly differ"), (30, 20, "Collaboration helps")],
)
def test_the_sentence_names_the_regime(raw, pooled, words):
    found = gain_sentence(gain_over_raw=raw, gain_over_pooled=pooled, weight=np.array([0.4]))
    assert words in found


def test_a_loss_is_called_one():
    found = gain_sentence(gain_over_raw=-12.3, gain_over_pooled=50.0, weight=np.array([0.4]))
    assert "does not help" in found
    assert "12.3% above the raw values" in found
    assert "-" not in found
    common = gain_sentence(gain_over_raw=30.0, gain_over_pooled=-4.0, weight=np.array([0.4]))
    assert "30.0% below the raw values, 4.0% above the common value" in common
    none = gain_sentence(gain_over_raw=-1e-9, gain_over_pooled=-1e-9, weight=np.array([1.0]))
    assert "0.0% below the raw values" in none


def test_a_fallback_has_its_own_sentence():
    found = estimates(fell_back=True, gain_over_raw=0.0)
    assert found.sentence == (
        "The private reports show no gain from sharing: every group keeps its own raw value."
    )
    assert found.summary()["sentence"] == found.sentence


def test_the_summary_is_json():
    guarantee = Guarantee(
        epsilon=1.0,
        delta=0.0,
        unit="a group",
        neighbors="replace one group",
        trust="nobody",
        mechanism="one bit",
        noise="simulated",
        bits=1,
    )
    found = json.loads(json.dumps(estimates(guarantee=guarantee).summary()))
    assert found["num_groups"] == 2
    assert found["population"]["parameters"] == {"alpha": 2.0, "beta": 6.0}
    assert found["privacy"]["valid_for_release"] is False
    assert "not valid for release" in str(guarantee)


def test_density_of_a_beta_integrates_to_one():
    area = quad(lambda at: float(POPULATION.density(np.array([at]))[0]), 0, 1)[0]
    assert area == pytest.approx(1)


def test_a_guarantee_refuses_what_is_none():
    fields = {"unit": "u", "neighbors": "r", "trust": "t", "mechanism": "m"}
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        Guarantee(epsilon=0.0, delta=0.0, noise="secure", **fields)
    with pytest.raises(ValueError, match="noise must be one of"):
        Guarantee(epsilon=1.0, delta=0.0, noise="none", **fields)
