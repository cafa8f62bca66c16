"""Mixtures through channels: radius, privacy over rounds, bits, the guard."""

import numpy as np
import pytest
from scipy.stats import chi

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.core.check import PrivacyError
from fedprior.estimation.mixture.estimate import estimate_mixture
from fedprior.estimation.private.em import lemma_radius, message_channel
from fedprior.estimation.private.mixture import estimate_mixture_privately
from fedprior.estimation.statistics import Means
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms

CENTERS, SHARES = np.array([-1.1, 0.2, 0.9]), np.array([0.3, 0.4, 0.3])
NOISE = 1.0


def draw(seed, num_groups, *, n=5, centers=CENTERS):
    draws = np.random.default_rng(seed)
    n = np.broadcast_to(n, num_groups)
    theta = centers[draws.choice(3, num_groups, p=SHARES)]
    error = draws.standard_normal(theta.shape).T * np.sqrt(NOISE / np.maximum(n, 1))
    mean = np.where(n > 0, (theta.T + error), np.nan).T
    return theta, Means(n=np.array(n), mean=mean)


def gain(theta, estimates):
    some = estimates.n > 0
    errors = [np.sum((each - theta)[some] ** 2) for each in (estimates.personal, estimates.raw)]
    return 100 * (1 - errors[0] / errors[1])


def private(means, **options):
    common = {"num_components": 3, "radius": 1.5, "noise_variance": NOISE, "seed": 0}
    return estimate_mixture_privately(means, **common | options)


def test_the_radius_is_lemma_1s_by_the_chi_quantile():
    """ERRATA 24: d = 10, tail 1e-6: 6.85 standard deviations, where the printed radius has 20.1."""
    found = lemma_radius(2.0, np.full(100, 0.25), 100, 10)  # 1 / (m^2 n) = 1e-6
    assert found == pytest.approx(2 + 0.5 * chi.isf(1e-6, 10))
    assert (found - 2) / 0.5 == pytest.approx(6.85, abs=0.01)


@pytest.mark.parametrize(("count", "dimension"), [(2, 1), (3, 4)])
def test_messages_lie_in_the_ball_that_the_noise_is_made_for(count, dimension):
    channel = message_channel(count, dimension, 3, 1.0, 1e-5, None)
    assert isinstance(channel, LocalGaussian)
    draws = np.random.default_rng(0)
    alpha = np.concatenate([draws.dirichlet(np.full(count, 0.1), 2000), np.eye(count)])
    unit = draws.standard_normal((len(alpha), dimension))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    message = np.concatenate(
        [alpha, (alpha[:, :, None] * unit[:, None]).reshape(len(alpha), -1)], 1
    )
    norm = np.linalg.norm(message - np.array(channel.center), axis=1)
    assert norm.max() <= channel.clip + 1e-12
    assert norm.max() == pytest.approx(channel.clip)  # and no budget is wasted


def test_quantized_messages_lose_little():
    theta, means = draw(0, 10_000)
    known = estimate_mixture(
        means, centers=CENTERS, probabilities=SHARES, noise_variance=NOISE
    ).estimates
    best = gain(theta, known)
    for bits, loss in {1: 8.0, 2: 3.0, 4: 1.0}.items():
        found = private(means, bits=bits, rounds=10)
        assert gain(theta, found.fitted.estimates) > best - loss
        assert found.bits == bits * (10 * 6 + 1)
        assert found.guarantee is None
        assert found.fitted.estimates.gain_over_raw == pytest.approx(best, abs=6)


def test_private_messages_are_accounted_over_all_rounds():
    theta, means = draw(0, 100_000)
    found = private(means, epsilon=8.0, delta=1e-6, rounds=3)
    assert found.guarantee.epsilon == pytest.approx(8.0, abs=1e-5)
    assert found.guarantee.epsilon <= 8.0
    assert "4 messages" in found.guarantee.mechanism
    assert found.guarantee.unit == "one group's rows (its size is public)"
    assert found.fitted.estimates.guarantee is found.guarantee
    assert found.bits == found.guarantee.bits == 32 * (3 * 6 + 1)
    assert found.guarantee.neighbors == "replace one"
    assert gain(theta, found.fitted.estimates) > 30  # of 42 with everything known
    assert np.sort(found.fitted.centers) == pytest.approx(CENTERS, abs=0.35)


def test_all_messages_are_charged_together_before_the_first(tmp_path):
    _, means = draw(0, 400)
    terms = {"delta": 1e-5, "relation": "replace-one", "view": "local", "budget": 5.0}
    options = {"epsilon": 4.0, "delta": 1e-5, "rounds": 3}
    with Ledger(tmp_path / "ledger", Terms(noise="simulated", **terms)) as ledger:
        found = private(means, **options, ledger=ledger)
        assert ledger.spent == pytest.approx(found.guarantee.epsilon)
        assert ledger.spent == pytest.approx(4.0)
        again = private(means, **options, ledger=ledger)  # the same messages
        assert ledger.spent == pytest.approx(4.0)
        np.testing.assert_array_equal(found.fitted.centers, again.fitted.centers)
        with pytest.raises(PrivacyError, match="what is left of the budget"):
            private(means, **options | {"seed": 1}, ledger=ledger)
        with pytest.raises(ValueError, match="ledger must be None with bits"):
            private(means, bits=2, ledger=ledger)
    with (
        Ledger(tmp_path / "secure", Terms(noise="secure", **terms)) as ledger,
        pytest.raises(PrivacyError, match="noise must be the channel's, simulated"),
    ):
        private(means, **options, ledger=ledger)
    with pytest.raises(PrivacyError, match="delta must be below 1 / clients"):
        private(means, epsilon=4.0, delta=1 / 400)
    assert private(means, epsilon=4.0, delta=1 / 400, allow_delta=True).guarantee.delta == 1 / 400


def test_the_guard_keeps_raw_means():
    theta, means = draw(1, 2000)
    for seed in range(5):
        found = private(means, epsilon=1.0, delta=1e-5, seed=seed).fitted.estimates
        assert gain(theta, found) >= 0
        assert any("fallback to local" in note for note in found.notes)
        np.testing.assert_array_equal(found.personal, found.raw)
        np.testing.assert_array_equal(found.weight, 1)
        assert (found.gain_over_raw, found.gain_over_pooled, found.fell_back) == (0, 0, True)
        inside = np.mean((found.lower <= theta) & (theta <= found.upper))
        assert 0.93 < inside < 0.97


def coverage(runs, num_groups, *, n, centers=CENTERS, shares=SHARES, **options):
    """Average over the runs that did not fall back, and how many those were."""
    found = []
    for seed in range(runs):
        draws = np.random.default_rng(seed)
        theta = np.array(centers)[draws.choice(len(centers), num_groups, p=shares)]
        mean = theta + draws.standard_normal(num_groups) / np.sqrt(n)
        means = Means(n=np.full(num_groups, n), mean=mean)
        rows = private(means, num_components=len(centers), seed=seed, **options).fitted.estimates
        if not rows.fell_back:
            found.append(np.mean((rows.lower <= theta) & (theta <= rows.upper)))
    return np.mean(found), len(found)


PAIR = {"centers": (-1.0, 1.0), "shares": (0.5, 0.5), "n": 10}


def test_intervals_hold_the_error_of_the_learned_centers():
    """With the centers taken as known they covered 1% of the groups."""
    covered, number = coverage(4, 3000, epsilon=8.0, delta=1e-5, **PAIR)
    assert number > 1
    assert covered > 0.93
    assert coverage(4, 500, bits=2, **PAIR)[0] > 0.93


@pytest.mark.evidence
def test_coverage_of_the_intervals():
    """95% intervals, 40 runs each: at least 93% on average."""
    assert coverage(40, 3000, epsilon=8.0, delta=1e-5, **PAIR)[0] > 0.93
    assert coverage(40, 500, bits=2, **PAIR)[0] > 0.93
    for bits, rounds in ((1, 10), (4, 10), (4, 3)):
        assert coverage(40, 10_000, n=5, bits=bits, rounds=rounds)[0] > 0.93


def test_center_errors_are_those_of_repeated_runs():
    """Ten runs: the root mean squared error of each center within a factor of 2 of what is said."""
    away, said = [], []
    for seed in range(10):
        draws = np.random.default_rng(seed)
        theta = np.where(draws.random(5000) < 0.5, -1.0, 1.0)
        means = Means(n=np.full(5000, 10), mean=theta + draws.standard_normal(5000) / np.sqrt(10))
        fitted = private(means, num_components=2, epsilon=8.0, delta=1e-5, seed=seed).fitted
        away.append(fitted.centers - np.array([-1.0, 1.0]))
        errors = fitted.estimates.population.standard_errors
        said.append([errors["center_1"], errors["center_2"]])
    actual = np.sqrt(np.mean(np.square(away)))
    assert actual / 2 < np.sqrt(np.mean(np.square(said))) < 2 * actual


def test_known_standard_errors_are_public():
    _, means = draw(0, 3000)
    known = Means(n=means.n, mean=means.mean, variance=np.full(3000, NOISE / 5))
    found = private(known, noise_variance=None, epsilon=8.0, delta=1e-5)
    assert found.guarantee.unit == "one group's rows (its size and standard error are public)"


def test_what_is_published_depends_on_the_reports_alone():
    """With a budget of nothing two tables give one population, one gain and the same notes."""
    tables = [draw(seed, 400)[1] for seed in (0, 1)]
    first, second = (private(each, epsilon=1e-3, delta=1e-6).fitted for each in tables)
    for name in ("gain_over_raw", "gain_over_pooled", "notes"):
        assert getattr(first.estimates, name) == getattr(second.estimates, name)
    np.testing.assert_allclose(first.centers, second.centers, rtol=1e-6)
    errors = [list(each.estimates.population.standard_errors.values()) for each in (first, second)]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-4)


def test_vectors_empty_groups_and_given_centers():
    centers = np.array([[1.0, 0.0], [-1.0, 0.5], [0.0, -1.5]])
    n = np.random.default_rng(0).integers(0, 8, 5000)
    theta, means = draw(3, 5000, n=n, centers=centers)
    found = private(means, bits=6, radius=2.0, centers=centers + 0.4)
    assert found.fitted.centers.shape == (3, 2)
    assert found.fitted.centers == pytest.approx(centers, abs=0.2)
    assert gain(theta, found.fitted.estimates) > 40
    assert np.isfinite(found.fitted.estimates.personal).all()
    np.testing.assert_array_equal(found.fitted.estimates.weight[n == 0] >= 0, True)
    start = private(means, bits=6, radius=2.0)
    assert np.linalg.norm(start.fitted.centers, axis=1).max() <= 2 + 1e-9


def test_what_comes_back_repeats():
    _, means = draw(0, 3000)
    first, again, other = (
        private(means, epsilon=8.0, delta=1e-5, seed=seed).fitted.centers for seed in (2, 2, 3)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_refusals():
    _, means = draw(0, 50)
    with pytest.raises(ValueError, match="epsilon or bits must be one of the two"):
        private(means)
    with pytest.raises(ValueError, match="epsilon or bits must be one of the two"):
        private(means, epsilon=1.0, delta=1e-5, bits=3)
    with pytest.raises(ValueError, match="delta must be above 0"):
        private(means, epsilon=1.0)
    with pytest.raises(ValueError, match="delta must be 0 with bits, got 1e-05"):
        private(means, bits=2, delta=1e-5)
    with pytest.raises(ValueError, match="noise_variance must be given"):
        private(means, bits=2, noise_variance=None)
    with pytest.raises(ValueError, match="centers must be of shape"):
        private(means, bits=2, centers=np.zeros(2))
