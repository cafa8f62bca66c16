"""The result of one attack."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedprior.privacy.events import Relation

Family = Literal[
    "channels",
    "dimensions",
    "keys",
    "randomness",
    "special values",
    "sampling",
    "prices",
    "counting",
    "law of messages",
    "runs",
]
FAMILIES: tuple[Family, ...] = get_args(Family)
# The probability with which an attack finds the fault that it says it detects.
POWER = 0.999


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was attacked, what is claimed of it, and what was measured.

    `claimed` and `lower_bound` are epsilons at `delta`: the claim, and a lower confidence bound on
    the truth; attacks on something else than epsilon have neither, and say what holds in `claim`
    (and in `measured`, where there is more to say than whether it is so).
    A sound mechanism fails with probability at most 1 - confidence; a confidence of 1 denotes a
    deterministic attack. `detects` is the smallest fault that is found with probability `POWER`.
    `faults` are deviations from the assumptions of the claim; they fail it regardless of the bound.
    """

    family: Family
    mechanism: str
    detail: str
    detects: str
    confidence: float
    claimed: float | None = None
    lower_bound: float | None = None  # infinite if epsilon is unbounded
    delta: float = 0.0
    relation: Relation | None = None
    claim: str = ""
    measured: str = ""
    faults: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        if self.claimed is not None and not (self.lower_bound or 0.0) <= self.claimed:
            return False
        return not self.faults

    @property
    def said(self) -> str:
        """What is claimed, in words."""
        if self.claimed is None:
            return self.claim
        at = f" at delta {self.delta:g}" if self.delta else ""
        return f"epsilon {self.claimed:.4g}{at}"

    @property
    def found(self) -> str:
        """What was measured, in words."""
        if self.lower_bound is not None:
            bound = f"epsilon at least {self.lower_bound:.4g}"
            return f"{bound}; {self.measured}" if self.measured else bound
        return self.measured or ("not as claimed" if self.faults else "as claimed")

    def describe(self) -> dict[str, Any]:
        """Return an entry of `attacks` in `fedprior privacy audit --json`; null means unbounded."""
        bound = self.lower_bound
        return {
            "class": self.family,
            "mechanism": self.mechanism,
            "detail": self.detail,
            "claim": self.said,
            "measured": self.found,
            "claimed": self.claimed,
            "lower_bound": bound if bound is not None and math.isfinite(bound) else None,
            "delta": self.delta,
            "relation": self.relation,
            "false_alarm": 1 - self.confidence,
            "detects": self.detects,
            "passed": self.passed,
            "faults": list(self.faults),
        }


def chance_of_false_alarm(findings: Iterable[Finding]) -> float:
    """Return an upper bound on the probability that sound mechanisms fail any of the attacks."""
    return min(1.0, math.fsum(1 - finding.confidence for finding in findings))
