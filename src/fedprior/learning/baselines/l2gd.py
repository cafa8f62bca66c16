"""L2GD: loopless local gradient descent (Hanzely and Richtarik 2020, Algorithm 1)."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import alternating
from fedprior.learning.averaging import Weight, mean_of_thetas
from fedprior.learning.descent import mean_loss
from fedprior.learning.method import MethodWarning
from fedprior.learning.posterior import rate_at
from fedprior.learning.steps import Steps, go_on
from fedprior.populations.tether import Tether

CUT = (
    "moves thetas to their mean, no further: where theta_rate * penalty * (1 - p) / p is above 1, "
    "a larger penalty makes no difference."
)


class CutWarning(MethodWarning):
    """A move toward the mean would pass it, and ends there: the penalty has no further effect."""


def l2gd(
    model: Model,
    *,
    penalty: float = 0.1,
    probability: float | None = None,
    steps: Steps = Steps(),
    theta_rate: float = 0.1,
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
) -> Algorithm:
    """Mean of f_i(theta_i) + penalty / 2 ||theta_i - mean||^2, by coins that all clients share.

    Every step of the method is, with `probability` p (default: 1 / local_steps), a move of all
    thetas toward their mean by the share theta_rate * penalty * (1 - p) / p, else a gradient step
    of each on its own loss. Moves leave the mean where it is, so that clients need to speak only
    when a gradient step is followed by a move. A round here is what happens from one such moment
    to the next: a run of moves (of 1 / (1 - p) in expectation) toward the mean received, a run of
    gradient steps (of 1 / p), theta_i minus the mean received is sent. With everyone in every round
    this is the printed method; with cohorts, which it does not have, the mean is that of the last
    cohort.

    A move ends at the mean: where theta_rate * penalty * (1 - p) / p is above 1 the share is cut to
    1, every penalty beyond that does the same, and what is minimized is no longer the objective
    above. It warns when it is built so. A newcomer begins at the mean and takes `newcomer_steps`
    steps on the objective.
    """
    name = "l2gd"
    check.nonnegative(name, penalty=penalty)
    steps.check_supported(name)
    if probability is None:
        remedy = "A client takes that many steps on average between two moves; or give probability."
        number = steps.local_steps
        check.require(number > 1, name, "local_steps", "above 1", number, remedy)
        probability = 1 / number
    check.nonnegative(name, theta_rate=theta_rate)
    check.within(name, probability=probability)
    _warn_of_a_cut(name, theta_rate, penalty, probability)
    descent = steps.descent(theta_rate)
    plain = alternating(
        model,
        Tether(strength=penalty),
        name=name,
        steps=steps,
        theta_rate=theta_rate,
        weight=weight,
        newcomer_steps=newcomer_steps,
    )

    def local(state: State, memory: Memory, data: ClientData, key: Key) -> tuple[Message, Memory]:
        moves, number = runs(state["words"], state["round"], probability)
        time = state["round"] * steps.local_steps
        share = rate_at(descent, time) * penalty * (1 - probability) / probability
        left = remaining(share, moves)
        w = tree.combine(
            lambda own, mean: mean + left * (own - mean), memory["w"], state["gamma"]["mean"]
        )
        begun = {**memory, "w": w}
        after = go_on(
            steps, mean_loss(model), begun, data, descent, number=number, round=state["round"]
        )
        return Message({}, jnp.ones(())), after

    return mean_of_thetas(replace(plain, local=local), weight)


def _warn_of_a_cut(name: str, theta_rate: float, penalty: float, probability: float) -> None:
    """Says at which penalty moves end at the mean, where numbers are known and it is passed."""
    if any(check.is_traced(value) for value in (theta_rate, penalty, probability)):
        return
    share = theta_rate * penalty * (1 - probability) / probability
    if share > 1:
        here = f"Here it is {share:.3g}: penalties above {penalty / share:.3g} are all the same."
        warnings.warn(f"{name}: {CUT} {here}", CutWarning, stacklevel=3)


def remaining(share: Array, moves: Array) -> Array:
    """What `moves` moves by `share` of the way leave of a distance; a move ends at the mean."""
    return (1 - jnp.minimum(share, 1)) ** moves


def runs(words: Array, round: Array, probability: float) -> tuple[Array, Array]:
    """Coins in a row that say move, then coins in a row that say step: at least one of each.

    P(moves > k) = p^k and P(steps > k) = (1 - p)^k, by inversion; all clients draw the same.
    """
    key = random.fold(jax.random.wrap_key_data(words), "local", round)
    logs = jnp.log1p(-jax.random.uniform(key, (2,)))
    again = jnp.log(jnp.stack([jnp.asarray(probability), 1 - jnp.asarray(probability)]))
    moves, steps = 1 + jnp.floor(logs / again).astype(jnp.int32)
    return moves, steps
