"""One messy table read by estimate, regress, train and encoder: the same columns everywhere."""

import json

import numpy as np
import pytest

KEY = ("state", "county")


def messy_lines():
    """A European table: decimal commas, dates, gaps of all sorts, counties in two states."""
    draws = np.random.default_rng(5)
    lines = ["state;county;income;age;seen;member;rooms;won"]
    for number in range(96):
        state, county = ("Ost", "West")[number % 2], f"0{number // 2 % 4}"
        age, seen = draws.integers(20, 60), f"{1 + number % 28:02}.0{1 + number % 9}.2021"
        income = f"{30 + 0.2 * age + draws.normal():.2f}".replace(".", ",")
        member, rooms = ("true", "FALSE")[number // 3 % 2], ("0", "1", "2", "3+")[number % 4]
        won = "ja" if draws.random() < 0.5 else "nein"
        cells = [state, county, income, str(age), seen, member, rooms, won]
        gaps = {7: (2, "NA"), 20: (3, "N/A"), 33: (3, ""), 40: (4, "."), 51: (5, "null")}
        gaps |= {60: (0, "NA"), 61: (1, ""), 70: (7, "NaN"), 71: (2, "n/a"), 80: (6, "NA")}
        if number in gaps:
            place, word = gaps[number]
            cells[place] = word
        lines.append(";".join(cells))
    return lines


@pytest.fixture(params=["utf-8", "utf-8-sig", "utf-16"])
def messy(tmp_path, request):
    path = tmp_path / "messy.csv"
    path.write_bytes(("\n".join(messy_lines()) + "\n").encode(request.param))
    return path


def said(outcome):
    """name -> what the command says it read the column as."""
    assert outcome.code == 0, outcome.err
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("Read ")]
    parts = line.removeprefix("Read ").removesuffix(".").split("; ")
    return {part.split("`")[1]: part for part in parts}


WANTED = {
    "income": "`income`: number, 2 missing",
    "age": "`age`: number, 2 missing",
    "seen": "`seen`: date (in days since 1970-01-01), 1 missing",
    "member": "`member`: true or false, 1 missing",
    "rooms": "`rooms`: text, 1 missing, 4 distinct, numbers and words such as '3+'",
    "won": "`won`: text, 1 missing",
}


def test_the_same_columns_for_every_command(command, messy, tmp_path):
    groups = [word for name in KEY for word in ("--group", name)]
    features = ["age", "seen", "member", "rooms"]
    words = (*groups, "--target", "income", "--features", "age", "--fixed", "seen,member,rooms")
    regressed = command("regress", messy, *words, "--json")
    assert said(regressed) == {name: WANTED[name] for name in ("income", *features)}
    summary = json.loads(regressed.out)
    assert summary["columns"] == said(regressed)
    assert list(summary["fixed"]) == ["seen", "member", "rooms=1", "rooms=2", "rooms=3+"]

    for name in ("income", "age"):
        estimated = command("estimate", messy, *groups, "--value", name, "--json")
        assert said(estimated) == {name: WANTED[name]}
        answer = json.loads(estimated.out)
        assert answer["num_groups"] == summary["groups"] == 8
        assert answer["columns"] == said(estimated)
        # rows 60 and 61 lack a part of their group
        assert answer["dropped"] == 4

    clients = [word for name in KEY for word in ("--client", name)]
    run = tmp_path / "run"
    small = {"rounds": 1, "local_steps": 1, "batch_size": 4, "cohort_size": 8, "theta_rate": 0.1}
    small = [word for key, value in small.items() for word in ("--set", f"training.{key}={value}")]
    options = ("--label", "won", "--algorithm", "local", "--out", run, *small)
    trained = command("train", "--data", messy, *clients, *options)
    assert said(trained) == WANTED
    assert "2 of 96 rows dropped: no client." in trained.err
    assert "1 of 96 rows dropped: no label." in trained.err

    out = tmp_path / "encoder.json"
    options = ("--label", "won", "--out", out, "--exclude", "state,county", "--json")
    encoded = json.loads(command("encoder", messy, *clients, *options).out)
    assert encoded["features"] == ["income", *features]
    assert encoded["classes"] == ["ja", "nein"]


def test_groups_of_two_columns_are_named_by_both(command, messy, tmp_path):
    out = tmp_path / "o.csv"
    groups = ("--group", "state", "--group", "county")
    assert command("estimate", messy, *groups, "--value", "income", "--out", out).code == 0
    names = [line.split(",")[0] for line in out.read_text().splitlines()[1:]]
    assert names == [f"{state} / 0{number}" for state in ("Ost", "West") for number in range(4)]
    words = ("--target", "income", "--features", "age", "--out", tmp_path / "p.csv")
    assert command("regress", messy, *groups, *words).code == 0
    rows = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == names


def test_decimal_commas_are_no_classes(command, tmp_path):
    """Fifteen values of a target with decimal commas are numbers."""
    path = tmp_path / "t.csv"
    lines = [f"g{n % 3};{n % 5},{n % 2};{n % 15},5" for n in range(45)]
    path.write_text("g;x;y\n" + "\n".join(lines) + "\n")
    words = ("--group", "g", "--target", "y", "--features", "x", "--json")
    assert json.loads(command("regress", path, *words).out)["family"] == "gaussian"


def test_features_given_twice_all_count(command, messy):
    words = ("--group", "state", "--group", "county", "--target", "income", "--json")
    both = command("regress", messy, *words, "--fixed", "age", "--fixed", "member")
    assert list(json.loads(both.out)["fixed"]) == ["age", "member"]


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_a_folder_of_tables_is_not_the_embedded_digits(refused, tmp_path, name):
    folder = tmp_path / "tables"
    folder.mkdir()
    wanted = "is a folder without .npz files, and the dataset 'digits' reads no folder"
    refused(name, "--data", folder, wanted=wanted)
    (folder / "a.csv").write_text("c,x,y\na,1,0\n")
    refused(name, "--data", folder, "--client", "c", "--label", "y", wanted="quote a glob: --data")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            ("--client", "c"),
            "train: --client concerns a table of your own. Name its file with --data",
        ),
        (("--missing", "x"), "train: --missing concerns a table"),
        (("--exclude", "x"), "train: --exclude concerns a table"),
    ],
)
def test_columns_without_a_table_are_refused(refused, words, wanted):
    refused("train", *words, wanted=wanted)


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "--value", "income"),
        ("regress", "--target", "income", "--fixed", "age"),
    ],
)
def test_files_are_not_overwritten(command, refused, tmp_path, words):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(messy_lines()) + "\n")
    words = (words[0], path, "--group", "county", *words[1:], "--quiet")
    for option, file in (("--out", tmp_path / "o.csv"), ("--plot", tmp_path / "o.svg")):
        file.write_text("mine")
        refused(*words, option, file, wanted=f"{option} {file} exists already. Overwrite it with")
        assert file.read_text() == "mine"
        assert command(*words, option, file, "--force").code == 0
        assert file.read_text() != "mine"


def test_a_glob_of_tables_is_one_table(command, tmp_path):
    for part in range(2):
        lines = [f"c{n % 3},{n % 7},{(n + part) % 2}" for n in range(24)]
        (tmp_path / f"part{part}.csv").write_text("c,x,y\n" + "\n".join(lines) + "\n")
    words = ("--data", tmp_path / "part*.csv", "--client", "c", "--label", "y", "--quiet", "--json")
    small = ("--algorithm", "local", "--set", "training.rounds=1", "--out", tmp_path / "run")
    answer = command("train", *words, *small)
    assert answer.code == 0, answer.err
    config = (tmp_path / "run" / "config.toml").read_text()
    assert 'fingerprint = "' in config
    assert 'fingerprint = ""' not in config
