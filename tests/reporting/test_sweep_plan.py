"""What a sweep plans and writes; the trainings themselves are made up."""

import json

import duckdb
import numpy as np
import pytest

from fedprior.engines.sweep import Sweep
from fedprior.learning.method import Method
from fedprior.reporting import sweep as reporting
from fedprior.reporting.config import Config
from fedprior.reporting.sweep_plan import plan, read_over


@pytest.fixture
def swept(monkeypatch, tmp_path):
    """`swept(over, method=valid)` -> rows of methods, table of trainings.

    Scores (points, seeds, clients); those of the best point are its test scores, unless given.
    """

    def run(over, test=None, **valid):
        def made_up(build, federation, *, over, seeds, folder, **_):
            scores = np.array(valid[folder.name], float)
            grid = [
                dict(zip(over, values, strict=True)) for values in zip(*over.values(), strict=True)
            ]
            best = int(np.argmax(scores.mean(axis=(1, 2))))
            tests = scores[best] if test is None else np.array(test)
            return Sweep(points=tuple(grid), seeds=seeds, valid=scores, best=best, scores=tests)

        monkeypatch.setattr(reporting, "sweep", made_up)
        seeds = len(next(iter(valid.values()))[0])
        planned = plan(Config(methods=tuple(valid), seeds=seeds), over=over)
        folder = reporting.SweepFolder(tmp_path / "s")
        summary = reporting.sweep_methods(planned, folder)
        assert summary == json.loads(folder.summary.read_text(), parse_constant=pytest.fail)
        return summary["methods"], duckdb.sql(f"SELECT * FROM '{folder.trainings}'")

    return run


def test_points_that_diverged_are_no_choice(swept):
    lost = -np.inf
    rows, table = swept(
        {"lr": (0.1, 0.2)},
        fedavg=[[[-1, -2], [lost, -2]], [[lost, -1], [-1, -1]]],
        local=[[[lost, -2], [-1, -2]], [[-1, -1], [-3, -1]]],
    )
    assert rows["fedavg"] == {
        "chosen": None,
        "points": 2,
        "valid": None,
        "test": None,
        "test_sd": None,
    }
    assert rows["local"]["chosen"] == {"lr": 0.2}
    assert (rows["local"]["valid"], rows["local"]["test"]) == (-1.5, -1.5)
    assert rows["local"]["test_sd"] == pytest.approx(0.5**0.5)
    chosen = table.filter("chosen").select("method, seed, test").fetchall()
    assert chosen == [("local", 0, -1.0), ("local", 1, -2.0)]
    assert len(table.filter("test IS NOT NULL").fetchall()) == 2


@pytest.mark.parametrize("test", [[[-np.inf], [-1.0]], np.empty((0, 0))])
def test_a_test_score_that_is_not_there_or_not_finite_is_null(swept, test):
    rows, _ = swept({"lr": (0.1,)}, test=test, local=[[[-1], [-1]]])
    assert rows["local"]["chosen"] == {"lr": 0.1}
    assert (rows["local"]["test"], rows["local"]["test_sd"]) == (None, None)


def test_columns_have_the_type_of_their_values(swept):
    over = {
        "num_components": (2, 3),
        "class_frequencies": (True, False),
        "weight": ("samples", "uniform"),
    }
    over |= {"clip": (1, 2.5)}
    scores = [[[0.5]], [[0.6]]]
    _, table = swept(over, fedem=scores, adamap=scores)
    found = dict(zip(table.columns, map(str, table.types), strict=True))
    assert found == {
        "method": "VARCHAR",
        "num_components": "INTEGER",
        "weight": "VARCHAR",
        "clip": "DOUBLE",
        "seed": "BIGINT",
        "valid": "DOUBLE",
        "chosen": "BOOLEAN",
        "test": "DOUBLE",
        "class_frequencies": "BOOLEAN",
    }
    shown = table.select("num_components, class_frequencies").fetchall()
    assert shown == [(2, True), (3, False), (None, True), (None, False)]


@pytest.mark.parametrize(
    "words", [["fine_tuning_rate=0.01", "lr=0.1"], ["lr=0.1", "fine_tuning_rate=0.01"]]
)
def test_an_option_keeps_its_values_beside_one_rate_for_all(monkeypatch, words):
    seen = []

    built = Method.build

    def build(self, model, options, **shared):
        seen.append((self.name, options))
        return built(self, model, options, **shared)

    monkeypatch.setattr(Method, "build", build)
    plan(Config(methods=("fedavg-fine-tuning",), options={}), over=read_over(words))
    rates = {"gamma_rate": 0.1, "fine_tuning_rate": 0.01}
    assert seen == [("fedavg-fine-tuning", {}), ("fedavg-fine-tuning", rates)]


def test_one_rate_for_all_is_left_out_where_every_rate_has_values_of_its_own():
    over = {"lr": (0.1, 0.2), "gamma_rate": (0.1, 0.3)}
    grids = plan(Config(methods=("fedem", "ditto")), over=over).grids
    assert [grid.over for grid in grids] == [{"gamma_rate": (0.1, 0.3)}, over]


def test_values_are_numbers_truths_or_words():
    found = read_over(["a=1,1.0", "b=true,false", "c=x, y"])
    assert [repr(values) for values in found.values()] == [
        "(1, 1.0)",
        "(True, False)",
        "('x', 'y')",
    ]


def test_a_grid_does_not_depend_on_what_is_swept_beside_it():
    over = {"lr": (0.1,), "penalty": (1.0,)}
    alone = plan(Config(methods=("fedavg",), options={}), over={"lr": (0.1,)})
    beside = plan(Config(methods=("ditto", "fedavg"), options={"ditto": {"clip": 1.0}}), over=over)
    assert alone.grids[0].identity == beside.grids[1].identity
