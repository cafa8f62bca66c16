"""Faults of real processes, each with the rule for it; about 40 minutes on two cores."""

import contextlib
import logging
import os
import random
import signal
import sqlite3
import time

import pytest

pytest.importorskip("flwr")

from faulty import SECRET
from network import PRIVATE, Network, lacking, wait_for

from fedprior.deploy.processes import free_ports
from fedprior.sites.keys import make_node_key

pytestmark = [
    pytest.mark.evidence,
    pytest.mark.skipif(lacking() is not None, reason=str(lacking())),
]
log = logging.getLogger("faults")  # figures: --log-cli-level=INFO
EVERYONE = list(range(6))
KILLS = 10  # of each kind
KINDS = ("server", "link", "node", "client")


def files_with(folder, text):
    """Files that hold a text, also such as are no text themselves."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def test_an_exception_in_a_client_tells_the_server_its_type_alone(tmp_path):
    faults = [[0, 0, "raise"], [4, 1, "raise"]]
    with Network(tmp_path, "training.rounds=2", faults=faults) as net:
        net.submit()
        net.wait_for_end()
    assert net.faults == [
        {"round": 0, "who": net.names[0], "reason": "KeyError"},
        {"round": 1, "who": net.names[4], "reason": "KeyError"},
    ]
    assert net.answered == [[1, 2, 3, 4, 5], [0, 1, 2, 3, 5]]
    net.check_equal()
    told = files_with(net.rehearsal.folder, SECRET)
    assert sorted(told) == [site / "errors.log" for site in net.sites]
    assert files_with(net.rehearsal.folder / "network", "fedprior")  # the search finds text


def test_a_crash_of_a_client_costs_its_node_one_round(tmp_path):
    faults = [[0, 0, "crash"]]
    with Network(tmp_path, "training.rounds=2", faults=faults, deadline=200.0) as net:
        net.submit()
        net.wait_for_end()
    who = ", ".join(net.names[number] for number in net.numbers(0))
    assert net.faults == [{"round": 0, "who": who, "reason": "Flower's error 8"}]
    assert net.answered == [net.numbers(1), EVERYONE]
    net.check_equal()


def test_a_client_that_hangs_does_not_keep_its_node_from_later_rounds(tmp_path):
    """Node 0 hears the alarm, within its deadline; node 1 does not, and its process is ended."""
    faults = [[1, 0, "hang"], [2, 0, "deaf"]]
    with Network(tmp_path, "training.rounds=3", nodes=3, faults=faults, deadline=80.0) as net:
        net.submit()
        net.wait_for_end()
    log.info("Answers: %s; faults: %s.", net.answered, net.faults)
    assert net.answered[0] == [0, 4, 5]
    assert {"round": 0, "who": net.names[1], "reason": "TimeoutError"} in net.faults
    assert set(net.numbers(0)) <= set(net.answered[1])
    assert net.answered[-1] == EVERYONE
    net.check_equal()


def test_a_node_that_was_killed_comes_back_and_another_never_does(tmp_path):
    with Network(tmp_path, "training.rounds=8", nodes=3) as net:
        net.submit()
        net.wait_for_round(1)
        wait_for(lambda: net.busy(0), "a client at work", pause=0.005)
        net.kill_program("supernode-0")
        net.kill_program("supernode-1")
        starts = 0
        while not net.finished:
            starts += len(net.tend("supernode-1"))
            time.sleep(1)
        net.wait_for_end()
    log.info("Node 0 was started %s times; faults: %s.", starts, net.faults)
    nodes = [[n for n in range(3) if set(net.numbers(n)) <= set(each)] for each in net.answered]
    log.info("Nodes by round: %s.", nodes)
    assert nodes[0] == [0, 1, 2]
    assert nodes[1] == [2]
    assert nodes[-1] == [0, 2]
    assert all(2 in each and 1 not in each for each in nodes[1:])
    assert not (net.sites[1] / "model").exists()
    net.check_equal()


def test_a_run_survives_a_kill_of_the_link(tmp_path):
    with Network(tmp_path, "training.rounds=4") as net:
        net.submit()
        wait_for(lambda: net.busy(0), "a client at work", pause=0.005)
        before = net.server
        net.kill_program("superlink")
        time.sleep(5)
        net.start_again("superlink")
        net.wait_for_round(2)
        net.kill_program("superlink")
        net.start_again("superlink")
        net.wait_for_round(4)
        assert net.server == before
        net.wait_for_end()
    log.info("Answers: %s; faults: %s.", net.answered, net.faults)
    assert net.answered[-1] == EVERYONE
    net.check_equal()


def test_a_run_that_is_stopped_and_run_again_at_once_waits_for_the_folder(tmp_path):
    with Network(tmp_path, "training.rounds=3") as net:
        run = net.submit()
        net.wait_for_round(1)
        wait_for(lambda: net.busy(1), "a client at work", pause=0.005)
        (first,) = net.server
        net.machines.flwr("stop", run, "rehearsal")
        net.submit()
        wait_for(lambda: set(net.server) - {first}, "a second ServerApp")
        log.info("The first ServerApp was %s; now there are %s.", first, net.server)
        net.wait_for_end()
        assert net.machines.status(run) == "finished:stopped"
    assert net.answered == [EVERYONE] * 3
    net.check_equal()


def test_a_clear_run_whose_clients_all_fail_stops_and_says_why(tmp_path):
    with Network(tmp_path, "training.rounds=3", faults=[["all", "all", "raise"]]) as net:
        run = net.submit()
        with pytest.raises(RuntimeError, match="none of 6 clients gave an answer"):
            net.rehearsal.wait(net.machines, run, lambda progress: None)
        assert net.machines.status(run) == "finished:failed"
    assert net.rounds == 0
    assert {fault["reason"] for fault in net.faults} == {"KeyError"}


def test_an_answer_after_the_deadline_is_not_in_the_state(tmp_path):
    with Network(tmp_path, "training.rounds=4", deadline=40.0) as net:
        net.submit()
        net.wait_for_round(1)
        wait_for(lambda: net.busy(0), "a client at work", pause=0.005)
        late = net.machines.running["supernode-0"].pid
        os.kill(late, signal.SIGSTOP)  # the client learns, and its node does not send
        try:
            net.wait_for_round(2)
        finally:
            os.kill(late, signal.SIGCONT)
        net.wait_for_end()
    log.info("Answers: %s; faults: %s.", net.answered, net.faults)
    assert net.answered[1] == net.numbers(1)
    assert net.answered[-1] == EVERYONE
    net.check_equal()


def test_central_noise_and_poisson_cohorts_on_known_nodes_are_debug_to_the_bit(tmp_path):
    rounds = ("training.rounds=6", "training.sampling_rate=0.5")
    with Network(tmp_path, *PRIVATE, *rounds, clients=9, nodes=3) as net:
        stranger = start_stranger(net, tmp_path / "stranger.key")
        net.submit()
        net.wait_for_end()
        net.check_ledger()
        wait_for(lambda: stranger.poll() is not None, "the link to refuse an unknown key")
    drawn = [net.document.agreement.draw(number).tolist() for number in range(6)]
    assert len({tuple(each) for each in drawn}) > 1
    assert net.answered == drawn
    assert not net.faults
    assert net.reserved == list(range(6))
    net.check_equal()


def start_stranger(net, key):
    """A SuperNode with the folder of a site, and a key that the SuperLink does not know."""
    make_node_key(key)
    machines, (port,) = net.machines, free_ports(1)
    options = ["--superlink", machines.address, "--port", str(port)]
    options += ["--root-certificates", str(machines.folder / "ca.crt")]
    options += ["--auth-supernode-private-key", str(key)]
    options += ["--node-config", f'site="{net.sites[0]}"']
    machines.start("stranger", "flower-supernode", *options)
    return machines.running["stranger"]


def test_with_secure_noise_the_link_keeps_nothing_of_cohorts_and_a_replay_is_charged(tmp_path):
    pytest.importorskip("opendp")
    with Network(tmp_path, *PRIVATE, "privacy.noise=secure", "training.rounds=4") as net:
        runs = [net.submit()]
        net.wait_for_round(1)
        wait_for(lambda: net.busy(0) or net.busy(1), "a client at work", pause=0.005)
        net.kill_server()
        runs.append(net.submit())
        net.wait_for_end()
        shown = [net.machines.flwr("log", run, "rehearsal", "--show") for run in runs]
    place = net.rehearsal.folder / "network"
    with contextlib.closing(sqlite3.connect(place / "state.db")) as database:
        kept = "".join(text for (text,) in database.execute("SELECT log FROM task_logs"))
    assert "round 1, rounds 4" in shown[0]
    assert "round 4, rounds 4" in shown[1]
    for text in (*shown, kept):
        assert "ward" not in text
        assert "answered" not in text
    asked = [path for path in place.iterdir() if path.is_file() and b'"nonce"' in path.read_bytes()]
    assert not asked  # messages are gone with the run
    assert not files_with(net.run, "answered")
    assert not (net.part / "answers.jsonl").exists()
    log.info("Charged: %s.", net.reserved)
    assert len(net.reserved) == 5
    assert set(net.reserved) == set(range(4))


class Storm:
    """Random kills of the processes of a network."""

    def __init__(self, net, draws):
        self.net, self.draws, self.seen = net, draws, {"resumed": 0, "restarted": 0}

    def strike(self, kind):
        """kill -9 one process of a kind; False where there is none."""
        return getattr(self, f"_{kind}")()

    def pause(self, seconds):
        """Let the network live, with whoever has ended started again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.net.finished:
            self.seen["restarted"] += len(self.net.tend())
            time.sleep(0.5)

    def resume(self):
        """`flwr run`, until the link takes it."""
        self.seen["resumed"] += 1
        for _ in range(20):
            with contextlib.suppress(RuntimeError):
                self.net.submit(join=30.0)
                return
            self.net.tend()
            time.sleep(3)
        raise AssertionError("the link takes no run")

    def _server(self):
        alive = self.net.server
        if not alive:
            return False
        self.net.kill(*alive)
        self.resume()
        return True

    def _link(self):
        self.net.kill_program("superlink")
        time.sleep(self.draws.uniform(0, 4))
        self.net.start_again("superlink")
        return True

    def _node(self):
        name = f"supernode-{self.draws.randrange(len(self.net.sites))}"
        if self.net.machines.running[name].poll() is not None:
            return False
        self.net.kill_program(name)
        return True

    def _client(self):
        everywhere = range(len(self.net.sites))
        self.pause(self.draws.uniform(0, 3))
        alive = [process for node in everywhere for process in self.net.client(node)]
        return bool(alive) and bool(self.net.kill(self.draws.choice(alive)))


def test_random_kills_of_every_process_leave_a_run_equal_to_debug(tmp_path):
    draws = random.Random(20261117)
    kills = [kind for kind in KINDS for _ in range(KILLS)]
    draws.shuffle(kills)
    number, settings = 0, (*PRIVATE, "training.rounds=10")
    while kills:
        begun, done = time.monotonic(), dict.fromkeys(KINDS, 0)
        with Network(tmp_path / f"{number}", *settings, clients=9, nodes=3, deadline=30.0) as net:
            storm = Storm(net, draws)
            storm.resume()
            while not net.finished:
                storm.pause(draws.uniform(4, 18))
                if not net.finished and not net.server:
                    log.info("The ServerApp has ended by itself.")
                    storm.resume()
                more = kills and sum(done.values()) < KILLS and net.rounds < 9
                if more and storm.strike(kills[-1]):
                    done[kills.pop()] += 1
                elif more:
                    draws.shuffle(kills)
                net.check_ledger()
            net.wait_for_end()
        log.info("Run %s: %.0f s, %s, %s.", number, time.monotonic() - begun, done, storm.seen)
        log.info("Answers: %s.", net.answered)
        assert net.rounds == 10
        assert sum(map(len, net.answered)) > 9
        net.check_ledger()
        assert net.reserved == list(range(10))  # a round that is played again is the same release
        net.check_equal()
        number += 1
