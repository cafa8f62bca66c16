"""The studies of the learned prior: every method measured alike, in pieces, by seed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedprior.engines.metrics import Metrics
from fedprior.experiments import framework
from fedprior.experiments.optimizers import FREQUENCIES
from fedprior.reporting.config import Data, Schedule


@pytest.fixture(scope="module")
def tiny():
    """Newcomers among eight clients, two rounds."""
    (setting, *_) = framework.framework_settings()
    options = {"num_clients": 8, "num_features": 2, "num_classes": 3, "spread": 1.0}
    config = replace(
        setting.config,
        data=Data(name="synthetic", options=options),
        training=Schedule(rounds=2, local_steps=2, newcomers=3),
    )
    return replace(setting, name="tiny", config=config)


@pytest.fixture(scope="module")
def found(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("framework")
    told = []
    given = {"seeds": (1, 2), "folder": folder, "tell": lambda *words: told.append(words)}
    methods = (framework.OWN, framework.MEAN, "fedavg", "fedavg-fine-tuning")
    values = framework.measured(tiny, methods, **given)
    assert framework.measured(tiny, methods, **given) == values  # read from the files
    assert told == [("tiny", name) for name in methods if name != framework.MEAN]
    return values, folder


def test_a_method_has_a_value_of_each_metric_for_every_seed(found):
    for values in found[0].values():
        assert set(values) == set(framework.METRICS)
        assert all(len(each) == 2 and np.all(np.isfinite(each)) for each in values.values())


@pytest.mark.parametrize("accuracy", [0.0, np.nan])
def test_a_value_of_zero_is_a_value(accuracy):
    losses = np.array([0.0, np.inf])
    clients = {"accuracy": np.full(2, accuracy), "log_loss": losses}
    overall = {"calibration_error": 0.0}
    found = Metrics(names=np.arange(2), clients=clients, overall=overall)
    values = framework._values(iter([found]))
    np.testing.assert_equal(
        values, {"accuracy": [accuracy], "log_loss": [np.nan], "calibration_error": [0.0]}
    )


def test_peers_have_the_smoothing_that_validation_samples_favor(tiny, tmp_path, monkeypatch):
    """It is chosen by the scores of veterans, 5 of 8 clients."""
    setting = replace(tiny, optimizer=FREQUENCIES)

    def values(*smoothing, sign=1.0):
        def valid(family, point, *_):
            newcomers = np.full((1, 3), -sign * point["smoothing"])
            return np.hstack([np.full((1, 5), sign * point["smoothing"]), 100 * newcomers])

        monkeypatch.setattr(framework, "SMOOTHING", smoothing)
        monkeypatch.setattr(framework, "scores", valid)
        folder = tmp_path / f"{smoothing} {sign}"
        return framework.measured(setting, ["fedavg"], seeds=(1,), folder=folder)["fedavg"]

    low, high = values(0.01), values(100.0)
    assert low["log_loss"] != pytest.approx(high["log_loss"], rel=1e-3)
    for sign, expected in ((1.0, high), (-1.0, low)):
        found = values(0.01, 100.0, sign=sign)
        assert found["log_loss"] == pytest.approx(expected["log_loss"], rel=1e-4)


def test_values_of_other_seeds_are_refused(tiny, found):
    with pytest.raises(ValueError, match=r"seeds must be .* Choose another folder"):
        framework.measured(tiny, ["fedavg"], seeds=(3,), folder=found[1])


def test_rows_say_how_far_adamap_is_ahead(found):
    rows = framework.rows({"tiny": found[0]})
    own, tuned = (next(r for r in rows if r.method == name) for name in ("adamap", "fedavg"))
    expected = 100 * (np.array(found[0]["adamap"]["accuracy"]) - found[0]["fedavg"]["accuracy"])
    assert tuned.ahead == pytest.approx(expected.mean())
    assert tuned.ahead_low <= tuned.ahead <= tuned.ahead_high
    assert own.ahead == own.less == 0
    document = framework.document("framework", rows, (1, 2))
    assert len(json.loads(json.dumps(document))["rows"]) == 4
    assert "beside its mean alone" in document["remarks"][0]
    assert framework.markdown(rows).count("\n") == 5


def test_the_integrated_model_is_measured_on_the_same_samples(tiny):
    drawn = {0: tiny.federation(0, None)}
    outputs = framework._fitted((drawn[0].train, drawn[0].test))
    np.testing.assert_allclose(np.exp(outputs).sum(axis=1), 1, rtol=1e-6)
    assert len(outputs) == drawn[0].test.size.sum()


def test_settings_have_the_spreads_and_sizes_of_the_study():
    names = [each.name for each in framework.framework_settings()]
    assert {each.config.model.name for each in framework.framework_settings()} == {"logistic"}
    assert names == [f"spread-{s}" for s in ("0", "0.1", "0.3", "0.5", "1", "2")]
    few = framework.few_settings()
    assert [each.name for each in few][-2:] == ["samples-1200", "newcomers"]
    assert few[0].config.data.options["train_samples"] == 10
    assert few[0].method_options("fedavg-fine-tuning")["class_frequencies"]
    assert few[0].quick.config.training.rounds == few[0].config.training.rounds // 5
