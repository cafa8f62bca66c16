"""`fedprior regress`: from tables to a summary of the population, a table and a picture."""

import csv
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedprior.regression.face.personal import PersonalClassifier, PersonalRegression
from opened import read_columns

ROOT = Path(__file__).resolve().parents[2]
KEYS = {
    *("format", "family", "groups", "rows", "dropped", "classes", "criterion", "method"),
    *("population", "fixed", "noise", "share_between", "log_likelihood", "held_out", "notes"),
    *("columns", "dispersion", "level"),
}


@pytest.fixture(scope="module")
def drawn():
    """Rows of 40 shops in random order: features, words, numbers, outcomes, labels."""
    draws = np.random.default_rng(4)
    place = draws.permutation(np.repeat(np.arange(40), draws.integers(3, 12, 40)))
    theta = draws.normal([3.0, -1.0], [0.6, 0.5], (40, 2))
    price = draws.normal(size=len(place)).round(4)
    color = np.where(draws.random(len(place)) < 0.4, "red", "blue")
    sales = theta[place, 0] + theta[place, 1] * price + 0.5 * (color == "red")
    sales = (sales + 0.5 * draws.normal(size=len(place))).round(4)
    return price, color, sales, np.where(sales > 3, "yes", "no"), place


@pytest.fixture(scope="module")
def shops(drawn, tmp_path_factory):
    path = tmp_path_factory.mktemp("regress") / "shops.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shop", "price", "color", "sales", "sold", "bit"])
        for price, color, sales, sold, place in zip(*drawn, strict=True):
            writer.writerow([f"s{place:02}", price, color, sales, sold, int(sold == "yes")])
        writer.writerow(["s00", "NA", "red", 1.0, "yes", 1])
        writer.writerow(["", 1.0, "red", 1.0, "yes", 1])
    return path


WORDS = ("--group", "shop", "--target", "sales", "--features", "price", "--fixed", "color")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_row_a_group_and_a_summary(command, shops, drawn, tmp_path, ending):
    out = tmp_path / f"o.{ending}"
    found = command("regress", shops, *WORDS, "--out", out, "--json", "--seed", 3)
    read_as = "Read `sales`: number; `price`: number, 1 missing; `color`: text."
    assert (found.code, found.err) == (0, f"{read_as}\nWritten to {out}\n")
    price, color, sales, _, place = drawn
    x = np.column_stack([price, color == "red"]).astype(float)
    wanted = PersonalRegression(fixed=[1]).fit(x, sales, place)
    table = read_columns(out)
    ends = ("", "_error", "_lower", "_upper")
    names = [f"{name}{end}" for name in ("intercept", "price") for end in ends]
    assert list(table) == ["group", "n", *names]
    assert table["group"] == [f"s{number:02}" for number in range(40)]
    assert table["price"] == pytest.approx(wanted.theta_[:, 1].tolist(), rel=1e-6)
    assert table["price_upper"] == pytest.approx(wanted.interval()[1][:, 1].tolist(), rel=1e-6)
    answer = json.loads(found.out)
    assert set(answer) == {*KEYS, "out"}
    assert (answer["format"], answer["family"], answer["groups"]) == (1, "gaussian", 40)
    assert (answer["rows"], answer["dropped"], answer["criterion"]) == (len(place), 2, "reml")
    population = answer["population"]
    assert (population["kind"], population["covariance"]) == ("gaussian", "full")
    assert population["mean"]["price"]["value"] == pytest.approx(wanted.population_.mean[1])
    assert population["mean"]["price"]["error"] == pytest.approx(wanted.population_.mean_errors[1])
    deviation = np.sqrt(wanted.population_.covariance[1, 1])
    assert population["sd"]["price"]["value"] == pytest.approx(deviation)
    error = wanted.population_.covariance_errors[1, 1] / (2 * deviation)
    assert population["sd"]["price"]["error"] == pytest.approx(error, rel=1e-4)
    assert answer["fixed"]["color=red"]["value"] == pytest.approx(wanted.fixed_[0])
    assert answer["noise"]["variance"] == pytest.approx(wanted.noise_variance_)
    assert answer["share_between"] == pytest.approx(wanted.share_between_)
    held = wanted.held_out(seed=3)
    assert answer["held_out"]["metric"] == "rmse"
    assert answer["held_out"]["personal"] == pytest.approx(held.personal, rel=1e-5)
    assert answer["held_out"]["gain_over_pooled"] == pytest.approx(held.gain_over_pooled, rel=1e-3)
    assert {path.name for path in tmp_path.iterdir()} == {out.name, "o.summary.json"}


def test_what_a_person_reads(command, shops):
    found = command("regress", shops, *WORDS)
    assert (found.code, found.err.count("\n")) == (0, 1)
    for said in (
        "groups      40",
        "(2 dropped)",
        "gaussian (full covariance, REML)",
        "sd between",
        "95% intervals of the means",
        "lower",
        "fixed",
        "% of the variance at the mean row",
        "root mean squared error",
        "separate",
        "pooled",
        "held-out rows of",
        "(seed 0)",
        "Note: Rows dropped because the target, a feature or the group is missing: 2.",
    ):
        assert said in found.out, said
    assert "color=red" in found.out


@pytest.mark.parametrize("target", ["sold", "bit"])
def test_classes_are_told_from_numbers(command, shops, drawn, target):
    words = ("--group", "shop", "--target", target, "--fixed", "price")
    answer = json.loads(command("regress", shops, *words, "--json").out)
    assert (answer["family"], answer["noise"], answer["criterion"]) == ("binomial", None, "ml")
    assert answer["classes"] == (["no", "yes"] if target == "sold" else ["0", "1"])
    price, _, _, sold, place = drawn
    wanted = PersonalClassifier(fixed=[0]).fit(price[:, None], sold, place)
    assert answer["fixed"]["price"]["value"] == pytest.approx(wanted.fixed_[0], rel=1e-3)
    assert answer["held_out"]["metric"] == "log_loss"
    if target == "bit":
        numbers = command("regress", shops, *words, "--family", "gaussian", "--json")
        assert json.loads(numbers.out)["family"] == "gaussian"


def test_kinds_of_groups(command, shops, tmp_path):
    out = tmp_path / "o.parquet"
    words = (*WORDS, "--population", "discrete", "--components", 2)
    found = command("regress", shops, *words, "--out", out)
    assert "Kinds of groups" in found.out
    assert "component 1" in found.out
    table = read_columns(out)
    assert np.asarray(table["component_0"]) + table["component_1"] == pytest.approx(np.ones(40))


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_picture(command, shops, tmp_path, ending):
    plot = tmp_path / f"o.{ending}"
    wide = WORDS if ending != "pdf" else (*WORDS[:4], "--fixed", "price")
    assert command("regress", shops, *wide, "--plot", plot, "--quiet").err == ""
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert plot.read_bytes().startswith(start)
    if ending == "svg":  # no date in it
        again = tmp_path / "p.svg"
        command("regress", shops, *wide, "--plot", again, "--quiet")
        assert again.read_bytes() == plot.read_bytes()
    assert not list(tmp_path.glob("*.tmp"))


def test_without_a_file_it_shows_a_simulated_example(command):
    found = command("regress", "--json")
    answer = json.loads(found.out)
    assert answer["groups"] == 80
    assert answer["notes"][0].startswith("Simulated example")
    truth = {"intercept": 5.0, "price": -1.2}
    for name, value in truth.items():
        mean = answer["population"]["mean"][name]
        assert abs(mean["value"] - value) < 4.9 * mean["error"]  # false alarm 1e-6
    assert answer["held_out"]["gain_over_separate"] > 0
    assert answer["held_out"]["gain_over_pooled"] > 0


def test_nothing_to_hold_out_is_a_note(command, tmp_path):
    path = tmp_path / "pairs.csv"
    draws = np.random.default_rng(0)
    lines = [f"g{n // 2},{draws.normal():.3f},{draws.normal():.3f}" for n in range(60)]
    path.write_text("g,x,y\n" + "\n".join(lines) + "\n")
    found = command("regress", path, "--group", "g", "--target", "y", "--fixed", "x", "--json")
    answer = json.loads(found.out)
    assert answer["held_out"] is None
    assert "No held-out comparison: compare: largest group must be of 3" in answer["notes"][-1]


def real(name):
    given = os.environ.get("FEDPRIOR_DATA")
    root = Path(given) if given else ROOT.parent / "shared" / "data"
    path = root / "grouped_regression" / name
    if not path.is_file():
        pytest.skip(f"real data ({name}): set FEDPRIOR_DATA, or put it in ../shared/data")
    return path


@pytest.mark.parametrize("criterion", ["reml", "ml"])
def test_radon_agrees_with_statsmodels(command, tmp_path, criterion):
    """Within 1%: coefficients, variances, and the predictions for every county."""
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    path, out = real("radon_minnesota.csv"), tmp_path / "counties.csv"
    words = ("--group", "county.name", "--target", "log.radon", "--features", "basement")
    found = command("regress", path, *words, "--criterion", criterion, "--out", out, "--json")
    answer, table = json.loads(found.out), read_columns(out)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    y = np.array([float(line["log.radon"]) for line in lines])
    x = np.column_stack([np.ones(len(y)), [float(line["basement"]) for line in lines]])
    names, place = np.unique([line["county.name"] for line in lines], return_inverse=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = mixed.MixedLM(y, x, groups=place, exog_re=x).fit(reml=criterion == "reml")
        effects = np.array([peer.random_effects[number] for number in range(len(names))])
    population = answer["population"]
    assert population["covariance"] == "full"
    mean = [population["mean"][name]["value"] for name in ("intercept", "basement")]
    assert mean == pytest.approx(peer.fe_params, rel=0.01)
    deviation = [population["sd"][name]["value"] for name in ("intercept", "basement")]
    assert deviation == pytest.approx(np.sqrt(np.diag(peer.cov_re)), rel=0.01)
    assert answer["noise"]["variance"] == pytest.approx(peer.scale, rel=0.01)
    assert answer["log_likelihood"] == pytest.approx(peer.llf, abs=1e-3)
    assert table["group"] == names.tolist()
    theta = np.column_stack([table["intercept"], table["basement"]])
    own, other = (np.sum(x * each[place], axis=1) for each in (theta, peer.fe_params + effects))
    assert np.allclose(own, other, atol=0.01 * y.std())


def test_uranium_is_the_same_within_a_county(command):
    path = real("radon_minnesota.csv")
    words = ("--group", "county", "--target", "log.radon", "--features", "basement,uranium")
    answer = json.loads(command("regress", path, *words, "--json").out)
    assert list(answer["fixed"]) == ["uranium"]
    assert "one coefficient for all: uranium." in answer["notes"][0]


def test_sleepstudy_has_the_correlation_that_lme4_prints(command):
    words = ("--group", "Subject", "--target", "Reaction", "--features", "Days", "--json")
    answer = json.loads(command("regress", real("sleepstudy.csv"), *words).out)
    assert answer["population"]["correlations"][0][1] == pytest.approx(0.066, abs=1e-3)
    assert -2 * answer["log_likelihood"] == pytest.approx(1743.6283, abs=1e-3)
    assert answer["held_out"]["gain_over_pooled"] > 20


def test_intervals_of_the_population_follow_the_level(command, shops):
    wide, narrow = (
        json.loads(command("regress", shops, *WORDS, "--level", level, "--json").out)
        for level in ("0.95", "0.5")
    )
    for part in (wide["population"]["mean"]["price"], wide["fixed"]["color=red"]):
        assert part["lower"] < part["value"] < part["upper"]
        assert part["freedom"] > 5
    cells = [each["population"]["mean"]["price"] for each in (wide, narrow)]
    assert cells[0]["upper"] - cells[0]["lower"] > 2 * (cells[1]["upper"] - cells[1]["lower"])
    held = wide["held_out"]
    low, high = held["interval_over_pooled"]
    assert low < held["gain_over_pooled"] < high
