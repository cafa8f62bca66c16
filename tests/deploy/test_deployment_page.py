"""The page of a deployment: what was agreed, how far it is, who failed; nothing of a secure one."""

import json

from in_memory import ADAMAP, SECURE

from fedprior.pages.page import Notes, SmallTable
from fedprior.pages.render import render
from fedprior.reporting.pages.run import owns as is_run
from fedprior.sites.page import owns, page_of
from opened import blocks, titles


def test_a_clear_deployment_shows_its_clients_and_faults(network):
    net = network(*ADAMAP, share_scores=True)
    net.grid.hook = lambda asked, deliver: (
        None if asked.do == "round" and asked.round == 1 and asked.node == 100 else deliver()
    )
    net.play()
    assert owns(net.run)
    assert not is_run(net.run)
    page = page_of(net.run)
    assert page.title == "Deployment"
    assert "Client by client" in titles(page)
    (faults,) = [each for each in blocks(page, SmallTable) if each.title == "Faults"]
    assert any("no answer" in row[1] for row in faults.cells)
    assert net.document.token in blocks(page, Notes)[0].items[0].text
    lines = [json.loads(line) for line in net.folder.progress.read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert all("seconds" in line and "clients" in line for line in lines)
    render(page)


def test_a_deployment_that_stands_still_is_shown_as_such(network):
    net = network(*ADAMAP).play()
    for path in (net.folder.summary, net.folder.metrics):
        path.unlink()
    page = page_of(net.run)
    assert page.lead.startswith("The run has stopped before its end")
    assert f"the same flwr run command, with run-folder={net.run.resolve()}." in page.lead
    assert page.command_text == "This command shows the same in a terminal:"


def test_a_secure_deployment_tells_nothing_of_its_clients(network):
    net = network(*SECURE, share_scores=True)
    net.grid.hook = lambda asked, deliver: (
        None if asked.do == "round" and asked.round == 1 and asked.node == 100 else deliver()
    )
    net.play()
    assert len(net.faults()) == 1
    page = page_of(net.run)
    html = render(page)
    for word in ("client-", "no answer", "seconds", "Faults", "decile", "forgotten"):
        assert word not in html, word
    assert '"tables":[]' in html
    assert {"Privacy", "What is not protected", "What was agreed on"} <= set(titles(page))
    told = [json.loads(line) for line in net.folder.progress.read_text().splitlines()]
    assert told
    assert not {"clients", "left_out", "seconds"} & set().union(*told)
