"""What a client and a server do in a round, each without the other's data."""

from fedprior.exchange.agreement import Agreement
from fedprior.exchange.client import personal_model, score, take_part
from fedprior.exchange.facts import Facts
from fedprior.exchange.server import RefusedUpload, admit, close_round, open_round, release_round

__all__ = [
    "Agreement",
    "Facts",
    "RefusedUpload",
    "admit",
    "close_round",
    "open_round",
    "personal_model",
    "release_round",
    "score",
    "take_part",
]
