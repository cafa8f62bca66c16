"""How many kinds of groups a mixture of regressions reports: none invented, true ones found."""

import numpy as np
import pytest

from fedprior.regression.mixture import fit_mixture
from fedprior.regression.rows import GroupedRows


def drawn(
    num_groups, num_features, seed, *, family="gaussian", kinds=1, sizes=(5, 20), correlation=0.6
):
    """Groups of one or more kinds, with correlated coefficients whose spread is 1 to 0.4.

    Kinds lie in a zigzag, 4 units of the intercept and 2 of the last slope apart; their members
    have half that spread.
    """
    draws = np.random.default_rng([seed, num_groups, num_features, kinds])
    width = num_features + 1
    size = draws.integers(sizes[0], sizes[1] + 1, num_groups)
    place = np.repeat(np.arange(num_groups), size)
    x = np.column_stack([np.ones(len(place)), draws.normal(size=(len(place), num_features))])
    scale = np.linspace(1, 0.4, width) / (1 if kinds == 1 else 2)
    covariance = np.outer(scale, scale) * (correlation + (1 - correlation) * np.eye(width))
    theta = draws.multivariate_normal(np.zeros(width), covariance, num_groups)
    kind = draws.integers(kinds, size=num_groups)
    theta[:, 0] += 4 * (kind - (kinds - 1) / 2)
    theta[:, -1] += 2 * (kind % 2 - 0.5) * (kinds > 1)
    odds = (x * theta[place]).sum(axis=1)
    if family == "gaussian":
        return GroupedRows.of(x, odds + draws.normal(size=len(odds)), place, num_groups)
    y = draws.random(len(odds)) < 1 / (1 + np.exp(-odds))
    return GroupedRows.of(x, y, place, num_groups)


def reported(rows, family="gaussian", **options):
    return len(fit_mixture(rows, family=family, covariance="auto", **options).population.components)


def test_a_correlated_population_is_one_kind():
    """With an isotropic covariance it was 3 or 4, and with 200 groups in every run."""
    rows = drawn(200, 1, 0)
    found = fit_mixture(rows, covariance="auto")
    assert len(found.population.components) == 1
    assert found.form == "full"
    assert "1 full component picked by BIC" in found.notes[0]
    assert len(fit_mixture(rows, covariance="isotropic").population.components) > 1


def test_spreads_that_differ_are_one_kind():
    found = fit_mixture(drawn(200, 2, 1, correlation=0.0), covariance="auto")
    assert (len(found.population.components), found.form) == (1, "diagonal")


@pytest.mark.parametrize("kinds", [2, 3])
def test_true_kinds_are_found(kinds):
    assert reported(drawn(150, 1, 0, kinds=kinds)) == kinds


def test_classes_of_a_correlated_population_are_one_kind():
    rows = drawn(80, 1, 0, family="binomial")
    assert reported(rows, "binomial", restarts=3) == 1


def test_the_form_is_chosen_for_a_given_number():
    found = fit_mixture(drawn(200, 1, 0), num_components=1, covariance="auto")
    assert found.form == "full"
    assert fit_mixture(drawn(40, 1, 0), num_components=2, spread="none").form == "isotropic"


@pytest.mark.evidence
@pytest.mark.parametrize("num_features", [1, 2, 3, 4])
@pytest.mark.parametrize("num_groups", [50, 200, 500])
def test_kinds_are_rarely_invented(num_groups, num_features):
    """At most 5%: of 30 runs, 5 or more would be a chance of 1.6% at that rate."""
    found = [reported(drawn(num_groups, num_features, seed)) for seed in range(30)]
    assert sum(number > 1 for number in found) <= 4


@pytest.mark.evidence
@pytest.mark.parametrize("num_features", [1, 3])
@pytest.mark.parametrize("num_groups", [50, 200])
def test_kinds_of_classes_are_rarely_invented(num_groups, num_features):
    found = [
        reported(drawn(num_groups, num_features, seed, family="binomial"), "binomial")
        for seed in range(20)
    ]
    assert sum(number > 1 for number in found) <= 3


@pytest.mark.evidence
@pytest.mark.parametrize("kinds", [2, 3])
@pytest.mark.parametrize(("num_groups", "num_features"), [(100, 1), (300, 1), (300, 3)])
def test_true_kinds_are_found_again_and_again(num_groups, num_features, kinds):
    found = [reported(drawn(num_groups, num_features, seed, kinds=kinds)) for seed in range(10)]
    assert sum(number == kinds for number in found) >= 9


@pytest.mark.parametrize("num_components", ["bic", 2])
def test_a_full_covariance_is_not_fitted_to_fewer_groups_than_coefficients(num_components):
    """Two full components of three coefficients degenerate with four groups."""
    draws = np.random.default_rng(5)
    place = np.repeat(np.arange(4), 8)
    x = np.column_stack([draws.normal(size=(32, 2)), np.ones(32)])
    theta = 0.5 * draws.normal(size=(4, 2))
    y = (x[:, :2] * theta[place]).sum(axis=1) + 0.5 * draws.normal(size=32)
    rows = GroupedRows.of(x, y, place, 4)
    found = fit_mixture(rows, family="gaussian", covariance="auto", num_components=num_components)
    assert np.isfinite(found.theta).all()
