"""The optimizers under which methods are compared: each method's own, and the same for all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedprior.learning.method import Method

NO_CLIP = 1e9  # longer than any gradient


@dataclass(frozen=True)
class Optimizer:
    """Options that every method gets, as far as it has them; in place of its own."""

    name: str
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def of(self, method: Method) -> dict[str, Any]:
        """What the method gets: one that adds up no increments has neither momentum nor average."""
        known = method.options()
        own = {name: value for name, value in self.options.items() if name in known}
        if "gradient_norm" in known and "clip" in own:  # a clip with a default of its own
            own["gradient_norm"] = own.pop("clip")
        return own


PUBLISHED = Optimizer("published", "published optimizers")
# Chosen once by `fedprior reproduce optimizer`: seeds 100 to 102, which no table uses.
EQUAL = Optimizer(
    "equal", "the same optimizer for all", {"momentum": 0.9, "clip": 1.0, "horizon": 30.0}
)
FREQUENCIES = Optimizer(
    "frequencies",
    "the same optimizer and class frequencies for all",
    {**EQUAL.options, "class_frequencies": True},
)
OPTIMIZERS = {each.name: each for each in (PUBLISHED, EQUAL, FREQUENCIES)}
