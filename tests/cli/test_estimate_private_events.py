"""`fedprior estimate --events --epsilon`: rates of events from private reports."""

import json

import numpy as np
import pandas as pd
import pytest

from fedprior.estimation import Events, estimate_events_privately


@pytest.fixture(scope="module")
def falls(tmp_path_factory):
    draws = np.random.default_rng(0)
    days = draws.uniform(200, 3000, 4000).round()
    rate = draws.uniform(0.002, 0.01, 4000)
    names = [f"w{number:04d}" for number in range(4000)]
    frame = pd.DataFrame({"ward": names, "falls": draws.poisson(days * rate), "days": days})
    path = tmp_path_factory.mktemp("falls") / "falls.csv"
    frame.to_csv(path, index=False)
    return path, frame


WORDS = ("--group", "ward", "--events", "falls", "--exposure", "days", "--high", "0.01")


def test_the_command_is_the_function(command, falls, tmp_path):
    path, frame = falls
    ledger = path.with_suffix(".ledger.jsonl")
    found = command("estimate", path, *WORDS, "--epsilon", "4", "--seed", "0", "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert ledger.is_file()
    events = Events(exposure=frame["days"].to_numpy(), events=frame["falls"].to_numpy())
    wanted = estimate_events_privately(events, epsilon=4.0, high=0.01, seed=0)
    assert answer["population"]["mean"] == pytest.approx(wanted.population.mean)
    assert answer["gain_over_raw"] == pytest.approx(wanted.gain_over_raw)
    assert answer["gain_over_raw"] > 10
    assert answer["gains_are_bounds"] is True
    assert answer["privacy"]["epsilon"] == 4.0
    assert "its exposure is public" in answer["privacy"]["unit"]
    assert "rates up to the public bound" in answer["sentence"]
    ledger.unlink()


def test_groups_are_shown_only_if_they_are_released(command, falls, tmp_path):
    path, _ = falls
    private = (*WORDS, "--epsilon", "4", "--seed", "1")
    out = tmp_path / "population.csv"
    found = command("estimate", path, *private, "--out", out)
    assert found.code == 0, found.err
    assert "gain, at least" in found.out
    assert "epsilon 4 spent in" in found.out
    table = pd.read_csv(out)
    assert len(table) == 1
    assert {"mean", "shape", "rate", "epsilon"} <= set(table.columns)
    shown = tmp_path / "wards.csv"
    found = command("estimate", path, *private, "--release-groups", "--out", shown)
    assert found.code == 0, found.err
    wards = pd.read_csv(shown)
    assert len(wards) == 4000
    assert {"exposure", "raw", "personal", "lower", "upper"} <= set(wards.columns)
    path.with_suffix(".ledger.jsonl").unlink()
