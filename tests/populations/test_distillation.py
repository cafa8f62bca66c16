"""AdaPeD's prior: divergences, D6's gradients, psi, and both normalizers (ERRATA 40-43)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import approx_fprime, brentq
from scipy.special import rel_entr, softmax

import fedprior
from fedprior.populations.distillation import log_normalizer

CLASSES = 4
DRAWS = np.random.default_rng(0)
MEAN, OWN = DRAWS.normal(size=(2, 6, CLASSES)) * 2
MASK = np.array([1, 1, 0, 1, 1, 1])
KINDS = [
    {},
    {"direction": "reverse"},
    {"direction": "squared"},
    {"temperature": 2.5},
    {"normalizer": "exact", "temperature": 0.7},
    {"direction": "reverse", "temperature": 3.0, "degrees": 3.0},
]


def logits(parameters, x):
    """A model whose parameters are its logits."""
    return parameters


def double():
    """64-bit floats, under whichever name this version of JAX has for it."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def penalty(population, mean, own, psi, mask=MASK):
    gamma = {"mean": jnp.asarray(mean), "psi": jnp.asarray(psi)}
    return population.penalty(gamma, jnp.asarray(own), logits, None, jnp.asarray(mask))


def divergence(direction, temperature):
    p, q = softmax(MEAN / temperature, axis=1), softmax(OWN / temperature, axis=1)
    return {
        "forward": rel_entr(p, q).sum(axis=1),
        "reverse": rel_entr(q, p).sum(axis=1),
        "squared": ((p - q) ** 2).sum(axis=1),
    }[direction]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("direction", ["forward", "reverse", "squared"])
def test_the_penalty_is_the_formula(direction, temperature):
    """D/2 log(2 psi) + f_KD / (2 psi), f_KD a mean over unmasked samples."""
    population = fedprior.populations.Distillation(
        direction=direction, temperature=temperature, degrees=3.0
    )
    f = (divergence(direction, temperature) * MASK).sum() / MASK.sum()
    wanted = 1.5 * np.log(2 * 0.8) + f / (2 * 0.8)
    with double():
        np.testing.assert_allclose(penalty(population, MEAN, OWN, 0.8), wanted, rtol=1e-10)
    np.testing.assert_allclose(penalty(population, MEAN, OWN, 0.8), wanted, rtol=1e-5)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_gradients_are_those_of_finite_differences(options):
    population = fedprior.populations.Distillation(**options)
    point = np.concatenate([MEAN.ravel(), OWN.ravel(), [0.8]])

    def value(vector):
        mean, own = vector[:-1].reshape(2, *MEAN.shape)
        return penalty(population, mean, own, vector[-1])

    with double():
        value = jax.jit(value)
        gradient = np.asarray(jax.grad(value)(jnp.asarray(point)))
        differences = approx_fprime(point, lambda vector: float(value(vector)), 1e-7)
    np.testing.assert_allclose(gradient, differences, atol=2e-6)
    assert np.abs(gradient).max() > 0.01


def test_forward_gradients_are_those_of_d6():
    """d/dlogit_theta = p_theta - p_mean; d/dlogit_mean = p_mean (log(p_mean / p_theta) - KL)."""
    everyone = np.ones(len(MEAN))
    p, q = softmax(MEAN, axis=1), softmax(OWN, axis=1)
    with double():
        gradients = jax.grad(
            lambda mean, own: penalty(
                fedprior.populations.Distillation(), mean, own, 0.5, everyone
            ),
            (0, 1),
        )(jnp.asarray(MEAN), jnp.asarray(OWN))
        of_mean, of_own = (np.asarray(gradient) for gradient in gradients)
    kl = rel_entr(p, q).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(of_own * len(MEAN), q - p, atol=1e-12)
    np.testing.assert_allclose(of_mean * len(MEAN), p * (np.log(p / q) - kl), atol=1e-12)


@pytest.mark.parametrize("degrees", [1.0, 3.0])
def test_psi_has_gradient_d_over_2_psi_less_f_over_2_psi_squared(degrees):
    population = fedprior.populations.Distillation(degrees=degrees)
    f = (divergence("forward", 1.0) * MASK).sum() / MASK.sum()
    with double():
        slope = jax.grad(lambda psi: penalty(population, MEAN, OWN, psi))
        for psi in (0.5, 1.0, 4.0):
            np.testing.assert_allclose(slope(psi), degrees / (2 * psi) - f / (2 * psi**2))
        np.testing.assert_allclose(slope(f / degrees), 0, atol=1e-12)


@pytest.mark.parametrize(("f", "steps"), [(0.0, 527), (0.4, 657)])
def test_psi_reaches_its_floor_in_the_steps_of_erratum_41(f, steps):
    """Rate 0.03, from 4 to 0.5: f_KD below the floor makes psi rest on it, lambda = 1 fixed."""
    population = fedprior.populations.Distillation()
    mean = np.log([[0.5, 0.5]])
    share = (
        brentq(lambda s: rel_entr([0.5, 0.5], [s, 1 - s]).sum() - f, 0.5, 1 - 1e-9) if f else 0.5
    )
    own = jnp.log(jnp.array([[share, 1 - share]]))

    def move(gamma, _):
        slope = jax.grad(
            lambda psi: population.penalty({**gamma, "psi": psi}, own, logits, None, jnp.ones(1))
        )(gamma["psi"])
        gamma = population.project({**gamma, "psi": gamma["psi"] - 0.03 * slope})
        return gamma, gamma["psi"]

    start = population.start(jnp.asarray(mean, jnp.float32))
    path = np.asarray(jax.lax.scan(move, start, None, length=700)[1])
    first = 1 + int(np.argmax(path == population.psi_floor))
    assert abs(first - steps) <= 1
    assert (path[first:] == population.psi_floor).all()


def binary(p):
    return jnp.log(jnp.array([p, 1 - p]))


@pytest.mark.parametrize(("strength", "p"), [(20, 0.3), (1, 0.3), (0.125, 0.9), (5, 0.02)])
def test_the_exact_normalizer_is_the_integral_for_two_classes(strength, p):
    def density(q):
        return np.exp(-strength * rel_entr([p, 1 - p], [q, 1 - q]).sum())

    wanted = np.log(integrate.quad(density, 0, 1, points=[p])[0])
    np.testing.assert_allclose(log_normalizer(binary(p), strength), wanted, atol=2e-5)


def test_the_figures_of_errata_42_and_43():
    """psi_app = 20 = 1 / (2 psi_loss), p_mean = 0.3: -1.392, its Laplace approximation -1.359."""
    population = fedprior.populations.Distillation(normalizer="exact")
    mean = binary(0.3)[None]
    at_mean = penalty(population, mean, mean, 1 / 40, mask=np.ones(1))
    np.testing.assert_allclose(at_mean, -1.392, atol=5e-4)
    np.testing.assert_allclose(0.5 * np.log(2 * np.pi * 0.3 * 0.7 / 20), -1.359, atol=5e-4)
    with double():
        entropy = -(0.3 * np.log(0.3) + 0.7 * np.log(0.7))
        beta = np.exp(float(log_normalizer(binary(0.3), 20.0)) - 20 * entropy)
        np.testing.assert_allclose(beta, 1.2286e-6, rtol=1e-4)
        slope = jax.grad(lambda p: log_normalizer(binary(p), 10.0))(0.3)
        np.testing.assert_allclose(abs(slope), 0.88, atol=0.01)


@pytest.mark.parametrize("psi", [0.02, 0.5, 4.0])
def test_the_exact_prior_is_a_dirichlet_for_three_classes(psi):
    """-log density of q under Dirichlet(1 + p / (2 psi)), and its mass is 1."""
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.25, 0.15, 0.6])
    law = stats.dirichlet(1 + p / (2 * psi))
    value = penalty(
        fedprior.populations.Distillation(normalizer="exact"),
        np.log([p]),
        np.log([q]),
        psi,
        mask=np.ones(1),
    )
    np.testing.assert_allclose(value, -law.logpdf(q), rtol=1e-4, atol=1e-5)
    mass = integrate.dblquad(
        lambda b, a: np.exp(-rel_entr(p, [a, b, 1 - a - b]).sum() / (2 * psi)),
        0,
        1,
        0,
        lambda a: 1 - a,
        epsabs=1e-7,
    )[0]
    np.testing.assert_allclose(log_normalizer(jnp.log(p), 1 / (2 * psi)), np.log(mass), atol=1e-4)


def test_the_exact_normalizer_is_known_for_the_forward_divergence_only():
    for direction in ("reverse", "squared"):
        wording = f"^Distillation: direction must be 'forward', got '{direction}'. The exact norm"
        with pytest.raises(ValueError, match=wording):
            fedprior.populations.Distillation(direction=direction, normalizer="exact")


def test_the_floor_holds_from_the_start():
    population = fedprior.populations.Distillation(initial_psi=0.1, psi_floor=0.3)
    assert float(population.start({})["psi"]) == np.float32(0.3)
    assert float(population.project({"psi": jnp.array(-2.0)})["psi"]) == np.float32(0.3)
    assert float(population.project({"psi": jnp.array(2.0)})["psi"]) == 2


@pytest.mark.parametrize("name", ["initial_psi", "psi_floor", "temperature", "degrees"])
def test_numbers_are_positive(name):
    with pytest.raises(ValueError, match=f"^Distillation: {name} must be a positive number, got 0"):
        fedprior.populations.Distillation(**{name: 0})


def test_words_are_known():
    with pytest.raises(ValueError, match=r"direction must be one of forward, reverse, squared"):
        fedprior.populations.Distillation(direction="sideways")
    with pytest.raises(ValueError, match=r"got 'exakt'\. Did you mean exact\?"):
        fedprior.populations.Distillation(normalizer="exakt")


def test_extreme_logits_stay_finite():
    """A confident wrong model: the forward divergence is large, and every gradient is finite."""
    mean, own = np.array([[80.0, 0, 0]]), np.array([[-80.0, 0, 0]])
    for direction in ("forward", "reverse", "squared"):
        population = fedprior.populations.Distillation(direction=direction)
        value, gradients = jax.value_and_grad(
            lambda m, o, p=population: penalty(p, m, o, 0.5, mask=np.ones(1)), (0, 1)
        )(jnp.asarray(mean, jnp.float32), jnp.asarray(own, jnp.float32))
        assert np.isfinite(value)
        assert all(np.isfinite(gradient).all() for gradient in gradients)
