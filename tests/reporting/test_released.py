"""Releases of mean scores that could not be made in the end are refused before a run."""

from dataclasses import replace

import pytest

from fedprior.core.check import PrivacyError
from fedprior.exchange.facts import Facts
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import begin_ledger
from fedprior.reporting.config import read
from fedprior.reporting.released import check_release, mechanism, terms
from fedprior.reporting.training import Study

PRIVATE = ["privacy.epsilon=4", "privacy.delta=1e-3", "privacy.noise_multiplier=2"]
SCORES = ["privacy.release_scores=true", "privacy.score_epsilon=0.5", "training.cohort_size=2"]


def asked(federation, name, *changes):
    config = read(
        None, [*PRIVATE, *SCORES, f"methods={name}", "privacy.allow_delta=true", *changes]
    )
    training = Study(config, Facts.of(federation)).training(name)
    return training, config, federation


def test_what_is_known_to_fail_is_refused(federation):
    check_release(*asked(federation, "fedavg"))
    check_release(*asked(federation, "local"))
    bare = replace(federation, most_samples=None)
    check_release(*asked(bare, "local"))
    with pytest.raises(PrivacyError, match=r"needs data.most_samples with training.batch_size=0"):
        check_release(*asked(bare, "local", "training.batch_size=0"))
    check_release(*asked(federation, "local", "training.batch_size=0"))
    with pytest.raises(
        PrivacyError, match=r"release_scores must be false with training\.metric=auc"
    ):
        check_release(*asked(federation, "fedavg", "training.metric=auc"))
    *others, _ = asked(federation, "fedavg")
    with pytest.raises(PrivacyError, match="release_scores must be false for a quantity"):
        check_release(*others, replace(federation, classes=None))


def test_scores_have_room_of_their_own(federation):
    for name, budget in (("fedavg", 4.5), ("local", 0.5)):
        training, config, _ = asked(federation, name)
        assert terms(training, config.privacy).budget == budget


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_score_costs_its_epsilon_on_the_ledger_of_the_population(federation, tmp_path, relation):
    """A run under add-remove charges a population under replace-one, where scores move by 1."""
    training, config, _ = asked(federation, "fedavg")
    begin_ledger(tmp_path / "all.jsonl", epsilon=9, delta=1e-3, relation=relation)
    whole = Ledger(tmp_path / "all.jsonl", training.terms)
    own = Ledger(tmp_path / "own.jsonl", training.terms, within=whole)
    assert mechanism(config.privacy).relation == "add-remove"
    assert mechanism(config.privacy, own).relation == relation
