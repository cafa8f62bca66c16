"""What ledgers say together, and what is no ledger."""

import json
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import dp_event, pld

from fedprior.core.check import PrivacyError
from fedprior.exchange.checkpoint import save_checkpoint
from fedprior.privacy.events import Event, gaussian, response
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms
from fedprior.reporting import ledgers
from fedprior.reporting.folder import Folder

TERMS = Terms(delta=1e-5, relation="add-remove", view="central", noise="simulated")
POISSON = Event(mechanism="gaussian", noise=2.0, sampling="poisson", rate=0.1)


def write(run, method, *rounds, terms=TERMS, seed=0, **names):
    """A ledger of `rounds`: pairs of an event and how many of it."""
    path = Folder(run).ledger(method, seed)
    names = {"source": method, "draws": f"{method}-{seed}", **names}
    with Ledger(path, terms) as ledger:
        for event, count in rounds:
            ledger.reserve(event, first=ledger.rounds, rounds=count, **names)
            ledger.commit()
    return path


def saved(run, method, seed=0):
    """The checkpoint that a run leaves beside its ledger."""
    lines = Folder(run).ledger(method, seed).read_text().splitlines()
    head = {"lines": len(lines), "hash": json.loads(lines[-1])["hash"]}
    path = Folder(run).part(method, seed) / "checkpoint.safetensors"
    save_checkpoint(path, {"history": np.zeros(1)}, identity="run", ledger=head)


def test_a_ledger_shorter_than_its_checkpoint_saw_it_is_no_bill(tmp_path):
    path = write(tmp_path, "fedavg-fine-tuning", (POISSON, 3), (POISSON, 4), seed=2)
    saved(tmp_path, "fedavg-fine-tuning", seed=2)
    write(tmp_path, "fedavg-fine-tuning", (POISSON, 1), seed=2)  # ran after the checkpoint
    assert [row["rounds"] for row in ledgers.spent(tmp_path)] == [8]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    for run in (tmp_path, tmp_path.parent, path):
        with pytest.raises(PrivacyError, match=r"has 3 lines that do not begin with the 5 lines"):
            ledgers.spent(run)
    alone = path.rename(tmp_path / "alone.jsonl")  # without its checkpoint, what it says itself
    assert [row["rounds"] for row in ledgers.spent(alone)] == [3]


def test_a_ledger_that_is_gone_is_not_left_out(tmp_path):
    write(tmp_path, "adaped", (POISSON, 2))
    saved(tmp_path, "adaped")
    path = write(tmp_path, "fedavg", (POISSON, 2))
    saved(tmp_path, "fedavg")
    path.unlink()
    with pytest.raises(PrivacyError, match=r"fedavg-seed-0/ledger.jsonl is missing"):
        ledgers.spent(tmp_path)


def test_ledgers_lie_outside_the_checkpoint(tmp_path):
    path = write(tmp_path, "fedavg", (POISSON, 3), seed=2)
    assert path.relative_to(tmp_path).parts == ("privacy", "fedavg-seed-2", "ledger.jsonl")
    assert ledgers.found(tmp_path) == ledgers.found(path) == [path]


def test_together_is_one_composition_of_all_rounds(tmp_path):
    write(tmp_path, "fedavg", (POISSON, 10), (replace(POISSON, noise=3.0), 5))
    assert ledgers.together(tmp_path) is None  # one ledger says it all
    write(tmp_path, "fedavg", (POISSON, 20), seed=1)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for noise, rounds in ((2.0, 30), (3.0, 5)):
        event = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(noise))
        accountant.compose(event, rounds)
    found = ledgers.together(tmp_path)
    assert found["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    assert (found["ledgers"], found["noise"], found["relation"]) == (2, "simulated", "add-remove")
    each = [row["epsilon"] for row in ledgers.spent(tmp_path)]
    assert max(each) < found["epsilon"] < sum(each)
    said = ledgers.sentence_together(found)
    for word in ("The 2 ledgers", "delta 1e-05", "add-remove", "central", "Poisson", "trusts"):
        assert word in said


def test_methods_of_one_seed_are_added_up_where_their_noise_is_apart(tmp_path):
    write(tmp_path, "fedavg", (POISSON, 2))
    write(tmp_path, "adaped", (POISSON, 2))
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 4)
    found = ledgers.together(tmp_path)
    assert found["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


@pytest.mark.parametrize("draws", ["fedavg-0", None], ids=["shared", "unnamed"])
def test_methods_that_share_their_simulated_noise_are_not_added_up(tmp_path, draws):
    """The difference of what they release may be free of it."""
    write(tmp_path, "fedavg", (POISSON, 2))
    write(tmp_path, "adaped", (POISSON, 2), draws=draws)
    found = ledgers.together(tmp_path)
    assert found["epsilon"] is None
    assert "share their simulated noise" in ledgers.sentence_together(found)


def test_every_release_is_counted(tmp_path):
    """With secure noise a round that is run again is another release of the same number."""
    path = Folder(tmp_path).ledger("fedavg", 0)
    with Ledger(path, replace(TERMS, noise="secure")) as ledger:
        for _ in range(2):
            ledger.reserve(POISSON, first=0, rounds=5, source="run")
            ledger.commit()
    (row,) = ledgers.spent(tmp_path)
    assert row["rounds"] == 10
    assert "after 10 rounds" in ledgers.sentence(row)


@pytest.mark.parametrize(
    "other",
    [
        (replace(TERMS, delta=1e-6), POISSON),
        (replace(TERMS, relation="replace-one"), POISSON),
        (replace(TERMS, view="local", relation="replace-one"), response(0.5)),
    ],
)
def test_unlike_ledgers_are_not_added_up(tmp_path, other):
    terms, event = other
    write(tmp_path, "fedavg", (POISSON, 2))
    write(tmp_path, "adaped", (event, 2), terms=terms, seed=1)
    found = ledgers.together(tmp_path)
    assert found["epsilon"] is None
    assert "no epsilon is proven" in ledgers.sentence_together(found)


def test_release_needs_secure_noise_in_every_ledger(tmp_path):
    write(tmp_path, "fedavg", (POISSON, 2), terms=replace(TERMS, noise="secure"))
    write(tmp_path, "adaped", (POISSON, 2), terms=replace(TERMS, noise="secure"))
    assert ledgers.together(tmp_path)["valid_for_release"]
    write(tmp_path, "local-thing", (POISSON, 2))
    assert not ledgers.together(tmp_path)["valid_for_release"]


@pytest.mark.parametrize(
    ("event", "relation", "words"),
    [
        (POISSON, "add-remove", "Poisson sampling at rate 0.1"),
        (gaussian(2.0), "add-remove", "everyone in every round"),
        (replace(POISSON, sampling="fixed", size=3, num_clients=9), "replace-one", "3 of 9"),
    ],
)
def test_a_sentence_says_all_that_an_epsilon_rests_on(tmp_path, event, relation, words):
    terms = replace(TERMS, relation=relation, budget=50.0)
    write(tmp_path, "fedavg", (event, 1), terms=terms)
    (row,) = ledgers.spent(tmp_path)
    said = ledgers.sentence(row)
    for word in (words, "of 50", "delta 1e-05", "1 round,", "one client", relation, "central view"):
        assert word in said
    assert "trusts whoever adds up the messages" in said
    assert "Simulated noise: not valid for release." in said


@pytest.mark.parametrize("content", ["format = 1\n", '{"method": "fedavg"}\n', "[]\n", "", "3\n"])
def test_another_file_is_no_ledger(tmp_path, content):
    path = tmp_path / "metrics.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"RUN must be a ledger, got .*metrics.jsonl"):
        ledgers.spent(path)


def test_a_damaged_ledger_is_still_told_so(tmp_path):
    path = write(tmp_path, "fedavg", (POISSON, 2))
    path.write_text("not a line of a ledger\n" + path.read_text())
    with pytest.raises(PrivacyError, match="edited or damaged"):
        ledgers.spent(tmp_path)
    copy = path.rename(tmp_path / "copy.jsonl")
    with pytest.raises(ValueError, match="must be a ledger"):
        ledgers.spent(copy)
