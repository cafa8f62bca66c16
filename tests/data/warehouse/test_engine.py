"""Engines move tables: whole or not at all, without missing values, with names as they are."""

import sys

import numpy as np
import pytest

from fedprior.data.warehouse.connect import address as address_of
from fedprior.data.warehouse.connect import connect
from fedprior.data.warehouse.engine import engine_of, narwhals, wrap
from fedprior.data.warehouse.tables import identifier, transaction
from servers import PASSWORD

nw = pytest.importorskip("narwhals", reason="needs fedprior[warehouse]")
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


@pytest.fixture(params=["duckdb", "postgres"])
def backend(request, monkeypatch):
    ibis = pytest.importorskip("ibis", reason="needs fedprior[warehouse]")
    if request.param == "duckdb":
        found = ibis.duckdb.connect()
    else:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        url = request.getfixturevalue("postgres")
        found = connect("test", address_of("test", "--connect", url))
    yield found
    found.disconnect()


def test_a_table_is_replaced_whole_or_not_at_all(backend):
    backend.con.execute("CREATE TEMP TABLE kept AS SELECT 1 AS one")

    def replaced():
        with transaction(backend) as run:
            run("DROP TABLE kept")
            run("CREATE TABLE kept AS SELECT nonsense")

    with pytest.raises(Exception, match="nonsense"):
        replaced()
    assert backend.con.execute("SELECT one FROM kept").fetchall() == [(1,)]


def test_lookups_come_back_as_they_were(backend):
    backend.con.execute("CREATE TEMP TABLE few AS SELECT 1 AS one")
    engine = engine_of("test", backend.table("few"))
    columns = {
        "whole": np.array([0, -5, 2**53]),
        "real": np.array([0.1, 1e-300, -1.7e308]),
        "word": np.array(["a b", "tab\there", 'quote"s'], object),
    }
    found = engine.read(engine.upload(columns).sort("whole"))
    order = np.argsort(columns["whole"])
    for name, values in columns.items():
        assert found[name].tolist() == values[order].tolist()


def test_names_of_tables_are_quoted(backend):
    backend.con.execute("CREATE TEMP TABLE few AS SELECT 1 AS one")
    frame = backend.table("few")
    name = 'odd "name'
    engine_of("test", frame).write(wrap("test", frame), name)
    try:
        found = backend.con.execute(f"SELECT one FROM {identifier(name)}").fetchall()
        assert found == [(1,)]
    finally:
        backend.con.execute(f"DROP TABLE {identifier(name)}")


def test_what_is_not_installed_says_how_to(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(ValueError, match=r"need narwhals. pip install 'fedprior\[spark\]'"):
        narwhals("GroupRates", "spark")
    monkeypatch.setitem(sys.modules, "ibis", None)
    with pytest.raises(ValueError, match=r"ibis is missing.. pip install 'fedprior\[warehouse\]'"):
        connect("estimate", address_of("estimate", "--connect", "postgres://host/shop"))


def test_a_sample_is_a_share_of_the_rows(backend):
    backend.con.execute("CREATE TEMP TABLE few AS SELECT 1 AS one")
    engine = engine_of("test", backend.table("few"))
    number = np.arange(1200)
    columns = {"number": number, "few": number % 40, "many": number // 40}
    frame = engine.upload(columns | {"word": np.array([f"w{i}" for i in number], object)})
    for keys in (["number"], ["word"], ["few", "many"]):
        found = [engine.read(engine.thin(frame, keys, 3))["number"] for _ in range(2)]
        assert sorted(found[0]) == sorted(found[1])
        assert 300 <= len(found[0]) <= 500  # 400 expected, standard deviation 16
