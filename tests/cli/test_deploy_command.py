"""`fedprior deploy`: three hospitals with tables of their own, from the app to predictions."""

import contextlib
import csv
import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower")

from fedprior.engines.debug import debug
from fedprior.exchange import trees
from fedprior.reporting.config import read
from fedprior.reporting.folder import Folder
from fedprior.sites import requests
from fedprior.sites.answers import Answer, Nodes
from fedprior.sites.document import Document
from fedprior.sites.folder import open_site
from fedprior.sites.reading import read_clients
from fedprior.sites.roster import Roster
from fedprior.sites.run import Deployment

HOSPITALS = ("north", "south", "west")
CONFIG = """
methods = ["fedavg-fine-tuning"]
[data]
client = ["hospital"]
label = "outcome"
[model]
name = "logistic"
[training]
rounds = 3
local_steps = 2
batch_size = 4
cohort = "everyone"
"""


def write_visits(path, *, seed, rows=40, header=("age", "ward", "outcome"), hospital=None):
    draws = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, *(["hospital"] if hospital else [])])
        for _ in range(rows):
            age, ward = draws.normal(60, 15), draws.choice(["a", "b"])
            cell = "NA" if draws.random() < 0.1 else f"{age:.1f}"
            outcome = "home" if age + 10 * (ward == "a") < 65 else "stays"
            writer.writerow([cell, ward, outcome, *([hospital] if hospital else [])])
    return path


class LocalNodes(Nodes):
    """Sites in this process: a request is answered at once, by the site's own code."""

    def __init__(self, sites, document, roster):
        self.sites, self.document, self.roster, self.masks = sites, document, roster, {}

    @property
    def present(self):
        return set(self.roster.active)

    def greet(self):
        return []

    def ask(self, do, clients, arrays, *, most, **facts):
        for folder in self.sites:
            site = open_site(folder)
            own = {name: about for name, about in clients.items() if name in site.clients}
            if not own:
                continue
            told = {"do": do, "token": self.document.token, "clients": own, "deadline": 600.0}
            packed = trees.pack(arrays, kind="exchange", format=1, **told, **facts)
            request = trees.unpack(packed, source="request", kind="exchange", format=1)
            found, sent = requests.answer(site, request, lambda document: document.agreement)
            sent = trees.unpack(
                trees.pack(sent, kind="exchange", format=1), source="", kind="exchange", format=1
            ).arrays
            yield Answer(tuple(own), None, found, sent)


@pytest.fixture(scope="module")
def app(tmp_path_factory, call):
    """An app for tables, with a public encoder."""
    folder = tmp_path_factory.mktemp("coordinator")
    (folder / "config.toml").write_text(CONFIG)
    public = write_visits(folder / "public.csv", seed=9, rows=60)
    words = ["encoder", public, "--client", "hospital", "--label", "outcome", "--quiet"]
    assert call([*words, "--out", folder / "encoder.json"]) == 0
    made = ["deploy", "init", folder / "app", folder / "config.toml", "--quiet"]
    assert call([*made, "--encoder", folder / "encoder.json"]) == 0
    return folder / "app"


@pytest.fixture(scope="module")
def sites(app, tmp_path_factory, call):
    """Three sites that have accepted the agreement."""
    root = tmp_path_factory.mktemp("hospitals")
    for seed, name in enumerate(HOSPITALS):
        data = write_visits(root / f"{name}.csv", seed=seed, rows=30 + 10 * seed)
        words = ["deploy", "site", root / name, "--app", app, "--data", data, "--quiet"]
        assert call([*words, "--name", name]) == 0
    cards = [root / name / "card.json" for name in HOSPITALS]
    assert call(["deploy", "roster", app, *cards, "--quiet"]) == 0
    for name in HOSPITALS:
        words = ["deploy", "site", root / name, "--accept", app / "agreement.json", "--quiet"]
        assert call(words) == 0
    return [root / name for name in HOSPITALS]


@pytest.fixture(scope="module")
def finished(app, sites, tmp_path_factory):
    """The run folder of a finished run."""
    path = tmp_path_factory.mktemp("server") / "run"
    document, roster = Document.read(app / "agreement.json"), Roster.read(app / "roster.json")
    folder = Folder(path)
    config = folder.create(read(app / "config.toml"))
    (path / "agreement.json").write_text(document.to_json())
    roster.write(path / "roster.json")
    nodes = LocalNodes(sites, document, roster)
    run = Deployment(folder, config, document, document.agreement, nodes)
    with contextlib.ExitStack() as held:
        run.open(held)
        run.play(1.0)
    return run


def test_three_tables_are_one_run_equal_to_debug(app, sites, finished):
    config = read(app / "config.toml")
    data = [site.with_suffix(".csv") for site in sites]
    own = [
        read_clients(app, config, path, name=name)
        for path, name in zip(data, HOSPITALS, strict=True)
    ]
    splits = {
        part: [getattr(each, part).client(0) for each in own] for part in ("train", "valid", "test")
    }
    from fedprior.data.federation import Federation, Split

    joined = {}
    for part, rows in splits.items():
        x, y = np.concatenate([each.x for each in rows]), np.concatenate([each.y for each in rows])
        size = np.array([len(each.x) for each in rows])
        joined[part] = Split(x, y, np.cumsum(size) - size, size.astype(np.int32))
    everyone = Federation(**joined, clients=np.array(HOSPITALS), classes=own[0].classes)
    agreement = finished.agreement
    twin = debug(agreement.algorithm, everyone, rounds=3, cohort=agreement.cohort, test=False)
    from fedprior.core import tree

    for name, value in tree.names(twin.state).items():
        np.testing.assert_array_equal(tree.names(finished.state)[name], value, err_msg=name)


def test_each_site_predicts_with_its_own_model(sites, finished, command, tmp_path):
    for seed, site in enumerate(sites):
        new = write_visits(tmp_path / f"{site.name}.csv", seed=50 + seed)  # without a column
        out = tmp_path / f"{site.name}-predictions.csv"
        found = command("personalize", site, "--data", new, "--out", out, "--json")
        assert found.code == 0, found.err
        assert json.loads(found.out)["own"] == 40
    scores = json.loads((sites[0] / "scores.json").read_text())
    assert set(scores) >= {"fedavg-fine-tuning", "local"}


def test_scores_and_models_stay_at_the_sites(sites, finished):
    folder = finished.folder.path
    assert json.loads((folder / "summary.json").read_text())["methods"] == {}
    assert not (folder / "clients.parquet").exists()
    assert not list(folder.rglob("clients"))


def test_the_server_s_folder_is_a_run_like_others(finished, command, refused, tmp_path):
    folder, out = finished.folder.path, tmp_path / "model.safetensors"
    assert command("export", folder, "--out", out).code == 0
    refused("train", "--resume", folder, wanted="Continue it with flwr run")


def test_status_of_a_run_and_of_a_site(sites, finished, command):
    found = command("deploy", "status", finished.folder.path)
    assert found.code == 0
    assert "3 of 3 rounds, finished; 3 clients" in found.out
    found = command("deploy", "status", sites[1])
    assert "south took part in 3 rounds." in found.out
    assert "No privacy" in found.out
    told = json.loads(command("deploy", "status", sites[1], "--json").out)
    assert told["turns"] == {"south": 3}


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (("years", "ward", "outcome"), "'age'"),
        (("age", "ward", "result"), "outcome"),
    ],
)
def test_a_table_with_other_columns_is_refused(app, refused, tmp_path, header, wanted):
    data = write_visits(tmp_path / "east.csv", seed=3, header=header)
    words = ("deploy", "site", tmp_path / "east", "--app", app, "--data", data, "--name", "east")
    refused(*words, wanted=wanted)
    assert not (tmp_path / "east").exists()


def test_an_unknown_class_is_refused(app, refused, tmp_path):
    data = write_visits(tmp_path / "east.csv", seed=3)
    data.write_text(data.read_text().replace("stays", "leaves"))
    words = ("deploy", "site", tmp_path / "east", "--app", app, "--data", data, "--name", "east")
    refused(*words, wanted="must be one of home, stays, got 'leaves'")


def test_a_site_refuses_an_agreement_of_other_code(app, sites, refused, tmp_path):
    document = json.loads((app / "agreement.json").read_text())
    path = tmp_path / "agreement.json"
    path.write_text(json.dumps({**document, "code": "0" * 32}))
    refused("deploy", "site", sites[0], "--accept", path, wanted="another version of fedprior")
    path.write_text(json.dumps({**document, "classes": ["a", "b"]}))
    refused("deploy", "site", sites[0], "--accept", path, wanted="in its classes")
    path.write_text("{}")
    refused("deploy", "site", sites[0], "--accept", path, wanted="not an agreement of fedprior")


def test_an_agreement_is_not_replaced_by_accident(app, sites, refused):
    card = sites[0] / "card.json"
    refused("deploy", "roster", app, card, wanted="sites may have accepted it")


def test_two_sites_cannot_have_the_same_client(app, sites, refused, tmp_path, command):
    data = write_visits(tmp_path / "copy.csv", seed=4)
    words = ("--app", app, "--data", data, "--name", "north")
    assert command("deploy", "site", tmp_path / "copy", *words).code == 0
    cards = [sites[0] / "card.json", tmp_path / "copy" / "card.json"]
    refused("deploy", "roster", app, *cards, "--force", wanted="two sites have a client 'north'")


def test_a_client_that_leaves(app, refused, tmp_path, command, finished):
    data = write_visits(tmp_path / "east.csv", seed=4)
    site = tmp_path / "east"
    assert command("deploy", "site", site, "--app", app, "--data", data, "--name", "e").code == 0
    found = command("deploy", "site", site, "--leave")
    assert "samples, memories and models of e" in found.err
    assert "stays in the shared model" in found.err
    assert {path.name for path in site.iterdir()} == {"node.key", "node.pub", "site.toml"}
    refused("deploy", "status", site, wanted="it has left, or is not made")
    refused("deploy", "status", app, wanted="neither a run of a deployment nor a site")
    roster = finished.folder.path / "roster.json"
    kept = roster.read_bytes()
    assert command("deploy", "forget", finished.folder.path, "west").code == 0
    assert Roster.read(roster).active == ["north", "south"]
    assert Roster.read(roster).numbers["west"] == 2
    roster.write_bytes(kept)
    refused("deploy", "forget", finished.folder.path, "nobody", wanted="nobody")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("init", "DIR", "--algorithm", "local"), "one method that sends anything"),
        (("init", "DIR", "--set", "seeds=2"), "seeds must be 1"),
        (("init", "DIR", "--secure-sums"), "privacy"),
        (("site", "DIR"), "give one of --data, --accept and --leave"),
        (("site", "DIR", "--data", "x.csv"), "--data needs --app"),
        (("rehearse", "DIR"), "an app folder of fedprior deploy init"),
        (("status", "DIR"), "neither a run of a deployment nor a site"),
        (("forget", "DIR", "a"), "a run folder"),
    ],
)
def test_bad_input(words, wanted, refused, tmp_path):
    given = [tmp_path / "new" if word == "DIR" else word for word in words]
    refused("deploy", *given, wanted=wanted)
    assert not (tmp_path / "new").exists()


def test_private_apps_for_release_need_secure_noise(app, sites, refused, tmp_path, command):
    private = ["privacy.epsilon=5", "privacy.delta=0.01", "data.most_samples=100"]
    words = [word for each in private for word in ("--set", each)]
    config = app.parent / "config.toml"
    made = ("deploy", "init", tmp_path / "app", config, "--encoder", app / "encoder.json", *words)
    assert command(*made).code == 0
    cards = [site / "card.json" for site in sites]
    refused("deploy", "roster", tmp_path / "app", *cards, wanted="privacy.noise must be secure")


def test_what_a_site_agrees_to_is_said_in_figures(app, sites, tmp_path, command):
    pytest.importorskip("opendp")
    private = ["privacy.epsilon=5", "privacy.delta=0.01", "data.most_samples=100"]
    private += ["privacy.noise='secure'", "training.cohort='poisson'"]
    words = [word for each in private for word in ("--set", each)]
    config = app.parent / "config.toml"
    made = ("deploy", "init", tmp_path / "app", config, "--encoder", app / "encoder.json", *words)
    assert command(*made).code == 0
    cards = [site / "card.json" for site in sites]
    found = command("deploy", "roster", tmp_path / "app", *cards)
    assert found.code == 0, found.err
    assert "Who sees the models learns of a client at most epsilon" in found.err
    assert "in which rounds a client took part" in found.err
    assert "trusts whoever adds up the messages" in found.err


def test_a_client_loads_neither_the_command_line_nor_what_it_does_not_need():
    script = """
import sys
import flwr.app, flwr.clientapp
before = set(sys.modules)
import fedprior.deploy.client_app
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(new & {"duckdb", "dp_accounting", "opendp", "sklearn", "scipy", "pandas", "ray"}))
print([name for name in sys.modules if name.startswith("fedprior.cli")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"], done
