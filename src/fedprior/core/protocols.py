"""What a population, a model, a channel, a cohort and a client's data have to offer."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

from fedprior.core.algorithm import Array, Key, PyTree

Gamma = dict[str, PyTree]  # the population's parameters, by block
Predict = Callable[[PyTree, Array], Array]  # (parameters, batch of inputs) -> batch of outputs


class Model(Protocol):
    """data_i ~ p(. | theta_i): parameters, outputs for a batch, and -log p of each sample.

    Outputs are logits of classes, (samples, classes), unless the model has an attribute
    `regression` that is True: then they are predictions of a quantity, (samples,).
    Laws: `loss` and `score` return one value a sample; `apply` treats the samples of a batch
    independently of each other; `init` depends on its key alone.
    """

    @property
    def init(self) -> Callable[[Key], PyTree]: ...
    @property
    def apply(self) -> Predict: ...
    def loss(self, outputs: Array, y: Array, /) -> Array: ...
    def score(self, outputs: Array, y: Array, /) -> Array: ...


class Population(Protocol):
    """theta_i ~ P(gamma), gamma = a dict of named blocks.

    A population subclasses this and gives at least its `penalty`; the rest has the default of a
    full prior on the parameters, learned through its block `mean`, which looks like a theta. One
    without a `mean` (a shared body) gives `blocks`, `start`, `center` and `realize` as well.

    - `personal`: whether a client has parameters w of its own (a point mass has none);
    - `per_sample`: whether the penalty is already a mean over samples (function-space priors) and
      so stands beside the mean loss as it is; else it is divided by the client's size;
    - `blocks`: the blocks of gamma that clients learn, in the order in which they are updated.

    Laws: `realize(gamma, center(gamma))` looks like a theta, and is gamma's `mean` where there is
    one; of `start(parameters)` it is the parameters, up to a jitter between components; `project`
    is idempotent and leaves `start(...)` alone; the penalty ignores samples whose mask is 0.
    """

    @property
    def personal(self) -> bool:
        return True

    @property
    def per_sample(self) -> bool:
        return False

    @property
    def blocks(self) -> tuple[str, ...]:
        return ("mean",)

    def start(self, parameters: PyTree) -> Gamma:
        """Gamma before the first round."""
        return {"mean": parameters}

    def center(self, gamma: Gamma) -> PyTree:
        """Where a client's own w begins."""
        return gamma["mean"]

    def realize(self, gamma: Gamma, w: PyTree) -> PyTree:
        """The client's theta."""
        return w

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        """-log p(w | gamma), normalizer included."""
        ...

    def project(self, gamma: Gamma) -> Gamma:
        """A block that left its range (a floored scale) put back."""
        return gamma


class PriorParts(NamedTuple):
    """A prior as a mixture of independent normals, one a part, along a leading axis.

    Part l has log probability `log_share[l]` and, for coordinate j of theta, the law
    N(center[l, j], 1 / precision[l, j]); `center` and `precision` are trees like theta. Where a law
    only resembles a normal near the client's last posterior, `precision` draws w to the center and
    `certainty` is what the prior adds to the inverse of the spread; for a normal they are one.
    """

    log_share: Array
    center: PyTree
    precision: PyTree
    certainty: PyTree


class ClientPosterior(NamedTuple):
    """What a client knows of its theta: N(w[l], spread[l]) with probability share[l].

    `w` and `spread`, the coordinates' variances, are trees like theta with a leading axis of parts.
    """

    share: Array
    w: PyTree
    spread: PyTree


@runtime_checkable
class Maximizable(Population, Protocol):
    """A population whose gamma, its scales included, has an EM step.

    A client's prior is a mixture of `num_parts` normals, exactly or near its last posterior.
    Statistics are increments: their mean over clients is zero where gamma is a fixed point, which
    keeps messages short for a clip, and gamma has moments of its own, so that a rate below 1 mixes
    the cohort's moments with those (stepwise EM).

    Laws: `maximize` at rate 1 with the mean over all clients never lowers the expected
    log density of their thetas; for any finite average and rate in (0, 1] it returns a gamma that
    `project` leaves alone (noise may have been added: scales stay above their floor, shares
    positive).
    """

    @property
    def num_parts(self) -> int:
        return 1

    def prior(self, gamma: Gamma) -> ClientPosterior:
        """What a client without data knows."""
        ...

    def parts(self, gamma: Gamma, posterior: ClientPosterior) -> PriorParts:
        """The client's prior, as normals, given what it knew last."""
        ...

    def statistics(self, gamma: Gamma, posterior: ClientPosterior) -> dict[str, PyTree]:
        """What a client's posterior adds to the next gamma."""
        ...

    def maximize(self, gamma: Gamma, average: dict[str, PyTree], rate: Array) -> Gamma:
        """The next gamma from the clients' mean statistics."""
        ...


class Channel(Protocol):
    """What may leave a client: `encode` runs at the client, `decode` where trust ends.

    A channel subclasses this and gives `encode`; the rest defaults to a clear channel whose sum
    needs no decoding. Both act on flat vectors: `encode` sees one client's message, `decode` the
    sum of what all clients sent.

    - `private`: whether it protects a client; a `PrivateChannel` then says how;
    - `noise`: "simulated" noise comes from keys and can be repeated, "secure" noise comes from the
      operating system, and only that is valid for release;
    - `weighted`: whether a message's weight, its last coordinate, passes through.

    Laws: an absent client adds exactly zero after `encode`; a private channel never sees a weight.
    """

    @property
    def private(self) -> bool:
        return False

    @property
    def noise(self) -> Literal["simulated", "secure"]:
        return "simulated"

    @property
    def weighted(self) -> bool:
        return True

    def encode(self, message: Array, key: Key, /) -> Array: ...

    def add(self, rows: Array, /) -> Array:
        """The sum of uploads, one per row; sums of parts may be added to each other."""
        return rows.__array_namespace__().sum(rows, axis=0)

    def decode(self, total: Array, key: Key, /) -> Array:
        return total

    def longest(self, dimension: int, /) -> float | None:
        """The largest l2 norm of an honest upload, rounding included; None without a bound."""
        return None


@runtime_checkable
class PrivateChannel(Channel, Protocol):
    """A channel whose noise protects a client, with what one round of it costs.

    `view` names those whom the noise protects from: `central` those who see the noised sums,
    `local` those who see single uploads.
    """

    @property
    def private(self) -> bool:
        return True

    @property
    def view(self) -> Literal["central", "local"]: ...

    def event(self, dimension: int, /) -> Any:
        """The privacy event of one round for messages of `dimension`, before any sampling."""
        ...


def is_private(channel: Channel) -> TypeGuard[PrivateChannel]:
    """Whether the channel protects a client, and so has a `view` and an `event`."""
    return channel.private


class Cohort(Protocol):
    """Who takes part in a round; the object that draws is the one that is accounted for.

    `draw(seed, round, num_clients)` returns the distinct ids of one round's clients, at most
    `capacity(num_clients)` of them, and depends on its arguments alone. `amplify` gives the event
    of one round of a central mechanism under this sampler. `amplifies` says that the claim holds
    for algorithms without memory only.
    """

    @property
    def amplifies(self) -> bool:
        return False

    def expected_size(self, num_clients: int, /) -> float: ...
    def capacity(self, num_clients: int, /) -> int: ...
    def draw(self, seed: int, round: int, num_clients: int, /) -> Any: ...
    def amplify(self, event: Any, num_clients: int, /) -> Any: ...
