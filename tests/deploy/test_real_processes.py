"""A rehearsal with TLS and real processes, two of which are killed; and one under Ray."""

from importlib.util import find_spec

import pytest

pytest.importorskip("flwr")

from in_memory import equal
from network import Network, lacking, living, repeated, wait_for

from fedprior.core.files import read_json
from fedprior.deploy.app_folder import write_app
from fedprior.deploy.processes import Machines
from fedprior.reporting import config as configs
from fedprior.reporting import federations, model_file
from fedprior.reporting.folder import Folder
from fedprior.sites.document import Document

pytestmark = pytest.mark.skipif(lacking() is not None, reason=str(lacking()))


def test_a_run_survives_kills_of_a_client_and_of_the_server(tmp_path):
    with Network(tmp_path, "training.rounds=3", deadline=50.0) as net:
        net.submit()
        wait_for(lambda: net.busy(0), "a client at work", pause=0.005)
        assert net.kill(*net.client(0)) == 1
        net.wait_for_round(1)
        wait_for(lambda: net.busy(1), "the other node at work", pause=0.005)
        net.kill_server()
        assert net.rounds == 1
        assert not net.finished
        net.submit()
        net.wait_for_end()
    assert net.answered == [net.numbers(1), list(range(6)), list(range(6))]
    lost = {"round": 0, "who": "ward-0, ward-2, ward-4", "reason": "no answer before the deadline"}
    assert lost in net.faults
    result = net.check_equal()
    scores = [read_json(site / "scores.json")["adaped"] for site in net.sites]
    known = {name: score for own in scores for name, score in own.items()}
    assert [known[name] for name in net.names] == pytest.approx(list(result.scores))
    assert all((site / "model" / "model.safetensors").is_file() for site in net.sites)


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_flwr_run_under_ray_is_debug_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path / "programs"))
    steps = ("training.rounds=2", "training.local_steps=2", "training.cohort=everyone")
    data = ("data.options.num_clients=6", "model.name=logistic", 'methods=["adamap"]')
    config = configs.read(None, [*steps, *data])
    write_app(tmp_path / "app", config)
    net, run = Machines(tmp_path / "network", [], tls=False), tmp_path / "run"
    try:
        net.start_link("--simulation")
        net.start_executor()
        sessions = {process.pid for process in net.running.values()}
        nodes = "num-supernodes=2 client-resources-num-cpus=1"
        told = f'run-folder="{run}" deadline=120.0'
        where = (str(tmp_path / "app"), "rehearsal", "--federation-config", nodes)
        net.flwr("run", *where, "--run-config", told)
        wait_for((run / "summary.json").is_file, "the end of the run")
        net.stop()
        wait_for(lambda: not living(sessions), "processes to end", patience=60)
    finally:
        net.stop()
    document = Document.read(run / "agreement.json")
    clients = federations.federation(config.data, seed=config.seed)
    result = repeated(document, clients, [range(6)] * 2)
    equal(model_file.read(Folder(run).model("adamap", 0)).arrays, result.state)
