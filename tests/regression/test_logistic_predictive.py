"""Class probabilities at a theta, and averaged over the posterior of one."""

import numpy as np
import pytest
from scipy import special, stats

from fedprior.regression.face.personal import PersonalClassifier
from fedprior.regression.linear import fit_linear
from fedprior.regression.logistic import fit_logistic, odds_covariance, predictive, probabilities
from fedprior.regression.mixture import fit_mixture
from fedprior.regression.packed import pack
from fedprior.regression.rows import GroupedRows


def test_probabilities():
    draws = np.random.default_rng(0)
    x, theta = draws.normal(size=(5, 2)), draws.normal(size=(5, 4))
    fixed, beta = draws.normal(size=(5, 3)), draws.normal(size=6)
    found = probabilities(theta, x, fixed=fixed, coefficients=beta, num_classes=3)
    odds = np.stack([np.zeros(5), *[(x * theta[:, k : k + 2]).sum(axis=1) for k in (0, 2)]], axis=1)
    odds[:, 1:] += fixed @ beta.reshape(2, 3).T
    np.testing.assert_allclose(found, special.softmax(odds, axis=1), atol=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_averaged_probabilities_are_the_mean_over_theta(num_classes):
    """Against 100,000 draws, whose mean has a standard error of at most 0.0016: 4.9 of them are
    0.008 (FALSE_ALARM = 1e-6), and 0.02 is for the 32 points of softmax. Coefficients correlated as
    those of a feature far from 0 are: taken for independent, probabilities would be off by 0.1.
    """
    draws = np.random.default_rng(1)
    width = 2 * (num_classes - 1)
    x, theta = np.array([[1.0, 5.0]]), draws.normal(size=(1, width))
    root = np.kron(np.eye(num_classes - 1) + 0.5, [[1.3, 0.0], [-0.25, 0.1]])
    covariance = odds_covariance(pack(root @ root.T)[None], x, np.zeros(1, int))
    found = probabilities(theta, x, covariance=covariance, num_classes=num_classes)
    many = theta + draws.normal(size=(100_000, width)) @ root.T
    wanted = probabilities(many, np.tile(x, (100_000, 1)), num_classes=num_classes).mean(axis=0)
    np.testing.assert_allclose(found[0], wanted, atol=0.008 if num_classes == 2 else 0.02)
    assert found.sum() == pytest.approx(1)


def test_the_covariance_of_log_odds():
    draws = np.random.default_rng(2)
    root = draws.normal(size=(3, 4, 4))
    covariances = root @ root.transpose(0, 2, 1)
    x, place = draws.normal(size=(7, 2)), draws.integers(0, 3, 7)
    found = odds_covariance(pack(covariances), x, place)
    for row in range(7):
        both = np.kron(np.eye(2), x[row])
        np.testing.assert_allclose(found[row], both @ covariances[place[row]] @ both.T)


def shifted(shift, num_groups=60, size=10):
    """Slopes that vary, of a feature `shift` away from 0."""
    draws = np.random.default_rng(4)
    place = np.repeat(np.arange(num_groups), size)
    x = draws.normal(size=len(place))
    theta = draws.normal([0.0, 1.0], 1.0, (num_groups, 2))
    y = draws.random(len(place)) < special.expit(theta[place, 0] + theta[place, 1] * x)
    return x[:, None] + shift, y.astype(int), place


def test_a_seen_group_is_averaged_over_its_posterior():
    """Against the posterior on a grid of 200 x 200 points. The mean of a posterior by quadrature is
    exact; that it is not normal costs up to 0.005. Errors taken as independent were off by 0.1.
    """
    x, y, place = shifted(5.0)
    model = PersonalClassifier(covariance="full").fit(x, y, place)
    population = model.population_
    asked = np.array([[3.0], [5.0], [7.5]])
    for group in (0, 1, 2):
        found = model.predict_proba(asked, [group] * 3)[:, 1]
        theta, covariance = model.theta_[group], model.analysis_.fit.covariances[group, 0]
        axis = np.linspace(-7, 7, 200)
        grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        grid = theta + grid @ np.linalg.cholesky(covariance).T
        own = place == group
        odds = grid[:, :1] + grid[:, 1:] * x[own, 0]
        level = stats.multivariate_normal(population.mean, population.covariance).logpdf(grid)
        level -= np.logaddexp(0, (1 - 2 * y[own]) * odds).sum(axis=1)
        share = special.softmax(level)
        np.testing.assert_allclose(share @ grid, theta, atol=0.02)
        wanted = share @ special.expit(grid[:, :1] + grid[:, 1:] * asked[:, 0])
        np.testing.assert_allclose(found, wanted, atol=0.01)


def test_where_zero_lies_does_not_matter_to_a_full_covariance():
    here, there = (
        PersonalClassifier(covariance="full").fit(*shifted(shift)) for shift in (0.0, 5.0)
    )
    x, _, place = shifted(0.0)
    np.testing.assert_allclose(
        there.predict_proba(x + 5.0, place), here.predict_proba(x, place), atol=2e-3
    )
    assert there.held_out().personal == pytest.approx(here.held_out().personal, abs=2e-4)


def test_members_of_a_kind_that_are_all_alike_are_averaged_over_kinds():
    draws = np.random.default_rng(5)
    place, kind = np.repeat(np.arange(60), 4), np.arange(60) % 2
    x = draws.normal(2.0, 1.0, 240)
    odds = np.where(kind[place] == 0, 1.0, -1.0) * (3 - 3 * x)
    y = (draws.random(240) < special.expit(odds)).astype(int)
    model = PersonalClassifier(population="discrete", num_components=2).fit(x[:, None], y, place)
    parts = model.population_.components
    wanted = sum(
        model.responsibilities_[place, number] * special.expit(each.mean[0] + each.mean[1] * x)
        for number, each in enumerate(parts)
    )
    np.testing.assert_allclose(model.predict_proba(x[:, None], place)[:, 1], wanted, atol=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_mixture_of_one_kind_is_one_gaussian(num_classes):
    x, y, place = shifted(1.0, num_groups=12)
    y = (y + (x[:, 0] > 1.5)).clip(max=num_classes - 1)
    rows = GroupedRows.of(np.column_stack([np.ones(len(x)), x]), y, place, 13)
    how = "expectation-propagation" if num_classes == 2 else "laplace"
    one = fit_logistic(rows, num_classes=num_classes, approximation=how)
    wanted = fit_logistic(rows, num_classes=num_classes, approximation=how, prior=one.population)
    family = "binomial" if num_classes == 2 else "multinomial"
    found = fit_mixture(rows, family=family, prior=one.population, num_classes=num_classes)
    np.testing.assert_allclose(found.means, wanted.means, atol=1e-4)
    np.testing.assert_allclose(found.covariances, wanted.covariances, atol=1e-4)
    np.testing.assert_allclose(
        np.sqrt(np.diagonal(found.covariances[:, 0], axis1=1, axis2=2)), found.errors, atol=1e-9
    )
    np.testing.assert_allclose(
        predictive(found, rows.x, rows.place), predictive(wanted, rows.x, rows.place), atol=1e-4
    )


def test_numbers_have_no_classes():
    x, y, place = shifted(0.0, num_groups=12)
    fit = fit_linear(GroupedRows.of(np.ones((len(x), 1)), y + 0.1 * x[:, 0], place, 12))
    with pytest.raises(
        ValueError, match=r"predictive: fit must be that of a classifier, got 'gaussian'"
    ):
        predictive(fit, x, place)


def test_a_fit_holds_no_more_than_its_predictions_need():
    """Half of each covariance for classes, none for numbers: they are most of a fit's memory."""
    x, y, place = shifted(1.0, num_groups=12)
    design = np.column_stack([np.ones(len(x)), x])
    found = fit_logistic(GroupedRows.of(design, y, place, 12), covariance="diagonal")
    assert found.triangles.shape == (12, 1, 3)
    np.testing.assert_array_equal(pack(found.covariances), found.triangles)
    number = fit_linear(GroupedRows.of(design, y + 0.1 * x[:, 0], place, 12))
    assert (number.triangles, number.covariances) == (None, None)
