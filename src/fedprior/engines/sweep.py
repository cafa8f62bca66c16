"""Many trainings of one method: points of a grid and seeds as batch axes of one program."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Theta
from fedprior.core.protocols import Cohort
from fedprior.data.federation import Federation
from fedprior.engines import cache, source
from fedprior.engines.grid import Family, Member, Point, families, points
from fedprior.engines.trainings import Models, Seeds, at_once, personal, scores, train
from fedprior.exchange import checkpoint
from fedprior.privacy.cohort import Everyone

_OWNER = "sweep"
_TRAINING = 0.9  # of a point's work; personal models and scores are the rest
_DIGITS = 9  # of mean scores; the same accuracies added in another order are a tie
Progress = Callable[[float, int], Any]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """How every point of a grid scored, and the one that was chosen.

    `valid` holds the clients' validation scores, (points, seeds, clients); `best` is the place of
    the point whose mean is highest, the first of equals; `scores` are its clients' test scores,
    (seeds, clients), empty where they were not asked for.
    """

    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    valid: np.ndarray
    best: int
    scores: np.ndarray

    @property
    def chosen(self) -> Point:
        """The point with the highest mean validation score."""
        return self.points[self.best]

    def rows(self) -> list[dict[str, Any]]:
        """One row a training: its options, seed, mean validation score; test scores if chosen."""
        return [
            {
                **point,
                "seed": seed,
                "valid": float(np.nanmean(self.valid[place, number])),
                "chosen": place == self.best,
                "test": self._test(place, number),
            }
            for place, point in enumerate(self.points)
            for number, seed in enumerate(self.seeds)
        ]

    def _test(self, place: int, number: int) -> float | None:
        if place != self.best or not self.scores.size:
            return None
        return float(np.nanmean(self.scores[number]))


def sweep(
    build: Callable[..., Algorithm],
    federation: Federation | Callable[[int], Federation],
    *,
    over: Mapping[str, Sequence[Any]],
    rounds: int,
    seeds: int | Sequence[int] = 1,
    cohort: Cohort | None = None,
    judges: int | None = None,
    test: bool = True,
    folder: Path | None = None,
    identity: Any = "",
    progress: Progress | None = None,
) -> Sweep:
    """Trains `build(**point)` for every point of the grid and every seed; chooses one point.

    `over` gives each option its values, simplest first: a tie goes to the first. Numbers with a
    decimal point are batch axes of one compiled program, with the seeds; each combination of whole
    numbers and words compiles its own. As many trainings run at once as the memory holds.

    The choice is made on validation scores, over all seeds and clients (the first `judges` of them,
    where the others are to be as if unknown); test samples are read once, after it, for the chosen
    point, and not at all with `test=False`. `federation` may be a function of the
    seed. With a `folder` a sweep that was cut short goes on from its finished points; `identity`
    is any JSON value that names what its other arguments do not show. `progress` hears how many
    trainings are done, of how many.
    """
    grid = points(over)
    split = families(build, grid)
    check.count(_OWNER, rounds=rounds)
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    check.require(len(numbers) > 0, _OWNER, "seeds", "at least one", seeds)
    for seed in numbers:
        check.seed(_OWNER, seed)
    draw = federation if callable(federation) else lambda seed: federation
    data = Seeds(
        numbers, tuple(draw(seed) for seed in numbers), Everyone() if cohort is None else cohort
    )
    scored = all(each.valid.size.any() for each in data.federations)
    check.require(scored, _OWNER, "federation", "one with validation samples", "none")
    cache.enable()
    book = _Book(folder, data, grid, [rounds, identity], judges)
    tell = _Tell(progress, book, len(numbers))
    for family, members in split.items():
        waiting = [member for member in members if not book.done[member[0]]]
        _train_all(family, waiting, data, rounds, tell, book.note)
    if test and not book.scores.size:
        book.scores = _tested(split, data, rounds, book, tell)
        book.save()
    tell(0)
    return Sweep(
        points=tuple(grid),
        seeds=numbers,
        valid=book.valid,
        best=book.best,
        scores=book.scores if test else np.empty((0, 0)),
    )


class _Book:
    """What is known of every point; in a folder, after every step of the sweep."""

    def __init__(
        self,
        folder: Path | None,
        seeds: Seeds,
        grid: list[Point],
        rest: Any,
        judges: int | None,
    ) -> None:
        shape = (len(grid), len(seeds.numbers), seeds.num_clients)
        self.valid, self.done = np.full(shape, np.nan), np.zeros(len(grid), bool)
        self.judges = judges
        self.thetas: list[Theta] = []  # of the best point so far, by group of seeds
        self.groups: list[Seeds] = []
        self.held = -1  # that point's place
        self._file = None if folder is None else Path(folder) / "sweep.safetensors"
        self._identity = "" if folder is None else _identity(seeds, grid, rest)
        self.scores = np.empty((0, 0))  # test scores of the best point, when all is done
        if self._file is not None and self._file.exists():
            saved = checkpoint.read_checkpoint(self._file, identity=self._identity)
            like = {"valid": self.valid, "done": self.done, "scores": saved.arrays["scores"]}
            found = saved.tree(like)
            self.valid, self.done = found["valid"].copy(), found["done"].copy()
            self.scores = found["scores"]

    @property
    def best(self) -> int:
        """The place of the highest mean over clients and seeds; of equals the first."""
        means = np.full(len(self.done), -np.inf)
        means[self.done] = np.nanmean(self.valid[self.done, :, : self.judges], axis=2).mean(axis=1)
        return int(np.argmax(np.round(means, _DIGITS)))

    def note(self, place: int, valid: np.ndarray, thetas: list[Theta], groups: list[Seeds]) -> None:
        """A point's validation scores; its personal models are kept while it is the best."""
        self.valid[place], self.done[place] = valid, True
        if self.best == place:
            self.hold(place, valid, thetas, groups)
        self.save()

    def hold(self, place: int, _: np.ndarray, thetas: list[Theta], groups: list[Seeds]) -> None:
        """A point's personal models; its validation scores stay those on record."""
        self.thetas, self.groups, self.held = thetas, groups, place

    def save(self) -> None:
        """To disk, where there is a folder."""
        if self._file is not None:
            arrays = {"valid": self.valid, "done": self.done, "scores": self.scores}
            checkpoint.save_checkpoint(self._file, arrays, identity=self._identity)


def _identity(seeds: Seeds, grid: list[Point], rest: Any) -> str:
    """Of all that decides the scores; test samples are not read for it."""
    data = [source.content(each.train, each.valid) for each in seeds.federations]
    tests = [[list(each.test.x.shape), each.test.size.tolist()] for each in seeds.federations]
    return checkpoint.fingerprint([grid, seeds.numbers, seeds.cohort, data, tests, rest])


Note = Callable[[int, np.ndarray, list[Theta], list[Seeds]], None]


class _Tell:
    """Tells of trainings done: those of scored points, and the share of what is under way."""

    def __init__(self, progress: Progress | None, book: _Book, num_seeds: int) -> None:
        self.progress, self.book, self.num_seeds = progress, book, num_seeds

    def __call__(self, under_way: float) -> None:
        if self.progress:
            done, total = float(self.book.done.sum()), len(self.book.done)
            self.progress(min(done + under_way, total) * self.num_seeds, total * self.num_seeds)


def _train_all(
    family: Family,
    waiting: Sequence[Member],
    seeds: Seeds,
    rounds: int,
    tell: _Tell,
    note: Note,
) -> None:
    """Trains and scores the waiting points, as many at once as the memory holds."""
    size, width = at_once(family, waiting, seeds)
    groups = seeds.groups(width)  # once: each holds its samples on the device
    while waiting:
        # The last chunk repeats a point rather than compile for fewer.
        chunk = [*waiting[:size], *[waiting[0]] * (size - len(waiting))]
        try:
            _train_some(family, chunk, groups, rounds, tell, note)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or size * width == 1:
                raise
            if size > 1:
                size = -(-size // 2)
            else:
                width = -(-width // 2)
                groups = seeds.groups(width)
            continue
        waiting = waiting[size:]


def _train_some(
    family: Family,
    chunk: Sequence[Member],
    groups: list[Seeds],
    rounds: int,
    tell: _Tell,
    note: Note,
) -> None:
    places = dict.fromkeys(place for place, _ in chunk)
    numbers = [point for _, point in chunk]
    share = _TRAINING * len(places) / len(groups)
    models: list[Models] = []
    for number, group in enumerate(groups):

        def told(done: float, number: int = number) -> None:
            tell(share * (number + done))

        models.append(train(family, numbers, group, rounds=rounds, tell=told))
    for index, place in enumerate(places):
        point = numbers[index]
        pairs = zip(models, groups, strict=True)
        own = [personal(family, point, each.at(index), group) for each, group in pairs]
        parts = zip(own, groups, strict=True)
        valid = [scores(family, point, thetas, group, group.valid) for thetas, group in parts]
        note(place, np.concatenate(valid), own, groups)


def _tested(
    split: dict[Family, list[Member]], seeds: Seeds, rounds: int, book: _Book, tell: _Tell
) -> np.ndarray:
    """Test scores at the best point: the one reading of the test samples.

    A sweep that was cut short may have lost that point's models; it is then trained again.
    """
    best = book.best
    family, numbers = next(
        (family, numbers)
        for family, members in split.items()
        for place, numbers in members
        if place == best
    )
    if book.held != best:
        _train_all(family, [(best, numbers)], seeds, rounds, tell, book.hold)
    parts = zip(book.thetas, book.groups, strict=True)
    found = [
        scores(family, numbers, thetas, group, group.held_out("test")) for thetas, group in parts
    ]
    return np.concatenate(found)
