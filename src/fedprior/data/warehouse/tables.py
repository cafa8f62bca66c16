"""Tables of databases by SQL: names, temporary tables, statements that take effect together."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedprior.core import check

ANOTHER = "another table than the one that is read"
ANSWERS = "new, or a table of earlier answers with the same columns"
_LONGEST = 63  # bytes of a name in PostgreSQL, which cuts longer ones: to the name of another table


@contextmanager
def transaction(backend: Any) -> Iterator[Any]:
    """Statements that take effect together or not at all; gives the function that runs one."""
    connection = backend.con
    connection.execute("BEGIN")
    try:
        yield connection.execute
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def identifier(table: str) -> str:
    """A table's name as SQL, with its schema before a point.

    >>> identifier('sales.shops')
    '"sales"."shops"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def check_name(backend: Any, table: str) -> None:
    """Raise for a name that the database would cut."""
    fits = all(len(part.encode()) <= _LONGEST for part in table.split("."))
    rule = f"a name of at most {_LONGEST} bytes"
    check.require(fits or backend.name != "postgres", "PostgreSQL", "table", rule, table)


def drop(backend: Any, run: Any, table: str, *, keeping: Any) -> None:
    """Drop a table, unless the rows of the expression `keeping` go with it.

    Names do not show it: one table has several, by its schema, its case or a view on it.
    """
    probe = backend.compile(keeping.limit(0))
    run(f"DROP TABLE IF EXISTS {identifier(table)}")
    try:
        run(probe)
    except Exception:
        raise ValueError(check.message(backend.name, "table", ANOTHER, table)) from None


def kept(backend: Any, native: Any) -> Any:
    """A temporary table of an expression.

    Ibis creates it empty and inserts, which PostgreSQL never does in parallel.
    """
    name = new_name()
    if backend.name != "postgres":
        return backend.create_table(name, native, temp=True)
    backend.con.execute(f"CREATE TEMP TABLE {name} AS {backend.compile(native)}")
    backend.con.execute(f"ANALYZE {name}")  # or joins are planned as if it were small
    return backend.table(name)


def copied(backend: Any, table: Any) -> Any:
    """A temporary table of PostgreSQL, filled by COPY."""
    import ibis

    name = new_name()
    schema = ibis.Schema.from_pyarrow(table.schema)
    made = backend.create_table(name, schema=schema, temp=True)
    columns = [each.to_pylist() for each in table.columns]
    with (
        backend.con.cursor() as cursor,
        cursor.copy(f"COPY {identifier(name)} FROM STDIN") as copy,
    ):
        for row in zip(*columns, strict=True):
            copy.write_row(row)
    backend.raw_sql(f"ANALYZE {identifier(name)}").close()
    return made


def new_name() -> str:
    """A name that no other table has."""
    return f"fedprior_{uuid.uuid4().hex[:16]}"
