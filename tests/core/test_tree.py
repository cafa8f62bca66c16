"""Pytree <-> flat vector."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedprior.core import tree

leaves = st.one_of(
    arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    st.integers(-(2**20), 2**20).map(lambda value: np.asarray(value, np.int32)),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=40)
@given(trees)
def test_unflatten_undoes_flatten(given_tree):
    vector = tree.flatten(given_tree)
    assert vector.ndim == 1
    assert vector.size == tree.size(given_tree)
    back = tree.unflatten(vector, given_tree)
    assert jax.tree.structure(back) == jax.tree.structure(given_tree)
    for before, after in zip(jax.tree.leaves(given_tree), jax.tree.leaves(back), strict=True):
        assert before.shape == after.shape
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_flatten_is_tree_order_and_row_major():
    given_tree = {"b": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "a": [jnp.array(0.5), jnp.array([9.0])]}
    np.testing.assert_array_equal(tree.flatten(given_tree), [0.5, 9, 1, 2, 3, 4])
    assert tree.flatten({}).shape == (0,)


def test_names_are_paths_and_lead_back():
    given_tree = {"gamma": {"mean": [jnp.ones(2), jnp.zeros(1)], "psi": jnp.ones(())}, "round": 0}
    found = tree.names(given_tree)
    assert list(found) == ["gamma/mean/0", "gamma/mean/1", "gamma/psi", "round"]
    assert found["gamma/mean/1"] is given_tree["gamma"]["mean"][1]
    assert tree.names({}) == {}


def test_norms_and_where():
    given_tree = {"a": jnp.array([3.0, -4.0]), "b": jnp.array([[-1.0]])}
    assert float(tree.squared_norm(given_tree)) == 26
    assert float(tree.absolute_norm(given_tree)) == 8
    assert float(tree.squared_norm({})) == 0
    other = tree.combine(lambda leaf: 2 * leaf, given_tree)
    np.testing.assert_array_equal(tree.where(jnp.array(True), given_tree, other)["a"], [3, -4])
    np.testing.assert_array_equal(tree.where(jnp.array(False), given_tree, other)["b"], [[-2]])


def test_is_finite_reads_floats_only():
    assert bool(tree.is_finite({"step": jnp.array(2**30), "w": jnp.ones(2)}))
    assert bool(tree.is_finite({}))
    for bad in (np.nan, np.inf, -np.inf):
        assert not bool(tree.is_finite({"a": jnp.ones(3), "b": jnp.array([0.0, bad])}))


def test_the_absolute_norm_is_flat_at_zero():
    slope = jax.grad(tree.absolute_norm)(jnp.array([0.0, -2.0, 3.0]))
    np.testing.assert_array_equal(slope, [0.0, -1.0, 1.0])


def test_names_that_coincide_are_refused():
    """One of the two leaves would be lost in a file."""
    with pytest.raises(ValueError, match="two leaves have one name"):
        tree.names({"a/b": np.zeros(1), "a": {"b": np.ones(1)}})
