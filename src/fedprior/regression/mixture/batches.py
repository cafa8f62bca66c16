"""Groups of similar size as one array, padded with rows of zeros."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedprior.regression.rows import GroupedRows

_CELLS = 1 << 18  # numbers in one batch: 2 MB, so that a few copies fit in the cache


class Padded(NamedTuple):
    """`table` (g, width, d + p + 1) holds [x, fixed, y] of `groups`, zeros from row `sizes` on."""

    groups: np.ndarray  # (g,)
    sizes: np.ndarray  # (g,)
    table: np.ndarray


def padded(rows: GroupedRows, *, copies: int = 1) -> Iterator[Padded]:
    """Yield all groups with rows in padded batches; a row of zeros is not informative on theta.

    The widths are 1, 2, 3, 4, 6, 8, 12, ..., so that at most a third of a batch is padding. Each
    number of the table will be stored `copies` times by the caller.
    """
    table = np.concatenate([rows.x, rows.fixed, rows.y[:, None]], axis=1)
    most = int(rows.sizes.max(initial=0))
    widths = [1]
    while widths[-1] < most:
        step = 2 ** (len(widths) // 2)
        widths.append(2 * step if len(widths) % 2 else 3 * step)
    group_width = np.searchsorted(widths, rows.sizes)
    for place, width in enumerate(widths):
        chosen = np.flatnonzero((group_width == place) & (rows.sizes > 0))
        width = int(rows.sizes[chosen].max(initial=0))
        step = max(1, _CELLS // (max(width, 1) * table.shape[1] * copies))
        for begin in range(0, len(chosen), step):
            groups = chosen[begin : begin + step]
            sizes = rows.sizes[groups]
            there = np.arange(width) < sizes[:, None]
            taken = np.where(there, rows.start[groups][:, None] + np.arange(width), 0)
            yield Padded(groups, sizes, table[taken] * there[:, :, None])


def merged(tables: Sequence[Padded]) -> list[Padded]:
    """One batch if all groups are few enough for it, else the batches as they are."""
    width = max((each.table.shape[1] for each in tables), default=0)
    cells = sum(len(each.groups) for each in tables) * width * tables[0].table.shape[2]
    if len(tables) == 1 or cells > _CELLS:
        return list(tables)
    wide = [
        np.pad(each.table, ((0, 0), (0, width - each.table.shape[1]), (0, 0))) for each in tables
    ]
    groups, sizes, _ = zip(*tables, strict=True)
    return [Padded(np.concatenate(groups), np.concatenate(sizes), np.concatenate(wide))]
