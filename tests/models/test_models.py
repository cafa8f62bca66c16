"""Losses, scores and the built-in models against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_softmax
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss

import fedprior
from fedprior.core import tree

DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(40, 3)).astype(np.float32)


def mean_loss(model):
    return lambda parameters, x, y: jnp.mean(model.loss(model.apply(parameters, x), y))


def test_classification_loss_and_score_are_one_value_a_sample():
    model = fedprior.models.logistic(3, 4)
    logits = DRAWS.normal(size=(6, 4)).astype(np.float32) * 5
    y = np.array([0, 3, 2, 1, 1, 0])
    loss = model.loss(jnp.asarray(logits), y)
    wanted = -log_softmax(logits, axis=1)[np.arange(6), y]
    np.testing.assert_allclose(loss, wanted, rtol=1e-5, atol=1e-6)
    probabilities = np.exp(log_softmax(logits.astype(float), axis=1))
    np.testing.assert_allclose(loss.mean(), log_loss(y, probabilities, labels=range(4)), rtol=1e-5)
    score = model.score(jnp.asarray(logits), y)
    np.testing.assert_array_equal(score, (logits.argmax(axis=1) == y).astype(float))


def test_classification_loss_is_finite_for_any_finite_logits():
    model = fedprior.models.logistic(3, 2)
    logits = jnp.array([[1e4, -1e4], [-1e4, 1e4], [0.0, 0.0]])
    y = jnp.array([1, 1, 0])
    np.testing.assert_allclose(model.loss(logits, y), [2e4, 0, np.log(2)], rtol=1e-6)
    gradient = jax.grad(lambda outputs: model.loss(outputs, y).sum())(logits)
    np.testing.assert_allclose(gradient, [[1, -1], [0, 0], [-0.5, 0.5]], atol=1e-6)


def test_regression_loss_and_score():
    model = fedprior.models.linear(3)
    np.testing.assert_allclose(model.loss(np.array([1.0, 2.0]), np.array([0.0, 5.0])), [0.5, 4.5])
    np.testing.assert_allclose(model.score(np.array([1.0, 2.0]), np.array([0.0, 5.0])), [-1, -9])


def test_linear_is_stationary_at_least_squares():
    y = (X @ [1.0, -2.0, 0.5] + 0.3 + 0.1 * DRAWS.normal(size=40)).astype(np.float32)
    model, fit = fedprior.models.linear(3), LinearRegression().fit(X, y)
    parameters = {"intercept": jnp.float32(fit.intercept_), "weight": jnp.asarray(fit.coef_)}
    np.testing.assert_allclose(model.apply(parameters, X), fit.predict(X), rtol=1e-4, atol=1e-5)
    gradient = jax.grad(mean_loss(model))(parameters, X, y)
    np.testing.assert_allclose(tree.flatten(gradient), 0, atol=1e-5)
    start = model.init(jax.random.key(0))
    gradient = jax.grad(mean_loss(model))(start, X, y)
    np.testing.assert_allclose(gradient["weight"], -X.T @ y / 40, rtol=1e-4)
    np.testing.assert_allclose(gradient["intercept"], -y.mean(), rtol=1e-4)


def test_two_classes_are_one_vector():
    """The first logit is 0: loss and gradient of plain logistic regression."""
    model = fedprior.models.logistic(3)
    start = model.init(jax.random.key(0))
    assert tree.size(start) == 4
    weight, intercept = DRAWS.normal(size=(3, 1)).astype(np.float32), np.float32([0.2])
    parameters = {"intercept": jnp.asarray(intercept), "weight": jnp.asarray(weight)}
    y = DRAWS.integers(0, 2, 40)
    p = expit(X @ weight[:, 0] + intercept)
    outputs = model.apply(parameters, X)
    np.testing.assert_allclose(outputs[:, 0], 0)
    wanted = -np.log(np.where(y == 1, p, 1 - p))
    np.testing.assert_allclose(model.loss(outputs, y), wanted, rtol=1e-4, atol=1e-6)
    gradient = jax.grad(mean_loss(model))(parameters, X, y)
    np.testing.assert_allclose(gradient["weight"][:, 0], X.T @ (p - y) / 40, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradient["intercept"], [np.mean(p - y)], rtol=1e-4, atol=1e-6)


def test_softmax_regression_is_stationary_where_scikit_learn_stops():
    """The fit minimizes mean loss + ||weight||^2 / (2 C n)."""
    y = np.argmax(X @ DRAWS.normal(size=(3, 3)) + DRAWS.gumbel(size=(40, 3)), axis=1)
    fit = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(X, y)
    model = fedprior.models.logistic(3, 3)
    parameters = {
        "intercept": jnp.asarray(fit.intercept_, jnp.float32),
        "weight": jnp.asarray(fit.coef_.T, jnp.float32),
    }
    np.testing.assert_allclose(
        jax.nn.softmax(model.apply(parameters, X)), fit.predict_proba(X), atol=1e-5
    )
    gradient = jax.grad(mean_loss(model))(parameters, X, y)
    np.testing.assert_allclose(gradient["weight"], -parameters["weight"] / 40, atol=1e-4)
    np.testing.assert_allclose(gradient["intercept"], 0, atol=1e-4)
    score = model.score(model.apply(parameters, X), y).mean()
    np.testing.assert_allclose(score, fit.score(X, y), rtol=1e-6)


def test_mlp_shapes_and_arithmetic():
    model = fedprior.mlp((2, 3), 4, hidden=(5, 7))
    parameters = model.init(jax.random.key(1))
    assert [layer["weight"].shape for layer in parameters] == [(6, 5), (5, 7), (7, 4)]
    assert tree.size(parameters) == 6 * 5 + 5 + 5 * 7 + 7 + 7 * 4 + 4
    x = DRAWS.normal(size=(8, 2, 3)).astype(np.float32)
    hidden = x.reshape(8, 6)
    for layer in parameters[:-1]:
        hidden = np.maximum(hidden @ layer["weight"] + layer["bias"], 0)
    wanted = hidden @ parameters[-1]["weight"] + parameters[-1]["bias"]
    np.testing.assert_allclose(model.apply(parameters, x), wanted, rtol=1e-4, atol=1e-5)


def test_mlp_for_regression_has_one_output_a_sample():
    model = fedprior.mlp((3,), 1, hidden=(), regression=True)
    parameters = model.init(jax.random.key(1))
    assert model.regression
    assert model.apply(parameters, X).shape == (40,)
    assert model.loss(model.apply(parameters, X), np.zeros(40)).shape == (40,)


def test_init_depends_on_its_key_alone():
    model = fedprior.mlp((3,), 2)
    first, again, other = (tree.flatten(model.init(jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("build", "wording"),
    [
        (
            lambda: fedprior.models.linear(0),
            "linear: num_features must be a whole number of at least 1",
        ),
        (
            lambda: fedprior.models.logistic(3, 1),
            "logistic: num_classes must be .* at least 2, got 1",
        ),
        (lambda: fedprior.mlp((3,), 0), "mlp: num_outputs must be a whole number of at least 1"),
        (lambda: fedprior.mlp((3,), 2, hidden=(0,)), "mlp: hidden must be a whole number"),
        (lambda: fedprior.mlp((3,), 2, regression=True), "mlp: num_outputs must be 1 for regr"),
        (lambda: fedprior.models.lenet5(1), "lenet5: num_classes must be .* at least 2, got 1"),
    ],
)
def test_bad_sizes(build, wording):
    with pytest.raises(ValueError, match=f"^{wording}"):
        build()


def test_precision_is_that_of_every_product():
    model = fedprior.mlp((4,), 3)
    rounded = fedprior.models.in_precision(model, "bfloat16")
    parameters, x = model.init(jax.random.key(0)), jnp.ones((2, 4))

    def loss(parameters):
        return rounded.loss(rounded.apply(parameters, x), jnp.zeros(2, int)).sum()

    traced = str(jax.make_jaxpr(jax.grad(loss))(parameters))
    assert traced.count("dot_general") == traced.count("precision=BF16_BF16_F32") == 5
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(parameters))
    assert rounded == fedprior.models.in_precision(model, "bfloat16")
    assert fedprior.models.in_precision(model, "default") is model
    with pytest.raises(ValueError, match=r"^in_precision: precision must be one of"):
        fedprior.models.in_precision(model, "float16")
