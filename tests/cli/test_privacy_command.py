"""`fedprior privacy plan` and `spent`, and private `fedprior train`."""

import json

import pytest
from dp_accounting import dp_event, pld

PLAN = ("privacy", "plan", "--delta", "1e-3", "--clients", "100", "--sampling-rate", "0.1")
BARE = ("privacy", "plan", "--clients", "100", "--epsilon", "1", "--rounds", "3")
PRIVATE = {
    "privacy__epsilon": 8,
    "privacy__delta": 0.01,
    "training__cohort": "poisson",
    "training__cohort_size": 2,
}


def test_a_plan_names_noise_views_and_verdict(command):
    found = command(*PLAN, "--noise-multiplier", "2", "--rounds", "10", "--parameters", "5000")
    assert found.code == 0
    assert "Noise multiplier 2 for 10 rounds." in found.out
    for word in ("add-remove", "replace-one", "unbounded", "learns nothing", "delta = 0.001"):
        assert word in found.out


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
    }
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
        ((*PLAN, "--epsilon", "0", "--rounds", "3"), "epsilon must be a positive"),
        ((*PLAN, "--epsilon", "1", "--rounds", "0"), "rounds must be"),
        (
            (*BARE, "--delta", "0.1"),
            "below 1 / clients",
        ),
        (
            (*BARE, "--delta", "1e-3", "--sampling-rate", "1.5"),
            "(0, 1]",
        ),
        (("privacy", "spent", "nowhere"), "a run folder or a ledger"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_a_line(refused, words, wanted):
    refused(*words, wanted=wanted)


def test_a_run_without_privacy_has_spent_nothing_to_show(refused, trained):
    refused("privacy", "spent", trained, wanted="Was the run private?")


def _train(command, fast, table, folder, *more, **changes):
    on = ["--data", table, "--client", "shop", "--label", "outcome", "--algorithm", "fedavg"]
    options = fast(**PRIVATE, privacy__allow_delta=True, **changes)
    return command("train", *on, *options, "--out", folder, *more)


def test_what_a_run_spent_agrees_with_an_independent_accountant(command, fast, table, tmp_path):
    run = tmp_path / "run"
    found = _train(command, fast, table, run, privacy__noise_multiplier=3.0)
    assert found.code == 0, found.err
    assert "not valid for release" in found.err
    (row,) = json.loads(command("privacy", "spent", run, "--json").out)["ledgers"]
    accountant = pld.PLDAccountant()
    sampled = dp_event.PoissonSampledDpEvent(2 / 6, dp_event.GaussianDpEvent(3.0))
    accountant.compose(sampled, 3)
    assert row["rounds"] == 3
    assert row["epsilon"] == pytest.approx(accountant.get_epsilon(0.01), rel=1e-3)
    said = command("privacy", "spent", run).out
    assert "epsilon" in said
    assert "add-remove" in said


def test_secure_noise_keeps_scores_and_cohorts_at_home(command, fast, table, tmp_path):
    pytest.importorskip("opendp")
    run = tmp_path / "run"
    found = _train(command, fast, table, run, privacy__noise="secure")
    assert found.code == 0, found.err
    assert "Scores are not private" in found.err
    assert "not valid for release" not in found.err
    assert not (run / "clients.parquet").exists()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert not {"clients", "left_out", "valid", "test"} & set().union(*lines)
    assert json.loads((run / "summary.json").read_text())["methods"] == {}


def test_scores_are_released_when_asked_for(command, fast, table, tmp_path):
    pytest.importorskip("opendp")
    run = tmp_path / "run"
    found = _train(command, fast, table, run, "--release-scores", privacy__noise="secure")
    assert found.code == 0, found.err
    assert (run / "clients.parquet").exists()


def test_a_budget_below_one_round_is_refused_before_anything_is_made(
    refused, fast, table, tmp_path
):
    on = ["--data", table, "--client", "shop", "--label", "outcome", "--algorithm", "fedavg"]
    options = fast(**{**PRIVATE, "privacy__epsilon": 0.1}, privacy__noise_multiplier=0.5)
    options += ["--set", "privacy.allow_delta=true"]
    refused("train", *on, *options, "--out", tmp_path / "run", wanted="one round")
    assert not (tmp_path / "run").exists()
