"""`from_table` in every engine against the same estimators in memory."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from fedprior import GroupEncoder, GroupEvents, GroupMeans, GroupRates
from fedprior.estimation import in_engine
from fedprior.estimation.groups import EstimationWarning
from servers import PASSWORD

nw = pytest.importorskip("narwhals", reason="needs fedprior[warehouse]")
pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning:pyspark",
    "ignore::fedprior.estimation.groups.EstimationWarning",
)

ENGINES = ["polars", "duckdb", "postgres", "spark"]  # tests/cli has Ibis with DuckDB


@pytest.fixture(scope="module", params=ENGINES)
def load(request):
    """`load(table)`: an Arrow table as a lazy frame of the engine."""
    if request.param == "polars":
        import polars

        yield lambda table: polars.from_arrow(table).lazy()
    elif request.param == "duckdb":
        import duckdb

        names = iter(range(1000))
        with duckdb.connect() as connection:

            def relation(rows):
                name = f"rows_{next(names)}"
                connection.execute(f"CREATE TABLE {name} AS FROM rows")
                return connection.table(name)

            yield relation
    elif request.param == "spark":
        session = request.getfixturevalue("spark")
        yield lambda table: session.createDataFrame(table)
    else:
        yield from _postgres(request.getfixturevalue("postgres"))


def _postgres(url):
    import ibis
    import psycopg

    link = psycopg.connect(url, password=PASSWORD, autocommit=True)
    backend = ibis.postgres.from_connection(link)
    names = iter(range(1000))
    yield lambda table: backend.create_table(f"rows_{next(names)}", table, temp=True)
    backend.disconnect()


def rows_of(num_groups=300, rows=4000, seed=3):
    """Rows with missing groups, missing and NaN values, at an offset of 1e6."""
    draws = np.random.default_rng(seed)
    group = draws.integers(0, num_groups, rows)
    theta = draws.normal(size=num_groups)
    value = 1e6 + theta[group] + draws.normal(size=rows)
    truth = draws.random(rows) < 0.3 + 0.15 * np.tanh(theta[group])
    return pa.table(
        {
            "g": [None if each == 7 else f"group {each}" for each in group],
            "key": pa.array(group),
            "truth": [None if i % 17 == 0 else bool(each) for i, each in enumerate(truth)],
            "one": pa.array(truth.astype(np.int32)),
            "trials": pa.array(draws.integers(1, 4, rows)),
            "time": pa.array(draws.random(rows) + 0.5),
            "x": [
                None if i % 13 == 0 else float("nan") if i % 19 == 0 else each
                for i, each in enumerate(value)
            ],
            "y": pa.array(value),
            "fold": pa.array(np.arange(rows) % 3),
        }
    )


def read(native, key="group"):
    """All rows of a native frame as pandas, sorted by key."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = nw.from_native(native).lazy().collect("pyarrow").to_native().to_pandas()
    return frame.sort_values(list(frame.columns) if key is None else key, ignore_index=True)


CASES = {
    "truth": (GroupRates, {"outcome": "truth"}),
    "outcome": (GroupRates, {"outcome": "one"}),
    "counts": (GroupRates, {"successes": "one", "trials": "trials"}),
    "ranks": (GroupRates, {"outcome": "one", "ranks": True, "above": 0.4}),
    "nonparametric": (GroupRates, {"outcome": "one", "population": "nonparametric"}),
    "events": (GroupEvents, {"events": "one", "exposure": "time"}),
    "events alone": (GroupEvents, {"events": "one"}),
    "means": (GroupMeans, {"value": "x"}),
    "studies": (GroupMeans, {"value": "y", "stderr": "time"}),
    "robust": (GroupMeans, {"value": "y", "intervals": "robust"}),
    "whole": (GroupMeans, {"value": "trials"}),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_in_memory(load, case):
    kind, arguments = CASES[case]
    table = rows_of()
    inside = kind.from_table(load(table), group="g", **arguments)
    here = kind.from_table(table.to_pandas(), group="g", **arguments)
    found, expected = read(inside.to_frame()), read(here.to_frame())
    assert list(found.columns) == list(expected.columns)
    assert found["group"].tolist() == expected["group"].tolist()
    for name in expected.columns[1:]:
        if name.startswith("rank"):  # of draws, keyed by the order of rows
            assert np.corrcoef(found[name], expected[name])[0, 1] > 0.98
            continue
        bits = kind is GroupRates or case == "events alone"
        tolerance = 0.0 if bits else 1e-6
        np.testing.assert_allclose(
            found[name], expected[name], rtol=tolerance * 1e-6, atol=tolerance, err_msg=name
        )
    assert inside.num_dropped_ == here.num_dropped_
    assert inside.gain_over_raw_ == pytest.approx(here.gain_over_raw_, rel=1e-6)
    labels = ["group 1", "nobody", None, "group 2"]
    np.testing.assert_allclose(inside.predict(labels), here.predict(labels), rtol=1e-12)
    np.testing.assert_allclose(
        inside.interval(labels), here.interval(labels), rtol=1e-11, atol=1e-6
    )


@pytest.mark.parametrize("options", [{}, {"fit_by": "moments"}, {"population": "point"}])
def test_means_of_many_groups_leave_as_a_table_by_size(load, options, monkeypatch):
    monkeypatch.setattr(in_engine, "READ", 120)
    table = rows_of()
    inside = GroupMeans.from_table(load(table), group="g", value="x", **options)
    here = GroupMeans(**options, noise="common").fit(table.to_pandas()["x"], table.to_pandas()["g"])
    assert inside.estimates_.count.sum() == len(here.groups_)
    assert len(inside.n_) == len(np.unique(here.n_))
    found, expected = read(inside.to_frame()), read(here.to_frame())
    for name in expected.columns[1:]:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-13, atol=1e-6)
    assert inside.gain_over_raw_ == pytest.approx(here.gain_over_raw_, rel=1e-6)
    assert inside.predict(["nobody"])[0] == pytest.approx(here.predict(["nobody"])[0], rel=1e-12)
    np.testing.assert_allclose(inside.interval(["nobody"]), here.interval(["nobody"]), rtol=1e-11)


def test_what_needs_every_mean_says_that_it_reads_them(load, monkeypatch):
    monkeypatch.setattr(in_engine, "READ", 120)
    table = rows_of()
    frame = load(table)
    inside = GroupMeans.from_table(frame, group="key", value="y", above=1e6, ranks=True)
    assert any("sums of all groups were read: above needs" in note for note in inside.notes_)
    here = GroupMeans(above=1e6, ranks=True).fit(table.to_pandas()["y"], table.to_pandas()["key"])
    found, expected = read(inside.to_frame()), read(here.to_frame())
    np.testing.assert_allclose(found["above"], expected["above"], atol=1e-6)


def test_unequal_noise_is_found_in_a_sample_and_reads_all(load, monkeypatch):
    monkeypatch.setattr(in_engine, "READ", 150)
    draws = np.random.default_rng(1)
    group = np.repeat(np.arange(300), 12)
    noise = np.exp(draws.normal(size=300))[group]
    value = draws.normal(size=300)[group] + noise * draws.normal(size=len(group))
    inside = GroupMeans.from_table(load(pa.table({"g": group, "x": value})), group="g", value="x")
    assert any("read: the noise differs" in note for note in inside.notes_)
    here = GroupMeans().fit(value, group)
    np.testing.assert_allclose(read(inside.to_frame())["personal"], here.personal_, atol=1e-6)


def test_a_warning_of_the_sample_names_it(load, monkeypatch):
    monkeypatch.setattr(in_engine, "READ", 200)
    draws = np.random.default_rng(2)
    sizes = np.repeat([2, 20], 200)
    group = np.repeat(np.arange(400), sizes)
    value = (
        3.0 * (sizes[group] > 10) + draws.normal(size=400)[group] + draws.normal(size=len(group))
    )
    frame = load(pa.table({"g": group, "x": value}))
    with pytest.warns(EstimationWarning, match=r"In a sample of \d+ groups: The size of a group"):
        GroupMeans.from_table(frame, group="g", value="x")


@pytest.mark.parametrize("case", ["truth", "counts", "events", "means", "studies"])
def test_encode_is_a_left_join(load, case):
    kind, arguments = CASES[case]
    table = rows_of()
    frame = load(table)
    inside = kind.from_table(frame, group="g", **arguments)
    here = kind.from_table(table.to_pandas(), group="g", **arguments)
    other = pa.table({"name": ["group 3", None, "nobody"], "place": [0, 1, 2]})
    found = read(inside.encode(load(other), group="name"), "place")
    expected = here.encode(other.to_pandas(), group="name")
    np.testing.assert_allclose(found["personal"], expected["personal"], rtol=1e-12)
    assert found["personal"][1] == found["personal"][2] == pytest.approx(inside.population_.mean)
    with pytest.raises(ValueError, match="name must be a new column, got 'x'"):
        inside.encode(frame, name="x")


@pytest.mark.parametrize("case", ["truth", "counts", "events", "means", "studies"])
def test_out_of_fold_by_sums(load, case):
    kind, arguments = CASES[case]
    table = rows_of()
    frame = load(table)
    inside = kind.from_table(frame, group="g", **arguments)
    here = kind.from_table(table.to_pandas(), group="g", **arguments)
    order = ["y", "fold"]
    found = read(inside.encode(frame, name="code", fold="fold"), order)
    expected = here.encode(table.to_pandas(), name="code", fold="fold").sort_values(order)
    np.testing.assert_allclose(found["code"], expected["code"], rtol=1e-12, atol=1e-6)
    assert found["g"].isna().sum() == expected["g"].isna().sum() > 0


def test_folds_agree_with_the_encoder():
    import polars

    table = rows_of().drop(["g", "x", "truth"])
    encoder = GroupEncoder(cv=3)
    names, target = table["key"].to_pandas().to_frame(), table["one"].to_numpy()
    expected = encoder.fit_transform(names, target)[:, 0]
    folds = encoder._folds(target.astype(float), 3)
    frame = polars.from_arrow(table.append_column("part", pa.array(folds)))
    frame = frame.with_row_index("row").lazy()
    model = GroupRates.from_table(frame, group="key", outcome="one")
    found = model.encode(frame, name="code", fold="part").collect().sort("row")
    np.testing.assert_allclose(found["code"].to_numpy(), expected, rtol=1e-12)
    unseen = encoder.transform(names.iloc[:1] * 0 - 1)[0, 0]
    assert model.predict([-1])[0] == pytest.approx(unseen, rel=1e-12)


def test_several_columns_make_a_key_of_their_own_names(load):
    table = rows_of()
    inside = GroupRates.from_table(load(table), group=["key", "fold"], outcome="one")
    found = read(inside.to_frame(), ["key", "fold"])
    frame = table.to_pandas()
    expected = GroupRates().fit(
        frame["one"], frame["key"].astype(str) + "/" + frame["fold"].astype(str)
    )
    assert sorted(found["personal"]) == sorted(expected.personal_)
    with pytest.raises(ValueError, match="one column at a time"):
        inside.predict(["1"])


REFUSED = {
    "outcome of 2": ({"outcome": "a"}, [0, 1, 2], None, "column 'a' must be 0 or 1, got 2"),
    "outcome of .5": ({"outcome": "a"}, [0.0, 1, 0.5], None, "must be 0 or 1, got 0.5"),
    "infinity": ({"value": "a"}, [1.0, 2, np.inf], None, "column 'a' must be finite, got inf"),
    "minus infinity": ({"value": "a"}, [1.0, 2, -np.inf], None, "must be finite, got -inf"),
    "huge": ({"value": "a"}, [1.0, 2, 1e200], None, "small enough|could not sum"),
    "text": ({"value": "a"}, ["x", "y", "z"], None, "a column of numbers, got 'string'"),
    "negative": (
        {"successes": "a", "trials": "b"},
        [0, 1, -1],
        [1, 1, 1],
        "column 'a' must be whole numbers of at least 0, got -1",
    ),
    "fraction": (
        {"successes": "a", "trials": "b"},
        [0.0, 1, 0.5],
        [1, 1, 1],
        "whole numbers of at least 0, got 0.5",
    ),
    "too many": (
        {"successes": "a", "trials": "b"},
        [0, 1, 5],
        [1, 1, 3],
        "at most the trials in column 'b', got 5 of 3",
    ),
    "error of 0": ({"value": "a", "stderr": "b"}, [0, 1, 5], [1, 1, 0], "a standard error above 0"),
    "negative exposure": (
        {"events": "a", "exposure": "b"},
        [0, 1, 0],
        [1.0, 1, -1],
        "column 'b' must be at least 0, got -1",
    ),
    "events without exposure": (
        {"events": "a", "exposure": "b"},
        [0, 1, 2],
        [1.0, 1, 0],
        "column 'a' must be 0 where column 'b' is 0, got 2",
    ),
    "unknown": ({"value": "c"}, [0, 1, 5], None, "column must be one of g, a, got 'c'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_rows_are_refused_in_one_line(load, case):
    roles, first, second, message = REFUSED[case]
    table = pa.table({"g": ["p", "p", "q"], "a": first})
    if second is not None:
        table = table.append_column("b", pa.array(second))
    kind = GroupMeans if "value" in roles else GroupEvents if "events" in roles else GroupRates
    with pytest.raises(ValueError, match=message) as raised:
        kind.from_table(load(table), group="g", **roles)
    assert "\n" not in str(raised.value)


def test_missing_rows_are_counted_or_refused(load):
    table = rows_of()
    model = GroupRates.from_table(load(table), group="g", outcome="truth")
    assert model.notes_[0].startswith("Dropped ")
    assert "without a number ('truth'" in model.notes_[0]
    with pytest.raises(ValueError, match="rows must be complete in strict mode"):
        GroupRates.from_table(load(table), group="g", outcome="truth", strict=True)
    empty = table.slice(0, 0)
    with pytest.raises(ValueError, match="the table has no rows"):
        GroupRates.from_table(load(empty), group="key", outcome="one")


def test_a_group_without_trials_has_the_population(load):
    table = pa.table({"g": ["a", "b", "c", "d"], "s": [1, 3, 0, 2], "t": [4, 5, 0, 6]})
    found = read(
        GroupRates.from_table(load(table), group="g", successes="s", trials="t").to_frame()
    )
    assert found["n"].tolist() == [4, 5, 0, 6]
    assert np.isnan(found["raw"][2])
    assert found["weight"][2] == 0
    expected = GroupRates.from_counts([1, 3, 0, 2], [4, 5, 0, 6]).personal_
    assert found["personal"].tolist() == expected.tolist()


def test_frames_in_memory_need_no_engine():
    import polars

    table = rows_of()
    first = GroupRates.from_table(polars.from_arrow(table), group="g", outcome="one")
    second = GroupRates.from_table(table.to_pandas(), group="g", outcome="one")
    assert isinstance(first.to_frame(), polars.DataFrame)
    np.testing.assert_array_equal(first.personal_, second.personal_)
    code = first.encode(polars.from_arrow(table), name="code", fold="fold")
    assert isinstance(code, polars.DataFrame)
    with pytest.raises(ValueError, match=r"column must be one of g, .*got 'h'"):
        GroupRates.from_table(table.to_pandas(), group="h", outcome="one")
    with pytest.raises(TypeError, match=r"must be a data frame, .*got 'builtins.dict'"):
        GroupRates.from_table({"g": [1]}, group="g", outcome="one")
    for other in (polars.Series([1]), table.to_pandas()["one"]):
        with pytest.raises(TypeError, match=r"must be a data frame, .*Series'"):
            GroupRates.from_table(other, group="g", outcome="one")
    arrow = GroupRates.from_table(table, group="g", outcome="one")
    assert "code" in arrow.encode(table, name="code", fold="fold").column_names
    with pytest.raises(ValueError, match="give outcome, or successes and trials"):
        GroupRates.from_table(table.to_pandas(), group="g", outcome="one", trials="trials")


def test_a_model_of_another_engine_is_refused():
    import duckdb
    import polars

    table = rows_of()
    model = GroupRates.from_table(polars.from_arrow(table).lazy(), group="g", outcome="one")
    match = "of the engine that the model was fitted in"
    with duckdb.connect() as connection, pytest.raises(TypeError, match=match):
        model.encode(connection.from_arrow(table))
    with pytest.raises(ValueError, match="no database to write a table to"):
        model.write_table("answers")
    with pytest.raises(ValueError, match="encode needs a model by from_table"):
        clone(model).fit([0, 1, 1], ["a", "a", "b"]).encode(table.to_pandas())


def test_answers_become_a_table(load):
    table = rows_of()
    frame = load(table)
    if type(frame).__module__.startswith("polars"):
        pytest.skip("Polars has no database")
    model = GroupRates.from_table(frame, group="g", outcome="one")
    model.write_table("answers_of_rates")
    with pytest.raises(Exception, match=r"(?i)exist"):
        model.write_table("answers_of_rates")
    model.write_table("answers_of_rates", overwrite=True)
    assert len(read(model.to_frame())) == len(np.unique([str(each) for each in table["g"]])) - 1


@pytest.mark.parametrize("source", ["visits", "(SELECT * FROM visits WHERE g < 5)"])
def test_the_rows_that_were_read_are_never_replaced(source):
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i % 9 AS g, i % 3 AS y FROM range(90) t(i)"
        )
        connection.execute("CREATE TABLE old AS SELECT 1 AS one")
        rows = connection.sql(f"SELECT g, CAST(y = 0 AS INTEGER) AS y FROM {source}")
        model = GroupRates.from_table(rows, group="g", outcome="y")
        for name in ("visits", "main.visits", "VISITS"):
            with pytest.raises(ValueError, match="new, or a table of earlier answers"):
                model.write_table(name, overwrite=True)
        assert connection.execute("SELECT count(*) FROM visits").fetchall() == [(90,)]
        with pytest.raises(Exception, match="exists"):
            model.write_table("old")
        model.write_table("new", overwrite=True)
        model.write_table("new", overwrite=True)
        assert connection.execute("SELECT count(*) FROM new").fetchall()[0][0] in (5, 9)


def test_tables_of_the_user_are_not_mistaken_for_ours():
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE lookup AS SELECT 1 AS n, 2 AS successes")
        connection.execute(
            "CREATE TABLE given AS SELECT i % 9 AS key_0, i % 3 = 0 AS personal, "
            "'f' || i % 4 AS fold FROM range(90) t(i)"
        )
        rows = connection.table("given")
        model = GroupRates.from_table(rows, group="key_0", outcome="personal")
        assert len(model.to_frame().fetchall()) == 9
        assert "code" in model.encode(rows, name="code", fold="fold").columns


def test_the_script_of_spark_submit(spark, tmp_path):
    """The whole way: a script in a process of its own, by `spark-submit`."""
    import pyspark

    script = tmp_path / "estimate.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "from fedprior import GroupRates\n"
        "session = SparkSession.builder.master('local[2]').getOrCreate()\n"
        "rows = session.range(600).selectExpr('id % 30 AS g', 'id % 7 < 3 AS y')\n"
        "model = GroupRates.from_table(rows, group='g', outcome='y')\n"
        "print('groups', model.to_frame().count(), model.estimates_.num_groups)\n"
    )
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    told = subprocess.run(
        [program, "--conf", "spark.ui.enabled=false", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "groups 30 30" in told.stdout, told.stderr[-2000:]
