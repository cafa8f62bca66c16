"""Pages of simulations and sweeps in Python, and how calibration is counted."""

import jax
import numpy as np
import pytest

import fedprior
from fedprior.core.scores import ACCURACY, OWN
from fedprior.core.tallies import BINS
from fedprior.data.balance import class_counts, largest_shares
from fedprior.engines.blocks import balance, calibration, over_rounds
from fedprior.engines.metrics import describe_bins
from fedprior.engines.page import result_page
from fedprior.engines.sweep_page import sweep_page, trainings_page
from fedprior.pages.page import Curves, Listing, SmallTable
from fedprior.pages.render import render


def titles(page):
    return [section.title for section in page.sections]


@pytest.fixture(scope="module")
def result():
    clients = fedprior.load_dataset("digits", num_clients=4)
    model = fedprior.models.logistic(64, 10)
    return fedprior.simulate(fedprior.learning.fedavg(model), clients, rounds=3, evaluate_every=1)


def test_a_result_is_a_page(result, tmp_path):
    page = result_page(result)
    assert titles(page) == ["Clients", "Over rounds", "Metrics", "Calibration", "Classes"]
    assert f"{100 * result.scores.mean():.1f}%" in page.lead
    assert result.report().page.lead == page.lead
    assert result.report(tmp_path / "page.html").path == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert "<script" not in result._repr_html_()
    assert page.lead[:24] in result._repr_html_()


def test_calibration_counts_every_test_sample_once(result):
    """The sums are those of a loop over clients with their own predictions."""
    clients = result.federation
    found = result.metrics().bins
    expected = np.zeros((BINS, 3))
    for client in range(clients.num_clients):
        first, size = clients.test.start[client], clients.test.size[client]
        x, y = clients.test.x[first : first + size], clients.test.y[first : first + size]
        shares = np.asarray(jax.nn.softmax(result.predict(client, x), axis=-1))
        confidence = shares.max(axis=1)
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        for place, sure, right in zip(bins, confidence, shares.argmax(axis=1) == y, strict=True):
            expected[place] += (1, sure, right)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert describe_bins(found)["count"] == expected[:, 0].astype(int).tolist()


def test_the_error_is_the_mean_distance():
    sums = np.zeros((BINS, 3))
    sums[9], sums[5] = (10, 9.5, 9), (30, 16.5, 21)
    described = describe_bins(sums)
    assert described["error"] == pytest.approx((0.5 + 4.5) / 40)
    (chart,) = calibration({"fedavg": [described, described]})
    np.testing.assert_allclose(chart.curves[0].x, [0.55, 0.95])
    np.testing.assert_allclose(chart.curves[0].y, [0.7, 0.9])
    assert "fedavg 12.5" in chart.text
    assert calibration({"fedavg": [describe_bins(np.zeros((BINS, 3)))]}) == []
    sums[2] = (3, 0.7, 3)  # too few to be drawn; they count in the error
    (chart,) = calibration({"fedavg": [describe_bins(sums)]})
    np.testing.assert_allclose(chart.curves[0].x, [0.55, 0.95])
    assert f"fedavg {100 * (0.5 + 4.5 + 2.3) / 43:.1f}" in chart.text


def test_classes_are_counted_by_client():
    clients = fedprior.load_dataset("digits", num_clients=5)
    counts = class_counts(clients.train, 10)
    for client in range(5):
        first, size = clients.train.start[client], clients.train.size[client]
        own = np.bincount(clients.train.y[first : first + size], minlength=10)
        assert counts[client].tolist() == own.tolist()
    np.testing.assert_allclose(largest_shares(np.array([[1, 3], [0, 0]])), [0.75, np.nan])
    assert balance(None, None) is None
    many = balance({str(k): k + 1 for k in range(30)}, None)
    assert len(many.blocks[0].parts) == 21
    assert sum(value for (value,) in many.blocks[0].parts.values()) == pytest.approx(1)


def test_seeds_are_one_curve_with_a_band():
    lines = [
        {"method": "a", "seed": seed, "round": number, "valid": number / 10 + seed, "psi": 2.0}
        for seed in (0, 1)
        for number in (1, 2)
    ]
    valid, psi = over_rounds(lines, OWN)
    (curve,) = valid.curves
    assert (curve.x, curve.y) == ([1, 2], [pytest.approx(0.6), pytest.approx(0.7)])
    assert (curve.lower[0], curve.upper[0]) == (0.1, 1.1)
    assert psi.y_label == "psi"
    assert over_rounds([{"round": 1, "clients": 3}], OWN) == []


def test_a_secure_result_shows_nothing_of_clients(toy, plane, monkeypatch):
    run = fedprior.simulate(toy, plane, rounds=2, evaluate_every=1)
    monkeypatch.setattr(type(run.agreement), "secure", True)
    page = result_page(run)
    html = render(page)
    assert titles(page) == ["Over rounds"]
    assert [fact.label for fact in page.facts] == ["rounds"]
    assert '"tables":[]' in html
    assert "alidation" not in html


def rows_of(valid):
    """Two methods at three rates and two seeds, the best rate of each chosen."""
    return [
        {"method": method, "lr": rate, "seed": seed, "valid": score + 0.01 * seed}
        | {"chosen": rate == 0.1, "test": 0.8 if rate == 0.1 else None}
        for method, scores in valid.items()
        for rate, score in zip((0.01, 0.1, 1.0), scores, strict=True)
        for seed in (0, 1)
    ]


def test_a_sweep_shows_values_and_the_choice():
    rows = rows_of({"fedavg": (0.5, 0.7, 0.6), "local": (0.4, 0.6, 0.5)})
    row = {"chosen": {"lr": 0.1}, "points": 3, "valid": 0.705, "test": 0.8, "test_sd": 0.01}
    page = trainings_page(
        rows, {"fedavg": row, "local": {**row, "test": 0.7}}, about="x", metric=ACCURACY
    )
    assert page.lead.startswith("With the same tuning for all, the best is fedavg with lr = 0.1.")
    assert "80.00% ± 1.00 over seeds" in page.lead
    (chart,) = [each for part in page.sections for each in part.blocks if isinstance(each, Curves)]
    drawn = {curve.name: curve for curve in chart.curves}
    np.testing.assert_allclose(drawn["fedavg"].y, [0.505, 0.705, 0.605])
    assert chart.text.endswith("Chosen: 0.1 (fedavg), 0.1 (local).")
    assert (drawn["fedavg, chosen"].x, drawn["fedavg, chosen"].y) == ([0.1], [pytest.approx(0.705)])
    (listing,) = [b for part in page.sections for b in part.blocks if isinstance(b, Listing)]
    assert len(listing.rows) == 12
    render(page)


def test_a_sweep_in_python_reports_itself(toy, plane, tmp_path):
    from toys import averaging

    swept = fedprior.sweep(
        lambda rate: averaging(rate=rate), plane, over={"rate": [0.1, 0.5]}, rounds=2, seeds=2
    )
    page = sweep_page(swept)
    (grid,) = [b for part in page.sections for b in part.blocks if isinstance(b, SmallTable)]
    assert grid.cells[0][1] == f"rate = {swept.chosen['rate']}"
    assert grid.cells[0][4].value == pytest.approx(np.nanmean(swept.scores))
    assert swept.report().page.lead == page.lead
    assert swept.report(tmp_path / "sweep.html").path.is_file()
    assert "Sweep" in swept._repr_html_()


def test_a_private_result_says_which_noise_it_had(toy, plane):
    channel = fedprior.channels.CentralGaussian(clip=1.0, noise_multiplier=1.0)
    run = fedprior.simulate(toy, plane, rounds=1, channel=channel)
    (noise,) = [fact for fact in result_page(run).facts if fact.label == "noise"]
    assert (noise.value, noise.note) == ("simulated", "not valid for release")
