"""Many trainings of one method, with grid points and seeds as batch axes of one program."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import check, lock
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Channel, Cohort
from fedprior.core.scores import OWN, Metric, MetricName
from fedprior.data.federation import Federation
from fedprior.engines import cache, room
from fedprior.engines.book import Book, Trained
from fedprior.engines.evaluate import check_defined, metric_of
from fedprior.engines.grid import Family, Member, Point, families, points
from fedprior.engines.seeds import Seeds
from fedprior.engines.trained import personal, scores
from fedprior.engines.trainings import Log, together, train
from fedprior.pages.report import ShownPage, report
from fedprior.privacy.cohort import Everyone

_OWNER = "sweep"
_TRAINING = 0.9  # share of training in a point's work; the rest is personal models and scores
Progress = Callable[[float, int], Any]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The scores of every point of a grid, and the selected point.

    `valid` holds the clients' validation scores by the `metric`, (points, seeds, clients): its
    values, or minus its values where lower ones are better. `best` is the index of the point with
    the highest mean (the first one of a tie), and `scores` its clients' test scores, (seeds,
    clients), empty if the test samples were not used. `rows` has values. `history` holds the
    scalars of the state (`psi`) and the numbers of clients by name, (points, seeds, rounds), NaN
    if a point has none.
    """

    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    valid: np.ndarray
    best: int
    scores: np.ndarray
    history: Log = field(default_factory=dict)
    metric: Metric = OWN

    @property
    def chosen(self) -> Point:
        """The point with the highest mean validation score."""
        return self.points[self.best]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per training: options, seed, mean validation value, test if chosen.

        Values are those of the metric, means over clients.
        """
        return [
            {
                **point,
                "seed": seed,
                "valid": float(self.metric.signed(np.nanmean(self.valid[place, number]))),
                "chosen": place == self.best,
                "test": self._test(place, number),
            }
            for place, point in enumerate(self.points)
            for number, seed in enumerate(self.seeds)
        ]

    def report(self, path: str | Path | None = None) -> ShownPage:
        """Return a page about the sweep; with `path`, an .html file, it is written there."""
        from fedprior.engines.sweep_page import sweep_page

        return report(sweep_page(self), path)

    def _repr_html_(self) -> str:
        from fedprior.engines.sweep_page import sweep_page
        from fedprior.pages.render import small

        return small(sweep_page(self))

    def _test(self, place: int, number: int) -> float | None:
        if place != self.best or not self.scores.size:
            return None
        return float(self.metric.signed(np.nanmean(self.scores[number])))


def sweep(
    build: Callable[..., Algorithm],
    federation: Federation | Callable[[int], Federation],
    *,
    over: Mapping[str, Sequence[Any]],
    rounds: int,
    seeds: int | Sequence[int] = 1,
    cohort: Cohort | None = None,
    channel: Channel | None = None,
    judges: int | None = None,
    metric: MetricName | None = None,
    test: bool = True,
    folder: Path | None = None,
    identity: Any = "",
    progress: Progress | None = None,
) -> Sweep:
    """Train `build(**point)` for every point of the grid and every seed, and select one point.

    `over` maps each option to its values, simplest first: ties go to the first. Floats and seeds
    are batch axes of one compiled program; each combination of integers and strings is compiled
    separately. As many trainings run at once as fit into memory. Uploads pass through `channel`,
    whose noise must be simulated.

    The selection uses validation scores over all seeds and clients (only the first `judges` clients
    if given, to treat the others as unknown) by `metric`: accuracy by default, or RMSE where a
    quantity is predicted. Test samples are read once, after the selection, for
    the selected point, and not at all with `test=False`. `federation` may be a function of the
    seed. With a `folder`, an interrupted sweep continues from its finished points; `identity` is
    any JSON value that identifies what the other arguments do not show. `progress` is called with
    the number of finished trainings and the number of all trainings.
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
        numbers,
        tuple(draw(seed) for seed in numbers),
        Everyone() if cohort is None else cohort,
        Identity() if channel is None else channel,
        identity,
    )
    if judges is not None:
        check.count(_OWNER, judges=judges)
    scored = all(federation.valid.size[:judges].any() for federation in data.federations)
    which = "federation has" if judges is None else f"first {judges} clients (judges) have"
    check.expect(scored, _OWNER, f"the {which} no validation samples to select on.")
    judged = metric_of(_OWNER, metric, build(**grid[0]), data.federations[0])
    for each in data.federations:
        check_defined(_OWNER, judged, each, judges)
    cache.enable()
    with lock.owned(folder) if folder else nullcontext():
        book = Book(folder, data, grid, rounds, judges, judged)
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
        history=book.history,
        metric=judged,
    )


Note = Callable[[int, Trained], None]


class _Tell:
    """Reports finished trainings: those of scored points, and the share of running ones."""

    def __init__(self, progress: Progress | None, book: Book, num_seeds: int) -> None:
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
    """Train and score the waiting points, as many at once as fit into memory.

    Where the memory is not there, fewer points are trained together, then fewer seeds, then fewer
    clients of a cohort.
    """
    size, width = together(family, waiting, seeds)
    at_once = seeds.cohort.capacity(seeds.num_clients)
    groups = seeds.groups(width)  # only once: each group holds its samples on the device
    while waiting:
        # The last chunk is filled with a repeated point, to avoid compiling for a smaller one.
        chunk = [*waiting[:size], *[waiting[0]] * (size - len(waiting))]
        try:
            _train_some(family, chunk, groups, rounds, at_once, tell, note)
        except room.OUT as error:
            if size > 1:
                size = room.smaller(size, error)
            elif width > 1:
                width = room.smaller(width, error)
                _free(groups)
                groups = seeds.groups(width)
            else:
                at_once = room.smaller(at_once, error)
            continue
        waiting = waiting[size:]
    if width < len(seeds.numbers):  # the next family may have other groups
        _free(groups)


def _free(groups: list[Seeds]) -> None:
    for group in groups:
        group.free()


def _train_some(
    family: Family,
    chunk: Sequence[Member],
    groups: list[Seeds],
    rounds: int,
    at_once: int,
    tell: _Tell,
    note: Note,
) -> None:
    places = dict.fromkeys(place for place, _ in chunk)
    numbers = [point for _, point in chunk]
    share = _TRAINING * len(places) / len(groups)
    trained = []
    for number, group in enumerate(groups):

        def told(done: float, number: int = number) -> None:
            tell(share * (number + done))

        trained.append(train(family, numbers, group, rounds=rounds, at_once=at_once, tell=told))
    for index, place in enumerate(places):
        point = numbers[index]
        thetas, valid, logs = [], [], []
        for (models, log), group in zip(trained, groups, strict=True):
            of_point = jax.tree.map(lambda leaf: leaf[index], models)  # noqa: B023
            thetas.append(personal(family, point, of_point, group))
            valid.append(scores(family, point, thetas[-1], group, "valid", tell.book.metric))
            logs.append({name: values[index] for name, values in log.items()})
        history = {name: np.concatenate([log[name] for log in logs]) for name in logs[0]}
        note(place, Trained(np.concatenate(valid), history, thetas, groups))


def _tested(
    split: dict[Family, list[Member]], seeds: Seeds, rounds: int, book: Book, tell: _Tell
) -> np.ndarray:
    """Return the test scores at the best point; test samples are read only here.

    An interrupted sweep may have lost the models of that point; it is then trained again.
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
    tested = [
        scores(family, numbers, thetas, group, "test", book.metric) for thetas, group in parts
    ]
    return np.concatenate(tested)
