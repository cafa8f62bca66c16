"""`fedprior estimate --nested` and `--crossed`: groups within groups and groups that cross."""

import json
from functools import partial

import duckdb
import numpy as np
import pytest

from fedprior import GroupLevels


@pytest.fixture
def untouched(untouched_by):
    return partial(untouched_by, "estimate")


@pytest.fixture(scope="module")
def drawn():
    """Rows of counties in states; the names of counties repeat, one has a slash."""
    draws = np.random.default_rng(3)
    state, county = np.repeat(np.arange(6), 20), np.tile(np.repeat(np.arange(5), 4), 6)
    value = draws.normal(size=6)[state] + draws.normal(size=120)
    value = value + 0.5 * draws.normal(size=(6, 5))[state, county]
    names = np.array(["a/b", "c", "d // e", "08", "8"])
    return np.array([f"s{each}" for each in state]), names[county], value


@pytest.fixture(scope="module")
def table(drawn, tmp_path_factory):
    path = tmp_path_factory.mktemp("levels") / "rows.csv"
    lines = (
        f"{state},{county},{value!r},{int(value > 0)},{int(value > 0) + 2},0.9\n"
        for state, county, value in zip(*(each.tolist() for each in drawn), strict=True)
    )
    path.write_text("state,county,value,won,many,se\n" + "".join(lines))
    return path


NESTED = ("--group", "state", "--group", "county", "--nested")
CROSSED = ("--group", "state", "--group", "county", "--crossed")


def read(path):
    with duckdb.connect() as connection:
        return connection.execute(
            f"SELECT * FROM read_csv('{path}', all_varchar=true)"
        ).fetchnumpy()


@pytest.mark.parametrize("words", [NESTED, CROSSED])
def test_the_file_agrees_with_python(command, table, drawn, tmp_path, words):
    out = tmp_path / "out.csv"
    found = command("estimate", table, *words, "--value", "value", "--out", out, "--json")
    answer = json.loads(found.out)
    state, county, value = drawn
    model = GroupLevels(structure=words[-1][2:]).fit(value, {"state": state, "county": county})
    parts = {part["name"]: part for part in answer["levels"]}
    for part in model.levels_.parts:
        assert parts[part.name]["sd"] == pytest.approx(part.deviation, rel=1e-5)
    assert answer["structure"] == words[-1][2:]
    assert answer["log_likelihood"] == pytest.approx(model.levels_.log_likelihood, abs=1e-6)
    written, expected = read(out), model.to_frame()
    assert list(written) == list(expected)
    for name in ("level", "state", "county"):
        assert [None if np.ma.is_masked(each) else each for each in written[name]] == [
            *expected[name]
        ]
    np.testing.assert_allclose(written["personal"].astype(float), expected["personal"], rtol=1e-6)


@pytest.mark.parametrize(
    "words",
    [
        ("--value", "value", "--stderr", "se"),
        ("--value", "value", "--noise-sd", "1"),
        ("--outcome", "won"),
        ("--successes", "won", "--trials", "many"),
        ("--events", "won"),
        ("--events", "won", "--exposure", "many"),
    ],
)
def test_every_kind_of_number_has_levels(command, table, words, tmp_path):
    out, plot = tmp_path / "out.csv", tmp_path / "plot.png"
    found = command("estimate", table, *NESTED, *words, "--out", out, "--plot", plot)
    assert "Differences between groups" in found.out
    assert "Groups 'state'" in found.out
    assert " / c " in found.out or " / 8 " in found.out or " / a//b " in found.out
    written = read(out)
    levels = written["level"].tolist()
    assert levels.count("all") == 1
    assert levels.count("state") == 6
    assert levels.count("county") == 30
    assert plot.stat().st_size > 0


def test_without_the_word_two_columns_are_one_key(command, table):
    words = ("--group", "state", "--group", "county", "--value", "value", "--json")
    answer = json.loads(command("estimate", table, *words).out)
    assert "levels" not in answer
    assert answer["num_groups"] == 30


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ((*NESTED, "--crossed"), "--nested cannot be combined with --crossed"),
        (("--group", "state", "--nested"), "--group must be given twice or more with --nested"),
        ((*NESTED, "--by-size"), "--by-size cannot be combined with --nested"),
        ((*NESTED, "--ranks"), "--ranks cannot be combined with --nested"),
        ((*NESTED, "--above", "1"), "--above cannot be combined with --nested"),
        ((*NESTED, "--population", "gaussian"), "--population cannot be combined with --nested"),
        ((*CROSSED, "--covariates", "se"), "--covariates cannot be combined with --crossed"),
        ((*CROSSED, "--noise", "common"), "--noise cannot be combined with --crossed"),
        ((*NESTED, "--intervals", "robust"), "--intervals cannot be combined with --nested"),
        ((*NESTED, "--epsilon", "1", "--low", "0", "--high", "1"), "--epsilon cannot be combined"),
        (("--group", "county", "--group", "state", "--nested", "--level", "2"), "--level must be"),
    ],
)
def test_what_does_not_fit_is_refused(untouched, table, tmp_path, words, match):
    untouched(table, *words, "--value", "value", wanted=match)


@pytest.mark.parametrize(
    ("rows", "words", "match"),
    [
        (["a,x,1", "a,y,2", "a,x,3"], (), "number of groups 's' must be at least 2, got 1"),
        (["a,x,1", "a,y,2", "b,x,3"], (), "number of rows must be more than the 3 groups, got 3"),
        (["a,x,1", "a,x,2", "b,x,3"], (), "every 's' has one 'c' only"),
        (["a,x,1", "a,x,1", "a,y,1", "b,x,1"], (), "values must be of more than one value"),
        (["a,x,1", "a,x,1", "a,y,2", "b,x,3"], (), "the rows of every group are equal"),
        (["a,,1", "b,,1"], (), "file must be a table with rows to use"),
    ],
)
def test_groups_that_cannot_be_told_apart_are_refused(untouched, tmp_path, rows, words, match):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["s,c,v", *rows]) + "\n")
    columns = ("--group", "s", "--group", "c", "--nested", "--value", "v")
    untouched(path, *columns, *words, wanted=match)


def test_the_embedded_table_has_one_level(untouched):
    untouched("--nested", wanted="--group must be given twice or more with --nested")
