"""The one-round scheme of the paper's section 2 as algorithms of a federation.

A client's data are its outputs y (x is ignored); theta is its mean, and `predict` returns theta for
every sample. Losses are squared errors.
"""

from typing import Any, Literal

import numpy as np

from fedprior.channels.randomized_response import OneBit
from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State
from fedprior.estimation.federated.parts import (
    as_algorithm,
    first_state,
    learned,
    over_samples,
    own_mean,
    shrunk,
    some,
    truncated_mean,
    zeros,
)

Weight = Literal["uniform", "precision"]


def gaussian_means(
    *,
    theta_variance: float | None = None,
    noise_variance: float | None = None,
    channel_variance: float = 0.0,
    weight: Weight = "uniform",
    center: float = 0.0,
    dimension: int | None = None,
) -> Algorithm:
    """Clients send their mean and receive mu: theta = a mean + (1 - a) mu, a as in Thm 1 and 2.

    With both variances known, the message is the mean alone, with weight 1 or, for
    `weight="precision"`, 1 / (theta variance + noise variance / n), which is better for unequal
    sizes but reveals them. `channel_variance` is sigma_q^2, the variance that the channel adds per
    coordinate. With neither variance known, the message contains what D1 needs (squared mean,
    squares within, size) and requires a clear channel. `center` is a public guess of the mean,
    about which squares are taken because float32 would lose their difference otherwise. `dimension`
    is that of y, None for scalars.
    """
    owner = "gaussian_means"
    check.nonnegative(owner, channel_variance=channel_variance)
    check.choice(owner, "weight", weight, ("uniform", "precision"))
    both = theta_variance is not None and noise_variance is not None
    neither = theta_variance is None and noise_variance is None
    check.expect(both or neither, owner, "give both theta_variance and noise_variance, or neither.")
    if theta_variance is None or noise_variance is None:
        sentence = "weight='precision' needs theta_variance and noise_variance."
        check.expect(weight == "uniform", owner, sentence)
        return _unknown_variances(center, dimension)
    check.nonnegative(owner, theta_variance=theta_variance)
    check.positive(owner, noise_variance=noise_variance)
    import jax.numpy as jnp

    between, noise = float(theta_variance), float(noise_variance)

    def init(key: Key) -> State:
        return first_state(mean=zeros(dimension) + center, error=jnp.zeros(()))

    def local(state: State, memory: Memory, data: Any, key: Key) -> tuple[Message, Memory]:
        share = 1.0 if weight == "uniform" else 1 / (between + noise / data.size)
        return Message({"mean": share * own_mean(data)}, jnp.ones(()) * share), memory

    def update(state: State, total: Message) -> State:
        number = jnp.maximum(total.weight, 1)
        # Thm 2's sigma_q^2 / (m - 1): what the channel adds to the variance about mu.
        error = channel_variance / jnp.maximum(number - 1, 1)
        return learned(state, total, mean=total.value["mean"] / some(total), error=error)

    def personalize(state: State, memory: Memory, data: Any, key: Key) -> Array:
        gamma = state["gamma"]
        spread = between + gamma["error"]
        return shrunk(own_mean(data), gamma["mean"], spread / (spread + noise / data.size), data)

    return as_algorithm("gaussian-means", init, local, update, personalize, weight == "uniform")


def _unknown_variances(center: float, dimension: int | None) -> Algorithm:
    import jax.numpy as jnp

    width = dimension or 1

    def init(key: Key) -> State:
        zero = jnp.zeros(())
        return first_state(
            mean=zeros(dimension) + center, theta_variance=zero, noise_variance=zero + 1
        )

    def local(state: State, memory: Memory, data: Any, key: Key) -> tuple[Message, Memory]:
        mean = own_mean(data)
        _, y, mask = data.all()
        away = jnp.where(over_samples(mask, y), (y - mean) ** 2, 0)
        value = {
            "count": jnp.ones(()),
            "mean": mean - center,
            "square": jnp.sum((mean - center) ** 2),
            "within": jnp.sum(away),
            "inverse_size": 1 / data.size,
        }
        return Message(value, data.size.astype(jnp.float32)), memory

    def update(state: State, total: Message) -> State:
        value = total.value
        number = jnp.maximum(value["count"], 1)
        mean = value["mean"] / number
        noise = value["within"] / (width * jnp.maximum(total.weight - number, 1))
        spread = (value["square"] - number * jnp.sum(mean**2)) / (
            width * jnp.maximum(number - 1, 1)
        )
        between = jnp.maximum(spread - noise * value["inverse_size"] / number, 0)
        return learned(
            state, total, mean=mean + center, theta_variance=between, noise_variance=noise
        )

    def personalize(state: State, memory: Memory, data: Any, key: Key) -> Array:
        gamma = state["gamma"]
        between, noise = gamma["theta_variance"], gamma["noise_variance"]
        whole = between + noise / data.size
        own = jnp.where(whole > 0, between / jnp.where(whole > 0, whole, 1), 1)
        return shrunk(own_mean(data), gamma["mean"], own, data)

    return as_algorithm("gaussian-means", init, local, update, personalize, False)


def rates_channel(epsilon: float, *, least: int = 2) -> OneBit:
    """The one-bit channel of `bernoulli_rates`, for clients of at least `least` samples each."""
    check.count("rates_channel", least=2, smallest=least)
    return OneBit(epsilon=epsilon, low=(0.0, -0.25 / (least - 1)), high=(1.0, 0.25))


def bernoulli_rates(*, channel: OneBit | None = None) -> Algorithm:
    """Clients send X = Z / n and W, unbiased for (p - 1/2)^2; theta = a X + (1 - a) mu (D2, D3).

    Without a channel X^2 is sent as well, and the heterogeneity is the unbiased estimate mean W -
    (mu - 1/2)^2 + Var(X) / m, clipped to [0, mu (1 - mu)]. Under a one-bit `channel`
    (`rates_channel`, passed here so that its noise enters the weights) it is instead the mean of
    the estimate's normal distribution truncated to that range, and the error of mu is added to the
    variance. Clients need at least two samples. Unlike `estimate_rates_privately`, this has no
    safeguard, because the server sees only totals.
    """
    import jax.numpy as jnp

    noise = (0.0, 0.0)
    if channel is not None:
        low, high = (np.broadcast_to(each, 2) for each in (channel.low, channel.high))
        # A report is mid +- (high - low) / k with probability 1/2, else mid: variance about mid.
        noise = tuple(((high - low) ** 2 / 2 / channel.contrast**2).tolist())

    def init(key: Key) -> State:
        zero = jnp.zeros(())
        return first_state(mean=zero + 0.5, variance=zero + 1 / 12, error=zero)

    def local(state: State, memory: Memory, data: Any, key: Key) -> tuple[Message, Memory]:
        rate, size = own_mean(data), data.size
        pairs = rate * (rate * size - 1) / jnp.maximum(size - 1, 1)
        value = {"mean": rate, "moment": pairs - rate + 0.25}
        if channel is None:
            value["square"] = rate**2
        return Message(value, jnp.ones(())), memory

    def update(state: State, total: Message) -> State:
        number = jnp.maximum(total.weight, 1)
        raw, moment = (total.value[name] / some(total) for name in ("mean", "moment"))
        errors = [each / number for each in noise]
        mean = jnp.clip(raw, 0, 1)
        largest = mean * (1 - mean)
        variance = moment - (raw - 0.5) ** 2
        if channel is None:
            error = (total.value["square"] / some(total) - raw**2) / jnp.maximum(number - 1, 1)
            variance = jnp.clip(variance + error, 0, largest)
        else:
            doubt = errors[1] + 4 * (raw - 0.5) ** 2 * errors[0] + 2 * errors[0] ** 2
            variance = truncated_mean(variance + errors[0], jnp.sqrt(doubt), largest)
        return learned(state, total, mean=mean, variance=variance, error=jnp.asarray(errors[0]))

    def personalize(state: State, memory: Memory, data: Any, key: Key) -> Array:
        gamma = state["gamma"]
        mean, spread = gamma["mean"], gamma["variance"] + gamma["error"]
        local = jnp.maximum(mean * (1 - mean) - gamma["variance"], 0) / data.size
        whole = spread + local
        own = jnp.where(whole > 0, spread / jnp.where(whole > 0, whole, 1), 0)
        return shrunk(own_mean(data), mean, own, data)

    return as_algorithm("bernoulli-rates", init, local, update, personalize, True)


def mixture_means(
    *,
    centers: np.ndarray,
    noise_variance: float,
    probabilities: np.ndarray | None = None,
) -> Algorithm:
    """EM of D4, one step per round: messages alpha and alpha mean, theta = sum alpha_l center_l.

    alpha_l ~ p_l exp(-n |mean - center_l|^2 / (2 noise variance)). EM starts from public `centers`,
    (components,) or (components, d), and `probabilities`, equal by default. Weights are 1, so any
    channel can be used; with unequal sizes this costs some precision (see `mixture_messages`).
    """
    owner = "mixture_means"
    check.positive(owner, noise_variance=noise_variance)
    points = np.asarray(centers, np.float32)
    count = len(points)
    share = np.full(count, 1 / count) if probabilities is None else np.asarray(probabilities)
    rule = f"{count} numbers of at least 0 with sum 1"
    fits = share.shape == (count,) and bool((share >= 0).all()) and abs(share.sum() - 1) < 1e-6
    check.require(fits, owner, "probabilities", rule, probabilities)
    import jax
    import jax.numpy as jnp

    def init(key: Key) -> State:
        return first_state(
            centers=jnp.asarray(points), probabilities=jnp.asarray(share, jnp.float32)
        )

    def belonging(gamma: dict[str, Array], data: Any) -> Array:
        away = (own_mean(data) - gamma["centers"]).reshape(count, -1)
        squares = jnp.sum(away**2, axis=1)
        return jax.nn.softmax(
            jnp.log(gamma["probabilities"]) - data.size * squares / (2 * noise_variance)
        )

    def local(state: State, memory: Memory, data: Any, key: Key) -> tuple[Message, Memory]:
        alpha = belonging(state["gamma"], data)
        value = {"share": alpha, "mean": jnp.multiply.outer(alpha, own_mean(data))}
        return Message(value, jnp.ones(())), memory

    def update(state: State, total: Message) -> State:
        mass = jnp.maximum(total.value["share"], 0)
        there = over_samples(mass > 0, total.value["mean"])
        moved = total.value["mean"] / jnp.where(there, over_samples(mass, total.value["mean"]), 1)
        new = jnp.where(there, moved, state["gamma"]["centers"])
        share_of_mass = mass / jnp.maximum(jnp.sum(mass), 1e-30)
        return learned(state, total, centers=new, probabilities=share_of_mass)

    def personalize(state: State, memory: Memory, data: Any, key: Key) -> Array:
        gamma = state["gamma"]
        alpha = jnp.where(data.size > 0, belonging(gamma, data), gamma["probabilities"])
        return jnp.tensordot(alpha, gamma["centers"], axes=1)

    return as_algorithm("mixture-means", init, local, update, personalize, True)
