"""Ledgers and rounds of private estimates."""

from fedprior.exchange.batch import Batch, Rounds
from fedprior.privacy import events
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms


def reporting(epsilon, *, seed=0):
    """Rounds of simulated answers, charged to nobody."""
    agreed = {"owner": "test", "view": "local", "noise": "simulated", "num_clients": 10**6}
    return Rounds(Batch(event=events.response(epsilon), seed=seed, **agreed))


def open_ledger(path, **changes):
    """A ledger of answers for release."""
    terms = {"delta": 0.0, "relation": "replace-one", "view": "local", "noise": "secure"}
    return Ledger(path, Terms(**{**terms, **changes}))
