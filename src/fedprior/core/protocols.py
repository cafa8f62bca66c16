"""What a population, a model, a channel, a cohort and a client's data have to offer."""

from collections.abc import Callable
from typing import Any, Protocol

from fedprior.core.algorithm import Array, Key, PyTree

Gamma = dict[str, PyTree]  # the population's parameters, by block
Predict = Callable[[PyTree, Array], Array]  # (parameters, batch of inputs) -> batch of outputs


class Model(Protocol):
    """data_i ~ p(. | theta_i): parameters, outputs for a batch, and -log p of each sample.

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
    """theta_i ~ P(gamma), gamma = a dict of named blocks; the block `mean` looks like a theta.

    A population subclasses this and gives at least its `penalty`; the rest has the default of a
    full prior on the parameters, learned through its mean.

    - `personal`: whether a client has parameters w of its own (a point mass has none);
    - `per_sample`: whether the penalty is already a mean over samples (function-space priors) and
      so stands beside the mean loss as it is; else it is divided by the client's size;
    - `blocks`: the blocks of gamma that clients learn, in the order in which they are updated.

    Laws: `realize(gamma, center(gamma))` is gamma's mean; `project` is idempotent and leaves
    `start(...)` alone; the penalty ignores samples whose mask is 0.
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


class Channel(Protocol):
    """What may leave the client: `encode` at the client, `decode` where trust ends.

    Both act on flat vectors; `encode` sees one client's message, `decode` the sum of all of them.
    Laws: an absent client adds exactly zero after `encode`; `private` channels never see a weight.
    A private channel also has `view`, whose eyes its noise holds against (`central`: those who see
    the noised sums; `local`: those who see the messages), and `event(dimension)`, what one round of
    it costs before any sampling.
    """

    @property
    def private(self) -> bool: ...
    def encode(self, message: Array, key: Key) -> Array: ...
    def decode(self, total: Array, key: Key) -> Array: ...


class Cohort(Protocol):
    """Who takes part in a round; the object that draws is the one that is accounted for.

    `draw(seed, round, num_clients)` returns the distinct ids of one round's clients, at most
    `capacity(num_clients)` of them, and depends on its arguments alone. `amplify` gives the event
    of one round of a central mechanism under this sampler.
    """

    def expected_size(self, num_clients: int) -> float: ...
    def capacity(self, num_clients: int) -> int: ...
    def draw(self, seed: int, round: int, num_clients: int) -> Any: ...
    def amplify(self, event: Any, num_clients: int) -> Any: ...
