"""Personal linear regression against dense Gaussian algebra, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedprior.regression.linear import fit_linear, local_linear, pooled_linear
from fedprior.regression.linear.likelihood import covariance_profile, natural_slope, profile_slope
from fedprior.regression.linear.pooled import dependent_columns, triangle
from fedprior.regression.linear.reduction import reduce
from fedprior.regression.result import RegressionPopulation
from fedprior.regression.rows import GroupedRows

FALSE_ALARM = 1e-6
COVARIANCES = ["isotropic", "diagonal", "full"]
CRITERIA = ["ml", "reml"]


def drawn(seed=0, groups=12, sizes=(0, 7), d=3, p=1, covariance=None, noise=0.5):
    """Unequal groups, some empty, some smaller than d; an intercept among the features."""
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(groups), draws.integers(*sizes, groups, endpoint=True))
    x = np.column_stack([np.ones(len(place)), draws.normal(2, 1.5, (len(place), d - 1))])
    covariance = np.diag(np.linspace(1, 0.3, d)) if covariance is None else covariance
    theta = np.arange(1, d + 1) + draws.multivariate_normal(np.zeros(d), covariance, groups)
    fixed = draws.normal(size=(len(place), p))
    y = (x * theta[place]).sum(axis=1) + fixed.sum(axis=1)
    y += np.sqrt(noise) * draws.normal(size=len(place))
    return GroupedRows.of(x, y, place, groups, fixed=fixed), theta


def dense(rows, covariance, noise):
    """V (rows, rows) and Z (rows, d + p), with nothing clever."""
    same = rows.place[:, None] == rows.place[None]
    total = np.where(same, rows.x @ covariance @ rows.x.T, 0.0)
    return total + noise * np.eye(rows.num_rows), np.column_stack([rows.x, rows.fixed])


def dense_log_likelihood(rows, covariance, noise, criterion):
    """At the generalized least squares coefficients."""
    total, design = dense(rows, covariance, noise)
    inverse = np.linalg.inv(total)
    normal = design.T @ inverse @ design
    residual = rows.y - design @ np.linalg.solve(normal, design.T @ inverse @ rows.y)
    found = stats.multivariate_normal(cov=total).logpdf(residual)
    if criterion == "reml":
        constant = design.shape[1] * np.log(2 * np.pi)
        found += (constant - np.linalg.slogdet(normal)[1]) / 2
    return found


def known(mean, covariance, noise, fixed=()):
    return RegressionPopulation(
        kind="known",
        mean=np.asarray(mean, float),
        covariance=np.asarray(covariance, float),
        components=(),
        fixed=np.asarray(fixed, float),
        noise_variance=noise,
    )


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_likelihood_is_the_dense_one_and_at_its_maximum(covariance, criterion):
    rows, _ = drawn(groups=25)
    fit = fit_linear(rows, covariance=covariance, criterion=criterion)
    found = fit.population
    best = dense_log_likelihood(rows, found.covariance, found.noise_variance, criterion)
    assert fit.converged
    assert fit.log_likelihood == pytest.approx(best, abs=1e-8)
    draws = np.random.default_rng(1)
    for _ in range(20):
        if covariance == "full":
            move = np.eye(3) + 0.02 * draws.normal(size=(3, 3))
        else:
            move = np.diag(np.exp(0.02 * draws.normal(size=1 if covariance != "diagonal" else 3)))
            move = move if covariance == "diagonal" else move * np.eye(3)
        other = move @ found.covariance @ move.T
        noise = found.noise_variance * np.exp(0.02 * draws.normal())
        assert dense_log_likelihood(rows, other, noise, criterion) < best + 1e-9


@pytest.mark.parametrize("criterion", CRITERIA)
def test_coefficients_theta_and_errors_solve_the_mixed_model_equations(criterion):
    """Henderson's equations: the inverse of their matrix holds every prediction error."""
    rows, _ = drawn(seed=2, groups=40, d=2)
    fit = fit_linear(rows, covariance="full", criterion=criterion)
    found, width = fit.population, rows.num_features
    design = np.column_stack([rows.x, rows.fixed])
    effects = np.zeros((rows.num_rows, rows.num_groups * width))
    for row, group in enumerate(rows.place):
        effects[row, group * width : (group + 1) * width] = rows.x[row]
    both = np.column_stack([design, effects])
    prior = np.linalg.inv(found.covariance)
    penalty = np.zeros((both.shape[1],) * 2)
    penalty[design.shape[1] :, design.shape[1] :] = np.kron(np.eye(rows.num_groups), prior)
    matrix = both.T @ both / found.noise_variance + penalty
    answer = np.linalg.solve(matrix, both.T @ rows.y / found.noise_variance)
    table = np.linalg.inv(matrix)
    assert np.allclose(np.append(found.mean, found.fixed), answer[: design.shape[1]], rtol=1e-7)
    errors = np.sqrt(np.diag(table))[: design.shape[1]]
    assert np.allclose(np.append(found.mean_errors, found.fixed_errors), errors, rtol=1e-6)
    for group in range(rows.num_groups):
        pick = np.zeros((width, both.shape[1]))
        own = design.shape[1] + group * width + np.arange(width)
        pick[np.arange(width), np.arange(width)] = pick[np.arange(width), own] = 1.0
        assert np.allclose(fit.theta[group], pick @ answer, atol=1e-7)
        wanted = np.sqrt(np.diag(pick @ table @ pick.T))
        assert np.allclose(fit.errors[group], wanted, rtol=1e-6)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    covariance=st.sampled_from(COVARIANCES),
    restricted=st.booleans(),
    d=st.integers(1, 4),
)
def test_slopes_against_differences(seed, covariance, restricted, d):
    rows, _ = drawn(seed=seed, d=d, groups=9, sizes=(2, 6))
    reduction = reduce(rows, triangle(rows), covariance)
    draws = np.random.default_rng(seed)
    root = draws.normal(size=(d, d))
    relative = {
        "isotropic": np.asarray(np.exp(draws.normal())),
        "diagonal": np.exp(draws.normal(size=d)),
        "full": root @ root.T + 0.1 * np.eye(d),
    }[covariance]
    move = draws.normal(size=relative.shape)
    move = move + move.T if covariance == "full" else move

    def value(step):
        found = covariance_profile(reduction, relative + step * move, restricted=restricted)
        return profile_slope(found, reduction, restricted=restricted)

    step = 1e-6
    difference = (value(step)[0] - value(-step)[0]) / (2 * step)
    assert np.sum(value(0)[1] * move) == pytest.approx(difference, rel=1e-4, abs=1e-6)
    found = covariance_profile(reduction, relative, restricted=restricted)
    noise = found.squares / (rows.num_rows - restricted * (d + 1))
    by_noise, by_covariance = natural_slope(found, reduction, noise, restricted=restricted)
    chain = np.sum(by_covariance * relative) + by_noise
    assert chain == pytest.approx(0, abs=1e-6 * rows.num_rows / noise)  # noise is at its maximum
    half = (rows.num_rows - restricted * (d + 1)) / 2
    assert np.allclose(by_covariance * noise, half * value(0)[1], rtol=1e-8)


def test_variance_errors_are_the_curvature_of_the_dense_likelihood():
    rows, _ = drawn(seed=3, groups=30)
    fit = fit_linear(rows, criterion="reml")
    found = fit.population
    base = np.array([found.covariance[0, 0], found.noise_variance])

    def value(point):
        return -dense_log_likelihood(rows, point[0] * np.eye(3), point[1], "reml")

    steps = np.diag(1e-3 * base)
    curvature = np.array(
        [
            [
                value(base + a + b)
                - value(base + a - b)
                - value(base - a + b)
                + value(base - a - b)
                for b in steps
            ]
            for a in steps
        ]
    ) / (4 * np.outer(np.diag(steps), np.diag(steps)))
    errors = np.sqrt(np.diag(np.linalg.inv(curvature)))
    assert found.covariance_errors[0, 0] == pytest.approx(errors[0], rel=1e-3)
    assert found.noise_error == pytest.approx(errors[1], rel=1e-3)


def test_full_fit_does_not_depend_on_the_units_or_the_order():
    rows, _ = drawn(seed=4, groups=30)
    fit = fit_linear(rows, covariance="full", criterion="reml")
    mixing = np.array([[1.0, -2000.0, 0.3], [0, 1e3, 1], [0, 0, 1e-3]])
    other = GroupedRows(x=rows.x @ mixing, fixed=rows.fixed, y=1e3 * rows.y, start=rows.start)
    again = fit_linear(other, covariance="full", criterion="reml")
    assert np.allclose(again.theta @ mixing.T, 1e3 * fit.theta, rtol=1e-5, atol=1e-3)
    order = np.random.default_rng(0).permutation(rows.num_groups)
    place = np.argsort(order)[rows.place]
    turned = GroupedRows.of(rows.x, rows.y, place, rows.num_groups, fixed=rows.fixed)
    third = fit_linear(turned, covariance="full", criterion="reml")
    assert np.allclose(third.theta, fit.theta[order], rtol=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_estimates_are_within_their_errors_of_the_truth(covariance):
    """Each z beyond 5.2 has probability FALSE_ALARM / 5: a bias of a tenth of a spread is seen."""
    truth = {"isotropic": 0.4 * np.eye(3), "diagonal": np.diag([1.0, 0.5, 0.25])}
    truth["full"] = np.array([[1.0, 0.3, 0.2], [0.3, 0.5, -0.1], [0.2, -0.1, 0.4]])
    rows, theta = drawn(seed=5, groups=1500, sizes=(1, 6), covariance=truth[covariance], p=0)
    fit = fit_linear(rows, covariance=covariance, criterion="reml")
    found = fit.population
    limit = stats.norm.isf(FALSE_ALARM / 10)
    assert (np.abs(found.mean - [1, 2, 3]) < limit * found.mean_errors).all()
    free = found.covariance_errors > 0
    apart = np.abs(found.covariance - truth[covariance])
    assert (apart[free] < limit * found.covariance_errors[free]).all()
    assert abs(found.noise_variance - 0.5) < limit * found.noise_error
    # (theta^ - theta) / errors have mean square 1, its standard error sqrt(2 / 1500) or less
    square = np.mean(((fit.theta - theta) / fit.errors) ** 2)
    assert abs(square - 1) < stats.norm.isf(FALSE_ALARM / 2) * np.sqrt(2 / 1500)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_without_spread_theta_is_pooled(covariance, criterion):
    """Residuals made orthogonal to every group's own x leave nothing between groups."""
    draws = np.random.default_rng(6)
    x = np.concatenate([np.ones((20, 6, 1)), draws.normal(size=(20, 6, 1))], axis=2)
    noise = draws.normal(size=(20, 6, 1))
    noise -= x @ np.linalg.pinv(x) @ noise
    y = (x @ [1.0, 2.0] + noise[..., 0]).ravel()
    rows = GroupedRows.of(x.reshape(-1, 2), y, np.repeat(np.arange(20), 6), 20)
    fit = fit_linear(rows, covariance=covariance, criterion=criterion)
    assert (fit.population.covariance == 0).all()
    assert np.isnan(np.diag(fit.population.covariance_errors)).all()
    assert np.isfinite(fit.population.noise_error)
    assert np.allclose(fit.theta, [1.0, 2.0], atol=1e-8)
    assert any("No variation between groups" in note for note in fit.notes)


def test_one_spread_of_several_is_zero():
    draws = np.random.default_rng(7)
    x = np.concatenate([np.ones((40, 6, 1)), draws.normal(size=(40, 6, 1))], axis=2)
    noise = 0.3 * draws.normal(size=(40, 6, 1))
    noise -= x @ np.linalg.pinv(x) @ noise
    y = (x @ [1.0, 2.0] + noise[..., 0] + draws.normal(size=(40, 1))).ravel()
    rows = GroupedRows.of(x.reshape(-1, 2), y, np.repeat(np.arange(40), 6), 40)
    fit = fit_linear(rows, covariance="diagonal")
    assert fit.population.covariance[1, 1] == 0
    assert fit.population.covariance[0, 0] > 0.3
    assert "No variation between groups was found in x column 1." in fit.notes
    full = fit_linear(rows, covariance="full")
    assert any("covariance is singular" in note for note in full.notes)
    assert full.log_likelihood >= fit.log_likelihood - 1e-6


def test_known_prior_is_theorem_6():
    rows, _ = drawn(seed=8, groups=8, sizes=(0, 6), p=0)
    prior = known([1, 2, 3], np.diag([0.5, 0.4, 0.3]), 0.7)
    fit = fit_linear(rows, prior=prior)
    inverse = np.diag([1 / 0.5, 1 / 0.4, 1 / 0.3])
    for group in range(8):
        own = rows.place == group
        x, y = rows.x[own], rows.y[own]
        sigma = np.linalg.inv(inverse + x.T @ x / 0.7)
        assert np.allclose(fit.theta[group], sigma @ (x.T @ y / 0.7 + inverse @ prior.mean))
        assert np.sum(fit.errors[group] ** 2) == pytest.approx(np.trace(sigma))
    assert fit.population is prior


def test_local_answers_only_in_the_directions_it_sees():
    """ERRATA 29: without noise X^+ y = P theta; a wide known prior adds (I - P) mean."""
    draws = np.random.default_rng(9)
    x, theta = draws.normal(size=(6, 3, 5)), draws.normal(size=(6, 5))
    y = (x @ theta[..., None])[..., 0]
    rows = GroupedRows.of(x.reshape(-1, 5), y.ravel(), np.repeat(np.arange(6), 3), 6)
    seen = np.linalg.pinv(x) @ x
    local = local_linear(rows)
    assert np.allclose(local, (seen @ theta[..., None])[..., 0])
    mean = np.arange(5.0)
    wide = fit_linear(rows, prior=known(mean, 1e6 * np.eye(5), 1e-3)).theta
    assert np.allclose(wide, local + (np.eye(5) - seen) @ mean, atol=1e-5)


def test_local_takes_the_pooled_fixed_coefficients():
    rows, _ = drawn(seed=10, p=2, sizes=(0, 9))
    beta = pooled_linear(rows)[0][3:]
    local = local_linear(rows)
    own = rows.place == 3
    wanted = np.linalg.pinv(rows.x[own]) @ (rows.y[own] - rows.fixed[own] @ beta)
    assert np.allclose(local[3], wanted)
    assert (local[rows.sizes == 0] == 0).all()


def test_pooled_does_not_depend_on_units():
    """A fixed feature of another unit, far from 0, is not taken for a copy of the intercept."""
    draws = np.random.default_rng(3)
    far = 1e6 + draws.normal(size=(200, 1))
    y = 2 * (far[:, 0] - 1e6) + draws.normal(size=200)
    rows = GroupedRows.of(np.ones((200, 1)), y, np.arange(200) % 10, 10, fixed=far)
    coefficients, errors = pooled_linear(rows)
    wanted = stats.linregress(far[:, 0] - 1e6, y)
    assert coefficients[1] == pytest.approx(wanted.slope, rel=1e-6)
    assert errors[1] == pytest.approx(wanted.stderr, rel=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_small_noise_is_not_called_none(covariance):
    """Groups that differ a million times as much as their rows do still show the noise."""
    draws = np.random.default_rng(4)
    place = np.repeat(np.arange(20), 15)
    x = np.column_stack([np.ones(300), draws.normal(size=300)])
    theta = 1e5 * draws.normal(size=(20, 2))
    y = (x * theta[place]).sum(axis=1) + 0.5 * draws.normal(size=300)
    fit = fit_linear(GroupedRows.of(x, y, place, 20), covariance=covariance, criterion="reml")
    assert fit.population.noise_variance == pytest.approx(0.25, rel=0.3)
    assert any(note.startswith("The noise is tiny") for note in fit.notes)
    assert not any("No noise was found" in note for note in fit.notes)


def test_pooled_is_least_squares():
    rows, _ = drawn(seed=11)
    design = np.column_stack([rows.x, rows.fixed])
    coefficients, errors = pooled_linear(rows)
    wanted, squares, *_ = np.linalg.lstsq(design, rows.y)
    assert np.allclose(coefficients, wanted)
    noise = squares[0] / (rows.num_rows - 4)
    assert np.allclose(errors, np.sqrt(noise * np.diag(np.linalg.inv(design.T @ design))))
    twice = GroupedRows(x=rows.x, fixed=rows.x, y=rows.y, start=rows.start)
    shared, _ = pooled_linear(twice)
    assert np.allclose(shared[:3], shared[3:])
    assert dependent_columns(twice) == [("fixed", 0), ("fixed", 1), ("fixed", 2)]


@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_triangle_by_both_decompositions(shift):
    """A column far from 0 beside an intercept is near to collinear: the careful way is taken."""
    rows, _ = drawn(seed=12)
    x = rows.x + np.array([0, shift, 0])
    moved = GroupedRows(x=x, fixed=rows.fixed, y=rows.y, start=rows.start)
    table = np.column_stack([x, rows.fixed, rows.y])
    wanted = np.linalg.qr(table, mode="r")
    assert np.allclose(np.abs(triangle(moved)), np.abs(wanted), rtol=1e-6, atol=1e-8)


def test_a_start_leads_to_the_same_fit():
    rows, _ = drawn(seed=13, groups=30)
    fit = fit_linear(rows, covariance="full")
    again = fit_linear(rows, covariance="full", start=fit.population)
    assert again.rounds < fit.rounds
    assert np.allclose(again.theta, fit.theta, atol=1e-5)


def refused(rows, match, **options):
    with pytest.raises(ValueError, match=match):
        fit_linear(rows, **options)


def test_what_cannot_be_told_apart_is_refused():
    draws = np.random.default_rng(14)
    single = GroupedRows.of(np.ones((30, 1)), draws.normal(size=30), np.arange(30), 30)
    for covariance in COVARIANCES:
        refused(single, "distinguish the variance of theta from the noise", covariance=covariance)
    balanced = np.tile([[1.0, 0.0], [1.0, 1.0]], (30, 1))
    pairs = GroupedRows.of(balanced, draws.normal(size=60), np.repeat(np.arange(30), 2), 30)
    refused(pairs, "distinguish the variance of theta from the noise", covariance="full")
    assert fit_linear(pairs, covariance="diagonal").converged


def test_bad_rows_are_refused():
    rows, _ = drawn(seed=15, p=1)

    def changed(**parts):
        return GroupedRows(
            **{"x": rows.x, "fixed": rows.fixed, "y": rows.y, "start": rows.start} | parts
        )

    refused(changed(x=rows.x * [1, 0, 1]), "x must be a table whose columns .* got 'column 1'")
    refused(changed(fixed=np.ones((rows.num_rows, 1))), "fixed must be .* got 'column 0'")
    refused(changed(y=np.full(rows.num_rows, 3.0)), "y is an exact linear combination")
    refused(changed(start=np.array([0, rows.num_rows])), "rows must be of at least 2 groups")
    few = GroupedRows.of(np.eye(3), np.arange(3.0), np.arange(3), 3)
    refused(few, "rows must be more than the 3 coefficients, got 3")
    level = np.random.default_rng(0).normal(size=rows.num_groups)[rows.place]
    constant = changed(x=rows.x[:, :1], fixed=np.empty((rows.num_rows, 0)), y=level)
    refused(constant, "y has no noise within groups")


def test_bad_options_are_refused():
    rows, _ = drawn(seed=16)
    refused(rows, "Did you mean diagonal", covariance="diagnal")
    refused(rows, "criterion must be ml with em, got 'reml'", method="em", criterion="reml")
    refused(rows, "covariance must be isotropic with paper", method="paper", covariance="full")
    refused(rows, "fixed must be without columns", method="paper")
    refused(rows, "prior must be for 3 coefficients", prior=known([1, 2], np.eye(2), 1.0))
    noiseless = known([1, 2, 3], np.eye(3), None, [0])
    refused(rows, "prior must be with a positive noise variance", prior=noiseless)
    negative = known([1, 2, 3], -np.eye(3), 1.0, [0])
    refused(rows, "without negative eigenvalues", start=negative)
    refused(rows, "rate must be in", method="em", rate=2.0)
