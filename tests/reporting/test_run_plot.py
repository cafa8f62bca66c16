"""Pictures of runs and sweeps: what they show of clients, methods and values."""

import dataclasses
import doctest
import json

import numpy as np
import pytest

from fedprior.core.scores import ACCURACY, RMSE
from fedprior.engines.sweep import Sweep
from fedprior.reporting import client_drawing, figures, run_plot, sweep_drawing
from fedprior.reporting.folder import Folder
from fedprior.reporting.summary import Scores, write_clients

mpl = pytest.importorskip("matplotlib")
METHODS = ["adamap", "local", "fedavg-fine-tuning"]


def axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


def labels(panel):
    panel.figure.canvas.draw()
    return [text.get_text() for text in panel.texts]


@pytest.mark.parametrize("module", [figures, client_drawing, run_plot])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def test_labels_at_ends_do_not_overlap():
    from matplotlib.text import Text

    panel = axes()
    ends = [(1.0, 0.5 + 0.001 * place, f"method {place}", "red") for place in range(8)]
    panel.plot([0, 1], [0, 1])
    figures.label_ends(panel, [*ends, (0.2, 0.1, "early", "blue")])
    panel.figure.canvas.draw()
    named = [text for text in panel.texts if text.get_text() != "early"]
    tall = max(Text.get_window_extent(text).height for text in named)
    heights = sorted(panel.bbox.height * text.xyann[1] for text in named)
    assert min(np.diff(heights)) >= tall
    assert len(named) == 8


def test_no_two_looks_are_the_same():
    found = figures.looks([str(place) for place in range(29)])
    assert len(set(found.values())) == 29


def test_clients_have_rows_with_their_names_in_the_order_of_their_gains():
    panel = axes()
    client_drawing.draw_gains(panel, {"adamap": np.array([1.0, -2.0, 3.0])}, ["b", "a", "c"])
    assert [text.get_text() for text in panel.get_yticklabels()] == ["a", "b", "c"]
    (line,) = [each for each in panel.lines if each.get_marker() == "o"]
    assert line.get_xdata().tolist() == [-2.0, 1.0, 3.0]
    assert "67% gain, 33% lose" in panel.get_legend().get_texts()[0].get_text()


def test_many_clients_are_a_sorted_curve_without_those_that_have_no_score():
    panel = axes()
    gains = np.append(np.random.default_rng(0).normal(size=99), np.nan)
    client_drawing.draw_gains(panel, {"adamap": gains}, [str(each) for each in range(100)])
    assert panel.lines[0].get_ydata().tolist() == sorted(gains[:99])


def folder_of(path, *, clients, seeds, metric=ACCURACY):
    path.mkdir()
    draws = np.random.default_rng(1)
    names = np.array([f"client {place} of $5" for place in range(clients)])
    scores = {
        name: Scores({seed: metric.signed(draws.random(clients)) for seed in range(seeds)})
        for name in METHODS
    }
    write_clients(
        path / "clients.parquet",
        dict.fromkeys(range(seeds), names),
        scores,
        {"size": np.tile(np.arange(clients), seeds)},
        metric,
    )
    lines = [
        {"method": name, "seed": seed, "round": 1 + turn, **({"valid": 0.5} if turn % 2 else {})}
        for name in METHODS
        for seed in range(seeds)
        for turn in range(6)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Folder(path), scores


@pytest.mark.parametrize(("clients", "metric"), [(3, ACCURACY), (200, ACCURACY), (12, RMSE)])
def test_a_run_is_drawn_from_its_folder(tmp_path, clients, metric):
    folder, _ = folder_of(tmp_path / "run", clients=clients, seeds=2, metric=metric)
    first = run_plot.draw_run(folder, METHODS, metric, tmp_path / "p.svg").read_bytes()
    assert first == run_plot.draw_run(folder, METHODS, metric, tmp_path / "p.svg").read_bytes()
    assert len(first) > 10_000


def test_gains_are_averaged_over_seeds(tmp_path):
    folder, scores = folder_of(tmp_path / "run", clients=4, seeds=3)
    names, found = run_plot._clients(folder.clients, METHODS)
    own, gains = run_plot._gains(names, found)
    assert own == [f"client {place} of $5" for place in range(4)]
    wanted = np.mean(
        [scores["adamap"].test[seed] - scores["local"].test[seed] for seed in range(3)], axis=0
    )
    np.testing.assert_allclose(gains["adamap"], wanted)
    assert "local" not in gains
    assert run_plot._gains(names, {"adamap": found["adamap"]})[1] == {}


def swept(points, valid):
    valid = np.asarray(valid, float)[:, None, None] * np.ones((len(points), 2, 3))
    best = int(np.nanargmax(valid[:, 0, 0]))
    return Sweep(
        points=tuple(points),
        seeds=(0, 1),
        valid=valid,
        best=best,
        scores=np.full((2, 3), 0.5),
        metric=ACCURACY,
    )


def test_a_sweep_shows_the_chosen_point_and_the_line_through_it():
    points = [{"lr": lr, "rank": rank} for lr in (0.01, 0.1, 1.0) for rank in (2, 3)]
    found = {"a": swept(points, [0.1, 0.2, 0.5, 0.4, 0.3, -np.inf])}
    panel = axes()
    sweep_drawing.draw_options(panel, found, "lr", figures.looks(["a"]))
    (star,) = [line for line in panel.lines if line.get_marker() == "*"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (0.1, 50.0)
    (line,) = [line for line in panel.lines if line.get_marker() == "o"]
    assert list(line.get_xdata()) == [0.01, 0.1, 1.0]  # at the chosen rank
    np.testing.assert_allclose(line.get_ydata(), [10.0, 50.0, 30.0])
    assert panel.get_xscale() == "log"
    assert labels(panel) == ["a"]


def test_words_of_an_option_are_places():
    points = [{"start": word} for word in ("zeros", "initial")]
    panel = axes()
    sweep_drawing.draw_options(
        panel, {"a": swept(points, [0.1, 0.2])}, "start", figures.looks(["a"])
    )
    assert [text.get_text() for text in panel.get_xticklabels()] == ["zeros", "initial"]


def test_what_diverged_is_left_out(tmp_path):
    points = [{"lr": 0.1}, {"lr": 0.2}]
    good, bad = (swept(points, valid) for valid in ([0.1, 0.2], [-np.inf, -np.inf]))
    bad = dataclasses.replace(bad, scores=np.full((2, 3), -np.inf))
    partly = dataclasses.replace(good, scores=np.array([[-np.inf, 0.5, 0.5]] * 2))
    names = ["x", "y", "z"] * 2
    for found in ({"adamap": bad}, {"adamap": partly, "local": partly, "fedavg": bad}):
        assert run_plot.draw_sweep(found, names, tmp_path / "p.png").stat().st_size > 0


def test_a_sweep_with_and_without_local_is_drawn(tmp_path):
    points = [{"lr": 0.1}, {"lr": 0.2}]
    found = {name: swept(points, [0.1, 0.2]) for name in ("adamap", "local")}
    names = ["x", "y", "z"] * 2
    wide = run_plot.draw_sweep(found, names, tmp_path / "p.png").stat().st_size
    untested = {"adamap": dataclasses.replace(found["adamap"], scores=np.zeros((0, 0)))}
    assert run_plot.draw_sweep(untested, names, tmp_path / "p.png").stat().st_size < wide
