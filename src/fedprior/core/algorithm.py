"""The Algorithm: pure functions, divided at the client's trust boundary.

    theta_i ~ P(gamma)        population: the prior that clients share
    data_i  ~ p(. | theta_i)  model: the likelihood of a client's data
    message = q(statistic_i)  channel: what may leave the client, and at what privacy cost
    gamma  <- update(total)   server: sees only the output of the channel

Laws (tests/laws checks each of them for every algorithm):

- Messages add: `total` is the plain sum of the messages; an absent client contributes exactly zero.
- Weights are coordinates of the message: they are clipped and noised with the rest. Under a private
  channel the weight is 1 and is not sent; the engine uses `cohort.expected_size` instead.
- Draws are keyed by (seed, round, client, purpose), never by call order.
- State is data: pytrees of arrays.
- `local` and `personalize` read only the client's own data, and padding changes nothing.
- A message depends on public facts, the state and its own client's data. Under a private channel
  `data.rows` is as long as a public bound, or None, and the sizes of other clients have no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NewType

if TYPE_CHECKING:
    PyTree = Any
    Array = Any  # a NumPy or a JAX array
    Key = Any  # a JAX random key
    State = PyTree  # held by the server; public to every client
    Memory = PyTree  # kept by one client between rounds; never sent
    Theta = PyTree  # one client's personal parameters; never sent
else:  # names of their own, so that `help` and the reference show them in signatures
    PyTree, Array, Key = (NewType(name, object) for name in ("PyTree", "Array", "Key"))
    State, Memory, Theta = (NewType(name, object) for name in ("State", "Memory", "Theta"))


class Message(NamedTuple):
    """The contribution of one client to a round: `weight` * statistic, and `weight` itself."""

    value: PyTree
    weight: Array


@dataclass(frozen=True)
class Moved:
    """The part of gamma that a server moves by the mean of its clients' increments.

    `blocks` are the names of its parts, or None for all of gamma: networks and bases that clients
    train by gradient steps, not scales, shares or statistics. `project` brings gamma back into its
    range once they are moved.
    """

    blocks: tuple[str, ...] | None = None
    project: Callable[[PyTree], PyTree] = lambda gamma: gamma

    def of(self, gamma: PyTree) -> PyTree:
        """Return these parts of gamma."""
        return gamma if self.blocks is None else {name: gamma[name] for name in self.blocks}

    def to(self, gamma: PyTree, parts: PyTree) -> PyTree:
        """Return gamma with other values of these parts."""
        return self.project(parts if self.blocks is None else {**gamma, **parts})


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm:
    """A method of personalized learning or estimation as a set of pure functions.

    Server: `init(key) -> state`, `update(state, total) -> state`.
    Client: `enroll(state, client, key) -> memory`, which stays on the client;
    `local(state, memory, data, key) -> message, memory`;
    `personalize(state, memory, data, key) -> theta`, never sent.

    `enroll` runs when a client first takes part, or when it is personalized before that.
    `predict(theta, x)` returns the outputs of a personal model; `loss(outputs, y)` and
    `score(outputs, y)` return one value per sample (a higher score is better).

    `unit_weight` states that every message has weight 1, as private channels require. `memoryless`
    states that a message depends only on the state, the client and its data, not on the rounds in
    which the client took part, which amplification by fixed-size sampling requires. `bears_noise`
    states that `update` is still valid if the total is noisy, as private channels require.
    `bound` is the largest l2 norm of a message, for algorithms that clip and scale by themselves.
    `discounts_noise` states that clients use a noisy state only as far as it stands out from noise.
    `num_clients` is the required number of clients, for methods that keep state for each client.
    `moved` is what a server may add momentum to and average over rounds; None if there is nothing.
    `model` is the clients' network, if there is one: a run checks that it fits the clients.
    Algorithms compare by identity, because compiled programs are cached per object.
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
    bound: float | None = None
    discounts_noise: bool = False
    num_clients: int | None = None
    moved: Moved | None = None
    model: Any = None

    @classmethod
    def of(cls, functions: Any, model: Any, *, name: str, **more: Any) -> "Algorithm":
        """Take init, enroll, local, update and personalize from `functions`, the rest from `model`.

        `more` overrides any of them and sets the flags.
        """
        names = ("init", "enroll", "local", "update", "personalize")
        rounds = {name: getattr(functions, name) for name in names}
        outputs = {"predict": model.apply, "loss": model.loss, "score": model.score}
        return cls(name=name, **{"model": model, **rounds, **outputs, **more})
