"""Protocols for populations, models, channels and cohorts."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

from fedprior.core import check
from fedprior.core.algorithm import Array, Key, PyTree

Gamma = dict[str, PyTree]  # the population's parameters, by block
View = Literal["central", "local", "masked"]  # what an adversary sees of a private channel
Predict = Callable[[PyTree, Array], Array]  # (parameters, batch of inputs) -> batch of outputs


class Model(Protocol):
    """data_i ~ p(. | theta_i): parameters, outputs for a batch, and -log p of each sample.

    Outputs are logits of classes, (samples, classes), unless the model has an attribute
    `regression` that is True: then they are predictions of a quantity, (samples,).
    Laws: `loss` and `score` return one value per sample; `apply` treats the samples of a batch
    independently of each other; `init` depends only on its key.
    """

    @property
    def init(self) -> Callable[[Key], PyTree]: ...
    @property
    def apply(self) -> Predict: ...
    def loss(self, outputs: Array, y: Array, /) -> Array: ...
    def score(self, outputs: Array, y: Array, /) -> Array: ...


class Population(Protocol):
    """theta_i ~ P(gamma), gamma = a dict of named blocks.

    A subclass implements at least `penalty`. The defaults describe a full prior on the parameters
    that is learned through its block `mean`, which has the structure of theta. A population
    without a `mean` (a shared body) also implements `blocks`, `start`, `center` and `realize`.

    - `personal`: whether a client has personal parameters w (a point mass has none);
    - `per_sample`: whether the penalty is already a mean over samples (function-space priors) and
      is added to the mean loss unchanged; otherwise it is divided by the client's size;
    - `blocks`: the blocks of gamma that clients learn, in the order in which they are updated.

    Laws: `realize(gamma, center(gamma))` has the structure of theta and equals gamma's `mean` if
    there is one; for `start(parameters)` it equals the parameters, up to jitter between components;
    `project` is idempotent and does not change `start(...)`; the penalty ignores samples whose mask
    is 0.
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
        """Return gamma before the first round."""
        return {"mean": parameters}

    def center(self, gamma: Gamma) -> PyTree:
        """Return the initial value of a client's w."""
        return gamma["mean"]

    def realize(self, gamma: Gamma, w: PyTree) -> PyTree:
        """Return the client's theta."""
        return w

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        """Return -log p(w | gamma), including the normalizer."""
        ...

    def project(self, gamma: Gamma) -> Gamma:
        """Project blocks back into their range (a scale onto its floor)."""
        return gamma


class PriorParts(NamedTuple):
    """A prior as a mixture of independent normals, one per part along a leading axis.

    Part l has log probability `log_share[l]` and, for coordinate j of theta, the distribution
    N(center[l, j], 1 / precision[l, j]); `center` and `precision` are trees like theta. For a prior
    that is only approximately normal near the client's last posterior, `precision` pulls w toward
    the center and `certainty` is the prior's contribution to the inverse of the spread; for a
    normal prior the two are equal.
    """

    log_share: Array
    center: PyTree
    precision: PyTree
    certainty: PyTree


class ClientPosterior(NamedTuple):
    """The posterior of a client's theta: N(w[l], spread[l]) with probability share[l].

    `w` and `spread` (the variances of the coordinates) are trees like theta with a leading axis of
    parts.
    """

    share: Array
    w: PyTree
    spread: PyTree


@runtime_checkable
class Maximizable(Population, Protocol):
    """A population whose gamma, including its scales, has an EM step.

    A client's prior is a mixture of `num_parts` normals, exactly or approximately near its last
    posterior. Statistics are increments: their mean over clients is zero if gamma is a fixed point,
    which keeps the norm of messages small for a clip. Gamma includes its own moments, so that a
    rate below 1 mixes the moments of the cohort with them (stepwise EM).

    Laws: `maximize` at rate 1 with the mean over all clients never lowers the expected
    log density of their thetas; for any finite average and any rate in (0, 1] it returns a gamma
    that `project` does not change (the average may be noisy: scales stay above their floor, shares
    positive).
    """

    @property
    def num_parts(self) -> int:
        return 1

    def prior(self, gamma: Gamma) -> ClientPosterior:
        """Return the posterior of a client without data."""
        ...

    def parts(self, gamma: Gamma, posterior: ClientPosterior) -> PriorParts:
        """Return the client's prior as normals, given its last posterior."""
        ...

    def statistics(self, gamma: Gamma, posterior: ClientPosterior) -> dict[str, PyTree]:
        """Return the contribution of a client's posterior to the next gamma."""
        ...

    def maximize(self, gamma: Gamma, average: dict[str, PyTree], rate: Array) -> Gamma:
        """Return the next gamma, given the mean of the clients' statistics."""
        ...


class Channel(Protocol):
    """What may leave a client: `encode` runs on the client, `decode` at the trust boundary.

    A subclass implements `encode`; the defaults describe a channel without protection whose sum
    needs no decoding. Both act on flat vectors: `encode` takes one client's message, `decode` the
    sum of all clients' uploads.

    - `private`: whether it protects a client, see `PrivateChannel`;
    - `noise`: "simulated" noise is keyed and reproducible; "secure" noise comes from the operating
      system, and only secure noise is valid for release;
    - `weighted`: whether a message's weight, its last coordinate, passes through.

    A channel whose rounds depend on each other keeps a memory at the trust boundary. It is secret,
    like the sum before the noise: it is saved with the run and never exported.

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
        """Sum uploads, one per row; partial sums may be added to each other."""
        return rows.__array_namespace__().sum(rows, axis=0)

    def decode(self, total: Array, key: Key, /) -> Array:
        return total

    def begin(self, dimension: int, /) -> PyTree:
        """Return the memory before the first round: a tree of arrays, without any by default."""
        return ()

    def release(self, total: Array, key: Key, memory: PyTree, /) -> tuple[Array, PyTree]:
        """Decode the sum of the next round; also return the memory after it."""
        return self.decode(total, key), memory

    def longest(self, dimension: int, /) -> float | None:
        """Return the largest l2 norm of an honest upload, including rounding; None if unbounded."""
        return None


class PrivateChannel(Channel, Protocol):
    """A channel whose noise protects a client, and the privacy cost of one round.

    `view` is what the adversary sees: the noisy sums (`central`), single uploads (`local`), or, at
    the server, sums to which clients have added their noise under masks (`masked`).
    `rule` says how often clients may take part (`privacy.participation.Participation`), for
    channels that charge a whole run at once: its number of rounds is fixed.
    """

    @property
    def private(self) -> bool:
        return True

    @property
    def view(self) -> View: ...

    def event(self, dimension: int, /) -> Any:
        """Return the privacy event of one round for messages of `dimension`, before sampling."""
        ...

    @property
    def rule(self) -> Any:
        return None

    def charge(
        self, cohort: "Cohort", num_clients: int, dimension: int, /
    ) -> tuple[Any, int | None]:
        """Return the event under `cohort`; and how often a whole run composes it, else None."""
        event = self.event(dimension)
        return (cohort.amplify(event, num_clients) if self.view == "central" else event), None


def is_private(channel: Channel) -> TypeGuard[PrivateChannel]:
    """Return whether the channel protects a client, and therefore has a `view` and an `event`."""
    return channel.private


class Cohort(Protocol):
    """The sampler of each round's clients; the same object draws them and is accounted for.

    `draw(seed, round, num_clients)` returns the distinct ids of one round's clients, at most
    `capacity(num_clients)` of them, and depends only on its arguments. `amplify` returns the event
    of one round of a central mechanism under this sampler. The same clients have their turn every
    `cycle` rounds, and nobody takes part out of turn.
    """

    @property
    def cycle(self) -> int:
        return 1

    def expected_size(self, num_clients: int, /) -> float: ...
    def capacity(self, num_clients: int, /) -> int: ...
    def draw(self, seed: int, round: int, num_clients: int, /) -> Any: ...
    def amplify(self, event: Any, num_clients: int, /) -> Any:
        raise check.PrivacyError(
            f"{type(self).__name__}: a cohort of a private run must state what its sampling costs: "
            "define amplify."
        )
