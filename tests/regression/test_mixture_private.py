"""Private EM of a mixture of regressions: the guarantee, the messages, what is left of it."""

import numpy as np
import pytest
from test_mixture_linear import CENTERS, SHARES, draw, error, population

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core.check import PrivacyError
from fedprior.privacy import accounting, events, secure
from fedprior.privacy.charging import total
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.terms import Terms
from fedprior.regression.mixture import fit_mixture
from fedprior.regression.private_em import private_messages
from fedprior.regression.private_mixture import fit_mixture_privately
from fedprior.regression.rows import GroupedRows

COMMON = {"num_components": 3, "radius": 3.0, "delta": 1e-6}
NEAR = CENTERS + 0.3 * np.array([[1.0, -1, 0], [0, 1, 1], [-1, 0, 1]])


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_guarantee_is_the_accountants(relation):
    rows, _ = draw(0, np.full(50, 4))
    found = fit_mixture_privately(rows, **COMMON, epsilon=1.5, rounds=7, relation=relation)
    multiplier = found.channel.noise_multiplier
    spent = accounting.epsilon([(events.gaussian(multiplier), 7)], delta=1e-6, relation=relation)
    assert found.guarantee.epsilon == spent
    assert 1.49 < spent <= 1.5
    assert found.guarantee.neighbors.replace(" or ", "-").startswith(relation.split("-")[0])
    assert found.guarantee.bits == 32 * 7 * (3 * 10 + 1)
    assert "not valid for release" in str(found.guarantee)
    assert found.fit.log_likelihood is None
    assert any("not private" in note for note in found.fit.notes)


def test_a_channel_of_ones_own_is_accounted_for():
    rows, _ = draw(0, np.full(50, 4))
    channel = CentralGaussian(clip=2.0, noise_multiplier=5.0)
    found = fit_mixture_privately(rows, **COMMON, channel=channel, rounds=4)
    spent = accounting.epsilon([(channel.event(31), 4)], delta=1e-6)
    assert found.guarantee.epsilon == spent
    assert "4 rounds" in found.guarantee.mechanism


def test_one_group_moves_a_sum_by_no_more_than_the_clip():
    """Whatever its rows; the noise is made for that."""
    draws = np.random.default_rng(1)
    wild = GroupedRows.of(
        1e6 * draws.normal(size=(8, 3)), 1e9 * draws.normal(size=8), np.arange(8), 8
    )
    channel = CentralGaussian(clip=1.7, noise_multiplier=1.0)
    for block in wild.blocks():
        sent = channel.encode(private_messages(block, SHARES, CENTERS, 1.0), draws)
        assert (np.linalg.norm(sent, axis=1) <= 1.7 * (1 + 1e-12)).all()


@pytest.mark.parametrize("shout", [1e200, 1e-200])
def test_a_group_whose_numbers_overflow_does_not_spoil_the_sum(shout):
    rows = GroupedRows.of(
        np.ones((6, 1)), np.array([1.0, 1.1, 0.9, 1.0, shout, shout]), np.repeat([0, 1, 2], 2), 3
    )
    options = {"num_components": 1, "radius": 3.0, "delta": 1e-5, "epsilon": 5.0, "rounds": 2}
    found = fit_mixture_privately(rows, **options)
    assert np.isfinite(found.fit.population.mean).all()


def test_targets_that_are_all_alike_are_no_reason_to_stop():
    rows = GroupedRows.of(np.ones((6, 1)), np.ones(6), np.repeat([0, 1, 2], 2), 3)
    options = {"num_components": 2, "radius": 3.0, "delta": 1e-5, "epsilon": 5.0, "rounds": 2}
    assert fit_mixture_privately(rows, **options).guarantee.epsilon <= 5.0


def test_messages_are_d4s_in_means_a_row():
    rows, _ = draw(2, np.full(6, 5))
    (block,) = rows.blocks()
    sent = private_messages(block, SHARES, CENTERS, 0.9)
    known = fit_mixture(rows, prior=population(noise=0.9))
    for place in range(6):
        group, x, y = block.groups[place], block.x[place], block.y[place]
        parts = sent[place, :-1].reshape(3, 10)
        np.testing.assert_allclose(parts[:, 0], known.responsibilities[group])
        square = x.T @ x / 5
        assert (parts[:, 1:7] ** 2).sum() == pytest.approx(
            (parts[:, 0] ** 2).sum() * (square**2).sum()
        )
        np.testing.assert_allclose(parts[:, 7:], parts[:, :1] * (x.T @ y / 5))
        assert sent[place, -1] == pytest.approx((y**2).mean())


def test_without_noise_it_is_em():
    """Next to no noise and a wide clip: the fixed point of EM at equal sizes."""
    rows, theta = draw(3, np.full(400, 6))
    channel = CentralGaussian(clip=1e3, noise_multiplier=1e-9)
    found = fit_mixture_privately(rows, **COMMON, channel=channel, rounds=150, start=NEAR)
    other = fit_mixture(rows, num_components=3, spread="none", restarts=2)
    assert error(found.fit, theta) == pytest.approx(error(other, theta), rel=0.02)
    assert found.fit.population.noise_variance == pytest.approx(
        other.population.noise_variance, rel=0.02
    )


def test_many_groups_leave_a_useful_mixture():
    """Epsilon 1 and 5,000 groups: within 15% of the oracle, a tenth of the common fit's error."""
    rows, theta = draw(0, np.full(5000, 5))
    found = fit_mixture_privately(rows, **COMMON, epsilon=1.0, start=NEAR, target_scale=1.7)
    best = error(fit_mixture(rows, prior=population()), theta)
    common = float(((theta - theta.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert error(found.fit, theta) < 1.15 * best
    assert error(found.fit, theta) < 0.1 * common


def test_units_are_public_scales():
    """Data and scales in other units: the same draws give the same fit in those units."""
    rows, _ = draw(4, np.full(300, 5))
    other = GroupedRows(x=10 * rows.x, fixed=rows.fixed, y=1e3 * rows.y, start=rows.start)
    first = fit_mixture_privately(rows, **COMMON, epsilon=2.0, rounds=5, start=NEAR)
    second = fit_mixture_privately(
        other,
        **COMMON,
        epsilon=2.0,
        rounds=5,
        start=100 * NEAR,
        feature_scale=10.0,
        target_scale=1e3,
    )
    np.testing.assert_allclose(second.fit.theta, 100 * first.fit.theta, rtol=1e-6)


def test_the_start_does_not_look_at_the_data():
    """So much noise that nothing is learned: two data sets end at the same centers."""
    channel = CentralGaussian(clip=1.0, noise_multiplier=1e9)
    found = [
        fit_mixture_privately(draw(seed, np.full(30, 4))[0], **COMMON, channel=channel, rounds=1)
        for seed in (0, 1)
    ]
    first, second = (
        np.stack([part.mean for part in each.fit.population.components]) for each in found
    )
    np.testing.assert_allclose(first, second, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "epsilon or channel must be one of the two"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must be a positive number"),
        ({"epsilon": 1.0, "radius": 0.0}, "radius must be a positive number"),
        ({"epsilon": 1.0, "start": np.ones((2, 2))}, "start must be finite and of shape"),
        ({"epsilon": 1.0, "feature_scale": -1.0}, "feature_scale must be positive"),
    ],
)
def test_bad_input_is_refused(options, message):
    rows, _ = draw(0, np.full(5, 3))
    with pytest.raises(ValueError, match=message):
        fit_mixture_privately(rows, **COMMON | options)


def test_fixed_features_are_refused():
    rows, _ = draw(0, np.full(5, 3), fixed=(1.0,))
    with pytest.raises(ValueError, match="fixed must be without columns"):
        fit_mixture_privately(rows, **COMMON, epsilon=1.0)


def open_ledger(path, *, noise="secure", budget=None, **changes):
    terms = {"delta": 1e-6, "relation": "add-remove", "view": "central", "unit": "group"}
    return Ledger(path, Terms(**{**terms, "noise": noise, "budget": budget, **changes}))


def spent(path):
    terms, records = read(path)
    return total(records, terms)


def test_a_delta_that_would_let_one_group_be_published_is_refused():
    rows, _ = draw(0, np.full(50, 4))
    options = {**COMMON, "epsilon": 1.0, "rounds": 2}
    for delta in (0.5, 1 / 50):
        with pytest.raises(PrivacyError, match=r"delta must be below 1 / clients = 0\.02"):
            fit_mixture_privately(rows, **options | {"delta": delta})
    found = fit_mixture_privately(rows, **options | {"delta": 0.02}, allow_delta=True)
    assert found.guarantee.delta == 0.02


def test_secure_noise_is_recorded_or_refused(tmp_path):
    rows, _ = draw(0, np.full(50, 4))
    options = {**COMMON, "epsilon": 1.5, "rounds": 3, "noise": "secure"}
    with pytest.raises(PrivacyError, match="secure noise must be recorded"):
        fit_mixture_privately(rows, **options)
    for name, changes, message in (
        ("noise", {"noise": "simulated"}, "noise must be the channel's, secure, got simulated"),
        ("view", {"view": "local"}, "view must be the channel's, central, got local"),
        ("delta", {"delta": 0.1}, "delta must be below 1 / clients"),
    ):
        path = tmp_path / name
        with (
            open_ledger(path, **changes) as ledger,
            pytest.raises(PrivacyError, match=message),
        ):
            fit_mixture_privately(rows, **options, ledger=ledger)
        assert spent(path) == 0


def test_the_second_fit_adds_to_the_first_until_the_budget_ends(tmp_path, monkeypatch):
    rows, _ = draw(0, np.full(50, 4))
    options = {**COMMON, "epsilon": 1.5, "rounds": 3, "noise": "secure"}
    path = tmp_path / "ledger.jsonl"
    found = []
    for _ in range(2):
        with open_ledger(path, budget=2.5) as ledger:
            found.append(fit_mixture_privately(rows, **options, ledger=ledger))
    assert found[0].guarantee.noise == "secure"
    assert found[0].guarantee.describe()["valid_for_release"]
    assert not np.array_equal(found[0].fit.theta, found[1].fit.theta)
    event = found[0].channel.event(31)
    both = accounting.epsilon([(event, 6)], delta=1e-6)
    assert spent(path) == pytest.approx(both)
    assert both > found[0].guarantee.epsilon
    drawn = []
    monkeypatch.setattr(secure, "add_gaussian", lambda *words, **more: drawn.append(words))
    with (
        open_ledger(path, budget=2.5) as ledger,
        pytest.raises(PrivacyError, match="what is left of the budget"),
    ):
        fit_mixture_privately(rows, **options, ledger=ledger)
    assert not drawn
    assert spent(path) == pytest.approx(both)  # a part of the rounds is not charged either


def test_rounds_are_charged_before_the_first_sum_is_noised(tmp_path, monkeypatch):
    """A fit that dies at any point after the reservation has spent all of it."""
    rows, _ = draw(0, np.full(50, 4))
    path = tmp_path / "ledger.jsonl"

    def die(*words, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(secure, "add_gaussian", die)
    options = {**COMMON, "epsilon": 1.5, "rounds": 3, "noise": "secure"}
    with open_ledger(path) as ledger, pytest.raises(KeyboardInterrupt):
        fit_mixture_privately(rows, **options, ledger=ledger)
    assert 1.49 < spent(path) <= 1.5


def test_secure_sums_are_exact_integers(tmp_path, monkeypatch):
    """Sums of one set of groups in two orders are the same integers; in float64 they differ."""
    rows, _ = draw(5, np.full(400, 3))
    backward = GroupedRows.of(
        rows.x[::-1], rows.y[::-1], (rows.num_groups - 1 - rows.place)[::-1], rows.num_groups
    )
    seen = []
    noised = secure.add_gaussian

    def watch(total, **more):
        seen.append(total)
        return noised(total, **more)

    monkeypatch.setattr(secure, "add_gaussian", watch)
    floats = []
    for number, each in enumerate((rows, backward)):
        with open_ledger(tmp_path / str(number)) as ledger:
            options = {**COMMON, "epsilon": 1.0, "rounds": 1, "start": NEAR, "noise": "secure"}
            channel = fit_mixture_privately(each, **options, ledger=ledger).channel
        (block,) = each.blocks()
        sent = channel.encode(private_messages(block, np.full(3, 1 / 3), NEAR, 1.0), None)
        floats.append(sent.sum(axis=0))
    assert seen[0].dtype == np.int32
    np.testing.assert_array_equal(seen[0], seen[1])
    assert not np.array_equal(floats[0], floats[1])  # what the test would see
    exact = secure.value(seen[0], clip=channel.clip)
    np.testing.assert_allclose(exact, floats[0], atol=400 * channel.clip / 2**21)


def test_simulated_noise_is_charged_once_for_the_same_fit_and_never_shared(tmp_path):
    rows, _ = draw(0, np.full(50, 4))
    other, _ = draw(1, np.full(50, 4))
    path = tmp_path / "ledger.jsonl"
    options = {**COMMON, "epsilon": 1.5, "rounds": 3}
    with open_ledger(path, noise="simulated") as ledger:
        first, again = (fit_mixture_privately(rows, **options, ledger=ledger) for _ in range(2))
        once = ledger.spent
        np.testing.assert_array_equal(first.fit.theta, again.fit.theta)
        assert once == pytest.approx(first.guarantee.epsilon)
        with pytest.raises(PrivacyError, match="already used"):
            fit_mixture_privately(other, **options, ledger=ledger)
        fit_mixture_privately(other, **options, ledger=ledger, seed=1)
        assert ledger.spent > once


@pytest.mark.evidence
def test_figures_over_starts_and_budgets():
    """Printed: error over the oracle's for random starts. The median is within 25% of it."""
    rows, theta = draw(0, np.full(10_000, 5))
    best = error(fit_mixture(rows, prior=population()), theta)
    for epsilon in (0.3, 1.0, 3.0):
        ratios = [
            error(
                fit_mixture_privately(
                    rows, **COMMON, epsilon=epsilon, target_scale=1.7, seed=seed
                ).fit,
                theta,
            )
            / best
            for seed in range(8)
        ]
        print(epsilon, np.round(ratios, 3))  # noqa: T201
        assert np.median(ratios) < 1.25
