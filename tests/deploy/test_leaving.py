"""Clients that leave: the run goes on as if they were absent, and nothing of theirs is left."""

import pytest
from in_memory import ADAMAP, ADAPED, SUMS, equal, read_roster
from test_kills import killed

from fedprior.core.files import read_json
from fedprior.sites import folder, requests
from fedprior.sites.folder import leave
from fedprior.sites.roster import Roster


def forget(net, name):
    """What `fedprior deploy forget` does."""
    path = net.run / "roster.json"
    Roster.read(path).forget(name).write(path)


def during(net, round, act):
    """Do something while a round is being played."""
    done = []

    def hook(asked, deliver):
        if asked.do == "round" and asked.round == round and not done:
            done.append(True)
            act()
        return deliver()

    net.grid.hook = hook


def asked_of(net, name):
    return [a.round for a in net.grid.sent if name in a.facts["clients"] and a.do == "round"]


def test_a_site_that_leaves_during_a_run(network):
    """It answers with an error from then on, and its client is absent."""
    net = network(*ADAMAP)
    during(net, 1, lambda: leave(net.sites[2]))
    net.play()
    equal(net.state(), net.debug(absent={1: (4,), 2: (4,)}).state)
    rest = {path.name for path in net.sites[2].iterdir()}
    assert rest == {"node.key", "node.pub", "site.toml"}
    assert {fault["reason"] for fault in net.faults() if fault["who"] == "client-4"} == {
        "ValueError"
    }


def test_a_site_does_not_leave_while_it_answers(network, monkeypatch):
    """Whatever is deleted then would be written again: leaving waits, and says for whom."""
    net = network(*ADAMAP)
    monkeypatch.setattr(folder, "_PATIENCE", 0.0)
    tried, attempt = [], requests.client_side.attempt

    def leaving(*given, **named):
        if not tried:
            with pytest.raises(ValueError, match="in use by process"):
                leave(net.sites[0])
            tried.append(True)
        return attempt(*given, **named)

    monkeypatch.setattr(requests.client_side, "attempt", leaving)
    net.play()
    equal(net.state(), net.debug().state)
    assert tried
    leave(net.sites[0])
    assert {path.name for path in net.sites[0].rglob("*")} == {"node.key", "node.pub", "site.toml"}


def test_a_client_that_was_forgotten_is_not_asked(network):
    net = network(*ADAMAP)
    during(net, 0, lambda: forget(net, "client-4"))
    net.play()
    equal(net.state(), net.debug(absent={1: (4,), 2: (4,)}).state)
    assert asked_of(net, "client-4") == [0]
    assert not any("client-4" in asked.facts["clients"] for asked in net.grid.sent[-3:])
    assert not net.faults()
    roster = read_roster(net)
    assert roster.numbers["client-4"] == 4
    assert roster.keys["client-4"] is None
    assert "4" not in net.checkpoint().facts["accepted"]


def test_its_neighbor_at_the_same_site_stays(network):
    net = network(*ADAMAP)
    during(net, 1, lambda: forget(net, "client-0"))
    net.play()
    equal(net.state(), net.debug(absent={2: (0,)}).state)
    assert set(read_json(net.sites[0] / "scores.json")["adamap"]) == {"client-1"}
    assert not net.faults()


def test_who_was_forgotten_does_not_come_back(network):
    """Its site still says who is there, to a server that was started again."""
    net = network(*ADAMAP)
    assert killed(net, "run.Deployment._progress", "after")
    forget(net, "client-4")
    net.play()
    equal(net.state(), net.debug(absent={1: (4,), 2: (4,)}).state)
    assert asked_of(net, "client-4") == [0]


def test_everybody_of_a_cohort_was_forgotten(network):
    """There is nobody to wait for, and no reason to stop."""
    net = network(*ADAPED)
    assert killed(net, "run.Deployment._progress", "after")
    gone = tuple(net.agreement.draw(1).tolist())
    for client in gone:
        forget(net, f"client-{client}")
    net.play()
    equal(net.state(), net.debug(absent={1: gone, 2: gone}).state)
    assert [entry["clients"] for entry in net.checkpoint().facts["history"]][1] == 0


def test_a_member_of_secure_sums_leaves(network):
    """Two of five may be absent: one that has left for good is one of them."""
    net = network(*SUMS, rehearsal=True)
    assert killed(net, "run.Deployment._progress", "after")
    forget(net, "client-2")
    leave(net.sites[2])
    net.play()
    absent = dict.fromkeys((1, 2), (2, 4))
    equal(net.state(), net.debug(absent=absent).state)
