"""Groups of similar size as one array, padded with rows of zeros."""

from collections.abc import Iterator
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
