"""Every client alone."""

from typing import Any

from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.options import passes_on
from fedprior.populations.flat import Flat


@passes_on(alternating, "steps", "theta_rate", "newcomer_steps", "catch_up")
def local(model: Model, **options: Any) -> Algorithm:
    """Each client on its own loss from a common start; nothing is sent.

    Run it with everyone for `rounds * K / m` rounds to give each client the steps that a method
    with cohorts of K expects to give it.
    """
    return alternating(model, Flat(), name="local", **options)
