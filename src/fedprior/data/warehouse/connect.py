"""Connections by URL; passwords come from the environment or a file, and are never shown.

PostgreSQL reads PGPASSWORD, PGSERVICE and ~/.pgpass itself. A command line can be listed by others
on the machine, so a password in it is refused.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from fedprior.core import check

VARIABLE = "FEDPRIOR_CONNECT"
_POSTGRES = ("postgres", "postgresql")
_HIDDEN = "***"
_SECRET = ("pass", "pwd", "token", "secret", "credential", "private_key", "api_key", "access_key")
_ELSEWHERE = (
    f"Put the URL into the variable {VARIABLE} or a file (--connect-file), or the password into "
    "PGPASSWORD or ~/.pgpass."
)


class Address(NamedTuple):
    """A URL and what of it may be shown."""

    url: str
    scheme: str
    shown: str
    secrets: tuple[str, ...]

    def hide(self, text: str) -> str:
        """The text without the URL and the secrets in it."""
        for word in sorted({self.url, *self.secrets}, key=len, reverse=True):
            text = text.replace(word, self.shown if word == self.url else _HIDDEN)
        return text


def find_address(owner: str, connect: str | None, file: Path | None) -> Address:
    """The address by --connect, --connect-file or the environment, in this order."""
    both = connect is not None and file is not None
    check.expect(not both, owner, "--connect and --connect-file cannot be combined.")
    if connect is not None:
        found = address(owner, "--connect", connect)
        sentence = f"--connect has a password, which others on this machine can list. {_ELSEWHERE}"
        check.expect(not found.secrets, owner, sentence)
        return found
    if file is not None:
        return address(owner, "--connect-file", _read(owner, file))
    url = os.environ.get(VARIABLE, "")
    sentence = f"--table needs --connect, --connect-file or the variable {VARIABLE}."
    check.expect(bool(url), owner, sentence)
    return address(owner, VARIABLE, url)


def address(owner: str, option: str, url: str) -> Address:
    """The parts of a URL; one that cannot be read is not repeated in the error."""
    url = url.strip()
    rule = "a URL such as postgres://user@host/database or duckdb:///file.duckdb"
    scheme, mark, rest = url.partition("://")
    sentence = f"{option} must be {rule}."
    check.expect(bool(mark) and scheme.isidentifier(), owner, sentence)
    if scheme == "duckdb" and "?" not in rest:
        return Address(url, scheme, url, ())
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 -- raises where it is no number
    except ValueError:
        parts = None
    stray = parts is None or "@" in parts.path or "#" in rest
    sentence = (
        f"{option} must be {rule}; characters such as / @ # of a user or password are written as "
        "%2F, %40, %23."
    )
    if parts is None or stray:
        raise ValueError(f"{owner}: {sentence}")
    asked = [part.partition("=") for part in parts.query.split("&")]
    words = [
        value for key, _, value in asked if any(each in unquote(key).lower() for each in _SECRET)
    ]
    secrets = {each for word in (parts.password, *words) if word for each in (word, unquote(word))}
    user = f"{parts.username}@" if parts.username else ""
    place = parts.netloc.rpartition("@")[2]
    return Address(url, scheme, f"{scheme}://{user}{place}{parts.path}", tuple(sorted(secrets)))


def connect(owner: str, found: Address) -> Any:
    """The Ibis backend at an address; errors are one line without secrets."""
    try:
        import ibis

        if found.scheme in _POSTGRES:
            import psycopg
    except ImportError as error:
        raise not_installed(owner, error) from None
    try:
        if found.scheme in _POSTGRES:
            link = psycopg.connect(found.url, autocommit=True, fallback_application_name="fedprior")
            return ibis.postgres.from_connection(link)
        if found.scheme == "duckdb":
            path = found.url.partition("://")[2]
            check.require(
                Path(path).is_file(), owner, "--connect", "a DuckDB file", found.hide(path)
            )
            return ibis.duckdb.connect(path)
        return ibis.connect(found.url)
    except ImportError as error:
        raise not_installed(owner, error) from None
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(f"{owner}: "):
            raise
        raise ValueError(
            f"{owner}: cannot connect to {found.shown}: {reason(found, error)}"
        ) from None


def not_installed(owner: str, error: ImportError) -> ValueError:
    """One line that names the missing package, and how to install it."""
    name = error.name or "a package"
    return ValueError(
        f"{owner}: databases need Ibis and its drivers ({name} is missing). "
        "pip install 'fedprior[warehouse]'"
    )


def reason(found: Address, error: BaseException) -> str:
    """The first line of an engine's error, without secrets."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return found.hide(lines[0])


def find_table(owner: str, backend: Any, table: str, found: Address) -> Any:
    """The table of this name, with its schema before a point."""
    native = table_or_none(backend, table)
    rule = f"a table in {found.shown}"
    check.require(native is not None, owner, "--table", rule, table)
    return native


def table_or_none(backend: Any, table: str) -> Any:
    """The table, or None where there is no such table."""
    from ibis.common.exceptions import TableNotFound

    schema, _, name = table.rpartition(".")
    try:
        return backend.table(name, database=schema or None)
    except TableNotFound:
        return None


def _read(owner: str, file: Path) -> str:
    """The URL in a file that nobody else can read."""
    try:
        mode, text = file.stat().st_mode, file.read_text()
    except OSError as error:
        raise ValueError(f"{owner}: --connect-file {file}: {error.strerror}.") from None
    remedy = f"chmod 600 {file}"
    private = os.name != "posix" or not mode & 0o077
    check.require(
        private, owner, "--connect-file", "readable by you alone", f"mode {mode & 0o777:o}", remedy
    )
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    sentence = f"--connect-file {file} must hold one line, the URL."
    check.expect(len(lines) == 1, owner, sentence)
    return lines[0]
