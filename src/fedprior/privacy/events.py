"""The privacy event of one round: the mechanism, and the sampler that was used."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedprior.core import check

Mechanism = Literal["gaussian", "laplace", "response"]
Sampling = Literal["everyone", "poisson", "fixed"]
Relation = Literal["add-remove", "replace-one"]

RELATIONS: tuple[Relation, ...] = ("add-remove", "replace-one")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One round of a mechanism on sampled clients, with messages bounded by 1.

    `noise` is, for `gaussian`, the standard deviation divided by the l2 bound of one message; for
    `laplace`, the scale divided by the l1 bound; for `response`, the epsilon of one randomized
    report (one-bit or k-ary), which is local and therefore the same under both relations.
    `sampling` is `everyone`, `poisson` (each client with probability `rate`), or `fixed` (`size` of
    `num_clients` without replacement; `amplified` if messages do not depend on earlier rounds, so
    that sampling hides clients that were not drawn). `overflow` is the probability that the draw of
    a round exceeds its cap; it is charged to delta.
    """

    mechanism: Mechanism
    noise: float
    sampling: Sampling = "everyone"
    rate: float = 1.0
    size: int = 0
    num_clients: int = 0
    amplified: bool = True
    overflow: float = 0.0

    def __post_init__(self) -> None:
        check.choice("Event", "mechanism", self.mechanism, ("gaussian", "laplace", "response"))
        check.choice("Event", "sampling", self.sampling, ("everyone", "poisson", "fixed"))
        check.positive("Event", noise=self.noise)
        check.fraction("Event", rate=self.rate)
        check.share("Event", overflow=self.overflow)
        check.flag("Event", amplified=self.amplified)
        check.count("Event", least=0, size=self.size, num_clients=self.num_clients)
        if self.sampling == "everyone":
            check.require(self.rate == 1, "Event", "rate", "1 if everyone takes part", self.rate)
        if self.sampling == "fixed":
            check.count("Event", size=self.size, num_clients=self.num_clients)
            rule = "at most num_clients"
            check.require(self.size <= self.num_clients, "Event", "size", rule, self.size)

    def to_json(self) -> dict[str, Any]:
        """Return the event as it is recorded in a ledger."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Any) -> "Event":
        """Invert `to_json`."""
        known = {*cls.__dataclass_fields__}
        if not isinstance(fields, dict) or set(fields) != known:
            raise check.PrivacyError(
                f"Event: a record must have the fields {', '.join(sorted(known))}, got {fields!r}."
            )
        return cls(**fields)


def gaussian(noise_multiplier: float) -> Event:
    """N(0, (noise_multiplier * clip)^2 I) on a sum of messages with l2 norm <= clip."""
    return Event(mechanism="gaussian", noise=noise_multiplier)


def laplace(noise_multiplier: float) -> Event:
    """Laplace noise of scale noise_multiplier * clip on a sum of messages with l1 norm <= clip."""
    return Event(mechanism="laplace", noise=noise_multiplier)


def response(epsilon: float) -> Event:
    """One randomized report of a client's whole message: pure epsilon-DP, local, unamplified."""
    return Event(mechanism="response", noise=epsilon)
