"""Pages of runs: `train --report`, `report RUN`, and what a page of a secure run must not hold."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from fedprior.core.files import write_json
from fedprior.core.scores import ACCURACY, OWN
from fedprior.data.writing import write_table
from fedprior.pages.page import (
    Curves,
    Distributions,
    Intervals,
    Listing,
    Number,
    Scatter,
    SmallTable,
    Stacked,
)
from fedprior.pages.render import render
from fedprior.reporting.config import Config
from fedprior.reporting.folder import Folder
from fedprior.reporting.model import load
from fedprior.reporting.pages.clients import client_rows, client_section, distributions
from fedprior.reporting.pages.made import settings
from fedprior.reporting.pages.record import RunRecord
from fedprior.reporting.pages.run import owns, page_of
from fedprior.reporting.summary import Scores, summarize
from inside_page import everything, tables_of
from opened import blocks, titles

CLINICS = [f"clinic-{place}" for place in ("north", "south", "east", "west", "hill", "lake")]
PRIVATE = {"privacy__epsilon": 8, "privacy__delta": 0.01, "training__cohort_size": 2}


@pytest.fixture(scope="session")
def private_run(tmp_path_factory, new_rows, encoder, call, fast):
    """`private_run(noise)` -> the folder of a private run on clinics, made once for each."""
    made = {}

    def run(noise, *more):
        key = (noise, *more)
        if key not in made:
            folder = tmp_path_factory.mktemp("private") / "run"
            table = new_rows(folder.parent / "table.csv", CLINICS)
            changes = {**PRIVATE, "privacy__noise": noise, "training__evaluate_every": 1}
            words = ["train", "--data", table, "--encoder", encoder, "--allow-delta", *more]
            words += ["--algorithm", "fedavg", "--algorithm", "local", *fast(**changes)]
            assert call([*words, "--out", folder, "--quiet"]) == 0
            made[key] = folder
        return made[key]

    return run


def test_a_run_s_page_says_what_helps_whom(trained):
    page = page_of(trained)
    summary = json.loads((trained / "summary.json").read_text())["methods"]
    best = max(("adaped", "fedavg-fine-tuning"), key=lambda name: summary[name]["mean"])
    assert best in page.lead
    assert titles(page) == [
        *("Methods", "Metrics", "Client by client", "Over rounds", "Calibration", "Classes"),
        "Time and bytes per round",
    ]
    (table,) = [each for each in blocks(page, SmallTable) if each.title == "Scores by method"]
    means = {row[0]: row[1].value for row in table.cells if not row[0].startswith("guess: ")}
    assert len(table.cells) == len(means) + 2
    assert means == {name: row["mean"] for name, row in summary.items()}
    (spread,) = [each for each in blocks(page, Distributions) if len(each.columns) == 3]
    assert len(spread.rows) == 6
    (scatter,), (bars,) = blocks(page, Scatter), blocks(page, Intervals)
    assert (scatter.x, scatter.y, bars.value) == ("local", best, "gain")
    assert list(scatter.rows.columns["name"].values) == list("abcdef")
    gain = np.asarray(bars.rows.columns["gain"].values)
    assert gain.mean() == pytest.approx(summary[best]["gain_over_local"])
    assert str(trained / "config.toml") in page.command
    assert any(row[0] == "training.rounds" for row in page.folded[0].cells)


def test_the_largest_gains_and_losses_are_named():
    local = np.array([0.5, 0.5, 0.5, 0.5, np.nan, 0.9, 0.4, 0.3, 0.2])
    adamap = np.array([0.75, 0.25, 0.5, 0.4, 0.5, 0.8, 0.7, 0.9, 0.3])
    table = {"seed": np.zeros(9), "client": np.array([*"abcdefghi"], object)}
    table |= {"local": local, "adamap": adamap}
    rows = client_rows(table, ("adamap", "local"), ACCURACY, best="adamap", same=True)
    section = client_section(rows, "adamap", ACCURACY)
    assert "4 of 8 clients have better models" in section.text
    assert "3 have worse ones, and 1 have equally good" in section.text
    losses, gains = (each for each in section.blocks if isinstance(each, SmallTable))
    assert [(row[0], round(row[-1].value, 6)) for row in losses.cells] == [
        *(("b", -25), ("d", -10), ("f", -10)),
    ]
    assert [row[0] for row in gains.cells] == ["h", "g", "a", "i"]


def test_classes_and_bytes_are_those_of_the_data(trained):
    page = page_of(trained)
    (classes,) = blocks(page, Stacked)
    assert sum(value for (value,) in classes.parts.values()) == pytest.approx(1)
    assert set(classes.parts) == {"yes", "no"}
    (cost,) = [each for each in blocks(page, SmallTable) if each.title == "By method"]
    sent = {row[0]: row[2].value for row in cost.cells}
    assert sent["local"] == 0
    assert sent["fedavg-fine-tuning"] > 0
    assert all(row[1] is None or row[1].value > 0 for row in cost.cells)


def test_train_writes_the_page_last_and_resumed_runs_too(command, on_table, tmp_path):
    run, page = tmp_path / "run", tmp_path / "run.html"
    words = ("--algorithm", "local", "--algorithm", "fedavg")
    found = command("train", *on_table, *words, "--out", run, "--report", page)
    assert found.code == 0, found.err
    assert found.err.splitlines()[-1] == f"Written to {page}"
    first = page.read_text()
    assert "accuracy" in first
    assert command("train", "--resume", run, "--report", page).code == 2  # it exists
    again = command("train", "--resume", run, "--report", page, "--force")
    assert again.code == 0, again.err
    reported = command("report", run)
    assert reported.code == 0, reported.err
    assert (run / "report.html").read_text() == page.read_text()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("page.txt", "--report must be a .html file"), ("no/page.html", "in a folder that exists")],
)
def test_a_place_that_cannot_be_written_is_refused_before_training(
    refused, on_table, tmp_path, name, wanted
):
    refused(
        "train", *on_table, "--out", tmp_path / "run", "--report", tmp_path / name, wanted=wanted
    )
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_no_page_is_not_replaced(refused, on_table, tmp_path):
    other = tmp_path / "own.html"
    other.write_text("<p>mine</p>")
    wanted = "exists already"
    refused("train", *on_table, "--out", tmp_path / "run", "--report", other, wanted=wanted)
    assert other.read_text() == "<p>mine</p>"


def test_a_loaded_model_reports_its_run(trained, tmp_path):
    model = load(trained)
    assert model.report().path is None
    assert model.report(tmp_path / "model.html").path == tmp_path / "model.html"
    assert "Scores by method" in (tmp_path / "model.html").read_text()
    assert "adaped" in model._repr_html_()
    assert "<script" not in model._repr_html_()


def test_an_unfinished_run_is_shown_as_such(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    for name in ("summary.json", "metrics.jsonl", "clients.parquet", "evaluation.json"):
        (copy / name).unlink()
    (copy / "checkpoint" / "fedavg-fine-tuning" / "seed-0" / "scores.safetensors").unlink()
    lines = (copy / "progress.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["method"] != "local"]
    (copy / "progress.jsonl").write_text("\n".join(kept) + '\n{"method": "fedavg-fi')  # cut short
    page = page_of(copy)
    assert page.lead.startswith("The run has stopped before its end: 2 of 3 trainings")
    assert f"fedprior train --resume {copy}" in page.lead
    (table,) = [each for each in blocks(page, SmallTable) if each.title == "Trainings"]
    assert [row[1] for row in table.cells] == ["finished", "begun", "finished"]
    assert table.cells[1][2] == Number(3, "whole")
    render(page)


def test_a_private_run_shows_budget_path_trust_and_limits(private_run):
    page = page_of(private_run("simulated"))
    assert titles(page)[-2:] == ["Privacy", "What is not protected"]
    html = render(page)
    for word in (
        *("differentially private with epsilon =", "delta = 0.01", "one client", "add-remove"),
        *("central view", "Poisson sampling at rate", "not valid for a release", "e^"),
        *("In plain words", "has to trust whoever adds up the messages"),
        *("Who is trusted with what", "Epsilon over rounds", "Budget: epsilon spent and left"),
        *("Personal models are not protected", "The noise is simulated"),
    ):
        assert word in html, word
    bar = next(each for each in blocks(page, Stacked) if each.title.startswith("Budget"))
    assert bar.parts["spent"][0] + bar.parts["left"][0] == pytest.approx(8)


SECRET = ("decile", "clinic-", "seconds", "most common class", "gain over local", "calibration")


def assert_nothing_secret(folder):
    page = page_of(folder)
    html = render(page)
    found = everything(html)
    assert not [word for word in SECRET if word in found]
    assert tables_of(html) == []  # no rows of clients at all
    assert not blocks(page, Listing)
    history = {name for curves in page.sections for name in [curves.title]}
    assert "Client by client" not in history
    assert "differentially private with epsilon =" in html
    return page, html


def test_a_page_of_a_secure_run_holds_what_the_guarantee_covers(private_run):
    pytest.importorskip("opendp")
    page, html = assert_nothing_secret(private_run("secure"))
    assert "local" not in page.lead
    assert [fact.label for fact in page.facts] == ["privacy budget", "noise"]
    assert "noise seeded by the operating system" in html
    assert not [each for each in blocks(page, SmallTable) if each.title != "By method"]


def test_unprotected_scores_stay_out_of_the_page(private_run):
    pytest.importorskip("opendp")
    folder = private_run("secure", "--unprotected-scores")
    assert (folder / "clients.parquet").is_file()  # as was asked for
    _, html = assert_nothing_secret(folder)
    assert "Scores of single clients are not protected" in html


def test_a_secure_page_trusts_no_file_in_the_folder(private_run, tmp_path):
    """Files as a clear run writes them: what may not be shown is not taken from anywhere."""
    pytest.importorskip("opendp")
    copy = shutil.copytree(private_run("secure"), tmp_path / "copy")
    line = {"method": "fedavg", "seed": 0, "round": 1, "rounds": 3}
    leak = {"clients": 5.0, "left_out": 1.0, "valid": 0.123456, "seconds": 98.7654}
    alone = {**line, **leak, "method": "local", "psi": 0.777777}
    for name in ("metrics.jsonl", "progress.jsonl"):
        (copy / name).write_text(
            "".join(json.dumps(each) + "\n" for each in ({**line, **leak}, alone))
        )
    calibration = {
        "count": [7] * 10,
        "confidence": [0.5] * 10,
        "accuracy": [0.31415] * 10,
        "error": 0,
    }
    runs = [{"method": "fedavg", "seed": 0, "calibration": calibration, "upload_bytes": 8}]
    runs[0]["download_bytes"] = 8
    write_json(
        copy / "evaluation.json", {"format": 1, "classes": {"secretclass": 41}, "runs": runs}
    )
    columns = {"seed": np.zeros(6, np.int32), "client": np.array(CLINICS, object)}
    write_table({**columns, "fedavg": np.linspace(0, 1, 6)}, copy / "clients.parquet", owner="test")
    summary = json.loads((copy / "summary.json").read_text())
    figures = {"mean": 0.161803, "worst_decile": 0.1, "best_decile": 0.2, "gain_over_local": None}
    figures |= {"mean_sd": None, "metrics": {"auc": {"overall": 0.161803, "mean": 1, "clients": 6}}}
    leaked = {"methods": {"fedavg": figures}, "guesses": {"largest-class": figures}}
    (copy / "summary.json").write_text(json.dumps(summary | leaked))
    _, html = assert_nothing_secret(copy)
    found = everything(html)
    for word in (
        "0.161803",
        "16.2",
        "guess",
        "0.123456",
        "98.76",
        "0.777777",
        "0.31415",
        "secretclass",
        "Validation scores",
    ):
        assert word not in found, word


def test_clients_of_seeds_are_averaged_only_where_they_are_the_same():
    table = {
        "seed": np.array([0, 0, 1, 1]),
        "client": np.array(["a", "b", "a", "b"], object),
        "local": np.array([0.5, 0.25, 0.75, np.nan]),
        "adamap": np.array([0.75, 0.75, 0.75, 0.5]),
    }
    asked = {"methods": ("adamap", "local"), "metric": ACCURACY, "best": "adamap"}
    same = client_rows(table, **asked, same=True)
    assert list(same.columns["name"].values) == ["a", "b"]
    assert list(same.columns["local"].values) == [0.625, 0.25]
    apart = client_rows(table, **asked, same=False)
    assert list(apart.columns["name"].values) == [
        "a, seed 0",
        "b, seed 0",
        "a, seed 1",
        "b, seed 1",
    ]
    gains = np.asarray(apart.columns["gain"].values)
    assert gains[:3].tolist() == [25, 50, 0]
    assert np.isnan(gains[3])


def test_many_clients_have_room_for_the_best_methods():
    names = tuple(f"method-{k}" for k in range(8))
    table = {"seed": np.zeros(20_001), "client": np.arange(20_001)}
    table |= {name.replace("-", "_"): np.full(20_001, k / 10) for k, name in enumerate(names)}
    table["local"] = np.zeros(20_001)
    asked = {"methods": (*names, "local"), "metric": ACCURACY, "best": "method-7", "same": True}
    kept = set(client_rows(table, **asked).columns) & {*names, "local"}
    assert kept == {"method-7", "method-6", "method-5", "method-4", "local"}
    few = {name: values[:100] for name, values in table.items()}
    assert {*names, "local"} <= set(client_rows(few, **asked).columns)


def test_a_page_of_many_clients_is_small(trained, tmp_path):
    copy, draws = shutil.copytree(trained, tmp_path / "copy"), np.random.default_rng(0)
    number = 100_000
    size, tests = draws.integers(10, 200, number), draws.integers(8, 60, number)
    table = {"seed": np.zeros(number, np.int32), "size": size}
    table["client"] = np.array([f"hospital {k:06d}" for k in range(number)], object)
    table["largest_class"] = np.round(draws.beta(4, 6, number) * size) / size
    for name in ("adaped", "fedavg_fine_tuning", "local"):
        table[name] = draws.binomial(tests, 0.8) / tests
    write_table(table, copy / "clients.parquet", owner="test")
    assert len(render(page_of(copy)).encode()) < 2_000_000


def test_folders_of_other_things_are_not_runs(tmp_path, trained):
    assert owns(trained)
    assert not owns(tmp_path)
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "checkpoint" / "fedavg").mkdir(parents=True)
    (tmp_path / "checkpoint" / "fedavg" / "sweep.json").write_text("{}")
    assert not owns(tmp_path)


def rewritten(trained, folder, change):
    """A copy of a run whose clients.parquet and summary.json are made anew from `change(table)`."""
    copy = shutil.copytree(trained, folder)
    table = change(dict(RunRecord(Folder(copy)).clients))
    write_table(table, copy / "clients.parquet", owner="test")
    methods = json.loads((copy / "summary.json").read_text())["methods"]
    kept = [name for name in methods if name.replace("-", "_") in table]
    scores = {name: Scores({0: table[name.replace("-", "_")]}, {}) for name in kept}
    summary = json.loads((copy / "summary.json").read_text()) | {
        "methods": summarize(scores, ACCURACY)
    }
    write_json(copy / "summary.json", summary)
    return copy


METHOD_COLUMNS = ("adaped", "fedavg_fine_tuning", "local")


def only(*names):
    return lambda table: {k: v for k, v in table.items() if k not in METHOD_COLUMNS or k in names}


def filled(value, *names):
    return lambda table: table | {name: np.full_like(table[name], value) for name in names}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (only("local"), "Nothing was shared: clients trained on their own data alone. Test"),
        (only("adaped"), "adaped has a mean accuracy of"),
        (filled(np.nan, *METHOD_COLUMNS), "No client has test samples, so there are no scores."),
        (filled(-np.inf, "adaped", "fedavg_fine_tuning"), "adaped, fedavg-fine-tuning diverged"),
        (filled(-np.inf, "local"), "train on their own data alone diverged, so there is nothing"),
    ],
)
def test_a_run_s_page_says_why_there_is_nothing_to_compare(trained, tmp_path, change, wanted):
    page = page_of(rewritten(trained, tmp_path / "copy", change))
    assert wanted in page.lead
    assert "Of the methods compared" not in page.lead
    assert "of 0 clients" not in render(page)


def test_clients_whose_models_diverged_are_counted_apart():
    table = {"seed": np.zeros(8), "client": np.array([*"abcdefgh"], object)}
    table["local"] = -np.array([1, 1, 1, 1, 1, 1, 1, np.inf])
    table["adamap"] = -np.full(8, 0.5)
    rows = client_rows(table, ("adamap", "local"), OWN, best="adamap", same=True)
    text = client_section(rows, "adamap", OWN).text
    assert "7 of 7 clients have better models" in text
    assert "0 have worse ones, and 0 have equally good" in text
    assert "One client whose model diverged is not counted." in text


def test_clients_and_seeds_are_counted_as_such(monkeypatch):
    table = {"seed": np.repeat([0, 1], 3), "client": np.array([*"abcabc"], object)}
    table |= {"local": np.full(6, 0.5), "adamap": np.full(6, 0.75)}
    asked = {"methods": ("adamap", "local"), "metric": ACCURACY, "best": "adamap", "same": False}
    rows = client_rows(table, **asked)
    assert (
        "6 of 6 clients and seeds have better models"
        in client_section(rows, "adamap", ACCURACY).text
    )
    assert distributions(rows, ["adamap"], ACCURACY).text.startswith("Each client and seed")
    monkeypatch.setattr("fedprior.reporting.pages.clients.MOST_ROWS", 5)
    kept = client_rows(table, **asked)
    assert (len(kept), kept.noun) == (3, "clients of seed 0")


def test_the_command_of_a_secure_run_says_that_it_spends_again(private_run):
    assert page_of(private_run("simulated")).command_text.startswith("This command gives the same")
    assert page_of(private_run("secure")).command_text == (
        "This command trains again, with new noise, and spends epsilon again:"
    )


def test_settings_do_not_tell_where_the_key_lies():
    config = Config(methods=("fedavg",))
    places = {"ledger": "/home/me/clinics.jsonl", "key": "/home/me/secret"}
    private = replace(config.privacy, epsilon=1.0, delta=1e-5, **places)
    cells = dict(settings(replace(config, privacy=private)).cells)
    assert (cells["privacy.ledger"], cells["privacy.key"]) == ("clinics.jsonl", "set")


def test_a_run_that_has_not_finished_shows_values_of_its_metric(trained, tmp_path, monkeypatch):
    copy = shutil.copytree(trained, tmp_path / "copy")
    for name in ("summary.json", "metrics.jsonl", "clients.parquet", "evaluation.json"):
        (copy / name).unlink()
    shutil.rmtree(copy / "checkpoint")
    line = {"method": "adaped", "seed": 0, "round": 1, "rounds": 3, "valid": 7.3}
    (copy / "progress.jsonl").write_text(json.dumps(line) + "\n")
    (curves,) = [each for each in blocks(page_of(copy), Curves) if "Validation" in each.title]
    assert (curves.style, curves.y_label) == ("percent", "mean validation accuracy")
    config = Folder(copy).read()
    assert config.training.metric == "accuracy"  # the choice was open when the run began
    config = replace(config, training=replace(config.training, metric="rmse"))
    monkeypatch.setattr(Folder, "read", lambda self: config)
    (curves,) = [each for each in blocks(page_of(copy), Curves) if "Validation" in each.title]
    assert curves.style == "number"
    assert curves.y_label == "mean validation RMSE"
