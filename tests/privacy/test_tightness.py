"""Claims against independent computations: never below the truth, and hardly above it."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, norm

from fedprior.privacy import losses
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.composition import composed_epsilon
from fedprior.privacy.events import Event, gaussian, response


def poisson(noise, rate):
    return Event(mechanism="gaussian", noise=noise, sampling="poisson", rate=rate)


@pytest.fixture(scope="module")
def benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "accounting.py"
    spec = importlib.util.spec_from_file_location("benchmarks_accounting", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


# Computed by `exact` below with 6,001 outputs and 4,000 frequencies.
@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "delta", "add_remove", "replace_one"),
    [
        (1.5, 1e-3, 5_000, 1e-5, 0.173916710, 0.325238820),
        (3.0, 1e-3, 20_000, 1e-5, 0.155405757, 0.319844021),
        (5.0, 1e-4, 10_000, 1e-5, 0.00444841279, 0.00971961920),
        (1.0, 0.01, 1_000, 1e-10, 3.29044375, 4.48813341),
        (0.5, 1e-3, 100, 1e-6, 3.14393523, 3.15071997),
    ],
)
def test_claims_are_the_truth_to_a_thousandth(noise, rate, rounds, delta, add_remove, replace_one):
    for relation, wanted in (("add-remove", add_remove), ("replace-one", replace_one)):
        found = epsilon([(poisson(noise, rate), rounds)], delta=delta, relation=relation)
        assert wanted <= found < 1.001 * wanted


@pytest.mark.parametrize(
    ("noise", "rounds", "delta"),
    [(300.0, 100_000, 1e-12), (20.0, 1_000_000, 1e-11), (9.0, 3, 0.01)],
)
def test_rounding_errors_of_many_rounds_do_not_understate(noise, rounds, delta):
    """Gaussians composed numerically, against their closed form. A plain transform gives 0.96."""
    event = gaussian(noise)

    def rounded(grid):
        return [(losses.rounded(event, "add-remove", "REMOVE", grid), rounds)]

    known = [(losses.approximate(event, "add-remove", "REMOVE"), rounds)]
    found = composed_epsilon(rounded, known, delta=delta)
    exact = get_epsilon_gaussian(noise / math.sqrt(rounds), delta)
    assert exact * (1 - 1e-9) <= found < 1.001 * exact


@pytest.mark.parametrize(("one", "rounds"), [(0.1, 400), (0.5, 8), (2.0, 30)])
def test_responses_against_the_binomial(one, rounds):
    yes = 1 / (1 + math.exp(-one))
    often = np.arange(rounds + 1)
    loss = one * (2 * often - rounds)

    def gap(value):
        above = loss > value
        return binom.pmf(often, rounds, yes)[above] @ -np.expm1(value - loss[above]) - 1e-5

    exact = brentq(gap, 0, one * rounds)
    found = epsilon([(response(one), rounds)], delta=1e-5)
    assert exact * (1 - 1e-9) <= found < 1.001 * exact


def test_no_two_messages_are_further_apart_than_opposite_ones():
    """Poisson under replace-one: pairs of messages in the unit disk, one round, by summation."""
    noise, rate = 0.8, 0.3
    axis = np.linspace(-6, 6, 241)
    first, second = np.meshgrid(axis, axis)

    def density(angle, radius):
        moved = (first - radius * math.cos(angle)) ** 2 + (second - radius * math.sin(angle)) ** 2
        plain = first**2 + second**2
        both = (1 - rate) * np.exp(-plain / 2 / noise**2) + rate * np.exp(-moved / 2 / noise**2)
        return both / both.sum()

    found = epsilon([(poisson(noise, rate), 1)], delta=0.01, relation="replace-one")
    worst = {
        (angle, radius): np.maximum(
            density(0.0, 1.0) - math.exp(found) * density(angle, radius), 0
        ).sum()
        for angle in (0.5, 1.5, 2.5, math.pi)
        for radius in (0.3, 1.0)
    }
    assert max(worst, key=worst.get) == (math.pi, 1.0)
    assert 0.98 * 0.01 < worst[math.pi, 1.0] < 0.01 * (1 + 1e-3)


@pytest.mark.parametrize("at", [7, 11, 17, 22, 23, 27])
def test_claims_are_near_lower_bounds(benchmark, at):
    """Some settings of the table in docs/reference/accounting.md; all of them as evidence."""
    check_row(benchmark, [*benchmark.settings()][at])


def check_row(benchmark, setting):
    claimed = epsilon(setting.spent, delta=setting.delta, relation=setting.relation)
    lower = benchmark.optimistic(setting, claimed)
    fixed = any(event.sampling == "fixed" and event.amplified for event, _ in setting.spent)
    assert lower <= claimed <= (1.2 if fixed else 1.02) * lower


@pytest.mark.evidence
def test_the_whole_table(benchmark):
    rows = [*benchmark.settings()]
    assert len(rows) >= 30
    for setting in rows:
        check_row(benchmark, setting)


def cumulant(event, relation, direction, order):
    """log E exp(order * loss) of one round, by summation over outputs; `order` is complex."""
    noise, rate = event.noise, event.rate
    at = np.linspace(-1 - 13 * noise, 1 + 13 * noise, 1501 + int(200 / noise))
    ratio = (at - 0.5) / noise**2  # log of N(1) / N(0)
    up = np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
    down = np.logaddexp(math.log1p(-rate), math.log(rate) + ratio[::-1])
    loss, weight = {
        ("add-remove", 0): (up, up),
        ("add-remove", 1): (-up, 0 * up),
        ("replace-one", 0): (up - down, up),
    }[relation, direction]
    logarithm = norm.logpdf(at, 0, noise) + weight
    logarithm -= np.logaddexp.reduce(logarithm)
    exponent = np.multiply.outer(np.atleast_1d(order), loss) + logarithm
    largest = exponent.real.max(axis=1, keepdims=True)
    return np.log(np.exp(exponent - largest).sum(axis=1)) + largest[:, 0]


def exact(spent, delta, relation):
    """The epsilon with (1/2 pi i) int exp(cumulants(s) - s epsilon) / (s (s + 1)) ds = delta."""

    def logarithm(value, direction):
        def total(order):
            return sum(n * cumulant(event, relation, direction, order) for event, n in spent)

        def height(u):
            order = math.exp(u)
            return total(order)[0].real - order * value - math.log(order * (order + 1))

        saddle = math.exp(minimize_scalar(height, bounds=(-8, 12), method="bounded").x)
        top = height(math.log(saddle))

        def integrand(frequency):
            order = saddle + 1j * frequency
            return np.exp(total(order) - order * value - np.log(order * (order + 1)) - top)

        end = 0.1 * saddle
        while np.abs(integrand(end * np.array([1.0, 1.2, 1.5]))).max() > 1e-8:
            end *= 1.5
        frequency = np.linspace(0, end, 1201)
        return top + math.log(np.trapezoid(integrand(frequency).real, frequency) / math.pi)

    def solved(direction):
        def gap(value):
            return logarithm(value, direction) - math.log(delta)

        high = 1e-3
        while gap(high) > 0:
            high *= 2
        return brentq(gap, high / 2, high, rtol=1e-7) if high > 1e-3 else 0.0

    return max(solved(direction) for direction in ((0, 1) if relation == "add-remove" else (0,)))


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(20))
def test_random_settings_by_inversion(seed):
    """Mixtures of up to two sampled Gaussians under both relations, by numerical integration."""
    draw = np.random.default_rng(seed)
    relation = ("add-remove", "replace-one")[seed % 2]
    spent = [
        (
            poisson(float(np.exp(draw.uniform(-0.7, 2.5))), float(np.exp(draw.uniform(-7, -0.5)))),
            int(np.exp(draw.uniform(3.5, 8))),
        )
        for _ in range(1 + seed % 3 // 2)
    ]
    delta = float(np.exp(draw.uniform(-23, -9)))
    wanted = exact(spent, delta, relation)
    found = epsilon(spent, delta=delta, relation=relation)
    assert wanted * (1 - 1e-6) <= found <= 1.002 * wanted
