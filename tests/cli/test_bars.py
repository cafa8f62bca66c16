"""Bars in tables: only on a terminal with room for them; numbers are never cut."""

import io
import os
import re
import subprocess
import sys

import pytest
from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.cli.bars import ASCII, UNICODE, Bar, add_bars, draw, marks, print_anywhere
from fedprior.cli.columns import keep_numbers

BARS = [Bar(0.1, 0.2, 0.4, 0.35), Bar(0.0, 0.1, 0.2)]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def console(width, *, terminal=True, encoding="utf-8"):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, width=width, force_terminal=terminal, highlight=False)


def table(name="a group with a name"):
    shown = Table(box=box.SIMPLE_HEAD)
    shown.collapse_padding, shown.pad_edge = True, False
    shown.add_column("group", no_wrap=True)
    for column in ("lower", "personal", "upper"):
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_row(name, "0.10000", "0.20000", "0.40000")
    shown.add_row("b", "0.00000", "0.10000", "0.20000")
    return shown


def printed(shown, screen):
    screen.print(shown)
    screen.file.flush()
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.file.buffer.getvalue().decode(screen.encoding))


def test_a_bar_has_its_marks_at_their_places():
    assert draw(Bar(2, 5, 8, 9), 0, 10, 11, ASCII) == "  |--*--|o "
    assert draw(Bar(2, 5, 8), 0, 10, 11, UNICODE) == "  ├──●──┤  "
    assert draw(Bar(-1, 5, 99), 0, 10, 11, ASCII) == "|----*----|"  # cut at the edges
    assert draw(Bar(1, 1, 1), 1, 1, 5, ASCII) == "*    "  # no spread at all
    assert draw(Bar(float("nan"), 5, float("nan")), 0, 10, 11, ASCII) == "     *     "


def test_bars_share_a_scale_whose_ends_are_shown():
    screen = console(120)
    text = printed(add_bars(table(), screen, BARS, names=("personal", "raw")), screen)
    head = next(line for line in text.splitlines() if "group" in line)
    assert re.search(r"0 +0\.4\s*$", head)
    assert "● personal  ○ raw" in text
    assert text.count("●") == 3  # one of them in the title


def test_a_scale_of_its_own_has_zero_in_the_middle():
    screen = console(120)
    both = [Bar(200, 250, 300), Bar(-0.1, 0.1, 0.3)]
    lines = printed(add_bars(table(), screen, both, about_zero=True), screen).splitlines()
    first, second = (line for line in lines if "├" in line)
    assert first.index("┊") < first.index("├")
    assert second.rindex("├") < second.index("●")
    assert "┊" not in second  # the interval covers 0


@pytest.mark.parametrize("width", [40, 50, 60, 80, 120, 160])
def test_numbers_win_at_every_width(width):
    screen = console(width)
    text = printed(keep_numbers(add_bars(table(), screen, BARS), width), screen)
    for number in ("0.10000", "0.20000", "0.40000", "0.00000"):
        assert number in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert ("├" in text) == (width >= 80)


def test_columns_that_do_not_fit_stand_below():
    text = printed(keep_numbers(table("x" * 70), 30), console(30))
    heads = [line.split() for line in text.splitlines() if "group" in line]
    assert heads == [["group", "lower", "personal"], ["group", "upper"]]
    assert "…" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_piped_or_dumb_has_no_bars(monkeypatch, terminal):
    if terminal:
        monkeypatch.setenv("TERM", "dumb")
    screen = console(200, terminal=terminal)
    assert marks(screen) is None
    assert len(add_bars(table(), screen, BARS).columns) == 4


def test_an_encoding_without_the_marks_has_others():
    screen = console(120, encoding="ascii")
    text = printed(add_bars(table(), screen, BARS), screen)
    assert "|--" in text
    assert text.isascii()


def test_rows_without_figures_have_no_bar():
    screen = console(120)
    assert printed(add_bars(table(), screen, [None, BARS[1]]), screen).count("●") == 1
    assert len(add_bars(table(), screen, [None, None]).columns) == 4


def test_streams_write_what_their_encoding_lacks_in_plain_letters():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_anywhere(stream)
    stream.write("1 ± 2 … ż")
    stream.flush()
    assert stream.buffer.getvalue() == b"1 +- 2 ... ?"


def run(columns, *words, **more):
    """The command in a process whose standard output counts as a terminal."""
    env = {**os.environ, "COLUMNS": str(columns), "FORCE_COLOR": "1", **more}
    words = [sys.executable, "-m", "fedprior", *words]
    found = subprocess.run(words, capture_output=True, env=env)
    assert found.returncode == 0, found.stderr.decode()
    return found.stdout


def test_an_estimate_shows_bars_where_there_is_room_and_no_color_where_none_is_wanted():
    wide = run(140, "estimate", NO_COLOR="1").decode()
    assert wide.count("●") == 12  # ten groups and two titles
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", wide)
    assert "●" not in run(60, "estimate").decode()
    plain = run(140, "estimate", PYTHONIOENCODING="ascii")
    assert b"|--" in plain
    assert b" +- " in plain


def test_a_regression_shows_the_intervals_of_its_means(tmp_path):
    lines = [f"{g},{g + 2 * x + (7 * g * x) % 3},{x}" for g in range(9) for x in range(6)]
    (tmp_path / "t.csv").write_text("\n".join(["g,y,x", *lines]) + "\n")
    words = ["regress", tmp_path / "t.csv", "--group", "g", "--target", "y", "--features", "x"]
    assert run(160, *words).decode().count("●") == 2


def test_a_run_and_a_sweep_show_bars_of_their_scores():
    from fedprior.cli import scores, sweep

    row = {"mean": 0.8, "worst_decile": 0.6, "best_decile": 0.9, "gain_over_local": 3.0}
    row |= {"mean_sd": None, "gain_se": None, "share_gaining": 0.5}
    methods = {"adamap": row, "local": {**row, "mean": None}}
    screen = console(130)
    from fedprior.reporting.config import Config

    shown = scores.with_bars(scores.table(Config(), methods), [*methods.values()], screen)
    text = printed(shown, screen)
    assert text.count("●") == 2  # adamap and the title; local has no mean
    assert "├" in text
    found = {"chosen": {"lr": 0.1}, "points": 3, "valid": 0.7, "test": 0.6, "test_sd": 0.05}
    none = {"chosen": None, "points": 3, "valid": None, "test": None, "test_sd": None}
    bars = sweep._bars({"metric": "accuracy", "methods": {"a": found, "b": none}})
    assert bars == [pytest.approx((55.0, 60.0, 65.0, 70.0)), None]
