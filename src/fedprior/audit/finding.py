"""The result of one check of a mechanism."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fedprior.privacy.events import Relation

Kind = Literal["attack", "conformance"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A lower confidence bound on epsilon at `delta`, and the claimed epsilon.

    An `attack` sees only what is released and is therefore valid for any mechanism; a `conformance`
    check looks inside (the clip, the scale of the noise, the sampling) and has far more power. A
    sound mechanism fails with probability at most 1 - confidence; a confidence of 1 denotes a
    deterministic check. `faults` are deviations from the assumptions of the claim; they fail the
    check regardless of the bound.
    """

    mechanism: str
    kind: Kind
    claimed: float
    lower_bound: float  # infinite if epsilon is unbounded
    delta: float
    relation: Relation
    confidence: float
    detail: str
    faults: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.lower_bound <= self.claimed and not self.faults

    def describe(self) -> dict[str, Any]:
        """Return an entry of `checks` in `fedprior privacy audit --json`; null means unbounded."""
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
    """Return an upper bound on the probability that sound mechanisms fail any of the checks."""
    return min(1.0, math.fsum(1 - finding.confidence for finding in findings))
