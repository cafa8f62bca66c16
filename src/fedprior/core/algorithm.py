"""The Algorithm: pure functions, cut where the client's trust ends.

    theta_i ~ P(gamma)        population: the prior that clients share
    data_i  ~ p(. | theta_i)  model: the client's own likelihood
    message = q(statistic_i)  channel: what may leave the client, and at what privacy cost
    gamma  <- update(total)   server: sees only what left the channel

Laws (tests/laws runs every algorithm through each of them):

- Messages add: `total` is the plain sum of the messages; an absent client is exactly zero.
- Weights are coordinates of the message: they are clipped and noised with the rest. Under a private
  channel the weight is 1, is not sent, and the engine puts `cohort.expected_size` in its place.
- Draws are keyed by (seed, round, client, purpose), never by call order.
- State is data: pytrees of arrays.
- `local` and `personalize` read the client's own data only, and padding changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

PyTree = Any
Array = Any  # a NumPy or a JAX array
Key = Any  # a JAX random key
State = PyTree  # what the server holds; public to every client
Memory = PyTree  # what one client keeps to itself between rounds
Theta = PyTree  # one client's own parameters; never sent


class Message(NamedTuple):
    """What one client adds to the round: `weight` * statistic, and `weight` beside it."""

    value: PyTree
    weight: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm:
    """A method of personalized learning or estimation as pure functions.

    Server: `init(key) -> state`, `update(state, total) -> state`.
    Client: `enroll(state, client, key) -> memory`, what it keeps to itself;
    `local(state, memory, data, key) -> message, memory`;
    `personalize(state, memory, data, key) -> theta`, never sent.

    `enroll` runs at a client's first participation, or when it is personalized without one.
    `predict(theta, x)` gives the outputs of a personal model, `loss(outputs, y)` and
    `score(outputs, y)` one value a sample (a higher score is better).
    `unit_weight` says that every message has weight 1, as a private channel needs; `memoryless`
    that a message depends on the state, the client and its data alone, never on the rounds in which
    the client took part, as fixed-size sampling needs to hide anybody; `bears_noise` that `update`
    stays sound with noise on the total, as a private channel needs; `num_clients` how many clients
    there must be, where the method knows them one by one. Two algorithms are equal only if they are
    the same object: compiled programs are kept by it.
    """

    name: str
    init: Callable[[Key], State]
    enroll: Callable[[State, Array, Key], Memory]
    local: Callable[[State, Memory, Any, Key], tuple[Message, Memory]]
    update: Callable[[State, Message], State]
    personalize: Callable[[State, Memory, Any, Key], Theta]
    predict: Callable[[Theta, Array], Array]
    loss: Callable[[Array, Array], Array]
    score: Callable[[Array, Array], Array]
    pools: Literal["sum", "gather"] = "sum"
    unit_weight: bool = True
    memoryless: bool = False
    bears_noise: bool = True
    num_clients: int | None = None

    @classmethod
    def of(cls, functions: Any, model: Any, *, name: str, **more: Any) -> "Algorithm":
        """`functions` has init, enroll, local, update and personalize; `model` the rest."""
        parts = ("init", "enroll", "local", "update", "personalize")
        given = {part: getattr(functions, part) for part in parts}
        shown = {"predict": model.apply, "loss": model.loss, "score": model.score}
        return cls(name=name, **{**given, **shown, **more})
