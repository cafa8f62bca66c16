"""What a client and a server do in a round, each without the other's data."""

from fedprior.exchange.agreement import Agreement
from fedprior.exchange.client import masked_units, personal_model, score, take_part
from fedprior.exchange.facts import Facts
from fedprior.exchange.server import (
    RefusedUpload,
    admit,
    close_round,
    open_round,
    release_round,
    release_sum,
)

__all__ = [
    "Agreement",
    "Facts",
    "RefusedUpload",
    "admit",
    "close_round",
    "masked_units",
    "open_round",
    "personal_model",
    "release_round",
    "release_sum",
    "score",
    "take_part",
]
