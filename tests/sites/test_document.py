"""The agreement as a document: what names it, and what it refuses."""

import json
from dataclasses import replace

import pytest

from fedprior.core.check import PrivacyError
from fedprior.reporting import config as configs
from fedprior.sites.document import Document, deployed_method

PRIVATE = (
    'methods=["fedavg"]',
    "privacy.epsilon=8",
    "privacy.delta=1e-2",
    "privacy.allow_delta=true",
    "data.most_samples=12",
)


def test_both_sides_build_the_same_agreement(made, tmp_path):
    document = made(*PRIVATE, rehearsal=True)[0]
    again = Document.read(tmp_path / "app" / "agreement.json")
    assert again == document
    assert again.token == document.token
    assert again.agreement.stream_id == document.agreement.stream_id
    assert again.agreement.event == document.agreement.event
    assert again.agreement.channel == document.agreement.channel


def test_any_other_word_is_another_agreement(made):
    document = made()[0]
    changes = [
        {"seed": 1},
        {"deadline": 61.0},
        {"rehearsal": True},
        {"code": "0" * 32},
        {"run": "0" * 32},
        {"classes": ("x", "y", "z")},
        {"encoder": "{}"},
        {"facts": replace(document.facts, most_samples=99)},
        {"config": {**document.config, "training": {**document.config["training"], "rounds": 4}}},
    ]
    tokens = [replace(document, **change).token for change in changes]
    assert len({document.token, *tokens}) == len(changes) + 1


def test_every_document_is_of_one_run(made):
    assert made()[0].token != made()[0].token


def test_what_is_in_it(made):
    """No path, no key, no name of a client."""
    text = made(*PRIVATE, "data.root=/home/ada/data", rehearsal=True)[0].to_json()
    for word in ("client-", "/home", "ssh", "ecdsa", "ledger.jsonl"):
        assert word not in text


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "5", '{"format": 1}', "{", "\x00"])
def test_what_is_no_document(text):
    with pytest.raises(ValueError, match="this is not an agreement of fedprior"):
        Document.from_json(text)


def test_entries_are_checked(made):
    given = json.loads(made()[0].to_json())
    for change, reason in (
        ({"deadline": 0}, "deadline must be a positive number"),
        ({"deadline": float("nan")}, "deadline must be a positive number"),
        ({"deadline": "x"}, "deadline must be a positive number"),
        ({"method": "adamop"}, "method must be one of"),
        ({"seed": -1}, "seed must be"),
        ({"facts": {}}, "must be given"),
        ({"config": {}}, "this is not an agreement"),
        ({"classes": 5}, "this is not an agreement"),
    ):
        with pytest.raises((ValueError, PrivacyError), match=reason):
            Document.from_json(json.dumps({**given, **change}))


SUMS = ("privacy.secure_sums=true", "privacy.relation=replace-one", "training.cohort=everyone")


@pytest.mark.parametrize("missing", [0, 2])
def test_a_sum_of_enough_clients(made, missing):
    document = made(*PRIVATE, *SUMS, f"privacy.missing={missing}", rehearsal=True)[0]
    assert document.agreement.channel.fewest >= 2


def test_a_sum_of_one_is_no_secret(made):
    """It would be found out in the first round, after it was charged."""
    with pytest.raises(PrivacyError, match="got 1 of 5"):
        made(*PRIVATE, *SUMS, "privacy.missing=4", rehearsal=True)


def test_two_sums_of_different_clients_must_not_be_possible(made):
    with pytest.raises(PrivacyError, match="more than half of its cohort, got 2 of 5"):
        made(*PRIVATE, *SUMS, "privacy.missing=3", rehearsal=True)


def test_one_method_of_one_seed_is_deployed():
    def method(*changes):
        return deployed_method(configs.read(None, changes))

    assert method('methods=["local", "adamap"]') == "adamap"
    with pytest.raises(ValueError, match="methods must be one method that sends anything"):
        method('methods=["adamap", "adaped"]')
    with pytest.raises(ValueError, match="methods must be one method that sends anything"):
        method('methods=["local"]')
    with pytest.raises(ValueError, match="seeds must be 1"):
        method('methods=["adamap"]', "seeds=2")
    with pytest.raises(ValueError, match="evaluate_every must be 0"):
        method('methods=["adamap"]', "training.evaluate_every=2")
