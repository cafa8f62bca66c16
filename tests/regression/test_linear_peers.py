"""Radon, sleepstudy and contraception: the answers of statsmodels, and what lme4 prints."""

import csv
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedprior.regression.linear import fit_linear
from fedprior.regression.logistic import fit_logistic
from fedprior.regression.rows import GroupedRows

ROOT = Path(__file__).resolve().parents[2]


def table(name, *, folder="grouped_regression"):
    given = os.environ.get("FEDPRIOR_DATA")
    root = Path(given) if given else ROOT.parent / "shared" / "data"
    path = root / folder / name
    if not path.is_file():
        pytest.skip(f"real data ({name}): set FEDPRIOR_DATA, or put it in ../shared/data")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def problem(name):
    """x, fixed, y and group of one of the three models."""
    lines = table("sleepstudy.csv" if name == "sleepstudy" else "radon_minnesota.csv")
    if name == "sleepstudy":
        y, group = "Reaction", "Subject"
        feature = np.array([float(line["Days"]) for line in lines])
    else:
        y, group = "log.radon", "county"
        feature = np.array([float(line["basement"]) for line in lines])
    target = np.array([float(line[y]) for line in lines])
    place = np.unique([line[group] for line in lines], return_inverse=True)[1]
    ones = np.ones((len(target), 1))
    if name == "radon intercept":
        return ones, feature[:, None], target, place
    return np.column_stack([ones, feature]), np.empty((len(target), 0)), target, place


@pytest.mark.parametrize("criterion", ["ml", "reml"])
@pytest.mark.parametrize("name", ["radon intercept", "radon slope", "sleepstudy"])
def test_agrees_with_statsmodels(name, criterion):
    """Within 1%: coefficients, variances, group predictions; the likelihood is no lower."""
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    x, fixed, y, place = problem(name)
    groups = place.max() + 1
    fit = fit_linear(
        GroupedRows.of(x, y, place, groups, fixed=fixed), covariance="full", criterion=criterion
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        design = np.column_stack([x, fixed])
        model = mixed.MixedLM(y, design, groups=place, exog_re=x)
        peer = model.fit(reml=criterion == "reml")
        effects = peer.random_effects
    found = fit.population
    coefficients = np.append(found.mean, found.fixed)
    assert np.allclose(coefficients, peer.fe_params, rtol=0.01)
    errors = np.append(found.mean_errors, found.fixed_errors)
    # theirs hold the doubt about the variances too, which is none where the design is balanced
    assert np.allclose(errors, peer.bse_fe, rtol=1e-4 if name == "sleepstudy" else 0.03)
    scale = np.sqrt(np.outer(np.diag(peer.cov_re), np.diag(peer.cov_re)))
    assert (np.abs(found.covariance - peer.cov_re) < 0.01 * scale).all()
    assert found.noise_variance == pytest.approx(peer.scale, rel=0.01)
    theta = peer.fe_params[: x.shape[1]] + np.array([effects[i] for i in range(groups)])
    own, other = (np.sum(x * each[place], axis=1) for each in (fit.theta, theta))
    assert np.allclose(own, other, atol=0.01 * y.std())
    assert fit.log_likelihood == pytest.approx(peer.llf, abs=1e-3)
    assert fit.log_likelihood >= peer.llf - 1e-6


def test_sleepstudy_is_what_lme4_prints():
    """lmer(Reaction ~ Days + (Days | Subject)): criterion 1743.6283, deviance 1751.9393."""
    x, fixed, y, place = problem("sleepstudy")
    rows = GroupedRows.of(x, y, place, 18, fixed=fixed)
    fit = fit_linear(rows, covariance="full", criterion="reml")
    assert -2 * fit.log_likelihood == pytest.approx(1743.6283, abs=1e-4)
    found = fit.population
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx([24.741, 5.922], abs=2e-3)
    assert np.sqrt(found.noise_variance) == pytest.approx(25.592, abs=1e-3)
    assert found.mean_errors == pytest.approx([6.825, 1.546], abs=1e-3)
    whole = fit_linear(rows, covariance="full", criterion="ml")
    assert -2 * whole.log_likelihood == pytest.approx(1751.9393, abs=1e-4)


def test_contraception_is_what_glmer_prints():
    """use ~ age + age^2 + urban + livch + (1 | district), 25 points: sd .4786, logLik -1186.23."""
    lines = table("contraception.csv", folder="groups")
    use = np.array([float(line["use"] == "Y") for line in lines])
    place = np.unique([line["district"] for line in lines], return_inverse=True)[1]
    age = np.array([float(line["age"]) for line in lines])
    words = [("urban", "Y"), ("livch", "1"), ("livch", "2"), ("livch", "3+")]
    indicators = [[float(line[name] == word) for line in lines] for name, word in words]
    fixed = np.column_stack([age, age**2, *indicators])
    fit = fit_logistic(GroupedRows.of(np.ones((len(use), 1)), use, place, 60, fixed=fixed))
    assert np.sqrt(fit.population.covariance[0, 0]) == pytest.approx(0.4786, abs=1e-4)
    assert fit.log_likelihood == pytest.approx(-1186.23, abs=0.01)


def test_degrees_of_freedom_of_kenward_and_roger():
    """pbkrtest and lmerTest give 17 for intercept and Days of the sleep study, 6.825 and 1.546."""
    x, fixed, y, place = problem("sleepstudy")
    rows = GroupedRows.of(x, y, place, place.max() + 1, fixed=fixed)
    found = fit_linear(rows, covariance="full", criterion="reml").population
    assert found.freedom == pytest.approx([17, 17], rel=1e-6)
    assert found.corrected_errors == pytest.approx([6.8246, 1.5458], abs=1e-4)
    assert found.corrected_errors == pytest.approx(found.mean_errors, rel=1e-6)
