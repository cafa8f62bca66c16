"""What the audit found out about one mechanism."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fedprior.privacy.events import Relation

Kind = Literal["attack", "conformance"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A lower confidence bound on epsilon at `delta`, beside the claimed one.

    An `attack` only sees what is released, and so is valid whatever the mechanism does; a
    `conformance` check looks inside (what was clipped, how much noise was drawn, who was sampled)
    and has far more power. A sound mechanism fails with probability at most 1 - confidence; a
    confidence of 1 marks a check that leaves nothing to chance.
    `faults` are deviations from what the claim rests on; they fail the check whatever the bound.
    """

    mechanism: str
    kind: Kind
    claimed: float
    lower_bound: float  # infinite where nothing limits epsilon
    delta: float
    relation: Relation
    confidence: float
    detail: str
    faults: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.lower_bound <= self.claimed and not self.faults

    def describe(self) -> dict[str, Any]:
        """An entry of `checks` in `fedprior privacy audit --json`; null: without bound."""
        bound = self.lower_bound if math.isfinite(self.lower_bound) else None
        return {
            "mechanism": self.mechanism,
            "kind": self.kind,
            "claimed": self.claimed,
            "lower_bound": bound,
            "delta": self.delta,
            "relation": self.relation,
            "confidence": self.confidence,
            "passed": self.passed,
            "detail": self.detail,
            "faults": list(self.faults),
        }


def chance_of_false_alarm(findings: Iterable[Finding]) -> float:
    """At most this is the probability that sound mechanisms fail any of the checks."""
    return min(1.0, math.fsum(1 - finding.confidence for finding in findings))
