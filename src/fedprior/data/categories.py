"""Counts of every category in every group of a table on disk."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from fedprior.core import check
from fedprior.data.aggregate import Groups, counted, missing_word
from fedprior.data.cells import MISSING, key, label, spelled
from fedprior.data.scan import Scan, quoted, scan, unreadable

_MOST = 1_000  # categories; more are names
_MOST_CELLS = 50_000_000  # groups x categories: about 4 GB with estimates and intervals


@contextmanager
def count_categories(
    path: str,
    *,
    group: Sequence[str],
    category: str,
    missing: Sequence[str] = MISSING,
    strict: bool = False,
) -> Iterator[Groups]:
    """One row for each group and each category; groups and categories are in order.

    `n` is the number of the group's rows, `successes` of those in the category, and `categories`
    its name. Rows without a group or a category are dropped and counted, or refused if `strict`.
    """
    import duckdb

    rule = "another column than those of groups"
    check.require(category not in group, "estimate", "--category", rule, category)
    source = scan(path, columns=[*group, category])
    try:
        kind = source.types[category]
        name, word = key(source.types, group, missing), label(quoted(category), kind, missing)
        source.run(
            f"CREATE TEMP TABLE cells AS SELECT {name} AS name, {word} AS kind, count(*) AS number "
            "FROM source GROUP BY 1, 2"
        )
        named = {**dict.fromkeys(group, name), category: word}
        yield _counted(source, named, strict)
    except duckdb.Error as error:
        raise unreadable(source.path, error) from None
    finally:
        source.close()


def _counted(source: Scan, named: dict[str, str], strict: bool) -> Groups:
    """The groups of the table `cells`; `named` is SQL, NULL where a column is missing."""
    path, (*group, category) = source.path, named
    total, unnamed, used = source.run(
        "SELECT sum(number), sum(number) FILTER (WHERE name IS NULL), "
        "sum(number) FILTER (WHERE name IS NOT NULL AND kind IS NOT NULL) FROM cells"
    )[0]
    total, unnamed, used = (int(each or 0) for each in (total, unnamed, used))
    check.expect(total > 0, path, "the file has a header but no rows.")
    lost = {"a group": unnamed, "a category": total - used - unnamed}
    columns = {"a group": group, "a category": [category]}
    missing = " and ".join(
        f"{counted(number, 'row')} without {what} ({_listed(source, columns[what], named)})"
        for what, number in lost.items()
        if number
    )
    check.require(not (missing and strict), path, "rows", "complete with --strict", missing)
    check.require(used > 0, path, "file", "a table with rows to use", missing)
    source.run("DELETE FROM cells WHERE name IS NULL OR kind IS NULL")
    kinds, order = _kinds(source, category)
    names, table = _table(source, len(kinds))
    return Groups(
        n=np.repeat(table.sum(axis=1), len(kinds)),
        rows=used,
        successes=table[:, order].ravel(),
        dropped=total - used,
        notes=(f"Dropped {missing}.",) if missing else (),
        columns={category: f"`{category}`: {len(kinds):,} categories"},
        labels=np.repeat(names, len(kinds)),
        categories=np.tile(kinds[order], len(names)),
    )


def _listed(source: Scan, columns: Sequence[str], named: dict[str, str]) -> str:
    """The columns and, if there is one, a word in it that was taken for missing."""
    alone = len(columns) == 1
    word = missing_word(source, "source", quoted(columns[0]), named[columns[0]]) if alone else ""
    return " or ".join(map(repr, columns)) + word


def _kinds(source: Scan, category: str) -> tuple[np.ndarray, np.ndarray]:
    """The categories by name, and their order: that of numbers where all of them are."""
    text = spelled("kind", source.types[category])
    query = f"SELECT {text} FROM (SELECT DISTINCT kind FROM cells) ORDER BY kind"
    kinds = np.array([row[0] for row in source.run(query)], object)
    remedy = "Categories are few; a column of names or numbers is none."
    fits, rule = 2 <= len(kinds) <= _MOST, f"2 to {_MOST:,} different values"
    owner, what = source.path, f"column {category!r}"
    check.require(fits, owner, what, rule, f"{len(kinds):,}", remedy)
    try:
        return kinds, np.argsort(kinds.astype(np.float64), kind="stable")
    except ValueError:
        return kinds, np.arange(len(kinds))


def _table(source: Scan, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The groups' names in order, and the count of each category in each of them."""
    query = "SELECT DISTINCT name FROM cells ORDER BY name"
    names = np.ma.getdata(source.connection.execute(query).fetchnumpy()["name"])
    if names.dtype.kind == "f" and bool((names == np.rint(names)).all()):
        names = names.astype(np.int64)  # 3.0 is called 3
    rule, size = f"at most {_MOST_CELLS:,}", len(names) * width
    owner, what = source.path, "number of groups times categories"
    check.require(size <= _MOST_CELLS, owner, what, rule, f"{size:,}", "Take fewer categories.")
    cells = source.connection.execute(
        "SELECT dense_rank() OVER (ORDER BY name) - 1 AS place, "
        "dense_rank() OVER (ORDER BY kind) - 1 AS kind, number FROM cells"
    ).fetchnumpy()
    table = np.zeros((len(names), width), np.int64)
    table[cells["place"], cells["kind"]] = cells["number"]
    return names, table
