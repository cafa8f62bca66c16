"""A network in two parts, body and head: one is shared by all clients, the other is personal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict

Head = str | Callable[[str], bool]


@dataclass(frozen=True, kw_only=True)
class SharedBody(Population):
    """theta_i = (body, w_i): the body is gamma's, the head w_i the client's, under a flat prior.

    `head` selects the leaves of the head by their paths ("1/weight", see `core.tree.names`): a
    prefix of the path ("1", "params/Dense_1") or a function of it. None selects the last layer: the
    last leaf in tree order and its siblings. Name the head where keys are sorted otherwise than
    layers follow each other: in Flax, LayerNorm_0 comes after Dense_1, and Dense_10 before Dense_2.

    gamma contains the body, which is learned and sent, and the initial head of every client, which
    is neither. Both have the structure of the parameters, with None in place of the other part.
    `SharedHead` is the other way round.
    """

    head: Head | None = None

    blocks = ("body",)
    own = "head"  # the block that a client's w begins at

    def __post_init__(self) -> None:
        fine = self.head is None or isinstance(self.head, str) or callable(self.head)
        rule, remedy = "the beginning of a path, in quotes, or a function", f'Write "{self.head}".'
        check.require(fine, "SharedBody", "head", rule, self.head, remedy)

    def start(self, parameters: PyTree) -> Gamma:
        chosen = self._chosen(parameters)
        return {
            "body": _kept(parameters, [not own for own in chosen]),
            "head": _kept(parameters, chosen),
        }

    def center(self, gamma: Gamma) -> PyTree:
        return gamma[self.own]

    def realize(self, gamma: Gamma, w: PyTree) -> PyTree:
        import jax

        def present(shared: Any, own: Any) -> Any:
            return own if shared is None else shared

        (shared,) = self.blocks
        return jax.tree.map(present, gamma[shared], w, is_leaf=lambda leaf: leaf is None)

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        return 0.0

    def _chosen(self, parameters: PyTree) -> list[bool]:
        """Whether each leaf belongs to the head; raises unless some do and some do not."""
        paths = list(tree.names(parameters))
        head = self.head
        if head is None:
            # A single layer has no parent path: then every leaf is in the last layer.
            head = paths[-1].rpartition("/")[0]
        if isinstance(head, str):
            chosen = [path == head or path.startswith(f"{head}/") or not head for path in paths]
        else:
            chosen = [bool(head(path)) for path in paths]
        described = "the last layer" if self.head is None else self.head
        remedy = f"Its leaves are {', '.join(paths)}."
        some = any(chosen) and not all(chosen)
        check.require(some, "SharedBody", "head", "a part of the parameters", described, remedy)
        return chosen


@dataclass(frozen=True, kw_only=True)
class SharedHead(SharedBody):
    """theta_i = (w_i, head): the head is gamma's, the body w_i the client's, under a flat prior.

    `head` is selected as in `SharedBody`. gamma contains the head, which is learned and sent, and
    the initial body of every client, which is neither.
    """

    blocks = ("head",)
    own = "body"


def _kept(parameters: PyTree, keep: list[bool]) -> PyTree:
    """The tree with None for the leaves that are not kept."""
    import jax

    leaves, structure = jax.tree.flatten(parameters)
    kept = [leaf if stays else None for leaf, stays in zip(leaves, keep, strict=True)]
    return jax.tree.unflatten(structure, kept)
