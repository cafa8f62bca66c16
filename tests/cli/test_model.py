"""A model that stands alone: predictions, newcomers and exports without the data or a rerun."""

import json
import shutil
import stat

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedprior
from fedprior.exchange import trees


@pytest.fixture(scope="module")
def alone(trained, table, tmp_path_factory):
    """A copy of a finished run whose data are gone, in a folder that nobody may write to."""
    folder = shutil.copytree(trained, tmp_path_factory.mktemp("alone") / "run")
    config = (folder / "config.toml").read_text()
    assert str(table) in config
    from fedprior.core.files import read_sealed, seal

    moved = read_sealed(folder / "config.toml").replace(str(table), str(table) + ".gone")
    (folder / "config.toml").write_text(seal(moved))
    for path in (folder, *folder.rglob("*")):
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(stat.S_IRWXU)


@pytest.fixture(scope="module")
def frame(table):
    return pd.read_csv(table)


def listing(folder):
    return {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def test_a_frame_is_predicted_without_the_data(alone, frame):
    before = listing(alone)
    model = fedprior.load(alone)
    assert (model.method, model.seed, model.guarantee) == ("adaped", 0, None)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.clients.names == list("abcdef")
    shares = model.predict_proba(frame)
    assert shares.shape == (60, 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (model.predict(frame) == model.classes_[shares.argmax(axis=1)]).all()
    right = model.predict(frame) == frame["outcome"]
    assert right.mean() > 0.6  # a few steps of training on 36 of these rows
    np.testing.assert_allclose(model.predict_proba(pl.from_pandas(frame)), shares, rtol=1e-6)
    assert listing(alone) == before


def test_rows_come_back_in_their_order(alone, frame):
    model = fedprior.load(alone, method="local")
    order = np.random.default_rng(0).permutation(len(frame))
    shares = model.predict_proba(frame)
    np.testing.assert_allclose(model.predict_proba(frame.iloc[order]), shares[order], rtol=1e-5)
    alike = [model.predict_proba(frame.iloc[[row]])[0] for row in (3, 17, 59)]
    np.testing.assert_allclose(alike, shares[[3, 17, 59]], rtol=1e-5)


def test_clients_by_name(alone, frame):
    """The column, one name for all rows, a name for each, and none."""
    model = fedprior.load(alone, method="local")
    bare = frame.drop(columns=["shop", "outcome"])
    shares = model.predict_proba(frame)
    np.testing.assert_allclose(model.predict_proba(bare, client=frame["shop"]), shares, rtol=1e-5)
    of_c = model.predict_proba(frame, client="c")
    np.testing.assert_allclose(of_c[frame["shop"] == "c"], shares[frame["shop"] == "c"], rtol=1e-5)
    assert np.abs(of_c - shares).max() > 0.01
    population = model.predict_proba(bare)
    np.testing.assert_allclose(population, model.predict_proba(bare, client="z"), rtol=1e-6)
    assert (model.outputs(bare)[1] == "population").all()
    assert np.abs(population - shares).max() > 0.01
    with pytest.raises(ValueError, match="client must be a name, or one for each of the 60 rows"):
        model.predict(bare, client=["a", "b"])


def test_part_of_a_client_key_is_refused(command, fast, tmp_path):
    """Without one of two client columns, rows must not silently get the population's model."""
    draws = np.random.default_rng(0)
    rows = pd.DataFrame({"state": list("ab") * 20, "county": list("ccdd") * 10})
    rows["x"] = draws.random(len(rows))
    rows["y"] = rows["x"] > 0.5
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = ("--client", "state", "--client", "county", "--label", "y", "--algorithm", "fedavg")
    words = ("--data", tmp_path / "rows.csv", *words, *fast(), "--out", tmp_path / "run")
    assert command("train", *words).code == 0
    model = fedprior.load(tmp_path / "run")
    assert set(model.outputs(rows)[1]) == {"own"}
    assert set(model.outputs(rows.drop(columns=["state", "county"]))[1]) == {"population"}
    with pytest.raises(ValueError, match="'state'"):
        model.predict(rows.drop(columns="state"))


def test_a_newcomer_does_not_depend_on_the_others(alone, frame):
    """Its draws are keyed by its name, not by its place among those who are new."""
    model = fedprior.load(alone)
    two = pd.concat([frame[:10].assign(shop="x"), frame[10:20].assign(shop="k")])
    together, whose, _ = model.outputs(two)
    assert set(whose) == {"newcomer"}
    for name in "xk":
        own = (two["shop"] == name).to_numpy()
        single, _, _ = model.outputs(two[own])
        np.testing.assert_allclose(single, together[own], rtol=1e-4, atol=1e-6)
    unlabeled = model.outputs(two.drop(columns="outcome"))
    assert set(unlabeled[1]) == {"population"}
    assert np.abs(unlabeled[0] - together).max() > 1e-3


def test_a_model_is_the_result_of_the_run(tmp_path):
    """Thetas and memories to the bit, with many clients of many sizes, in both stores."""
    from fedprior.data import synthetic
    from fedprior.exchange.facts import Facts
    from fedprior.reporting import model_file
    from fedprior.reporting.config import Config, ModelChoice
    from fedprior.reporting.training import Study

    clients = synthetic.classification(
        num_clients=9, samples_per_client=(4, 30), num_features=3, num_classes=2, seed=1
    )
    config = Config(methods=("adaped",), model=ModelChoice(name="logistic"))
    algorithm = fedprior.learning.adaped(fedprior.models.logistic(3, 2))
    for store in ("device", "disk"):
        file = tmp_path / store / "model.safetensors"
        with model_file.keeping_thetas(file) as keep:
            run = {"rounds": 3, "cohort": fedprior.FixedSize(size=2), "store": store}
            result = fedprior.simulate(algorithm, clients, keep=keep, **run)
        training = Study(config, Facts.of(clients)).training("adaped")
        model_file.save(file, result, config, training, guarantee=None)
        model = fedprior.load(file)
        memories, enrolled = result.store.read(np.arange(9))
        for number, name in enumerate(clients.clients):
            same(model.clients.theta(name), jax.tree.map(lambda leaf: leaf[number], result.thetas))  # noqa: B023
            memory = model.clients.memory(name)
            assert (memory is None) == (not enrolled[number])
            if memory is not None:
                same(memory, jax.tree.map(lambda leaf: leaf[number], memories))  # noqa: B023
        x = clients.test.x[:5]
        outputs = model.outputs(x, client=str(clients.clients[4]))[0]
        np.testing.assert_allclose(outputs, result.predict(4, x), rtol=1e-5)
        assert repr(model) == "TrainedModel(adaped, seed 0, 9 clients)"
        with pytest.raises(ValueError, match=r"new.csv is not a folder. The run was trained on ar"):
            model.predict(tmp_path / "new.csv")


def same(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_bad_requests(alone, trained, frame, tmp_path):
    with pytest.raises(ValueError, match=r"method must be one of adaped, .*Did you mean adaped"):
        fedprior.load(alone, method="adapd")
    with pytest.raises(ValueError, match=r"seed must be a seed of the run \(0 to 0\), got 3"):
        fedprior.load(alone, seed=3)
    with pytest.raises(ValueError, match=r"is not the folder of a run"):
        fedprior.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"config.toml is damaged, cut short or not a file"):
        fedprior.load(trained / "config.toml")
    model = fedprior.load(alone)
    with pytest.raises(ValueError, match="there is no column 'price', only shop, color, outcome"):
        model.predict(frame.rename(columns={"price": "prise"}))
    with pytest.raises(ValueError, match="client must be one of a, b"):
        model.clients.theta("q")


def test_a_changed_row_is_refused_when_its_client_is_served(trained, frame, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    file = copy / "model" / "adaped" / "seed-0" / "clients" / "thetas.rows"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1  # of client f
    file.write_bytes(content)
    model = fedprior.load(copy)
    model.predict(frame[frame["shop"] != "f"])
    with pytest.raises(ValueError, match=r"thetas.rows is damaged: the checksum of the row of cl"):
        model.predict(frame)
    file.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"thetas.rows is damaged: it must hold \d+ bytes, got"):
        fedprior.load(copy)


# export


@pytest.fixture(scope="module")
def exported(tmp_path_factory, trained):
    from fedprior.reporting.model import file_of
    from fedprior.reporting.model_file import export

    out = tmp_path_factory.mktemp("exported") / "model.safetensors"
    export(file_of(trained), out)
    return out


def test_an_export_predicts_like_the_run_does_for_strangers(exported, alone, frame):
    published, whole = fedprior.load(exported), fedprior.load(alone)
    assert published.clients is None
    strangers = frame.assign(shop=frame["shop"] + " elsewhere")
    expected, whose, _ = whole.outputs(strangers)
    outputs, _, _ = published.outputs(strangers)
    assert set(whose) == {"newcomer"}
    np.testing.assert_array_equal(outputs, expected)
    assert set(published.outputs(frame.drop(columns="outcome"))[1]) == {"population"}


def test_the_export_command(command, refused, alone, mixed_words, tmp_path):
    out = tmp_path / "model.safetensors"
    found = command("export", alone, "--out", out, "--json")
    assert (found.code, found.err) == (0, "")
    answer = json.loads(found.out)
    wanted = {"method": "adaped", "seed": 0, "guarantee": None, "out": str(out), "format": 1}
    assert answer == wanted
    refused("export", alone, "--out", out, wanted="exists already. Overwrite it")
    other = tmp_path / "other.safetensors"
    refused("export", alone, "--out", other, "--algorithm", "local", wanted="nothing together")
    assert not other.exists()
    told = command("export", alone, "--out", other)
    assert "Not private" in told.err
    predicted = tmp_path / "p.csv"
    assert command("personalize", out, "--data", mixed_words, "--out", predicted).code == 0
    assert predicted.exists()


@pytest.fixture
def mixed_words(new_rows, tmp_path):
    return new_rows(tmp_path / "new.csv", ["b", "new"], rows=4, seed=5)


def test_an_export_of_a_private_run_holds_nothing_of_a_client(command, fast, new_rows, tmp_path):
    """Neither names, thetas, memories nor scores, cohorts or histories; nor where the data lie."""
    clients = [f"customer-{number}" for number in range(8)]
    data = new_rows(tmp_path / "private-data.csv", clients)
    words = ["--client", "shop", "--label", "outcome"]
    assert command("encoder", data, *words, "--out", tmp_path / "e.json").code == 0
    run = tmp_path / "run"
    private = ["--set", "privacy.epsilon=8", "--set", "privacy.delta=1e-3"]
    done = command(
        "train", "--data", data, "--encoder", tmp_path / "e.json", "--algorithm", "adaped",
        *fast(), *private, "--out", run,
    )  # fmt: skip
    assert done.code == 0, done.err
    out = tmp_path / "public.safetensors"
    shutil.move(data, tmp_path / "gone")
    told = command("export", run, "--out", out)
    assert told.code == 0, told.err
    assert "Its guarantee: epsilon" in told.err
    assert "not valid for release" in told.err
    content, whole = out.read_bytes(), fedprior.load(run)
    assert whole.guarantee["epsilon"] <= 8
    for name in (*clients, "private-data", str(tmp_path)):
        assert name.encode() not in content
    for name in clients:
        for leaf in jax.tree.leaves((whole.clients.theta(name), whole.clients.memory(name))):
            array = np.asarray(leaf)
            assert array.size < 3 or array.tobytes() not in content
    for path in (run / "checkpoint").rglob("*.safetensors"):
        kind = trees.read(path, kind="checkpoint", format=2)
        for name, array in kind.arrays.items():
            own = name.startswith(("state/", "enrolled"))
            assert own or array.size < 3 or array.tobytes() not in content
    for word in (b"history", b'cohort"', b"fingerprint", b'scores"', b'valid"'):
        assert word not in content
    facts = trees.read(out, kind="model", format=1).facts
    assert sorted(facts) == [
        "classes", "config", "encoder", "guarantee", "method", "num_clients", "rounds", "seed",
        "shape",
    ]  # fmt: skip
    assert sorted(facts["config"]) == ["methods", "model", "options", "privacy", "training"]
    same(trees.read(out, kind="model", format=1).arrays, flat(whole.state))
    assert fedprior.load(out).guarantee == whole.guarantee


def flat(state):
    from fedprior.core import tree

    return {name: np.asarray(leaf) for name, leaf in tree.names(state).items()}


def test_thousands_of_clients_in_one_call(tmp_path):
    """10,000 clients of 1 to 40 rows: each by its own model, in a bounded number of programs."""
    from fedprior.reporting import personalize
    from fedprior.reporting.personalize import Personalizer

    algorithm = fedprior.learning.fedavg(fedprior.models.logistic(3, 4))
    state = algorithm.init(jax.random.key(0))
    draws = np.random.default_rng(0)
    thetas = {
        "weight": draws.normal(size=(10_000, 3, 4)).astype(np.float32),
        "intercept": draws.normal(size=(10_000, 4)).astype(np.float32),
    }
    known = {f"client {number}": number for number in range(10_000)}
    size = draws.integers(1, 41, 10_000)
    number = draws.permutation(np.repeat(np.arange(10_000), size))
    x = draws.normal(size=(len(number), 3)).astype(np.float32)
    reads = []

    def read(numbers):
        reads.append(len(numbers))
        return jax.tree.map(lambda leaf: leaf[numbers], thetas)

    before, told = personalize._predict._cache_size(), []
    own = Personalizer(algorithm, state, 0, known, read)
    names = np.array([f"client {each}" for each in number], object)
    y = np.full(len(x), -1, np.int32)
    outputs, whose = own.predict(x, y, names, progress=lambda done, of: told.append((done, of)))
    assert (whose == "own").all()
    assert told[-1] == (len(x), len(x))
    wanted = np.einsum("nd,ndk->nk", x, thetas["weight"][number]) + thetas["intercept"][number]
    np.testing.assert_allclose(outputs, wanted, rtol=1e-4, atol=1e-5)
    assert sum(reads) == 10_000
    assert personalize._predict._cache_size() - before <= 12


def test_a_method_that_couples_its_clients_has_no_model_for_others():
    from fedprior.reporting.personalize import Personalizer

    algorithm = fedprior.learning.multitask(
        fedprior.models.logistic(2, 2), fedprior.populations.Multitask(covariance=np.eye(3))
    )
    state = algorithm.init(jax.random.key(0))
    own = Personalizer(algorithm, state, 0, {"a": 0}, lambda numbers: None)
    x, y = np.zeros((1, 2), np.float32), np.zeros(1, np.int32)
    with pytest.raises(ValueError, match=r"couples the clients of its run .* got 'new'\. Choose"):
        own.predict(x, y, np.array(["new"], object))
