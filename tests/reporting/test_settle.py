"""What a run on a table leaves open: chosen on validation rows, kept in its configuration."""

from dataclasses import replace

import numpy as np
import pytest

from fedprior.data.federation import Federation
from fedprior.engines.sweep import Sweep
from fedprior.reporting import federations, settle
from fedprior.reporting.config import given_keys, read
from fedprior.reporting.sweep_plan import plan

RAW = "Set model.center and model.scale to public values: the target is learned in its raw units."
BEST = {"gamma_rate": 0.02, "theta_rate": 0.02, "weight_decay": 0.01}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Clients of very different sizes, a class, a quantity in thousands and a number."""
    draws = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("table") / "table.csv"
    lines = ["c,x,kind,amount"]
    for client in range(6):
        for _ in range(12 if client else 60):
            x = draws.normal()
            amount = 5000 + 1000 * x + 10 * draws.normal()
            lines.append(f"{client},{x:.3f},{'yes' if x > 0 else 'no'},{amount:.2f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def asked(file, label="kind", *changes, exclude="amount"):
    """(configuration, clients, given keys) of a run with these changes."""
    data = [f'data.path="{file}"', 'data.client=["c"]', f'data.label="{label}"']
    changes = ['methods=["adamap"]', "training.rounds=2", *changes]
    config = read(None, [*data, f'data.exclude=["{exclude}"]', *changes])
    clients = federations.federation(config.data, seed=config.seed)
    return config, clients, given_keys(None, changes)


@pytest.fixture
def swept(monkeypatch):
    """A sweep that trains nothing: the nearer a point to `BEST`, the better. Lists the points."""
    seen = []

    def sweep(build, clients, *, over, **others):
        point = {name: values[0] for name, values in over.items()}
        algorithm = build(**point)
        gaps = [np.log10(point.get(name, 1) + 1e-9) - np.log10(best) for name, best in BEST.items()]
        seen.append({**point, "shape": clients.shape, "metric": others["metric"]})
        weight = [10 if name == "gamma_rate" else 1 for name in BEST]
        value = -float(np.array(weight) @ np.square(gaps)) - 1
        value -= 0 if algorithm.unit_weight else -0.5  # weighted by rows is better
        value += 0.25 * (clients.shape != (1,))  # and so are bins
        valid = np.full((1, 1, clients.num_clients), value)
        return Sweep(points=(point,), seeds=(0,), valid=valid, best=0, scores=np.empty((0, 0)))

    monkeypatch.setattr(settle, "sweep", sweep)
    monkeypatch.setattr(settle.mixed, "fits", lambda clients: False)
    return seen


def test_every_option_that_does_better_is_taken(file, swept):
    found = settle.settle(*asked(file))
    own = found.config.options["adamap"]
    assert {name: own[name] for name in BEST} == pytest.approx(BEST)
    assert own["weight"] == "samples"
    assert own["momentum"] == 0.9
    assert found.config.data.bins == 8
    assert (found.config.model.name, found.config.model.hidden) == ("mlp", (16,))
    assert {point["metric"] for point in swept} == {"log-loss"}
    assert len(found.tried) == len(swept) == 12
    assert found.remarks[0].startswith(
        "adamap: weight_decay 0.01, theta_rate 0.02, gamma_rate 0.02, "
    )
    tried = "also tried on validation rows: mlp (16); logistic; mlp (64, 64)"
    assert found.remarks[1] == f"Model: mlp (16) with 8 bins ({tried})."


@pytest.mark.parametrize("names", ['["fedrep"]', '["adamap", "fedrep"]'])
def test_a_model_that_a_method_refuses_is_not_tried(file, swept, names):
    """A method with a head of its own takes no linear model."""
    said = []

    def watch(name):
        return lambda done, total, best: said.append((name, done, total, best))

    found = settle.settle(*asked(file, "kind", f"methods={names}"), watch=watch)
    assert {row["model"] for row in found.tried} == {
        "mlp (16)",
        "mlp (64, 64)",
        "mlp (16) with 8 bins",
    }
    assert found.config.model.name == "mlp"
    number = sum(row["method"] == "fedrep" for row in found.tried)
    assert number > 4
    assert said[-1][:3] == ("choosing: fedrep", number, number)
    values = [row["log_loss"] for row in found.tried if row["method"] == "fedrep"]
    own = [best for name, _, _, best in said if name == "choosing: fedrep"]
    assert own[0] == f"log loss {values[0]:.3f}"  # as soon as there is one
    assert own[-1] == f"log loss {min(values):.3f}"


def test_fine_tuning_may_be_slower(file, swept, monkeypatch):
    """A method that does not learn its prior also tries a tenth of the rate, and none."""
    monkeypatch.delitem(BEST, "theta_rate")
    monkeypatch.setitem(BEST, "fine_tuning_rate", 0.002)
    found = settle.settle(*asked(file, "kind", 'methods=["fedavg-fine-tuning"]'))
    own = found.config.options["fedavg-fine-tuning"]
    assert {name: own[name] for name in ("gamma_rate", "fine_tuning_rate")} == pytest.approx(
        {"gamma_rate": 0.02, "fine_tuning_rate": 0.002}
    )
    assert 0.0 in [row["fine_tuning_rate"] for row in found.tried]


@pytest.mark.parametrize(("best", "taken"), [(1.0, 0.3), (0.1, 0.1)])
def test_a_higher_rate_is_tried_where_the_highest_is_taken(file, swept, monkeypatch, best, taken):
    for name in ("gamma_rate", "theta_rate"):
        monkeypatch.setitem(BEST, name, best)
    found = settle.settle(*asked(file))
    assert found.config.options["adamap"]["gamma_rate"] == taken
    assert [point["gamma_rate"] for point in swept[:5]] == [*settle.RATES, settle.HIGHER]


@pytest.mark.parametrize(("best", "taken"), [(1.0, 1.0), (0.1, 0.1), (0.01, 0.01)])
def test_more_weight_decay_is_tried_as_long_as_it_is_better(file, swept, monkeypatch, best, taken):
    monkeypatch.setitem(BEST, "weight_decay", best)
    found = settle.settle(*asked(file))
    assert found.config.options["adamap"]["weight_decay"] == taken
    number = 3 if best == 0.01 else 4
    tried = [row["weight_decay"] for row in found.tried[4:]]  # after the rates
    assert tried[:number] == [0.0001, 0.01, 0.1, 1.0][:number]
    assert tried[number : number + 3] == [taken] * 3  # other models, of which bins are better
    again = [0.0001] if taken == 0.01 else [0.0001, 0.01]
    assert tried[number + 3 : -1] == again  # the last is weighted by rows


def test_weight_decay_is_tried_once_where_the_model_stays(file, swept):
    found = settle.settle(*asked(file, "kind", "data.bins=8"))
    assert found.config.model.hidden == (16,)
    assert [row["weight_decay"] for row in found.tried].count(0.0001) == 1


def test_weight_decay_stays_with_rates_that_were_given(file, swept):
    found = settle.settle(*asked(file, "kind", "training.gamma_rate=0.1"))
    assert {row["weight_decay"] for row in found.tried} == {0.001}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """60 rows of 40 columns, the last of which is the class."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(60, 40)).round(3)
    path = tmp_path_factory.mktemp("wide") / "table.csv"
    lines = [",".join(["c", *(f"x{number}" for number in range(40)), "kind", "amount"])]
    for number, row in enumerate(x):
        kind = "yes" if row[39] > 0 else "no"
        lines.append(",".join(map(str, [number % 3, *row, kind, 0])))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_fewer_columns_of_a_wide_table_are_tried(wide, swept):
    """At every rate, before anything else; `swept` finds no difference, and fewer are taken."""
    config, clients, given = asked(wide)
    assert clients.shape == (40,)
    found = settle.settle(config, clients, given)
    assert [point["shape"] for point in swept[:8]] == [(16,)] * 4 + [(40,)] * 4
    assert found.config.data.most_inputs == 16
    assert found.remarks[1].startswith("Model: mlp (16) on at most 16 inputs (also tried on")
    used = federations.federation(found.config.data, seed=0).encoder.features
    assert "x39" in used
    assert found.remarks[2] == f"Columns that are used: {', '.join(used)}."
    for change in ("data.most_inputs=0", "training.gamma_rate=0.1"):
        swept.clear()
        config, clients, given = asked(wide, "kind", change)
        assert settle.settle(config, clients, given).config.data.most_inputs == 0


def test_what_was_given_stays(file, swept):
    changes = ("training.theta_rate=0.3", "model.name=logistic", "training.metric=auc")
    found = settle.settle(*asked(file, "kind", *changes))
    assert not swept
    assert found.remarks == []
    assert "theta_rate" not in found.config.options["adamap"]
    assert found.config.training.theta_rate == 0.3
    changes = ("options.adamap.gamma_rate=0.3", "options.adamap.weight=uniform", "data.bins=2")
    found = settle.settle(*asked(file, "kind", "training.metric=accuracy", *changes))
    assert found.config.options["adamap"]["gamma_rate"] == 0.3
    assert found.config.options["adamap"]["weight"] == "uniform"
    assert found.config.data.bins == 2
    assert {point["metric"] for point in swept} == {"accuracy"}


def test_a_private_run_settles_nothing(file, swept):
    private = ("privacy.epsilon=3", "privacy.delta=0.01")
    for label, exclude in (("kind", "amount"), ("amount", "kind")):
        config, clients, given = asked(file, label, *private, exclude=exclude)
        said = [] if label == "kind" else [RAW]
        assert settle.settle(config, clients, given) == settle.Settled(config, said)
    public = ("model.center=5000.0", "model.scale=1000.0")
    config, clients, given = asked(file, "amount", *private, *public, exclude="kind")
    assert settle.settle(config, clients, given) == settle.Settled(config)
    assert not swept


def test_a_sweep_has_the_units_and_sizes_of_a_run(file, swept):
    """Rates that it finds are rates for the same problem."""
    changes = ("model.name=linear", "training.theta_rate=0.1")
    config, clients, given = asked(file, "amount", *changes, exclude="kind")
    run = settle.settle(config, clients, given).config
    planned = plan(config, over={"lr": (0.1,)}, given=given).config
    assert run.model.scale > 100
    assert planned.model == run.model
    assert planned.training == run.training
    config, clients, given = asked(file)
    planned = plan(config, over={"lr": (0.1,)}, given=given).config
    assert planned.model.hidden == settle.settle(config, clients, given).config.model.hidden


def test_arrays_and_tables_without_validation_rows_are_left_alone(file, swept):
    config, clients, given = asked(file, "kind", "data.options.valid_share=0.0")
    found = settle.settle(config, clients, given)
    assert not found.tried
    assert found.remarks == ["No client has validation rows: model and rates are not chosen."]
    bare = Federation.from_arrays(np.ones((8, 2)), np.array(["a", "b"] * 4), np.arange(8) % 2)
    assert settle.settle(config, bare, given) == settle.Settled(config)
    assert not swept


def test_a_quantity_has_units_and_larger_clients_larger_batches(file, swept):
    config, clients, given = asked(file, "amount", exclude="kind")
    found = settle.settle(config, clients, given).config
    assert found.model.center == pytest.approx(clients.train.y.mean())
    assert found.model.scale == pytest.approx(clients.train.y.std())
    assert {point["metric"] for point in swept} == {"rmse"}
    assert found.training.batch_size == 10
    many = replace(clients.train, y=np.tile(clients.train.y, 200))
    many = replace(many, x=np.tile(clients.train.x, (200, 1)))
    found = settle.settle(config, replace(clients, train=many), given | {"model.scale"}).config
    assert found.training.batch_size == len(many.y) // (50 * 6)
    assert found.model.scale == 1


def test_a_network_too_large_for_rounds_of_many_clients_is_not_tried(file, swept, monkeypatch):
    """A third of 6 clients, and 4,418 parameters: two layers of 64 units for one column."""
    monkeypatch.setattr(settle, "_MOST_NUMBERS", 2 * 4418)
    assert "mlp (64, 64)" in str(settle.settle(*asked(file)).tried)
    monkeypatch.setattr(settle, "_MOST_NUMBERS", 2 * 4418 - 1)
    assert "mlp (64, 64)" not in str(settle.settle(*asked(file)).tried)


def test_a_mixed_model_is_named_where_it_predicts_better(file, monkeypatch):
    """Amounts are linear in x: two rounds of a network do worse."""
    changes = ("training.gamma_rate=0.01", "training.local_steps=1")
    config, clients, given = asked(file, "amount", *changes, exclude="kind")
    monkeypatch.setattr(settle._Trials, "_others", lambda trials: iter(()))
    found = settle.settle(config, clients, given)
    assert len(found.tried) == 2
    assert found.tried[1]["rmse"] < 20
    assert "or PersonalRegression in Python, is likely the better tool." in found.remarks[-1]


def test_a_gain_is_of_clients_that_have_both_values():
    rows = np.ones(4, int)
    new, old = np.array([3.0, 2.0, np.nan, 1.0]), np.array([1.0, 1.0, 1.0, 1.0])
    assert settle._gain(new, old, rows) == pytest.approx((1.0, 1 / 3**0.5))
    assert settle._gain(new, np.full(4, -np.inf), rows) == (np.inf, 0.0)  # what has diverged
    assert settle._gain(np.full(4, -np.inf), np.full(4, -np.inf), rows) == (0.0, 0.0)
    assert settle._gain(new[:1], old[:1], rows[:1]) == (2.0, 0.0)
    some, others = np.array([-1.0, -np.inf, -2.0]), np.array([-np.inf, -1.0, -2.0])
    assert not settle._gain(some, others, rows[:3])[0] > 0


def test_clients_count_by_their_rows():
    scores, rows = np.array([1.0, 4.0, np.nan, 0.0]), np.array([1, 2, 5, 0])
    assert settle._mean(scores, rows) == 3
    mean, error = settle._gain(scores, np.zeros(4), rows)
    assert mean == 3
    assert error == pytest.approx(np.sqrt(((1 / 3) ** 2 * 4 + (2 / 3) ** 2 * 1) * 9 / 4))


def test_the_lowest_rate_that_is_about_the_best_is_taken():
    best, noise, rows = np.full(4, -1.0), np.array([0.03, -0.03, 0.02, -0.02]), np.ones(4, int)
    about, clearly, unsure = best - 0.01 + noise, best - 0.1 + noise, best - 0.4 + 20 * noise
    assert settle._first_of_the_best([clearly, about, best], rows) == 1
    assert settle._first_of_the_best([unsure, best], rows) == 1  # within its error, but far below
    assert settle._first_of_the_best([about - 0.02, clearly, best], rows) == 2
    assert settle._first_of_the_best([np.full(4, -np.inf), best, about], rows) == 1


def test_options_are_beside_the_rates_that_were_given(file, swept, monkeypatch):
    """A method that is not the first, with rates of its own, is scored before its options are."""
    monkeypatch.setitem(BEST, "weight_decay", 1.0)  # what `swept` takes where none is given
    changes = ('methods=["adamap", "fedavg"]', "options.fedavg.gamma_rate=0.02")
    found = settle.settle(*asked(file, "kind", *changes))
    own = [row for row in found.tried if row["method"] == "fedavg"]
    assert ["weight_decay" in row for row in own[:2]] == [False, True]
    assert "weight_decay" not in found.config.options["fedavg"]


@pytest.mark.parametrize(("gains", "said"), [([3, 2, 2.5], True), ([3, -0.5, -0.5], False)])
def test_a_mixed_model_is_named_where_it_is_clearly_better(file, monkeypatch, gains, said):
    config, clients, given = asked(file, "kind")
    trials = settle._Trials(config, clients, given, lambda name: lambda done, total, shown: None)
    trials.rows, trials.scores["adamap"] = np.ones(3, int), np.full(3, -9.0)
    found = replace(  # log losses
        settle.measured(replace(clients, test=clients.valid), _guesses(clients.valid)),
        clients={"log_loss": 9 - np.array(gains)},
    )
    monkeypatch.setattr(settle, "measured", lambda clients, predictions: found)
    monkeypatch.setattr(settle.mixed, "fits", lambda clients: True)
    monkeypatch.setattr(settle.mixed, "predictions", lambda clients, split: None)
    assert bool(list(settle._mixed(trials, "adamap"))) == said


def _guesses(split):
    return np.full((len(split.y), 2), 0.5)


def test_what_is_no_more_than_luck_is_not_taken(file):
    trials = settle._Trials(*asked(file), watch=lambda name: lambda done, total, shown: None)
    trials.rows = np.ones(4, int)
    trials.scores["adamap"] = np.full(4, -1.0)
    assert not trials._takes("adamap", np.array([-0.5, -1.3, -0.8, -1.2]))
    assert trials.best("adamap") == -1
    assert not trials._takes("adamap", np.array([-0.7, -1.2, -0.9, -1.0]))  # 0.48 of its error
    assert trials._takes("adamap", np.array([-0.9, -0.95, -0.8, -1.0]))
    assert trials.best("adamap") == pytest.approx(-0.9125)


def test_a_mixed_model_that_cannot_be_fitted_is_not_named(file, monkeypatch):
    def refuse(clients, split):
        raise ValueError("PersonalClassifier: columns must be independent.")

    monkeypatch.setattr(settle.mixed, "predictions", refuse)
    monkeypatch.setattr(settle._Trials, "_others", lambda trials: iter(()))
    found = settle.settle(*asked(file, "kind", "training.gamma_rate=0.01"))
    assert len(found.tried) == 1
    assert found.remarks == []
