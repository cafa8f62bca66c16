"""Public facts of a population: what both sides may know without anybody's data."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.federation import ClientData, Federation, network_input, stored_input

_OWNER = "Facts"
_WIDTHS = {"float": (16, 32, 64), "int": (8, 16, 32, 64), "uint": (8, 16, 32, 64)}
_TYPES = [f"{kind}{width}" for kind, widths in _WIDTHS.items() for width in widths] + ["bool"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """How many clients there are and what their samples look like.

    `shape` is the shape of one input and `num_classes` the number of classes, None where the target
    is a quantity. `most_samples` is a public bound on the training samples of one client, to which
    arrays are padded; None where nothing is known, which only private runs allow (a method that
    reads all samples at once then refuses).
    `inputs` and `targets` are NumPy names of types, and `name` says which population it is.
    """

    num_clients: int
    shape: tuple[int, ...]
    num_classes: int | None
    most_samples: int | None
    target_shape: tuple[int, ...] = ()
    inputs: str = "float32"
    targets: str = "int32"
    name: str = "federation"

    def __post_init__(self) -> None:
        check.count(_OWNER, num_clients=self.num_clients)
        if self.most_samples is not None:
            check.count(_OWNER, most_samples=self.most_samples)
        for name in ("shape", "target_shape"):
            sizes = getattr(self, name)
            good = isinstance(sizes, list | tuple)
            check.require(good, _OWNER, name, "a sequence of sizes", sizes)
            check.count(_OWNER, **{f"{name}[{place}]": size for place, size in enumerate(sizes)})
            object.__setattr__(self, name, tuple(int(size) for size in sizes))
        for name in ("inputs", "targets"):
            check.choice(_OWNER, name, getattr(self, name), _TYPES)
        if self.num_classes is not None:
            check.count(_OWNER, least=2, num_classes=self.num_classes)

    @classmethod
    def of(cls, federation: Federation, *, private: bool = False) -> "Facts":
        """The facts of a federation that is at hand, for a simulation.

        The size of the largest client is a fact in the clear only: in a private run it is the bound
        that the federation states, if it states one. What was fitted to the clients' rows before
        the first round is no public fact, and raises PrivacyError.
        """
        train = federation.train
        if private:
            check_public(federation)
        return cls(
            num_clients=federation.num_clients,
            shape=federation.shape,
            num_classes=federation.num_classes,
            most_samples=federation.most_samples if private else train.largest,
            target_shape=tuple(train.y.shape[1:]),
            inputs=train.x.dtype.name,
            targets=train.y.dtype.name,
            name=federation.name,
        )

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Facts":
        """The facts that `as_json` wrote; raises ValueError or TypeError for anything else."""
        check.expect(isinstance(facts, dict), _OWNER, "they must be a JSON object.")
        fields = dataclasses.fields(cls)
        for name in facts:
            check.choice(_OWNER, "name", name, [field.name for field in fields])
        missing = [
            field.name
            for field in fields
            if field.name not in facts and field.default is dataclasses.MISSING
        ]
        check.expect(not missing, _OWNER, f"{', '.join(missing)} must be given.")
        return cls(**facts)

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON values."""
        return dataclasses.asdict(self)

    def client_data(self, x: np.ndarray, y: np.ndarray) -> ClientData:
        """One client's samples, padded to `most_samples` by repeating the last of them.

        Without such a bound nothing is padded.
        """
        size = len(x)
        most = max(1, size) if self.most_samples is None else self.most_samples
        if not 1 <= size <= most:
            raise ValueError(
                f"{_OWNER}: a client must have between 1 and {most} training samples, got {size}."
            )
        for name, values, shape in (("x", x, self.shape), ("y", y, self.target_shape)):
            rule = f"of shape {(size, *shape)}"
            check.require(values.shape == (size, *shape), _OWNER, name, rule, values.shape)
        if self.num_classes is not None:
            known = np.isin(y, np.arange(self.num_classes))
            rule = f"whole numbers from 0 to {self.num_classes - 1}"
            check.require(bool(known.all()), _OWNER, "y", rule, np.asarray(y)[~known][:1].tolist())
        if self.inputs == "uint8":
            rule = "pixels of type uint8, as everybody's are"
            check.require(x.dtype == np.uint8, _OWNER, "x", rule, str(x.dtype))
        elif x.dtype == np.uint8:
            x = network_input(stored_input(x))
        place = np.minimum(np.arange(most), size - 1)
        return ClientData(
            x=np.asarray(x, self.inputs)[place],
            y=np.asarray(y, self.targets)[place],
            start=np.zeros((), np.int32),
            size=np.asarray(size, np.int32),
            rows=np.arange(most, dtype=np.int32),
        )


def check_public(federation: Federation) -> None:
    """Raise PrivacyError unless the federation was read without learning from its clients' rows."""
    encoder = federation.encoder
    fitted = federation.fitted
    if not fitted and encoder is not None and encoder.rows != "public":
        fitted = ("the encoder",)
    if fitted:
        raise check.PrivacyError(
            f"{federation.name}: a private run must begin with what is public, got what was fitted "
            f"to the clients' own rows, which no noise covers: {'; '.join(fitted)}."
        )
