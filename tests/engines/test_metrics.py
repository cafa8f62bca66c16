"""`metric` of simulate and sweep, and every metric of a result."""

from dataclasses import replace

import numpy as np
import pytest

import fedprior
from fedprior.core.scores import METRICS, metrics_of
from fedprior.core.tallies import values_by_client
from fedprior.data.federation import Federation
from fedprior.engines import metrics as module
from fedprior.engines import room
from fedprior.engines.guesses import guesses

CLASSES = [metric.name for metric in metrics_of("classes")]


def table(*, regression, clients=5, rows=40, seed=3):
    draws = np.random.default_rng(seed)
    x, who = draws.normal(size=(clients * rows, 3)), np.repeat(np.arange(clients), rows)
    signal = x[:, 0] + 0.5 * who
    y = signal if regression else (signal + draws.normal(size=len(x)) > 1).astype(int)
    return Federation.from_arrays(x, y, who, regression=regression)


def training(regression, rate=0.1):
    linear = fedprior.models.linear(3) if regression else fedprior.models.logistic(3)
    return fedprior.learning.fedavg(linear, gamma_rate=rate)


def by_hand(result, part="test"):
    """Every metric of every client, from its own predictions."""
    split, found = getattr(result.federation, part), []
    target = "quantity" if result.federation.classes is None else "classes"
    for client in range(result.federation.num_clients):
        rows = slice(split.start[client], split.start[client] + split.size[client])
        outputs = np.asarray(result.predict(client, split.x[rows]))
        own = np.zeros(len(outputs), int)
        found.append(values_by_client(outputs, split.y[rows], own, 1, target))
    return {name: np.array([each[name][0] for each in found]) for name in found[0]}


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_metric(metric):
    """In the compiled program and on the host, for one run and for a sweep."""
    regression = metric not in CLASSES
    clients = table(regression=regression)
    run = {"rounds": 2, "metric": metric}
    result = fedprior.simulate(training(regression), clients, evaluate_every=1, **run)
    key, sign = METRICS[metric].key, -1 if METRICS[metric].lower else 1
    np.testing.assert_allclose(result.scores, sign * by_hand(result)[key], rtol=1e-4)
    np.testing.assert_allclose(result.valid_scores, sign * by_hand(result, "valid")[key], rtol=1e-4)
    assert result.history[0]["valid"] != 0
    found = fedprior.sweep(
        lambda rate: training(regression, rate), clients, over={"rate": [0.1]}, **run
    )
    np.testing.assert_allclose(found.scores[0], result.scores, rtol=1e-3)
    (row,) = found.rows()
    assert row["test"] == pytest.approx(np.nanmean(by_hand(result)[key]), rel=1e-3)
    assert row["valid"] == pytest.approx(np.nanmean(by_hand(result, "valid")[key]), rel=1e-3)


@pytest.mark.parametrize("regression", [False, True])
def test_a_result_has_every_metric_by_client_and_overall(regression):
    result = fedprior.simulate(training(regression), table(regression=regression), rounds=1)
    found = result.metrics()
    for name, values in by_hand(result).items():
        np.testing.assert_allclose(found.clients[name], values, rtol=1e-5)
        assert found.mean[name] == pytest.approx(np.nanmean(values), rel=1e-5)
        assert found.defined[name] == np.isfinite(values).sum()
    overall = found.rows()[-2]
    assert overall["client"] == "overall"
    split = result.federation.test
    own = np.repeat(np.arange(5), split.size)
    outputs = np.concatenate([np.asarray(result.predict(k, split.x[own == k])) for k in range(5)])
    target = "quantity" if regression else "classes"
    pooled = values_by_client(outputs, split.y, np.zeros(len(own), int), 1, target)
    for name, values in pooled.items():
        assert overall[name] == pytest.approx(values[0], rel=1e-5)
    assert str(found).count("\n") == len(pooled)


def test_validation_chooses_by_the_metric():
    """Overconfident models are as accurate, and have a worse log loss."""
    draws = np.random.default_rng(0)
    y = np.repeat([0, 1], 150)
    x = np.where(y == 1, 1.0, -1.0)[:, None] + 1.5 * draws.normal(size=(300, 1))
    clients = Federation.from_arrays(x, y, np.arange(300) % 3)
    model = fedprior.models.logistic(1)

    def build(scale):
        network = replace(model, apply=lambda theta, x: scale * model.apply(theta, x))
        return fedprior.learning.fedavg(network, gamma_rate=0.01)

    over = {"scale": [1.0, 1000.0]}
    found = {
        metric: fedprior.sweep(build, clients, over=over, rounds=3, metric=metric, test=False)
        for metric in ("accuracy", "log-loss")
    }
    losses = [row["valid"] for row in found["log-loss"].rows()]
    assert found["log-loss"].best == int(np.argmin(losses)) == 0
    shares = [row["valid"] for row in found["accuracy"].rows()]
    assert found["accuracy"].best == int(np.argmax(shares))
    assert losses[0] > 0


def test_patience_follows_the_metric(monkeypatch):
    values = iter([0.5, 0.4, 0.45, 0.46, 0.47])  # log losses: the second is the best

    def scores(*given, metric, splits, **more):
        value = metric.signed(next(values, 0.5))
        return {name: np.full(5, value) for name in splits}

    monkeypatch.setattr("fedprior.engines.simulate.scores", scores)
    run = {"rounds": 9, "evaluate_every": 1, "patience": 2, "metric": "log-loss"}
    result = fedprior.simulate(training(False), table(regression=False), **run)
    assert (result.ended_by, result.rounds) == ("patience", 4)


def test_metrics_that_cannot_be_are_refused():
    clients = table(regression=False)
    with pytest.raises(ValueError, match="simulate: metric must be one for classes"):
        fedprior.simulate(training(False), clients, rounds=1, metric="rmse")
    x, who = np.ones((20, 1)), np.repeat([0, 1], 10)
    alone = Federation.from_arrays(x, who, who)  # a class each
    algorithm = fedprior.learning.fedavg(fedprior.models.logistic(1))
    with pytest.raises(ValueError, match="sweep: metric must be defined for the validation"):
        fedprior.sweep(lambda: algorithm, alone, over={}, rounds=1, metric="auc")
    with pytest.raises(ValueError, match="simulate: metric must be defined for the validation"):
        fedprior.simulate(algorithm, alone, rounds=1, evaluate_every=1, metric="auc")
    unjudged = fedprior.simulate(algorithm, alone, rounds=1, metric="auc")
    assert np.isnan(unjudged.scores).all()
    assert unjudged.metrics().defined["auc"] == 0
    assert unjudged.metrics().mean["auc"] is None
    assert unjudged.metrics().overall["auc"] == 0.5  # all inputs are equal


def test_judges_need_values_to_choose_by():
    who = np.repeat([0, 1, 2], 20)
    y = np.where(who < 2, who, np.tile([0, 1], 30))  # both classes only at the last client
    clients = Federation.from_arrays(np.ones((60, 1)), y, who)
    judged = {"over": {"gamma_rate": [0.1]}, "rounds": 1, "metric": "auc", "test": False}

    def build(gamma_rate):
        return fedprior.learning.fedavg(fedprior.models.logistic(1), gamma_rate=gamma_rate)

    assert fedprior.sweep(build, clients, **judged).best == 0
    with pytest.raises(ValueError, match=r"metric must be defined .* of the first 2 clients"):
        fedprior.sweep(build, clients, judges=2, **judged)
    with pytest.raises(ValueError, match="judges must be a whole number of at least 1"):
        fedprior.sweep(build, clients, judges=0, **judged)
    valid = replace(clients.valid, size=clients.valid.size * [0, 1, 1])
    with pytest.raises(ValueError, match=r"the first 1 clients .* have no validation samples"):
        fedprior.sweep(build, replace(clients, valid=valid), judges=1, **judged)


def test_clients_without_test_samples_have_no_values():
    clients = Federation.from_arrays(
        np.ones((6, 1)), [0, 1, 0, 1, 0, 1], np.arange(6) // 2, valid_share=0, test_share=0
    )
    found = fedprior.simulate(
        fedprior.learning.fedavg(fedprior.models.logistic(1)), clients, rounds=1
    ).metrics()
    assert set(found.defined.values()) == {0}
    assert all(np.isnan(value) for value in found.overall.values())
    assert all(each["overall"] is None for each in found.describe().values())


def test_guesses_of_classes_by_hand():
    """Nine tenths of the first client's labels are class 0, all of the second's are class 1."""
    y = np.array([0] * 18 + [1] * 2 + [1] * 8)
    clients = Federation.from_arrays(np.zeros((28, 1)), y, np.repeat([0, 1], [20, 8]), seed=1)
    test = clients.test
    first, second = (test.y[s : s + n] for s, n in zip(test.start, test.size, strict=True))
    found = guesses(clients)
    everybody, own = found["largest-class"], found["own-largest-class"]
    assert everybody.clients["accuracy"].tolist() == [np.mean(first == 0), np.mean(second == 0)]
    assert own.clients["accuracy"].tolist() == [np.mean(first == 0), np.mean(second == 1)]
    assert own.overall["accuracy"] == pytest.approx(np.mean(np.r_[first == 0, second == 1]))
    assert everybody.overall["auc"] == 0.5
    assert np.isfinite(own.overall["log_loss"])


def test_guesses_of_a_quantity_are_means():
    clients = table(regression=True)
    found = guesses(clients)
    whole = clients.train.y.mean()
    assert found["mean"].overall["rmse"] == pytest.approx(
        np.sqrt(np.mean((clients.test.y - whole) ** 2)), rel=1e-5
    )
    assert abs(found["mean"].overall["r2"]) < 0.1
    assert found["own-mean"].overall["r2"] > 0.1


def test_little_memory_makes_smaller_chunks(monkeypatch):
    """Outputs of at most two clients fit: the same metrics, from chunks of two."""
    result = fedprior.simulate(training(False), table(regression=False), rounds=1)
    whole, sizes, find = result.metrics(), [], module.outputs_of

    def small(rules, thetas, source, clients):
        sizes.append(len(clients))
        if len(clients) > 2:
            raise room.TooLarge(5, 2)
        return find(rules, thetas, source, clients)

    monkeypatch.setattr(module, "outputs_of", small)
    found = result.metrics()
    assert sizes == [5, 2, 2, 2]
    for name, values in whole.clients.items():
        np.testing.assert_allclose(found.clients[name], values, rtol=1e-5)
        assert found.overall[name] == pytest.approx(whole.overall[name], rel=1e-5)


def test_a_model_of_a_quantity_that_is_no_regression_keeps_its_own_score():
    class Counts:
        """Poisson, with the logarithm of the rate as its output."""

        init = staticmethod(lambda key: {"weight": np.zeros(3, "f4")})
        apply = staticmethod(lambda parameters, x: x @ parameters["weight"])
        loss = staticmethod(lambda outputs, y: np.e**outputs - y * outputs)
        score = staticmethod(lambda outputs, y: y * outputs - np.e**outputs)

    result = fedprior.simulate(fedprior.learning.fedavg(Counts()), table(regression=True), rounds=1)
    split = result.federation.test
    rows = split.client(0)
    outputs = np.asarray(result.predict(0, rows.x))
    assert result.scores[0] == pytest.approx(np.mean(rows.y * outputs - np.exp(outputs)), rel=1e-4)


def test_bytes_are_pixels_in_predictions_too():
    draws = np.random.default_rng(0)
    x = draws.integers(0, 256, (30, 2, 2, 1)).astype(np.uint8)
    clients = Federation.from_arrays(x, np.arange(30) % 2, np.arange(30) // 10)
    network = fedprior.mlp((2, 2, 1), 2, hidden=(3,))
    result = fedprior.simulate(fedprior.learning.fedavg(network), clients, rounds=1)
    images = clients.test.x[:2]
    assert images.dtype == np.uint8
    np.testing.assert_allclose(result.predict(0, images), result.predict(0, images / 255), 1e-5)
