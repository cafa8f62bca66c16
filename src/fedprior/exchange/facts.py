"""Public facts of a population: what both sides may know without anybody's data."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.federation import ClientData, Federation

_OWNER = "Facts"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """How many clients there are and what their samples look like.

    `shape` is the shape of one input and `num_classes` the number of classes, None where the target
    is a quantity. `most_samples` is a public bound on the training samples of one client: arrays
    are padded to it, and a schedule may follow it, because it does not depend on who takes part.
    `inputs` and `targets` are NumPy names of types, and `name` says which population it is.
    """

    num_clients: int
    shape: tuple[int, ...]
    num_classes: int | None
    most_samples: int
    target_shape: tuple[int, ...] = ()
    inputs: str = "float32"
    targets: str = "int32"
    name: str = "federation"

    def __post_init__(self) -> None:
        check.count(_OWNER, num_clients=self.num_clients, most_samples=self.most_samples)
        for name in ("shape", "target_shape"):
            sizes = tuple(int(size) for size in getattr(self, name))
            check.require(all(size > 0 for size in sizes), _OWNER, name, "of positive sizes", sizes)
            object.__setattr__(self, name, sizes)
        if self.num_classes is not None:
            check.count(_OWNER, least=2, num_classes=self.num_classes)

    @classmethod
    def of(cls, federation: Federation) -> "Facts":
        """The facts of a federation that is at hand, for a simulation."""
        train = federation.train
        return cls(
            num_clients=federation.num_clients,
            shape=federation.shape,
            num_classes=federation.num_classes,
            most_samples=train.largest,
            target_shape=tuple(train.y.shape[1:]),
            inputs=train.x.dtype.name,
            targets=train.y.dtype.name,
            name=federation.name,
        )

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Facts":
        """The facts that `as_json` wrote."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in facts:
            check.choice(_OWNER, "name", name, known)
        return cls(**facts)

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON values."""
        return dataclasses.asdict(self)

    def client_data(self, x: np.ndarray, y: np.ndarray) -> ClientData:
        """One client's samples, padded to `most_samples` by repeating the last of them."""
        size, most = len(x), self.most_samples
        if not 1 <= size <= most:
            raise ValueError(
                f"{_OWNER}: a client must have between 1 and {most} training samples, got {size}."
            )
        for name, values, shape in (("x", x, self.shape), ("y", y, self.target_shape)):
            rule = f"of shape {(size, *shape)}"
            check.require(values.shape == (size, *shape), _OWNER, name, rule, values.shape)
        place = np.minimum(np.arange(most), size - 1)
        return ClientData(
            x=np.asarray(x, self.inputs)[place],
            y=np.asarray(y, self.targets)[place],
            start=np.zeros((), np.int32),
            size=np.asarray(size, np.int32),
            rows=np.arange(most, dtype=np.int32),
        )
