"""The population of many logistic regressions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from fedprior.regression.logistic import fit_logistic
from fedprior.regression.logistic.approximation import solver
from fedprior.regression.logistic.ascend import ascend
from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma, step_gamma
from fedprior.regression.logistic.parts import parts_of
from fedprior.regression.logistic.steps import EvidenceProblem
from fedprior.regression.result import Component, RegressionPopulation
from fedprior.regression.rows import GroupedRows

FALSE_ALARM = 1e-6
QUANTILE = 4.9  # of a standard normal at FALSE_ALARM, both sides
MEAN = np.array([-0.5, 1.0, -1.0, 0.5, 0.0])


def draw(num_groups, low, high, width, scale, *, seed=0, fixed=()):
    """Rows of groups with an intercept and normal features, and the true theta."""
    draws = np.random.default_rng(seed)
    sizes = draws.integers(low, high, num_groups, endpoint=True)
    place = np.repeat(np.arange(num_groups), sizes)
    x = draws.normal(size=(len(place), width))
    x[:, 0] = 1.0
    theta = MEAN[:width] + scale * draws.normal(size=(num_groups, width))
    shared = draws.normal(size=(len(place), len(fixed)))
    odds = (x * theta[place]).sum(axis=1) + shared @ np.asarray(fixed, float)
    y = (draws.random(len(place)) < special.expit(odds)).astype(float)
    return GroupedRows.of(x, y, place, num_groups, fixed=shared), theta


def known(mean, covariance, fixed=()):
    whole = Component(share=1.0, mean=mean, covariance=covariance)
    return RegressionPopulation(
        kind="known", mean=mean, covariance=covariance, components=(whole,), fixed=np.array(fixed)
    )


@pytest.fixture(scope="module")
def small():
    return draw(60, 10, 12, 2, 1.0, fixed=(0.5,))[0]


@pytest.mark.parametrize(
    ("approximation", "covariance"),
    [
        ("quadrature", "isotropic"),
        ("quadrature", "full"),
        ("expectation-propagation", "diagonal"),
        ("expectation-propagation", "full"),
        ("variational", "full"),
    ],
)
def test_the_score_is_the_slope_of_the_evidence(small, covariance, approximation):
    """By finite differences along every coordinate of a step."""
    shape = CovarianceShape.of(small, covariance, 2)
    problem = EvidenceProblem(
        parts=parts_of(small, 2),
        solve=solver(approximation, num_classes=2),
        shape=shape,
        ridge=np.array([0.1, 0.2, 0.3]),
        slack=0.0,
    )
    factor = np.linalg.cholesky(shape.bounded(np.array([[0.8, 0.3], [0.3, 0.6]])))
    gamma = LogisticGamma(mean=np.array([-0.2, 0.8]), factor=factor, fixed=np.array([0.3]))
    _, totals, memory = problem.at(gamma, sweeps=100)
    score = problem.penalized(gamma, totals)[0]
    for place in range(len(score)):
        step = np.zeros(len(score))
        step[place] = 1e-3
        up, down = (
            problem.at(step_gamma(gamma, shape, sign * step), memory, sweeps=100)[0]
            for sign in (1, -1)
        )
        assert score[place] == pytest.approx((up - down) / 2e-3, rel=2e-3, abs=5e-3)


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_em_by_quadrature_never_lowers_the_evidence(covariance):
    rows, _ = draw(50, 7, 8, 2, 1.0)
    found = fit_logistic(rows, covariance=covariance, method="em", max_rounds=15)
    assert np.diff(found.history).min() > -1e-6


def test_em_and_the_default_agree(small):
    default = fit_logistic(small, covariance="full")
    em = fit_logistic(small, covariance="full", method="em")
    assert default.converged
    assert em.converged
    assert em.rounds > default.rounds
    assert em.log_likelihood == pytest.approx(default.log_likelihood, abs=1e-3)
    np.testing.assert_allclose(em.population.covariance, default.population.covariance, atol=0.02)
    np.testing.assert_allclose(em.population.mean, default.population.mean, atol=0.01)
    np.testing.assert_allclose(em.population.fixed, default.population.fixed, atol=0.01)


def test_no_other_population_has_more_evidence(small):
    """The maximum by quadrature, tried in random directions around it."""
    found = fit_logistic(small, covariance="diagonal")
    shape = CovarianceShape.of(small, "diagonal", 2)
    parts = parts_of(small, 2)
    solve = solver("quadrature", num_classes=2)
    problem = EvidenceProblem(parts=parts, solve=solve, shape=shape, ridge=np.zeros(3), slack=0.0)
    top = LogisticGamma(
        mean=found.population.mean,
        factor=np.sqrt(found.population.covariance),
        fixed=found.population.fixed,
    )
    value, _, memory = problem.at(top, sweeps=50)
    assert value == pytest.approx(found.log_likelihood, abs=1e-6)
    draws = np.random.default_rng(0)
    for _ in range(5):
        other = step_gamma(top, shape, 0.1 * draws.normal(size=5))
        assert problem.at(other, memory, sweeps=50)[0] < value


@pytest.mark.parametrize(
    ("num_groups", "size", "scale", "seed"),
    [
        (200, 8, (0.5, 0.0), 101),
        (200, 8, (0.5, 0.0), 106),
        (30, 6, (2.0, 0.0), 101),
        (30, 6, (2.0, 0.0), 103),
        (30, 6, (2.0, 0.0), 106),
        (50, 10, (1.0, 0.0), 104),
    ],
)
def test_more_freedom_is_more_evidence(num_groups, size, scale, seed):
    """Evidence of full >= of diagonal >= of isotropic, where the maximum is on the boundary."""
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(num_groups), size)
    x = np.column_stack([np.ones(len(place)), draws.normal(size=len(place))])
    theta = draws.normal(size=(num_groups, 2)) * scale + [0, 1]
    y = draws.random(len(place)) < special.expit((x * theta[place]).sum(axis=1))
    rows = GroupedRows.of(x, y.astype(float), place, num_groups)
    kinds = ("isotropic", "diagonal", "full")
    found = [fit_logistic(rows, covariance=kind) for kind in kinds]
    reached = [each.log_likelihood for each in found]
    assert np.diff(reached).min() > -1e-4
    for each in found:
        assert each.converged
        assert each.rounds < 50
        assert np.diff(each.history).min() > -1e-8 * num_groups
        assert each.log_likelihood > max(each.history) - 1e-4
    # the boundary's own neighbors: the covariance turned a little, either way
    top, turned = found[-1].population, 0.02
    for sign in (1, -1):
        turn = np.array([[1, sign * turned], [-sign * turned, 1]])
        other = known(top.mean, turn @ top.covariance @ turn.T)
        assert fit_logistic(rows, prior=other).log_likelihood < reached[-1] + 1e-4


def test_laplace_settles_where_its_score_is_0():
    """40 groups of 6 rows whose second variance goes to 0, where EM alone takes thousands."""
    draws = np.random.default_rng(1)
    place = np.repeat(np.arange(40), 6)
    x = np.column_stack([np.ones(240), draws.normal(size=240)])
    theta = draws.normal([0, 1], 1, size=(40, 2))
    y = draws.random(240) < special.expit((x * theta[place]).sum(axis=1))
    rows = GroupedRows.of(x, y.astype(float), place, 40)
    for kind in ("isotropic", "diagonal", "full"):
        found = fit_logistic(rows, covariance=kind, approximation="laplace")
        assert found.converged
        assert found.rounds < 100
        shape = CovarianceShape.of(rows, kind, 2)
        problem = EvidenceProblem(
            parts=parts_of(rows, 2),
            solve=solver("laplace", num_classes=2),
            shape=shape,
            ridge=np.zeros(2),
            slack=0.0,
        )
        factor = np.linalg.cholesky(found.population.covariance)
        gamma = LogisticGamma(mean=found.population.mean, factor=factor, fixed=np.zeros(0))
        _, totals, _ = problem.at(gamma, sweeps=50)
        assert np.abs(totals.score).max() < 0.05  # of 40 groups, each with scores of about 1


def test_rounds_that_run_out_are_told(small):
    found = fit_logistic(small, covariance="full", max_rounds=2)
    assert not found.converged
    assert any("Not converged: stopped after 2 rounds" in note for note in found.notes)


def test_an_ascent_ends_at_the_best_where_no_step_gains(small):
    """A solve whose evidence has nothing to do with its score: every step falls."""
    solve = solver("quadrature", num_classes=2)
    falls = []

    def lower(*given):
        found, memory = solve(*given)
        falls.append(1.0)
        return found._replace(evidence=found.evidence * 0 - len(falls)), memory

    problem = EvidenceProblem(
        parts=parts_of(small, 2),
        solve=lower,
        shape=CovarianceShape.of(small, "full", 2),
        ridge=np.zeros(3),
        slack=1e-3,
    )
    start = LogisticGamma(mean=np.zeros(2), factor=np.eye(2), fixed=np.zeros(1))
    found = ascend(problem, start, method="default", max_rounds=100, tolerance=1e-8)
    assert found.short
    assert found.converged
    assert found.gamma is start
    assert len(found.history) == 1


def test_a_start_may_lie_on_the_bounds(small):
    top = fit_logistic(small, covariance="full")
    flat = known(top.population.mean, np.zeros((2, 2)), top.population.fixed)
    found = fit_logistic(small, covariance="full", start=flat)
    assert found.log_likelihood == pytest.approx(top.log_likelihood, abs=1e-4)


def test_the_population_is_found():
    """Estimates within QUANTILE of their standard errors of the truth, 1,500 groups of 5 features.

    Detects a variance off by 15% and a mean off by 0.1: Laplace's approximation, which makes 0.5
    of this variance, fails. Propagation itself is allowed its 4%.
    """
    rows, theta = draw(1500, 5, 40, 5, 1.0)
    found = fit_logistic(rows)
    population = found.population
    variance, error = population.covariance[0, 0], population.covariance_errors[0, 0]
    assert abs(variance - 1) < QUANTILE * error + 0.04
    assert 0.02 < error < 0.06
    assert (np.abs(population.mean - MEAN) < QUANTILE * population.mean_errors + 0.02).all()
    inside = np.abs(found.theta - theta) < 1.96 * found.errors
    assert inside.mean() == pytest.approx(0.945, abs=0.015)
    square = ((found.theta - theta) ** 2).sum(axis=1).mean()
    assert square == pytest.approx((found.errors**2).sum(axis=1).mean(), rel=0.1)
    assert "expectation propagation" in found.notes[0]
    assert (found.family, found.method, found.criterion) == ("binomial", "default", "ml")


def test_standard_errors_are_those_of_the_curvature():
    """Outer product of scores (many groups) and differences (few) on the same problem, to 15%."""
    from fedprior.regression.logistic import errors

    rows, _ = draw(1200, 15, 15, 1, 1.0)
    many = fit_logistic(rows).population
    before = errors._MANY
    try:
        errors._MANY = 10**6
        few = fit_logistic(rows).population
    finally:
        errors._MANY = before
    np.testing.assert_allclose(many.mean_errors, few.mean_errors, rtol=0.15)
    np.testing.assert_allclose(
        np.diag(many.covariance_errors), np.diag(few.covariance_errors), rtol=0.15
    )


def test_a_known_prior_is_used_as_it_is():
    rows, theta = draw(300, 0, 4, 2, 1.0)
    prior = known(MEAN[:2], np.eye(2))
    found = fit_logistic(rows, prior=prior)
    assert (found.method, found.rounds, found.population.kind) == ("known", 0, "known")
    empty = rows.sizes == 0
    assert empty.any()
    np.testing.assert_array_equal(found.theta[empty], np.tile(MEAN[:2], (empty.sum(), 1)))
    np.testing.assert_allclose(found.errors[empty], 1.0)
    learned = fit_logistic(rows)
    for fit in (found, learned):
        assert ((fit.theta - theta) ** 2).mean() < 0.99
    point = fit_logistic(rows, prior=known(MEAN[:2], np.zeros((2, 2))))
    np.testing.assert_allclose(point.theta, np.tile(MEAN[:2], (300, 1)), atol=1e-12)


def test_the_order_of_groups_and_features_changes_nothing(small):
    one = fit_logistic(small, covariance="full")
    order = np.random.default_rng(1).permutation(small.num_groups)
    back = np.argsort(order)
    turned = GroupedRows.of(
        small.x[:, ::-1], small.y, back[small.place], small.num_groups, fixed=small.fixed
    )
    two = fit_logistic(turned, covariance="full")
    np.testing.assert_allclose(two.theta[:, ::-1], one.theta[order], atol=2e-3)
    np.testing.assert_allclose(
        two.population.covariance[::-1, ::-1], one.population.covariance, atol=5e-3
    )


def test_groups_that_are_alike_have_no_spread():
    rows, _ = draw(200, 12, 14, 2, 0.0, seed=3)
    found = fit_logistic(rows)
    if found.population.covariance[0, 0] < 1e-4:
        assert any("lower bound" in note for note in found.notes)
        assert np.isnan(found.population.covariance_errors).all()
    assert found.population.covariance[0, 0] < 0.1
    assert (
        np.abs(found.population.mean - MEAN[:2]) < QUANTILE * found.population.mean_errors
    ).all()


def test_groups_of_one_class_each_reach_the_upper_bound():
    y = np.repeat(np.arange(40) < 15, 8).astype(float)
    rows = GroupedRows.of(np.ones((320, 1)), y, np.repeat(np.arange(40), 8), 40)
    found = fit_logistic(rows)
    assert any("upper bound" in note for note in found.notes)
    assert np.isfinite(found.theta).all()


def test_separated_features_are_held_by_a_ridge():
    draws = np.random.default_rng(0)
    x = np.column_stack([np.ones(300), draws.normal(size=300)])
    rows = GroupedRows.of(x, (x[:, 1] > 0).astype(float), np.repeat(np.arange(30), 10), 30)
    found = fit_logistic(rows)
    assert any("separate the classes" in note for note in found.notes)
    assert 5 < found.population.mean[1] < 100


def test_softmax_finds_its_population():
    """Three classes, 2 features, 400 groups: within QUANTILE standard errors and 5% of bias.

    Detects the variance that Laplace's approximation makes of it, 0.7.
    """
    draws = np.random.default_rng(0)
    sizes = np.repeat([5, 12, 25], [100, 200, 100])
    place = np.repeat(np.arange(400), sizes)
    x = np.column_stack([np.ones(len(place)), draws.normal(size=len(place))])
    mean = np.array([[0.5, -1.0], [-0.3, 0.8]])
    theta = mean + draws.normal(size=(400, 2, 2))
    odds = np.einsum("rd,rcd->rc", x, theta[place])
    odds = np.column_stack([np.zeros(len(place)), odds]) + draws.gumbel(size=(len(place), 3))
    rows = GroupedRows.of(x, odds.argmax(axis=1).astype(float), place, 400)
    found = fit_logistic(rows, num_classes=3)
    population = found.population
    assert found.family == "multinomial"
    assert found.theta.shape == (400, 4)
    assert found.converged
    error = population.covariance_errors[0, 0]
    assert abs(population.covariance[0, 0] - 1) < QUANTILE * error + 0.05
    assert error < 0.12
    assert (np.abs(population.mean - mean.ravel()) < QUANTILE * population.mean_errors).all()
    square = ((found.theta - theta.reshape(400, 4)) ** 2).mean()
    assert square < 0.75
    laplace = fit_logistic(rows, num_classes=3, approximation="laplace", tolerance=1e-5)
    assert laplace.population.covariance[0, 0] < population.covariance[0, 0]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_softmax_of_small_groups_does_not_walk_downhill(seed):
    """50 groups of 10 rows: the evidence stays within 0.001 a group of its best, and is returned.

    Detects points whose moments are off where a variance is small, which lowered it by 3 in all.
    """
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(50), 10)
    x = np.column_stack([np.ones(500), draws.normal(size=500)])
    theta = draws.normal(0, 0.5, (50, 2, 2))
    odds = np.column_stack([np.zeros(500), np.einsum("rd,rcd->rc", x, theta[place])])
    y = (odds + draws.gumbel(size=odds.shape)).argmax(axis=1)
    rows = GroupedRows.of(x, y.astype(float), place, 50)
    found = fit_logistic(rows, num_classes=3, covariance="full")
    assert found.converged
    assert found.rounds < 50
    assert min(found.history[np.argmax(found.history) :]) > max(found.history) - 1e-3 * 50
    assert found.log_likelihood == pytest.approx(max(found.history), abs=1e-2)
    assert np.sqrt(np.diag(found.population.covariance)).max() < 1.0


def test_two_classes_by_softmax_are_the_binary_ones():
    """With three classes of which the third is almost never seen, the first odds are binary's."""
    rows, _ = draw(60, 9, 10, 1, 0.8)
    binary = fit_logistic(rows, approximation="laplace")
    prior = known(
        np.array([*binary.population.mean, -40.0]),
        np.diag([binary.population.covariance[0, 0], 1e-8]),
    )
    both = fit_logistic(rows, num_classes=3, approximation="laplace", prior=prior)
    np.testing.assert_allclose(both.theta[:, 0], binary.theta[:, 0], atol=1e-5)


def test_bad_input(small):
    def rows(y, x=None, groups=10):
        x = np.ones((len(y), 1)) if x is None else x
        place = np.arange(len(y)) % groups
        return GroupedRows.of(x, np.asarray(y, float), place, groups)

    some = np.arange(40) % 2
    with pytest.raises(ValueError, match="y must be a class, 0 to 1, got 2"):
        fit_logistic(rows(some * 2))
    with pytest.raises(ValueError, match=r"y must be a class, 0 to 1, got 0\.5"):
        fit_logistic(rows(some / 2))
    with pytest.raises(ValueError, match=r"y must be of all 2 classes, got \[1\]"):
        fit_logistic(rows(np.ones(40)))
    with pytest.raises(ValueError, match="y must be of all 3 classes"):
        fit_logistic(rows(some), num_classes=3)
    doubled = np.ones((40, 2))
    with pytest.raises(ValueError, match="columns do not determine one another, got 'column 1'"):
        fit_logistic(rows(some, doubled))
    with pytest.raises(ValueError, match="largest group must be of at least 2 rows, got 1"):
        fit_logistic(rows(some, groups=40))
    with pytest.raises(ValueError, match="rows must be of at least 2 groups, got 1"):
        fit_logistic(rows(some, groups=1))
    with pytest.raises(ValueError, match="approximation must be laplace or quadrature"):
        fit_logistic(rows(np.arange(40) % 3), num_classes=3, approximation="variational")
    with pytest.raises(ValueError, match="Did you mean laplace"):
        fit_logistic(small, approximation="laplac")
    with pytest.raises(ValueError, match="covariance must be isotropic with paper"):
        fit_logistic(small, method="paper", covariance="full")
    with pytest.raises(ValueError, match="fixed must be without columns"):
        fit_logistic(small, method="paper")
    with pytest.raises(ValueError, match="prior must be for 2 coefficients that vary and 1"):
        fit_logistic(small, prior=known(np.zeros(2), np.eye(2)))
    with pytest.raises(ValueError, match="without negative eigenvalues"):
        fit_logistic(small, prior=known(np.zeros(2), -np.eye(2), [0.0]))


@pytest.mark.evidence
@pytest.mark.parametrize("scale", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("sizes", [(5, 40), (5, 5)])
def test_the_bias_of_each_approximation(scale, sizes):
    """The ratio of the estimated to the true variance, 3,000 groups of 5 features (ERRATA 37)."""
    rows, _ = draw(3000, *sizes, 5, scale)
    ratio, error = {}, {}
    for name in ("laplace", "variational", "expectation-propagation"):
        tolerance = 1e-6 if name == "laplace" else 1e-8
        found = fit_logistic(rows, approximation=name, tolerance=tolerance).population
        ratio[name] = found.covariance[0, 0] / scale**2
        error[name] = found.covariance_errors[0, 0] / scale**2
    assert ratio["laplace"] < ratio["variational"] < ratio["expectation-propagation"]
    bias = 0.06 if sizes[1] > 5 else 0.2
    name = "expectation-propagation"
    assert abs(ratio[name] - 1) < QUANTILE * error[name] + bias


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize(("unit", "zero"), [(5e4, 0.0), (1e-8, 0.0), (9.0, 2005.0)])
def test_units_and_zeros_of_fixed_features_do_not_matter(small, covariance, unit, zero):
    """An income in dollars, a length in light years, a year: odds' beta, its error, and the rest.

    The intercept is that of fixed = 0. Its mean and theta_i have errors that grow with the distance
    of 0 from the rows: mean' = mean - zero beta, of which the covariance is known by a third zero.
    """
    here = fit_linearly_changed(small, covariance, 1.0, 0.0)
    there = fit_linearly_changed(small, covariance, unit, zero)
    for name in ("fixed", "fixed_errors"):
        found, wanted = (getattr(each.population, name) for each in (there, here))
        np.testing.assert_allclose(found * unit, wanted, rtol=1e-5)
    assert there.log_likelihood == pytest.approx(here.log_likelihood, abs=1e-6)
    np.testing.assert_allclose(there.covariances, here.covariances, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        there.population.covariance_errors, here.population.covariance_errors, rtol=1e-3
    )
    away = zero / unit * here.population.fixed[0]
    np.testing.assert_allclose(there.theta[:, 0], here.theta[:, 0] - away, rtol=1e-5)
    np.testing.assert_allclose(there.theta[:, 1], here.theta[:, 1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(there.errors[:, 1], here.errors[:, 1], rtol=1e-4)
    if zero:
        third = fit_linearly_changed(small, covariance, unit, -zero)
        reach = zero / unit * here.population.fixed_errors[0]
        for found, other, wanted in (
            (there.errors[:, 0], third.errors[:, 0], here.errors[:, 0]),
            *[[each.population.mean_errors[:1] for each in (there, third, here)]],
        ):
            middle = (found**2 + other**2) / 2  # the covariance with beta cancels
            np.testing.assert_allclose(middle, wanted**2 + reach**2, rtol=1e-4)


def fit_linearly_changed(rows, covariance, unit, zero):
    return fit_logistic(replace(rows, fixed=zero + unit * rows.fixed), covariance=covariance)


def test_where_zero_lies_does_not_matter_to_a_full_covariance(small):
    """A slope of a feature 40 standard deviations away from 0: no bound of the intercept's spread
    is met, and standard errors are there.
    """
    far = replace(small, x=small.x + np.array([0.0, 40.0]))
    here, there = (fit_logistic(each, covariance="full") for each in (small, far))
    assert there.log_likelihood == pytest.approx(here.log_likelihood, abs=1e-6)
    change = np.array([[1.0, -40.0], [0.0, 1.0]])
    np.testing.assert_allclose(there.theta, here.theta @ change.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        there.population.covariance, change @ here.population.covariance @ change.T, rtol=1e-3
    )
    np.testing.assert_allclose(
        there.population.mean_errors[1], here.population.mean_errors[1], rtol=1e-4
    )
    again = fit_logistic(far, covariance="full", start=there.population)
    assert again.rounds <= 2
    assert again.log_likelihood == pytest.approx(here.log_likelihood, abs=1e-6)


def test_a_start_from_a_sample_leads_to_the_same_maximum():
    """Of 8,400 groups a quarter is fitted first; a start that is given is taken as it is."""
    rows, _ = draw(8400, 2, 4, 1, 1.0)
    sampled = fit_logistic(rows)
    first = known(np.zeros(1), np.eye(1))
    whole = fit_logistic(rows, start=first)
    assert sampled.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-3)
    assert sampled.population.mean == pytest.approx(whole.population.mean, abs=1e-3)


def test_many_coefficients_converge_in_few_rounds():
    """Mean and variance pull each other: with separate steps this took 40 rounds, now 14."""
    draws = np.random.default_rng(0)
    place = np.repeat(np.arange(150), 15)
    x = np.column_stack([np.ones(len(place)), draws.normal(size=(len(place), 14))])
    theta = draws.normal(0.2, 0.5, (150, 15))
    y = draws.random(len(place)) < special.expit((x * theta[place]).sum(axis=1))
    found = fit_logistic(GroupedRows.of(x, y, place, 150))
    assert found.converged
    assert found.rounds <= 25
