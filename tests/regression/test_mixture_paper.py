"""The paper's clustering server: what it returns, what can be passed in, and its collapse."""

import numpy as np
import pytest
from test_mixture_linear import draw, error, population

from fedprior.estimation.clustering import cluster_points, k_means
from fedprior.regression.mixture import fit_mixture
from fedprior.regression.rows import GroupedRows

SHARES = np.array([0.5, 0.5])


def contracting(seed, separation, num_groups, size=6):
    """Two kinds of groups, `separation` standard errors of a group's own estimate apart."""
    centers = np.array([[0.5, 0.5], [-0.5, -0.5]]) * separation / np.sqrt(size)
    options = {"centers": centers, "shares": SHARES}
    rows, theta = draw(seed, np.full(num_groups, size), **options)
    return rows, theta, population(**options)


def apart(fit):
    first, second = (part.mean for part in fit.population.components)
    return float(np.linalg.norm(first - second))


class TestServer:
    def test_shares_centers_and_scales(self):
        draws = np.random.default_rng(0)
        points = np.concatenate([draws.normal(5, 0.5, (300, 2)), draws.normal(-5, 2, (100, 2))])
        shares, centers, scales = k_means(points, 2)
        order = np.argsort(shares)
        np.testing.assert_allclose(shares[order], [0.25, 0.75])
        np.testing.assert_allclose(centers[order], [[-5, -5], [5, 5]], atol=0.6)
        np.testing.assert_allclose(scales[order], [2, 0.5], rtol=0.1)

    def test_fewer_points_than_clusters(self):
        shares, centers, scales = k_means(np.ones((5, 2)), 3)
        assert shares.sum() == pytest.approx(1)
        assert np.isfinite(centers).all()
        assert not scales.any()

    @pytest.mark.parametrize(
        ("found", "message"),
        [
            ((np.ones(2), np.ones((2, 2))), "three results"),
            ((np.ones(2), np.ones((3, 2)), np.ones(2)), "centers must be finite and of shape"),
            ((np.zeros(2), np.ones((2, 2)), np.ones(2)), "probabilities must be 2 numbers"),
            ((np.ones(2), np.ones((2, 2)), -np.ones(2)), "scales must be 2 finite numbers"),
        ],
    )
    def test_a_bad_clustering_function_is_refused(self, found, message):
        with pytest.raises(ValueError, match=message):
            cluster_points(lambda points, number: found, np.ones((4, 2)), 2)

    def test_any_clustering_function_will_do(self):
        """A private one need not look at the points: here it does not."""
        rows, _, prior = contracting(0, 3.0, 50)
        centers = np.stack([part.mean for part in prior.components])
        found = fit_mixture(
            rows,
            num_components=2,
            spread="none",
            method="paper",
            noise_variance=1.0,
            cluster=lambda points, number: (SHARES, centers, np.zeros(number)),
        )
        known = fit_mixture(rows, prior=prior)
        np.testing.assert_allclose(found.theta, known.theta)
        assert found.notes == ()
        assert found.method == "paper"


class TestCollapse:
    def test_algorithm_7_collapses_while_em_stays_at_the_oracle(self):
        """ERRATA 23: its centers draw together and its error rises; EM is within 1%."""
        rows, theta, prior = contracting(0, 3.0, 2500)
        best = error(fit_mixture(rows, prior=prior), theta)
        learned = fit_mixture(rows, num_components=2, spread="none", noise_variance=1.0)
        assert error(learned, theta) < 1.01 * best
        printed = [
            fit_mixture(
                rows,
                num_components=2,
                spread="none",
                method="paper",
                rounds=rounds,
                noise_variance=1.0,
            )
            for rounds in (2, 5, 20)
        ]
        errors = [error(fit, theta) for fit in printed]
        gaps = [apart(fit) for fit in printed]
        assert (np.diff(errors) > 0).all()
        assert (np.diff(gaps) < 0).all()
        assert gaps[-1] < 1e-3
        assert errors[-1] > 5 * best
        assert apart(learned) == pytest.approx(3 / np.sqrt(3), rel=0.05)
        note = printed[-1].notes[0]
        assert "draw together (ERRATA 23)" in note
        assert "after round 20" in note

    def test_one_standard_error_apart_it_collapses_within_five_rounds(self):
        rows, theta, prior = contracting(1, 1.0, 3000)
        known = fit_mixture(rows, prior=prior)
        learned = fit_mixture(rows, num_components=2, spread="none", noise_variance=1.0)
        printed = fit_mixture(
            rows, num_components=2, spread="none", method="paper", rounds=6, noise_variance=1.0
        )
        assert error(learned, theta) < 1.01 * error(known, theta)
        assert apart(printed) < 0.05
        assert error(printed, theta) > 1.3 * error(known, theta)

    def test_algorithm_4s_scales_fall_to_their_floor(self):
        """ERRATA 27: with its signs put right the scale goes to 0; EM keeps it within 25%.

        1,500 groups know the population well enough for an error within 2% of the oracle's.
        """
        centers = np.array([[1.0, 1], [-1, -1]])
        options = {"centers": centers, "shares": SHARES, "scale": 0.3}
        sizes = np.where(np.arange(1500) == 7, 0, 6)  # one group without rows
        rows, theta = draw(2, sizes, **options)
        learned = fit_mixture(rows, num_components=2)
        printed = fit_mixture(rows, num_components=2, method="paper", rounds=12)
        assert any("its floor" in note for note in printed.notes)
        np.testing.assert_allclose(printed.theta[7], printed.population.mean)
        assert max(part.covariance[0, 0] for part in printed.population.components) < 1e-4
        for part in learned.population.components:
            assert part.covariance[0, 0] == pytest.approx(0.09, rel=0.25)
        known = fit_mixture(rows, prior=population(**options))
        assert error(learned, theta) < 1.02 * error(known, theta)
        assert error(printed, theta) > 1.4 * error(known, theta)

    @pytest.mark.parametrize("spread", ["none", "component"])
    def test_classes_can_be_clustered_too(self, spread):
        draws = np.random.default_rng(0)
        x = np.column_stack([np.ones(800), draws.normal(size=800)])
        slope = np.where(np.arange(800) // 20 % 2, 3.0, -3.0)
        y = draws.random(800) < 1 / (1 + np.exp(-slope * x[:, 1]))
        rows = GroupedRows.of(x, y, np.arange(800) // 20, 40)
        found = fit_mixture(
            rows, family="binomial", num_components=2, spread=spread, method="paper"
        )
        assert (np.sign(found.theta[:, 1]) == np.where(np.arange(40) % 2, 1, -1)).mean() > 0.9

    def test_what_it_needs(self):
        rows, _ = draw(0, np.full(6, 2))
        with pytest.raises(ValueError, match="give noise_variance"):
            fit_mixture(rows, num_components=2, spread="none", method="paper")
