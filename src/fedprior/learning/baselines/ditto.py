"""Ditto: a personal model held toward FedAvg's (Li, Hu, Beirami and Smith 2021, Algorithm 1)."""

from dataclasses import replace
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Key, Memory, Message, State
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import CLIENT, alternating
from fedprior.learning.options import passes_on
from fedprior.populations.point import PointMass
from fedprior.populations.tether import Tether


@passes_on(alternating, *CLIENT)
def ditto(model: Model, *, penalty: float = 0.1, **options: Any) -> Algorithm:
    """theta_i on f_i(theta) + penalty / 2 ||theta - mean||^2; the mean by FedAvg, beside it.

    In a round a client takes `local_steps` steps of its copy of the mean on f_i, which is what it
    sends, and as many of theta_i, held toward the mean that it received. The mean never sees the
    thetas: the prior is centered at a model for everybody, not at the clients' average.
    """
    name = "ditto"
    check.nonnegative(name, penalty=penalty)
    own = alternating(model, Tether(strength=penalty), name=name, **options)
    shared = alternating(model, PointMass(), name=name, **options)

    def local(state: State, memory: Memory, data: ClientData, key: Key) -> tuple[Message, Memory]:
        message, _ = shared.local(state, memory, data, key)
        return message, own.local(state, memory, data, key)[1]

    return replace(shared, enroll=own.enroll, local=local, personalize=own.personalize)
