"""Strategies of the matrix mechanism against jax-privacy's own sensitivities, errors and prices."""

import math

import dp_accounting
import jax
import numpy as np
import pytest

from fedprior.channels import MatrixGaussian
from fedprior.privacy import strategy
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import Cyclic
from fedprior.privacy.participation import Participation

pytest.importorskip("jax_privacy")
from jax_privacy.experimental import accounting
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz
from jax_privacy.matrix_factorization import sensitivity as dense

ROUNDS = 40


@pytest.fixture(scope="module")
def banded():
    return strategy.banded_strategy(ROUNDS, bands=8)


BUFFERED = strategy.Buffered((0.95, 0.5), (0.25, 0.25))


@pytest.mark.parametrize("kind", ["banded", "buffered"])
@pytest.mark.parametrize(("apart", "most"), [(8, 0), (8, 3), (1, 0), (3, 5)])
def test_sensitivities_and_errors_agree(banded, kind, apart, most):
    chosen = banded if kind == "banded" else BUFFERED
    rule = Participation(rounds=ROUNDS, apart=apart, most=most)
    column = chosen.column(ROUNDS)
    with jax.enable_x64():
        squared = toeplitz.minsep_sensitivity_squared(
            column, min_sep=apart, max_participations=rule.most
        )
        bound = dense.get_min_sep_sensitivity_upper_bound(
            toeplitz.materialize_lower_triangular(column), apart, rule.most
        )
        errors = np.asarray(toeplitz.per_query_error(strategy_coef=column))
    found = strategy.sensitivity(chosen, rule)
    assert math.sqrt(squared) <= found == pytest.approx(math.sqrt(squared), rel=1e-9)
    assert found <= bound * (1 + 1e-9)
    np.testing.assert_allclose(strategy.squared_errors(chosen, ROUNDS), errors, rtol=1e-9)


def test_the_buffered_matrix_is_theirs():
    with jax.enable_x64():
        theirs = buffered_toeplitz.BufferedToeplitz.build(BUFFERED.decays, BUFFERED.scales)
        np.testing.assert_allclose(BUFFERED.column(ROUNDS), theirs.toeplitz_coefs(ROUNDS))
        inverse = np.asarray(theirs.inverse_as_streaming_matrix().materialize(ROUNDS))
    rows, buffers = [], np.zeros((BUFFERED.num_buffers, ROUNDS))
    for row in np.eye(ROUNDS):
        streamed, buffers = BUFFERED.step(row, buffers)
        rows.append(streamed)
    np.testing.assert_allclose(rows, inverse, atol=1e-12)


def test_rounding_to_the_grid_costs_nothing(banded):
    with jax.enable_x64():
        best = np.asarray(toeplitz.optimize_banded_toeplitz(ROUNDS, 8), np.float64)
        least = float(toeplitz.loss(best, ROUNDS))
    coefficients = np.array(banded.coefficients)
    np.testing.assert_array_equal(coefficients * 2**strategy.GRID_BITS % 1, 0)
    squared = strategy.column_norm(banded, ROUNDS) ** 2
    loss = float(np.mean(strategy.squared_errors(banded, ROUNDS))) * squared
    assert loss == pytest.approx(least, rel=1e-4)


@pytest.mark.evidence  # compiles for 20 seconds
def test_buffered_strategies_are_optimized():
    """Less than half the squared error of independent noise, for a single participation."""
    rule = Participation(rounds=12, apart=12)
    found = strategy.buffered_strategy(rule)
    gain = strategy.sensitivity(found, rule) * strategy.independent_equivalent(found, 12)
    assert gain**2 < 0.45


def test_amplified_runs_cost_what_their_event_costs(banded):
    rule = Participation(rounds=ROUNDS, apart=8)
    channel = MatrixGaussian(clip=1.0, noise_multiplier=3.0, strategy=banded, participation=rule)
    event, count = channel.charge(Cyclic(parts=8, rate=0.2), 8000, 3)
    norm = strategy.column_norm(banded, ROUNDS)
    theirs = accounting.amplified_bandmf_event(3.0 / norm, ROUNDS, num_bands=8, sampling_prob=0.2)
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(theirs)
    found = epsilon([(event, count)], delta=1e-6)
    assert found == pytest.approx(accountant.get_epsilon(1e-6), rel=0.01)
