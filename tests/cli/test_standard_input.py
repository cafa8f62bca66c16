"""`-` as a file: every command reads a table from a pipe, and leaves nothing behind."""

import gzip
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

DRAWS = np.random.default_rng(0)
GROUP = np.arange(400) % 20
VALUE = (0.1 * GROUP + DRAWS.standard_normal(400)).round(3)
OUTCOME = (DRAWS.random(400) < 0.2 + GROUP / 40).astype(int)
ROWS = "g,x,y\n" + "".join(f"{g},{x},{y}\n" for g, x, y in zip(GROUP, VALUE, OUTCOME, strict=True))
MEANS = ["estimate", "-", "--group", "g", "--value", "x"]
RATES = ["estimate", "-", "--group", "g", "--outcome", "y"]


@pytest.fixture
def pipe(monkeypatch):
    """`pipe(data)`: standard input holds these bytes."""

    def fill(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return fill


def alone(words, folder, **options):
    """The command in a process of its own, with `folder` for temporary files."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from fedprior.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def parquet(tmp_path):
    import duckdb

    path = tmp_path / "made.parquet"
    columns = {"g": GROUP, "x": VALUE, "y": OUTCOME}
    with duckdb.connect() as connection:
        connection.register("columns", columns)
        connection.execute(f"COPY (FROM columns) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


@pytest.mark.parametrize("form", ["csv", "gzip", "utf-16", "utf-16 gzip", "mark", "parquet"])
def test_a_pipe_gives_the_answer_of_the_file(command, pipe, tmp_path, form):
    data = {
        "csv": ROWS.encode(),
        "gzip": gzip.compress(ROWS.encode()),
        "utf-16": ROWS.encode("utf-16"),
        "utf-16 gzip": gzip.compress(ROWS.encode("utf-16")),
        "mark": ROWS.encode("utf-8-sig"),
        "parquet": parquet(tmp_path),
    }[form]
    (tmp_path / "rows.csv").write_text(ROWS)
    pipe(data)
    found, wanted = (
        json.loads(command("estimate", file, *MEANS[2:], "--json").out)
        for file in ("-", tmp_path / "rows.csv")
    )
    assert found.keys() == wanted.keys()
    for name in ("rows", "dropped", "num_groups", "columns", "notes"):
        assert found[name] == wanted[name]
    # Names of groups are text in CSV: the order of sums differs.
    assert found["gain_over_raw"] == pytest.approx(wanted["gain_over_raw"], rel=1e-9)


def damaged():
    header = ROWS.splitlines()[0].encode() + b"\n"
    yield "empty", MEANS, b"", "standard input: it is empty."
    yield "header", MEANS, header, "standard input: the file has a header but no rows."
    yield "column", [*MEANS[:-1], "z"], ROWS.encode(), "standard input: there is no column 'z'"
    yield "picture", MEANS, b"\x89PNG\r\n\x1a\n\0\0\0", "standard input: it must be CSV (plain"
    cut = gzip.compress(ROWS.encode())[:900]
    yield "gzip", MEANS, cut, "standard input: file must be a readable table"
    cut = gzip.compress(ROWS.encode("utf-16"))[:900]
    yield "utf-16", MEANS, cut, "standard input: file must be a readable table"
    yield "parquet", MEANS, b"PAR1 and no more", "standard input: file must be a readable table"
    yield "wide", MEANS, ROWS.encode() + b"1,2,3,4,5\n", "standard input: file must be a readable"
    yield "word", MEANS, ROWS.encode() + b"1,many,0\n", "standard input: column 'x' must hold numb"
    yield "one group", MEANS, header + b"1,2,3\n1,3,3\n", "standard input: number of groups must"
    yield "one row", MEANS, header + b"1,2,3\n2,3,3\n", "standard input: groups must be of more"
    yield "ledger", [*RATES, "--epsilon", "1"], ROWS.encode(), "--epsilon needs --ledger with stan"
    regress = ["regress", "-", "--group", "g", "--target", "x", "--features", "y"]
    yield "regress", regress, header, "standard input: the file has a header but no rows."
    yield "constant", regress, header + b"1,2,3\n2,3,3\n", "standard input: column 'y' must be of"
    kinds = ["estimate", "-", "--group", "g", "--category", "y"]
    yield "category", kinds, header, "standard input: the file has a header but no rows."


@pytest.mark.parametrize(("name", "words", "data", "wanted"), list(damaged()))
def test_errors_are_one_line_that_names_standard_input(refused, pipe, name, words, data, wanted):
    pipe(data)
    refused(*words, wanted=wanted)


def test_errors_say_nothing_of_the_copy(command, pipe):
    for data in (b"PAR1 and no more", ROWS.encode() + b"1,2,3,4,5\n"):
        pipe(data)
        assert "/table." not in command(*MEANS).err


def test_a_private_estimate_charges_the_ledger_that_is_named(command, pipe, tmp_path):
    ledger = tmp_path / "people.jsonl"
    made = command("privacy", "ledger", "init", ledger, "--epsilon", 5, "--delta", "1e-3")
    assert made.code == 0, made
    pipe(ROWS.encode())
    found = command(*RATES, "--epsilon", 1, "--seed", 1, "--ledger", ledger, "--json")
    assert found.code == 0, found
    assert json.loads(found.out)["ledger"]["epsilon"] > 0
    assert "estimate standard input (rates)" in ledger.read_text()


def test_a_regression_reads_a_pipe(command, pipe, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    pipe(ROWS.encode())
    words = ["--group", "g", "--target", "x", "--features", "y", "--json"]
    found, wanted = (command("regress", file, *words) for file in ("-", tmp_path / "rows.csv"))
    assert found.code == 0, found
    assert json.loads(found.out) == json.loads(wanted.out)


def test_an_encoder_a_training_of_two_seeds_and_predictions_read_pipes(
    command, pipe, fast, tmp_path
):
    """A training reads its table once per seed, standard input only once."""
    columns = ["--client", "g", "--label", "y"]
    pipe(ROWS.encode())
    found = command("encoder", "-", *columns, "--out", tmp_path / "e.json")
    assert found.code == 0, found
    assert "the rows in standard input" in found.err
    words = ["train", "--data", "-", *columns, "--algorithm", "local", "--seeds", 2, *fast()]
    found = command(*words, "--out", tmp_path / "run")
    assert found.code == 0, found
    assert "standard input" in found.out
    assert 'path = "-"' in (tmp_path / "run" / "config.toml").read_text()
    found = command("personalize", tmp_path / "run", "--data", "-", "--out", tmp_path / "p.csv")
    assert found.code == 0, found
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 401
    pipe(ROWS.replace("1", "2").encode())
    found = command("train", "--resume", tmp_path / "run")
    assert found.code == 2
    assert "the data of the run, standard input, has changed" in found.err


def test_a_sweep_reads_a_pipe(command, pipe, fast, tmp_path):
    pipe(ROWS.encode())
    words = ["--data", "-", "--client", "g", "--label", "y", "--algorithm", "local", *fast()]
    found = command("sweep", *words, "--over", "rate=0.1,0.2", "--out", tmp_path / "sweep")
    assert found.code == 0, found


@pytest.mark.parametrize(("value", "code"), [("x", 0), ("z", 2)])
def test_nothing_is_left_behind(tmp_path, value, code):
    process = alone([*MEANS[:-1], value], tmp_path, stdin=subprocess.PIPE)
    process.communicate(ROWS.encode(), timeout=60)
    assert process.returncode == code
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_is_refused(tmp_path):
    control, terminal = pty.openpty()
    try:
        process = alone(MEANS, tmp_path, stdin=terminal)
        errors = process.communicate(timeout=60)[1]
    finally:
        os.close(control)
        os.close(terminal)
    assert process.returncode == 2
    assert b"standard input: it must be a pipe or a file, got a terminal." in errors


def test_standard_input_may_be_closed(refused, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    refused(*MEANS, wanted="standard input: it must be a pipe or a file, got nothing.")


def test_an_interrupt_leaves_nothing(tmp_path):
    process = alone(MEANS, tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(ROWS.encode() * 300)  # more than a block; the pipe stays open
    process.stdin.flush()
    until = time.monotonic() + 60
    while not list(tmp_path.glob("fedprior-*/table.csv")) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(tmp_path.iterdir())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode not in (0, 2)
    assert list(tmp_path.iterdir()) == []
