"""Pytree <-> flat vector, and the few tree operations that the layers share.

JAX is imported on use: a pytree is walked by JAX, its arrays are whatever they are.
"""

from collections.abc import Callable
from typing import Any

from fedprior.core.algorithm import Array, PyTree


def flatten(tree: PyTree) -> Array:
    """One vector: the leaves in tree order, each in row-major order."""
    import jax
    import jax.numpy as jnp

    leaves = jax.tree.leaves(tree)
    if not leaves:
        return jnp.zeros(0)
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])


def unflatten(vector: Array, like: PyTree) -> PyTree:
    """The tree with the structure, shapes and dtypes of `like` whose `flatten` is `vector`."""
    import jax

    leaves, structure = jax.tree.flatten(like)
    parts, first = [], 0
    for leaf in leaves:
        parts.append(vector[first : first + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        first += leaf.size
    return jax.tree.unflatten(structure, parts)


def combine(function: Callable[..., Any], *trees: PyTree) -> PyTree:
    """`function` leaf by leaf."""
    import jax

    return jax.tree.map(function, *trees)


def where(condition: Array, first: PyTree, second: PyTree) -> PyTree:
    """`first` where `condition` (a scalar) holds, else `second`, leaf by leaf."""
    import jax.numpy as jnp

    return combine(lambda a, b: jnp.where(condition, a, b), first, second)


def squared_norm(tree: PyTree) -> Array:
    """Sum of the squares of all entries."""
    import jax
    import jax.numpy as jnp

    return sum((jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def absolute_norm(tree: PyTree) -> Array:
    """Sum of the absolute values of all entries; its slope at 0 is 0."""
    import jax
    import jax.numpy as jnp

    # JAX's own derivative of abs is 1 at 0, where every client starts.
    parts = (jnp.sum(leaf * jnp.sign(leaf)) for leaf in jax.tree.leaves(tree))
    return sum(parts, start=jnp.zeros(()))


def is_finite(tree: PyTree) -> Array:
    """Whether every floating entry is finite."""
    import jax
    import jax.numpy as jnp

    checks = [
        jnp.all(jnp.isfinite(leaf))
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    return jnp.all(jnp.stack(checks)) if checks else jnp.asarray(True)


def size(tree: PyTree) -> int:
    """Number of entries of all leaves."""
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def nbytes(tree: PyTree) -> int:
    """Bytes of all leaves."""
    import jax

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def names(tree: PyTree) -> dict[str, Any]:
    """Leaves by their path, `a/b/0`: the names under which a tree is saved.

    >>> sorted(names({"gamma": {"psi": 4.0}, "round": 0}))
    ['gamma/psi', 'round']
    """
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
