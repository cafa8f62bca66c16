"""Mixtures of logistic and softmax regressions: integrals, EM's law, peers, separation."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from fedprior.regression.logistic import fit_logistic
from fedprior.regression.mixture import em, fit_mixture
from fedprior.regression.mixture.parts import MixtureParameters
from fedprior.regression.mixture.start import MixtureProblem
from fedprior.regression.result import Component, RegressionPopulation
from fedprior.regression.rows import GroupedRows

CENTERS, SHARES = np.array([[1.0, 2, -2], [-1, -2, 2]]), np.array([0.6, 0.4])


def draw(seed, sizes, *, centers=CENTERS, shares=SHARES, scale=0.0, num_classes=2):
    """Rows with an intercept, classes by Gumbel noise on the logits, and the thetas."""
    draws = np.random.default_rng(seed)
    theta = centers[draws.choice(len(centers), len(sizes), p=shares)]
    theta = theta + scale * draws.normal(size=theta.shape)
    place = np.repeat(np.arange(len(sizes)), sizes)
    x = draws.normal(size=(len(place), centers.shape[1] // (num_classes - 1)))
    x[:, 0] = 1
    own = theta.reshape(len(sizes), num_classes - 1, -1)[place]
    logits = np.concatenate([np.zeros((len(x), 1)), np.einsum("na,nca->nc", x, own)], axis=1)
    y = (logits + draws.gumbel(size=logits.shape)).argmax(axis=1)
    return GroupedRows.of(x, y, place, len(sizes)), theta


def population(scale, centers=CENTERS, shares=SHARES):
    size = centers.shape[1]
    parts = [
        Component(share=share, mean=center, covariance=scale**2 * np.eye(size))
        for share, center in zip(shares, centers, strict=True)
    ]
    return RegressionPopulation(
        kind="known",
        mean=shares @ centers,
        covariance=np.eye(size),
        components=tuple(parts),
        fixed=np.empty(0),
    )


def error(fit, theta):
    return float(((fit.theta - theta) ** 2).sum(axis=1).mean())


def test_two_classes_are_integrated_nearly_exactly():
    """Evidence and posterior moments of one coefficient against adaptive quadrature."""
    draws = np.random.default_rng(0)
    sizes = np.array([1, 3, 0, 6, 11])
    place = np.repeat(np.arange(5), sizes)
    x, y = draws.normal(size=(21, 1)), draws.integers(0, 2, 21)
    rows = GroupedRows.of(x, y, place, 5)
    prior = population(1.5, np.array([[0.7], [-1.2]]), np.array([0.3, 0.7]))
    found = fit_mixture(rows, family="binomial", prior=prior)
    total = 0.0
    for group in np.flatnonzero(sizes):
        own = place == group

        def density(theta, own=own):
            logit = x[own, 0] * theta
            normal = stats.norm.pdf(theta, [0.7, -1.2], 1.5) @ [0.3, 0.7]
            return normal * np.exp(y[own] @ logit - np.logaddexp(0, logit).sum())

        moments = [
            integrate.quad(lambda t, k=k, f=density: t**k * f(t), -15, 15)[0] for k in range(3)
        ]
        total += np.log(moments[0])
        mean = moments[1] / moments[0]
        deviation = np.sqrt(moments[2] / moments[0] - mean**2)
        assert found.theta[group, 0] == pytest.approx(mean, abs=0.02 * deviation)
        assert found.errors[group, 0] == pytest.approx(deviation, rel=0.01)
    assert found.log_likelihood == pytest.approx(total, abs=0.02)
    assert found.theta[2, 0] == pytest.approx(0.3 * 0.7 - 0.7 * 1.2)


def test_a_discrete_mixture_of_three_classes_has_its_own_likelihood():
    centers = np.array([[1.0, 1, -1, 0], [-1, 0, 1, -1]])
    rows, _ = draw(0, np.array([2, 0, 5, 4]), centers=centers, num_classes=3)
    found = fit_mixture(
        rows, family="multinomial", num_classes=3, prior=population(0.0, centers, SHARES)
    )
    total = 0.0
    for group in (0, 2, 3):
        own = slice(*rows.start[group : group + 2])
        logits = np.einsum("na,kca->knc", rows.x[own], centers.reshape(2, 2, 2))
        logits = np.concatenate([np.zeros((*logits.shape[:2], 1)), logits], axis=2)
        logs = special.log_softmax(logits, axis=2)
        taken = logs[:, np.arange(len(rows.y[own])), rows.y[own].astype(int)].sum(axis=1)
        joint = np.log(SHARES) + taken
        total += special.logsumexp(joint)
        np.testing.assert_allclose(found.responsibilities[group], special.softmax(joint))
    assert found.log_likelihood == pytest.approx(total)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**20), num_classes=st.integers(2, 3))
def test_exact_em_never_lowers_the_likelihood(seed, num_classes):
    draws = np.random.default_rng(seed)
    centers = draws.normal(size=(2, 2 * (num_classes - 1)))
    sizes = draws.integers(0, 9, 30)
    rows, _ = draw(seed, sizes, centers=centers, num_classes=num_classes)
    family = "binomial" if num_classes == 2 else "multinomial"
    problem = MixtureProblem(rows, family, num_classes, None)
    rules = problem.rules("none", "isotropic")
    evidence = problem.evidence(rules)
    start = 4 * draws.normal(size=centers.shape)  # far away: Newton alone would overshoot
    parts = MixtureParameters(
        SHARES, start, np.zeros((2, *[centers.shape[1]] * 2)), np.empty(0), 1.0
    )
    levels = []
    for _ in range(8):
        parts, level = em.mixture_em_step(evidence, parts, rules, exact=False)
        levels.append(level)
    assert (np.diff(levels) > -1e-9 * (1 + np.abs(levels).max())).all()


@pytest.mark.parametrize("num_classes", [2, 3])
def test_one_kind_of_group_is_the_pooled_fit(num_classes):
    """The maximum likelihood of statsmodels, one feature fixed and the others not."""
    draws = np.random.default_rng(5)
    centers = draws.normal(size=(1, 3 * (num_classes - 1)))
    rows, _ = draw(1, np.full(60, 8), centers=centers, shares=np.ones(1), num_classes=num_classes)
    apart = GroupedRows(x=rows.x[:, :2], fixed=rows.x[:, 2:], y=rows.y, start=rows.start)
    family = "binomial" if num_classes == 2 else "multinomial"
    found = fit_mixture(apart, family=family, num_components=1, spread="none")
    peer = sm.MNLogit(rows.y.astype(int), rows.x).fit(disp=0)
    means = found.population.mean.reshape(num_classes - 1, 2)
    fixed = found.population.fixed.reshape(num_classes - 1, 1)
    np.testing.assert_allclose(np.hstack([means, fixed]), peer.params.T, atol=1e-4)
    assert found.log_likelihood == pytest.approx(peer.llf, abs=1e-6)


@pytest.mark.parametrize(
    ("spread", "scale", "number"), [("none", 0.0, 600), ("component", 0.5, 200)]
)
def test_two_classes_are_near_the_oracle(spread, scale, number):
    """So few groups that the centers' own error shows; `evidence` below has many."""
    sizes = np.random.default_rng(0).integers(3, 25, number)
    rows, theta = draw(0, sizes, scale=scale)
    found = fit_mixture(rows, family="binomial", num_components=2, spread=spread, restarts=2)
    known = fit_mixture(rows, family="binomial", prior=population(scale))
    assert error(found, theta) < 1.2 * error(known, theta)
    for part, center in zip(found.population.components, CENTERS, strict=True):
        np.testing.assert_allclose(part.mean, center, atol=0.4)
        assert part.covariance[0, 0] == pytest.approx(scale**2, abs=0.15)


def test_one_component_is_the_logistic_fit():
    rows, _ = draw(4, np.full(150, 10), centers=CENTERS[:1], shares=np.ones(1), scale=0.7)
    found = fit_mixture(rows, family="binomial", num_components=1)
    other = fit_logistic(rows)
    assert found.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-3)
    np.testing.assert_allclose(found.theta, other.theta, atol=0.01)
    np.testing.assert_allclose(found.population.covariance, other.population.covariance, rtol=0.01)


def test_three_classes_spread_by_laplace_says_so():
    centers = np.array([[1.0, 1, -1, 0], [-1, 0, 1, -1]])
    rows, theta = draw(0, np.full(100, 20), centers=centers, scale=0.5, num_classes=3)
    found = fit_mixture(rows, family="multinomial", num_components=2, restarts=2)
    known = fit_mixture(rows, family="multinomial", prior=population(0.5, centers))
    assert found.theta.shape == (100, 4)
    assert error(found, theta) < 1.15 * error(known, theta)
    assert any("Laplace" in note for note in found.notes)


def test_separated_classes_end_with_a_note():
    draws = np.random.default_rng(0)
    x = np.column_stack([np.ones(200), draws.choice([-1.0, 1.0], 200)])
    rows = GroupedRows.of(x, x[:, 1] > 0, np.arange(200) // 10, 20)
    found = fit_mixture(rows, family="binomial", num_components=1, spread="none")
    assert np.isfinite(found.theta).all()
    assert any("separate the classes within" in note for note in found.notes)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([0, 0, 0, 0], {}, "y must be of all 2 classes"),
        ([0, 1, 2, 0], {}, "y must be 0 or 1 for the binomial family"),
        ([0, 1, 2, 0], {"family": "multinomial", "num_classes": 2}, "num_classes must be at least"),
        ([0, 1, 0, 1], {"noise_variance": 1.0}, "noise_variance must be None"),
        ([0, -1, 0, 1], {}, "y must contain the classes 0, 1"),
    ],
)
def test_bad_classes_are_refused_in_one_line(y, options, message):
    rows = GroupedRows.of(np.ones((4, 1)), np.array(y), np.array([0, 0, 1, 1]), 2)
    with pytest.raises(ValueError, match=message):
        fit_mixture(rows, **{"family": "binomial", "num_components": 1} | options)


@pytest.mark.evidence
def test_two_classes_at_ten_thousand_groups():
    """Within 1% of the oracle where groups have 5 to 40 rows."""
    sizes = np.random.default_rng(0).integers(5, 41, 10_000)
    rows, theta = draw(0, sizes, scale=0.5)
    found = fit_mixture(rows, family="binomial", num_components=2)
    known = fit_mixture(rows, family="binomial", prior=population(0.5))
    print(error(found, theta), error(known, theta))  # noqa: T201
    assert error(found, theta) < 1.01 * error(known, theta)
