"""`--metric`, and the metrics of `train`, `sweep` and `personalize` on the screen and in files."""

import json

import duckdb
import numpy as np
import pytest

from fedprior.cli.scores import remarks
from fedprior.core.scores import METRICS
from fedprior.pages.page import SmallTable
from fedprior.reporting.folder import Folder
from fedprior.reporting.pages.record import RunRecord
from fedprior.reporting.pages.run import page_of


def quantities(path, clients="abcd", rows=12):
    draws, lines = np.random.default_rng(2), ["shop,size,price"]
    for place, client in enumerate(clients):
        for size in draws.normal(size=rows):
            lines.append(f"{client},{size:.3f},{100 + 10 * size + place + draws.normal():.3f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def prices(tmp_path_factory, call, fast):
    """A run that predicts a quantity."""
    folder = tmp_path_factory.mktemp("prices")
    words = ["train", "--data", quantities(folder / "prices.csv"), "--client", "shop"]
    words += ["--label", "price", "--algorithm", "fedavg", "--algorithm", "local"]
    options = fast(model__name="linear", training__evaluate_every=1)
    assert call([*words, *options, "--out", folder / "run", "--quiet"]) == 0
    return folder / "run"


def columns_of(run):
    found = duckdb.sql(f"SELECT * FROM '{run / 'clients.parquet'}'").fetchnumpy()
    return {name: np.ma.filled(values) for name, values in found.items()}


def test_a_quantity_is_scored_by_its_root_mean_squared_error(prices):
    summary = json.loads((prices / "summary.json").read_text())
    assert summary["metric"] == "rmse"
    row, own = summary["methods"]["fedavg"], columns_of(prices)
    assert row["mean"] == pytest.approx(own["fedavg"].mean())
    assert row["worst_decile"] == own["fedavg"].max()
    assert row["best_decile"] == own["fedavg"].min()
    gain = own["local"] - own["fedavg"]  # a lower error is better
    assert row["gain_over_local"] == pytest.approx(gain.mean())
    assert row["share_gaining"] == np.mean(gain > 0)
    assert row["metrics"]["rmse"]["mean"] == pytest.approx(row["mean"], rel=1e-5)
    assert row["metrics"]["r2"]["mean"] == pytest.approx(own["fedavg_r2"].mean(), rel=1e-5)
    assert set(summary["guesses"]) == {"mean", "own-mean"}
    assert abs(summary["guesses"]["mean"]["metrics"]["r2"]["overall"]) < 0.5
    assert summary["largest_class"] is None
    lines = [json.loads(line) for line in (prices / "metrics.jsonl").read_text().splitlines()]
    told = [json.loads(line) for line in (prices / "progress.jsonl").read_text().splitlines()]
    for each in (lines, told):
        assert all(line["valid"] > 0 for line in each if "valid" in line)
    assert any("valid" in line for line in lines)


def test_nobody_reads_of_minus_a_squared_error(prices, command):
    shown = command("train", "--resume", prices)
    assert "Test RMSE of the clients' own models" in shown.out
    assert "R²" in shown.out
    assert "guess: own mean" in shown.out
    page = page_of(prices)
    best = RunRecord(Folder(prices)).methods["fedavg"]["mean"]
    assert "mean RMSE" in page.lead
    assert f"{best:.4g}" in page.lead
    (table,) = [
        block
        for part in page.sections
        for block in part.blocks
        if isinstance(block, SmallTable) and block.title == "All test samples together"
    ]
    assert table.head == ("", "RMSE", "R²")


def test_the_metric_that_was_asked_for_comes_first(command, on_table, tmp_path):
    words = ["--algorithm", "fedavg", "--algorithm", "local", "--metric", "log-loss"]
    out = tmp_path / "run"
    found = command("train", *on_table, *words, "--out", out)
    assert found.code == 0, found.err
    assert "Test log loss of the clients' own models" in found.out
    second = found.out[found.out.index("All test samples together") :]
    assert second.index("log ") < second.index("accuracy")
    assert "guess: own largest class" in second
    summary = json.loads((out / "summary.json").read_text())
    assert summary["methods"]["fedavg"]["mean"] == pytest.approx(columns_of(out)["fedavg"].mean())
    assert {"fedavg_accuracy", "fedavg_auc", "local_calibration_error"} <= set(columns_of(out))
    again = command("train", "--resume", out, "--json")  # metrics are read from the folder
    assert json.loads(again.out) == summary
    wide = max(len(line.rstrip()) for line in second.splitlines())
    assert wide <= 80


def test_a_sweep_chooses_by_the_metric(command, on_table, tmp_path):
    words = ["--algorithm", "fedavg", "--over", "lr=0.01,0.1", "--metric", "auc"]
    found = command("sweep", *on_table, *words, "--out", tmp_path / "s", "--json")
    assert found.code == 0, found.err
    summary = json.loads(found.out)
    assert summary["metric"] == "auc"
    rows = duckdb.sql(f"SELECT * FROM '{tmp_path / 's' / 'trainings.parquet'}'").fetchall()
    names = duckdb.sql(f"SELECT * FROM '{tmp_path / 's' / 'trainings.parquet'}'").columns
    by_rate = {row[names.index("lr")]: row[names.index("valid")] for row in rows}
    chosen = summary["methods"]["fedavg"]
    assert chosen["valid"] == pytest.approx(max(by_rate.values()))
    other = command("sweep", *on_table, *words[:-1], "log-loss", "--out", tmp_path / "s")
    assert other.code == 2
    assert "got another training" in other.err


def test_a_metric_that_does_not_fit_is_refused(refused, on_table, prices, tmp_path):
    out = ("--out", tmp_path / "run")
    refused("train", *on_table, *out, "--metric", "r2", wanted="metric must be one for classes")
    refused(
        "train", *on_table, *out, "--metric", "f1", wanted="metric must be one of auto, accuracy"
    )
    refused("train", "--resume", prices, "--metric", "r2", wanted="--resume must stand alone")
    assert not (tmp_path / "run").exists()


def test_personalize_scores_labeled_rows(prices, command, tmp_path):
    new = quantities(tmp_path / "new.csv", "abz", rows=6)
    words = ("personalize", prices, "--data", new, "--out", tmp_path / "p.csv")
    answer = json.loads(command(*words, "--json").out)
    assert answer["newcomer"] == 6
    assert answer["metrics"]["rmse"]["clients"] == 2  # a newcomer's rows made its model
    assert "On the labeled rows: RMSE" in command(*words, "--force").err
    header, *rows = new.read_text().splitlines()
    new.write_text("\n".join([header, *(row.rsplit(",", 1)[0] + "," for row in rows[:12])]) + "\n")
    assert json.loads(command(*words, "--force", "--json").out)["metrics"] is None


def test_uneven_classes_are_said():
    def said(share, classes=2):
        largest = {"name": "no", "share": share, "classes": classes}
        return list(remarks({"largest_class": largest, "methods": {}}))

    assert said(0.6) == []
    assert said(0.25, classes=10) == []
    (line,) = said(0.9)
    assert "'no' has 90.0% of the training samples" in line
    assert len(said(0.4, classes=10)) == 1
    counts = {metric.key: {"clients": 5} for metric in METRICS.values()} | {"auc": {"clients": 3}}
    (line,) = remarks({"methods": {"fedavg": {"metrics": counts}}})
    assert line == "AUC is defined for 3 of the 5 clients with test samples."
    none = {key: {"clients": 0} for key in counts}
    (line,) = remarks({"methods": {"fedavg": {"metrics": none}}})
    assert line.startswith("No client has test samples, so nothing is scored")
