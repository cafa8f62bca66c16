"""Counts of every category in every group of a table on disk."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from fedprior.core import check
from fedprior.data.aggregate import Groups, counted
from fedprior.data.cells import MISSING, key, label, spelled
from fedprior.data.scan import quoted, scan, unreadable

_MOST = 1_000  # categories; more are names, and a table of all groups by all of them is large


@contextmanager
def count_categories(
    path: str,
    *,
    group: Sequence[str],
    category: str,
    missing: Sequence[str] = MISSING,
    strict: bool = False,
) -> Iterator[Groups]:
    """One row for each group and each category, in the order of both names.

    `n` is the number of the group's rows, `successes` of those in the category, and `categories`
    its name. Rows without a group or a category are dropped and counted, or refused if `strict`.
    """
    import duckdb

    rule = "another column than those of groups"
    check.require(category not in group, "estimate", "--category", rule, category)
    source = scan(path, columns=[*group, category])
    try:
        named = key(source.types, group, missing)
        if len(group) == 1:
            named = spelled(named, source.types[group[0]])
        kind = source.types[category]
        kinds = spelled(label(quoted(category), kind, missing), kind)
        rows = source.run(
            f"SELECT {named} AS name, {kinds} AS kind, count(*) FROM source GROUP BY 1, 2"
        )
        yield _counted(source.path, rows, category, strict)
    except duckdb.Error as error:
        raise unreadable(source.path, error) from None
    finally:
        source.close()


def _counted(
    path: str, rows: list[tuple[str | None, str | None, int]], category: str, strict: bool
) -> Groups:
    total = sum(number for *_, number in rows)
    check.expect(total > 0, path, "the file has a header but no rows.")
    kept = [row for row in rows if row[0] is not None and row[1] is not None]
    used = sum(number for *_, number in kept)
    lost = f"{counted(total - used, 'row')} without a group or a category ({category!r})"
    missing = lost if used < total else ""
    check.require(not (missing and strict), path, "rows", "complete with --strict", missing)
    check.require(used > 0, path, "file", "a table with rows to use", missing)
    names, places = np.unique([str(row[0]) for row in kept], return_inverse=True)
    kinds, columns = np.unique([str(row[1]) for row in kept], return_inverse=True)
    remedy = "Categories are few; a column of names or numbers is none."
    fits = 2 <= len(kinds) <= _MOST
    rule = f"2 to {_MOST:,} different values"
    check.require(fits, path, f"column {category!r}", rule, f"{len(kinds):,}", remedy)
    table = np.zeros((len(names), len(kinds)), np.int64)
    table[places, columns] = [row[2] for row in kept]
    return Groups(
        n=np.repeat(table.sum(axis=1), len(kinds)),
        rows=used,
        successes=table.ravel(),
        dropped=total - used,
        notes=(f"Dropped {missing}.",) if missing else (),
        columns={category: f"`{category}`: {len(kinds):,} categories"},
        labels=np.repeat(names.astype(object), len(kinds)),
        categories=np.tile(kinds.astype(object), len(names)),
    )
