"""Partitions: labels or ids to a list of row-index arrays, one per client.

Every draw comes from `random.stream(seed, "partition", ...)`, or "split" for the parts of a
client, so a partition depends on the seed and on its arguments and on nothing else.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedprior.core import check, random

Rows = list[np.ndarray]  # row indices, one array a client

_DRAWS = 20  # Dirichlet draws before the last one is repaired by hand
_AGAIN = 1  # last entry of the path of a second draw from the same classes


def by_classes(
    y: np.ndarray,
    *,
    num_clients: int,
    classes_per_client: int,
    samples_per_client: int,
    seed: int,
) -> tuple[Rows, list[np.ndarray]]:
    """Client i draws C_i, `classes_per_client` classes, then its rows uniformly from C_i.

    Rows are drawn without replacement within a client and afresh for each client, so two clients
    may share a row. Returns the rows and the classes C_i; `of_classes` draws further rows, such as
    a test part, from the same classes.
    """
    owner = "by_classes"
    check.count(owner, num_clients=num_clients, samples_per_client=samples_per_client)
    known = np.unique(y)
    _check_classes(owner, classes_per_client, len(known))
    rows, classes = [], []
    for client in range(num_clients):
        draws = random.stream(check.seed(owner, seed), "partition", client)
        own = np.sort(draws.choice(known, classes_per_client, replace=False))
        rows.append(_draw(owner, draws, y, own, samples_per_client))
        classes.append(own)
    return rows, classes


def of_classes(
    y: np.ndarray, *, classes: Sequence[np.ndarray], samples_per_client: int, seed: int
) -> Rows:
    """Client i draws `samples_per_client` rows uniformly from its classes `classes[i]`."""
    owner = "of_classes"
    check.count(owner, samples_per_client=samples_per_client)
    seed = check.seed(owner, seed)
    return [
        _draw(owner, random.stream(seed, "partition", i, _AGAIN), y, own, samples_per_client)
        for i, own in enumerate(classes)
    ]


def set_aside(y: np.ndarray, *, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in two parts, both sorted: the second has `share` of every class, rounded up."""
    draws = random.stream(check.seed("set_aside", seed), "partition")
    aside = np.zeros(len(y), bool)
    for label in np.unique(y):
        rows = draws.permutation(np.flatnonzero(y == label))
        aside[rows[: math.ceil(share * len(rows))]] = True
    return np.flatnonzero(~aside), np.flatnonzero(aside)


def balanced_classes(
    num_classes: int, *, num_clients: int, classes_per_client: int, seed: int
) -> list[np.ndarray]:
    """Random class sets in which any two classes are held equally often, give or take one client.

    A client takes the classes that are held least so far, ties broken at random.
    """
    owner = "balanced_classes"
    check.count(owner, num_clients=num_clients)
    _check_classes(owner, classes_per_client, num_classes)
    draws = random.stream(check.seed(owner, seed), "partition")
    held = np.zeros(num_classes, int)
    sets = []
    for _ in range(num_clients):
        own = np.lexsort((draws.random(num_classes), held))[:classes_per_client]
        held[own] += 1
        sets.append(np.sort(own))
    return [sets[place] for place in draws.permutation(num_clients)]


def dirichlet(
    y: np.ndarray, *, num_clients: int, concentration: float, seed: int, min_samples: int = 1
) -> Rows:
    """Rows of class c go to the clients in shares p_c ~ Dirichlet(concentration, ...).

    Every row is used once. A draw that leaves a client below `min_samples` is drawn again, 20 times
    at most; then the largest clients give rows to the smallest ones.
    """
    owner = "dirichlet"
    check.count(owner, num_clients=num_clients)
    check.count(owner, least=0, min_samples=min_samples)
    check.positive(owner, concentration=concentration)
    check.require(
        num_clients * min_samples <= len(y),
        owner,
        "num_clients * min_samples",
        f"at most the {len(y)} rows",
        num_clients * min_samples,
        "Lower min_samples or the number of clients.",
    )
    draws = random.stream(check.seed(owner, seed), "partition")
    for _ in range(_DRAWS):
        rows = _dirichlet_draw(draws, y, num_clients, concentration)
        if min(map(len, rows)) >= min_samples:
            return rows
    return _repair(rows, min_samples)


def deal_classes(y: np.ndarray, *, classes: Sequence[np.ndarray], seed: int) -> Rows:
    """Rows of class c are dealt evenly among the clients i with c in `classes[i]`, each once.

    A row whose class nobody holds is left out.
    """
    owner = "deal_classes"
    draws = random.stream(check.seed(owner, seed), "partition", _AGAIN)
    parts: list[list[np.ndarray]] = [[] for _ in classes]
    for label in np.unique(y):
        holders = draws.permutation([i for i, own in enumerate(classes) if label in own])
        rows = draws.permutation(np.flatnonzero(y == label))
        if len(holders):
            for client, own in zip(holders, np.array_split(rows, len(holders)), strict=True):
                parts[client].append(own)
    _check_enough(owner, len(y), len(classes), min(sum(map(len, own)) for own in parts))
    return [np.concatenate(own) for own in parts]


def dirichlet_clients(y: np.ndarray, *, num_clients: int, concentration: float, seed: int) -> Rows:
    """Client i draws floor(n / m) rows, of classes in shares p_i ~ Dirichlet(concentration, ...).

    No row has two clients: where a class has no rows left, its share goes to the others in
    proportion, and the last to draw take what is left (Hsu, Qi and Brown 2019). `dirichlet` deals
    every class in shares instead, so its clients differ in size.
    """
    owner = "dirichlet_clients"
    check.count(owner, num_clients=num_clients)
    check.positive(owner, concentration=concentration)
    size = len(y) // num_clients
    _check_enough(owner, len(y), num_clients, size)
    draws = random.stream(check.seed(owner, seed), "partition")
    waiting = [draws.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    left = np.array([len(rows) for rows in waiting])
    groups = []
    for _ in range(num_clients):
        shares = draws.dirichlet(np.full(len(left), concentration))
        count = _counts(draws, shares, left, size)
        own = [
            rows[rest - taken : rest]
            for rows, rest, taken in zip(waiting, left, count, strict=True)
        ]
        groups.append(draws.permutation(np.concatenate(own)))
        left = left - count
    return [groups[place] for place in draws.permutation(num_clients)]


def natural(ids: np.ndarray) -> Rows:
    """One client an id, in the sorted order of the ids."""
    ids = np.asarray(ids)
    check.require(len(ids) > 0, "natural", "number of rows", "at least 1", len(ids))
    _, code, counts = np.unique(ids, return_inverse=True, return_counts=True)
    return np.split(np.argsort(code, kind="stable"), np.cumsum(counts)[:-1])


def grouped_natural(
    ids: np.ndarray, *, ids_per_client: int, seed: int, num_ids: int | None = None
) -> Rows:
    """Ids in random order, `ids_per_client` to a client; the last client may have fewer.

    With `num_ids`, only that many ids, drawn at random, take part.
    """
    owner = "grouped_natural"
    check.count(owner, ids_per_client=ids_per_client)
    groups = natural(ids)
    if num_ids is not None:
        check.count(owner, num_ids=num_ids)
        rule = f"at most the {len(groups)} ids"
        check.require(num_ids <= len(groups), owner, "num_ids", rule, num_ids)
    order = random.stream(check.seed(owner, seed), "partition").permutation(len(groups))[:num_ids]
    return [
        np.concatenate([groups[place] for place in order[first : first + ids_per_client]])
        for first in range(0, len(order), ids_per_client)
    ]


def check_shares(owner: str, valid_share: float, test_share: float) -> None:
    """Each share lies in [0, 1), and so does their sum: training keeps something."""
    check.share(owner, valid_share=valid_share, test_share=test_share)
    total = valid_share + test_share
    check.require(total < 1, owner, "valid_share + test_share", "in [0, 1)", total)


def split(
    groups: Rows, valid_share: float, test_share: float, *, seed: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(train, valid, test) rows of each client."""
    return [
        split_rows(rows, valid_share, test_share, seed=seed, client=client)
        for client, rows in enumerate(groups)
    ]


def split_rows(
    rows: np.ndarray, valid_share: float, test_share: float, *, seed: int, client: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(train, valid, test) rows of one client, at random; training keeps at least one."""
    rows = random.stream(seed, "split", client).permutation(rows)
    spare = len(rows) - 1
    num_test = min(round(test_share * len(rows)), spare)
    num_valid = min(round(valid_share * len(rows)), spare - num_test)
    return rows[num_test + num_valid :], rows[num_test : num_test + num_valid], rows[:num_test]


def _check_classes(owner: str, classes_per_client: int, num_classes: int) -> None:
    check.count(owner, classes_per_client=classes_per_client)
    check.require(
        classes_per_client <= num_classes,
        owner,
        "classes_per_client",
        f"at most the {num_classes} classes",
        classes_per_client,
    )


def _draw(
    owner: str, draws: np.random.Generator, y: np.ndarray, classes: np.ndarray, count: int
) -> np.ndarray:
    """`count` distinct rows whose label is in `classes`."""
    eligible = np.flatnonzero(np.isin(y, classes))
    check.require(
        count <= len(eligible),
        owner,
        "samples_per_client",
        f"at most the {len(eligible)} rows of the client's classes",
        count,
    )
    return draws.choice(eligible, count, replace=False)


def _dirichlet_draw(
    draws: np.random.Generator, y: np.ndarray, num_clients: int, concentration: float
) -> Rows:
    parts: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
    for label in np.unique(y):
        rows = draws.permutation(np.flatnonzero(y == label))
        shares = draws.dirichlet(np.full(num_clients, concentration))
        if not np.isfinite(shares).all():  # underflow at a tiny concentration: its limit is one-hot
            shares = np.eye(num_clients)[draws.integers(num_clients)]
        cuts = np.minimum(np.rint(np.cumsum(shares)[:-1] * len(rows)), len(rows)).astype(int)
        for client, own in enumerate(np.split(rows, cuts)):
            parts[client].append(own)
    return [draws.permutation(np.concatenate(own)) for own in parts]


def _counts(
    draws: np.random.Generator, shares: np.ndarray, left: np.ndarray, size: int
) -> np.ndarray:
    """How many of `size` rows are of each class; those drawn beyond what is left are redrawn."""
    count = np.zeros(len(left), int)
    while count.sum() < size:
        weight = np.where(count < left, shares, 0)
        if not (np.isfinite(weight).all() and weight.sum() > 0):  # underflow of tiny shares
            weight = (left - count).astype(float)
        drawn = draws.multinomial(size - count.sum(), weight / weight.sum())
        count = np.minimum(count + drawn, left)
    return count


def _check_enough(owner: str, num_rows: int, num_clients: int, smallest: int) -> None:
    rule = f"small enough for each client to get one of the {num_rows} rows"
    check.require(smallest > 0, owner, "num_clients", rule, num_clients)


def _repair(rows: Rows, min_samples: int) -> Rows:
    """The smallest client takes what it lacks from the largest, until all have `min_samples`.

    Each pass either fills one client for good or brings a giver down to `min_samples`, so there
    are at most twice as many passes as clients.
    """
    rows = list(rows)
    size = np.array([len(own) for own in rows])
    while size.min() < min_samples:
        taker, giver = int(size.argmin()), int(size.argmax())
        moved = min(min_samples - size[taker], size[giver] - min_samples)
        rows[taker] = np.concatenate([rows[taker], rows[giver][:moved]])
        rows[giver] = rows[giver][moved:]
        size[taker] += moved
        size[giver] -= moved
    return rows
