"""Predictions for many clients at once: each row by its client's own model, in padded batches."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import random, tree
from fedprior.core.algorithm import Algorithm, Array, State, Theta
from fedprior.data.federation import ClientData
from fedprior.engines.evaluate import personalize, rows_at_once
from fedprior.exchange.agreement import Rules

Progress = Callable[[int, int], Any]  # rows predicted, of all

_WIDEST = 256  # rows of one client in a batch; a client with more is predicted in several blocks
_MODEL_BYTES = 2**27  # of the clients' models that are in memory at a time
_POPULATION = 2**31 - 1  # keys the draws of the population's model; no client has it


@dataclass(frozen=True)
class Personalizer:
    """Predicts with `read(numbers)`, the models of `known` clients, and makes those of others."""

    algorithm: Algorithm
    state: State
    seed: int
    known: Mapping[str, int]  # name -> number
    read: Callable[[np.ndarray], Theta]

    def predict(
        self, x: np.ndarray, y: np.ndarray, names: np.ndarray, *, progress: Progress | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(outputs, whose) of each row: logits or values, and whose model gave them.

        `own`: that of a known client. `newcomer`: a new client's, personalized on its labeled rows
        (a label of -1 or NaN is missing). `population`: of a new client without any, or without a
        name.
        """
        clients, code = np.unique(names.astype(str), return_inverse=True)
        rows = _Rows(x, y, code)
        own = np.array([name in self.known for name in clients])
        new = ~own & (rows.num_labeled > 0) & (clients != "")
        self._check_known(clients[~own])
        whose = np.where(own, "own", np.where(new, "newcomer", "population")).astype(object)
        outputs, done = None, 0
        for group, thetas in self._models(clients, rows, own, new):
            for chosen, batch, place in rows.batches(group, self._most):
                models = jax.tree.map(lambda leaf: leaf[place % len(leaf)], thetas)  # noqa: B023
                found = np.asarray(_predict(models, batch, algorithm=self.algorithm))
                if outputs is None:
                    outputs = np.empty((len(x), *found.shape[2:]), found.dtype)
                outputs[chosen[chosen >= 0]] = found[: len(chosen)][chosen >= 0]
                done += int((chosen >= 0).sum())
                if progress:
                    progress(done, len(x))
        assert outputs is not None
        return outputs, whose[code]

    def _models(
        self, clients: np.ndarray, rows: "_Rows", own: np.ndarray, new: np.ndarray
    ) -> Iterator[tuple[np.ndarray, Theta]]:
        """Groups of clients with their models, as many at a time as memory shall hold."""
        for group in _chunks(np.flatnonzero(own), rows.size, self._most):
            yield group, self.read(np.array([self.known[str(name)] for name in clients[group]]))
        for group in _chunks(np.flatnonzero(new), rows.num_labeled, self._most):
            yield group, self._newcomers(clients[group], *rows.labeled_of(group))
        rest = np.flatnonzero(~own & ~new)
        if len(rest):  # one model for all of them
            nothing = np.zeros((1, 1), int)
            x, y = rows.x[nothing], np.zeros((1, 1), rows.y.dtype)
            yield rest, self._personal(x, y, np.zeros(1, np.int32), [_POPULATION])

    def _newcomers(
        self, clients: np.ndarray, x: np.ndarray, y: np.ndarray, size: np.ndarray
    ) -> Theta:
        ids = [newcomer_id(str(name)) for name in clients]
        return self._personal(x, y, size, [*ids, *[_POPULATION] * (len(x) - len(ids))])

    def _personal(self, x: np.ndarray, y: np.ndarray, size: np.ndarray, ids: list[int]) -> Theta:
        """Models of clients that never took part, from the state and their padded rows."""
        number, width = x.shape[:2]
        zero, places = np.zeros(number, np.int32), np.arange(width, dtype=np.int32)
        memory = jax.eval_shape(
            lambda: self.algorithm.enroll(self.state, np.int32(0), random.root(0))
        )
        return _personalize(
            self.state,
            jax.tree.map(lambda leaf: np.zeros((number, *leaf.shape), leaf.dtype), memory),
            np.zeros(number, bool),
            ClientData(x, y, zero, size, places),
            np.array(ids, np.int32),
            random.root(self.seed),
            rules=Rules(self.algorithm, Identity(), 1.0),  # what a channel does is of no use here
            pooled=False,
        )

    def _check_known(self, others: np.ndarray) -> None:
        if len(others) and self.algorithm.num_clients is not None:
            raise ValueError(
                f"personalize: {self.algorithm.name} couples the clients of its run and has no "
                f"model for others, got {str(others[0])!r}. Choose another method of the run."
            )

    @cached_property
    def _most(self) -> int:
        """Models in memory at a time; one has about the size of the state."""
        return max(1, _MODEL_BYTES // max(1, tree.nbytes(self.state)))


class _Rows:
    """Rows in the order of their clients, whose codes are 0, 1, ..."""

    def __init__(self, x: np.ndarray, y: np.ndarray, code: np.ndarray) -> None:
        self.x, self.y = x, y
        self.order = np.argsort(code, kind="stable")
        self.size = np.bincount(code)
        self.start = np.cumsum(self.size) - self.size
        self.labeled = ~np.isnan(y) if y.dtype.kind == "f" else y >= 0
        self.num_labeled = np.bincount(code, weights=self.labeled).astype(int)

    def batches(
        self, group: np.ndarray, most: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(row numbers, inputs, places in `group`) of blocks of one client's rows each.

        Row numbers are (blocks, width), -1 where a block is padded; blocks of no row fill a batch
        up, so that few shapes are compiled.
        """
        number = -(-self.size[group] // _WIDEST)
        place = np.repeat(np.arange(len(group)), number)
        within = np.arange(len(place)) - np.repeat(np.cumsum(number) - number, number)
        first = self.start[group][place] + _WIDEST * within
        count = np.minimum(self.size[group][place] - _WIDEST * within, _WIDEST)
        widths = _rounded(count)
        for width in np.unique(widths).tolist():
            blocks = np.flatnonzero(widths == width)
            longest = min(most, max(1, rows_at_once() // width))
            for begin in range(0, len(blocks), longest):
                own = blocks[begin : begin + longest]
                length = min(longest, int(_rounded(len(own))))
                filled = np.concatenate([own, np.full(length - len(own), own[0])])
                column = np.arange(width)
                inside = column < count[filled][:, None]
                rows = self.order[first[filled][:, None] + np.where(inside, column, 0)]
                yield np.where(inside, rows, -1)[: len(own)], self.x[rows], place[filled]

    def labeled_of(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x, y, size) of the labeled rows of a group of clients, padded to few shapes."""
        size = self.num_labeled[group]
        length, width = int(_rounded(len(group))), int(_rounded(size).max())
        rows = np.zeros((length, width), int)
        for place, client in enumerate(group):
            begin = self.start[client]
            own = self.order[begin : begin + self.size[client]]
            rows[place, : size[place]] = own[self.labeled[own]]
            rows[place, size[place] :] = rows[place, size[place] - 1]
        padded = np.concatenate([size, np.zeros(length - len(size), int)]).astype(np.int32)
        y = np.where(self.labeled, self.y, 0).astype(self.y.dtype)
        return self.x[rows], y[rows], padded


def newcomer_id(name: str) -> int:
    """The number that keys a new client's draws: its own, whoever else is in the table."""
    return 2**30 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") % 2**30


def _chunks(clients: np.ndarray, count: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Clients with about as many rows each, at most `most` and a bounded number of rows at once."""
    widths = _rounded(count[clients])
    for width in np.unique(widths).tolist():
        own, length = clients[widths == width], min(most, max(1, rows_at_once() // width))
        yield from (own[first : first + length] for first in range(0, len(own), length))


def _rounded(count: Any) -> np.ndarray:
    """The next power of 4: few shapes to compile, at most four times the work."""
    return 4 ** np.ceil(np.log2(np.maximum(count, 1)) / 2).astype(int)


def _forward(thetas: Theta, x: Array, *, algorithm: Algorithm) -> Array:
    return jax.vmap(algorithm.predict)(thetas, x)


_predict = jax.jit(_forward, static_argnames="algorithm")
_personalize = jax.jit(personalize, static_argnames=("rules", "pooled"))
