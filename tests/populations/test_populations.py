"""The laws of a population, and the priors on parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedprior
from fedprior.core import tree
from fedprior.core.protocols import Maximizable, Population

POPULATIONS = {
    "flat": fedprior.populations.Flat(),
    "point": fedprior.populations.PointMass(),
    "gaussian": fedprior.populations.Gaussian(scale=0.7),
    "gaussian-each": fedprior.populations.Gaussian(scale=0.7, per_coordinate=True),
    "gaussian-narrow": fedprior.populations.Gaussian(scale=1e-5),
    "laplace": fedprior.populations.Laplace(scale=0.7),
    "tether": fedprior.populations.Tether(strength=0.7),
    "mixture": fedprior.populations.GaussianMixture(num_components=3, scale=0.7, jitter=0.5),
    "discrete": fedprior.populations.Discrete(num_components=3, jitter=0.5),
    "shared-body": fedprior.populations.SharedBody(head="intercept"),  # a gamma without a mean
    "shared-head": fedprior.populations.SharedHead(head="intercept"),
    "distillation": fedprior.populations.Distillation(),
    "distillation-low": fedprior.populations.Distillation(initial_psi=0.1, psi_floor=0.5),
    "distillation-reverse": fedprior.populations.Distillation(direction="reverse", temperature=2.0),
    "distillation-squared": fedprior.populations.Distillation(direction="squared", degrees=2.0),
    "distillation-exact": fedprior.populations.Distillation(normalizer="exact"),
}


@pytest.fixture(params=sorted(POPULATIONS))
def population(request):
    return POPULATIONS[request.param]


def parameters(seed):
    draws = np.random.default_rng(seed)
    return {
        "weight": jnp.asarray(draws.normal(size=(4, 3)), jnp.float32),
        "intercept": jnp.asarray(draws.normal(size=3), jnp.float32),
    }


def predict(theta, x):
    return x @ theta["weight"] + theta["intercept"]


def same(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_center_realizes_the_mean(population):
    gamma = population.start(parameters(0))
    theta = population.realize(gamma, population.center(gamma))
    same(theta, gamma.get("mean", parameters(0)))


def test_start_holds_the_parameters_and_every_learned_block(population):
    gamma = population.start(parameters(0))
    assert set(population.blocks) <= set(gamma)
    if "centers" in gamma:  # scattered around the parameters: their mean is only near them
        away = tree.flatten(gamma["mean"]) - tree.flatten(parameters(0))
        assert 0 < jnp.abs(away).max() < 5 * population.jitter
    else:
        same(population.realize(gamma, population.center(gamma)), parameters(0))


def test_project_is_idempotent_and_leaves_start_alone(population):
    gamma = population.start(parameters(0))
    same(population.project(gamma), gamma)
    pushed = tree.combine(lambda leaf: leaf - 5, gamma)
    same(population.project(population.project(pushed)), population.project(pushed))


def test_the_penalty_ignores_masked_samples(population):
    if isinstance(population, fedprior.populations.Discrete):
        pytest.skip("A law of points has no density.")
    draws = np.random.default_rng(1)
    gamma, own = population.start(parameters(0)), parameters(1)
    x = draws.normal(size=(5, 4)).astype(np.float32)
    mask = np.array([True, False, True, True, False])
    penalty = jax.jit(population.penalty, static_argnums=2)
    value = penalty(gamma, own, predict, x, mask)
    strange = np.where(mask[:, None], x, 100 * x + 1)
    other = penalty(gamma, own, predict, strange, mask)
    np.testing.assert_array_equal(value, other)
    kept = penalty(gamma, own, predict, x[mask], np.ones(3, bool))
    np.testing.assert_allclose(value, kept, rtol=1e-6)
    nobody = penalty(gamma, own, predict, x, np.zeros(5, bool))
    assert np.isfinite(nobody)


@pytest.mark.parametrize("scale", [0.05, 0.7, 3.0])
@pytest.mark.parametrize(
    ("population_type", "law"),
    [(fedprior.populations.Gaussian, stats.norm), (fedprior.populations.Laplace, stats.laplace)],
)
def test_parameter_priors_are_minus_the_log_density(population_type, law, scale):
    """Normalizer included, once a coordinate (ERRATA 25)."""
    own, mean = parameters(1), parameters(0)
    value = population_type(scale=scale).penalty({"mean": mean}, own, predict, None, None)
    wanted = -law.logpdf(tree.flatten(own), loc=np.asarray(tree.flatten(mean)), scale=scale).sum()
    np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-6)


def test_parameter_priors_have_the_gradients_of_l2_and_l1():
    own, mean = parameters(1), parameters(0)
    step = tree.flatten(own) - tree.flatten(mean)
    for population, wanted in (
        (fedprior.populations.Gaussian(scale=0.7), step / 0.7**2),
        (fedprior.populations.Laplace(scale=0.7), jnp.sign(step) / 0.7),
    ):
        of_own, of_mean = (
            tree.flatten(gradient)
            for gradient in jax.grad(
                lambda w, m, p=population: p.penalty({"mean": m}, w, predict, None, None), (0, 1)
            )(own, mean)
        )
        np.testing.assert_allclose(of_own, wanted, rtol=1e-5)
        np.testing.assert_allclose(of_mean, -wanted, rtol=1e-5)


SLOPES = {  # of the others: test_maximize.py and test_distillation.py; Multitask: test_multitask.py
    fedprior.populations.Tether: fedprior.populations.Tether(strength=0.7),
    fedprior.populations.Subspace: fedprior.populations.Subspace(rank=5, scale=0.7),
}
NO_SLOPE = {
    fedprior.populations.Flat,
    fedprior.populations.PointMass,
    fedprior.populations.SharedBody,
    fedprior.populations.SharedHead,
    fedprior.populations.Discrete,
}


@pytest.mark.parametrize("kind", SLOPES, ids=lambda kind: kind.__name__)
def test_quadratic_penalties_have_the_gradients_of_finite_differences(kind):
    """By w, which alone moves along them; central differences are exact, so the step is wide."""
    draws = np.random.default_rng(2)
    mean, own = jnp.asarray(draws.normal(size=(2, 5)), jnp.float32)
    value = jax.jit(lambda w: SLOPES[kind].penalty({"mean": mean}, w, None, None, None))
    differences = [float(value(own + step) - value(own - step)) for step in np.eye(5) / 2]
    gradient = jax.grad(value)(own)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5)
    assert np.abs(gradient).max() > 0.1


def test_a_tether_is_a_normal_law_for_each_number_of_samples():
    """n times it is minus the log density of N(mean, 1 / (strength n)), but for a constant."""
    mean, first, second = np.random.default_rng(3).normal(size=(3, 5))
    at = [
        fedprior.populations.Tether(strength=0.7).penalty({"mean": mean}, w, None, None, None)
        for w in (first, second)
    ]
    for n in (1, 12):
        law = stats.norm(mean, (0.7 * n) ** -0.5)
        wanted = law.logpdf(second).sum() - law.logpdf(first).sum()
        np.testing.assert_allclose(n * (at[0] - at[1]), wanted, rtol=1e-5)


def test_every_penalty_has_a_test_of_its_gradient():
    elsewhere = {fedprior.populations.Distillation, *Maximizable.__subclasses__()}
    known = {*SLOPES, *NO_SLOPE, *elsewhere, Maximizable}
    found = [Population]
    for kind in found:
        found += kind.__subclasses__()
    own = {kind for kind in found if kind.__module__.startswith("fedprior.populations.")}
    assert own <= known


@pytest.mark.parametrize(
    "population_type", [fedprior.populations.Gaussian, fedprior.populations.Laplace]
)
def test_a_scale_is_positive_and_may_be_traced(population_type):
    owner = population_type.__name__
    for scale in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=f"^{owner}: scale must be a positive number, got "):
            population_type(scale=scale)
    with pytest.raises(TypeError, match=f"{owner}: scale must be a positive number, got 'wide'"):
        population_type(scale="wide")
    mean, own = parameters(0), parameters(1)

    def penalty(scale):
        return population_type(scale=scale).penalty({"mean": mean}, own, predict, None, None)

    swept = jax.vmap(penalty)(jnp.array([0.5, 2.0]))
    np.testing.assert_allclose(swept, [penalty(0.5), penalty(2.0)], rtol=1e-5)


def test_no_population_costs_nothing_and_sends_nothing():
    assert fedprior.populations.Flat().blocks == ()
    assert not fedprior.populations.PointMass().personal
    for population in (fedprior.populations.Flat(), fedprior.populations.PointMass()):
        assert population.penalty({"mean": 0}, 0, predict, None, None) == 0
