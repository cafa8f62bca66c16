"""The budget of a population: shared by processes, signed, and not to be cut, swapped or forged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Event, gaussian, response
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import begin_ledger, read
from fedprior.privacy.planning import rounds_affordable
from fedprior.privacy.records import Head, digest
from fedprior.privacy.terms import Terms
from fedprior.reporting.population import opened, statement, verify

LOCAL = Terms(delta=1e-4, relation="replace-one", view="local", noise="secure", budget=50.0)
CENTRAL = replace(LOCAL, view="central", relation="add-remove", noise="simulated")
POISSON = Event(mechanism="gaussian", noise=8.0, sampling="poisson", rate=0.1)
FIXED = Event(mechanism="gaussian", noise=8.0, sampling="fixed", size=3, num_clients=30)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "population.jsonl"
    begin_ledger(path, epsilon=1.0, delta=1e-6)
    return path


@pytest.fixture
def signed(tmp_path):
    path, key = tmp_path / "signed.jsonl", tmp_path / "secret" / "key"
    begin_ledger(path, epsilon=1.0, delta=1e-6, key=key)
    return path, key


def spend(path, cost=0.3, *, who="somebody", key=None, source="run", first=0, rounds=1):
    with opened(path, LOCAL, who=who, key=key) as ledger:
        granted = ledger.reserve(response(cost), first=first, rounds=rounds, source=source)
        ledger.commit()
    return granted


# One budget


def test_relation_delta_and_budget_are_those_of_the_file(path):
    with opened(path, CENTRAL, who="train", num_clients=900) as ledger:
        terms = ledger.terms
        assert (terms.relation, terms.delta, terms.budget) == ("replace-one", 1e-6, 1.0)
        assert ledger.reserve(POISSON, first=0, rounds=2, source="run") == 2
    (record,) = [record for record in read(path)[1] if record["kind"] == "reserve"]
    told = [record[name] for name in ("who", "clients", "view", "noise", "rounds", "count")]
    assert told == ["train", 900, "central", "simulated", 2, 2]


def test_events_of_all_who_charge_compose_together(path):
    """Central with amplification and local reports, under one relation: one epsilon."""
    with opened(path, CENTRAL, who="train") as one, opened(path, LOCAL, who="ask") as other:
        assert one.reserve(POISSON, first=0, rounds=2, source="a") == 2
        assert other.reserve(response(0.2), first=0, rounds=1, source="b") == 1
        assert one.reserve(replace(POISSON, noise=9.0), first=0, rounds=1, source="c") == 1
        events = [(POISSON, 2), (response(0.2), 1), (replace(POISSON, noise=9.0), 1)]
        wanted = epsilon(events, delta=1e-6, relation="replace-one")
        assert one.spent == pytest.approx(wanted)
        assert other.reserve(response(0.9), first=1, rounds=1, source="b") == 0
    stated = statement(path)
    assert stated["spent"] == pytest.approx(wanted)
    assert stated["left"] == pytest.approx(1 - wanted)
    assert [row["who"] for row in stated["charges"]] == ["train", "ask", "train"]
    assert not stated["valid_for_release"]


def test_views_are_told_apart(path):
    """Somebody who sees who took part is not fooled by sampling; whoever adds up sees it all."""
    spend(path, 0.2)
    for view in statement(path)["views"]:
        assert view["epsilon"] == pytest.approx(0.2, abs=1e-4)
    with opened(path, CENTRAL, who="train") as ledger:
        ledger.reserve(POISSON, first=0, rounds=2, source="run")
    released, took_part, adds_up = [view["epsilon"] for view in statement(path)["views"]]
    known = [(response(0.2), 1), (gaussian(8.0), 2)]
    assert took_part == pytest.approx(epsilon(known, delta=1e-6, relation="replace-one"))
    assert released < took_part / 2
    assert adds_up is None


def test_add_remove_refuses_what_it_has_no_proof_for(tmp_path):
    path = tmp_path / "population.jsonl"
    begin_ledger(path, epsilon=1.0, delta=1e-6, relation="add-remove")
    with pytest.raises(PrivacyError, match="must be replace-one for local reports"):
        opened(path, LOCAL, who="ask")
    with opened(path, CENTRAL, who="train") as ledger:
        with pytest.raises(PrivacyError, match="must have a proof under add-remove"):
            ledger.reserve(FIXED, first=0, rounds=1, source="run")
        assert ledger.reserve(POISSON, first=0, rounds=1, source="run") == 1
    assert statement(path)["views"][1]["epsilon"] is None  # their names show that they are present


def test_a_name_with_a_typing_error_begins_no_second_budget(path):
    with pytest.raises(PrivacyError, match=r"must be an existing ledger.*privacy ledger init"):
        opened(path.with_name("popluation.jsonl"), LOCAL, who="ask")
    path.write_bytes(b"")
    with pytest.raises(PrivacyError, match="is empty"):
        opened(path, LOCAL, who="ask")
    assert path.read_bytes() == b""
    with pytest.raises(ValueError, match="must be a file that does not exist"):
        begin_ledger(path, epsilon=9.0, delta=1e-6)


def test_one_release_is_not_drawn_twice_in_two_folders(path):
    names = {"first": 0, "rounds": 1, "draws": "seed 0"}
    with opened(path, CENTRAL, who="one") as ledger:
        ledger.reserve(POISSON, source="in a", **names)
    refused = pytest.raises(PrivacyError, match="was already used by another run")
    with opened(path, CENTRAL, who="other") as ledger, refused:
        ledger.reserve(POISSON, source="in b", **names)


@pytest.mark.parametrize("who", ["Zählung, 人口, naïve", "[red]estimate[/red]", ""])
def test_labels_are_what_they_are(path, who):
    spend(path, who=who)
    assert path.read_bytes().isascii()
    assert statement(path)["charges"][0]["who"] == (who or "unnamed")


def test_labels_stay_on_one_line(path):
    spend(path, who="a\nb\x1b[2J\u202e")
    assert statement(path)["charges"][0]["who"] == "a?b?[2J?"
    with pytest.raises(ValueError, match="who must be printable text"):
        Ledger(path, LOCAL, who="a\nb")


# A run within it


@pytest.fixture
def inside(path, tmp_path):
    def go(budget, **names):
        terms = replace(CENTRAL, budget=budget)
        within = opened(path, terms, who="train")
        return Ledger(tmp_path / "run" / "ledger.jsonl", terms, within=within, **names)

    return go


def cost(rounds, relation, delta):
    return epsilon([(POISSON, rounds)], delta=delta, relation=relation)


def test_both_budgets_hold(inside, path):
    """What is granted is the least of the two, and neither is charged for what the other denies."""
    own = cost(3, "add-remove", 1e-4) + 1e-9
    with inside(own) as ledger:
        assert ledger.reserve(POISSON, first=0, rounds=9, source="run") == 3
        assert ledger.reserve(POISSON, first=3, rounds=9, source="run") == 0
        ledger.commit()
        records = read(path)[1]
        assert [record["kind"] for record in records] == ["open", "reserve", "commit"]
        assert records[1]["rounds"] == 3
    with inside(50.0) as ledger:
        more = ledger.reserve(POISSON, first=3, rounds=900, source="run")
        assert 0 < more < 900
        assert cost(3 + more, "replace-one", 1e-6) <= 1 < cost(4 + more, "replace-one", 1e-6)
        assert ledger.reserve(POISSON, first=3 + more, rounds=1, source="run") == 0
        assert ledger.spent == pytest.approx(cost(3 + more, "add-remove", 1e-4))


def test_a_killed_run_repeats_in_both_for_nothing(inside, path):
    with inside(50.0) as ledger:
        ledger.reserve(POISSON, first=0, rounds=3, source="run", draws="a")
        ledger.within.reserve(POISSON, first=3, rounds=2, source="run", draws="a")  # then killed
    with inside(50.0) as ledger:
        assert ledger.reserve(POISSON, first=1, rounds=4, source="run", draws="a") == 4
    assert statement(path)["charges"][0]["rounds"] == 5


def test_a_cut_population_is_seen_by_its_runs(inside, path):
    with inside(50.0) as ledger:
        ledger.reserve(POISSON, first=0, rounds=3, source="run")
    content = path.read_bytes()
    spend(path, 0.1)  # by others, later: the run's head is not the end
    with inside(50.0) as ledger:
        assert ledger.reserve(POISSON, first=3, rounds=1, source="run") == 1
    path.write_bytes(content)
    with pytest.raises(PrivacyError, match=r"population.jsonl has 2 lines .* recorded in .*run"):
        inside(50.0)


def test_a_run_goes_on_within_its_population(inside, path, tmp_path):
    with inside(50.0) as ledger:
        ledger.reserve(POISSON, first=0, rounds=3, source="run")
    with pytest.raises(PrivacyError, match="must continue with it"):
        Ledger(tmp_path / "run" / "ledger.jsonl", CENTRAL)
    path.unlink()
    begin_ledger(path, epsilon=1.0, delta=1e-6)
    with pytest.raises(PrivacyError, match="truncated or replaced"):
        inside(50.0)


def test_a_ledger_is_for_one_configuration(inside):
    inside(50.0, purpose="seed 0").close()
    with pytest.raises(PrivacyError, match="begun for another configuration"):
        inside(50.0, purpose="seed 1")


# Processes

_CHARGES = """
import sys
from pathlib import Path
from fedprior.privacy.events import response
from fedprior.reporting.population import opened
from fedprior.privacy.terms import Terms
terms = Terms(delta=1e-4, relation="replace-one", view="local", noise="secure", budget=50.0)
path, name, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
granted = 0
with opened(path, terms, who=name) as ledger:
    print("open", flush=True)
    sys.stdin.readline()
    for number in range(times):
        granted += ledger.reserve(response(0.04), first=number, rounds=1, source=name)
        ledger.commit()
print(granted, flush=True)
"""


def process(*arguments, script=_CHARGES):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_charge_one_ledger_20_times_each(path):
    """As many fit as one process would be granted, whoever makes them, and all are on record."""
    most = rounds_affordable(response(0.04), target=1.0, delta=1e-6, relation="replace-one")
    assert 20 < most < 40
    with process(path, "a", 20) as one, process(path, "b", 20) as other:
        for each in (one, other):
            assert each.stdout.readline() == "open\n"
        for each in (one, other):
            each.stdin.write("\n")
            each.stdin.flush()
        granted = [int(each.communicate()[0]) for each in (one, other)]
    assert sum(granted) == most
    stated = statement(path)
    wanted = epsilon([(response(0.04), most)], delta=1e-6, relation="replace-one")
    assert stated["spent"] == pytest.approx(wanted)
    assert {row["who"]: row["rounds"] for row in stated["charges"]} == dict(
        zip("ab", granted, strict=True)
    )


def test_threads_charge_one_ledger(path):
    granted = []
    ledgers = [opened(path, LOCAL, who=name) for name in "abc"]

    def work(ledger):
        for number in range(6):
            granted.append(ledger.reserve(response(0.1), first=number, rounds=1, source="x"))

    threads = [threading.Thread(target=work, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 10
    assert statement(path)["spent"] == pytest.approx(1.0, abs=1e-3)


_HOLDS = """
import sys
from pathlib import Path
from fedprior.privacy.held import HeldFile
file = HeldFile(Path(sys.argv[1]), existing=True)
with file.locked():
    import os
    os.write(file._file.fileno(), b'{"number": 1, "ki')
    print("holds", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_process_that_is_killed_with_the_lock_releases_it(path):
    """And what it had begun to write was never granted."""
    with process(path, script=_HOLDS) as holder:
        assert holder.stdout.readline() == "holds\n"
        waiting = threading.Timer(0.1, holder.kill)
        waiting.start()
        assert spend(path, 0.9) == 1  # waits until it is gone
        waiting.join()
    assert len(read(path)[1]) == 3


def test_somebody_who_holds_the_lock_for_good_is_named(path, monkeypatch):
    monkeypatch.setattr("fedprior.privacy.held._PATIENCE", 0.05)
    with opened(path, LOCAL, who="ask") as ledger, process(path, script=_HOLDS) as holder:
        assert holder.stdout.readline() == "holds\n"
        with pytest.raises(PrivacyError, match="has been in use by another process"):
            ledger.reserve(response(0.1), first=0, rounds=1, source="x")
        holder.communicate("\n")


# Files


def test_a_full_disk_grants_nothing_and_leaves_a_ledger(path, monkeypatch):
    """A part of a line is written: it is no charge, and the next process cuts it off."""
    write, room = os.write, iter([True])

    def once(handle, content):
        if next(room, False):
            return write(handle, bytes(content[:100]))
        raise OSError(28, "No space left on device")

    ledger = opened(path, LOCAL, who="ask")
    with monkeypatch.context() as patch:
        patch.setattr("fedprior.privacy.held.os.write", once)
        with pytest.raises(OSError, match="cannot write: No space left"):
            ledger.reserve(response(0.9), first=0, rounds=1, source="x")
    assert not path.read_bytes().endswith(b"\n")
    assert statement(path)["spent"] == 0
    with pytest.raises(PrivacyError, match="could not be written"):
        ledger.reserve(response(0.9), first=0, rounds=1, source="x")
    assert spend(path, 0.9) == 1
    assert spend(path, 0.9) == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes all")
def test_a_file_that_cannot_be_written_grants_nothing(path):
    path.chmod(0o400)
    with pytest.raises(PermissionError, match=r"population\.jsonl"):
        spend(path)
    assert statement(path)["spent"] == 0


def test_a_link_is_the_ledger_that_it_leads_to(path, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with opened(path, LOCAL, who="a") as one, opened(link, LOCAL, who="b") as other:
        assert one.reserve(response(0.6), first=0, rounds=1, source="x") == 1
        assert other.reserve(response(0.6), first=0, rounds=1, source="y") == 0
        link.unlink()
        shutil.copy(path, link)
        with pytest.raises(PrivacyError, match="moved, removed or replaced"):
            other.reserve(response(0.1), first=0, rounds=1, source="y")
    broken = tmp_path / "broken.jsonl"
    broken.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="does not exist"):
        begin_ledger(broken, epsilon=1.0, delta=1e-6)


def test_a_copy_that_is_charged_in_parallel_has_another_head(path, tmp_path):
    spend(path, 0.1)
    copy = tmp_path / "copy.jsonl"
    shutil.copy(path, copy)
    spend(path, 0.8)
    spend(copy, 0.8)
    ours = statement(path)["head"]["hash"]
    verify(path, head=ours)
    with pytest.raises(PrivacyError, match=r"none of the 5 lines .* cut or replaced"):
        verify(copy, head=ours)


def test_the_clock_is_of_no_account(path, monkeypatch):
    spend(path)
    monkeypatch.setattr("time.gmtime", lambda *given: (1969, 12, 31, 23, 59, 59, 2, 365, 0))
    spend(path, first=1)
    stated = statement(path)
    assert (len(stated["charges"]), stated["charges"][0]["rounds"]) == (1, 2)


# Edits


def test_cut_lines_are_seen_with_a_head_that_was_kept(path):
    spend(path)
    content, kept = path.read_bytes(), statement(path)["head"]["hash"]
    spend(path, first=1)
    assert verify(path, head=kept)["lines"] == 5
    last = statement(path)["head"]["hash"]
    path.write_bytes(content)
    assert verify(path)["lines"] == 3  # by itself it does not show
    assert verify(path, head=kept)["hash"] == kept
    with pytest.raises(PrivacyError, match="none of the 3 lines"):
        verify(path, head=last)
    for head in ("", "abc", last[:-1], last.upper() + "z", last.replace(last[0], "x")):
        with pytest.raises(ValueError, match="--head must be the 64 hexadecimal digits"):
            verify(path, head=head)


def test_a_ledger_cut_while_it_is_open_grants_nothing(path):
    with opened(path, LOCAL, who="ask") as ledger:
        content = path.read_bytes()
        ledger.reserve(response(0.9), first=0, rounds=1, source="x")
        with path.open("r+b") as file:
            file.truncate(len(content))
        with pytest.raises(PrivacyError, match="was truncated by another process"):
            ledger.reserve(response(0.9), first=0, rounds=1, source="x")


def test_lines_reordered_repeated_or_of_another_ledger_are_seen(path, tmp_path):
    other = tmp_path / "other.jsonl"
    begin_ledger(other, epsilon=1.0, delta=1e-6)
    for each in (path, other):
        for number in range(2):
            spend(each, 0.1, first=number)
    lines = path.read_bytes().splitlines(keepends=True)
    theirs = other.read_bytes().splitlines(keepends=True)
    changed = [
        [lines[0], lines[3], lines[4], lines[1], lines[2]],
        [*lines, lines[4]],
        [lines[0], lines[1], lines[1], *lines[2:]],
        [*lines[:3], *theirs[3:]],
        [theirs[0], *lines[1:]],
        [*lines, *theirs],
    ]
    for content in changed:
        path.write_bytes(b"".join(content))
        with pytest.raises(PrivacyError, match="does not match its hash"):
            verify(path)
    path.write_bytes(b"".join(theirs))  # sound by itself, but another one
    with pytest.raises(PrivacyError, match="head of another ledger"):
        verify(path, head=json.loads(lines[-1])["hash"])


def test_understated_epsilon_is_seen(path):
    spend(path)
    _rewrite(path, lambda records: records[1].update(epsilon=0.01))
    with pytest.raises(PrivacyError, match=r"states epsilon 0\.01, and all charges cost 0\.(3|29)"):
        verify(path)
    assert spend(path, 0.8) == 0  # nothing rests on what it states


def _rewrite(path, change, key=None):
    """What somebody does who knows how hashes are made, but not the key."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    previous, lines = "0" * 64, []
    for record in records:
        record.pop("hash")
        record["previous"] = previous
        previous = record["hash"] = digest(record, key)
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n")


# Keys


def test_a_key_is_made_for_its_owner_only(signed):
    path, key = signed
    assert key.stat().st_mode & 0o777 == 0o600
    secret = key.read_text().strip()
    assert len(secret) == 64
    assert spend(path, key=key) == 1
    assert secret not in path.read_text()
    assert statement(path, key)["keyed"]
    again = path.with_name("again.jsonl")
    begin_ledger(again, epsilon=1.0, delta=1e-6, key=key)  # a key that exists is used
    assert key.read_text().strip() == secret


def test_a_signed_ledger_is_opened_with_its_key_only(signed, path, tmp_path):
    mine, key = signed
    spend(mine, key=key)
    other = tmp_path / "other.key"
    begin_ledger(tmp_path / "other.jsonl", epsilon=1.0, delta=1e-6, key=other)
    for wrong, reason in ((None, "opened only with it"), (other, "made with another key")):
        for use in (read, statement, verify):
            with pytest.raises(PrivacyError, match=reason):
                use(mine, wrong)
        with pytest.raises(PrivacyError, match=reason):
            spend(mine, key=wrong)
    with pytest.raises(PrivacyError, match="was made without a key"):
        spend(path, key=key)
    content = mine.read_bytes()
    assert spend(mine, key=key, first=1) == 1
    assert mine.read_bytes().startswith(content)


def test_who_does_not_hold_the_key_forges_nothing(signed):
    path, key = signed
    spend(path, key=key)
    content = path.read_bytes()
    forgeries = [
        lambda records: records[0].update(budget=100.0),
        lambda records: records[0].update(delta=1e-3),
        lambda records: records[1].update(count=1, rounds=1, first=7),
        lambda records: records.pop(1),
        lambda records: records[0].update(key=None),  # made to look like one without a key
    ]
    for forgery in forgeries:
        for guess in (None, b"", b"guess"):
            path.write_bytes(content)
            _rewrite(path, forgery, guess)
            with pytest.raises(PrivacyError, match=r"does not match its hash|without a key"):
                spend(path, key=key)
    path.write_bytes(content)
    _rewrite(path, lambda records: records[0].update(budget=100.0), bytes.fromhex(key.read_text()))
    assert spend(path, 5.0, key=key) == 1  # the key is what it rests on


@pytest.mark.parametrize("content", [b"", b"abc", b"z" * 64, b"0" * 63, b"0" * 65, bytes(64)])
def test_a_key_file_holds_a_key(path, tmp_path, content):
    key = tmp_path / "key"
    key.write_bytes(content)
    with pytest.raises(ValueError, match="must contain 64 hexadecimal digits") as refused:
        spend(path, key=key)
    assert not content or content.decode() not in str(refused.value)
    with pytest.raises(ValueError, match="does not exist"):
        spend(path, key=tmp_path / "none")


def test_a_key_makes_no_ledger(signed, tmp_path):
    """A name with a typing error, or a signed ledger that is gone, is no new one."""
    _, key = signed
    with pytest.raises(PrivacyError, match=r"gone\.jsonl does not exist"):
        Ledger(tmp_path / "gone.jsonl", LOCAL, key=key)
    assert not (tmp_path / "gone.jsonl").exists()


def test_a_checkpoint_holds_a_head_that_is_not_the_end(path):
    with opened(path, LOCAL, who="a") as one, opened(path, LOCAL, who="b") as other:
        one.reserve(response(0.1), first=0, rounds=1, source="x")
        head = one.head
        other.reserve(response(0.1), first=0, rounds=1, source="y")
        one.reserve(response(0.1), first=1, rounds=1, source="x")
        one.verify(head)
        with pytest.raises(PrivacyError, match="truncated or replaced"):
            one.verify(Head(head.lines, "0" * 64))
