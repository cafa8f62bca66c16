"""Columns and data frames of any library give the same answers as arrays."""

import subprocess
import sys

import numpy as np
import pytest

import fedprior
from fedprior.estimation.encoder import GroupEncoder
from fedprior.estimation.events import GroupEvents
from fedprior.estimation.group_levels import GroupLevels
from fedprior.estimation.shares import GroupShares
from fedprior.estimation.table import GroupMeans, GroupMixture, GroupRates
from fedprior.regression.face.personal import PersonalClassifier, PersonalRegression

pa = pytest.importorskip("pyarrow")

DRAWS = np.random.default_rng(1)
GROUP = np.repeat(np.arange(24), 8)
EXPOSURE = np.arange(len(GROUP)) % 3 + 1
COLUMNS = {
    "group": GROUP,
    "name": np.array([f"site {g}" for g in GROUP], object),
    "value": 0.2 * GROUP + DRAWS.standard_normal(len(GROUP)),
    "outcome": DRAWS.random(len(GROUP)) < 0.2 + GROUP / 40,
    "events": DRAWS.poisson((1 + GROUP / 8) * EXPOSURE),
    "exposure": EXPOSURE,
    "size": (GROUP % 7).astype(float),
    "kind": np.array(["urban", "rural"], object)[GROUP % 2],
    "dose": DRAWS.standard_normal(len(GROUP)),
}
GAPS = np.arange(len(GROUP)) % 11 == 5  # rows without a value


def arrow():
    columns = {name: pa.array(values) for name, values in COLUMNS.items()}
    columns["kind"] = columns["kind"].dictionary_encode()
    columns["name"] = columns["name"].cast(pa.string_view())
    columns["value"] = pa.array(COLUMNS["value"], mask=GAPS)
    whole = pa.table(columns)
    return pa.concat_tables([whole.slice(0, 50), whole.slice(50)])  # two chunks


class Exported:
    """A table of some library that exports Arrow data and does nothing else; read once only."""

    def __init__(self, table):
        self.reader = table.to_reader()

    def __arrow_c_stream__(self, requested_schema=None):
        return self.reader.__arrow_c_stream__(requested_schema)


class ExportedColumn:
    def __init__(self, column):
        self.column = column

    def __arrow_c_stream__(self, requested_schema=None):
        return self.column.__arrow_c_stream__(requested_schema)


def narwhals_table(table):
    return pytest.importorskip("narwhals").from_native(table)


def narwhals_column(column):
    narwhals = pytest.importorskip("narwhals")
    return narwhals.from_native(column, series_only=True)


TABLES = {
    "pyarrow": (lambda t: t, lambda c: c),
    "stream": (Exported, ExportedColumn),
    "reader": (lambda t: t.to_reader(), lambda c: c.combine_chunks()),
    "narwhals": (narwhals_table, narwhals_column),
    "polars": (lambda t: pytest.importorskip("polars").from_arrow(t), lambda c: pl_column(c)),
    "lazy": (lambda t: pytest.importorskip("polars").from_arrow(t).lazy(), lambda c: pl_column(c)),
}


def pl_column(column):
    return pytest.importorskip("polars").from_arrow(column)


@pytest.fixture(params=TABLES)
def foreign(request):
    """(table of these names, column of this name)"""
    table, as_table, as_column = arrow(), *TABLES[request.param]
    return lambda *names: as_table(table.select(names)), lambda name: as_column(table[name])


VALUE = np.where(GAPS, np.nan, COLUMNS["value"])
KIND = COLUMNS["kind"]


def test_means_with_covariates(foreign):
    table, column = foreign
    covariates = {"size": COLUMNS["size"], "kind": KIND}
    wanted = GroupMeans().fit(VALUE, COLUMNS["name"], covariates=covariates)
    found = GroupMeans().fit(column("value"), column("name"), covariates=table("size", "kind"))
    np.testing.assert_array_equal(found.groups_, wanted.groups_)
    np.testing.assert_array_equal(found.personal_, wanted.personal_)
    assert found.num_dropped_ == wanted.num_dropped_ == GAPS.sum()
    np.testing.assert_array_equal(found.predict(column("name")), wanted.predict(COLUMNS["name"]))
    new = np.full(len(GROUP), "elsewhere", object)
    np.testing.assert_array_equal(
        found.predict(new, covariates=table("size", "kind")),
        wanted.predict(new, covariates=covariates),
    )


def test_rates_events_shares_and_mixtures(foreign):
    _, column = foreign
    for name, model, values in (
        ("outcome", GroupRates(), COLUMNS["outcome"]),
        ("kind", GroupShares(), KIND),
        ("value", GroupMixture(2), VALUE),
    ):
        wanted = type(model)(**model.get_params()).fit(values, GROUP)
        found = model.fit(column(name), column("group"))
        np.testing.assert_array_equal(found.personal_, wanted.personal_)
    wanted = GroupEvents().fit(COLUMNS["events"], GROUP, exposure=COLUMNS["exposure"])
    found = GroupEvents().fit(column("events"), column("group"), exposure=column("exposure"))
    np.testing.assert_array_equal(found.personal_, wanted.personal_)


def test_values_with_several_coordinates(foreign):
    table, column = foreign
    wanted = GroupMeans().fit(np.stack([COLUMNS["size"], COLUMNS["dose"]], axis=1), GROUP)
    found = GroupMeans().fit(table("size", "dose"), column("group"))
    np.testing.assert_array_equal(found.personal_, wanted.personal_)
    frame = found.to_frame()
    names = list(getattr(frame, "column_names", None) or getattr(frame, "columns", frame))
    assert "personal_dose" in names
    sums = table("size", "dose")
    found = GroupMeans.from_statistics(np.ones(len(GROUP)), sums, variance=np.ones(len(GROUP)))
    assert found._coordinates == ["size", "dose"]
    assert GroupShares().fit_counts(table("events", "exposure")).categories_.tolist() == [
        "events",
        "exposure",
    ]


def test_regressions(foreign):
    table, column = foreign
    X = {"dose": COLUMNS["dose"], "kind": KIND}
    pandas = pytest.importorskip("pandas")
    wanted = PersonalRegression().fit(pandas.DataFrame(X), VALUE, GROUP)
    found = PersonalRegression().fit(table("dose", "kind"), column("value"), column("group"))
    assert found.coefficient_names_ == wanted.coefficient_names_
    np.testing.assert_allclose(found.theta_, wanted.theta_, rtol=1e-9)
    np.testing.assert_allclose(
        found.predict(table("dose", "kind"), column("group")),
        wanted.predict(pandas.DataFrame(X), GROUP),
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match=r"names"):
        found.predict(table("kind", "dose"), column("group"))
    wanted = PersonalClassifier().fit(COLUMNS["dose"][:, None], KIND, GROUP % 5)
    found = PersonalClassifier().fit(table("dose"), column("kind"), pa.array(GROUP % 5))
    np.testing.assert_allclose(found.theta_, wanted.theta_, rtol=1e-9)
    assert found.classes_.tolist() == ["rural", "urban"]


def test_encoders(foreign):
    table, column = foreign
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"name": COLUMNS["name"], "kind": KIND})
    for target, plain in (("outcome", COLUMNS["outcome"]), ("kind", KIND)):
        wanted, found = GroupEncoder(), GroupEncoder()
        np.testing.assert_array_equal(
            found.fit_transform(table("name", "kind"), column(target)),
            wanted.fit_transform(X, plain),
        )
        np.testing.assert_array_equal(found.transform(table("name", "kind")), wanted.transform(X))
    assert found.feature_names_in_.tolist() == ["name", "kind"]
    if not isinstance(table("kind"), pa.RecordBatchReader):
        with pytest.raises(ValueError, match=r"(?i)names|features"):
            found.transform(table("kind", "name"))


def test_a_missing_target_is_refused_as_ever(foreign):
    table, column = foreign
    with pytest.raises(ValueError, match="y must be present in every row"):
        GroupEncoder().fit(table("name"), column("value"))


def test_a_federation_from_a_frame(foreign):
    table, _ = foreign
    names = ("group", "dose", "kind", "outcome")
    wanted = fedprior.data.from_table(
        {name: COLUMNS[name] for name in names}, client="group", label="outcome"
    )
    found = fedprior.data.from_frame(table(*names), client="group", label="outcome")
    np.testing.assert_array_equal(found.train.x, wanted.train.x)
    np.testing.assert_array_equal(found.train.y, wanted.train.y)


def test_estimates_from_a_table(foreign):
    table, _ = foreign
    pytest.importorskip("narwhals")
    wanted = GroupRates().fit(COLUMNS["outcome"], COLUMNS["name"])
    found = GroupRates.from_table(table("name", "outcome"), group="name", outcome="outcome")
    assert found.population_.mean == pytest.approx(wanted.population_.mean, rel=1e-12)
    encoded = found.encode(table("name"), group="name")
    encoded = encoded.collect() if hasattr(encoded, "collect") else encoded
    np.testing.assert_allclose(
        np.sort(np.asarray(encoded["personal"])), np.sort(wanted.predict(COLUMNS["name"]))
    )


def test_levels(foreign):
    table, column = foreign
    levels = {"kind": KIND, "group": GROUP}
    wanted = GroupLevels(structure="crossed").fit(COLUMNS["dose"], levels)
    found = GroupLevels(structure="crossed").fit(column("dose"), table("kind", "group"))
    np.testing.assert_array_equal(found.estimates_.personal, wanted.estimates_.personal)
    np.testing.assert_array_equal(found.predict(table("kind", "group")), wanted.predict(levels))


def test_the_answer_comes_back_as_a_table_of_the_same_library():
    table = arrow()
    found = GroupMeans().fit(table["value"], table["name"]).to_frame()
    assert isinstance(found, pa.Table)
    assert found["group"].to_pylist() == sorted({*COLUMNS["name"]})
    polars = pytest.importorskip("polars")
    narwhals = pytest.importorskip("narwhals")
    frame = narwhals.from_native(polars.from_arrow(table))
    found = GroupMeans().fit(frame["value"], frame["name"]).to_frame()
    assert isinstance(found, polars.DataFrame)


@pytest.mark.parametrize(
    ("cells", "kind", "message"),
    [
        (["a", "b"] * 8, pa.string(), "y must be numbers, got 'a'"),
        ([0] * 16, pa.timestamp("s"), "y must be numbers, got"),
        ([[1.0]] * 16, pa.list_(pa.float64()), "must be of numbers, text, dates or truth values"),
    ],
)
def test_values_that_are_no_numbers(cells, kind, message):
    with pytest.raises(TypeError, match=message):
        GroupMeans().fit(pa.array(cells, kind), np.arange(16) % 4)


def test_labels_of_several_columns_are_refused():
    table = arrow()
    with pytest.raises(ValueError, match="groups must be one column of labels"):
        GroupMeans().fit(table["value"], table.select(["group", "kind"]))


def test_labels_beyond_floats_keep_their_digits():
    label = np.array([2**63 + 1, 2**63 + 3], np.uint64)[np.arange(40) % 2]
    gaps = np.arange(40) == 7
    found = GroupMeans(noise_variance=1.0).fit(
        DRAWS.standard_normal(40), pa.array(label, mask=gaps)
    )
    assert found.groups_.tolist() == [2**63 + 1, 2**63 + 3]
    assert found.num_dropped_ == 1


WITHOUT_PYARROW = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
sys.meta_path.insert(0, Blocked())
import duckdb, numpy as np, fedprior
connection = duckdb.connect()
rows = connection.sql("SELECT 's' || (range % 5) AS g, range::DECIMAL(9, 2) AS v, "
                      "range % 3 = 0 AS y, range % 7 AS a FROM range(60)")
model = fedprior.GroupMeans().fit(rows.select("v"), rows.select("g"))
assert model.groups_.tolist() == ["s0", "s1", "s2", "s3", "s4"], model.groups_
assert fedprior.GroupMeans().fit(rows.select("v"), rows.select("g")).raw_.shape == (5,)
assert fedprior.GroupRates().fit(rows.select("y"), rows.select("g")).raw_.shape == (5,)
fedprior.PersonalRegression().fit(rows.select("a"), rows.select("v"), rows.select("g"))
clients = fedprior.data.from_frame(rows, client="g", label="y", features=["a", "v"])
assert clients.num_clients == 5
try:
    import polars
except ImportError:
    pass
else:
    frame = polars.DataFrame({"g": ["a", "b", None] * 9, "v": np.arange(27.0)})
    fedprior.GroupMeans().fit(frame["v"], frame["g"])
assert "pyarrow" not in sys.modules
connection.close()
"""


def test_nothing_of_it_needs_pyarrow():
    pytest.importorskip("duckdb")
    found = subprocess.run([sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
