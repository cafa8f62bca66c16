"""Mixtures of linear regressions: densities, EM's laws, the oracle, one component, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from fedprior.regression.linear import fit_linear
from fedprior.regression.mixture import em, fit_mixture
from fedprior.regression.mixture.linear import LinearEvidence, linear_mixture_totals
from fedprior.regression.mixture.parts import MixtureParameters
from fedprior.regression.mixture.search import without_dead
from fedprior.regression.mixture.start import MixtureProblem
from fedprior.regression.mixture.totals import move_means, move_spreads, sum_totals
from fedprior.regression.result import Component, RegressionPopulation
from fedprior.regression.rows import GroupedRows

CENTERS, SHARES = np.array([[1.0, 0, -1], [-1, 1, 0], [0, -1, 1]]), np.array([0.5, 0.3, 0.2])


def draw(seed, sizes, *, centers=CENTERS, shares=SHARES, scale=0.0, noise=1.0, fixed=()):
    """Rows of groups whose theta is N(center, scale^2 I), and the thetas."""
    draws = np.random.default_rng(seed)
    number = len(sizes)
    theta = centers[draws.choice(len(centers), number, p=shares)]
    theta = theta + scale * draws.normal(size=theta.shape)
    place = np.repeat(np.arange(number), sizes)
    x = draws.normal(size=(len(place), centers.shape[1]))
    more = draws.normal(size=(len(place), len(fixed)))
    y = (x * theta[place]).sum(axis=1) + more @ np.array(fixed)
    y = y + np.sqrt(noise) * draws.normal(size=len(place))
    return GroupedRows.of(x, y, place, number, fixed=more), theta


def population(*, scale=0.0, noise=1.0, centers=CENTERS, shares=SHARES, fixed=()):
    size = centers.shape[1]
    spread = scale**2 * np.eye(size) if np.ndim(scale) == 0 else np.asarray(scale)
    parts = [
        Component(share=share, mean=center, covariance=spread)
        for share, center in zip(shares, centers, strict=True)
    ]
    return RegressionPopulation(
        kind="known",
        mean=shares @ centers,
        covariance=np.eye(size),
        components=tuple(parts),
        fixed=np.array(fixed, float),
        noise_variance=noise,
    )


def error(fit, theta):
    return float(((fit.theta - theta) ** 2).sum(axis=1).mean())


def random_parts(seed, count, size, num_fixed, *, spread, covariance):
    draws = np.random.default_rng(seed)
    factor = draws.normal(size=(count, size, size))
    covariances = factor @ np.swapaxes(factor, 1, 2) + 0.1 * np.eye(size)
    if covariance == "isotropic":
        covariances = covariances[:, :1, :1] * np.eye(size)
    if covariance == "diagonal":
        covariances = covariances * np.eye(size)
    return MixtureParameters(
        draws.dirichlet(np.ones(count)),
        2 * draws.normal(size=(count, size)),
        covariances if spread == "component" else 0 * covariances,
        draws.normal(size=num_fixed),
        0.7,
    )


class TestKnownPopulation:
    @pytest.mark.parametrize(
        "scale", [0.0, 0.6, [[0.5, 0.1, 0], [0.1, 0.3, 0], [0, 0, 0.9]]], ids=str
    )
    def test_densities_and_posteriors_are_scipys(self, scale):
        """Dense Gaussians group by group; sizes below and above the number of features, and 0."""
        rows, _ = draw(1, np.array([1, 2, 0, 5, 9, 3, 9]), fixed=(0.5, -1.0))
        prior = population(scale=scale, noise=0.8, fixed=(0.4, -0.9))
        found = fit_mixture(rows, prior=prior)
        total = 0.0
        for group in range(rows.num_groups):
            own = slice(*rows.start[group : group + 2])
            x, y = rows.x[own], rows.y[own] - rows.fixed[own] @ prior.fixed
            logits, thetas, spreads = [], [], []
            for part in prior.components:
                whole = 0.8 * np.eye(len(y)) + x @ part.covariance @ x.T
                left = y - x @ part.mean
                density = stats.multivariate_normal(cov=whole).logpdf(left) if len(y) else 0.0
                logits.append(np.log(part.share) + density)
                gain = part.covariance @ x.T @ np.linalg.inv(whole)
                thetas.append(part.mean + gain @ left)
                spreads.append(part.covariance - gain @ x @ part.covariance)
            alpha = np.exp(np.array(logits) - logsumexp(logits))
            theta = alpha @ np.array(thetas)
            second = alpha @ (np.diagonal(spreads, axis1=1, axis2=2) + np.array(thetas) ** 2)
            np.testing.assert_allclose(found.responsibilities[group], alpha, atol=1e-12)
            np.testing.assert_allclose(found.theta[group], theta, rtol=1e-8)
            np.testing.assert_allclose(found.errors[group] ** 2, second - theta**2, atol=1e-8)
            total += logsumexp(logits)
        assert found.log_likelihood == pytest.approx(total)
        assert found.method == "known"

    def test_no_underflow(self):
        """Plain exponentials would all be 0 (ERRATA 21)."""
        rows, _ = draw(0, np.full(3, 400), noise=1e-6)
        found = fit_mixture(rows, prior=population(noise=1e-6))
        assert np.isfinite(found.log_likelihood)
        np.testing.assert_allclose(found.responsibilities.sum(axis=1), 1)

    def test_errors_are_calibrated(self):
        """Mean square of (theta - truth) / error is 1; an error off by 3% would be detected."""
        false_alarm = 1e-6
        rows, theta = draw(2, np.full(20_000, 4), scale=0.5)
        found = fit_mixture(rows, prior=population(scale=0.5))
        ratio = ((found.theta - theta) ** 2 / found.errors**2).mean(axis=1)
        far = stats.norm.isf(false_alarm / 2) * ratio.std() / np.sqrt(len(ratio))
        assert far < 0.06
        assert abs(ratio.mean() - 1) < far


class TestLaws:
    @settings(max_examples=10, deadline=None)
    @given(
        seed=st.integers(0, 2**20),
        count=st.integers(1, 4),
        form=st.sampled_from(["none", "isotropic", "diagonal", "full"]),
        most=st.integers(1, 9),
    )
    def test_em_never_lowers_the_likelihood(self, seed, count, form, most):
        sizes = np.random.default_rng(seed).integers(0, most, 30, endpoint=True)
        sizes[0] = 2
        rows, _ = draw(seed, sizes, scale=0.4, fixed=(1.0,))
        spread = "none" if form == "none" else "component"
        covariance = "isotropic" if form == "none" else form
        problem = MixtureProblem(rows, "gaussian", 2, None)
        rules = problem.rules(spread, covariance)
        evidence = problem.evidence(rules)
        parts = random_parts(seed, count, 3, 1, spread=spread, covariance=covariance)
        levels = []
        for _ in range(6):
            parts, level = em.mixture_em_step(evidence, parts, rules, exact=True)
            levels.append(level)
        slack = 1e-9 * (1 + np.abs(levels).max())
        assert (np.diff(levels) > -slack).all()
        climbed = em.climb(evidence, parts, rules, exact=True, most_rounds=5, tolerance=1e-9)
        assert (np.diff(climbed.history) > -slack).all()

    def test_messages_add(self):
        """Totals of two halves of the groups sum to those of all, for every field."""
        rows, _ = draw(3, np.full(20, 4))
        rules = MixtureProblem(rows, "gaussian", 2, None).rules("component", "full")
        parts = random_parts(0, 2, 3, 0, spread="component", covariance="full")
        first = np.arange(20) < 8
        halves = [rows.subset(keep[rows.place]) for keep in (first, ~first)]
        apart = sum_totals(LinearEvidence.of(half, rules).total(parts) for half in halves)
        for one, other in zip(apart, LinearEvidence.of(rows, rules).total(parts), strict=True):
            np.testing.assert_allclose(one, other)

    def test_a_step_of_the_discrete_mixture_is_d4s(self):
        """mean_l = (sum alpha X'X)^-1 sum alpha X'y and the noise, written out by group."""
        rows, _ = draw(4, np.arange(12))
        problem = MixtureProblem(rows, "gaussian", 2, None)
        rules = problem.rules("none", "isotropic")
        parts = MixtureParameters(SHARES, CENTERS + 0.2, np.zeros((3, 3, 3)), np.empty(0), 0.9)
        batches = LinearEvidence.of(rows, rules).batches
        found = move_means(
            sum_totals(linear_mixture_totals(batch, parts) for batch in batches), parts, rules
        )
        square, cross, counts, alphas = np.zeros((3, 3, 3)), np.zeros((3, 3)), np.zeros(3), []
        for group in range(1, 12):
            own = slice(*rows.start[group : group + 2])
            x, y = rows.x[own], rows.y[own]
            left = ((y - parts.means @ x.T) ** 2).sum(axis=1)
            logits = np.log(SHARES) - left / (2 * 0.9)
            alpha = np.exp(logits - logsumexp(logits))
            alphas.append(alpha)
            counts += alpha
            square += alpha[:, None, None] * (x.T @ x)
            cross += alpha[:, None] * (x.T @ y)
        means = np.linalg.solve(square, cross[:, :, None])[:, :, 0]
        np.testing.assert_allclose(found.means, means, rtol=1e-8)
        np.testing.assert_allclose(found.shares, counts / 11)
        squares = 0.0
        for group, alpha in zip(range(1, 12), alphas, strict=True):
            own = slice(*rows.start[group : group + 2])
            squares += alpha @ ((rows.y[own] - means @ rows.x[own].T) ** 2).sum(axis=1)
        assert found.noise == pytest.approx(squares / rows.num_rows)

    def test_spreads_are_the_mean_outer_products_plus_posterior_covariances(self):
        """D5's update with every group's theta and Sigma at hand."""
        rows, _ = draw(5, np.full(15, 5), scale=0.5)
        problem = MixtureProblem(rows, "gaussian", 2, None)
        rules = problem.rules("component", "full")
        parts = random_parts(2, 2, 3, 0, spread="component", covariance="full")
        evidence = problem.evidence(rules)
        found = move_spreads(evidence.total(parts), parts, rules)
        known = evidence.posterior(parts)
        noise = 0.0
        for place in range(2):
            whole = np.zeros((3, 3))
            covariance, mean = parts.covariances[place], parts.means[place]
            for group in range(15):
                own = slice(*rows.start[group : group + 2])
                x, y = rows.x[own], rows.y[own]
                spread = np.linalg.inv(np.linalg.inv(covariance) + x.T @ x / parts.noise)
                theta, alpha = known.theta[group, place], known.responsibilities[group, place]
                whole += alpha * (np.outer(theta - mean, theta - mean) + spread)
                left = y - x @ theta
                noise += alpha * (left @ left + np.trace(x @ spread @ x.T))
            whole /= known.responsibilities[:, place].sum()
            np.testing.assert_allclose(found.covariances[place], whole, rtol=1e-8)
        assert found.noise == pytest.approx(noise / rows.num_rows)


class TestFit:
    @pytest.mark.parametrize(("spread", "scale"), [("none", 0.0), ("component", 0.3)])
    def test_is_within_one_percent_of_the_oracle(self, spread, scale):
        """Same groups for both, so that only the learned parameters make a difference."""
        sizes = np.random.default_rng(1).integers(0, 8, 1500)
        rows, theta = draw(0, sizes, scale=scale, fixed=(1.0, 2.0))
        found = fit_mixture(rows, num_components=3, spread=spread, restarts=3)
        known = fit_mixture(rows, prior=population(scale=scale, fixed=(1.0, 2.0)))
        assert error(found, theta) < 1.01 * error(known, theta)
        assert found.converged
        assert found.log_likelihood > known.log_likelihood  # a maximum
        np.testing.assert_allclose(found.population.fixed, [1, 2], atol=0.05)
        np.testing.assert_allclose(found.population.noise_variance, 1, atol=0.06)
        shares = [part.share for part in found.population.components]
        np.testing.assert_allclose(shares, SHARES, atol=0.06)
        empty = sizes == 0
        np.testing.assert_allclose(found.theta[empty] - found.population.mean, 0, atol=1e-12)
        np.testing.assert_allclose(
            found.errors[empty] ** 2 - np.diag(found.population.covariance), 0, atol=1e-12
        )

    @pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
    def test_one_component_is_the_linear_fit(self, covariance):
        rows, _ = draw(0, np.full(200, 6), scale=0.5, centers=CENTERS[:1], shares=SHARES[:1] * 2)
        found = fit_mixture(rows, num_components=1, covariance=covariance)
        other = fit_linear(rows, covariance=covariance)
        assert found.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-4)
        np.testing.assert_allclose(found.population.mean, other.population.mean, atol=1e-4)
        np.testing.assert_allclose(
            found.population.covariance, other.population.covariance, atol=1e-3
        )
        np.testing.assert_allclose(found.theta, other.theta, atol=1e-3)

    def test_fewer_rows_than_features(self):
        """The joint mode collapses here (ERRATA 31); EM keeps the spread within 20%."""
        draws = np.random.default_rng(3)
        centers = draws.normal(size=(2, 8))
        options = {"centers": centers, "shares": np.array([0.5, 0.5]), "scale": 0.5}
        rows, theta = draw(6, np.full(1000, 5), **options)
        found = fit_mixture(rows, num_components=2, restarts=3)
        known = fit_mixture(rows, prior=population(**options))
        assert error(found, theta) < 1.03 * error(known, theta)
        for part in found.population.components:
            assert part.covariance[0, 0] == pytest.approx(0.25, rel=0.2)

    def test_bic_finds_the_number(self):
        rows, _ = draw(7, np.full(250, 10), noise=0.25)
        found = fit_mixture(rows, spread="none", restarts=2)
        assert len(found.population.components) == 3
        assert any("3 components picked by BIC" in note for note in found.notes)

    def test_members_that_do_not_differ_lie_on_the_floor(self):
        rows, theta = draw(8, np.full(300, 12), noise=0.2)
        found = fit_mixture(rows, num_components=3, restarts=3)
        assert any("its floor" in note for note in found.notes)
        for part in found.population.components:
            assert part.covariance[0, 0] < 0.02
        assert error(found, theta) < 0.05

    def test_a_component_that_dies_is_removed(self):
        rows, _ = draw(9, np.full(50, 8))
        problem = MixtureProblem(rows, "gaussian", 2, None)
        rules = problem.rules("none", "isotropic")
        far = np.concatenate([CENTERS, np.full((1, 3), 80.0)])
        start = MixtureParameters(np.full(4, 0.25), far, np.zeros((4, 3, 3)), np.empty(0), 1.0)
        evidence = problem.evidence(rules)
        climbed = em.climb(evidence, start, rules, exact=True, most_rounds=50, tolerance=1e-6)
        found, notes = without_dead(problem, evidence, rules, climbed)
        assert len(found.parts.shares) == 3
        assert notes == ("1 of 4 components had no members and were removed.",)
        assert found.parts.shares.sum() == pytest.approx(1)
        assert found.log_likelihood == pytest.approx(climbed.log_likelihood, abs=1e-6)

    def test_is_reproducible_and_knows_the_noise(self):
        rows, _ = draw(10, np.full(60, 5))
        options = {"num_components": 2, "spread": "none", "noise_variance": 1.5, "seed": 3}
        first, second = (fit_mixture(rows, **options) for _ in range(2))
        np.testing.assert_array_equal(first.theta, second.theta)
        assert first.population.noise_variance == 1.5

    def test_units_do_not_matter(self):
        """Targets and features in other units: the same fit in those units."""
        rows, _ = draw(11, np.full(80, 6))
        other = GroupedRows(x=100 * rows.x, fixed=rows.fixed, y=1e-3 * rows.y, start=rows.start)
        options = {"num_components": 3, "spread": "none", "restarts": 3}
        first, second = fit_mixture(rows, **options), fit_mixture(other, **options)
        np.testing.assert_allclose(second.theta * 1e5, first.theta, atol=1e-4)


class TestBadInput:
    def test_collinear_features_are_told(self):
        rows, _ = draw(12, np.full(60, 6))
        twice = GroupedRows(x=rows.x[:, [0, 1, 2, 2]], fixed=rows.fixed, y=rows.y, start=rows.start)
        found = fit_mixture(twice, num_components=2, spread="none")
        assert np.isfinite(found.theta).all()
        assert any("linear combinations" in note for note in found.notes)
        np.testing.assert_allclose(found.theta[:, 2], found.theta[:, 3], atol=1e-6)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_components": 0}, "num_components must be a whole number of at least 1"),
            ({"num_components": 9}, "at most the number of groups with rows"),
            ({"num_components": "aic"}, "num_components must be one of bic"),
            ({"spread": "all"}, "spread must be one of component, none"),
            ({"family": "poisson"}, "family must be one of gaussian"),
            ({"covariance": "round"}, "covariance must be one of"),
            ({"method": "paper", "num_components": "bic"}, "num_components must be a number"),
            ({"noise_variance": -1.0}, "noise_variance must be a positive number"),
            ({"family": "binomial"}, "y must contain the classes 0, 1"),
            ({"prior": population(fixed=(1.0,))}, "prior.fixed must be of shape"),
        ],
    )
    def test_is_refused_in_one_line(self, options, message):
        rows, _ = draw(0, np.full(8, 4))
        with pytest.raises(ValueError, match=message):
            fit_mixture(rows, **{"num_components": 2} | options)

    def test_one_row_a_group_does_not_tell_spread_from_noise(self):
        draws = np.random.default_rng(0)
        rows = GroupedRows.of(np.ones((30, 1)), draws.normal(size=30), np.arange(30), 30)
        with pytest.raises(
            ValueError, match="differences between groups cannot be told from noise"
        ):
            fit_mixture(rows, num_components=2)
        assert fit_mixture(rows, num_components=2, spread="none").theta.shape == (30, 1)

    def test_constant_targets(self):
        rows = GroupedRows.of(np.ones((6, 1)), np.ones(6), np.arange(6) // 2, 3)
        with pytest.raises(ValueError, match="all values of y are equal"):
            fit_mixture(rows, num_components=1)
