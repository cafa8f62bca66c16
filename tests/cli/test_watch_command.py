"""`fedprior watch`: who may ask what, and a page that follows a training."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from browser import visit
from fedprior.cli.watch import _redirect
from fedprior.pages.serve import PageServer, Served
from fedprior.reporting.pages.changes import version_of
from fedprior.reporting.pages.run import page_of

# A test that runs in the background ignores SIGINT, and so would its children.
HEEDING = """import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from fedprior.cli.main import main
main()"""
SLOW = 60  # seconds that something may take on a busy machine


@contextmanager
def serving(folder, make=page_of):
    server = PageServer(Served(lambda: make(folder), lambda: version_of(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server, path, method="GET", **headers):
    """(status, headers, content) of a request; `Host` may be any."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=SLOW)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


@pytest.fixture(scope="module")
def served(trained):
    with serving(trained) as server:
        yield server


def test_the_page_is_at_its_address_alone(served):
    status, headers, content = ask(served, f"/{served.token}/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert b"Training run" in content
    assert b"connect-src &#39;self&#39;" in content
    assert served.address == f"http://127.0.0.1:{served.server_port}/{served.token}/"
    assert len(served.token) >= 32
    others = (
        *("/", "/version", "/config.toml", "/summary.json", f"/{served.token}"),
        *(f"/{served.token}/config.toml", f"/{served.token}/../config.toml"),
        *(f"/{served.token}/checkpoint/", f"/{served.token}/%2e%2e/summary.json"),
        *(f"/{served.token[:-1]}/", f"/{served.token}/version/"),
        f"/{served.token}/?x=1",
    )
    for path in others:
        assert ask(served, path)[0] == 404, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "MOVE"])
def test_nothing_can_be_changed(served, method):
    status, headers, content = ask(served, f"/{served.token}/", method)
    assert (status, headers["Allow"], content) == (405, "GET, HEAD", b"")


def test_head_has_no_content(served):
    status, headers, content = ask(served, f"/{served.token}/", "HEAD")
    assert (status, content) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:80", ""])
def test_another_host_is_refused(served, host):
    """A site that lets its own name point here does not read the page."""
    for path in (f"/{served.token}/", f"/{served.token}/version"):
        assert ask(served, path, Host=host)[0] == 403
    assert ask(served, f"/{served.token}/", Host=f"localhost:{served.server_port}")[0] == 200


def test_the_version_changes_with_the_files(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    with serving(copy) as server:
        place = f"/{server.token}/"
        before = ask(server, f"{place}version")[2]
        assert re.fullmatch(rb"[0-9a-f]{16}", before)
        assert ask(server, f"{place}version")[2] == before
        assert before in ask(server, place)[2]
        (copy / "summary.json").unlink()
        after = ask(server, f"{place}version")[2]
        assert after != before
        status, _, content = ask(server, place)
        assert status == 200
        assert b"has stopped before its end" in content


def test_what_cannot_be_shown_is_said(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    with serving(copy) as server:
        (copy / "config.toml").write_text("damaged")
        status, headers, content = ask(server, f"/{server.token}/")
    assert status == 500
    assert headers["Content-Type"].startswith("text/html")
    assert b"The page cannot be made" in content
    assert version_of(copy).encode() in content  # it waits for another version


def test_any_error_is_shown(trained):
    def fail(path):
        raise KeyError("runs")

    with serving(trained, fail) as server:
        status, _, content = ask(server, f"/{server.token}/")
    assert status == 500
    assert b"The page cannot be made" in content


def test_the_browser_s_arguments_do_not_hold_the_token():
    with _redirect("http://127.0.0.1:1/secret/") as path:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert "url=http://127.0.0.1:1/secret/" in path.read_text()
        assert "secret" not in path.as_uri()
    assert not path.parent.exists()


def test_only_runs_can_be_watched(refused, tmp_path, trained):
    wanted = "RUN must be the folder of a run that has begun"
    refused("watch", tmp_path, wanted=wanted)
    refused("watch", tmp_path / "nowhere", wanted=wanted)
    refused("watch", trained, "--port", "70000", wanted="port must be at most 65535")


@contextmanager
def started(*words):
    """`fedprior WORDS` as a process of its own, which is stopped in the end."""
    command = [sys.executable, "-c", HEEDING, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def training(folder, on_table, rounds):
    """A training that goes on for a long time."""
    words = ["train", *on_table, "--algorithm", "fedavg", "--algorithm", "local", "--quiet"]
    words += ["--set", f"training.rounds={rounds}", "--set", "training.evaluate_every=50"]
    with started(*words, "--out", folder) as process:
        wait(lambda: (folder / "progress.jsonl").is_file(), process)
        yield process


def wait(until, process=None):
    """Wait for something that will happen, as long as a busy machine may need."""
    end = time.monotonic() + SLOW
    while not until():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def rounds_shown(content):
    found = re.search(r"has done ([0-9,]+) of", content)
    return None if found is None else int(found[1].replace(",", ""))


def test_the_page_follows_a_training_and_its_end(on_table, tmp_path):
    folder = tmp_path / "run"
    with training(folder, on_table, 1_000_000) as process, serving(folder) as server:
        place = f"/{server.token}/"

        def shown():
            return ask(server, place)[2].decode()

        wait(lambda: rounds_shown(shown()) is not None, process)
        first = rounds_shown(shown())
        wait(lambda: (rounds_shown(shown()) or 0) > first, process)
        content = shown()
        assert "The run is in progress: 0 of 2 trainings are finished." in content
        wait(lambda: "Validation scores over rounds" in shown(), process)
        process.send_signal(signal.SIGINT)  # saved, and then it ends
        process.wait(SLOW)
        wait(lambda: "The run has stopped before its end" in shown())
        assert "--resume" in shown()


def test_the_command_prints_its_address_and_stops_at_ctrl_c(trained):
    with started("watch", trained) as process:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/[A-Za-z0-9_-]{32}/", address)
        host, port = address.split("/")[2].split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=SLOW)
        connection.request("GET", f"/{address.split('/')[3]}/version")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(SLOW) == 0
        assert "Traceback" not in process.stderr.read()


def test_a_killed_training_is_shown_as_stopped(on_table, tmp_path):
    folder = tmp_path / "run"
    with training(folder, on_table, 1_000_000) as process:
        assert page_of(folder).lead.startswith("The run is in progress")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(SLOW)
        assert (folder / ".lock").is_file()  # left behind
        assert page_of(folder).lead.startswith("The run has stopped before its end")


def test_a_browser_follows_a_training(browser, on_table, tmp_path):
    folder = tmp_path / "run"
    with training(folder, on_table, 1_000_000) as process, serving(folder) as server:
        wait(lambda: rounds_shown(page_of(folder).lead) is not None, process)
        with visit(browser, server.address) as page:
            page.wait_for_selector("html[data-ready=yes]")
            lead = page.locator(".lead")
            first = rounds_shown(lead.inner_text())
            assert first is not None
            script = "first => Number(document.querySelector('.lead').innerText"
            script += ".match(/has done ([0-9,]+) of/)?.[1].replace(/,/g, '')) > first"
            page.wait_for_function(script, arg=first, timeout=1000 * SLOW)  # it reloads itself
            assert "The run is in progress" in lead.inner_text()
        lines = (folder / "progress.jsonl").read_text().splitlines()
        assert len(json.loads(lines[0])) > 4
