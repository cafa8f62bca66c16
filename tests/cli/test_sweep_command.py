"""`fedprior sweep` and the comparisons of `fedprior reproduce`, on federations of a few clients."""

import json
from dataclasses import replace

import duckdb
import pytest

from fedprior.cli import everything
from fedprior.experiments import comparison_settings as known
from fedprior.reporting.config import Config, Data, ModelChoice, Schedule, read


@pytest.fixture
def small(fast):
    return ["--algorithm", "fedavg", "--algorithm", "local", *fast()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sweep") / "s"


@pytest.fixture
def swept(command, folder, small):
    """Trained for the first test, read back for the others."""
    words = ["sweep", "--over", "lr=0.01,0.5", "--seeds", "2", *small, "--out", str(folder)]
    return command(*words, "--json"), words


def test_a_sweep_tells_what_it_chose(swept, folder):
    found, _ = swept
    assert found.code == 0
    answer = json.loads(found.out)
    assert answer == json.loads((folder / "sweep.json").read_text())
    assert (answer["seeds"], answer["over"]) == ([0, 1], {"lr": [0.01, 0.5]})
    for row in answer["methods"].values():
        assert row["chosen"]["lr"] in (0.01, 0.5)
        assert 0 <= row["test"] <= 1
        assert row["points"] == 2


def test_trainings_are_a_parquet_file(swept, folder):
    rows = duckdb.sql(f"SELECT * FROM '{folder / 'trainings.parquet'}'").fetchall()
    assert len(rows) == 2 * 2 * 2
    chosen = duckdb.sql(
        f"SELECT method, max(valid), max(valid) FILTER (chosen = 1), count(test) "
        f"FROM (SELECT method, lr, avg(valid) AS valid, max(chosen) AS chosen, "
        f"max(test) AS test FROM '{folder / 'trainings.parquet'}' GROUP BY method, lr) GROUP BY 1"
    ).fetchall()
    assert all(best == own and tested == 1 for _, best, own, tested in chosen)


def test_the_same_command_reads_back_and_shows_a_table(swept, command):
    _, words = swept
    shown = command(*words)
    assert shown.code == 0
    assert "Chosen by the validation accuracy" in shown.out
    assert "lr =" in shown.out
    assert "trainings in" not in shown.err  # nothing was trained


def test_a_sweep_under_simulated_noise_says_that_nothing_is_private(command, small, tmp_path):
    private = ["--set", 'methods=["fedavg"]', "--set", "privacy.epsilon=8", "--set"]
    private += ["privacy.delta=1e-3", "--out", str(tmp_path / "s")]
    found = command("sweep", "--over", "lr=0.1", *small, *private, "--json")
    assert found.code == 0, found.err
    assert "nothing of this sweep is private" in " ".join(found.err.split())


def test_a_sweep_is_no_run(swept, folder, refused, new_rows, tmp_path):
    """Both have a config.toml; a training would write its files among those of the sweep."""
    before = sorted(folder.rglob("*"))
    refused("train", "--resume", folder, wanted="is the folder of a sweep, not of a run")
    words = ("--data", new_rows(tmp_path / "new.csv", "ab"), "--out", tmp_path / "out.csv")
    refused("personalize", folder, *words, wanted="is the folder of a sweep, not of a run")
    assert sorted(folder.rglob("*")) == before


def test_another_sweep_in_the_same_folder_is_refused(swept, command):
    _, words = swept
    found = command(*[word if word != "lr=0.01,0.5" else "lr=0.02" for word in words])
    assert found.code == 2
    assert "configuration must be the one" in found.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "lr"], "--over must be of the form NAME=VALUE,VALUE, got 'lr'"),
        (["--over", "rats=1.0"], "Did you mean rate?"),
        (["--over", "lr=0.1", "--over", "lr=0.2"], "--over must be once for each name"),
        (["--over", "lr=0.1,0.1"], "lr must be a list of distinct values"),
        (["--over", "lr=0.1,"], "--over must be of the form NAME=VALUE,VALUE, got 'lr=0.1,'"),
        (["--over", "lr=0.1", "--over", "rate=0.2"], "--over must be of rate or of lr"),
        (
            ["--algorithm", "ditto", "--over", "lr=0.1", "--over", "penalty=-1.0"],
            "ditto: penalty must be a number of at least 0, got -1.0",
        ),
        (["--algorithm", "local-converged"], "It tunes its number of steps itself"),
        (["--set", "training.store=disk"], "training.store must be 'device', got 'disk'"),
        (["--set", "training.cohort_size=31"], "at most the number of clients (30), got 31"),
        (
            [
                *["--over", "lr=0.1", "--set", 'methods=["fedavg"]', "--set", "privacy.epsilon=1"],
                *["--set", "privacy.delta=1e-5", "--set", "privacy.noise=secure"],
            ],
            "privacy.noise must be 'simulated'",
        ),
    ],
)
def test_bad_input_leaves_nothing(command, tmp_path, small, words, message):
    out = tmp_path / "s"
    found = command("sweep", *small, *words, "--out", str(out))
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert not out.exists()


def test_another_method_goes_into_the_same_folder(command, small, tmp_path):
    """Whatever differs from what lies there is noticed before anything is trained."""
    out, words = tmp_path / "s", ["sweep", "--seeds", "2", *small[4:]]
    first = ["--over", "lr=0.01,0.5", "--algorithm", "fedavg", "--out", str(out)]
    assert command(*words, *first).code == 0
    both = ["--algorithm", "local", "--algorithm", "fedavg", "--out", str(out)]
    for other in (["--over", "lr=0.02"], [*first[:2], "--set", "training.rounds=4"]):
        found = command(*words, *other, *both)
        assert found.code == 2
        assert "that fedavg began with" in found.err
        assert not (out / "checkpoint" / "local").exists()
    found = command(*words, *first[:2], *both, "--json")
    assert found.code == 0, found.err
    assert list(json.loads(found.out)["methods"]) == ["local", "fedavg"]
    assert read(out / "config.toml").methods == ("local", "fedavg")
    assert "fedavg: 4 trainings" not in found.err


def test_a_place_that_is_taken_is_refused_at_once(refused, small, tmp_path):
    file, run = tmp_path / "notes.txt", tmp_path / "run"
    file.write_text("mine")
    (run / "checkpoint" / "fedavg" / "seed-0").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for out in (file, file / "sub", tmp_path, run):
        words = ["sweep", *small, "--over", "lr=0.1", "--out", out]
        refused(*words, wanted="--out must be a new or empty folder, or a sweep's, got")
    assert file.read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sweep_of_a_table(command, refused, table, fast, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shops.csv"
    file.write_text(table.read_text() + "a,1.0,red,\n")
    words = ["sweep", "--data", "shops.csv", "--client", "shop", *fast(), "--over", "lr=0.1"]
    words += ["--algorithm", "fedavg"]
    refused(*words, wanted="Say which column it is: --label COLUMN")
    words += ["--label", "outcome", "--features", "price"]
    none = ["--set", "data.options.valid_share=0.0"]
    refused(*words, *none, wanted="clients have no validation samples")
    assert not (tmp_path / "sweeps").exists()
    found = command(*words, "--out", "s")
    assert found.code == 0, found.err
    assert "1 of 61 rows dropped: no label." in found.err
    data = read(tmp_path / "s" / "config.toml").data
    assert (data.path, data.features) == (str(file), ("price",))
    file.write_text(table.read_text())
    refused(*words, "--out", "s", wanted="began with in s, got another data")


@pytest.fixture
def tiny(monkeypatch):
    setting = known.Setting(
        name="tiny",
        title="Tiny",
        config=Config(
            data=Data(
                name="synthetic",
                options={
                    "num_clients": 6,
                    "samples_per_client": (8, 12),
                    "num_features": 3,
                    "num_classes": 3,
                },
            ),
            model=ModelChoice(name="logistic"),
            training=Schedule(rounds=5, cohort="fixed", cohort_size=2, batch_size=0, decay=0.99),
            options={},
        ),
    )
    table = known.Comparison(settings=(setting,), methods=("fedavg", "local"), seeds=2)
    monkeypatch.setitem(known.COMPARISONS, "table1", table)


def test_pieces_that_were_not_made_alike_are_refused(tiny, command, tmp_path):
    """Other seeds, other rounds: gaps are paired by seed."""
    words = ["reproduce", "table1", "--out", str(tmp_path / "t"), "--quick"]
    assert command(*words, "--method", "local", "--seed", "5").code == 0
    for other in (["--seed", "7"], ["--seed", "5", "--seeds", "2"]):
        found = command(*words, "--method", "fedavg", *other)
        assert found.code == 2
        assert "local.json: seeds must be" in found.err
    full = command(*words[:-1], "--method", "fedavg", "--seed", "5", "--seeds", "1")
    assert "local.json: grid must be" in full.err
    again = command(*words, "--seed", "5", "--json")
    assert json.loads(again.out)["command"] == "fedprior reproduce table1 --quick --seed 5"


def test_an_out_that_cannot_be_a_folder_is_refused_at_once(tiny, command, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name in ("table1", "all"):
        for out in ("file", "file/below", "nowhere"):
            found = command("reproduce", name, "--quick", "--out", str(tmp_path / out))
            assert found.code == 2
            assert "--out must be a folder, or a name that is free" in found.err
    assert command("reproduce", "all", "--data", "gone", "--out", str(tmp_path / "o")).code == 2
    assert not (tmp_path / "o").exists()


def test_a_folder_of_another_comparison_is_refused_and_kept(tiny, command, tmp_path, monkeypatch):
    out = tmp_path / "t"
    words = ["--quick", "--method", "local", "--out", str(out)]
    shown = command("reproduce", "table1", *words)
    assert shown.code == 0, shown.err
    again = "Again: fedprior reproduce table1 --quick --method local"  # of two methods
    assert again in " ".join(shown.out.split())
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    monkeypatch.setitem(known.COMPARISONS, "beyond", known.COMPARISONS["table1"])
    found = command("reproduce", "beyond", *words)
    assert found.code == 2
    assert "rows.json must be of beyond, got 'table1'. Choose another --out." in found.err
    assert before == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    (out / "rows.json").unlink()
    other = replace(known.COMPARISONS["table1"], methods=("fedavg",))
    monkeypatch.setitem(known.COMPARISONS, "beyond", other)
    found = command("reproduce", "beyond", "--quick", "--out", str(out))
    assert "local.json: method must be one of this comparison, got 'local'" in found.err


def test_a_comparison_in_pieces(tiny, command, tmp_path):
    out = tmp_path / "t"
    words = ["reproduce", "table1", "--quick", "--out", str(out)]
    first = command(*words, "--method", "local")
    assert first.code == 0, first.err
    whole = command(*words, "--json")
    answer = json.loads(whole.out)
    assert answer["command"] == "fedprior reproduce table1 --quick"
    assert [row["setting"] for row in answer["rows"]] == ["tiny", "tiny"]
    assert {row["method"] for row in answer["rows"]} == {"fedavg", "local"}
    assert set(answer["rows"][0]) >= {"mean", "sd", "seeds", "worst_decile", "paper_says", "tuned"}
    assert answer["quick"]
    assert {file.name for file in out.iterdir()} == {"tiny", "rows.json", "table.md", "clients.png"}
    assert json.loads((out / "rows.json").read_text()) == answer


def test_the_same_optimizer_for_all_is_kept_beside_the_published_ones(tiny, command, tmp_path):
    out = tmp_path / "t"
    words = ["reproduce", "table1", "--quick", "--rates", "0.1,0.5", "--out", str(out)]
    assert command(*words, "--method", "local").code == 0
    page = tmp_path / "page.html"
    whole = command(*words, "--equal", "--report", str(page))
    assert whole.code == 0, whole.err
    shown = " ".join(whole.out.split())
    assert "with published optimizers, local has" in shown
    assert "with the same optimizer for all, " in shown
    assert "Again: fedprior reproduce table1 --quick --equal --rates 0.1,0.5" in shown
    assert "the same optimizer for all" in page.read_text()
    made = json.loads((out / "equal" / "rows.json").read_text())
    assert made["optimizer"]["name"] == "equal"
    assert {row["optimizer"] for row in made["rows"]} == {"equal"}
    (fedavg,) = (row for row in made["rows"] if row["method"] == "fedavg")
    assert fedavg["options"]["momentum"] == made["optimizer"]["momentum"]
    assert made["grid"] == [0.1, 0.5]
    assert command("report", str(out), "--out", str(tmp_path / "both.html")).code == 0
    assert "Under each optimizer" in (tmp_path / "both.html").read_text()


@pytest.mark.parametrize("rates", ["a", "0.1,", "0.1,0.1", "-1"])
def test_rates_are_numbers_between_commas(tiny, command, tmp_path, rates):
    found = command("reproduce", "table1", "--rates", rates, "--out", str(tmp_path / "t"))
    assert found.code == 2
    assert "rates must be" in found.err


def test_the_optimizer_for_all_is_chosen_in_pieces(tiny, command, tmp_path, monkeypatch):
    from fedprior.experiments import optimizer_choice

    monkeypatch.setattr(optimizer_choice, "CHOICE", known.COMPARISONS["table1"])
    grid = {"momentum": (0.0, 0.9), "clip": (1.0,), "horizon": (30.0,)}
    monkeypatch.setattr(optimizer_choice, "GRID", grid)
    words = ["reproduce", "optimizer", "--quick", "--out", str(tmp_path / "o")]
    first = command(*words, "--method", "fedavg", "--json")
    assert first.code == 0, first.err
    assert [row["chosen"] for row in json.loads(first.out)["rows"]] == [True, False]
    whole = command(*words)
    assert "Highest: momentum" in whole.out
    assert (tmp_path / "o" / "rows.json").is_file()


@pytest.fixture
def mnist_only(tmp_path, monkeypatch):
    """A root of data that holds one folder."""
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    monkeypatch.setenv("FEDPRIOR_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_all_experiments_go_on_where_they_stopped(mnist_only, command, tmp_path, monkeypatch):
    """One whose data are missing is left out; one that fails is tried again."""
    ran = []

    def run(words):
        ran.append(words[0])
        if words[0] == "linear" and ran.count("linear") == 1:
            raise ValueError("linear: broken")
        return '{"format": 1}'

    monkeypatch.setattr(everything, "_run", run)
    out = tmp_path / "all"
    first = command("reproduce", "all", "--out", str(out), "--json")
    answer = json.loads(first.out)
    assert first.code == 1
    assert answer["failed"] == {"linear": "linear: broken"}
    assert set(answer["left_out"]) == {
        *("elections", "batting", "dp-figures", "optimizer", "table1", "beyond", "cifar10"),
        *("ablation", "few-samples"),
    }
    assert answer["left_out"]["table1"] == "no mnist_writers among the data"
    assert {"fedem", "logistic"} <= set(answer["experiments"])
    before = len(ran)
    assert command("reproduce", "all", "--out", str(out)).code == 0
    assert ran[before:] == ["linear"]
    found = command("reproduce", "all", "--quick", "--out", str(out))
    assert found.code == 1
    assert "Choose another --out" in found.err
    (out / "linear.json").write_text("{")
    assert "linear.json is damaged" in command("reproduce", "all", "--out", str(out)).err


def test_all_gives_every_experiment_the_options_that_it_takes(tmp_path):
    words = everything._words("ablation", True, tmp_path, tmp_path / "o", False)
    assert words[2:] == ["--quick", "--data", str(tmp_path), "--out", str(tmp_path / "o/ablation")]
    assert everything._words("bernoulli", True, tmp_path, tmp_path, True) == [
        *("bernoulli", "--json", "--quiet"),
    ]
