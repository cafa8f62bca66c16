"""`train --plot` and `sweep --plot`: checked before anything is trained, written last."""

import importlib.util
import json

import pytest

pytest.importorskip("matplotlib")
PNG = b"\x89PNG"


@pytest.fixture
def untrained(refused, tmp_path):
    """The command is refused, and neither a run nor a picture appears."""

    def run(*words, wanted):
        before = sorted(tmp_path.rglob("*"))
        refused(*words, "--out", tmp_path / "run", wanted=wanted)
        assert sorted(tmp_path.rglob("*")) == before

    return run


def test_a_run_is_drawn_and_drawn_again_when_resumed(command, on_table, three, tmp_path):
    picture, out = tmp_path / "run.png", tmp_path / "run"
    found = command("train", *on_table, *three, "--out", out, "--plot", picture)
    assert found.code == 0, found.err
    assert f"Written to {picture}" in found.err
    assert picture.read_bytes().startswith(PNG)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run", "run.png"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scored = [line["round"] for line in lines if line["method"] == "adaped" and "valid" in line]
    assert scored == [1, 2]  # of three rounds; the last is scored apart
    again = tmp_path / "again.svg"
    found = command("train", "--resume", out, "--plot", again, "--quiet")
    assert (found.code, found.err) == (0, "")
    assert again.read_bytes().startswith(b"<?xml")


def test_a_picture_changes_no_score(command, on_table, three, trained, tmp_path):
    out = tmp_path / "run"
    command("train", *on_table, *three, "--out", out, "--plot", tmp_path / "p.pdf", "--quiet")
    own, other = (json.loads((each / "summary.json").read_text()) for each in (out, trained))
    assert own["methods"] == other["methods"]


def test_a_resumed_run_without_scores_on_the_way_is_drawn(command, trained, tmp_path):
    picture = tmp_path / "p.png"
    assert command("train", "--resume", trained, "--plot", picture).code == 0
    assert picture.read_bytes().startswith(PNG)


def test_what_cannot_be_drawn_is_refused_first(untrained, on_table, tmp_path, monkeypatch):
    words = ["train", *on_table, "--plot"]
    untrained(*words, tmp_path / "p.txt", wanted="--plot must be a .png, .svg or .pdf file")
    untrained(*words, tmp_path / "none" / "p.png", wanted="--plot must be in a folder that exists")
    (tmp_path / "p.png").write_text("kept")
    untrained(*words, tmp_path / "p.png", wanted="exists already. Overwrite it with --force")
    assert (tmp_path / "p.png").read_text() == "kept"
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, package=None: None if name == "matplotlib" else find(name, package),
    )
    untrained(*words, tmp_path / "q.png", wanted="--plot needs matplotlib")
    sweep = ["sweep", *on_table, "--over", "lr=0.1,0.2", "--plot"]
    untrained(*sweep, tmp_path / "q.png", wanted="sweep: --plot needs matplotlib")


def test_withheld_scores_are_not_drawn(untrained, on_table, tmp_path):
    """Secure noise: the picture would show single clients, so nothing is trained."""
    secure = {
        "privacy.epsilon": 5.0,
        "privacy.delta": 1e-5,
        "privacy.clip": 1.0,
        "privacy.noise": "secure",
        "training.cohort": "poisson",
    }
    words = [word for key, value in secure.items() for word in ("--set", f"{key}={value}")]
    words += ["--algorithm", "adamap", "--algorithm", "local"]
    wanted = "--plot must be of a run that shows its clients' scores, got secure noise"
    untrained("train", *on_table, *words, "--plot", tmp_path / "p.png", wanted=wanted)


def test_a_sweep_is_drawn_with_and_without_local(command, fast, tmp_path):
    picture, out = tmp_path / "s.png", tmp_path / "s"
    words = ["sweep", "--over", "lr=0.01,0.5", "--seeds", "2", *fast(), "--out", out]
    words += ["--plot", picture, "--force"]
    alone = command(*words, "--algorithm", "fedavg")
    assert alone.code == 0, alone.err
    small = picture.stat().st_size
    both = command(*words, "--algorithm", "fedavg", "--algorithm", "local")
    assert both.code == 0
    assert f"Written to {picture}" in both.err
    assert picture.stat().st_size > small  # the gains of 30 clients are there, too
