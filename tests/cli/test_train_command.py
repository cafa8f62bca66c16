"""`fedprior train`: what it prints, what it writes, how it goes on."""

import contextlib
import io
import json
import os
import shutil
import signal
import tomllib

import duckdb
import jax
import numpy as np
import pytest
from rich.console import Console

import fedprior
from fedprior.cli.progress import Watcher
from fedprior.engines.simulate import Progress
from fedprior.reporting.pages.run import page_of

METHODS = ["adaped", "fedavg-fine-tuning", "local"]
FIGURES = {"mean", "worst_decile", "best_decile", "gain_over_local", "share_gaining"}


def test_json_is_all_there_is_on_standard_output(command, on_table, three, trained, tmp_path):
    found = command("train", *on_table, *three, "--out", tmp_path / "run", "--json")
    assert found.code == 0
    answer = json.loads(found.out)
    assert answer["format"] == 2
    assert answer["run"] == str(tmp_path / "run")
    assert list(answer["methods"]) == METHODS
    for figures in answer["methods"].values():
        assert set(figures) >= FIGURES
        assert all(0 <= figures[name] <= 1 for name in FIGURES - {"gain_over_local"})
        assert figures["worst_decile"] <= figures["mean"] <= figures["best_decile"]
    local = answer["methods"]["local"]
    assert local["gain_over_local"] == local["share_gaining"] == 0
    gain = 100 * (answer["methods"]["adaped"]["mean"] - local["mean"])
    assert answer["methods"]["adaped"]["gain_over_local"] == pytest.approx(gain)
    assert "adaped: done in" in found.err
    saved = json.loads((trained / "summary.json").read_text())
    assert saved["methods"] == answer["methods"]  # the same command, the same numbers


def test_a_table_on_the_embedded_digits(command, fast, tmp_path):
    out = tmp_path / "run"
    found = command("train", "--algorithm", "fedavg", *fast(), "--out", out)
    assert found.code == 0
    lines = found.out.splitlines()
    assert "digits" in lines[0]
    assert any(line.strip().startswith("fedavg") for line in lines)
    assert str(out) in found.err
    assert str(out) not in found.out


def test_quiet_says_nothing_on_standard_error(command, on_table, trained, tmp_path):
    found = command("train", *on_table, "--algorithm", "local", "--quiet", "--out", tmp_path / "r")
    assert (found.code, found.err) == (0, "")


def test_the_run_folder_is_complete(trained):
    names = {path.name for path in trained.iterdir()}
    wanted = {"config.toml", "metrics.jsonl", "clients.parquet", "summary.json", "checkpoint"}
    assert names == {*wanted, "evaluation.json", "progress.jsonl", "model"}
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    rounds = {"adaped": 3, "fedavg-fine-tuning": 3, "local": 1}
    assert [(line["method"], line["round"]) for line in lines] == [
        (name, number + 1) for name in METHODS for number in range(rounds[name])
    ]
    assert all("psi" in line for line in lines if line["method"] == "adaped")
    assert {path.name for path in (trained / "checkpoint").iterdir()} == set(METHODS)
    assert not list(trained.rglob("*.tmp"))


def test_clients_are_a_table_that_others_read(trained):
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT client, size, adaped, fedavg_fine_tuning, local FROM read_parquet(?)",
            [str(trained / "clients.parquet")],
        ).fetchall()
    assert [row[0] for row in rows] == list("abcdef")
    assert {row[1] for row in rows} == {6}  # of 10 rows a quarter is for tests, 15 % for choices
    summary = json.loads((trained / "summary.json").read_text())
    for place, name in enumerate(METHODS):
        mean = np.mean([row[2 + place] for row in rows])
        assert mean == pytest.approx(summary["methods"][name]["mean"])


def test_the_configuration_is_complete_and_runs_again(command, trained, tmp_path):
    tables = tomllib.loads((trained / "config.toml").read_text())
    assert tables["training"]["theta_rate"] == 0.1  # a default, written out
    assert tables["data"]["fingerprint"]
    again = command("train", trained / "config.toml", "--out", tmp_path / "again", "--json")
    saved = json.loads((trained / "summary.json").read_text())
    assert json.loads(again.out)["methods"] == saved["methods"]
    for name in ("config.toml", "metrics.jsonl"):
        assert (tmp_path / "again" / name).read_text() == (trained / name).read_text()


def test_a_finished_run_is_read_back(command, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    found = command("train", "--resume", copy, "--json")
    saved = json.loads((trained / "summary.json").read_text())
    assert json.loads(found.out)["methods"] == saved["methods"]
    assert found.err == ""
    assert (copy / "metrics.jsonl").read_text() == (trained / "metrics.jsonl").read_text()


def test_resume_after_a_method_was_lost(command, trained, tmp_path):
    """One method has its last checkpoint and no scores, another has nothing."""
    copy = shutil.copytree(trained, tmp_path / "copy")
    (copy / "checkpoint" / "adaped" / "seed-0" / "scores.safetensors").unlink()
    shutil.rmtree(copy / "checkpoint" / "local")
    for name in ("summary.json", "clients.parquet", "metrics.jsonl"):
        (copy / name).unlink()
    found = command("train", "--resume", copy, "--json")
    saved = json.loads((trained / "summary.json").read_text())
    assert json.loads(found.out)["methods"] == saved["methods"]
    assert (copy / "metrics.jsonl").read_text() == (trained / "metrics.jsonl").read_text()


def interrupting(self, name):
    """A watch that presses Ctrl-C after the second round."""

    def press(step):
        if step.round >= 2:
            os.kill(os.getpid(), signal.SIGINT)

    return contextlib.nullcontext(press)


def test_an_interrupt_saves_and_resume_continues(command, on_table, tmp_path, monkeypatch):
    options = [*on_table, "--algorithm", "adaped", "--set", "training.rounds=9"]
    options += ["--set", "training.evaluate_every=4", "--set", "training.store=disk"]
    whole = command("train", *options, "--out", tmp_path / "whole", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "watch", interrupting)
        cut = command("train", *options, "--out", tmp_path / "cut", "--json")
    assert (cut.code, cut.out) == (130, "")
    assert "Continue with: fedprior train --resume" in cut.err
    assert "Traceback" not in cut.err
    with pytest.raises(ValueError, match=r"adaped is not finished for seed 0 in .*cut\. Con"):
        fedprior.load(tmp_path / "cut")
    again = command("train", "--resume", tmp_path / "cut", "--json")
    assert json.loads(again.out)["methods"] == json.loads(whole.out)["methods"]
    for name in ("metrics.jsonl", "config.toml"):
        cut_text, whole_text = ((tmp_path / run / name).read_text() for run in ("cut", "whole"))
        assert cut_text == whole_text
    for file in (tmp_path / "whole" / "model").rglob("*.*"):
        again = tmp_path / "cut" / file.relative_to(tmp_path / "whole")
        assert file.read_bytes() == again.read_bytes()


def test_several_seeds(command, on_table, trained, tmp_path):
    options = [*on_table, "--algorithm", "local", "--seed", "1", "--seeds", "2"]
    found = command("train", *options, "--out", tmp_path / "run", "--json")
    figures = json.loads(found.out)["methods"]["local"]
    assert figures["seeds"] == 2
    assert figures["mean_sd"] >= 0
    with duckdb.connect() as connection:
        scores = connection.execute(
            "SELECT avg(local) FROM read_parquet(?) GROUP BY seed",
            [str(tmp_path / "run" / "clients.parquet")],
        ).fetchall()
    assert figures["mean"] == pytest.approx(np.mean(scores))
    first, second = (fedprior.load(tmp_path / "run", seed=seed) for seed in (1, 2))
    assert (first.seed, second.seed) == (1, 2)
    thetas = [jax.tree.leaves(each.clients.theta("a"))[0] for each in (first, second)]
    assert not np.array_equal(*thetas)


def shown_by(**flags):
    """What a watcher draws on a terminal."""
    watcher = Watcher(quiet=False, **flags)
    screen = io.StringIO()
    watcher.console = Console(file=screen, force_terminal=True, width=120)
    with watcher.watch("fedavg") as move:
        move(Progress(round=2, rounds=3, score=0.625, clients_per_second=4321.0))
    return screen.getvalue()


def test_progress_shows_scores_and_speed_unless_they_stay():
    told = shown_by()
    assert "accuracy 62.5" in told
    assert "4,321 clients/s" in told
    assert "2/3" in told
    kept = shown_by(scores=False, speed=False)
    assert "2/3" in kept
    assert "accuracy" not in kept
    assert "clients/s" not in kept


def test_what_a_run_tells_on_its_way(command, tmp_path, monkeypatch):
    """The command asks for a discreet watcher where noise is secure."""
    asked = []

    def note(self, **flags):
        asked.append(flags)
        raise ValueError("enough")

    monkeypatch.setattr(Watcher, "__init__", note)
    private = ["privacy.epsilon=8", "privacy.delta=1e-2", "privacy.noise_multiplier=9"]
    changes = ["methods=fedavg", "privacy.noise=secure", *private]
    mean = ["privacy.release_scores=true", "privacy.score_epsilon=1"]
    open_ = ["privacy.unprotected_scores=true"]
    more_and_more = {"a": [], "b": changes, "c": [*changes, *mean], "d": [*changes, *open_]}
    for name, more in more_and_more.items():
        options = [word for change in more for word in ("--set", change)]
        command("train", *options, "--quiet", "--out", tmp_path / name)
    shown = [(flags["scores"], flags["speed"]) for flags in asked]
    assert shown == [(True, True), (False, False), (False, False), (True, False)]


def test_boosting_beside_the_methods(command, fast, table, tmp_path):
    """Three more rows, with every metric, also on the run's page; a resumed run keeps them."""
    named = ("--data", table, "--client", "shop", "--label", "outcome", "--algorithm", "local")
    run = tmp_path / "run"
    words = ("--baseline", "boosting", "--json", "--quiet")
    answer = command("train", *named, *fast(), "--out", run, *words)
    assert answer.code == 0, answer.err
    summary = json.loads(answer.out)
    kinds = ["boosting-alone", "boosting-pooled", "boosting-pooled-with-id"]
    assert list(summary["baseline"]) == kinds
    assert list(summary["methods"]) == ["local"]
    for kind in kinds:
        row = summary["baseline"][kind]
        assert 0 <= row["mean"] <= 1
        assert row["metrics"]["log_loss"]["overall"] > 0
        assert row["gain_over_local"] is not None
    again = json.loads(command("train", "--resume", run, *words).out)
    assert again == summary
    shown = command("train", "--resume", run, "--baseline", "boosting", "--quiet")
    assert all(kind in shown.out for kind in kinds)
    plain = json.loads(command("train", "--resume", run, "--json", "--quiet").out)
    assert plain == summary
    methods = next(each for each in page_of(run).sections if each.title == "Methods")
    assert [cells[0] for cells in methods.blocks[0].cells][1:4] == kinds


def test_rates_are_chosen_and_kept(command, fast, table, tmp_path, monkeypatch):
    """The run of a chosen configuration is the run that chose it, to the bit."""
    from fedprior.reporting import settle

    monkeypatch.setattr(settle, "RATES", (0.001, 0.1))
    monkeypatch.setattr(settle, "HIGHER", 0.1)
    monkeypatch.setattr(settle, "_DECAYS", ())
    named = ("--data", table, "--client", "shop", "--label", "outcome", "--algorithm", "fedavg")
    options = fast()
    place = options.index("training.theta_rate=0.1") - 1
    options = options[:place] + options[place + 2 :]
    answer = command("train", *named, *options, "--out", tmp_path / "a")
    assert answer.code == 0, answer.err
    assert "fedavg: gamma_rate 0.1" in answer.err
    tried = json.loads((tmp_path / "a" / "choice.json").read_text())["tried"]
    assert [row["gamma_rate"] for row in tried if row["method"] == "fedavg"][:2] == [0.001, 0.1]
    assert tried[0]["log_loss"] > tried[1]["log_loss"]
    again = command("train", tmp_path / "a" / "config.toml", "--out", tmp_path / "b", "--quiet")
    assert again.code == 0, again.err
    assert not (tmp_path / "b" / "choice.json").exists()
    first, second = (fedprior.load(tmp_path / name) for name in "ab")
    for one, other in zip(jax.tree.leaves(first.state), jax.tree.leaves(second.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_clients_with_next_to_nothing(command, fast, tmp_path):
    """One class, three rows, a class that nobody else has: every figure is finite."""
    draws = np.random.default_rng(1)
    lines = ["shop,price,outcome"]
    lines += [f"{shop},{draws.normal():.3f},{'yes' if n % 3 else 'no'}"
              for shop in "abc" for n in range(12)]  # fmt: skip
    lines += [f"d,{n / 9:.3f},no" for n in range(9)]
    lines += ["e,0.1,no", "e,0.2,yes", "e,0.3,perhaps", "f,1.0,yes"]
    (tmp_path / "few.csv").write_text("\n".join(lines) + "\n")
    named = ("--data", tmp_path / "few.csv", "--client", "shop", "--label", "outcome")
    both = ("--algorithm", "adamap", "--algorithm", "local", "--baseline", "boosting")
    answer = command(
        "train", *named, *both, *fast(), "--out", tmp_path / "run", "--json", "--quiet"
    )
    assert answer.code == 0, answer.err
    summary = json.loads(answer.out)
    for row in (summary["methods"] | summary["baseline"]).values():
        assert np.isfinite(row["metrics"]["log_loss"]["overall"])
    model = fedprior.load(tmp_path / "run")
    shares = model.predict_proba({"shop": ["d", "e", "f"], "price": [0.5, 0.2, 1.0]})
    assert np.isfinite(shares).all()
    assert shares[0].argmax() == list(model.classes_).index("no")  # d has seen nothing else


def test_the_baseline_pools_rows_and_is_refused_with_secure_noise(refused, fast, tmp_path):
    private = {"privacy.epsilon": 3, "privacy.delta": 0.01, "privacy.noise": "secure"}
    words = [word for key, value in private.items() for word in ("--set", f"{key}={value}")]
    refused(
        *("train", "--algorithm", "fedavg", *fast(), *words, "--baseline", "boosting"),
        *("--out", tmp_path / "run"),
        wanted="--baseline must be left out with secure noise, got boosting",
    )
