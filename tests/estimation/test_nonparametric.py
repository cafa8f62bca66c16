"""The nonparametric population: certificate, brute-force EM, known figures, bad and tiny input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedprior.estimation.nonparametric import grid as nonparametric_grid
from fedprior.estimation.nonparametric.atoms import (
    Atoms,
    fit_atoms,
    fit_rows,
    log_likelihood,
    posterior,
)
from fedprior.estimation.nonparametric.counts import count_rows
from fedprior.estimation.nonparametric.normal import normal_rows
from fedprior.estimation.statistics import Counts, Pairs, collapse


def fit_means(mean, variance, *, count=None, gap=1e-7):
    return fit_rows(normal_rows(mean, variance, count), gap=gap)


def fit_rates(pairs):
    return fit_rows(count_rows(pairs))


def posterior_means(mean, variance, atoms):
    return posterior(normal_rows(mean, variance), atoms)


def posterior_rates(pairs, atoms):
    return posterior(count_rows(pairs), atoms)


def log_likelihood_means(mean, variance, atoms):
    return log_likelihood(normal_rows(mean, variance), atoms)


def log_likelihood_rates(pairs, atoms):
    return log_likelihood(count_rows(pairs), atoms)


def pairs_of(n, successes):
    return collapse(Counts(n=np.asarray(n), successes=np.asarray(successes)))


def rows(n, successes):
    return Pairs(n, successes, np.ones(len(n)), np.arange(len(n)))


def known(atoms, weights):
    atoms = np.asarray(atoms, float)
    return Atoms(
        atoms=atoms,
        weights=np.asarray(weights, float),
        spread=np.zeros(len(atoms)),
        gap=0.0,
        log_likelihood=0.0,
    )


def expectation_maximization(likelihood, count, num_steps):
    weights = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    for _ in range(num_steps):
        parts = likelihood * weights
        weights = count @ (parts / parts.sum(axis=1, keepdims=True)) / count.sum()
    return weights


def gain(personal, raw, theta):
    return 100 * (1 - np.mean((personal - theta) ** 2) / np.mean((raw - theta) ** 2))


def rate_gain(rng, theta, n):
    successes = rng.binomial(n, theta)
    pairs = pairs_of(n, successes)
    personal = posterior_rates(pairs, fit_rates(pairs))[0][pairs.place]
    return gain(personal, successes / n, theta)


def mean_gain(rng, theta, n, scale):
    variance = scale**2 / n
    raw = rng.normal(theta, np.sqrt(variance))
    return gain(posterior_means(raw, variance, fit_means(raw, variance))[0], raw, theta)


def sizes(rng, m):
    """Lognormal sizes in 1..1000 of median 12 (anchors 3.3)."""
    return np.clip(np.rint(np.exp(rng.normal(np.log(12), 1.2, m))), 1, 1000).astype(int)


binomials = st.lists(
    st.integers(0, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=1,
    max_size=12,
).filter(lambda rows: any(n for n, _ in rows))
gaussians = st.lists(
    st.tuples(st.floats(-5, 5), st.floats(0.05, 4), st.integers(1, 4)), min_size=1, max_size=10
)


class TestCertificate:
    """No direction of the simplex ascends: the gap recomputed from nothing but the definition."""

    def check(self, likelihood, count, weights, most):
        slopes = count @ (likelihood / (likelihood @ weights)[:, None]) / count.sum() - 1
        assert slopes.max() < most
        assert abs(weights @ slopes) < 1e-9  # complementary slackness

    @settings(max_examples=30, deadline=None)
    @given(gaussians)
    def test_gaussian(self, rows):
        mean, variance, count = (np.array(column, float) for column in zip(*rows, strict=True))
        found = fit_means(mean, variance, count=count)
        points = np.linspace(mean.min(), mean.max(), 300)
        grid = np.concatenate([found.atoms, points])
        likelihood = stats.norm.pdf(mean[:, None], grid, np.sqrt(variance)[:, None])
        weights = np.concatenate([found.weights, np.zeros(300)])
        assert 0 <= found.gap < 1e-7
        # the continuum between the atoms of the grid: a step of the range / 299 costs a little
        self.check(likelihood, count, weights, 1e-3)

    @settings(max_examples=30, deadline=None)
    @given(binomials)
    def test_binomial(self, rows):
        n, successes = np.array(rows).T
        pairs = pairs_of(n, successes)
        found = fit_rates(pairs)
        grid = np.concatenate([found.atoms, np.sin(np.linspace(0, np.pi / 2, 2001)) ** 2])
        likelihood = stats.binom.pmf(pairs.successes[:, None], pairs.n[:, None], grid)
        weights = np.concatenate([found.weights, np.zeros(2001)])
        assert 0 <= found.gap < 1e-7
        self.check(likelihood, pairs.count.astype(float), weights, 1e-3)

    def test_on_the_fitted_grid_it_is_the_gap_reported(self):
        rng = np.random.default_rng(0)
        likelihood = rng.random((40, 60)) + 0.01
        count = rng.integers(1, 5, 40).astype(float)
        weights, gap = fit_atoms(likelihood, count)
        slopes = count @ (likelihood / (likelihood @ weights)[:, None]) / count.sum() - 1
        assert max(slopes.max(), 0) == pytest.approx(gap, abs=1e-12)
        assert gap < 1e-7


class TestAgainstExpectationMaximization:
    @pytest.mark.parametrize("seed", range(2))
    def test_likelihood_matches_long_em(self, seed):
        """Brute-force EM gets within its own duality gap of ours, and never above."""
        rng = np.random.default_rng(seed)
        mean = rng.choice([-2.0, 0.0, 1.5], 25) + rng.normal(size=25)
        likelihood = stats.norm.pdf(mean[:, None], np.linspace(mean.min(), mean.max(), 30))
        ours, _ = fit_atoms(likelihood, np.ones(25), gap=1e-9)
        brute = expectation_maximization(likelihood, np.ones(25), 30_000)
        best = np.log(likelihood @ ours).mean()
        assert best == pytest.approx(np.log(likelihood @ brute).mean(), abs=1e-6)
        assert best >= np.log(likelihood @ brute).mean() - 1e-9

    @settings(max_examples=30, deadline=None)
    @given(binomials)
    def test_never_below_em(self, rows):
        pairs = pairs_of(*np.array(rows).T)
        some = pairs.n > 0
        angles = np.arcsin(np.sqrt(pairs.successes[some] / pairs.n[some]))
        grid = np.sin(np.linspace(angles.min(), angles.max(), 300)) ** 2
        likelihood = stats.binom.pmf(pairs.successes[some][:, None], pairs.n[some][:, None], grid)
        count = pairs.count[some].astype(float)
        brute = expectation_maximization(likelihood, count, 200)
        total = count @ np.log(likelihood @ brute)
        assert fit_rates(pairs).log_likelihood >= total - 1e-6 * count.sum()


class TestProperties:
    @settings(max_examples=30, deadline=None)
    @given(gaussians, st.randoms(use_true_random=False))
    def test_order_and_duplication_do_not_matter(self, rows, random):
        mean, variance, count = (np.array(column, float) for column in zip(*rows, strict=True))
        once = fit_means(mean, variance, count=count)
        order = np.repeat(np.arange(len(mean)), count.astype(int))
        random.shuffle(order)
        again = fit_means(mean[order], variance[order])
        assert once.weights.sum() == pytest.approx(1, abs=1e-12)
        assert (once.weights > 0).all()
        assert (np.diff(once.atoms) > 0).all()
        most = 2e-7 * count.sum()  # each within its gap of the one maximum
        assert again.log_likelihood == pytest.approx(once.log_likelihood, abs=most)

    @settings(max_examples=30, deadline=None)
    @given(binomials)
    def test_posterior_lies_within_the_atoms(self, rows):
        pairs = pairs_of(*np.array(rows).T)
        found = fit_rates(pairs)
        mean, variance = posterior_rates(pairs, found)
        assert (mean >= found.atoms[0] - 1e-12).all()
        assert (mean <= found.atoms[-1] + 1e-12).all()
        assert (variance >= 0).all()
        assert found.weights.sum() == pytest.approx(1, abs=1e-12)

    def test_support_is_inside_the_hull_and_sparse(self):
        rng = np.random.default_rng(3)
        raw = rng.normal(0, 2, 500)
        found = fit_means(raw, np.ones(500))
        assert found.atoms[0] >= raw.min()
        assert found.atoms[-1] <= raw.max()
        assert len(found.atoms) < 40


class TestPosteriors:
    def test_rates_are_bayes_rule(self):
        atoms = known([0.1, 0.4, 0.9], [0.2, 0.5, 0.3])
        n, successes = np.array([3, 40, 0]), np.array([2, 1, 0])
        joint = stats.binom.pmf(successes[:, None], n[:, None], atoms.atoms) * atoms.weights
        total = joint.sum(axis=1)
        mean = joint @ atoms.atoms / total
        variance = joint @ atoms.atoms**2 / total - mean**2
        found = posterior_rates(rows(n, successes), atoms)
        np.testing.assert_allclose(found[0], mean, rtol=1e-12)
        np.testing.assert_allclose(found[1], variance, rtol=1e-9)
        np.testing.assert_allclose(
            log_likelihood_rates(rows(n, successes), atoms), np.log(total), atol=1e-12
        )
        assert found[0][2] == pytest.approx(atoms.mean)
        assert found[1][2] == pytest.approx(atoms.variance)

    def test_means_are_bayes_rule(self):
        atoms = known([-1.0, 0.5, 3.0], [0.2, 0.5, 0.3])
        raw, variance = np.array([0.1, 2.5, np.nan]), np.array([1.0, 0.2, np.inf])
        joint = stats.norm.pdf(raw[:2, None], atoms.atoms, np.sqrt(variance[:2, None]))
        joint = np.vstack([joint * atoms.weights, atoms.weights])
        total = joint.sum(axis=1)
        mean = joint @ atoms.atoms / total
        found = posterior_means(raw, variance, atoms)
        np.testing.assert_allclose(found[0], mean, rtol=1e-12)
        np.testing.assert_allclose(found[1], joint @ atoms.atoms**2 / total - mean**2, rtol=1e-9)
        np.testing.assert_allclose(
            log_likelihood_means(raw, variance, atoms), np.log(total), atol=1e-12
        )

    def test_no_underflow_far_from_every_atom(self):
        mean, variance = posterior_means(
            np.array([1e4]), np.array([1e-2]), known([0, 1], [0.5, 0.5])
        )
        assert mean[0] == 1
        assert variance[0] == 0
        mean, _ = posterior_rates(
            rows(np.array([10**6]), np.array([10**6])), known([0.1, 0.2], [0.9, 0.1])
        )
        assert mean[0] == pytest.approx(0.2)

    def test_cells_are_gaussian_kernels(self):
        """An atom with a spread acts as N(atom, spread^2): the conjugate closed form."""
        wide = Atoms(
            atoms=np.array([2.0]),
            weights=np.ones(1),
            spread=np.array([0.5]),
            gap=0.0,
            log_likelihood=0.0,
        )
        raw, variance = np.array([1.0, 4.0, np.nan]), np.array([0.3, 0.01, np.inf])
        mean, scale2 = posterior_means(raw, variance, wide)
        weight = 0.25 / (0.25 + variance[:2])
        np.testing.assert_allclose(mean[:2], 2 + weight * (raw[:2] - 2))
        np.testing.assert_allclose(scale2[:2], weight * variance[:2])
        assert mean[2] == 2
        assert scale2[2] == 0.25
        expected = stats.norm.logpdf(raw[:2], 2, np.sqrt(0.25 + variance[:2]))
        np.testing.assert_allclose(log_likelihood_means(raw, variance, wide)[:2], expected)

    def test_cells_are_beta_kernels(self):
        """An atom with a spread acts as Beta: SciPy's beta-binomial and its posterior mean."""
        alpha, beta = 12.0, 28.0
        spread = np.sqrt(0.3 * 0.7 / (alpha + beta + 1))
        wide = Atoms(
            atoms=np.array([0.3]),
            weights=np.ones(1),
            spread=np.array([spread]),
            gap=0.0,
            log_likelihood=0.0,
        )
        n, successes = np.array([50, 7, 0]), np.array([30, 0, 0])
        mean, variance = posterior_rates(rows(n, successes), wide)
        np.testing.assert_allclose(mean, (alpha + successes) / (alpha + beta + n))
        posterior = stats.beta(alpha + successes, beta + n - successes)
        np.testing.assert_allclose(variance, posterior.var(), rtol=1e-9)
        found = log_likelihood_rates(rows(n, successes), wide)
        np.testing.assert_allclose(
            found, stats.betabinom.logpmf(successes, n, alpha, beta), atol=1e-9
        )


class TestTinyAndBadInput:
    def test_one_group_is_one_atom_at_its_own_value(self):
        found = fit_rates(pairs_of([8], [3]))
        np.testing.assert_allclose(found.atoms, 3 / 8)
        assert found.gap == 0
        found = fit_means(np.array([1.5]), np.array([2.0]))
        assert found.atoms.tolist() == [1.5]
        assert found.weights.tolist() == [1]

    @pytest.mark.parametrize(("apart", "merged"), [(1.9, True), (6.0, False)])
    def test_two_groups_merge_below_two_standard_deviations(self, apart, merged):
        """The closed form of two Gaussian rows: one atom at the middle iff apart <= 2 scale."""
        found = fit_means(np.array([0.0, apart]), np.ones(2))
        if merged:
            np.testing.assert_allclose(found.atoms, apart / 2, atol=apart / 298)
        else:
            assert len(found.atoms) == 2 or np.diff(found.atoms).max() > apart / 2
            assert found.mean == pytest.approx(apart / 2, abs=1e-6)

    def test_groups_without_data_change_nothing(self):
        some = fit_rates(pairs_of([5, 9, 3], [1, 8, 2]))
        more = fit_rates(pairs_of([5, 9, 3, 0, 0], [1, 8, 2, 0, 0]))
        np.testing.assert_array_equal(some.atoms, more.atoms)
        raw, variance = np.array([0.0, 4, np.nan]), np.array([1.0, 1, np.inf])
        np.testing.assert_array_equal(
            fit_means(raw, variance).atoms, fit_means(raw[:2], variance[:2]).atoms
        )

    def test_all_zero_or_all_one(self):
        found = fit_rates(pairs_of([5, 9, 3], [0, 0, 0]))
        assert found.atoms.tolist() == [0]
        assert found.log_likelihood == pytest.approx(0)
        assert fit_rates(pairs_of([5, 9], [5, 9])).atoms.tolist() == [1]

    def test_refusals(self):
        empty = Pairs(np.zeros(1, int), np.zeros(1, int), np.ones(1, int), np.zeros(1, int))
        with pytest.raises(ValueError, match="fit_rows: number of groups with data must"):
            fit_rates(empty)
        with pytest.raises(ValueError, match="number of groups with data must be above 0"):
            fit_means(np.zeros(2), np.full(2, np.inf))
        with pytest.raises(ValueError, match="variance must be above 0"):
            fit_means(np.zeros(2), np.array([1.0, 0.0]))
        with pytest.raises(ValueError, match="values must be finite"):
            fit_means(np.array([0.0, np.nan]), np.ones(2))
        with pytest.raises(ValueError, match="gap must be a positive number"):
            fit_means(np.arange(2.0), np.ones(2), gap=0.0)

    def test_not_reaching_the_gap_is_an_error(self, monkeypatch):
        monkeypatch.setattr("fedprior.estimation.nonparametric.solver._MOST_ROUNDS", 1)
        rng = np.random.default_rng(0)
        with pytest.raises(RuntimeError, match="the duality gap is still"):
            fit_means(rng.normal(size=50), np.full(50, 0.01))


class TestScale:
    """Rows that are too many or too precise for the table."""

    def test_binned_rows_give_the_same_population(self, monkeypatch):
        rng = np.random.default_rng(1)
        theta = rng.choice([-0.3, 0.0, 0.3], 4000)
        variance = 0.25 / rng.uniform(2, 50, 4000)
        raw = rng.normal(theta, np.sqrt(variance))
        exact = fit_means(raw, variance)
        monkeypatch.setattr("fedprior.estimation.nonparametric.atoms.MOST_CELLS", 300 * 2000)
        binned = fit_means(raw, variance)
        assert binned.log_likelihood == pytest.approx(exact.log_likelihood, abs=0.5)
        ours, theirs = (posterior_means(raw, variance, each)[0] for each in (binned, exact))
        assert np.sqrt(np.mean((ours - theirs) ** 2)) < 0.01 * np.sqrt(
            np.mean((theirs - theta) ** 2)
        )

    def test_binned_pairs_give_the_same_population(self, monkeypatch):
        rng = np.random.default_rng(2)
        n = sizes(rng, 5000) * 20
        theta = rng.choice([0.05, 0.2, 0.5], 5000)
        pairs = pairs_of(n, rng.binomial(n, theta))
        exact = fit_rates(pairs)
        monkeypatch.setattr("fedprior.estimation.nonparametric.atoms.MOST_CELLS", 1000 * 1500)
        binned = fit_rates(pairs)
        assert binned.log_likelihood == pytest.approx(exact.log_likelihood, abs=0.5)

    @settings(max_examples=30, deadline=None)
    @given(st.integers(1, 60), st.integers(0, 2**31 - 1))
    def test_bins_are_few_and_share_what_they_average(self, most, seed):
        rng = np.random.default_rng(seed)
        position, variance = rng.normal(size=200), rng.uniform(0.01, 1, 200)
        place = nonparametric_grid.bin_rows(position, variance, most=most)
        assert place.max() < most
        assert set(place) == set(range(place.max() + 1))
        total, average = nonparametric_grid.averages(place, np.ones(200), position)
        assert total.sum() == 200
        assert total @ average == pytest.approx(position.sum())

    def test_a_very_precise_row_keeps_to_its_own_value(self):
        """A grid of 1,000 atoms cannot be fine enough here; its cells must not round the row."""
        raw = np.array([0.0, 0.3, 0.7, 1.0, 2.0, 0.123456789])
        variance = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1e-14])
        personal, _ = posterior_means(raw, variance, fit_means(raw, variance))
        assert personal[-1] == pytest.approx(raw[-1], abs=1e-6)
        n = np.array([10, 10, 10, 10, 10**9])
        successes = np.array([0, 3, 5, 9, 123_456_789])
        pairs = pairs_of(n, successes)
        personal, _ = posterior_rates(pairs, fit_rates(pairs))
        assert personal[-1] == pytest.approx(0.123456789, abs=5e-5)

    def test_an_outlier_does_not_spoil_the_grid(self):
        rng = np.random.default_rng(4)
        theta = np.append(rng.choice([-2.0, 2.0], 400), 1e6)
        raw = theta + rng.normal(0, 0.5, 401)
        personal, _ = posterior_means(raw, np.full(401, 0.25), fit_means(raw, np.full(401, 0.25)))
        assert gain(personal[:-1], raw[:-1], theta[:-1]) > 80
        assert personal[-1] == pytest.approx(raw[-1], abs=0.5)


class TestKnownFigures:
    """Gains over raw means, in percent, at m = 10,000 (anchors 3.1, 3.3, 3.4; ERRATA table 3.1)."""

    def test_three_spikes(self):
        rng = np.random.default_rng(11)
        theta = lambda: rng.choice([0.25, 0.5, 0.75], 10_000)  # noqa: E731
        gains = [rate_gain(rng, theta(), np.full(10_000, 14)) for _ in range(20)]
        assert np.mean(gains) >= 32

    def test_constant_rate(self):
        rng = np.random.default_rng(12)
        assert rate_gain(rng, np.full(10_000, 0.4), np.full(10_000, 14)) >= 99

    @pytest.mark.evidence
    def test_unequal_sizes(self):
        rng = np.random.default_rng(13)
        spikes = [
            rate_gain(rng, rng.choice([0.05, 0.2, 0.5], 10_000), sizes(rng, 10_000))
            for _ in range(10)
        ]
        assert np.mean(spikes) >= 59.7

    @pytest.mark.evidence
    def test_gaussian_spikes_and_sparse(self):
        rng = np.random.default_rng(14)
        spikes, sparse, normal = [], [], []
        for _ in range(10):
            n = rng.integers(2, 51, 10_000)
            spikes.append(mean_gain(rng, rng.choice([-0.3, 0.0, 0.3], 10_000), n, 0.5))
            theta = np.where(rng.random(10_000) < 0.95, 0.0, rng.normal(0, 0.6, 10_000))
            sparse.append(mean_gain(rng, theta, n, 0.5))
            normal.append(mean_gain(rng, rng.normal(0, 0.1, 10_000), n, 0.5))
        assert np.mean(spikes) >= 48.5
        assert np.mean(sparse) >= 88.5
        assert np.mean(normal) >= 69.4
