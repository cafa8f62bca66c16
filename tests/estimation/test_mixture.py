"""The discrete mixture of means: Theorem 5, EM, the printed algorithm's collapse, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from fedprior.estimation.clustering import k_means
from fedprior.estimation.mixture import em as mixture_em
from fedprior.estimation.mixture.em import (
    DiscreteMixture,
    maximize_mixture,
    mixture_messages,
    responsibilities,
)
from fedprior.estimation.mixture.estimate import estimate_mixture
from fedprior.estimation.mixture.summary import separation
from fedprior.estimation.statistics import Means, means_of
from fedprior.estimation.stein import squared_errors

FALSE_ALARM = 1e-6  # of each statistical test


def draw(rng, centers, n, scale):
    """theta uniform on the centers, means of n normal values around it, and their scatter."""
    centers = np.asarray(centers, float)
    theta = centers[rng.integers(0, len(centers), len(n))]
    noise = rng.normal(size=theta.shape) * scale
    mean = theta + noise / np.sqrt(n).reshape((-1,) + (1,) * (theta.ndim - 1))
    free = np.maximum((n - 1) * (1 if theta.ndim == 1 else theta.shape[1]), 0)
    within = np.where(free > 0, scale**2 * rng.chisquare(np.maximum(free, 1)), 0.0)
    return Means(n=n, mean=mean, within=within), theta


def error(estimate, theta):
    return float(np.mean((estimate - theta) ** 2))


def risk(mixture, truth, variance):
    """E (sum_l alpha_l center_l - theta)^2 of a mixture in one dimension, by the trapezoid rule."""
    total = 0.0
    for center, share in zip(truth.centers[:, 0], truth.probabilities, strict=True):
        points = center + np.sqrt(variance) * np.linspace(-9, 9, 20_001)
        table, _ = responsibilities(points[:, None], np.full(20_001, variance), mixture)
        density = stats.norm.pdf(points, center, np.sqrt(variance))
        squares = ((table @ mixture.centers)[:, 0] - center) ** 2
        total += share * np.trapezoid(squares * density, points)
    return total


class TestKnownMixture:
    def test_is_the_printed_formula_on_the_rows(self):
        """Thm 5 evaluated row by row, by plain exponentials, where these do not underflow."""
        rng = np.random.default_rng(0)
        centers, shares = np.array([[0.0, 1], [1, -1], [2, 2]]), np.array([0.5, 0.2, 0.3])
        rows, place = rng.normal(size=(30, 2)) + 1, rng.integers(0, 6, 30)
        found = estimate_mixture(
            means_of(rows, place, 7),  # the last group is empty
            centers=centers,
            probabilities=shares,
            noise_variance=1.7,
        )
        for group in range(7):
            own = rows[place == group]
            squares = ((own[:, None, :] - centers) ** 2).sum(axis=(0, 2))
            alpha = shares * np.exp(-squares / (2 * 1.7))
            alpha /= alpha.sum()
            np.testing.assert_allclose(found.responsibilities[group], alpha, rtol=1e-10)
            np.testing.assert_allclose(found.estimates.personal[group], alpha @ centers)
        np.testing.assert_allclose(found.responsibilities[6], shares)
        assert np.isnan(found.estimates.raw[6]).all()
        assert found.estimates.weight[6] == 0
        assert found.estimates.population.fitted_by == "known"

    def test_no_underflow(self):
        """The printed ratio is 0 / 0 here (ERRATA 21)."""
        centers = np.stack([np.zeros(100), np.full(100, 3.0)])
        statistics = Means(n=np.full(2, 20), mean=np.stack([np.full(100, 40.0), np.zeros(100)]))
        found = estimate_mixture(
            statistics, centers=centers, probabilities=np.array([0.5, 0.5]), noise_variance=1.0
        )
        np.testing.assert_allclose(found.responsibilities, [[0, 1], [1, 0]], atol=1e-200)
        assert np.isfinite(found.log_likelihood)

    def test_log_likelihood_is_the_mixture_density(self):
        statistics = Means(n=np.array([3, 1, 0]), mean=np.array([0.4, -2.0, np.nan]))
        centers, shares = np.array([-1.0, 1.0]), np.array([0.3, 0.7])
        found = estimate_mixture(
            statistics, centers=centers, probabilities=shares, noise_variance=2.0
        )
        scales = np.sqrt(2 / np.array([[3], [1]]))
        density = stats.norm.pdf(statistics.mean[:2, None], centers, scales) @ shares
        assert found.log_likelihood == pytest.approx(np.log(density).sum())

    def test_known_standard_errors(self):
        mean, variance = np.array([0.2, 0.9]), np.array([0.1, 4.0])
        statistics = Means(n=np.array([5, 5]), mean=mean, variance=variance)
        found = estimate_mixture(
            statistics, centers=np.array([0.0, 1.0]), probabilities=np.array([0.5, 0.5])
        )
        odds = np.exp(-((mean - 1) ** 2 - mean**2) / (2 * variance))
        np.testing.assert_allclose(found.estimates.personal, odds / (1 + odds))
        assert np.isnan(found.noise_variance)

    def test_weight_is_the_derivative_of_the_estimate(self):
        def personal(raw):
            found = estimate_mixture(
                Means(n=np.array([2]), mean=np.array([raw])),
                centers=np.array([-1.0, 0.5, 2.0]),
                probabilities=np.array([0.2, 0.5, 0.3]),
                noise_variance=4.0,
            )
            return found.estimates.personal[0], found.estimates.weight[0]

        slope = (personal(0.3 + 1e-5)[0] - personal(0.3 - 1e-5)[0]) / 2e-5
        assert personal(0.3)[1] == pytest.approx(slope, rel=1e-6)

    def test_intervals_cover(self):
        """Coverage of known-mixture intervals below 95% by 1% of the groups would be detected."""
        rng = np.random.default_rng(5)
        centers = np.array([-0.5, 0.0, 0.7])
        statistics, theta = draw(rng, centers, rng.integers(1, 12, 20_000), 1.0)
        found = estimate_mixture(
            statistics, centers=centers, probabilities=np.full(3, 1 / 3), noise_variance=1.0
        ).estimates
        covered = int(((found.lower <= theta) & (theta <= found.upper)).sum())
        assert covered >= stats.binom.ppf(FALSE_ALARM, 20_000, 0.95)
        assert np.isin(found.lower, centers).all()
        assert np.isin(found.upper, centers).all()


class TestMessages:
    def test_shapes_and_meaning(self):
        mean, n = np.array([[0.1, 2.0], [3.0, 1.0], [np.nan, np.nan]]), np.array([2, 5, 0])
        centers, shares = np.array([[0.0, 0.0], [3.0, 1.0]]), np.array([0.4, 0.6])
        alpha, weighted = mixture_messages(mean, n, centers, shares, 1.5)
        table, _ = responsibilities(mean[:2], 1.5 / n[:2], DiscreteMixture(centers, shares))
        np.testing.assert_allclose(alpha[:2], table)
        np.testing.assert_allclose(weighted[:2], table[:, :, None] * mean[:2, None, :])
        assert not alpha[2].any()  # a group without data adds nothing to any total
        assert not weighted[2].any()

    def test_their_sums_are_the_em_step_at_equal_sizes(self):
        rng = np.random.default_rng(1)
        mean, n = rng.normal(size=(50, 3)), np.full(50, 4)
        start = DiscreteMixture(rng.normal(size=(2, 3)), np.array([0.3, 0.7]))
        alpha, weighted = mixture_messages(mean, n, *start, 2.0)
        found = maximize_mixture(alpha.sum(axis=0), weighted.sum(axis=0), 50, centers=start.centers)
        stepped, _ = mixture_em.discrete_em_step(mean, 2.0 / n, start)
        np.testing.assert_allclose(found.centers, stepped.centers)
        np.testing.assert_allclose(found.probabilities, stepped.probabilities)

    def test_with_sizes_the_third_total_over_the_second_is_the_maximum(self):
        """The expected complete log-likelihood has zero slope at the centers weighted by n."""
        rng = np.random.default_rng(2)
        mean, n = rng.normal(size=(40, 2)), rng.integers(1, 30, 40)
        start = DiscreteMixture(rng.normal(size=(3, 2)), np.full(3, 1 / 3))
        alpha, weighted = mixture_messages(mean, n, *start, 1.0)
        found = maximize_mixture(
            alpha.sum(axis=0),
            (n[:, None, None] * weighted).sum(axis=0),
            40,
            centers=start.centers,
            total_size=n @ alpha,
        )
        slope = np.einsum("i,il,ild->ld", n, alpha, mean[:, None, :] - found.centers)
        np.testing.assert_allclose(slope, 0, atol=1e-9)
        np.testing.assert_allclose(
            found.centers, mixture_em.discrete_em_step(mean, 1.0 / n, start)[0].centers
        )

    def test_an_empty_component_keeps_its_center(self):
        centers = np.array([[0.0], [9.0]])
        found = maximize_mixture(np.array([4.0, 0.0]), np.array([[2.0], [0.0]]), 4, centers=centers)
        assert found.centers.ravel().tolist() == [0.5, 9.0]
        assert found.probabilities.tolist() == [1.0, 0.0]

    def test_noise_below_zero_counts_as_zero(self):
        centers = np.array([[0.0], [9.0]])
        found = maximize_mixture(
            np.array([5.0, -1.0]), np.array([[5.0], [7.0]]), 4, centers=centers
        )
        assert found.centers.ravel().tolist() == [1.0, 9.0]
        assert found.probabilities.tolist() == [1.0, 0.0]
        none = maximize_mixture(np.array([-1.0, -1.0]), np.zeros((2, 1)), 4, centers=centers)
        assert none.probabilities.tolist() == [0.5, 0.5]


class TestLearnedMixture:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 2**31 - 1), st.integers(1, 4), st.integers(1, 3))
    def test_no_step_lowers_the_likelihood(self, seed, num_components, dimension):
        rng = np.random.default_rng(seed)
        mean, variance = rng.normal(size=(30, dimension)) * 2, rng.uniform(0.05, 3, 30)
        mixture = DiscreteMixture(
            rng.normal(size=(num_components, dimension)), rng.dirichlet(np.ones(num_components))
        )
        levels = []
        for _ in range(6):
            mixture, level = mixture_em.discrete_em_step(mean, variance, mixture)
            levels.append(level)
        assert (np.diff(levels) >= -1e-12).all()
        found = mixture_em.fit_discrete(mean, variance, mixture)
        assert found.log_likelihood >= levels[-1] - 1e-12
        assert found.mixture.probabilities.sum() == pytest.approx(1)

    def test_reaches_what_a_general_optimizer_reaches(self):
        rng = np.random.default_rng(3)
        statistics, _ = draw(rng, [-1.0, 0.4], rng.integers(1, 10, 300), 1.0)
        found = estimate_mixture(statistics, num_components=2, noise_variance=1.0)

        def loss(free):
            share = 1 / (1 + np.exp(-free[2]))
            mixture = DiscreteMixture(free[:2, None], np.array([share, 1 - share]))
            return -responsibilities(statistics.mean[:, None], 1 / statistics.n, mixture)[1].sum()

        starts = rng.normal(size=(5, 3))
        best = min(minimize(loss, start, method="BFGS").fun for start in starts)
        assert -found.log_likelihood == pytest.approx(best, abs=1e-4)

    def test_within_one_percent_of_the_oracle(self):
        rng = np.random.default_rng(4)
        centers = [-0.3, 0.0, 0.3]
        statistics, theta = draw(rng, centers, rng.integers(2, 51, 10_000), 0.5)
        oracle = estimate_mixture(
            statistics, centers=centers, probabilities=np.full(3, 1 / 3), noise_variance=0.25
        )
        found = estimate_mixture(statistics, num_components=3)
        ratio = error(found.estimates.personal, theta) / error(oracle.estimates.personal, theta)
        assert ratio < 1.01
        np.testing.assert_allclose(np.sort(found.centers), centers, atol=0.02)
        assert found.noise_variance == pytest.approx(0.25, rel=0.02)
        gain = 100 * (1 - error(found.estimates.personal, theta) / error(statistics.mean, theta))
        assert found.estimates.gain_over_raw == pytest.approx(gain, abs=2)
        pooled = 100 * (1 - error(found.estimates.personal, theta) / np.var(theta))
        assert found.estimates.gain_over_pooled == pytest.approx(pooled, abs=2)

    def test_many_coordinates_and_groups_without_data(self):
        rng = np.random.default_rng(6)
        centers = rng.normal(size=(4, 20))
        statistics, theta = draw(rng, centers, rng.integers(1, 9, 400), 1.0)
        n, mean = statistics.n.copy(), statistics.mean.copy()
        n[:5], mean[:5] = 0, np.nan
        found = estimate_mixture(Means(n=n, mean=mean, within=statistics.within), num_components=4)
        estimates = found.estimates
        assert (
            estimates.personal.shape == estimates.lower.shape == estimates.scale.shape == (400, 20)
        )
        assert estimates.weight.shape == (400,)
        assert found.responsibilities.shape == (400, 4)
        np.testing.assert_allclose(
            estimates.personal[:5], found.probabilities @ found.centers * np.ones((5, 1))
        )
        assert error(estimates.personal[5:], theta[5:]) < 0.05 * error(mean[5:], theta[5:])
        assert (estimates.lower <= estimates.personal + 1e-12).all()
        assert (estimates.personal <= estimates.upper + 1e-12).all()

    def test_centers_known_probabilities_learned(self):
        rng = np.random.default_rng(7)
        theta = rng.choice([-1.0, 1.0], 5000, p=[0.2, 0.8])
        statistics = Means(n=np.full(5000, 2), mean=theta + rng.normal(size=5000))
        found = estimate_mixture(statistics, centers=np.array([-1.0, 1.0]), noise_variance=2.0)
        assert found.centers.tolist() == [-1, 1]
        error_of_share = np.sqrt(0.16 / 5000) * 2  # overlap at most doubles it here
        assert abs(found.probabilities[0] - 0.2) < -stats.norm.ppf(FALSE_ALARM / 2) * error_of_share

    def test_seed_decides_and_labels_do_not_matter(self):
        rng = np.random.default_rng(8)
        statistics, _ = draw(rng, [-2.0, 0.0, 2.0], np.full(300, 2), 1.0)
        first, again = (estimate_mixture(statistics, num_components=3, seed=4) for _ in range(2))
        np.testing.assert_array_equal(first.estimates.personal, again.estimates.personal)
        other = estimate_mixture(statistics, num_components=3, seed=5)
        np.testing.assert_allclose(other.estimates.personal, first.estimates.personal, atol=1e-3)

    def test_a_clustering_function_is_only_the_start(self):
        calls = []

        def cluster(points, num_components):
            calls.append((points.shape, num_components))
            return np.array([0.5, 0.5]), np.array([[-5.0], [5.0]]), np.ones(2)

        rng = np.random.default_rng(9)
        statistics, _ = draw(rng, [-1.0, 1.0], np.full(500, 5), 1.0)
        found = estimate_mixture(statistics, num_components=2, cluster=cluster)
        assert calls == [((500, 1), 2)]
        np.testing.assert_allclose(np.sort(found.centers), [-1, 1], atol=0.2)

    @pytest.mark.parametrize("num_components", [1, 3])
    def test_auto_picks_the_number_of_components(self, num_components):
        rng = np.random.default_rng(10)
        centers = np.arange(num_components) * 2.0
        statistics, _ = draw(rng, centers, rng.integers(2, 9, 400), 1.0)
        found = estimate_mixture(statistics, num_components="auto")
        assert len(found.centers) == num_components
        word = "component" if num_components == 1 else "components"
        note = f"{num_components} {word} picked among 1..8 by BIC"
        assert any(note in each for each in found.estimates.notes)

    def test_standard_errors_of_the_centers(self):
        """The spread of the fitted centers over 40 replications is the reported error."""
        rng = np.random.default_rng(11)
        fitted, reported = [], []
        for _ in range(40):
            statistics, _ = draw(rng, [-1.0, 1.0], np.full(400, 1), 1.0)
            found = estimate_mixture(
                statistics, num_components=2, noise_variance=1.0, cluster=k_means
            )
            fitted.append(found.centers.max())
            place = int(found.centers.argmax()) + 1
            reported.append(found.estimates.population.standard_errors[f"center_{place}"])
        ratio = np.var(fitted, ddof=1) / np.mean(reported) ** 2
        low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 39) / 39
        assert low < ratio < high

    @pytest.mark.parametrize("options", [{}, {"method": "paper", "rounds": 20}])
    def test_smooth_means_are_promised_what_they_get(self, options):
        # under its own fit the mixture would promise 38% and 100% where it loses 110% and 460%
        rng = np.random.default_rng(5)
        theta = rng.normal(size=2000)
        statistics = Means(n=np.full(2000, 6), mean=theta + rng.normal(size=2000) / np.sqrt(6))
        found = estimate_mixture(statistics, num_components=2, noise_variance=1.0, **options)
        shown = found.estimates
        actual = 100 * (1 - error(shown.personal, theta) / error(statistics.mean, theta))
        assert actual < -50
        assert shown.gain_over_raw == pytest.approx(actual, rel=0.1)
        assert "do not scatter about the centers" in shown.notes[-1]
        assert "above the raw values" in shown.sentence

    @pytest.mark.parametrize("num_groups", [20, 2000])
    def test_a_mixture_that_holds_keeps_its_own_claim(self, num_groups):
        rng = np.random.default_rng(6)
        statistics, theta = draw(rng, [-1.0, 1.0], np.full(num_groups, 6), 1.0)
        found = estimate_mixture(statistics, num_components=2, noise_variance=1.0).estimates
        actual = 100 * (1 - error(found.personal, theta) / error(statistics.mean, theta))
        assert found.gain_over_raw == pytest.approx(actual, abs=5 if num_groups > 20 else 30)
        assert not any("scatter" in note for note in found.notes)

    def test_steins_estimate_is_unbiased(self):
        rng = np.random.default_rng(7)
        theta, variance = rng.normal(size=(20_000, 2)), rng.uniform(0.5, 1.5, 20_000)
        mean = theta + np.sqrt(variance)[:, None] * rng.normal(size=theta.shape)
        mixture = DiscreteMixture(
            np.array([[-1.0, 0.0], [0.5, 0.5], [1.0, -1.0]]), np.full(3, 1 / 3)
        )
        table, _ = responsibilities(mean, variance, mixture)
        each = squared_errors(mean, variance, table, mixture.centers)
        each = each - ((table @ mixture.centers - theta) ** 2).mean(axis=1)
        reach = stats.norm.isf(FALSE_ALARM / 2) * each.std() / np.sqrt(len(each))
        assert abs(each.mean()) < reach

    def test_rows_all_alike(self):
        statistics = Means(n=np.full(4, 3), mean=np.array([1.0, 1, 2, 2]), within=np.zeros(4))
        found = estimate_mixture(statistics, num_components=2)
        np.testing.assert_allclose(found.estimates.personal, [1, 1, 2, 2])
        assert any("do not differ" in note for note in found.estimates.notes)

    def test_summary_is_plain(self):
        rng = np.random.default_rng(12)
        statistics, _ = draw(rng, [-1.0, 1.0], np.full(200, 5), 1.0)
        summary = estimate_mixture(statistics, num_components=2).estimates.summary()
        assert summary["population"]["kind"] == "mixture"
        assert len(summary["population"]["atoms"]) == 2
        assert summary["gain_over_raw"] > 0


class TestPrinted:
    """Algorithm 1 as printed (ERRATA 22, 23)."""

    def test_clusters_first_and_then_what_it_shrunk(self):
        seen = []

        def cluster(points, num_components):
            seen.append(points[:, 0])
            return k_means(points, num_components)

        rng = np.random.default_rng(13)
        statistics, _ = draw(rng, [-1.0, 1.0], np.full(200, 2), 1.0)
        found = estimate_mixture(
            statistics,
            num_components=2,
            method="paper",
            cluster=cluster,
            rounds=3,
            noise_variance=1.0,
        )
        np.testing.assert_array_equal(seen[0], statistics.mean)
        assert len(seen) == 3
        spans = [np.ptp(points) for points in [*seen, found.estimates.personal]]
        assert (np.diff(spans) < 0).all()  # posterior means lie inside the hull of the centers
        assert found.estimates.population.fitted_by == "paper"
        assert any("draw together in every round" in note for note in found.estimates.notes)

    def test_one_round_has_no_warning(self):
        rng = np.random.default_rng(13)
        statistics, _ = draw(rng, [-1.0, 1.0], np.full(200, 2), 1.0)
        found = estimate_mixture(statistics, num_components=2, method="paper")
        assert not any("draw together" in note for note in found.estimates.notes)

    def test_collapses_where_em_does_not(self):
        """Centers one standard deviation from 0: collapsed by round 10, EM at the oracle."""
        rng = np.random.default_rng(14)
        statistics, theta = draw(rng, [-0.5, 0.5], np.full(5000, 4), 1.0)
        printed = estimate_mixture(
            statistics, num_components=2, method="paper", rounds=10, noise_variance=1.0
        )
        assert (
            separation(
                DiscreteMixture(printed.centers[:, None], printed.probabilities), 1 / statistics.n
            )
            < 0.1
        )
        assert error(printed.estimates.personal, theta) > 0.24  # the variance of theta is 0.25
        found = estimate_mixture(statistics, num_components=2, noise_variance=1.0)
        assert error(found.estimates.personal, theta) < 0.13


class TestRefusals:
    statistics = Means(n=np.array([2, 2, 3]), mean=np.array([0.0, 1.0, 5.0]), within=np.ones(3))

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({}, "num_components must be a number of components or 'auto', got None"),
            ({"num_components": "all"}, "num_components must be one of auto"),
            ({"num_components": 4}, r"at most the number of groups with data \(3\), got 4"),
            ({"num_components": "auto", "method": "paper"}, "a number where method is 'paper'"),
            ({"num_components": 2, "method": "em"}, "method must be one of default, paper"),
            ({"num_components": 2, "level": 1.0}, "level must be below 1"),
            ({"num_components": 2, "noise_variance": 0.0}, "noise_variance must be a positive"),
            ({"probabilities": np.ones(1)}, "probabilities must be given only together with"),
            ({"centers": np.zeros((2, 3))}, r"centers must be of shape \(components, 1\)"),
            (
                {"centers": np.zeros(2), "probabilities": np.array([0.5, 0.6])},
                "probabilities must be 2 numbers of at least 0 with sum 1",
            ),
            (
                {"num_components": 2, "cluster": lambda points, count: ([1, 1], points, [1, 1])},
                r"cluster: centers must be finite and of shape \(2, 1\)",
            ),
            (
                {"num_components": 2, "cluster": lambda points, count: ([1], points[:2], [1, 1])},
                "cluster: probabilities must be 2 numbers of at least 0",
            ),
        ],
    )
    def test_bad_options(self, options, match):
        with pytest.raises(ValueError, match=match):
            estimate_mixture(self.statistics, **options)

    def test_noise_that_cannot_be_known(self):
        statistics = Means(n=np.ones(3, int), mean=np.arange(3.0), within=np.zeros(3))
        with pytest.raises(ValueError, match="needs groups of two rows or more"):
            estimate_mixture(statistics, num_components=2)
        assert estimate_mixture(statistics, num_components=2, noise_variance=1.0)

    def test_no_data_at_all(self):
        statistics = Means(n=np.zeros(3, int), mean=np.full(3, np.nan))
        with pytest.raises(ValueError, match="n must be above 0 for some group"):
            estimate_mixture(statistics, num_components=1, noise_variance=1.0)


@pytest.mark.evidence
class TestKnownFigures:
    """ERRATA 23 and anchors, section 0 item 3, at m = 10,000."""

    @pytest.mark.parametrize(
        ("centers", "oracle_error", "collapse"),
        [
            # centers 3 standard deviations of a mean from 0; the printed algorithm by round
            (
                [-1.5, 1.5],
                0.00934,
                {1: (0, 0.02), 50: (0.03, 0.12), 100: (0.12, 0.5), 500: (2.2, 2.3)},
            ),
            ([-0.5, 0.5], 0.1135, {1: (0.1, 0.13), 5: (0.23, 0.26), 10: (0.245, 0.255)}),
        ],
    )
    def test_printed_collapses_and_em_is_the_oracle(self, centers, oracle_error, collapse):
        """Exact risks of the fitted mixtures; ERRATA's 0.0108 for the first is a simulated run."""
        rng = np.random.default_rng(20)
        truth = DiscreteMixture(np.array(centers)[:, None], np.full(2, 0.5))
        assert risk(truth, truth, 0.25) == pytest.approx(oracle_error, rel=0.01)
        risks = []
        for run in range(20):
            statistics, theta = draw(rng, centers, np.full(10_000, 4), 1.0)
            found = estimate_mixture(statistics, num_components=2, noise_variance=1.0, seed=run)
            fitted = DiscreteMixture(found.centers[:, None], found.probabilities)
            risks.append(risk(fitted, truth, 0.25))
        assert error(statistics.mean, theta) == pytest.approx(0.25, abs=0.015)
        assert np.mean(risks) < 1.01 * oracle_error
        for rounds, (low, high) in collapse.items():
            printed = estimate_mixture(
                statistics, num_components=2, noise_variance=1.0, method="paper", rounds=rounds
            )
            assert low < error(printed.estimates.personal, theta) < high

    def test_three_spikes(self):
        """Gains over raw means: EM 35.3 (oracle 35.4), printed 34.4, -12.6, -174, -267."""
        rng = np.random.default_rng(21)
        centers = np.array([-0.3, 0.0, 0.3])
        gains = {name: [] for name in ("oracle", "em", 1, 5, 10, 20)}
        for run in range(5):
            statistics, theta = draw(rng, centers, np.full(10_000, 15), 0.5)

            def gain(estimates, statistics=statistics, theta=theta):
                return 100 * (1 - error(estimates.personal, theta) / error(statistics.mean, theta))

            known = estimate_mixture(
                statistics, centers=centers, probabilities=np.full(3, 1 / 3), noise_variance=0.25
            )
            gains["oracle"].append(gain(known.estimates))
            found = estimate_mixture(statistics, num_components=3, seed=run)
            gains["em"].append(gain(found.estimates))
            for rounds in (1, 5, 10, 20):
                printed = estimate_mixture(
                    statistics, num_components=3, method="paper", rounds=rounds, seed=run
                )
                gains[rounds].append(gain(printed.estimates))
        means = {name: np.mean(values) for name, values in gains.items()}
        assert means["em"] > means["oracle"] - 0.5
        assert means["em"] == pytest.approx(35.3, abs=1)
        assert means[1] == pytest.approx(34.0, abs=1.5)
        assert means[5] < 0
        assert means[10] < -120
        assert means[20] < -240

    @pytest.mark.parametrize(("num_groups", "runs"), [(50, 200), (1000, 40)])
    def test_learned_intervals_cover(self, num_groups, runs):
        """On average over groups and replications, at least 93% at level 95% (n in 2..50)."""
        rng = np.random.default_rng(22)
        covered = []
        for run in range(runs):
            n = rng.integers(2, 51, num_groups)
            statistics, theta = draw(rng, [-0.3, 0.3], n, 1.0)
            found = estimate_mixture(statistics, num_components=2, cluster=k_means, seed=run)
            lower, upper = found.estimates.lower, found.estimates.upper
            covered.append(np.mean((lower <= theta) & (theta <= upper)))
        assert np.mean(covered) >= 0.93
