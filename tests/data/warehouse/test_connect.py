"""Addresses of databases: where they come from, and that no secret is ever shown."""

import os
import sys

import pytest

from fedprior.data.warehouse.connect import VARIABLE, address, connect, find_address

SECRET = "opensesame"


def test_the_environment_and_a_file_hold_the_address(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ValueError, match="--table needs --connect, --connect-file or the variable"):
        find_address("estimate", None, None)
    monkeypatch.setenv(VARIABLE, f"postgres://me:{SECRET}@host/shop")
    found = find_address("estimate", None, None)
    assert found.shown == "postgres://me@host/shop"
    assert SECRET in found.url
    file = tmp_path / "url"
    file.write_text(f"# ours\npostgres://you:{SECRET}@host:5433/shop?sslmode=require\n")
    file.chmod(0o600)
    assert find_address("estimate", None, file).shown == "postgres://you@host:5433/shop"
    assert find_address("estimate", "duckdb:///x.duckdb", None).shown == "duckdb:///x.duckdb"
    with pytest.raises(ValueError, match="cannot be combined"):
        find_address("estimate", "duckdb:///x", file)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions as POSIX has them")
def test_a_file_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "url"
    file.write_text(f"postgres://me:{SECRET}@host/shop")
    file.chmod(0o644)
    with pytest.raises(
        ValueError, match=r"readable by you alone, got 'mode 644'. chmod 600"
    ) as said:
        find_address("estimate", None, file)
    assert SECRET not in str(said.value)
    with pytest.raises(ValueError, match="No such file"):
        find_address("estimate", None, tmp_path / "none")


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://me:{SECRET}@host/shop",
        f"postgresql://host/shop?user=me&password={SECRET}",
        f"postgresql://host/shop?sslpassword={SECRET}",
        f"mysql://me:{SECRET}@host/shop",
        f"postgres://me:%6fpen{SECRET}@host/shop",
    ],
)
def test_a_password_on_the_command_line_is_refused(url):
    with pytest.raises(ValueError, match="--connect has a password, which others on this") as said:
        find_address("estimate", url, None)
    assert SECRET not in str(said.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://me:{SECRET}/x@host/shop",  # a slash in the password
        f"postgres://me:{SECRET}#x@host/shop",
        f"me:{SECRET}@host/shop",
        f"host=x password={SECRET}",
        f"postgres://me:{SECRET}@host:port/shop",
        f"postgres://[me:{SECRET}@host/shop",
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(url, monkeypatch):
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(ValueError, match=f"{VARIABLE} must be a URL") as said:
        find_address("estimate", None, None)
    assert SECRET not in str(said.value)


def test_errors_hide_secrets():
    found = address("estimate", "x", f"postgres://me:p%40ss{SECRET}@host/shop")
    told = found.hide(f"bad {found.url}: p@ss{SECRET}, p%40ss{SECRET}")
    assert told == "bad postgres://me@host/shop: ***, ***"


def test_connecting_says_what_failed_in_one_line(tmp_path):
    pytest.importorskip("ibis", reason="needs fedprior[warehouse]")
    with pytest.raises(ValueError, match=r"--connect must be a DuckDB file, got '.*none.duckdb'"):
        connect("estimate", address("estimate", "x", f"duckdb://{tmp_path}/none.duckdb"))
    url = f"postgres://me:{SECRET}@/shop?host={tmp_path}"
    with pytest.raises(ValueError, match="cannot connect to postgres://me@/shop: ") as said:
        connect("estimate", address("estimate", "x", url))
    assert SECRET not in str(said.value)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "url",
    [
        f"snowflake://me@host/shop?token={SECRET}",
        f"postgresql://host/shop?pass%77ord={SECRET}",
        f"duckdb:///nowhere.duckdb?motherduck_token={SECRET}",
    ],
)
def test_tokens_are_secrets_too(url, monkeypatch):
    with pytest.raises(ValueError, match="--connect has a password") as said:
        find_address("estimate", url, None)
    assert SECRET not in str(said.value)
    monkeypatch.setenv(VARIABLE, url)
    found = find_address("estimate", None, None)
    assert SECRET not in found.shown
    pytest.importorskip("ibis", reason="needs fedprior[warehouse]")
    with pytest.raises(ValueError, match="estimate: ") as said:
        connect("estimate", found)
    assert SECRET not in str(said.value)


def test_a_missing_driver_is_one_line_with_the_remedy(monkeypatch):
    pytest.importorskip("ibis", reason="needs fedprior[warehouse]")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    found = address("estimate", VARIABLE, "postgres://me@host/shop")
    with pytest.raises(ValueError, match=r"psycopg is missing\). pip install 'fedprior\[warehouse"):
        connect("estimate", found)
