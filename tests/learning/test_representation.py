"""A basis or a body of all, with coordinates or a head of each client's own."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import subspace_angles

import fedprior
from fedprior.core import random, tree
from fedprior.learning.representation import head_first

EVERYTHING = fedprior.Batches(steps_per_epoch=1)
MLP = fedprior.mlp((4,), 3, hidden=(5,))
BODY = fedprior.populations.SharedBody()
POPULATIONS = {
    "subspace": fedprior.populations.Subspace(rank=2, learn_mean=False),
    "subspace-normal": fedprior.populations.Subspace(rank=3, scale=0.5, seed=4),
    "subspace-mean": fedprior.populations.Subspace(rank=1),
    "shared-body": fedprior.populations.SharedBody(),
    "shared-body-named": fedprior.populations.SharedBody(head="0/bias"),
    "shared-body-chosen": fedprior.populations.SharedBody(head=lambda path: path.endswith("bias")),
    "shared-head": fedprior.populations.SharedHead(),
}


@pytest.fixture(params=sorted(POPULATIONS))
def population(request):
    return POPULATIONS[request.param]


@cache
def parameters():
    return MLP.init(random.root(0))


def same(first, second, tolerance=0.0):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# The laws of a population


def test_the_center_realizes_where_the_model_starts(population):
    gamma = population.start(parameters())
    same(population.realize(gamma, population.center(gamma)), parameters())


def test_every_learned_block_is_there_and_nothing_else_is_sent(population, federation):
    gamma = population.start(parameters())
    assert set(population.blocks) <= set(gamma)
    algorithm = fedprior.alternating(MLP, population, steps=fedprior.Steps(local_steps=1))
    state = algorithm.init(random.root(0))
    memory = algorithm.enroll(state, jnp.int32(0), random.root(1))
    data = jax.tree.map(jnp.asarray, federation.train.client(0))
    message, _ = jax.eval_shape(algorithm.local, state, memory, data, random.root(2))
    assert set(message.value) == set(population.blocks)


def test_project_is_idempotent_and_leaves_start_alone(population):
    gamma = population.start(parameters())
    same(population.project(gamma), gamma)
    once = population.project(tree.combine(lambda leaf: leaf - 5, gamma))
    same(population.project(once), once)


def test_theta_moves_with_w_and_with_each_learned_block(population):
    gamma = population.start(parameters())
    w = population.center(gamma)
    moved = population.realize(gamma, tree.combine(lambda leaf: leaf + 1, w))
    assert not np.array_equal(tree.flatten(moved), tree.flatten(parameters()))
    w = tree.combine(lambda leaf: leaf + 1, w)
    for block in population.blocks:
        other = {**gamma, block: tree.combine(lambda leaf: leaf + 1, gamma[block])}
        found, before = population.realize(other, w), population.realize(gamma, w)
        assert not np.array_equal(tree.flatten(found), tree.flatten(before))


# Subspace


def test_the_coordinates_have_the_normal_law_or_a_flat_one():
    w = jnp.array([0.3, -1.0, 2.0])
    value = POPULATIONS["subspace-normal"].penalty({}, w, None, None, None)
    np.testing.assert_allclose(value, -stats.norm(0, 0.5).logpdf(w).sum(), rtol=1e-6)
    assert POPULATIONS["subspace"].penalty({}, w, None, None, None) == 0


@pytest.mark.parametrize("distance", [0.0, 0.1, 3.0])
def test_project_is_the_nearest_orthonormal_matrix(distance):
    """U V' of the singular value decomposition; no other orthonormal matrix is nearer."""
    draws = np.random.default_rng(1)
    gamma = fedprior.populations.Subspace(rank=3).start(parameters())
    moved = np.asarray(gamma["basis"]) + distance * draws.normal(size=gamma["basis"].shape)
    left, _, right = np.linalg.svd(moved, full_matrices=False)
    found = fedprior.populations.Subspace(rank=3).project(
        {**gamma, "basis": jnp.asarray(moved, jnp.float32)}
    )
    np.testing.assert_allclose(found["basis"], left @ right, atol=1e-5)


def test_where_w_fits_the_basis_moves_across_itself_and_project_rotates_nothing():
    """At the best w B'G = 0, G the gradient of B; so B'project(B - h G) = 1 - O(h^2)."""
    draws = np.random.default_rng(2)
    x, y = draws.normal(size=(9, 6)), draws.normal(size=9)
    basis = np.linalg.qr(draws.normal(size=(6, 2)))[0]
    w = np.linalg.lstsq(x @ basis, y, rcond=None)[0]
    gradient = np.outer(x.T @ (x @ basis @ w - y), w)
    np.testing.assert_allclose(basis.T @ gradient, 0, atol=1e-12)
    for step in (1e-2, 1e-3):
        moved = {"basis": jnp.asarray(basis - step * gradient, jnp.float32)}
        after = np.asarray(fedprior.populations.Subspace(rank=2).project(moved)["basis"])
        size = step**2 * np.linalg.norm(gradient, 2) ** 2
        np.testing.assert_allclose(basis.T @ after, np.eye(2), atol=size + 1e-6)


NUM_CLIENTS, ROWS, FEATURES, RANK = 40, 8, 15, 2


def in_a_plane(seed=0, noise=0.1):
    """Linear regressions whose coefficients lie in a plane; fewer rows than features each."""
    draws = np.random.default_rng(seed)
    basis = np.linalg.qr(draws.normal(size=(FEATURES, RANK)))[0]
    theta = draws.normal(size=(NUM_CLIENTS, RANK)) @ basis.T
    own = np.repeat(np.arange(NUM_CLIENTS), ROWS)
    x = draws.normal(size=(len(own), FEATURES))
    y = (x * theta[own]).sum(axis=1) + noise * draws.normal(size=len(own))
    shares = {"valid_share": 0.0, "test_share": 0.0}
    clients = fedprior.Federation.from_arrays(x, y, own + 100, regression=True, **shares)
    return clients, basis, theta


def test_a_linear_subspace_is_found_and_beats_separate_fits(play):
    """Built backwards from a plane: the angle to it, and the error against the best possible one.

    With it known, least squares in the plane errs by 0.0042 here; the pseudo-inverse of 8 rows by
    15 features alone by 1.05.
    """
    clients, basis, theta = in_a_plane()
    options = {"theta_rate": 0.2, "gamma_rate": 0.1, "learn_mean": False}
    options["steps"] = fedprior.Steps(local_steps=5, batches=EVERYTHING)
    algorithm = fedprior.learning.shared_subspace(
        fedprior.models.linear(FEATURES), rank=RANK, head_steps=5, **options
    )
    state, memories = play(algorithm, clients, 100)
    population = fedprior.populations.Subspace(rank=RANK)
    found = jax.vmap(population.realize, in_axes=(None, 0))(state["gamma"], memories["w"])
    shared = np.asarray(state["gamma"]["basis"])
    np.testing.assert_allclose(shared.T @ shared, np.eye(RANK), atol=1e-6)
    angle = np.degrees(subspace_angles(shared[1:], basis).max())  # the first row: the intercept's
    assert angle < 3, angle
    errors = ((np.asarray(found["weight"]) - theta) ** 2).sum(axis=1)
    train = [clients.train.client(client) for client in range(NUM_CLIENTS)]
    alone = np.stack([np.linalg.pinv(data.x) @ data.y for data in train])
    assert errors.mean() < 0.05 * ((alone - theta) ** 2).sum(axis=1).mean()
    assert errors.mean() < 0.01


def test_a_newcomer_gets_coordinates_in_the_learned_basis():
    """Enough steps of w alone are least squares in the plane, the basis at rest."""
    clients, basis, _ = in_a_plane()
    algorithm = fedprior.learning.shared_subspace(
        fedprior.models.linear(FEATURES),
        rank=RANK,
        newcomer_steps=200,
        steps=fedprior.Steps(batches=EVERYTHING),
    )
    state = algorithm.init(random.root(0))
    plane = jnp.asarray(np.vstack([np.zeros(RANK), basis]), jnp.float32)
    state = {**state, "gamma": {**state["gamma"], "basis": plane}}
    memory = algorithm.enroll(state, jnp.int32(0), random.root(1))
    data = jax.tree.map(jnp.asarray, clients.train.client(0))
    theta = jax.jit(algorithm.personalize)(state, memory, data, random.root(2))
    w = np.linalg.lstsq(np.asarray(data.x) @ basis, np.asarray(data.y), rcond=None)[0]
    np.testing.assert_allclose(theta["weight"], basis @ w, atol=1e-3)


def test_the_basis_stays_orthonormal_under_noise():
    algorithm = fedprior.learning.shared_subspace(
        fedprior.models.linear(FEATURES), rank=RANK, learn_mean=False
    )
    state = algorithm.init(random.root(0))
    noise = 5 * jax.random.normal(random.root(1), state["gamma"]["basis"].shape)
    after = algorithm.update(state, fedprior.Message({"basis": noise}, jnp.ones(())))
    basis = np.asarray(after["gamma"]["basis"])
    np.testing.assert_allclose(basis.T @ basis, np.eye(RANK), atol=1e-6)
    nobody = fedprior.Message({"basis": jnp.zeros_like(noise)}, jnp.zeros(()))
    same(algorithm.update(after, nobody)["gamma"], after["gamma"])


# SharedBody


def test_the_head_is_the_last_layer_or_what_is_named():
    def own(head=None, model=MLP):
        gamma = fedprior.populations.SharedBody(head=head).start(
            jax.eval_shape(lambda: model.init(random.root(0)))
        )
        assert not set(tree.names(gamma["body"])) & set(tree.names(gamma["head"]))
        return set(tree.names(gamma["head"]))

    assert own() == {"1/bias", "1/weight"}
    assert own("0") == {"0/bias", "0/weight"}
    assert own("1/bias") == {"1/bias"}
    assert own(lambda path: "bias" in path) == {"0/bias", "1/bias"}
    assert own(model=fedprior.models.lenet5()) == {"4/bias", "4/weight"}
    assert own("1", fedprior.mlp((4,), 3, hidden=(2,) * 10)) == {"1/bias", "1/weight"}  # not 10
    assert own("intercept", fedprior.models.logistic(4, 3)) == {"intercept"}


def test_a_network_with_holes_of_its_own_is_put_together_again():
    """Equinox leaves None where a module has no array."""
    equinox = pytest.importorskip("equinox")

    def init(key):
        network = equinox.nn.MLP(4, 3, 5, 1, key=key)
        return equinox.partition(network, equinox.is_array)[0]

    start = init(random.root(0))
    population = fedprior.populations.SharedBody()
    gamma = population.start(start)
    same(population.realize(gamma, population.center(gamma)), start)
    assert set(tree.names(gamma["head"])) == {"layers/1/weight", "layers/1/bias"}


@pytest.fixture(scope="module")
def bodied(play, federation):
    options = {"theta_rate": 0.1, "gamma_rate": 0.1}
    options["steps"] = fedprior.Steps(local_steps=2, batches=EVERYTHING)
    return play(head_first(MLP, BODY, head_steps=3, **options), federation, 4)


def test_heads_differ_and_the_body_is_one(bodied):
    state, memories = bodied
    heads = np.asarray(jax.vmap(tree.flatten)(memories["w"]))
    assert np.abs(heads - heads[0]).max(axis=1)[1:].min() > 1e-3
    start = fedprior.populations.SharedBody().start(MLP.init(random.fold(random.root(0), "init")))
    same(state["gamma"]["head"], start["head"])  # of newcomers: never learned
    learned, first = (tree.flatten(gamma["body"]) for gamma in (state["gamma"], start))
    assert np.abs(learned - first).max() > 1e-3
    np.testing.assert_array_equal(memories["step"], 4 * (2 + 3))


def test_steps_of_the_head_alone_come_first(play, federation):
    """With a body that rests, h head steps and s steps are h + s steps."""
    two, five = (fedprior.Steps(local_steps=number, batches=EVERYTHING) for number in (2, 5))
    _, first = play(head_first(MLP, BODY, head_steps=3, steps=two, gamma_rate=0.0), federation, 1)
    _, plain = play(head_first(MLP, BODY, steps=five, gamma_rate=0.0), federation, 1)
    same(first["w"], plain["w"], 1e-6)


def test_without_steps_of_the_head_alone_it_is_alternating():
    plain = head_first(MLP, fedprior.populations.Gaussian(scale=0.5))
    assert plain.local.__qualname__.startswith("Alternating")


# What is refused


@pytest.mark.parametrize(
    ("build", "wording"),
    [
        (
            lambda: fedprior.populations.Subspace(rank=0),
            "Subspace: rank must be a whole number of at least 1",
        ),
        (
            lambda: fedprior.populations.Subspace(rank=1, scale=-1.0),
            "Subspace: scale must be a positive number",
        ),
        (
            lambda: fedprior.learning.shared_subspace(fedprior.models.linear(3), rank=5),
            r"Subspace: rank must be at most the number of parameters \(4\), got 5",
        ),
        (
            lambda: fedprior.learning.fedper(fedprior.models.logistic(4, 3)),
            "SharedBody: head must be a part of the parameters, got 'the last layer'. "
            "Its leaves are intercept, weight",
        ),
        (
            lambda: fedprior.learning.fedper(MLP, head=1),
            "SharedBody: head must be the beginning of a path, in quotes, or a function, got 1. "
            'Write "1".',
        ),
        (
            lambda: fedprior.learning.fedper(MLP, head="2"),
            "SharedBody: head must be a part of the parameters, got '2'. Its leaves are 0/bias",
        ),
        (
            lambda: fedprior.learning.shared_subspace(MLP, head_steps=-1),
            "shared-subspace: head_steps must be a whole number of at least 0, got -1",
        ),
        (
            lambda: fedprior.learning.shared_subspace(MLP, head_steps=1, catch_up=5),
            "shared-subspace: catch_up cannot be combined with head_steps",
        ),
    ],
)
def test_bad_options(build, wording):
    with pytest.raises(ValueError, match=f"^{wording}"):
        build()
