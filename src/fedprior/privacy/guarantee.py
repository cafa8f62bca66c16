"""A privacy guarantee with everything it depends on."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Literal

from fedprior.core import check
from fedprior.core.plain import picked

Noise = Literal["simulated", "secure"]


def shown(figure: float, *, digits: int, up: bool = True) -> str:
    """Format a figure with `digits` significant digits, rounded such that it remains valid.

    Epsilon and noise are rounded up; a sampling rate, which costs more if it is larger, down.

    >>> shown(3.6041, digits=3), shown(2.9998, digits=4), shown(3 * 0.3, digits=3)
    ('3.61', '3', '0.9')
    >>> shown(2 / 3, digits=3, up=False)
    '0.666'
    """
    exact = repr(figure * (1 - 1e-12 if up else 1 + 1e-12))  # except for the last bits of 3 * 0.3
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    rounded = Context(prec=digits, rounding=rounding).create_decimal(exact)
    return f"{float(rounded):.{digits}g}"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-DP of the output of a client, with its unit, relation and trust assumption.

    `unit` is what is protected, and `neighbors` the relation between neighbors that differ in one
    unit ("replace one"). `noise` is `simulated` (keyed, reproducible, not valid for release) or
    `secure` (seeded by the operating system). `bits` is the number of bits that one client sends
    over all rounds, 32 per float, or None if unknown.
    """

    epsilon: float
    delta: float
    unit: str
    neighbors: str
    trust: str
    mechanism: str
    noise: Noise
    bits: float | None = None

    def __post_init__(self) -> None:
        check.positive("Guarantee", epsilon=self.epsilon)
        check.share("Guarantee", delta=self.delta)
        check.choice("Guarantee", "noise", self.noise, ("simulated", "secure"))

    def describe(self) -> dict[str, Any]:
        """Return the guarantee as a JSON object."""
        told = picked(self, "epsilon", "delta", "unit", "neighbors", "trust", "mechanism", "noise")
        return {**told, "valid_for_release": self.noise == "secure", "bits": self.bits}

    def __str__(self) -> str:
        delta = f", delta = {self.delta:g}" if self.delta else ""
        word = "bit" if self.bits == 1 else "bits"
        sent = f" {self.bits:g} {word} per client." if self.bits is not None else ""
        release = (
            "Noise seeded by the operating system."
            if self.noise == "secure"
            else "Simulated noise: not valid for release."
        )
        return (
            f"epsilon = {shown(self.epsilon, digits=6)}{delta} for {self.unit} "
            f"({self.neighbors}); trusts {self.trust}; {self.mechanism}.{sent} {release}"
        )
