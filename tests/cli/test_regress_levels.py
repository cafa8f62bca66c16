"""`fedprior regress --nested` and `--crossed`."""

import json
from functools import partial

import duckdb
import numpy as np
import pytest

from fedprior import GroupLevels


@pytest.fixture
def untouched(untouched_by):
    return partial(untouched_by, "regress")


@pytest.fixture(scope="module")
def drawn():
    draws = np.random.default_rng(4)
    state = np.repeat(np.arange(8), 24)
    county = np.tile(np.repeat(np.arange(4), 6), 8)
    x, kind = draws.normal(size=192), draws.choice(["red", "blue"], 192)
    theta = draws.normal(size=8)[state] + 0.5 * draws.normal(size=(8, 4))[state, county]
    theta = theta + 0.7 * x - 0.4 * (kind == "red")
    time = draws.uniform(1, 5, 192).round(2)
    return {
        "state": np.array([f"s/{each}" for each in state]),
        "county": np.array([f"c{each}" for each in county]),
        "x": x,
        "kind": kind,
        "y": theta + draws.normal(size=192),
        "bought": np.where(theta + draws.logistic(size=192) > 0, "yes", "no"),
        "visits": draws.poisson(time * np.exp(theta / 2)),
        "time": time,
    }


@pytest.fixture(scope="module")
def table(drawn, tmp_path_factory):
    path = tmp_path_factory.mktemp("levels") / "rows.csv"
    rows = zip(*(each.tolist() for each in drawn.values()), strict=True)
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([",".join(drawn), *lines]) + "\n")
    return path


GROUPS = ("--group", "state", "--group", "county", "--fixed", "x,kind")


@pytest.mark.parametrize("structure", ["nested", "crossed"])
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_the_file_agrees_with_python(command, table, drawn, tmp_path, structure, family):
    out = tmp_path / "out.csv"
    target = {"gaussian": "y", "binomial": "bought", "poisson": "visits"}[family]
    words = ("--family", "poisson", "--exposure", "time") if family == "poisson" else ()
    words = (*GROUPS, f"--{structure}", "--target", target, *words)
    answer = json.loads(command("regress", table, *words, "--out", out, "--json").out)
    assert answer["level"] == 0.95
    y = (drawn["bought"] == "yes").astype(float) if family == "binomial" else drawn[target]
    groups, fixed = ({name: drawn[name] for name in names} for names in (("state", "county"), ("x", "kind")))  # fmt: skip # noqa: E501
    more = {"exposure": drawn["time"]} if family == "poisson" else {}
    model = GroupLevels(family=family, structure=structure).fit(y, groups, fixed=fixed, **more)
    assert answer["family"] == family
    assert answer["log_likelihood"] == pytest.approx(model.levels_.log_likelihood, abs=1e-5)
    found = model.levels_.coefficients
    for name, value in zip(found.names, found.values, strict=True):
        assert answer["fixed"][name]["value"] == pytest.approx(value, abs=1e-4)
    with duckdb.connect() as connection:
        written = connection.execute(f"SELECT * FROM '{out}'").fetchnumpy()
    expected = model.to_frame()
    assert list(written) == list(expected)
    np.testing.assert_allclose(written["personal"], expected["personal"], rtol=1e-3)


def test_the_answer_names_levels_and_coefficients(command, table):
    found = command("regress", table, *GROUPS, "--nested", "--target", "y", "--criterion", "ml").out
    for words in ("nested (ML)", "Coefficients", "kind=red", "Differences between"):
        assert words in found
    assert "Groups 'state'" in found


def test_restricted_likelihoods_have_the_units_of_the_columns(command, table, drawn, tmp_path):
    """-2 log L is lme4's: X'V^-1 X in the units that the file has."""
    model = GroupLevels().fit(
        drawn["y"], {"state": drawn["state"], "county": drawn["county"]}, fixed={"x": drawn["x"]}
    )
    other = GroupLevels().fit(
        drawn["y"],
        {"state": drawn["state"], "county": drawn["county"]},
        fixed={"x": 100 * drawn["x"]},
    )
    apart = model.levels_.log_likelihood - other.levels_.log_likelihood
    assert apart == pytest.approx(np.log(100), abs=1e-6)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--nested", "--features", "time"), "--features cannot be combined with --nested"),
        (("--crossed", "--population", "mixture"), "--population cannot be combined"),
        (("--nested", "--crossed"), "--nested cannot be combined with --crossed"),
        (("--nested", "--covariance", "full"), "--covariance cannot be combined with --nested"),
        (("--nested", "--center"), "--center cannot be combined with --nested"),
        (("--nested", "--plot", "p.png"), "--plot cannot be combined with --nested"),
        (("--nested", "--method", "paper"), "--method cannot be combined with --nested"),
        (("--nested", "--family", "binomial"), "--family must be multinomial or gaussian"),
        (("--nested", "--family", "multinomial"), "must be gaussian, binomial or poisson"),
        (("--nested", "--family", "poisson"), "y must be whole numbers of at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(untouched, table, words, wanted):
    untouched(table, *GROUPS, "--target", "y", *words, wanted=wanted)


def test_one_column_of_groups_is_no_nest(untouched, table):
    words = ("--group", "state", "--fixed", "x", "--target", "y", "--nested")
    untouched(table, *words, wanted="--group must be given twice or more with --nested, got 1")
