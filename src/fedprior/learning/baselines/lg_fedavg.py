"""LG-FedAvg: bodies of the clients' own under a shared head (Liang et al. 2020, Algorithm 1)."""

from typing import Any

from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.options import passes_on
from fedprior.learning.representation import AtOnce, check_start
from fedprior.populations.shared_body import Head, SharedHead


@passes_on(alternating, "steps", "theta_rate", "gamma_rate", "weight", "newcomer_steps")
def lg_fedavg(model: Model, *, head: Head | None = None, **options: Any) -> Algorithm:
    """A network with a body of each client's own and a head of all; only the head is sent.

    In every step a client moves its body, at `theta_rate`, and its copy of the head, at
    `gamma_rate`, by one gradient of its loss; a `clip` bounds the parts of the gradient one by one.
    All bodies begin alike. `head` names the leaves of the head, the last layer by default
    (`SharedBody`); the paper shares up to three layers.

    The paper begins with a network that FedAvg has trained for hundreds of rounds; here the rounds
    are the same for all methods and begin with an initial network. So all that a newcomer receives
    of the others is their head, over a body that takes `newcomer_steps` steps from where all began.
    The paper's ensemble of all clients' models for newcomers would take their bodies from them.
    """
    population = SharedHead(head=head)
    check_start(model, population)
    return alternating(model, population, name="lg-fedavg", functions=AtOnce, **options)
