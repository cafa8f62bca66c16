"""The budget of a population on the command line, and runs whose configuration was edited."""

import json
import subprocess
import sys

import pytest

from fedprior.core.files import read_sealed, seal
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.terms import Terms

ESTIMATE = "from fedprior.cli.main import main; main()"


@pytest.fixture
def clinics(tmp_path):
    """60 clinics with 20 patients each."""
    path = tmp_path / "clinics.csv"
    rows = [f"c{k},{int((7 * k + 3 * r) % 10 < 4)}" for k in range(60) for r in range(20)]
    path.write_text("clinic,ill\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def budget(command, tmp_path):
    """The options of a ledger with epsilon 3, and its file."""
    path, key = tmp_path / "population.jsonl", tmp_path / "key"
    words = ("--epsilon", "3", "--delta", "1e-3", "--clients", "60", "--key", key)
    made = command("privacy", "ledger", "init", path, *words)
    assert (made.code, made.err) == (0, "")
    assert "a budget of epsilon 3 at delta 0.001 for one client (replace-one)" in made.out
    assert key.read_text().strip() not in made.out
    return path, ("--ledger", path, "--key", key)


@pytest.fixture
def private(fast):
    """A run of 8 private rounds on 60 clients, whose accounting has a closed form."""

    def options(**changes):
        return fast(
            data__name="synthetic",
            data__options__num_clients=60,
            training__rounds=8,
            training__cohort="everyone",
            training__cohort_size=0,
            privacy__epsilon=2.0,
            privacy__delta=0.001,
            **changes,
        )

    return ("train", "--algorithm", "fedavg-fine-tuning", "--quiet"), options


def test_a_budget_that_estimates_and_trainings_share(command, clinics, budget, private, tmp_path):
    """Two estimates at the same time from processes of their own, a training with what is left, and
    a third estimate that is refused; then somebody reads who spent what.
    """
    path, ledger = budget
    words = ["estimate", clinics, "--group", "clinic", "--outcome", "ill", *ledger, "--epsilon"]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", ESTIMATE, *map(str, words), "0.5", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    answers = [json.loads(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert max(answer["ledger"]["epsilon"] for answer in answers) == pytest.approx(1, abs=5e-3)
    train, options = private
    trained = command(*train, *options(), *ledger, "--out", tmp_path / "run", "--json")
    assert trained.code == 0
    (end,) = json.loads(trained.out)["runs"]
    assert end["ended_by"] == "budget"  # of the population; its own would cover all 8 rounds
    assert 0 < end["rounds"] < 8

    before = path.read_bytes()
    third = command(*words, "0.5", "--out", tmp_path / "third.json")
    assert (third.code, third.out, len(third.err.splitlines())) == (2, "", 1)
    assert "what is left of the budget" in third.err
    more = command(*train, *options(), *ledger, "--seed", "5", "--out", tmp_path / "more")
    assert (more.code, len(more.err.splitlines())) == (2, 1)
    assert "does not cover one round of fedavg-fine-tuning" in more.err
    assert not (tmp_path / "more").exists()
    assert path.read_bytes() == before

    shown = command("privacy", "ledger", "show", path, *ledger[2:])
    assert shown.code == 0
    text = " ".join(shown.out.split())
    for words in (
        "of 3 is spent at delta 0.001, for one client (replace-one). Further charges may add 0.",
        "estimate clinics.csv (rates) 1 round of 60 clients: randomized reports of epsilon 0.5;",
        f"train fedavg-fine-tuning, seed 0, run {end['rounds']} rounds of 60 clients: Gaussian",
        "sees what was released",
        "adds up the messages unbounded",
        "1 of 3 charges had simulated noise",
    ):
        assert words in text
    stated = json.loads(command("privacy", "ledger", "show", path, *ledger[2:], "--json").out)
    assert stated["head"]["hash"] in shown.out
    assert 2 < stated["spent"] <= 3

    words = ("privacy", "ledger", "verify", path, "--head", stated["head"]["hash"])
    good = command(*words, *ledger[2:])
    assert good.code == 0
    assert "every line is as it was written, and signed with the key" in good.out
    path.write_bytes(b"".join(before.splitlines(keepends=True)[:-2]))
    cut = command(*words, *ledger[2:])
    assert (cut.code, cut.out, len(cut.err.splitlines())) == (1, "", 1)
    assert "cut or replaced since that head was noted" in cut.err
    assert command(*words[:-2], *ledger[2:]).code == 0  # by itself a cut does not show
    assert command(*words).code == 1  # without the key


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("init", "new", "--epsilon", "0", "--delta", "1e-6"), "--epsilon must be a positive"),
        (("init", "new", "--epsilon", "inf", "--delta", "1e-6"), "--epsilon must be a positive"),
        (("init", "new", "--epsilon", "1", "--delta", "1"), "--delta must be in"),
        (("init", "new", "--epsilon", "1", "--delta", "0.1", "--clients", "60"), "below 1 / cl"),
        (("init", "new", "--epsilon", "1", "--delta", "0.1", "--relation", "x"), "--relation must"),
        (("init", "old", "--epsilon", "1", "--delta", "0.1"), "a file that does not exist"),
        (("init", ".", "--epsilon", "1", "--delta", "0.1"), "must be a new file"),
        (("init", "new", "--epsilon", "1", "--delta", "0.1", "--key", "."), "is a folder"),
        (("init", "old/new", "--epsilon", "1", "--delta", "0.1", "--key", "k"), "cannot write"),
        (("init", "new", "--epsilon", "1", "--delta", "0.1", "--key", "old/k"), "cannot write"),
        (("init", "a/new", "--epsilon", "1", "--delta", "0.1", "--key", "old"), "64 hexadecimal"),
        (("show", "none"), "does not exist"),
        (("show", "old"), "is empty"),
        (("show", "."), "is a folder, not a ledger"),
        (("verify", "."), "is a folder, not a ledger"),
        (("verify", "none"), "does not exist"),
        (("verify", "old", "--head", "x"), "--head must be the 64 hexadecimal digits"),
    ],
)
def test_bad_input_is_one_line(command, tmp_path, monkeypatch, words, wanted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").touch()
    found = command("privacy", "ledger", *words)
    assert (found.code, found.out, len(found.err.splitlines())) == (2, "", 1)
    assert wanted in found.err
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("name", ["init", "show", "verify"])
def test_help_has_an_example(command, name):
    found = command("privacy", "ledger", name, "--help")
    assert found.code == 0
    assert f"Example: fedprior privacy ledger {name} clinics.jsonl" in " ".join(found.out.split())


def test_a_ledger_without_a_key_says_so(command, tmp_path):
    path = tmp_path / "ledger.jsonl"
    words = ("--epsilon", "1", "--delta", "1e-6", "--relation", "add-remove", "--json")
    made = json.loads(command("privacy", "ledger", "init", path, *words).out)
    assert (made["keyed"], made["relation"], made["left"]) == (False, "add-remove", 1)
    assert "not signed" in command("privacy", "ledger", "verify", path).out
    assert read(path)[0].budget == 1


def test_options_that_need_others(command, private, budget, tmp_path):
    train, options = private
    path, ledger = budget
    none, own = ("--ledger", tmp_path / "popluation.jsonl"), tmp_path / "own.jsonl"
    terms = Terms(delta=0.001, relation="add-remove", view="central", noise="simulated")
    Ledger(own, terms).close()
    for words, wanted in (
        ((*options(), *none), "must be an existing ledger"),
        ((*options(), "--ledger", own), "must be the ledger of a population"),
        ((*options(), *ledger[2:]), "key must be empty without a ledger"),
        ((*options(), *ledger[:2]), "opened only with it (--key FILE)"),
        (ledger, "epsilon must be given"),
        ((*ledger, "--resume", tmp_path / "run"), "--resume must stand alone"),
    ):
        found = command(*train, *words)
        assert (found.code, len(found.err.splitlines())) == (2, 1)
        assert wanted in found.err
    words = ("--over", "lr=0.1", *options(privacy__ledger=str(path), privacy__key="key"))
    swept = command("sweep", "--algorithm", "fedavg-fine-tuning", *words)
    assert "sweep: privacy.ledger must be empty" in swept.err
    assert len(read(path, ledger[3])[1]) == 1


@pytest.fixture
def run(command, private, budget, tmp_path):
    """A run that its budget ended, and what goes on with it."""
    train, options = private
    folder = tmp_path / "run"
    assert command(*train, *options(), *budget[1], "--out", folder).code == 0

    def edited(old, new):
        config = folder / "config.toml"
        text = read_sealed(config)
        assert old in text
        config.write_text(seal(text.replace(old, new)))
        found = command("train", "--resume", folder, "--quiet")
        config.write_text(seal(text))
        return found

    return folder, edited


def test_an_edited_configuration_begins_no_second_budget(run, command, tmp_path):
    """Although somebody who edits it can compute its checksum, too."""
    folder, edited = run
    before = sorted(path for path in folder.rglob("*") if path.is_file())
    for old, new in (
        ("\nseed = 0\n", "\nseed = 1\n"),
        ("\nseeds = 1\n", "\nseeds = 2\n"),
        ('    "fedavg-fine-tuning",\n', '    "fedavg-fine-tuning",\n    "fedavg",\n'),
        ('    "fedavg-fine-tuning",\n', '    "fedavg",\n'),
        ("\nepsilon = 2.0\n", "\nepsilon = 20.0\n"),
        ("\nrounds = 8\n", "\nrounds = 9\n"),
        ("population.jsonl", "another.jsonl"),
        ("\ncheckpoint_every = 100\n", "\ncheckpoint_every = 50\n"),
    ):
        found = edited(old, new)
        assert (found.code, len(found.err.splitlines())) == (2, 1)
        assert "config.toml must be the one that the run began with" in found.err
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == before
    again = command("train", "--resume", folder, "--quiet", "--json")
    assert again.code == 0
    assert json.loads(again.out)["population"]["spent"] <= 3


def test_a_run_whose_ledger_is_gone_does_not_begin_another(run, command):
    folder, _ = run
    (ledger,) = folder.rglob("ledger.jsonl")
    content = ledger.read_bytes()
    (folder / "checkpoint" / "fedavg-fine-tuning" / "seed-0" / "checkpoint.safetensors").unlink()
    for left in (None, b"", content.splitlines(keepends=True)[0]):
        ledger.unlink() if left is None else ledger.write_bytes(left)
        found = command("train", "--resume", folder, "--quiet")
        assert (found.code, len(found.err.splitlines())) == (2, 1)
        assert any(word in found.err for word in ("is missing", "is empty", "truncated"))
        assert (ledger.read_bytes() if ledger.exists() else None) == left
    ledger.write_bytes(content)
    assert command("train", "--resume", folder, "--quiet").code == 0


def test_a_folder_in_which_no_run_began_is_free(command, private, tmp_path):
    """A run that was killed before its configuration was written left nothing to go on with."""
    train, options = private
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    for name in ("checkpoint/fingerprint", "config.toml.77-140.tmp", ".lock"):
        (folder / name).write_text("")
    (folder / "checkpoint" / "mine.txt").write_text("")
    found = command(*train, *options(), "--out", folder)
    assert "must be a new or empty folder" in found.err
    (folder / "checkpoint" / "mine.txt").unlink()
    assert command(*train, *options(), "--out", folder).code == 0
    assert not list(folder.rglob("*.tmp"))
