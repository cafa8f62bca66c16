"""`fedprior privacy plan` and `spent`, and private `fedprior train`."""

import json
import re
from pathlib import Path

import duckdb
import pytest
from dp_accounting import dp_event, pld

from fedprior.core.files import read_sealed
from fedprior.exchange.checkpoint import read_checkpoint

PLAN = ("privacy", "plan", "--delta", "1e-3", "--clients", "100", "--sampling-rate", "0.1")
BARE = ("privacy", "plan", "--clients", "100", "--epsilon", "1", "--rounds", "3")
WITHOUT = ("privacy", "plan", "--delta", "1e-4", "--epsilon", "1")
PRIVATE = {
    "privacy__epsilon": 8,
    "privacy__delta": 0.01,
    "training__cohort_size": 2,  # of six shops, by Poisson draws
}


def test_a_plan_names_noise_views_and_verdict(command):
    found = command(*PLAN, "--noise-multiplier", "2", "--rounds", "10", "--parameters", "5000")
    assert found.code == 0
    assert "Noise multiplier 2 for 10 rounds." in found.out
    for word in ("add-remove", "replace-one", "unbounded", "learns nothing", "delta = 0.001"):
        assert word in found.out
    for word in ("one client", "Poisson sampling at rate 0.1", "simulated", "secure", "trusts"):
        assert word in found.out  # all that the figures rest on
    assert "e+" not in found.out


@pytest.mark.parametrize("sampled", [("--sampling-rate", "0.02"), ("--cohort-size", "333")])
def test_the_noise_that_is_printed_fits_when_it_is_typed_in(command, sampled):
    asked = ("privacy", "plan", "--delta", "1e-5", "--clients", "1000", *sampled)
    asked = (*asked, "--epsilon", "1", "--rounds", "100")
    printed = re.search(r"Noise multiplier ([0-9.]+) for", command(*asked).out)
    again = command(*asked, "--noise-multiplier", printed[1])
    assert again.code == 0
    assert "Fits: epsilon" in again.out


def test_a_plan_as_json_agrees_with_the_accountant(command):
    given = ("--noise-multiplier", "2", "--rounds", "10", "--local-steps", "5", "--json")
    found = json.loads(command(*PLAN, *given).out)
    assert set(found) == {
        "format",
        "noise_multiplier",
        "rounds",
        "views",
        "paper_bound",
        "noise_to_signal",
        "verdict",
        "clients",
        "sampling",
        "sampling_rate",
        "unit",
        "trusts",
        "fits",
    }
    assert found["fits"] in (None, True)
    central = found["views"][0]
    assert (central["view"], central["relation"]) == ("central", "add-remove")
    accountant = pld.PLDAccountant()
    accountant.compose(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 10)
    assert central["epsilon"] == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-3)
    assert found["views"][-1]["epsilon"] is None  # a server that sees uploads
    assert found["paper_bound"] > 0


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((*PLAN, "--epsilon", "1"), "rounds"),
        ((*PLAN, "--epsilon", "0", "--rounds", "3"), "got 0.0. 1 is strong, 10 is weak."),
        ((*PLAN, "--epsilon", "1", "--rounds", "0"), "--rounds must be"),
        ((*PLAN, "--rounds", "3", "--noise-multiplier", "0"), "--noise-multiplier must be a pos"),
        ((*PLAN, "--rounds", "3", "--noise-multiplier", "inf"), "--noise-multiplier must be a pos"),
        ((*PLAN, "--epsilon", "1", "--rounds", "3", "--cohort-size", "3"), ", not both"),
        ((*BARE, "--delta", "1e-3", "--cohort-size", "101"), "--cohort-size must be at most"),
        ((*BARE, "--delta", "0"), "--delta must be in (0, 1)"),
        ((*WITHOUT, "--rounds", "3"), "--clients is required"),
        ((*WITHOUT, "--cohort-size", "5", "--rounds", "3"), "--cohort-size, --epsilon, --noise"),
        (
            (*BARE, "--delta", "0.1"),
            "below 1 / clients",
        ),
        (
            (*BARE, "--delta", "1e-3", "--sampling-rate", "0"),
            "--sampling-rate must be in (0, 1], got 0.0. It is the probability",
        ),
        ((*BARE, "--delta", "1e-3", "--missing", "3"), "--secure-sums may be absent: give both"),
        (
            (*BARE, "--delta", "1e-3", "--secure-sums", "--missing", "100"),
            "--missing must be from 0 to 99, below the cohort's size, got 100",
        ),
        (
            (*BARE, "--delta", "1e-3", "--secure-sums", "--cohort-size", "2"),
            "--secure-sums must be of at least 3 clients in a round, got 2",
        ),
        (("privacy", "spent", "nowhere"), "a run folder or a ledger"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_a_line(refused, words, wanted):
    refused(*words, wanted=wanted)


def test_a_plan_with_all_three_says_whether_they_fit(command):
    given = (*PLAN, "--noise-multiplier", "2", "--rounds", "10", "--epsilon")
    fits = command(*given, "2")
    assert fits.code == 0
    assert "Fits: epsilon" in fits.out
    short = command(*given, "0.4")
    assert short.code == 1  # a check that did not hold
    assert "Does not fit: epsilon" in short.out
    answer = command(*given, "0.4", "--json")
    assert (answer.code, json.loads(answer.out)["fits"]) == (1, False)


@pytest.mark.parametrize(("missing", "cost"), [(0, 10.0), (5, 12.0), (10, 15.5)])
def test_a_plan_says_what_secure_sums_cost(command, missing, cost):
    """20 clients that add a standard deviation of 10 / sqrt(20) clips each, 100 rounds, delta 1e-5,
    replace-one: epsilon 10.0 if all of them do, 12.0 without 5 of them, 15.5 without 10.
    """
    left = repr(10 * ((20 - missing) / 20) ** 0.5)
    given = ("--delta", "1e-5", "--clients", "20", "--rounds", "100", "--noise-multiplier", left)
    asked = ("privacy", "plan", *given, "--secure-sums", "--missing", str(missing))
    found = json.loads(command(*asked, "--json").out)["secure_sums"]
    assert found["relation"] == "replace-one"
    assert found["share"] == pytest.approx(10 / 20**0.5)
    assert found["complete_epsilon"] == pytest.approx(10.0, abs=0.05)
    assert found["epsilon"] == pytest.approx(cost, abs=0.05)
    assert found["complete_noise_multiplier"] == pytest.approx(10)
    out = command(*asked).out
    for word in (f"secure, {missing} absent", "secure, nobody absent", "2.237", "trust nobody"):
        assert word in out


def test_a_plan_finds_the_noise_of_secure_sums_for_a_budget(command):
    """For known cohorts of the same size; a third of each may be absent."""
    found = json.loads(command(*PLAN, "--epsilon", "4", "--rounds", "10", "--secure-sums", "--json")
                       .out)  # fmt: skip
    sums = found["secure_sums"]
    assert (sums["cohort_size"], sums["missing"]) == (10, 3)
    assert 3.9 < sums["epsilon"] <= 4
    assert sums["complete_epsilon"] < sums["epsilon"]
    assert sums["noise_multiplier"] > found["noise_multiplier"]


def test_a_plan_finds_the_clients_that_are_needed(command):
    given = ("--cohort-size", "20", "--noise-multiplier", "2", "--rounds", "10")
    found = command(*WITHOUT, *given, "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    clients = answer["clients"]
    assert answer["sampling_rate"] == pytest.approx(20 / clients)
    for number, fits in ((clients, True), (round(0.98 * clients), False)):
        accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
        one = dp_event.PoissonSampledDpEvent(20 / number, dp_event.GaussianDpEvent(2.0))
        accountant.compose(one, 10)
        assert (accountant.get_epsilon(1e-4) <= 1.001) == fits
    assert f"At least {clients:,} clients" in command(*WITHOUT, *given).out


def test_a_run_without_privacy_has_spent_nothing_to_show(refused, trained):
    refused("privacy", "spent", trained, wanted="Was the run private?")


def _train(command, fast, table, encoder, folder, *more, **changes):
    on = ["--data", table, "--encoder", encoder, "--algorithm", "fedavg", "--allow-delta"]
    return command("train", *on, *fast(**{**PRIVATE, **changes}), "--out", folder, *more)


def test_a_private_table_needs_a_public_encoder(refused, fast, table, tmp_path):
    on = ["--data", table, "--client", "shop", "--label", "outcome", "--algorithm", "fedavg"]
    wanted = "encoder must be given for a private run on a table"
    options = [*fast(**PRIVATE), "--allow-delta", "--out", tmp_path / "run"]
    refused("train", *on, *options, wanted=wanted)
    assert not (tmp_path / "run").exists()


def test_a_fixed_size_needs_replace_one(refused, fast, table, encoder, tmp_path):
    on = ["--data", table, "--encoder", encoder, *fast(**PRIVATE, training__cohort="fixed")]
    refused("train", *on, "--out", tmp_path / "run", wanted="relation must be replace-one")


def test_a_large_delta_needs_a_word(refused, fast, table, encoder, tmp_path):
    on = ["--data", table, "--encoder", encoder, "--algorithm", "fedavg"]
    options = fast(**{**PRIVATE, "privacy__delta": 0.5}, privacy__noise_multiplier=3.0)
    refused("train", *on, *options, "--out", tmp_path / "run", wanted="--allow-delta")


def test_what_a_run_spent_agrees_with_an_independent_accountant(
    command, fast, table, encoder, tmp_path
):
    """Two seeds: a ledger each, and what they cost together."""
    run = tmp_path / "run"
    options = {"privacy__noise_multiplier": 3.0}
    found = _train(command, fast, table, encoder, run, "--seeds", "2", **options)
    assert found.code == 0, found.err
    assert "not valid for release" in found.err
    answer = json.loads(command("privacy", "spent", run, "--json").out)
    sampled = dp_event.PoissonSampledDpEvent(2 / 6, dp_event.GaussianDpEvent(3.0))
    for row, rounds in (*((row, 3) for row in answer["ledgers"]), (answer["together"], 6)):
        accountant = pld.PLDAccountant()
        accountant.compose(sampled, rounds)
        assert row["epsilon"] == pytest.approx(accountant.get_epsilon(0.01), rel=1e-3)
        assert not row["valid_for_release"]
    assert [row["rounds"] for row in answer["ledgers"]] == [3, 3]
    said = command("privacy", "spent", run).out.splitlines()
    assert len(said) == 3
    assert said[-1].startswith("The 2 ledgers together")
    for line in said:
        assert line in found.err  # `train` says the same
        for word in ("at delta 0.01", "add-remove", "one client", "central view", "Poisson"):
            assert word in line
        assert "trusts whoever adds up the messages" in line
    saved = json.loads((run / "summary.json").read_text())
    assert saved["privacy"] == answer["ledgers"]
    assert saved["together"] == answer["together"]


def test_a_run_that_its_budget_stopped_says_so(command, fast, table, encoder, tmp_path):
    """Three rounds cost 0.28, four 0.34."""
    run = tmp_path / "run"
    options = {"privacy__noise_multiplier": 3.0, "privacy__epsilon": 0.3, "training__rounds": 5}
    found = _train(command, fast, table, encoder, run, "--json", **options)
    answer = json.loads(found.out)
    (end,) = answer["runs"]
    rounds = end["rounds"]
    assert rounds == 3
    assert end == {
        "method": "fedavg",
        "seed": 0,
        "rounds": rounds,
        "planned": 5,
        "ended_by": "budget",
        "trust": None,
    }
    assert f"stopped by its budget after {rounds} of 5 rounds" in found.err
    assert json.loads((run / "summary.json").read_text()) == answer
    again = command("train", "--resume", run, "--json")
    assert json.loads(again.out)["runs"] == answer["runs"]


def test_what_is_no_ledger_is_called_so(refused, trained):
    for name in ("config.toml", "metrics.jsonl"):
        refused("privacy", "spent", trained / name, wanted="RUN must be a ledger, got")


def test_secure_noise_keeps_scores_and_cohorts_at_home(command, fast, encoder, new_rows, tmp_path):
    pytest.importorskip("opendp")
    run, table = tmp_path / "run", new_rows(tmp_path / "shops.csv", "abcdef")
    table.write_text(table.read_text() + "a,1,red,\n")  # a row without a label
    options = {"privacy__noise": "secure", "training__evaluate_every": 1}
    local = ("--algorithm", "local")
    found = _train(command, fast, table, encoder, run, *local, "--json", **options)
    assert found.code == 0, found.err
    assert "dropped" not in found.err
    assert found.err.count("checkpoint/ and model/ hold models and scores") == 1
    answer = json.loads(found.out)
    assert (answer["methods"], answer["scores_withheld"]) == ({}, True)
    assert not {"guesses", "largest_class"} & set(answer)
    for kept in run.rglob("scores.safetensors"):  # not even what stays here has metrics
        assert not [name for name in read_checkpoint(kept).arrays if "metrics" in name]
    assert [end["method"] for end in answer["runs"]] == ["fedavg"]
    assert not (run / "clients.parquet").exists()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["method"] for line in lines] == ["fedavg"] * 3  # what is alone tells of scores
    assert not {"clients", "left_out", "valid", "test"} & set().union(*lines)
    assert json.loads((run / "summary.json").read_text()) == answer
    digest = read_sealed(run / "checkpoint" / "fingerprint").strip()
    home = {"checkpoint", "model"}
    shown = [path for path in run.rglob("*") if path.is_file() and not home & {*path.parts}]
    assert len(shown) == 6
    assert not any(digest in path.read_text() for path in shown)
    told = [json.loads(line) for line in (run / "progress.jsonl").read_text().splitlines()]
    assert {line["method"] for line in told} == {"fedavg"}
    assert not {"clients", "left_out", "valid", "seconds"} & set().union(*told)
    noted = json.loads((run / "evaluation.json").read_text())
    assert noted["classes"] is None
    assert set().union(*noted["runs"]) == {"method", "seed", "upload_bytes", "download_bytes"}
    (ledger,) = run.rglob("ledger.jsonl")
    assert ledger.relative_to(run).parts[:2] == ("privacy", "fedavg-seed-0")
    again = command("train", "--resume", run)
    assert again.out == ""
    assert "Scores of single clients are not private" in again.err
    assert "Secure noise." in again.err
    assert "not valid for release" not in again.err


def test_scores_are_written_when_asked_for_by_name_and_cohorts_never(
    command, fast, table, encoder, tmp_path
):
    pytest.importorskip("opendp")
    run = tmp_path / "run"
    options = {"privacy__noise": "secure", "training__evaluate_every": 1}
    found = _train(command, fast, table, encoder, run, "--unprotected-scores", "--json", **options)
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert not answer["scores_withheld"]
    assert "released_scores" not in answer
    assert not {"guesses", "largest_class"} & set(answer)  # which nobody asked for
    assert set(answer["methods"]["fedavg"]["metrics"]) >= {"accuracy", "log_loss"}
    assert set(answer["methods"]) == {"fedavg"}
    with duckdb.connect() as connection:
        rows = connection.read_parquet(str(run / "clients.parquet"))
        assert not {"size", "largest_class"} & {*rows.columns}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert "valid" in lines[0]
    assert not {"clients", "left_out"} & set().union(*lines)


@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_the_mean_score_is_released_and_charged(command, fast, encoder, new_rows, tmp_path, noise):
    """Of the method and of local training, each on a ledger; a resumed run says the same."""
    pytest.importorskip("opendp")
    run, table = tmp_path / "run", new_rows(tmp_path / "shops.csv", "abcdef")
    asked = ("--algorithm", "local", "--release-scores", "--score-epsilon", 0.7)
    found = _train(command, fast, table, encoder, run, *asked, privacy__noise=noise)
    assert found.code == 0, found.err
    assert found.err.count("released at an epsilon of 0.7 of its own") == 2
    answer = json.loads((run / "summary.json").read_text())
    rows = {row["method"]: row for row in answer["released_scores"]}
    assert set(rows) == {"fedavg", "local"}
    for row in rows.values():
        assert row["standard_error"] == pytest.approx(2**0.5 * 0.5 / 0.7 / 6)
        assert abs(row["mean"] - 0.5) < 0.5 + 20 * row["standard_error"]
        assert (row["epsilon"], row["noise"]) == (0.7, noise)
    bills = {Path(bill["ledger"]).parts[1]: bill for bill in answer["privacy"]}
    alone, sent = bills["local-seed-0"], bills["fedavg-seed-0"]
    assert 0.65 < alone["epsilon"] <= 0.7  # delta is left over
    assert (alone["rounds"], alone["sampling"]) == (0, "the mean score of everyone")
    assert sent["rounds"] == 3
    assert sent["sampling"].endswith(" and the mean score of everyone")
    assert 8 < sent["budget"] == pytest.approx(8.7)
    if noise == "secure":
        assert (answer["methods"], answer["scores_withheld"]) == ({}, True)
        assert not (run / "clients.parquet").exists()
    again = command("train", "--resume", run, "--json")
    assert json.loads(again.out)["released_scores"] == answer["released_scores"]


@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_a_score_that_is_lost_is_repeated_or_paid_for_again(
    command, fast, table, encoder, tmp_path, noise
):
    """Simulated noise comes back as it was; with secure noise the budget has no second release."""
    pytest.importorskip("opendp")
    run, asked = tmp_path / "run", ("--release-scores", "--score-epsilon", 3)
    found = _train(command, fast, table, encoder, run, *asked, "--json", privacy__noise=noise)
    (first,) = json.loads(found.out)["released_scores"]
    (kept,) = run.rglob("scores.safetensors")
    kept.unlink()
    again = command("train", "--resume", run, "--json")
    assert again.code == 0, again.err
    answer = json.loads(again.out)
    (second,) = answer["released_scores"]
    (bill,) = answer["privacy"]
    assert bill["epsilon"] <= bill["budget"] == pytest.approx(11)
    (ledger,) = run.rglob("ledger.jsonl")
    charged = ledger.read_text().count('"response"')
    if noise == "simulated":
        assert (second, charged) == (first, 1)
    else:
        assert charged == 1 + (second["mean"] is not None)
        assert second["mean"] != first["mean"]
    again = command("train", "--resume", run)
    assert ("the mean test accuracy is" in again.err) == (second["mean"] is not None)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (["--release-scores"], "score_epsilon must be positive with release_scores"),
        (["--score-epsilon", 1], "score_epsilon must be 0 without release_scores"),
        (
            ["--release-scores", "--score-epsilon", 1, "--unprotected-scores"],
            "unprotected_scores must be false with release_scores",
        ),
        (["--release-scores", "--score-epsilon", -1], "score_epsilon must be"),
        (
            ["--release-scores", "--score-epsilon", 1, "--algorithm", "local-converged"],
            "release_scores must be false for local-converged",
        ),
        (
            ["--release-scores", "--score-epsilon", 1, "--set", "data.options.test_share=0"],
            "release_scores must be false without test samples",
        ),
    ],
)
def test_releases_of_scores_that_are_refused(
    refused, fast, table, encoder, tmp_path, changes, wanted
):
    on = ["--data", table, "--encoder", encoder, "--algorithm", "fedavg", "--allow-delta"]
    refused("train", *on, *fast(**PRIVATE), *changes, "--out", tmp_path / "run", wanted=wanted)
    assert not (tmp_path / "run").exists()


def test_batches_that_follow_the_largest_client_leave_no_folder(
    refused, fast, table, encoder, tmp_path
):
    on = ["--data", table, "--encoder", encoder, "--algorithm", "fedavg", "--allow-delta"]
    options = [*fast(**PRIVATE), "--set", "training.batch_size=0", "--out", tmp_path / "run"]
    refused("train", *on, *options, wanted="most_samples must be given under a private channel")
    assert not (tmp_path / "run").exists()
    options += ["--set", "data.most_samples=2"]
    refused("train", *on, *options, wanted="most_samples must be at least the size of the largest")


def test_a_weight_that_tells_of_the_data_leaves_no_folder(refused, fast, table, encoder, tmp_path):
    on = ["--data", table, "--encoder", encoder, "--algorithm", "fedavg", "--allow-delta"]
    options = [*fast(**PRIVATE), "--set", "options.fedavg.weight=samples"]
    refused("train", *on, *options, "--out", tmp_path / "run", wanted="weight must be 'uniform'")
    assert not (tmp_path / "run").exists()


@pytest.mark.evidence
def test_methods_of_one_run_add_up(command, fast, table, encoder, tmp_path):
    """One seed, two methods: noise and cohorts are apart, so that there is a bill of both."""
    run = tmp_path / "run"
    more = ("--algorithm", "gaussian-prior")
    found = _train(command, fast, table, encoder, run, *more, privacy__noise_multiplier=3.0)
    assert found.code == 0, found.err
    answer = json.loads(command("privacy", "spent", run, "--json").out)
    accountant = pld.PLDAccountant()
    sampled = dp_event.PoissonSampledDpEvent(2 / 6, dp_event.GaussianDpEvent(3.0))
    accountant.compose(sampled, 6)
    expected = pytest.approx(accountant.get_epsilon(0.01), rel=1e-3)
    assert answer["together"]["epsilon"] == expected


def test_a_budget_below_one_round_is_refused_before_anything_is_made(
    refused, fast, table, encoder, tmp_path
):
    on = ["--data", table, "--encoder", encoder, "--algorithm", "fedavg", "--allow-delta"]
    options = fast(**{**PRIVATE, "privacy__epsilon": 0.1}, privacy__noise_multiplier=0.5)
    refused("train", *on, *options, "--out", tmp_path / "run", wanted="one round")
    assert not (tmp_path / "run").exists()
