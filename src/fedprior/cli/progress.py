"""Progress of a run on standard error: a bar on a terminal, one line per method elsewhere."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fedprior.core.scores import ACCURACY, Metric

if TYPE_CHECKING:
    from fedprior.engines.simulate import Progress as Step


def say(line: str, *, quiet: bool) -> None:
    """Print one line to standard error unless `quiet`."""
    if not quiet:
        typer.echo(line, err=True)


class _Lines:
    """Lines on standard error, above the bars that a terminal shows there."""

    def __init__(self, *, quiet: bool) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)

    def say(self, line: str) -> None:
        """Print one line."""
        self.console.print(line, markup=False, soft_wrap=True)

    def written(self, *places: object) -> None:
        """Say what was written, but for places that are None."""
        for place in places:
            if place is not None:
                self.say(f"Written to {place}")

    def busy(self, what: str) -> AbstractContextManager[object]:
        """A line that stands on a terminal while something goes on."""
        return self.console.status(what) if self.console.is_terminal else nullcontext()


def _columns(*between: ProgressColumn | str) -> list[ProgressColumn]:
    """What is done, a bar, then these columns (or fields of a task), and the time left."""
    more = (TextColumn(f"{{task.fields[{x}]}}") if isinstance(x, str) else x for x in between)
    return [TextColumn("{task.description}"), BarColumn(), *more, TimeRemainingColumn()]


class _Bars(_Lines):
    """Lines, and bars on a terminal as long as the context is."""

    def __init__(self, *between: ProgressColumn | str, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        off = quiet or not self.console.is_terminal
        shown = _columns(*between)
        self._bar = Progress(*shown, console=self.console, transient=True, disable=off)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class Watcher(_Lines):
    """Shows the progress of each method: rounds, validation score, clients per second, time left.

    Scores are not private, and clients per second reveal how many took part: a run that must not
    release them sets `scores` and `speed` to False.
    """

    def __init__(
        self, *, quiet: bool, scores: bool = True, speed: bool = True, metric: Metric = ACCURACY
    ) -> None:
        super().__init__(quiet=quiet)
        self.scores, self.speed, self.metric = scores, speed, metric

    @contextmanager
    def watch(self, name: str) -> Iterator[Callable[["Step"], None]]:
        """Yield a progress callback for the simulation of one method.

        At the end, its test score stands in a line: others may train for long.
        """
        start, tested = time.perf_counter(), ""
        with self._bar() if self.console.is_terminal else nullcontext() as bar:
            task = bar.add_task(name, total=None, score="", speed="compiling") if bar else None

            def move(step: "Step") -> None:
                nonlocal tested
                if not math.isnan(step.test):
                    tested = self._value(step.test)
                elif bar is not None and task is not None:
                    speed = f"{step.clients_per_second:,.0f} clients/s" if self.speed else ""
                    score = self._value(step.score)
                    bar.update(
                        task, completed=step.round, total=step.rounds, score=score, speed=speed
                    )

            yield move
        found = f", test {tested}" if tested else ""
        self.say(f"{name}: done in {time.perf_counter() - start:.1f} s{found}")

    def _value(self, score: float) -> str:
        """A score in words, such as accuracy 91.2%; nothing where it is unknown or stays."""
        if not self.scores or math.isnan(score):
            return ""
        return f"{self.metric.label} {self.metric.words(self.metric.signed(score))}"

    def _bar(self) -> Progress:
        shown = _columns(MofNCompleteColumn(), "score", "speed")
        return Progress(*shown, console=self.console, transient=True)


class _Count(ProgressColumn):
    """The number of finished trainings."""

    def render(self, task: Task) -> Text:
        return Text(f"{int(task.completed)} of {int(task.total or 0)} trainings")


class Trainings(_Bars):
    """Shows how many trainings of each sweep and of `total` in all are done, and the time left."""

    def __init__(self, *, quiet: bool, total: int = 0) -> None:
        super().__init__(_Count(), "found", quiet=quiet)
        self._all = self._bar.add_task("all", total=total, visible=total > 0, found="")

    def part(self, *names: str) -> Callable[..., None]:
        """Return a progress callback for the sweep with this name.

        It may be told what was found so far, in words.
        """
        label, start = ", ".join(names), time.perf_counter()
        task = self._bar.add_task(label, total=1, found="")
        before, ended = 0.0, False

        def move(done: float, total: int, found: str = "") -> None:
            nonlocal before, ended
            loaded = done >= total and not before  # from a checkpoint
            self._bar.advance(self._all, done - before)
            before = done
            if ended:
                return
            self._bar.update(task, completed=done, total=total, found=found)
            if done >= total:
                ended = True
                self._bar.remove_task(task)
                if not loaded:
                    seconds = time.perf_counter() - start
                    noun = "training" if total == 1 else "trainings"
                    best = f", {found}" if found else ""
                    self.say(f"{label}: {total} {noun} in {seconds:.1f} s{best}")

        return move


@contextmanager
def counting(what: str, *, quiet: bool) -> Iterator[Callable[..., None]]:
    """A bar on standard error where that is a terminal; yields `move(done, total, what)`.

    It pulses until the first call. `move` need not name what is done.
    """
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if quiet or not console.is_terminal:
        yield lambda done, total, what="": None
        return
    shown = _columns(MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*shown, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def move(done: float, total: float, what: str = "") -> None:
            bar.update(task, completed=done, total=total, description=what or None)

        yield move


@contextmanager
def diverted() -> Iterator[None]:
    """Send to standard error what libraries print meanwhile, as those do that join processes."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def busy(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """A line on standard error while something goes on, where that is a terminal."""
    return _Lines(quiet=quiet).busy(what)


class Rehearsing(_Bars):
    """Shows the rounds of a rehearsal: how many are done, who answered, the time left."""

    def __init__(self, *, quiet: bool, rounds: int) -> None:
        super().__init__(MofNCompleteColumn(), "answered", quiet=quiet)
        self._task = self._bar.add_task("starting", total=rounds, answered="")
        self._round = 0

    def seen(self, progress: dict[str, Any]) -> None:
        """Take what the run says of itself."""
        done, clients = progress["round"], progress.get("answered")
        answered = "" if clients is None else f"{clients} clients answered"
        self._bar.update(self._task, description="rounds", completed=done, answered=answered)
        if done > self._round and not self.console.is_terminal:
            said = f": {progress['seconds']:.1f} s, {answered}" if answered else ""
            self.say(f"round {done} of {progress['rounds']}{said}")
        self._round = done
