"""The shrinkage picture: drawn for every kind of population, with what it must show."""

import dataclasses
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from scipy import stats

from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.reporting import figures, shrinkage

pytest.importorskip("matplotlib")


def example(num_groups, **population):
    draws = np.random.default_rng(num_groups)
    n = draws.integers(0, 40, num_groups)
    n[:3] = 9
    z = draws.binomial(n, draws.beta(2, 8, num_groups))
    posterior = stats.beta(2 + z, 8 + n - z)
    with np.errstate(invalid="ignore"):
        raw = z / n
    law = {"kind": "beta", "heterogeneity": 0.12, "parameters": {"alpha": 2.0, "beta": 8.0}}
    return Estimates(
        n=n,
        raw=raw,
        personal=posterior.mean(),
        weight=n / (n + 10),
        scale=posterior.std(),
        lower=posterior.ppf(0.05),
        upper=posterior.ppf(0.95),
        level=0.9,
        population=FittedPopulation(fitted_by="known", mean=0.2, **(law | population)),
        gain_over_raw=50.0,
        gain_over_pooled=10.0,
    )


def names(places):
    return [f"shop {place}" for place in places]


POPULATIONS = {
    "density": {},
    "gaussian": {"kind": "gaussian", "parameters": {}},
    "atoms": {
        "kind": "nonparametric",
        "atoms": np.array([0.05, 0.4]),
        "weights": np.array([0.6, 0.4]),
        "parameters": {},
    },
    "by size": {"by_size": True},
    "point": {"kind": "point", "heterogeneity": 0.0},
}


@pytest.mark.parametrize("num_groups", [4, 100])
@pytest.mark.parametrize("kind", POPULATIONS)
def test_every_population_is_drawn(tmp_path, num_groups, kind):
    estimates = example(num_groups, **POPULATIONS[kind])
    aside = shrinkage.draw_shrinkage(estimates, names, tmp_path / "deep" / "p.svg")
    assert aside.name == "p.svg.tmp"
    text = aside.read_text()
    ElementTree.fromstring(text)  # whole
    shown = ("raw", "personal") if num_groups == 4 else ("personal = raw", "weight on own data")
    for word in (*shown, "90% interval"):
        assert f"<!-- {word} -->" in text
    assert ("<!-- population -->" in text) == (kind not in ("by size", "point"))


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_formats(tmp_path, suffix, start):
    aside = shrinkage.draw_shrinkage(example(5), names, tmp_path / f"p.{suffix}")
    assert aside.read_bytes().startswith(start)


def test_a_failed_picture_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    wanted = r"--plot must be a file that can be written, got .*p\.png \("
    with pytest.raises(ValueError, match=wanted):
        shrinkage.draw_shrinkage(example(5), names, tmp_path / "file" / "p.png")
    (tmp_path / "p.png.tmp").mkdir()
    with pytest.raises(ValueError, match=wanted):
        shrinkage.draw_shrinkage(example(5), names, tmp_path / "p.png")


def test_rows_name_the_groups_that_have_data(tmp_path):
    estimates = example(30)
    text = shrinkage.draw_shrinkage(estimates, names, tmp_path / "p.svg").read_text()
    for place in range(30):
        assert (f"<!-- shop {place} -->" in text) == (estimates.n[place] > 0)


def test_the_same_picture_has_the_same_bytes(tmp_path):
    first, second = (
        shrinkage.draw_shrinkage(example(70), names, tmp_path / f"{k}.svg").read_bytes()
        for k in "ab"
    )
    assert first == second


def test_many_groups_are_thinned_evenly():
    places = np.arange(10_001) * 2
    chosen = figures.evenly_spaced(places, 101)
    assert chosen.tolist() == list(range(0, 20_001, 200))
    assert figures.evenly_spaced(places[:50], 101) is not None
    assert len(figures.evenly_spaced(places[:50], 101)) == 50


def test_long_names_keep_their_ends():
    assert figures.short("a short one") == "a short one"
    short = figures.short("the hospital of a very long name, number 17")
    assert len(short) == 28
    assert short.endswith("number 17")


def test_equal_estimates_can_be_drawn(tmp_path):
    """No spread at all: neither a division by zero nor a warning."""
    estimates = example(3)
    same = np.full(3, 0.2)
    flat = dataclasses.replace(estimates, raw=same, personal=same, lower=same, upper=same)
    assert shrinkage.draw_shrinkage(flat, names, tmp_path / "p.png").stat().st_size > 0


def test_a_dollar_in_a_name_is_a_dollar(tmp_path):
    path = tmp_path / "plot.svg"
    aside = shrinkage.draw_shrinkage(example(5), lambda places: ["$\\frac{$"] * len(places), path)
    assert "$\\frac{$" in aside.read_text()


@pytest.mark.parametrize("num_groups", [5, 80])
def test_shares_have_no_common_mean(tmp_path, num_groups):
    """A line at the average of all categories' shares would say nothing."""
    shares = {"kind": "dirichlet", "parameters": {}}
    one = example(num_groups, **shares)
    several = dataclasses.replace(
        one, population=dataclasses.replace(one.population, mean=np.array([0.2, 0.8]))
    )
    pictures = [
        shrinkage.draw_shrinkage(each, names, tmp_path / f"{place}.svg").read_text()
        for place, each in enumerate((one, several))
    ]
    drawn = [shrinkage.GREEN.lower() in picture.lower() for picture in pictures]
    assert drawn == [True, False]


def test_the_density_of_rates_of_events_starts_at_0():
    law = {"kind": "gamma", "parameters": {"shape": 0.5, "rate": 2.5}, "heterogeneity": 0.3}
    assert shrinkage._support(example(5, **law)).min() > 0
