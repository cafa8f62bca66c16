"""Private runs on a federation designed for attacks: inconspicuous clients and a loud canary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprior.audit.probe import federation_of
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core import tree
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Channel
from fedprior.data.federation import Federation
from fedprior.exchange.agreement import Agreement
from fedprior.learning.adamap import adamap
from fedprior.learning.adaped import adaped, adaped_fine_tuning
from fedprior.learning.adaptive_clip import adaptive_clip
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.learning.baselines.fedem import fedem
from fedprior.learning.batches import Batches
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic
from fedprior.privacy.cohort import Poisson

# Rows per client, half of each label so that their gradients cancel; the last is the canary.
_SIZES = (2, 4, 2, 4, 2, 2)
# The canary's only input, with a single label: its upload always points in the same direction,
# mostly along a weight that no other client changes, and is several times the clip.
_SHOUT = 10.0
# Inputs of clients that try to exceed the clip; the last two overflow float32 along the way.
_EXTREMES = (0.0, 1e-30, 1.0, 1e4, 1e18, 3e38)
_MOMENTUM = 0.95
_PSI_SCALE = 2.0
_STEPS = Steps(local_steps=2, batches=Batches(size=4))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A private run to audit, with its canary client and the scales of gamma.

    `scales` is the unit of each block of gamma in the message (1 by default), by which the released
    gamma is rescaled; `momentum` is that of the server.
    """

    agreement: Agreement
    federation: Federation
    rounds: int
    canary: int
    scales: Mapping[str, float] = field(default_factory=dict)
    momentum: float = 0.0
    name: str

    @property
    def clip(self) -> float:
        channel: Any = self.agreement.channel
        return float(channel.clip)

    def units(self) -> np.ndarray:
        """Return the factors from coordinates of gamma to a sum of messages in clips."""
        gamma = self.agreement.shapes[0]["gamma"]
        size = self.agreement.rules.expected_size / self.clip
        factors = [
            np.full(tree.size(gamma[block]), size / self.scales.get(block, 1.0))
            for block in sorted(gamma)  # the order in which a tree is flattened
        ]
        return np.concatenate(factors)

    def totals(self, gamma: np.ndarray) -> np.ndarray:
        """Return the released sums in clips, from gamma (runs, rounds + 1, size)."""
        moved = np.diff(gamma, axis=1) * self.units()
        moved[:, 1:] -= self.momentum * moved[:, :-1].copy()
        return np.asarray(moved)

    def at_the_edges(self) -> "Subject":
        """Return the same run on inputs from zero to the largest floats, with the same shapes."""
        federation = self.federation
        train = federation.train
        client = np.repeat(np.arange(federation.num_clients), train.size)
        values = np.resize(np.array(_EXTREMES, np.float32), federation.num_clients)
        x = np.broadcast_to(values[client][:, None], train.x.shape).astype(np.float32)
        edges = replace(federation, train=replace(train, x=x), name="edges")
        return replace(self, federation=edges)


def dp_adaped(
    *,
    channel: Channel | None = None,
    factory: Callable[..., Algorithm] = adaped,
    **options: Any,
) -> Subject:
    """DP-AdaPeD (ERRATA D7(1)) on six clients; `options` are passed to the factory."""
    algorithm = factory(
        logistic(2),
        steps=_STEPS,
        theta_rate=1.0,
        gamma_rate=1.0,
        psi_scale=_PSI_SCALE,
        psi_floor=0.5,
        **options,
    )
    return replace(_subject("DP-AdaPeD", algorithm, channel), scales={"psi": _PSI_SCALE})


def dp_adaped_fine_tuning() -> Subject:
    """DP-AdaPeD whose clients also train between rounds (Algorithm 6), on their memory only."""
    tuned = dp_adaped(factory=adaped_fine_tuning, catch_up=2)
    return replace(tuned, name="DP-AdaPeD with fine-tuning")


def dp_adamap() -> Subject:
    """DP-AdaMAP: the increments of one network, to which the server adds momentum."""
    algorithm = adamap(logistic(2), steps=_STEPS, gamma_rate=1.0, momentum=_MOMENTUM, judge_every=0)
    return replace(_subject("DP-AdaMAP", algorithm), momentum=_MOMENTUM)


def dp_fedavg() -> Subject:
    """DP-FedAvg: the increments of one model."""
    algorithm = fedavg(logistic(2), steps=_STEPS, gamma_rate=1.0)
    return _subject("DP-FedAvg", algorithm)


def dp_fedem() -> Subject:
    """DP-FedEM: the increments of two models, clipped and noised as one vector."""
    algorithm = fedem(logistic(2), steps=_STEPS, gamma_rate=1.0)
    return _subject("DP-FedEM", algorithm)


def dp_adaptive_clip() -> Subject:
    """DP-FedAvg with a clip that follows a quantile, covered by the same event as the message."""
    algorithm = adaptive_clip(fedavg(logistic(2), steps=_STEPS, gamma_rate=1.0))
    channel = CentralGaussian(clip=1.0, noise_multiplier=1.0)
    return _subject("DP-FedAvg with an adaptive clip", algorithm, channel)


def _subject(name: str, algorithm: Algorithm, channel: Channel | None = None) -> Subject:
    federation = quiet_federation()
    agreement = Agreement.of(
        algorithm,
        federation,
        channel=CentralGaussian(clip=0.2, noise_multiplier=1.0) if channel is None else channel,
        cohort=Poisson(rate=0.5, cap=len(_SIZES)),
    )
    canary = len(_SIZES) - 1
    return Subject(name=name, agreement=agreement, federation=federation, rounds=3, canary=canary)


def quiet_federation() -> Federation:
    """Return clients whose inputs are zero, and a last one with a very large input."""
    owner = np.repeat(np.arange(len(_SIZES)), _SIZES)
    canary = owner == len(_SIZES) - 1
    x = np.zeros((len(owner), 2), np.float32)
    x[canary, 0] = _SHOUT
    y = np.where(canary, 1, np.arange(len(owner)) % 2).astype(np.int32)
    rows_of = [np.flatnonzero(owner == client) for client in range(len(_SIZES))]
    return federation_of(x, y, rows_of, name="quiet")
