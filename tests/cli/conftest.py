"""The command `fedprior` in this process, a small table, and one finished run for all tests."""

import csv
import json
import os
from typing import NamedTuple

import jax
import numpy as np
import pytest

from walked_pages import call as _call

FAST = {
    "training.rounds": 3,
    "training.local_steps": 2,
    "training.batch_size": 4,
    "training.cohort_size": 2,
    "training.theta_rate": 0.1,  # as given: nothing is chosen on validation rows
    "model.name": "logistic",
}


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def fast_options(**changes):
    """`--set` for each setting that makes a run tiny."""
    pairs = {**FAST, **{key.replace("__", "."): value for key, value in changes.items()}}
    return [
        word for key, value in pairs.items() for word in ("--set", f"{key}={json.dumps(value)}")
    ]


def write_table(path, clients, *, rows=10, labels=True, seed=0):
    """Shops with a number with gaps, a word, and an outcome that depends on both."""
    draws = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shop", "price", "color"] + ["outcome"] * labels)
        for client in clients:
            for _ in range(rows):
                price, color = draws.normal(), draws.choice(["red", "blue"])
                outcome = "yes" if price + (color == "red") > 0.5 else "no"
                cell = "" if draws.random() < 0.1 else f"{price:.3f}"
                writer.writerow([client, cell, color] + [outcome] * labels)
    return path


@pytest.fixture(scope="session", autouse=True)
def _programs(tmp_path_factory):
    """A cache of compiled programs for these tests: the same run compiles once."""
    variable, before = "FEDPRIOR_CACHE", os.environ.get("FEDPRIOR_CACHE")
    kept = jax.config.jax_persistent_cache_min_compile_time_secs
    os.environ[variable] = str(tmp_path_factory.mktemp("programs"))
    yield
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", kept)
    if before is None:
        del os.environ[variable]
    else:
        os.environ[variable] = before


@pytest.fixture(scope="session")
def call():
    """`call(words)` -> exit code, for fixtures that outlive a test."""
    return _call


@pytest.fixture
def command(capsys, monkeypatch):
    """`command("train", ...)` -> exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FEDPRIOR_TRACEBACK", raising=False)

    def run(*words):
        capsys.readouterr()
        code = _call(words)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def fast():
    return fast_options


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("data") / "shops.csv", "abcdef")


@pytest.fixture(scope="session")
def new_rows():
    return write_table


@pytest.fixture(scope="session")
def encoder(tmp_path_factory, new_rows):
    """An encoder of public rows, as a private run on a table needs it."""
    from fedprior.data.table import fit_encoder

    folder = tmp_path_factory.mktemp("public")
    public = new_rows(folder / "public.csv", "p", rows=40, seed=3)
    path = folder / "encoder.json"
    path.write_text(fit_encoder(public, client="shop", label="outcome").to_json())
    return path


@pytest.fixture(scope="session")
def on_table(table):
    """Options for a run on the table."""
    return ["--data", table, "--client", "shop", "--label", "outcome", *fast_options()]


@pytest.fixture(scope="session")
def three():
    """Three methods with memories, without, and alone."""
    names = ("adaped", "fedavg-fine-tuning", "local")
    return [word for name in names for word in ("--algorithm", name)]


@pytest.fixture(scope="session")
def trained(tmp_path_factory, on_table, three):
    """The folder of a finished run of three methods."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    assert _call(["train", *on_table, *three, "--out", folder, "--quiet"]) == 0
    return folder


@pytest.fixture
def untouched_by(refused, tmp_path, monkeypatch):
    """`untouched_by("estimate", ...)`: the command is refused, and no file appears."""
    monkeypatch.chdir(tmp_path)

    def run(name, *words, wanted):
        before = sorted(tmp_path.rglob("*"))
        out = () if "--out" in words else ("--out", tmp_path / "o.csv")
        refused(name, *words, *out, wanted=wanted)
        assert sorted(tmp_path.rglob("*")) == before

    return run


@pytest.fixture
def refused(command):
    """The command ends with exit code 2 and one line on standard error that holds `wanted`."""

    def run(*words, wanted):
        found = command(*words)
        assert found.code == 2, found
        assert found.out == ""
        lines = found.err.strip().splitlines()
        assert len(lines) == 1, found.err
        assert lines[0].startswith("fedprior: ")
        assert wanted in lines[0], lines[0]

    return run
