"""`fedprior estimate --table`: PostgreSQL and DuckDB sum, join and keep the answers."""

import json
import subprocess
import sys
from urllib.parse import urlsplit

import numpy as np
import pytest
from typer.testing import CliRunner

from fedprior import GroupMeans, GroupRates
from fedprior.cli.main import build
from fedprior.cli.report import page_of
from fedprior.pages.render import render
from servers import PASSWORD

pd = pytest.importorskip("pandas")
ibis = pytest.importorskip("ibis", reason="needs fedprior[warehouse]")
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


def visits(num_groups=40, rows=800):
    draws = np.random.default_rng(5)
    clinic = draws.integers(0, num_groups, rows)
    theta = draws.normal(size=num_groups)
    return pd.DataFrame(
        {
            "clinic": [f"clinic {each}" for each in clinic],
            "recovered": draws.random(rows) < 0.4 + 0.2 * np.tanh(theta[clinic]),
            "cost": 1e6 + theta[clinic] + draws.normal(size=rows),
            "hours": 1 + draws.random(rows),
        }
    )


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def database(request, tmp_path_factory):
    """The address of a database with the table visits, and a function that reads a query."""
    table = visits()
    if request.param == "duckdb":
        import duckdb

        path = tmp_path_factory.mktemp("database") / "shop.duckdb"
        with duckdb.connect(str(path)) as link:
            link.register("given", table)
            link.execute("CREATE TABLE visits AS FROM given")

        def read(query):
            with duckdb.connect(str(path)) as link:
                return link.execute(query).fetchall()

        yield f"duckdb://{path}", read
        return
    import psycopg

    url = request.getfixturevalue("postgres")
    with psycopg.connect(url, password=PASSWORD, autocommit=True) as link:
        link.execute(
            "CREATE TABLE visits (clinic text, recovered boolean, cost float8, hours float8)"
        )
        with link.cursor() as cursor, cursor.copy("COPY visits FROM STDIN") as copy:
            for row in table.itertuples(index=False):
                copy.write_row(row)

    def read(query):
        with psycopg.connect(url, password=PASSWORD, autocommit=True) as link:
            return link.execute(query).fetchall()

    yield url, read


@pytest.fixture
def call(database, monkeypatch):
    """`call(*options)`: the command on the database; a failure must be one line."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    url = database[0]

    def call(*options, table="visits", code=0):
        told = CliRunner().invoke(
            build(["estimate", "train"]),
            ["estimate", "--connect", url, "--table", table, *map(str, options)],
            env={"COLUMNS": "100"},
        )
        if code == 0:
            assert told.exit_code == 0, told.exception
        else:
            assert told.exit_code != 0
        said = told.output + str(told.exception or "")
        assert PASSWORD not in said
        return told.stdout if code == 0 else str(told.exception)

    return call


def test_answers_become_a_table_of_the_database(call, database):
    table = visits()
    shown = call("--group", "clinic", "--outcome", "recovered", "--out-table", "rates", "--force")
    assert "40, 800 rows" in shown
    assert "Most changed groups" in shown
    expected = GroupRates().fit(table["recovered"], table["clinic"])
    rows = sorted(database[1]("SELECT * FROM rates"))
    assert [row[0] for row in rows] == expected.groups_.tolist()
    assert [row[3] for row in rows] == expected.personal_.tolist()
    message = call("--group", "clinic", "--outcome", "recovered", "--out-table", "rates", code=2)
    assert message == "estimate: --out-table rates exists already. Overwrite it with --force."


def test_json_and_files(call, tmp_path):
    table = visits()
    out = tmp_path / "means.csv"
    told = json.loads(call("--group", "clinic", "--value", "cost", "--json", "--out", out))
    assert (told["num_groups"], told["rows"], told["dropped"]) == (40, 800, 0)
    found = pd.read_csv(out)
    expected = GroupMeans().fit(table["cost"], table["clinic"])
    assert found["group"].tolist() == expected.groups_.tolist()
    np.testing.assert_allclose(found["upper"], expected.upper_, atol=1e-6)


@pytest.mark.parametrize("keys", [("clinic",), ("clinic", "hours")])
def test_a_page_is_the_same_from_the_files(call, tmp_path, keys):
    out, page = tmp_path / "means.csv", tmp_path / "page.html"
    groups = [word for key in keys for word in ("--group", key)]
    call(*groups, "--value", "cost", "--noise-sd", 1, "--out", out, "--report", page)
    assert "Means of cost by clinic" in page.read_text("utf-8")
    again = render(page_of(out))
    assert again == page.read_text("utf-8")


def test_standard_errors_are_a_meta_analysis(call):
    shown = call("--group", "clinic", "--value", "cost", "--stderr", "hours")
    assert "I2" in shown


def test_several_columns_make_one_key(call, database):
    asked = ("--group", "clinic", "--group", "recovered", "--value", "cost")
    shown = call(*asked, "--out-table", "pairs", "--force")
    assert "clinic 1" in shown
    columns = "clinic, recovered, n, raw, personal, weight, lower, upper"
    rows = database[1](f"SELECT {columns} FROM pairs")
    table = visits()
    assert len(rows) == len(table.groupby(["clinic", "recovered"]))


def test_a_failing_write_leaves_the_old_table(call, database):
    call("--group", "clinic", "--outcome", "recovered", "--out-table", "kept", "--force")
    before = sorted(database[1]("SELECT * FROM kept"))
    message = call(
        "--group", "clinic", "--outcome", "cost", "--out-table", "kept", "--force", code=2
    )
    assert "column 'cost' must be 0 or 1, got 9" in message
    assert sorted(database[1]("SELECT * FROM kept")) == before


def test_no_name_of_the_table_that_is_read_is_overwritten(call, database):
    """By its schema, by its file, or in another case."""
    url, read = database
    names = ["public.visits"]
    if url.startswith("duckdb"):
        names = ["main.visits", "VISITS", "shop.visits", "shop.main.visits"]
    before = sorted(read("SELECT * FROM visits"))
    asked = ("--group", "clinic", "--outcome", "recovered", "--force", "--out-table")
    for name in names:
        message = call(*asked, name, code=2)
        assert f"must be another table than the one that is read, got {name!r}" in message
        assert sorted(read("SELECT * FROM visits")) == before
    call(*asked, "main.other" if url.startswith("duckdb") else "public.other")
    assert len(read("SELECT * FROM other")) == 40


def test_rows_of_several_keys_are_in_order(call, tmp_path):
    out = tmp_path / "pairs.csv"
    call("--group", "clinic", "--group", "recovered", "--value", "cost", "--out", out)
    keys = pd.read_csv(out)[["clinic", "recovered"]].apply(tuple, axis=1).tolist()
    assert keys == sorted(keys)


def test_a_name_that_postgresql_would_cut_is_refused(call, database):
    if database[0].startswith("duckdb"):
        pytest.skip("names of DuckDB have no limit")
    asked = ("--group", "clinic", "--outcome", "recovered", "--force", "--out-table")
    message = call(*asked, "é" * 32, code=2)
    assert "PostgreSQL: table must be a name of at most 63 bytes" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--outcome", "recoverd"),
            "column must be one of clinic, recovered, cost, hours, got 'recoverd'",
        ),
        (("--value", "cost", "--plot", "x.png"), "--plot cannot be combined with --table"),
        (("--value", "cost", "--covariates", "x"), "--covariates cannot be combined with --table"),
        (("--category", "cost"), "--category cannot be combined with --table"),
        (("--value", "cost", "--missing", "-9"), "--missing cannot be combined with --table"),
        (("--value", "cost", "--out-table", "visits"), "another table than the one that is read"),
        (("--value", "cost", "--out-table", "a."), "the name of a table, or schema.table"),
        (("--value", "cost", "--out-table", "a.b.c.d"), "the name of a table, or schema.table"),
        (("--outcome", "recovered", "--epsilon", "1"), "--epsilon cannot be combined with --table"),
    ],
)
def test_bad_input_is_one_line(call, options, message):
    told = call("--group", "clinic", *options, code=2)
    assert message in told
    assert "\n" not in told


def test_tables_that_are_not_there(call):
    for table in ("nobody", "nowhere.visits"):
        told = call("--group", "clinic", "--value", "cost", table=table, code=2)
        assert "--table must be a table in " in told
        assert told.endswith(f"got {table!r}.")


def test_options_of_a_database_need_a_table():
    for option in ("--connect", "--connect-file", "--out-table"):
        told = CliRunner().invoke(
            build(["estimate", "train"]),
            ["estimate", "x.csv", "--group", "g", "--value", "v", option, "y"],
        )
        assert f"{option} must be given with --table" in str(told.exception)


def test_a_wrong_password_is_not_printed(postgres, tmp_path):
    """The whole process: nothing on either stream, whatever the server answers."""
    parts = urlsplit(postgres)
    file = tmp_path / "url"
    file.write_text(f"postgresql://tester:xyzzy-wrong@/postgres?{parts.query}")
    file.chmod(0o600)
    asked = ["--connect-file", str(file), "--table", "visits", "--group", "g", "--value", "v"]
    told = subprocess.run(
        [sys.executable, "-m", "fedprior", "estimate", *asked, "--json"],
        capture_output=True,
        text=True,
    )
    assert told.returncode == 2
    assert "cannot connect to postgresql://tester@/postgres" in told.stderr
    assert "password authentication failed" in told.stderr
    assert "xyzzy" not in told.stdout + told.stderr
    assert told.stderr.count("\n") == 1
