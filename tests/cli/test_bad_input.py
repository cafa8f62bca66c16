"""Bad input: one clear line, exit code 2, nothing half-written."""

import shutil

import numpy as np
import pytest

from fedprior.core.files import read_sealed, seal
from fedprior.exchange import trees

HEADER = "shop,price,color,outcome\n"
GOOD = "".join(f"{shop},{n},red,{'yes' if n % 2 else 'no'}\n" for shop in "ab" for n in range(6))


@pytest.fixture
def untouched(refused, tmp_path, monkeypatch):
    """`train` with the given options is refused, and neither --out nor runs/ appears."""
    monkeypatch.chdir(tmp_path)

    def run(*words, wanted):
        before = sorted(tmp_path.rglob("*"))
        refused("train", *words, "--out", tmp_path / "run", wanted=wanted)
        refused("train", *words, wanted=wanted)
        assert sorted(tmp_path.rglob("*")) == before

    return run


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("training.round=3", "config training: key must be one of rounds,"),
        ("training.round=3", "got 'round'. Did you mean rounds?"),
        ("trainig.rounds=3", "config: key must be one of format,"),
        ("trainig.rounds=3", "Did you mean training?"),
        ("rounds", "config: --set must be of the form key=value, got 'rounds'"),
        ("training.rounds=many", "config training: rounds must be a whole number, got 'many'"),
        ("training.rounds=2.5", "rounds must be a whole number, got 2.5"),
        ("training.rounds=true", "rounds must be a whole number, got True"),
        ("training.rounds=0", "rounds must be a whole number of at least 1, got 0"),
        ("training.theta_rate=fast", "theta_rate must be a number, got 'fast'"),
        ("training.theta_rate=-0.1", "theta_rate must be a number of at least 0, got -0.1"),
        ("training.gamma_rate=-1", "gamma_rate must be a number of at least 0, got -1.0"),
        ("training.theta_rate=nan", "theta_rate must be a number of at least 0, got nan"),
        ("training.clip=-1", "clip must be a number of at least 0"),
        ("training.decay=1.5", "decay must be in (0, 1], got 1.5"),
        (
            "training.cohort=fixd",
            "one of auto, everyone, fixed, poisson, cyclic, got 'fixd'. Did you mean",
        ),
        (
            "training.cohort_size=31",
            "cohort_size must be at most the number of clients (30), got 31",
        ),
        ("training=3", "config: training must be a table, got 3"),
        ("training.rounds.x=3", "config training: rounds must be a whole number, got {'x': 3}"),
        ("model.name=lenet", "name must be one of auto, linear,"),
        ("model.name=linear", "model: name must be a classifier, got 'linear'. The target is a c"),
        ("model.name=lenet5", "model: name must be lenet5 only for 28 x 28 x 1 images"),
        ("model.hidden=[0]", "hidden"),
        ("model.hidden=[10000000000]", "config model: hidden must be below 2**31, got 10000000000"),
        ("model.hidden=wide", "hidden must be a whole number, got 'wide'"),
        ("data.name=digit", "load: name must be one of digits,"),
        ("data.options.num_client=3", "got 'num_client'. Did you mean num_clients?"),
        ("data.options.num_clients=0", "num_clients must be"),
        ("options.adapd.psi_rate=1", "got 'adapd'. Did you mean adaped?"),
        ("options.adaped.psi_rat=1", "config options.adaped: key must be one of"),
        ("options.adaped.psi_rate=-1", "adaped: psi_rate must be a number of at least 0, got -1"),
        (
            "options.adaped.psi_rate=slow",
            "adaped: psi_rate must be a number of at least 0, got 'sl",
        ),
        ("seed=-1", "config: seed must be a whole number of at least 0, got -1"),
        ("seeds=0", "config: seeds must be a whole number of at least 1, got 0"),
        ("methods=[]", "config: methods must be at least one name"),
        (
            "format=9",
            "config: format of the configuration must be 2, got 9. It was",
        ),
    ],
)
def test_a_wrong_setting(refused, change, wanted):
    refused("train", "--set", change, wanted=wanted)


def test_an_unknown_algorithm(untouched):
    untouched("--algorithm", "adapet", wanted="got 'adapet'. Did you mean adaped?")


def test_memory_that_does_not_suffice_is_one_line(refused, monkeypatch, fast, tmp_path):
    def too_large(*args, **options):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nAllocator: ...")

    monkeypatch.setattr("fedprior.reporting.train.simulate", too_large)
    words = ("--algorithm", "fedavg", *fast(), "--out", tmp_path / "run")
    refused("train", *words, wanted="not enough memory. Out of memory allocating 9 bytes.")


def test_a_folder_in_place_of_a_configuration(refused, tmp_path):
    refused("train", tmp_path, wanted="is a folder, not a TOML file.")


def test_a_wrong_configuration_file(untouched, tmp_path):
    file = tmp_path / "config.toml"
    for content, wanted in (
        ("[training]\nround = 3\n", "got 'round'. Did you mean rounds?"),
        ("sed = 3\n", "config: key must be one of"),
        ("[training\n", "is not a TOML file: Expected"),
        ("\x00", "is not a TOML file"),
    ):
        file.write_text(content)
        untouched(file, wanted=wanted)
    file.write_bytes(b"\xff\xfe")
    untouched(file, wanted="is not a TOML file")
    untouched(tmp_path / "none.toml", wanted="there is no TOML file")
    untouched("mnits", wanted="Did you mean mnist?")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", "the file is empty"),
        (HEADER, "the file has a header but no rows"),
        (HEADER + GOOD + "b,-inf,red,yes\n", "column 'price' must be finite, got -inf in row 13"),
        (HEADER.replace("shop", "shops") + GOOD, "there is no column 'shop', only "),
        (HEADER + "a,1,red,yes\nb,2,red,yes\n", "classes of label 'outcome' must be at least 2"),
        (
            HEADER + "a,1,red,\nb,2,red,\n",
            "number of rows with client and label must be at least 1",
        ),
    ],
)
def test_a_wrong_table(untouched, tmp_path, content, wanted):
    file = tmp_path / "table.csv"
    file.write_text(content)
    untouched("--data", file, "--client", "shop", "--label", "outcome", wanted=wanted)


def test_a_table_without_its_columns(untouched, table, tmp_path):
    untouched("--data", table, "--label", "outcome", wanted="client must be given for a table, got")
    untouched("--data", table, "--client", "shop", wanted="Say which column it is: --label COLUMN")
    named = ["--data", table, "--client", "shop", "--label", "outcome"]
    untouched(
        *named, "--features", "price,colour", wanted="no column 'colour', only shop, price, color"
    )
    untouched(*named, "--features", "shop", wanted="each feature must be neither the client nor")
    untouched(*named[:4], "--label", "outcom", wanted="no column 'outcom', only")
    untouched(*named, "--set", "training.cohort_size=7", wanted="at most the number of clients (6)")
    missing = tmp_path / "none.csv"
    untouched("--data", missing, wanted="--data must be a file or folder that exists")


def test_columns_of_a_folder_of_arrays(untouched, tmp_path):
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "a.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    words = ("--data", tmp_path / "arrays", "--client", "shop")
    untouched(*words, wanted="--client concerns a table of your own")


def test_regression_with_a_classifier(untouched, tmp_path):
    file = tmp_path / "amounts.csv"
    rows = [f"{shop},{n},{n + 0.5}" for shop in "ab" for n in range(6)]
    file.write_text("\n".join(["shop,price,amount", *rows]))
    named = ["--data", file, "--client", "shop", "--label", "amount"]
    untouched(*named, "--algorithm", "adaped", wanted="adaped: model must be a classifier")
    untouched(*named, "--set", "model.name=logistic", wanted="The target is a quantity")


def test_patience_without_validation_samples(untouched, table):
    words = ["--data", table, "--client", "shop", "--label", "outcome"]
    words += ["--algorithm", "local-converged", "--set", "data.options.valid_share=0.0"]
    untouched(*words, wanted="clients have no validation samples")


def arrays(folder, **clients):
    folder.mkdir()
    for name, (x, y) in clients.items():
        np.savez(folder / f"{name}.npz", x=x, y=y)
    return folder


def test_a_wrong_folder_of_arrays(untouched, tmp_path):
    x, y = np.zeros((6, 2), np.float32), np.array([0, 1] * 3)
    bad = x.copy()
    for value in (np.nan, np.inf):
        bad[3] = value
        share = ["--set", "data.options.test_share=0.0"]
        folder = arrays(tmp_path / str(value), one=(x, y), two=(bad, y))
        untouched("--data", folder, *share, wanted="must be finite, got NaN or infinity")
    folder = arrays(tmp_path / "empty", one=(x, y), two=(x[:0], y[:0]))
    untouched("--data", folder, wanted="two.npz has no training rows")
    folder = arrays(tmp_path / "text", one=(x, y), two=(x.astype(str), y))
    untouched("--data", folder, wanted="two.npz must be numeric")
    folder = arrays(tmp_path / "shapes", one=(x, y), two=(x[:, :1], y))
    untouched("--data", folder, wanted="inputs must have one shape")
    (folder / "two.npz").write_bytes(b"no archive")
    untouched("--data", folder, wanted="must be an .npz file of plain arrays")


def test_a_folder_in_use_is_left_alone(refused, on_table, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for out in (tmp_path, notes):
        refused("train", *on_table, "--out", out, wanted="--out must be a new or empty folder")
    assert notes.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# --resume


@pytest.fixture
def copied(trained, tmp_path):
    """A run whose finished methods would have to be read from their checkpoints again."""
    copy = shutil.copytree(trained, tmp_path / "copy")
    for scores in copy.rglob("scores.safetensors"):
        scores.unlink()
    return copy


def checkpoint(run):
    return run / "checkpoint" / "adaped" / "seed-0" / "checkpoint.safetensors"


def test_resume_of_what_is_no_run(refused, tmp_path):
    refused("train", "--resume", tmp_path, wanted="is not the folder of a run: it contains no")
    refused("train", "--resume", tmp_path / "no", wanted="is not the folder of a run: it does not")
    assert list(tmp_path.iterdir()) == []


def test_resume_stands_alone(refused, copied):
    for words in (["--seed", "1"], ["--set", "seed=1"], ["--algorithm", "local"], ["--seeds", "2"]):
        refused("train", "--resume", copied, *words, wanted="--resume must stand alone")


def test_resume_with_other_data(refused, command, new_rows, fast, tmp_path):
    file = new_rows(tmp_path / "data.csv", "ab")
    words = ["--client", "shop", "--label", "outcome", "--algorithm", "fedavg"]
    run = tmp_path / "run"
    fast_words = fast(training__rounds=1)
    assert command("train", "--data", file, *words, *fast_words, "--out", run).code == 0
    new_rows(file, "ab", seed=1)
    refused("train", "--resume", run, wanted="has changed since the run started")
    file.unlink()
    refused("train", "--resume", run, wanted="does not exist")


def test_resume_of_a_checkpoint_cut_short(refused, copied):
    file = checkpoint(copied)
    file.write_bytes(file.read_bytes()[:-10])
    refused("train", "--resume", copied, wanted="checkpoint.safetensors is damaged or cut short")


def test_resume_of_a_newer_format(refused, copied):
    file = checkpoint(copied)
    packed = trees.read(file, kind="checkpoint", format=2)
    trees.write(file, packed.arrays, kind="checkpoint", format=3, **packed.facts)
    refused("train", "--resume", copied, wanted="must be 2, got 3. It was written by a newer")


def test_resume_with_another_configuration(refused, copied, trained, tmp_path):
    """config.toml was edited, with its checksum made anew."""
    for run in (copied, shutil.copytree(trained, tmp_path / "finished")):
        file = run / "config.toml"
        edited = read_sealed(file).replace("theta_rate = 0.1", "theta_rate = 0.2")
        file.write_text(edited)
        refused("train", "--resume", run, wanted="config.toml is damaged or was edited")
        file.write_text(seal(edited))
        wanted = "configuration must be the one the run began with"
        refused("train", "--resume", run, wanted=wanted)


def test_resume_of_an_unreadable_configuration(refused, copied):
    (copied / "config.toml").write_text(seal("[training"))
    refused("train", "--resume", copied, wanted="is not a TOML file")
