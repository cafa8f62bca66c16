"""`fedprior estimate --covariates` and `--stderr`: regressions and meta-analyses from files."""

import json
from functools import partial

import duckdb
import numpy as np
import pytest

from fedprior.estimation import GroupMeans, GroupRates

HEAD = "shop,sales,area,region,se\n"


@pytest.fixture
def untouched(untouched_by):
    return partial(untouched_by, "estimate")


@pytest.fixture(scope="module")
def drawn():
    """Rows of 40 shops whose sales depend on area and region; the last shop has no sales."""
    random = np.random.default_rng(5)
    area = random.uniform(10, 90, 40)
    region = np.where(np.arange(40) % 4 == 0, "south", "north")
    theta = 2 + 0.05 * area + 1.5 * (region == "south") + 0.2 * random.normal(size=40)
    place = np.repeat(np.arange(40), 3)
    sales = theta[place] + random.normal(size=120)
    sales[-3:] = np.nan
    return [f"s{each:02}" for each in place], sales, area[place], region[place]


@pytest.fixture(scope="module")
def table(drawn, tmp_path_factory):
    path = tmp_path_factory.mktemp("covariates") / "shops.csv"
    lines = (
        f"{shop},{'' if np.isnan(sold) else repr(float(sold))},{float(area)!r},{region},0.5\n"
        for shop, sold, area, region in zip(*drawn, strict=True)
    )
    path.write_text(HEAD + "".join(lines))
    return path


WORDS = ("--group", "shop", "--value", "sales", "--covariates", "area,region")


def read(path):
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT * FROM '{path}'").fetchnumpy()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_agree_with_python(command, table, drawn, tmp_path, ending):
    if ending == "parquet":
        typed = tmp_path / "typed.parquet"
        with duckdb.connect() as connection:
            connection.execute(f"COPY (SELECT * FROM '{table}') TO '{typed}' (FORMAT parquet)")
        table = typed
    out = tmp_path / "out.parquet"
    found = command("estimate", table, *WORDS, "--out", out, "--json")
    assert found.code == 0, found.err
    assert "no other in 1 group, predicted from covariates" in found.err
    answer = json.loads(found.out)
    shops, sales, area, region = drawn
    model = GroupMeans().fit(sales, shops, covariates={"area": area, "region": region})
    wanted = model.population_.coefficients
    printed = answer["population"]["coefficients"]
    assert list(printed) == ["intercept", "area", "region=south"]
    assert [each["value"] for each in printed.values()] == pytest.approx(wanted.values)
    assert [each["standard_error"] for each in printed.values()] == pytest.approx(
        wanted.standard_errors
    )
    assert answer["population"]["r_squared"] == pytest.approx(wanted.r_squared)
    rows = read(out)
    assert rows["personal"] == pytest.approx(model.personal_, rel=1e-6)
    assert rows["lower"] == pytest.approx(model.lower_, rel=1e-6)
    assert (rows["n"][-1], rows["weight"][-1]) == (0, 0)
    assert np.ma.getmaskarray(rows["raw"])[-1]


def test_the_answer_shows_coefficients_and_meta_analysis(command, table, tmp_path):
    plot = tmp_path / "forest.svg"
    more = ("--stderr", "se", "--leave-one-out", "--plot", plot)
    found = command("estimate", table, *WORDS, *more)
    assert found.code == 0, found.err
    for word in ("by covariates", "region=south", "R2", "I2", "H2", "Q(36)", "prediction interval"):
        assert word in found.out, word
    assert "Without each group" in found.out
    assert "The first 20 of 39; --json has all." in found.out
    assert "standard error" in plot.read_text()  # the funnel's axis
    answer = json.loads(command("estimate", table, *WORDS, *more[:3], "--json").out)
    meta = answer["meta_analysis"]
    assert len(meta["leave_one_out"]["variance"]) == 39
    assert {"q", "i_squared", "h_squared", "variance_lower", "log_likelihood"} <= set(meta)
    plain = json.loads(command("estimate", table, *WORDS[:4], "--stderr", "se", "--json").out)
    assert plain["meta_analysis"]["variance"] > 3 * meta["variance"]
    assert "leave_one_out" not in plain["meta_analysis"]


def test_groups_without_a_covariate_are_dropped_and_counted(command, table, tmp_path):
    path = tmp_path / "gaps.csv"
    lines = table.read_text().splitlines(keepends=True)
    lines[4:7] = [line.replace(line.split(",")[2], "NA") for line in lines[4:7]]  # all of s01
    lines[7] = lines[7].replace(lines[7].split(",")[2], "")  # one row of s02
    path.write_text("".join(lines))
    found = command("estimate", path, *WORDS, "--json")
    assert found.code == 0, found.err
    assert "1 group without a covariate ('area' or 'region')" in found.err
    answer = json.loads(found.out)
    assert (answer["num_groups"], answer["rows"], answer["dropped"]) == (39, 114, 6)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((*WORDS[:4], "--covariates", "sales"), "--covariates must be other columns than those of"),
        ((*WORDS[:4], "--covariates", "shop"), "--covariates must be other columns than those of"),
        ((*WORDS[:4], "--covariates", "area,area"), "--covariates must be different columns"),
        ((*WORDS[:4], "--covariates", "aera"), "there is no column 'aera'"),
        ((*WORDS[:4], "--covariates", "visits"), "column 'visits' must be constant within a gro"),
        ((*WORDS[:4], "--covariates", "same"), "covariate 'same' must be of more than one value"),
        ((*WORDS, "--strict"), "rows must be complete with --strict"),
        ((*WORDS, "--population", "auto"), "--covariates must be left out with --population auto"),
        ((*WORDS, "--method", "paper"), "--covariates must be left out with --method paper"),
        ((*WORDS, "--leave-one-out"), "--leave-one-out must be given with --stderr"),
        (
            (*WORDS, "--epsilon", "1", "--low", "0", "--high", "9"),
            "--covariates cannot be combined with --epsilon",
        ),
    ],
)
def test_misuse_is_one_line(untouched, table, tmp_path, words, wanted):
    path = tmp_path / "more.csv"
    lines = table.read_text().splitlines()
    more = [f"{lines[0]},visits,same", *(f"{line},{k},7" for k, line in enumerate(lines[1:]))]
    path.write_text("\n".join(more) + "\n")
    untouched(path, *words, wanted=wanted)


def test_the_embedded_table_has_no_covariates(command):
    found = command("estimate", "--covariates", "age")
    assert found.code == 2
    assert "--covariates must be given with a FILE" in found.err


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Rows of 30 clinics with patients, cured, falls and hours; the last one has no patients."""
    random = np.random.default_rng(8)
    age = random.uniform(40, 80, 30)
    ward = np.where(np.arange(30) % 3 == 0, "day", "night")
    chance = 1 / (1 + np.exp(-(4 - 0.08 * age + 0.6 * (ward == "night"))))
    lines = ["clinic,cured,patients,falls,hours,age,ward,won\n"]
    for place in range(30):
        for _ in range(2):
            patients = int(random.integers(5, 30))
            cured = random.binomial(patients, chance[place])
            falls, hours = random.poisson(patients * chance[place] / 3), patients / 4
            cells = [cured, patients, falls, hours] if place < 29 else [""] * 4
            cells += [float(age[place]), ward[place], cured % 2 if place < 29 else ""]
            lines.append(",".join(map(str, [f"c{place:02}", *cells])) + "\n")
    path = tmp_path_factory.mktemp("counted") / "clinics.csv"
    path.write_text("".join(lines))
    return path


COUNTED = {
    "rates": ("--successes", "cured", "--trials", "patients"),
    "events": ("--events", "falls", "--exposure", "hours"),
    "outcomes": ("--outcome", "won"),
}


@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize("more", [(), ("--by-size",), ("--population", "point")])
def test_rates_and_events_take_covariates(command, counted, tmp_path, kind, more):
    if kind == "outcomes" and more == ("--by-size",):
        pytest.skip("all clinics have two outcomes")
    words = ("--group", "clinic", *COUNTED[kind], "--covariates", "age,ward", *more)
    out = tmp_path / "out.parquet"
    extra = ("--above", "0.4", "--ranks")
    found = command("estimate", counted, *words, *extra, "--out", out, "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    told = answer["population"]["coefficients"]
    assert list(told)[-2:] == ["age", "ward=night"]
    assert answer["population"]["link"] == ("log" if kind == "events" else "logit")
    rows = read(out)
    assert (len(rows["personal"]), rows["weight"][-1]) == (30, 0)
    assert np.ma.getmaskarray(rows["raw"])[-1]
    assert (rows["lower"] < rows["upper"]).all()
    shown = command("estimate", counted, *words)
    scale = "log" if kind == "events" else "logit"
    assert f"Population mean ({scale} scale)" in shown.out
    assert "by covariates" in shown.out


def test_counts_on_disk_agree_with_python(command, counted):
    words = ("--group", "clinic", *COUNTED["rates"], "--covariates", "age,ward", "--json")
    answer = json.loads(command("estimate", counted, *words).out)
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT * FROM '{counted}'").fetchnumpy()
    numbers = [np.ma.filled(rows[name].astype(float), np.nan) for name in ("cured", "patients")]
    covariates = {name: np.ma.getdata(rows[name]) for name in ("age", "ward")}
    model = GroupRates.from_counts(*numbers, np.ma.getdata(rows["clinic"]), covariates=covariates)
    wanted = model.population_.coefficients
    told = answer["population"]["coefficients"]
    assert [each["value"] for each in told.values()] == pytest.approx(wanted.values)
    assert answer["population"]["r_squared"] == pytest.approx(wanted.r_squared)
    assert answer["gain_over_raw"] == pytest.approx(model.gain_over_raw_)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--population", "auto"), "--covariates must be left out with --population auto"),
        (("--population", "nonparametric"), "must be left out with --population nonparametric"),
        (("--fit", "moments"), "--covariates must be left out with --fit moments"),
        (("--intervals", "robust"), "--covariates must be left out with --intervals robust"),
        (("--method", "paper"), "--covariates must be left out with --method paper"),
        (("--epsilon", "1"), "--covariates cannot be combined with --epsilon"),
        (("--covariates", "patients"), "--covariates must be other columns than those of groups"),
    ],
)
def test_misuse_with_rates_is_one_line(untouched, counted, words, wanted):
    untouched(
        counted, "--group", "clinic", *COUNTED["rates"], "--covariates", "age", *words,
        wanted=wanted,
    )  # fmt: skip


def test_shares_take_no_covariates(untouched, counted):
    words = ("--group", "clinic", "--category", "ward", "--covariates", "age")
    untouched(counted, *words, wanted="--covariates must be left out with --category")


def test_a_part_of_the_key_may_be_a_covariate(command, counted):
    words = ("--group", "clinic", "--group", "ward", *COUNTED["rates"], "--covariates", "ward")
    found = command("estimate", counted, *words, "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)["population"]["coefficients"]
    assert list(told) == ["intercept", "ward=night"]


STUDIES = {
    "two": ("a,1,.2,1", "b,2,.3,2"),
    "equal": ("a,1,.2,1", "b,1,.3,2", "c,1,.1,3", "d,1,.5,4"),
    "huge": ("a,-1e6,.001,1", "b,3e6,.001,2", "c,0,.001,3", "d,5,.002,7"),
    "alike": ("a,1,.2,1", "b,2,.2,2", "c,1.5,.2,4", "d,3,.2,3"),
    "three": ("a,1,.2,1", "b,2,.3,2", "c,4,.1,3"),
}


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("more", [(), ("--leave-one-out",), ("--covariates", "x")])
def test_odd_meta_analyses_are_answered_or_refused_in_a_line(command, tmp_path, name, more):
    path = tmp_path / "studies.csv"
    path.write_text("\n".join(("g,y,s,x", *STUDIES[name])) + "\n")
    words = ("--group", "g", "--value", "y", "--stderr", "s", *more)
    found = command("estimate", path, *words)
    if name == "two" and more:
        assert (found.code, found.err.count("\n")) == (2, 1)
        assert "must be at least 3" in found.err or "must be from 3 to 2,000" in found.err
        return
    assert found.code == 0, found.err
    assert "Q(" in found.out
    meta = json.loads(command("estimate", path, *words, "--json").out)["meta_analysis"]
    assert 0 <= meta["variance_lower"] <= meta["variance"] <= meta["variance_upper"]
    assert 0 <= meta["i_squared"] <= 1
    if name == "equal":
        assert (meta["q"], meta["variance"], meta["h_squared"]) == (0, 0, 1)
    if name == "huge":
        assert "100.00%" in found.out


def test_a_meta_analysis_by_covariates_shows_both_kinds_of_errors(command, tmp_path):
    path = tmp_path / "studies.csv"
    path.write_text("\n".join(("g,y,s,x", *STUDIES["alike"])) + "\n")
    words = ("--group", "g", "--value", "y", "--stderr", "s", "--covariates", "x")
    found = command("estimate", path, *words)
    answer = json.loads(command("estimate", path, *words, "--json").out)
    plugged = answer["meta_analysis"]["coefficients"]["x"]
    wider = answer["population"]["coefficients"]["x"]
    assert wider["standard_error"] > plugged["standard_error"]
    for each in (plugged, wider):
        assert f"{each['standard_error']:.4g}" in found.out
