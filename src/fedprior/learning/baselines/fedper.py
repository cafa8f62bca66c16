"""FedPer: a shared body and heads of the clients' own (Arivazhagan et al. 2019, Algorithm 1)."""

from typing import Any

from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.options import passes_on
from fedprior.learning.representation import AtOnce, check_start
from fedprior.populations.shared_body import Head, SharedBody


@passes_on(alternating, "steps", "theta_rate", "gamma_rate", "weight", "newcomer_steps")
def fedper(model: Model, *, head: Head | None = None, **options: Any) -> Algorithm:
    """A network with a body of all and a head of each client's own; only the body is sent.

    In every step a client moves its head, at `theta_rate`, and its copy of the body, at
    `gamma_rate`, by one gradient of its loss; a `clip` bounds the parts of the gradient one by one.
    Heads stay with the clients between rounds. The paper's server weighs by `weight="samples"`.
    `head` names the leaves of the head, the last layer by default (`SharedBody`).

    A newcomer has the learned body, and a head that takes `newcomer_steps` steps from where all
    began.
    """
    population = SharedBody(head=head)
    check_start(model, population)
    return alternating(model, population, name="fedper", functions=AtOnce, **options)
