"""Which columns of a frame are what."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which columns are what; one of outcome, value, successes with trials, or events."""

    group: tuple[str, ...]
    outcome: str | None = None
    value: str | None = None
    stderr: str | None = None
    successes: str | None = None
    trials: str | None = None
    events: str | None = None
    exposure: str | None = None
    fold: str | None = None  # summed apart from the other rows of the group

    @property
    def keys(self) -> tuple[str, ...]:
        return self.group if self.fold is None else (*self.group, self.fold)

    @property
    def numbers(self) -> dict[str, str]:
        """The columns of numbers by their aliases."""
        if self.outcome is not None:
            return {"y": self.outcome}
        if self.value is not None:
            return _given(x=self.value, e=self.stderr)
        return _given(s=self.events or self.successes, t=self.exposure or self.trials)


def is_float(kind: Any) -> bool:
    """Whether a column of this kind may hold NaN."""
    return bool(kind.is_float())


def _given(**columns: str | None) -> dict[str, str]:
    return {alias: name for alias, name in columns.items() if name is not None}
