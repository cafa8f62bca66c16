"""Private runs on a federation made for attacking them: quiet clients, a canary that shouts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core import tree
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Channel, Cohort
from fedprior.data.federation import Federation, Split
from fedprior.exchange.agreement import Agreement
from fedprior.learning.adaped import adaped, adaped_fine_tuning
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.learning.baselines.fedem import fedem
from fedprior.learning.batches import Batches
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic
from fedprior.privacy.cohort import Poisson

# Rows of each client, half of each label, so that their gradients cancel; the last is the canary.
_SIZES = (2, 4, 2, 4, 2, 2)
# One input of the canary, all of one label: its upload always points the same way, mostly along a
# weight that nobody else moves, and is several times the clip.
_SHOUT = 10.0
# Inputs of clients that try to pass the clip; the last two overflow float32 on the way.
_EXTREMES = (0.0, 1e-30, 1.0, 1e4, 1e18, 3e38)
_STEPS = Steps(local_steps=2, batches=Batches(size=4))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A private run to be audited: the client that is there or not, and how gamma is scaled.

    `scales` gives the unit of each block of gamma in the message (1 where it is not named), which
    the released gamma is brought back to; `psi_floor` is what psi is clamped to after the noise,
    where there is a psi.
    """

    agreement: Agreement
    federation: Federation
    rounds: int
    canary: int
    scales: Mapping[str, float] = field(default_factory=dict)
    psi_floor: float = 0.0
    name: str

    @property
    def clip(self) -> float:
        channel: Any = self.agreement.channel
        return float(channel.clip)

    def units(self) -> np.ndarray:
        """What one unit of each coordinate of gamma is in a sum of messages, in clips."""
        gamma = self.agreement.shapes[0]["gamma"]
        size = self.agreement.rules.expected_size / self.clip
        found = [
            np.full(tree.size(gamma[block]), size / self.scales.get(block, 1.0))
            for block in sorted(gamma)  # the order in which a tree is flattened
        ]
        return np.concatenate(found)

    def at_the_edges(self) -> "Subject":
        """The same run on inputs from zero to the largest floats, in arrays of the same shapes."""
        federation = self.federation
        train = federation.train
        own = np.repeat(np.arange(federation.num_clients), train.size)
        values = np.resize(np.array(_EXTREMES, np.float32), federation.num_clients)
        x = np.broadcast_to(values[own][:, None], train.x.shape).astype(np.float32)
        edges = replace(federation, train=replace(train, x=x), name="edges")
        return replace(self, federation=edges)


def dp_adaped(
    *,
    channel: Channel | None = None,
    cohort: Cohort | None = None,
    rounds: int = 3,
    psi_scale: float = 2.0,
    psi_floor: float = 0.5,
    factory: Callable[..., Algorithm] = adaped,
    **options: Any,
) -> Subject:
    """DP-AdaPeD as shipped (ERRATA D7(1)), on six clients; `options` go to the factory."""
    algorithm = factory(
        logistic(2),
        steps=_STEPS,
        theta_rate=1.0,
        gamma_rate=1.0,
        psi_scale=psi_scale,
        psi_floor=psi_floor,
        **options,
    )
    plain = _subject("DP-AdaPeD", algorithm, channel, cohort, rounds)
    return replace(plain, scales={"psi": psi_scale}, psi_floor=psi_floor)


def dp_adaped_fine_tuning() -> Subject:
    """DP-AdaPeD whose clients also train between rounds (Algorithm 6): memories, not messages."""
    tuned = dp_adaped(factory=adaped_fine_tuning, catch_up=2)
    return replace(tuned, name="DP-AdaPeD with fine-tuning")


def dp_fedavg(*, channel: Channel | None = None, cohort: Cohort | None = None) -> Subject:
    """DP-FedAvg: the increments of one model."""
    algorithm = fedavg(logistic(2), steps=_STEPS, gamma_rate=1.0)
    return _subject("DP-FedAvg", algorithm, channel, cohort, rounds=3)


def dp_fedem(*, channel: Channel | None = None, cohort: Cohort | None = None) -> Subject:
    """DP-FedEM: the increments of two models, clipped and noised as one vector."""
    algorithm = fedem(logistic(2), steps=_STEPS, gamma_rate=1.0)
    return _subject("DP-FedEM", algorithm, channel, cohort, rounds=3)


def _subject(
    name: str, algorithm: Algorithm, channel: Channel | None, cohort: Cohort | None, rounds: int
) -> Subject:
    federation = quiet_federation()
    agreement = Agreement.of(
        algorithm,
        federation,
        channel=CentralGaussian(clip=0.2, noise_multiplier=1.0) if channel is None else channel,
        cohort=Poisson(rate=0.5, cap=len(_SIZES)) if cohort is None else cohort,
    )
    canary = len(_SIZES) - 1
    return Subject(
        name=name, agreement=agreement, federation=federation, rounds=rounds, canary=canary
    )


def quiet_federation() -> Federation:
    """Clients whose inputs are zero, and a last one whose input is far out."""
    own = np.repeat(np.arange(len(_SIZES)), _SIZES)
    canary = own == len(_SIZES) - 1
    x = np.zeros((len(own), 2), np.float32)
    x[canary, 0] = _SHOUT
    y = np.where(canary, 1, np.arange(len(own)) % 2).astype(np.int32)
    train = Split.gather(x, y, [np.flatnonzero(own == client) for client in range(len(_SIZES))])
    nobody = np.zeros(len(_SIZES), np.int32)
    none = Split(x[:0], y[:0], nobody, nobody)
    names = np.array([f"client-{number}" for number in range(len(_SIZES))])
    return Federation(
        train=train, valid=none, test=none, clients=names, classes=("a", "b"), name="quiet"
    )
