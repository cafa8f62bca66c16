"""Every client alone."""

from typing import Any

from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.populations.flat import Flat


def local(model: Model, **options: Any) -> Algorithm:
    """Each client on its own loss from a common start; nothing is sent.

    Run it with everyone for `rounds * K / m` rounds to give each client the steps that a method
    with cohorts of K expects to give it. `options` go to `alternating`.
    """
    return alternating(model, Flat(), name="local", **options)
