"""What a client minimizes: the loss of its samples, and what its w costs under the prior."""

from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Model, Population
from fedprior.learning.descent import masked_mean


def joint_loss(
    model: Model,
    population: Population,
    gamma: Gamma,
    w: PyTree,
    x: Array,
    y: Array,
    mask: Array,
    size: Array,
) -> Array:
    """-log p(y, w | gamma) a sample: mean loss, and the penalty's share of one sample."""
    theta = population.realize(gamma, w)
    outputs = model.apply(theta, x)

    def predict(parameters: PyTree, inputs: Array) -> Array:
        # A penalty that asks for the client's own outputs gets these: one backward pass for loss
        # and penalty together, where a second call would have one of its own.
        known = parameters is theta and inputs is x
        return outputs if known else model.apply(parameters, inputs)

    loss = masked_mean(model.loss(outputs, y), mask)
    penalty = population.penalty(gamma, w, predict, x, mask)
    return loss + (penalty if population.per_sample else penalty / size)
