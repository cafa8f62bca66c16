"""`fedprior reproduce`."""

import gzip
import json

import pytest

from fedprior.experiments import linear

NAMES = [
    *("bernoulli", "elections", "gaussian-dp", "private-rates", "batting", "dp-figures"),
    *("optimizer", "table1", "beyond", "cifar10", "ablation", "framework", "few-samples", "fedem"),
    *("linear", "logistic"),
]


@pytest.fixture
def elections(tmp_path):
    """A data root with 60 counties in three elections."""
    folder = tmp_path / "elections"
    folder.mkdir()
    lines = ["fips,year,rep_votes,dem_votes"]
    for county in range(60):
        for place, year in enumerate((2000, 2004, 2008)):
            lines.append(f"{county:05},{year},{100 + 7 * ((county * 5 + place * 3) % 11)},{130}")
    (folder / "us_county_presidential_2000_2020.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def baseball(tmp_path):
    """A data root with 90 players of three seasons."""
    folder = tmp_path / "empirical_bayes"
    folder.mkdir()
    lines = ["playerID,yearID,AB,H"]
    for player in range(90):
        for season in range(3):
            at_bats = 20 + 40 * (player % 5) + 30 * season
            lines.append(
                f"p{player:03},{1900 + season},{at_bats},{at_bats * (3 + player % 4) // 16}"
            )
    packed = gzip.compress("\n".join(lines).encode(), mtime=0)
    (folder / "lahman_batting_by_year.csv.gz").write_bytes(packed)
    return tmp_path


def test_without_a_name_the_experiments_are_listed(command):
    shown = command("reproduce")
    assert (shown.code, shown.err) == (0, "")
    answer = json.loads(command("reproduce", "--json").out)
    assert answer["format"] == 1
    assert [row["name"] for row in answer["experiments"]] == NAMES
    assert all(name in shown.out for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example(command, name):
    found = command("reproduce", name, "--help")
    assert found.code == 0
    assert f"Example: fedprior reproduce {name}" in " ".join(found.out.split())
    for option in ("--json", "--seed", "--quiet"):
        assert option in found.out


def test_bernoulli(command):
    found = command("reproduce", "bernoulli", "--runs", "2", "--seed", "5", "--json")
    assert (found.code, found.err) == (0, "")
    answer = json.loads(found.out)
    assert (answer["format"], answer["seed"], answer["runs"]) == (1, 5, 2)
    assert len(answer["rows"]) == 12
    keys = {"population", "method", "gain", "gain_sd", "paper_says"}
    assert all(set(row) == keys for row in answer["rows"])
    says = {row["population"]: row["paper_says"] for row in answer["rows"]}
    assert says == {"uniform": 12.0, "3-spike": 24.3, "normal": 37.1, "beta": 34.0}
    assert command("reproduce", "bernoulli", "--seeds", "2", "--seed", "5", "--json") == found


def test_bernoulli_in_words(command):
    found = command("reproduce", "bernoulli", "--runs", "1")
    assert (found.code, found.err) == (0, "")
    assert "the paper says" in found.out
    assert "fedprior reproduce bernoulli --runs 1 --seed 0" in found.out


def test_elections(command, elections):
    words = ["reproduce", "elections", "--data", elections]
    answer = json.loads(command(*words, "--json").out)
    assert (answer["num_counties"], answer["num_left_out"]) == (60, 0)
    won = [row for row in answer["rows"] if row["outcome"] == "won"]
    assert all(row["paper_says"] == 10.7 for row in won)
    assert any("1/(n+1)" in remark for remark in answer["remarks"])
    shown = command(*words)
    assert (shown.code, shown.err) == (0, "")
    assert "10.7 ± 1.9" in shown.out
    assert "1/(n+1)" in shown.out


def test_data_are_found_by_variable_and_beside_the_working_folder(
    command, elections, monkeypatch, tmp_path
):
    monkeypatch.setenv("FEDPRIOR_DATA", str(elections))
    found = command("reproduce", "elections", "--json")
    assert found.code == 0
    monkeypatch.delenv("FEDPRIOR_DATA")
    (tmp_path / "work").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "data").symlink_to(elections)
    monkeypatch.chdir(tmp_path / "work")
    assert command("reproduce", "elections", "--json") == found


def test_private_rates(command):
    shown = command("reproduce", "private-rates", "--runs", "1", "--seed", "3")
    assert shown.code == 0
    assert "Beta(4, 4)" in shown.out
    answer = json.loads(command("reproduce", "private-rates", "--runs", "1", "--json").out)
    assert len(answer["rows"]) == 19
    assert {"promised", "realized", "broken", "worse"} <= set(answer["rows"][0])


def test_gaussian_dp(command, tmp_path):
    file = tmp_path / "figure.png"
    words = ["reproduce", "gaussian-dp", "--runs", "2", "--plot", file]
    answer = json.loads(command(*words, "--json").out)
    assert file.stat().st_size > 5_000
    methods = {"local", "non-private", "paper", "default", "variances unknown"}
    assert {row["method"] for row in answer["rows"]} == methods
    assert any("not valid for release" in remark for remark in answer["remarks"])
    shown = command(*words)
    assert (shown.code, shown.err) == (0, "")
    assert "fedprior reproduce gaussian-dp --runs 2 --seed 0" in shown.out


def test_batting(command, baseball):
    words = ["reproduce", "batting", "--data", baseball]
    answer = json.loads(command(*words, "--json").out)
    assert answer["num_players"] == 90
    assert {row["method"] for row in answer["rows"]} >= {"raw", "pooled", "default", "by size"}
    shown = command(*words)
    assert (shown.code, shown.err) == (0, "")
    assert "nonparametric" in shown.out


def test_linear(command, monkeypatch):
    words = ["reproduce", "linear", "--quick", "--seed", "3"]
    answer = json.loads(command(*words, "--json").out)
    assert (answer["format"], answer["seed"], answer["runs"]) == (1, 3, 1)
    methods = ["known", "default", "paper", "local", "pooled"]
    wanted = [(d, method) for d in (50, 100) for method in methods]
    assert [(row["d"], row["method"]) for row in answer["rows"]] == wanted
    assert all(set(row) == {"d", "method", "mse", "paper_says"} for row in answer["rows"])
    assert any("14.8% is out of reach" in remark for remark in answer["remarks"])
    rows = [linear.RegressionError(**row) for row in answer["rows"]]
    monkeypatch.setattr(linear, "run", lambda **options: rows)  # the same again, at once
    shown = command(*words)
    assert (shown.code, shown.err) == (0, "")
    assert "fedprior reproduce linear --runs 1 --seed 3 --quick" in shown.out


def test_logistic(command, monkeypatch, tmp_path):
    from fedprior.experiments import logistic

    def run(*, seed, quick, watch):
        assert (seed, quick) == (3, True)
        return [
            logistic.Loss(
                scale=1.0,
                method=method,
                log_loss=0.5 + behind,
                behind=behind,
                behind_se=0.01,
                variance=None,
                note="",
                by_size={"5-9": 0.1 + behind, "10-19": 0.05 + behind},
            )
            for method, behind in (
                ("personal", 0.0),
                ("plug-in", 0.03),
                ("local", 0.4),
                ("local, tuned", 0.05),
                ("pooled", 0.2),
            )
        ]

    monkeypatch.setattr(logistic, "logistic", run)
    file = tmp_path / "losses.png"
    words = ["reproduce", "logistic", "--quick", "--seed", "3"]
    answer = json.loads(command(*words, "--plot", file, "--json").out)
    assert (answer["format"], answer["experiment"], answer["seed"]) == (1, "logistic", 3)
    assert answer["rows"][2] | {"by_size": {}} == {
        "scale": 1.0,
        "method": "local",
        "log_loss": 0.9,
        "behind": 0.4,
        "behind_se": 0.01,
        "variance": None,
        "note": "",
        "by_size": {},
    }
    assert any("ahead of local and pooled" in remark for remark in answer["remarks"])
    assert file.stat().st_size > 10_000
    shown = command(*words)
    assert (shown.code, shown.err) == (0, "")
    assert "0.0500 ± 0.0100" in shown.out
    assert "fedprior reproduce logistic --seed 3 --quick" in shown.out


def test_bad_input(refused, command, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDPRIOR_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("elections", "batting"):
        refused("reproduce", name, wanted="needs a data folder. Pass --data DIR")
        refused("reproduce", name, "--data", "none", wanted="--data must be a folder that exists")
        refused("reproduce", name, "--data", tmp_path, wanted="data must be a folder with")
    refused("reproduce", "bernoulli", "--runs", "0", wanted="runs must be a whole number of at")
    refused("reproduce", "bernoulli", "--seed", "-1", wanted="seed must be a whole number of at")
    words = ["reproduce", "gaussian-dp", "--runs", "1", "--plot"]
    refused(*words, "figure.txt", wanted="--plot must be a .png, .svg or .pdf file")
    refused(*words, "none/figure.png", wanted="--plot must be in a folder that exists")
    wanted = "logistic: --plot must be a .png, .svg or .pdf file"
    refused("reproduce", "logistic", "--plot", "figure.txt", wanted=wanted)
    refused("reproduce", "--json", "bernoulli", wanted="--json must be behind the name")
    assert command("reproduce", "bernouli").code == 2
    assert list(tmp_path.iterdir()) == []
