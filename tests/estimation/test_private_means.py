"""Private means: table 3.5, Thm 2's weights, what is reported where variances are not known."""

import numpy as np
import pytest
from private_answers import open_ledger

from fedprior.core.check import PrivacyError
from fedprior.estimation.private.means import estimate_means_privately
from fedprior.estimation.private.moments import Ball
from fedprior.estimation.private.round import Sent, Variances, combine_reports, widened
from fedprior.estimation.statistics import Means
from fedprior.privacy import paper

# ERRATA 3.5: m = 10,000, n = 15, sigma_theta = 0.1, sigma_x = 0.5, r = 1, delta = 1e-4.
TABLE = {
    0.5: (0.01493, 0.01327),
    1.0: (0.01204, 0.01017),
    2.0: (0.00873, 0.00783),
    5.0: (0.00675, 0.00663),
}
KNOWN = {"noise_variance": 0.25, "theta_variance": 0.01}


def draw(seed, num_groups, n, *, theta=0.1, noise=0.5, mean=0.3, dimension=1):
    draws = np.random.default_rng(seed)
    n = np.broadcast_to(n, num_groups)
    own = mean + theta * draws.standard_normal((num_groups, dimension))
    error = noise / np.sqrt(np.maximum(n, 1))[:, None] * draws.standard_normal(own.shape)
    within = noise**2 * draws.chisquare(np.maximum(n - 1, 1e-9) * dimension)
    found = np.where(n[:, None] > 0, own + error, np.nan)
    squeeze = (lambda values: values[:, 0]) if dimension == 1 else (lambda values: values)
    within = np.where(n > 1, within, 0.0)
    return squeeze(own), Means(n=np.array(n), mean=squeeze(found), within=within)


def gain(theta, found, some=slice(None)):
    errors = [np.sum((each - theta)[some] ** 2) for each in (found.personal, found.raw)]
    return 100 * (1 - errors[0] / errors[1])


@pytest.mark.parametrize("epsilon", sorted(TABLE))
def test_table_3_5(epsilon):
    _, means = draw(0, 10_000, 15)
    options = {"epsilon": epsilon, "delta": 1e-4, "low": -1, "high": 1, "seed": 1} | KNOWN
    options["allow_delta"] = True  # the errata's table has delta = 1 / m
    for method, expected in zip(("paper", "default"), TABLE[epsilon], strict=True):
        found = estimate_means_privately(means, method=method, bounds="population", **options)
        risk = 0.25 / 15 * (1 - found.gain_over_raw / 100)
        assert risk == pytest.approx(expected, rel=0.005)


@pytest.mark.evidence
@pytest.mark.parametrize("method", ["paper", "default"])
def test_table_3_5_by_simulation(method):
    """Mean squared error over 2,000 runs: within 5% of the table (standard error about 1%)."""
    place = ["paper", "default"].index(method)
    for epsilon, row in TABLE.items():
        options = {"epsilon": epsilon, "delta": 1e-4, "low": -1, "high": 1} | KNOWN
        options["allow_delta"] = True
        errors = []
        for run in range(2000):
            theta, means = draw(run, 10_000, 15)
            found = estimate_means_privately(
                means, method=method, bounds="population", seed=run, **options
            )
            errors.append(np.mean((found.personal - theta) ** 2))
        assert np.mean(errors) == pytest.approx(row[place], rel=0.05)


def test_the_papers_epsilon_is_never_printed_as_the_guarantee():
    _, means = draw(0, 500, 15, dimension=10)
    found = estimate_means_privately(
        means, epsilon=0.5, delta=1e-4, low=-1, high=1, method="paper", seed=0, **KNOWN
    )
    true = paper.paper_gaussian_epsilon(0.5, 1e-4, dimension=10)
    assert found.guarantee.epsilon == true > 1.1
    assert found.population.fitted_by == "paper"
    assert "The paper states epsilon = 0.5" in found.notes[0]
    assert f"{true:.4g}" in found.notes[0]
    assert "per coordinate" in found.guarantee.mechanism


def test_weights_are_thm_2s_where_sizes_are_equal():
    m, s, q, theta = 40, 0.02, 3.0, 0.05
    variances = Variances(theta, 0.2, np.full(m, 10.0), 10)
    means = Means(n=np.full(m, 10), mean=np.zeros(m))
    weighing = combine_reports(means, variances, Sent(np.zeros((m, 1)), q)).weighing
    spread = theta + q / (m - 1)
    a = spread / (spread + s)
    np.testing.assert_allclose(weighing.own, a)
    np.testing.assert_allclose(weighing.risk, s * (a + (1 - a) / m))


def test_weights_are_the_best_for_unequal_sizes():
    """The stated risk by simulation, and no other weight has a smaller one."""
    n = np.array([1.0, 4.0, 30.0, 100.0])
    variances = Variances(0.3, 2.0, n, 1)
    means = Means(n=n.astype(int), mean=np.zeros(4))
    weighing = combine_reports(means, variances, Sent(np.zeros((4, 1)), 0.7)).weighing
    draws = np.random.default_rng(0)
    theta = np.sqrt(0.3) * draws.standard_normal((200_000, 4))
    own = theta + np.sqrt(2 / n) * draws.standard_normal(theta.shape)
    share = 1 / (0.3 + 2 / n + 0.7)
    center = ((own + np.sqrt(0.7) * draws.standard_normal(own.shape)) @ share) / share.sum()
    for shift in (0.0, 0.03, -0.03):
        weight = weighing.own + shift
        risk = np.mean((weight * own + (1 - weight) * center[:, None] - theta) ** 2, axis=0)
        if shift == 0:
            np.testing.assert_allclose(risk, weighing.risk, rtol=0.02)  # 6 standard errors
        else:
            assert (risk > weighing.risk * 0.999).all()


def test_the_widened_ball_is_erratas():
    variances = Variances(0.01, 0.25, np.full(10_000, 15.0), 15)
    from scipy.stats import norm

    expected = 1 + np.sqrt(0.01 + 0.25 / 15) * norm.isf(1 / (10_000**2 * 15))
    assert widened(1.0, variances) == pytest.approx(expected)


def test_means_outside_the_ball_are_moved_to_its_edge():
    ball = Ball(1.0, 2.0, 2)
    moved = ball.inside(np.array([[1.0, 5.0], [1.5, 1.0], [-30.0, 1.0]]))
    np.testing.assert_allclose(moved, [[1, 3], [1.5, 1], [-1, 1]])


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_unknown_variances_are_found(delta):
    """At 100,000 groups of 2..40 and epsilon 8 the estimates are near the truth: gain within 3."""
    n = np.random.default_rng(0).integers(2, 40, 100_000)
    theta, means = draw(1, len(n), n, theta=0.4)
    options = {"low": -1.7, "high": 2.3, "variance_bound": 1.0, "seed": 0, "allow_delta": True}
    found = estimate_means_privately(means, epsilon=8.0, delta=delta, **options)
    known = 0.16 / (0.16 + 0.25 / n)
    best = 100 * (1 - np.sum(known * 0.25 / n) / np.sum(0.25 / n))
    assert gain(theta, found) > best - 3
    parameters, errors = found.population.parameters, found.population.standard_errors
    assert abs(parameters["mean"] - 0.3) < 5 * errors["mean"]
    assert abs(parameters["variance"] - 0.16) < 5 * errors["variance"]
    assert abs(parameters["noise_variance"] - 0.25) < 5 * errors["noise_variance"] + 0.01
    inside = np.mean((found.lower <= theta) & (theta <= found.upper))
    assert 0.93 < inside < 0.975


@pytest.mark.parametrize("known", [{}, {"noise_variance": 0.25}, {"theta_variance": 0.01}, KNOWN])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("dimension", [1, 3])
def test_every_kind_of_report(known, delta, dimension):
    n = np.random.default_rng(3).integers(0, 9, 4000)
    theta, means = draw(2, 4000, n, dimension=dimension)
    found = estimate_means_privately(
        means, epsilon=6.0, delta=delta, low=-2, high=2, variance_bound=1.0, seed=0, **known
    )
    some = n > 0
    assert np.isfinite(found.personal).all()
    assert found.personal.shape == theta.shape
    assert gain(theta, found, some) > -2
    assert found.guarantee.epsilon == pytest.approx(6.0, rel=1e-7)
    assert found.guarantee.epsilon <= 6.0
    assert found.guarantee.delta == delta
    numbers = dimension + 2 - len(known)  # the mean, and what is not known
    bits = 32 * numbers if delta else 1.0 + np.ceil(np.log2(dimension))
    assert found.guarantee.bits == bits
    np.testing.assert_array_equal(found.weight[~some], 0)
    assert np.isnan(found.raw[~some]).all()


def test_falls_back_to_raw_means_at_a_hopeless_budget():
    _, means = draw(0, 60, 5, theta=0.5)
    found = estimate_means_privately(
        means, epsilon=0.1, delta=1e-5, low=-2, high=2, variance_bound=1.0, seed=0
    )
    np.testing.assert_array_equal(found.personal, found.raw)
    assert any("fallback to local" in note for note in found.notes)
    assert found.fell_back
    assert "enough data of their own" not in found.sentence
    assert found.gain_over_raw == found.gain_over_pooled == 0


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_default_bound_holds_sample_variances_of_few_values(n, delta):
    """Values 0 or 1, at equal chances: variance 1/4, sample variances of up to n / (4 (n - 1))."""
    values = np.random.default_rng(0).integers(0, 2, (40_000, n)).astype(float)
    within = n * values.var(axis=1)
    means = Means(n=np.full(len(values), n), mean=values.mean(axis=1), within=within)
    found = estimate_means_privately(means, epsilon=8.0, delta=delta, low=0, high=1, seed=0)
    assert found.population.parameters["noise_variance"] == pytest.approx(0.25, abs=0.02)


# (mean and scale of the groups' thetas, range): all outside, half, all but the middle, in 3-d.
MISSES = [(2.0, 0.3, (3, 6), 1), (3.0, 1.0, (3, 6), 1), (0.0, 1.0, (-0.5, 0.5), 1)]
MISSES += [(0.0, 1.0, (-1, 1), 1), (2.0, 0.3, (3, 6), 3)]


@pytest.mark.parametrize(("mean", "theta", "limits", "dimension"), MISSES)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_range_that_misses_the_groups_does_no_harm(mean, theta, limits, dimension, delta):
    own, means = draw(0, 3000, 5, theta=theta, noise=1.0, mean=mean, dimension=dimension)
    options = {"epsilon": 8.0, "delta": delta, "low": limits[0], "high": limits[1], "seed": 0}
    known = {"noise_variance": 1.0, "theta_variance": theta**2}
    for more in ({"variance_bound": 4.0}, {"noise_variance": 1.0}, known):
        found = estimate_means_privately(means, **options, **more)
        if gain(own, found) != 0:  # a range that is too tight is no matter to known variances
            assert more is known
            assert gain(own, found) > 0
            continue
        assert found.fell_back
        assert found.gain_over_raw == 0
        assert "seems to miss the groups" in found.notes[0]
        np.testing.assert_array_equal(found.personal, found.raw)
        assert np.mean((found.lower <= own) & (own <= found.upper)) > 0.93


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_a_range_that_holds_the_groups_is_trusted(mean):
    own, means = draw(0, 3000, 5, theta=0.3, noise=1.0, mean=mean)
    found = estimate_means_privately(means, epsilon=4.0, low=-2, high=2, variance_bound=4.0, seed=0)
    assert gain(own, found) > 45
    assert not found.fell_back


def test_known_standard_errors_are_public():
    theta, means = draw(4, 20_000, 10, theta=0.4)
    known = Means(n=means.n, mean=means.mean, variance=np.full(20_000, 0.025))
    found = estimate_means_privately(known, epsilon=3.0, low=-2, high=2, seed=0)
    assert gain(theta, found) > 100 * 0.025 / 0.185 - 3
    assert "noise_variance" not in found.population.parameters
    assert found.guarantee.unit == "one group's rows (its size and standard error are public)"
    assert found.guarantee.neighbors == "replace one"
    both = estimate_means_privately(known, epsilon=3.0, low=-2, high=2, theta_variance=0.16, seed=0)
    assert gain(theta, both) == pytest.approx(100 * 0.025 / 0.185, abs=2)


def test_noise_is_secure_only_where_it_can_be(tmp_path):
    _, means = draw(0, 300, 5)
    options = {"epsilon": 2.0, "low": -2, "high": 2, "variance_bound": 1.0}
    with open_ledger(tmp_path / "ledger") as ledger:
        secure = [estimate_means_privately(means, **options, ledger=ledger) for _ in range(3)]
        assert ledger.spent == pytest.approx(6.0)
    assert secure[0].guarantee.noise == "secure"
    assert len({each.population.mean for each in secure}) > 1
    gaussian = [estimate_means_privately(means, delta=1e-5, **options) for _ in range(2)]
    assert gaussian[0].guarantee.noise == "simulated"
    assert gaussian[0].population.mean == gaussian[1].population.mean
    seeded = estimate_means_privately(means, seed=1, **options)
    assert seeded.guarantee.noise == "simulated"


@pytest.mark.parametrize("known", [{}, KNOWN])
def test_what_is_for_release_is_recorded_or_refused(tmp_path, known):
    _, means = draw(0, 300, 5)
    options = {"epsilon": 2.0, "low": -2, "high": 2, "variance_bound": 1.0} | known
    with pytest.raises(PrivacyError, match="secure noise must be recorded"):
        estimate_means_privately(means, **options)
    with (
        open_ledger(tmp_path / "simulated", noise="simulated") as ledger,
        pytest.raises(PrivacyError, match="noise must be the channel's, secure"),
    ):
        estimate_means_privately(means, **options, ledger=ledger)
    with open_ledger(tmp_path / "ledger", budget=3.0) as ledger:
        estimate_means_privately(means, **options, ledger=ledger)
        with pytest.raises(PrivacyError, match="what is left of the budget"):
            estimate_means_privately(means, **options, ledger=ledger)
        assert ledger.spent == 2.0


def test_gaussian_reports_are_never_recorded_as_secure(tmp_path):
    _, means = draw(0, 300, 5)
    options = {"epsilon": 2.0, "low": -2, "high": 2, "variance_bound": 1.0, "delta": 1e-5}
    with (
        open_ledger(tmp_path / "ledger", delta=1e-5) as ledger,
        pytest.raises(PrivacyError, match="noise must be the channel's, simulated"),
    ):
        estimate_means_privately(means, **options, ledger=ledger)
    with open_ledger(tmp_path / "simulated", delta=1e-5, noise="simulated") as ledger:
        for method in ("default", "paper"):
            more = KNOWN | {"method": method, "seed": int(method == "paper")}
            estimate_means_privately(means, **options | more, ledger=ledger)
        assert 2 < ledger.spent < 4.0


def test_a_delta_of_one_group_is_refused():
    _, means = draw(0, 300, 5)
    options = {"epsilon": 2.0, "low": -2, "high": 2, "variance_bound": 1.0}
    with pytest.raises(PrivacyError, match="delta must be below 1 / clients"):
        estimate_means_privately(means, delta=1 / 300, **options)
    found = estimate_means_privately(means, delta=1 / 300, allow_delta=True, **options)
    assert found.guarantee.delta == 1 / 300


def test_reports_are_all_that_the_population_sees():
    first, second = (draw(seed, 400, 5)[1] for seed in (0, 1))
    options = {"epsilon": 1e-5, "low": -2, "high": 2, "variance_bound": 1.0, "seed": 0}
    found = [estimate_means_privately(each, **options) for each in (first, second)]
    assert found[0].population.parameters == found[1].population.parameters
    assert found[0].gain_over_raw == found[1].gain_over_raw
    assert found[0].notes == found[1].notes


def test_refusals():
    _, means = draw(0, 10, 5)
    options = {"epsilon": 1.0, "low": -1.0, "high": 1.0}
    with pytest.raises(ValueError, match="low must be below high"):
        estimate_means_privately(means, epsilon=1.0, low=1.0, high=1.0)
    with pytest.raises(ValueError, match="known for bounds='population'"):
        estimate_means_privately(means, bounds="population", **options)
    with pytest.raises(ValueError, match="known for bounds='population' and for method='paper'"):
        estimate_means_privately(means, method="paper", delta=1e-5, **options)
    with pytest.raises(ValueError, match="delta must be above 0 for method='paper'"):
        estimate_means_privately(means, method="paper", **options, **KNOWN)
    bare = Means(n=np.full(10, 5), mean=np.zeros(10))
    with pytest.raises(ValueError, match="noise_variance must be given or identifiable"):
        estimate_means_privately(bare, **options)
    with pytest.raises(ValueError, match="at least 3 groups"):
        estimate_means_privately(Means(n=np.array([5, 0]), mean=np.zeros(2)), **options, **KNOWN)
    with pytest.raises(ValueError, match="delta must be in"):
        estimate_means_privately(means, delta=1.0, **options)
