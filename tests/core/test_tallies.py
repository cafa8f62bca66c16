"""Metrics by client and of all samples together, against scikit-learn; undefined ones are NaN."""

import warnings

import numpy as np
import pytest
from sklearn import metrics as sk

from fedprior.core.scores import METRICS, chosen, metrics_of
from fedprior.core.tallies import BINS, areas, defined, probabilities, tally, values_by_client

CLIENTS = 4


def drawn(classes, seed=0, samples=160):
    draws = np.random.default_rng(seed)
    logits = np.round(4 * draws.normal(size=(samples, classes))) / 4  # with exact ties
    return logits, draws.integers(0, classes, samples), draws.integers(0, CLIENTS, samples)


def twins(logits, y):
    """The same figures by scikit-learn, and the calibration error by a loop over bins."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    guess, confidence = logits.argmax(axis=1), shares.max(axis=1)
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        (place == each).sum()
        * abs(confidence[place == each].mean() - (guess == y)[place == each].mean())
        for each in range(BINS)
        if (place == each).any()
    ]
    binary = shares.shape[1] == 2
    return {
        "accuracy": sk.accuracy_score(y, guess),
        "balanced_accuracy": sk.balanced_accuracy_score(y, guess),
        "auc": sk.roc_auc_score(y, shares[:, 1])
        if binary
        else sk.roc_auc_score(y, shares, multi_class="ovr"),
        "log_loss": sk.log_loss(y, shares, labels=range(shares.shape[1])),
        "calibration_error": sum(gaps) / len(y),
    }


@pytest.mark.parametrize("classes", [2, 5])
def test_classes_agree_with_scikit_learn(classes):
    logits, y, client = drawn(classes)
    found = values_by_client(logits, y, client, CLIENTS, "classes")
    assert list(found) == [metric.key for metric in metrics_of("classes")]
    for each in range(CLIENTS):
        for name, value in twins(logits[client == each], y[client == each]).items():
            assert found[name][each] == pytest.approx(value, abs=1e-12), name
    whole = tally(logits, y, client, CLIENTS, "classes").pooled().values()
    whole["auc"] = areas(probabilities(logits, y)[1], y, np.zeros_like(y), 1)
    for name, value in twins(logits, y).items():
        assert whole[name][0] == pytest.approx(value, abs=1e-12), name


def test_quantities_agree_with_scikit_learn():
    draws = np.random.default_rng(1)
    y, client = 1e3 + draws.normal(size=90), draws.integers(0, CLIENTS, 90)
    guess = y + 0.5 * draws.normal(size=90)
    found = values_by_client(guess, y, client, CLIENTS, "quantity")
    for each in range(CLIENTS):
        own = client == each
        assert found["rmse"][each] == pytest.approx(sk.root_mean_squared_error(y[own], guess[own]))
        assert found["r2"][each] == pytest.approx(sk.r2_score(y[own], guess[own]))
    parts = [
        tally(guess[s], y[s], client[s], CLIENTS, "quantity") for s in (slice(40), slice(40, 90))
    ]
    whole = parts[0].joined(parts[1]).pooled().values()
    assert whole["rmse"][0] == pytest.approx(sk.root_mean_squared_error(y, guess))
    assert whole["r2"][0] == pytest.approx(sk.r2_score(y, guess))


def test_tallies_of_parts_add_up():
    logits, y, client = drawn(3)
    first, second = slice(70), slice(70, None)
    parts = [tally(logits[s], y[s], client[s], CLIENTS, "classes") for s in (first, second)]
    whole = tally(logits, y, client, CLIENTS, "classes").values()
    for name, values in parts[0].joined(parts[1]).values().items():
        np.testing.assert_allclose(values, whole[name])


def test_what_is_not_defined_is_nan_without_a_warning():
    """A client of one class, one of one row, one of none, and one of equal targets."""
    client = np.array([0, 0, 1, 3, 3])
    logits, y = np.array([[1.0, 0], [0, 1], [2, 0], [1, 0], [0, 3]]), np.array([1, 1, 0, 0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = values_by_client(logits, y, client, 4, "classes")
        quantity = values_by_client(
            logits[:, 1], np.array([2.5, 2.5, 1, 3, 4]), client, 4, "quantity"
        )
    nan = np.nan
    np.testing.assert_equal(found["accuracy"], [0.5, 1, nan, 1])
    np.testing.assert_equal(found["balanced_accuracy"], [0.5, 1, nan, 1])
    np.testing.assert_equal(found["auc"], [nan, nan, nan, 1])
    np.testing.assert_equal(np.isnan(found["log_loss"]), [False, False, True, False])
    np.testing.assert_equal(np.isnan(quantity["rmse"]), [False, False, True, False])
    np.testing.assert_equal(np.isnan(quantity["r2"]), [True, True, True, False])
    for key, values in {**found, **quantity}.items():
        target = np.array([2.5, 2.5, 1, 3, 4]) if key in quantity else y
        np.testing.assert_equal(defined(target, client, 4, key), ~np.isnan(values), key)
    nobody = np.empty(0, int)
    for values in values_by_client(np.empty((0, 3)), nobody, nobody, 2, "classes").values():
        assert np.isnan(values).all()


def test_a_diverged_model_has_the_worst_values():
    logits, y = np.array([[np.nan, 0], [np.inf, 0], [5, 0.0], [0, 5]]), np.array([1, 0, 0, 1])
    one = np.zeros(2, int)
    found = {k: v[0] for k, v in values_by_client(logits[:2], y[:2], one, 1, "classes").items()}
    assert found == {
        "accuracy": 0,
        "balanced_accuracy": 0,
        "auc": 0,
        "log_loss": np.inf,
        "calibration_error": 1,
    }
    partly = values_by_client(logits[1:], y[1:], np.zeros(3, int), 1, "classes")
    assert partly["auc"][0] == 0.5  # one of two pairs is right
    quantity = values_by_client(np.array([np.nan, 1]), np.array([0.0, 1]), one, 1, "quantity")
    assert (quantity["rmse"][0], quantity["r2"][0]) == (np.inf, -np.inf)


def test_equal_targets_far_from_zero_do_not_vary():
    y = np.full(7, np.float32(1e6 + 0.1))
    found = values_by_client(y + 1, y, np.zeros(7, int), 1, "quantity")
    assert np.isnan(found["r2"][0])
    varied = y.astype(float) + 1e-3 * np.arange(7)
    assert np.isfinite(values_by_client(y, varied, np.zeros(7, int), 1, "quantity")["r2"][0])


def test_a_metric_must_fit_what_is_predicted():
    assert chosen("simulate", "auto", "quantity").name == "rmse"
    with pytest.raises(ValueError, match=r"simulate: metric must be one for a quantity: rmse, r2"):
        chosen("simulate", "auc", "quantity")
    with pytest.raises(ValueError, match="Did you mean log-loss"):
        chosen("simulate", "logloss", "classes")


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_better_value_has_a_higher_score(metric):
    better, worse = (0.1, 0.2) if metric.lower else (0.2, 0.1)
    assert metric.signed(better) > metric.signed(worse)
    assert metric.signed(metric.signed(0.3)) == 0.3
    assert str(metric.signed(0.0)) == "0.0"
