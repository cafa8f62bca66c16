"""`fedprior regress --family poisson`: counts with an exposure on the command line."""

import json

import numpy as np
import pandas as pd
import pytest

from fedprior.regression.face.personal import PersonalPoisson


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    draws = np.random.default_rng(3)
    place = draws.permutation(np.repeat(np.arange(40), draws.integers(3, 9, 40)))
    theta = draws.normal([0.3, 0.5], [0.6, 0.3], (40, 2))
    age, cold = draws.normal(size=(2, len(place))).round(3)
    days = draws.uniform(1, 4, len(place)).round(2)
    rate = np.exp(theta[place, 0] + theta[place, 1] * age + 0.2 * cold)
    count = draws.poisson(days * rate)
    path = tmp_path_factory.mktemp("counts") / "visits.csv"
    frame = pd.DataFrame({"clinic": place, "count": count, "days": days, "age": age, "cold": cold})
    frame.to_csv(path, index=False)
    return path, frame


WORDS = ("--group", "clinic", "--target", "count", "--features", "age", "--fixed", "cold")
COUNTS = (*WORDS, "--family", "poisson", "--exposure", "days")


def test_the_command_is_the_face(command, visits, tmp_path):
    path, frame = visits
    out, plot = tmp_path / "clinics.csv", tmp_path / "clinics.png"
    found = command("regress", path, *COUNTS, "--out", out, "--plot", plot, "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert answer["family"] == "poisson"
    assert answer["held_out"]["metric"] == "deviance"
    assert set(answer["dispersion"]) == {"statistic", "degrees", "chance"}
    assert answer["noise"] is None
    model = PersonalPoisson(fixed="cold").fit(
        frame[["age", "cold"]], frame["count"], frame["clinic"], exposure=frame["days"]
    )
    assert answer["log_likelihood"] == pytest.approx(model.log_likelihood_, abs=1e-5)
    means = [answer["population"]["mean"][name]["value"] for name in ("intercept", "age")]
    assert means == pytest.approx(model.population_.mean, abs=1e-5)
    table = pd.read_csv(out).sort_values("group")
    np.testing.assert_allclose(table["age"], model.theta_[:, 1], atol=1e-5)
    assert (table["age_lower"] < table["age"]).all()
    assert plot.stat().st_size > 5000


def test_the_page_names_rates_and_deviance(command, visits):
    found = command("regress", visits[0], *COUNTS)
    assert "mean Poisson deviance" in found.out
    assert "of the log rate" in found.out
    assert "degrees of freedom (ratio" in found.out
    assert "`days`: number" in found.err


def test_counts_stay_numbers_unless_they_are_called_counts(command, visits):
    found = command("regress", visits[0], *WORDS, "--json")
    assert json.loads(found.out)["family"] == "gaussian"
    assert json.loads(found.out)["dispersion"] is None


def test_counts_that_are_all_alike_have_an_answer(command, tmp_path):
    path = tmp_path / "alike.csv"
    age = np.random.default_rng(1).normal(size=40).round(2)
    frame = pd.DataFrame({"clinic": np.repeat(np.arange(4), 10), "count": 3, "age": age})
    frame.to_csv(path, index=False)
    words = ("--group", "clinic", "--target", "count", "--features", "age", "--family", "poisson")
    found = command("regress", path, *words, "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["held_out"]["gain_over_pooled"] is None
    assert "nan" not in command("regress", path, *words).out
