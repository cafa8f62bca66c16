"""Bars and lines of progress: on a terminal, on standard error, and never with --quiet."""

from contextlib import contextmanager
from typing import NamedTuple

import pytest

from fedprior.cli.progress import Trainings, Watcher, busy, counting
from fedprior.core.scores import METRICS
from fedprior.engines.simulate import Progress


@pytest.fixture
def terminal(monkeypatch):
    """Standard error counts as a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_bar_begins_at_nothing_and_ends_with_all(terminal, capsys):
    with counting("rows", quiet=False) as move:
        move(0, 3, "first")
        begun = capsys.readouterr()
        for done in (1, 2, 3):
            move(done, 3)
    shown = capsys.readouterr()
    assert "-1" not in begun.err
    assert "3/3" in shown.err
    assert begun.out == shown.out == ""


def test_a_line_stands_while_something_goes_on(terminal, capsys):
    with busy("accounting", quiet=False):
        pass
    assert "accounting" in capsys.readouterr().err


def test_one_training_is_a_training(capsys):
    with Trainings(quiet=False) as bars:
        for name, number in (("one", 1), ("two", 2)):
            move = bars.part(name)
            move(0.5, number)
            move(number, number)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("one: 1 training in ")
    assert second.startswith("two: 2 trainings in ")


def test_the_best_value_so_far_stands_beside_the_number_of_trainings(terminal, capsys):
    with Trainings(quiet=False) as bars:
        move = bars.part("choosing: local")
        move(1, 2, "log loss 0.7")
        bars._bar.refresh()
        begun = capsys.readouterr().err
        move(2, 2, "log loss 0.5")
    assert "log loss 0.7" in begun
    assert "s, log loss 0.5" in capsys.readouterr().err


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_method_s_test_score_stands_in_its_line(request, capsys, shown, on_terminal):
    """As soon as it is known; not where scores stay."""
    if on_terminal:
        request.getfixturevalue("terminal")
    watcher = Watcher(quiet=False, scores=shown, metric=METRICS["log-loss"])
    with watcher.watch("local") as move:
        move(Progress(1, 2, score=-0.75, clients_per_second=3.0))
        move(Progress(2, 2, score=-0.75, clients_per_second=3.0, test=-0.25))
    said = capsys.readouterr().err
    assert "local: done in" in said
    assert (", test log loss 0.25" in said) == shown
    assert shown or "loss" not in said


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_is_shown_in_a_file_or_when_quiet(capsys, monkeypatch, quiet):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if quiet:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with counting("rows", quiet=quiet) as move, busy("accounting", quiet=quiet):
        move(1, 2, "one")
    assert capsys.readouterr() == ("", "")


def test_the_bar_of_an_audit_begins_at_zero(monkeypatch):
    """And counts an attack when it is over, not when it begins."""
    from fedprior.audit import suite
    from fedprior.cli import audit

    moves = []

    @contextmanager
    def counted(what, *, quiet):
        yield lambda *words: moves.append(words)

    class Passed:
        passed = True

        def describe(self):
            return {}

    class Attack(NamedTuple):
        name: str

        def check(self):
            return Passed()

    monkeypatch.setattr(audit, "counting", counted)
    monkeypatch.setattr(suite, "tasks", lambda **options: [Attack("one"), Attack("two")])
    audit.audit(as_json=True, quick=True, runs=None, confidence=0.99, seed=0, quiet=False)
    assert moves == [(0, 2, "one"), (1, 2, "two")]
