"""The private channel of a training: the chosen mechanism, with the noise of its budget."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.channels.matrix_gaussian import MatrixGaussian
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import Cohort
from fedprior.learning.adaptive_clip import message_noise
from fedprior.privacy import events
from fedprior.privacy.participation import Participation
from fedprior.privacy.planning import noise_multiplier
from fedprior.privacy.plans import check_delta_below
from fedprior.privacy.strategy import (
    Banded,
    Buffered,
    Strategy,
    banded_strategy,
    buffered_strategy,
    independent_equivalent,
    squared_errors,
)
from fedprior.reporting.config import Privacy

PrivateSum = CentralGaussian | DistributedGaussian | MatrixGaussian
_FEWEST = 3  # clients of a secure sum: of two, each would know the other's message


def private_channel(
    privacy: Privacy, cohort: Cohort, *, rounds: int, num_clients: int
) -> PrivateSum:
    """The channel with the noise that was given, or the least that keeps to the budget."""
    check_delta_below(privacy.delta, num_clients, allowed=privacy.allow_delta)
    channel: PrivateSum
    if privacy.mechanism == "matrix":
        channel = _matrix(privacy, cohort, rounds)
    elif privacy.secure_sums:
        channel = _distributed(privacy, cohort.capacity(num_clients))
    else:
        clip = 1.0 if privacy.adaptive_clip else privacy.clip  # the method clips by itself
        channel = CentralGaussian(clip=clip, noise_multiplier=1.0, noise=privacy.noise)
    given = privacy.noise_multiplier
    return replace(
        channel, noise_multiplier=given or _least(channel, privacy, cohort, rounds, num_clients)
    )


def equivalent_noise(channel: PrivateSum, privacy: Privacy) -> float:
    """The multiplier of independent noise that disturbs what is learned as much, on average."""
    if not isinstance(channel, MatrixGaussian):
        noise = _scale(channel) / channel.clip
        return message_noise(noise) if privacy.adaptive_clip else noise
    rounds = channel.participation.rounds
    return channel.noise_multiplier * independent_equivalent(channel.strategy, rounds)


def deviations(channel: PrivateSum) -> np.ndarray:
    """Standard deviations of independent noise, one per round, that adds up to the same.

    The sum of the first t rounds then has the variance that it has under the channel, for every t.
    """
    if not isinstance(channel, MatrixGaussian):
        return np.array([_scale(channel)])
    errors = squared_errors(channel.strategy, channel.participation.rounds)
    return _scale(channel) * np.sqrt(np.diff(errors, prepend=0.0))


def coefficients(channel: PrivateSum) -> tuple[float, ...]:
    """The strategy of a channel, as a configuration holds it."""
    if not isinstance(channel, MatrixGaussian):
        return ()
    chosen = channel.strategy
    return chosen.coefficients if isinstance(chosen, Banded) else chosen.decays + chosen.scales


def _scale(channel: PrivateSum) -> float:
    """Standard deviation of the noise on a sum, in secure sums of what all clients add to it."""
    if isinstance(channel, DistributedGaussian):
        return channel.total_scale
    return channel.clip * channel.noise_multiplier


def _distributed(privacy: Privacy, size: int) -> DistributedGaussian:
    if size < _FEWEST:
        raise PrivacyError(
            f"config privacy: secure_sums must be of at least {_FEWEST} clients in a cohort, got "
            f"{size}. Raise training.cohort_size."
        )
    return DistributedGaussian(
        clip=privacy.clip,
        noise_multiplier=1.0,
        size=size,
        missing=privacy.missing or size // 3,
        noise=privacy.noise,
    )


def _matrix(privacy: Privacy, cohort: Cohort, rounds: int) -> MatrixGaussian:
    apart = privacy.separation or cohort.cycle
    rule = Participation(rounds=rounds, apart=apart, most=privacy.participations)
    return MatrixGaussian(
        clip=privacy.clip,
        noise_multiplier=1.0,
        strategy=_strategy(privacy, rule),
        participation=rule,
        noise=privacy.noise,
    )


def _strategy(privacy: Privacy, rule: Participation) -> Strategy:
    given = privacy.coefficients
    if privacy.strategy == "buffered":
        half = len(given) // 2
        return Buffered(given[:half], given[half:]) if given else buffered_strategy(rule)
    if given:
        return Banded(given)
    return banded_strategy(rule.rounds, bands=privacy.bands or rule.apart)


def _least(
    channel: PrivateSum, privacy: Privacy, cohort: Cohort, rounds: int, num_clients: int
) -> float:
    """The least noise multiplier; the event of `channel`, whose own is 1, has `event.noise`."""
    event, count = channel.charge(cohort, num_clients, 1)
    least = _search(
        event, privacy.epsilon, privacy.delta, rounds if count is None else count, privacy.relation
    )
    # Rounding of the quotient must not take the run above its budget.
    return least if event.noise == 1 else least / event.noise * (1 + 1e-12)


@lru_cache
def _search(
    event: events.Event, target: float, delta: float, rounds: int, relation: events.Relation
) -> float:
    return noise_multiplier(event, target=target, delta=delta, rounds=rounds, relation=relation)
