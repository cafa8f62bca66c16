"""FedRep: a shared body under heads of the clients' own (Collins et al. 2021, Algorithm 1)."""

from dataclasses import dataclass
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.options import passes_on
from fedprior.learning.representation import check_start, head_first
from fedprior.learning.steps import Steps
from fedprior.populations.shared_body import Head, SharedBody


@passes_on(alternating, "theta_rate", "gamma_rate", "weight", "newcomer_steps")
def fedrep(
    model: Model,
    *,
    steps: Steps = Steps(),
    head: Head | None = None,
    head_steps: int | None = None,
    **options: Any,
) -> Algorithm:
    """A round: `head_steps` steps of the head at the body received, then `local_steps` of the body.

    The body moves under a head at rest and is averaged; `fedper` moves both at once.
    `head_steps` is `local_steps` where it is not given: as many gradients as a method that moves
    both. `head` names the leaves of the head, the last layer by default (`SharedBody`).
    """
    name = "fedrep"
    head_steps = steps.local_steps if head_steps is None else head_steps
    check.count(name, head_steps=head_steps)
    population = SharedBody(head=head)
    check_start(model, population)
    return head_first(
        model,
        population,
        name=name,
        steps=steps,
        head_steps=head_steps,
        resting=_BodyAlone(head=head),
        **options,
    )


@dataclass(frozen=True, kw_only=True)
class _BodyAlone(SharedBody):
    """The same body and head, the head not to be moved."""

    personal = False
