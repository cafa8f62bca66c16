"""FedBABU: a body trained under a head at rest, then fine-tuning (Oh et al. 2022, Algorithm 1)."""

from dataclasses import dataclass
from typing import Any

from fedprior.core.algorithm import Algorithm, PyTree
from fedprior.core.protocols import Gamma, Model
from fedprior.learning.alternating import alternating
from fedprior.learning.baselines.fedavg import fine_tuned
from fedprior.learning.options import passes_on
from fedprior.learning.representation import check_start
from fedprior.learning.steps import Steps
from fedprior.populations.shared_body import Head, SharedBody


@passes_on(alternating, "gamma_rate", "weight")
def fedbabu(
    model: Model,
    *,
    steps: Steps = Steps(),
    head: Head | None = None,
    fine_tuning_steps: int = 100,
    fine_tuning_rate: float = 0.05,
    **options: Any,
) -> Algorithm:
    """FedAvg of the body alone, the head as it began; in the end clients fine-tune both.

    In the rounds the head of all clients is the initial, random one, and never moves. Personal
    models take `fine_tuning_steps` steps of head and body from there; newcomers are served like
    everybody else. `head` names the leaves of the head, the last layer by default (`SharedBody`).
    A head that begins at zero would teach the body nothing.
    """
    population = _HeadAtRest(head=head)
    check_start(model, population)
    body = alternating(model, population, name="fedbabu", steps=steps, **options)
    return fine_tuned(body, model, steps=steps, number=fine_tuning_steps, rate=fine_tuning_rate)


@dataclass(frozen=True, kw_only=True)
class _HeadAtRest(SharedBody):
    """theta = (body, head) for every client: both are gamma's, and the body is learned."""

    personal = False

    def center(self, gamma: Gamma) -> PyTree:
        return {}

    def realize(self, gamma: Gamma, w: PyTree) -> PyTree:
        return super().realize(gamma, gamma["head"])
