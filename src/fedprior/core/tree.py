"""Pytree <-> flat vector, and the tree operations that several layers use.

JAX, which traverses the trees, is imported on use; leaves may be NumPy or JAX arrays.
"""

from collections.abc import Callable
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Array, PyTree


def flatten(tree: PyTree) -> Array:
    """Concatenate the leaves in tree order, each in row-major order, into one vector."""
    import jax
    import jax.numpy as jnp

    leaves = jax.tree.leaves(tree)
    if not leaves:
        return jnp.zeros(0)
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])


def unflatten(vector: Array, like: PyTree) -> PyTree:
    """Invert `flatten`, with the structure, shapes and dtypes of `like`."""
    import jax

    leaves, structure = jax.tree.flatten(like)
    parts, first = [], 0
    for leaf in leaves:
        parts.append(vector[first : first + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        first += leaf.size
    return jax.tree.unflatten(structure, parts)


def combine(function: Callable[..., Any], *trees: PyTree) -> PyTree:
    """Apply `function` leaf by leaf."""
    import jax

    return jax.tree.map(function, *trees)


def where(condition: Array, first: PyTree, second: PyTree) -> PyTree:
    """Select `first` if the scalar `condition` is true, else `second`, leaf by leaf."""
    import jax.numpy as jnp

    return combine(lambda a, b: jnp.where(condition, a, b), first, second)


def squared_norm(tree: PyTree) -> Array:
    """Return the sum of the squares of all entries."""
    import jax
    import jax.numpy as jnp

    return sum((jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def absolute_norm(tree: PyTree) -> Array:
    """Return the sum of the absolute values of all entries, with gradient 0 at 0."""
    import jax
    import jax.numpy as jnp

    # The derivative of jnp.abs at 0, where every client starts, is 1.
    parts = (jnp.sum(leaf * jnp.sign(leaf)) for leaf in jax.tree.leaves(tree))
    return sum(parts, start=jnp.zeros(()))


def is_finite(tree: PyTree) -> Array:
    """Return whether every floating-point entry is finite."""
    import jax
    import jax.numpy as jnp

    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.all(jnp.isfinite(flatten(leaves)))  # one pass over one vector


def size(tree: PyTree) -> int:
    """Return the total number of entries of all leaves."""
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def nbytes(tree: PyTree) -> int:
    """Return the total number of bytes of all leaves."""
    import jax

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def names(tree: PyTree) -> dict[str, Any]:
    """Return the leaves by path (`a/b/0`), the names under which a tree is saved.

    >>> sorted(names({"gamma": {"psi": 4.0}, "round": 0}))
    ['gamma/psi', 'round']
    """
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    check.expect(len(named) == len(leaves), "tree", "two leaves have one name. Use keys without /.")
    return named
