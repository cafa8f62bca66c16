"""Mean-regularized multi-task learning (Evgeniou and Pontil 2004; Smith et al. 2017)."""

from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.averaging import Weight, mean_of_thetas
from fedprior.learning.options import passes_on
from fedprior.populations.tether import Tether


@passes_on(alternating, "steps", "theta_rate", "start", "newcomer_steps", "catch_up")
def mean_regularized(
    model: Model, *, penalty: float = 0.1, weight: Weight = "uniform", **options: Any
) -> Algorithm:
    """Sum of f_i(theta_i) + penalty / 2 ||theta_i - mean||^2, mean = the average of the thetas.

    A Gaussian prior whose mean is the maximum for the thetas as they are. In a round a client takes
    `local_steps` steps of theta_i, held toward the mean that it received, and sends theta_i minus
    that; the server's mean becomes the average of the cohort's thetas. A newcomer begins there.
    """
    name = "mean-regularized"
    check.nonnegative(name, penalty=penalty)
    tether = Tether(strength=penalty)
    return mean_of_thetas(alternating(model, tether, name=name, weight=weight, **options), weight)
