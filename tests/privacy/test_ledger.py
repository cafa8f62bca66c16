"""No path spends what is not recorded: crashes at every byte, edits, cuts, two processes."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.charging import total
from fedprior.privacy.events import gaussian, response
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.records import Head
from fedprior.privacy.terms import Terms

TERMS = {"delta": 1e-6, "relation": "replace-one", "view": "local", "noise": "secure"}


def terms(**changes):
    return Terms(**{**TERMS, "budget": 1.0, **changes})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "ledger.jsonl"


def test_a_budget_is_never_passed(path):
    with Ledger(path, terms()) as ledger:
        assert ledger.reserve(response(0.3), first=0, rounds=2, source="run") == 2
        ledger.commit()
        assert ledger.reserve(response(0.3), first=2, rounds=9, source="run") == 1
        ledger.commit()
        assert ledger.reserve(response(0.3), first=3, rounds=1, source="run") == 0
        assert ledger.spent == pytest.approx(0.9, abs=1e-4)
    found, records = read(path)
    assert found == terms()
    assert total(records, found) == pytest.approx(0.9, abs=1e-4)
    assert [r["kind"] for r in records] == ["open", "reserve", "commit", "reserve", "commit"]
    assert records[-2]["epsilon"] == pytest.approx(0.9, abs=1e-4)


def test_spent_agrees_with_an_independent_computation(path):
    with Ledger(path, terms(budget=None, relation="add-remove")) as ledger:
        for first in (0, 10, 20):
            ledger.reserve(gaussian(5.0), first=first, rounds=10, source="run")
            ledger.commit()
        assert ledger.spent == pytest.approx(epsilon([(gaussian(5.0), 30)], delta=1e-6))


def test_a_reservation_without_a_commit_counts(path):
    with Ledger(path, terms()) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=2, source="run")  # and then the machine stops
    with Ledger(path, terms()) as ledger:
        assert ledger.spent == pytest.approx(0.6, abs=1e-4)
        granted = ledger.reserve(response(0.3), first=0, rounds=2, source="run")
        assert granted == 1  # the replay is charged


def test_simulated_noise_replays_for_nothing(path):
    with Ledger(path, terms(noise="simulated")) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=2, source="run")
    with Ledger(path, terms(noise="simulated")) as ledger:
        assert ledger.rounds == 2
        granted = ledger.reserve(response(0.3), first=1, rounds=4, source="run")
        assert granted == 2  # one again, one new
        assert ledger.spent == pytest.approx(0.9, abs=1e-4)


def test_a_whole_replay_of_a_middle_part_is_granted(path):
    """A resumed run asks for chunks of other sizes than the killed one."""
    with Ledger(path, terms(noise="simulated")) as ledger:
        assert ledger.reserve(response(0.1), first=0, rounds=5, source="run", draws="a") == 5
        for first, rounds in ((0, 5), (0, 1), (1, 3), (3, 2), (4, 1), (2, 0)):
            names = {"source": "run", "draws": "a"}
            assert ledger.reserve(response(0.1), first=first, rounds=rounds, **names) == rounds
        assert ledger.spent == pytest.approx(0.5, abs=1e-4)


def test_new_rounds_before_and_between_replays_are_charged(path):
    names = {"source": "run", "draws": "a"}
    with Ledger(path, terms(noise="simulated")) as ledger:
        for first in (2, 5):
            ledger.reserve(response(0.1), first=first, rounds=1, **names)
        assert ledger.reserve(response(0.1), first=0, rounds=8, **names) == 8
        assert ledger.spent == pytest.approx(0.8, abs=1e-3)
        rounds = [(r["first"], r["rounds"]) for r in read(path)[1] if r["kind"] == "reserve"]
        assert rounds == [(2, 1), (5, 1), (0, 2), (3, 2), (6, 2)]
        assert ledger.reserve(response(0.1), first=8, rounds=9, **names) == 2


def test_many_rounds_may_be_one_event(path):
    """Granted together or not at all, and replayed in parts for nothing with simulated noise."""
    names = {"source": "run", "draws": "a"}
    with Ledger(path, terms(noise="simulated")) as ledger:
        assert ledger.reserve(response(0.6), first=0, rounds=50, count=1, **names) == 50
        assert ledger.spent == pytest.approx(0.6, abs=1e-4)
        assert ledger.reserve(response(0.6), first=20, rounds=30, **names) == 30
        assert ledger.reserve(response(0.6), first=0, rounds=50, count=1, **names) == 50
        assert ledger.reserve(response(0.3), first=50, rounds=9, count=2, source="b") == 0
        assert ledger.reserve(response(0.3), first=50, rounds=9, count=1, source="b") == 9
        assert ledger.spent == pytest.approx(0.9, abs=1e-4)
        for count in (0, -1, 1.5, True):
            with pytest.raises((ValueError, TypeError), match="count must be a whole number"):
                ledger.reserve(response(0.1), first=0, rounds=1, source="c", count=count)


def test_a_count_that_the_budget_does_not_cover_is_a_mistake(path):
    refused = pytest.raises(PrivacyError, match=r"cost of 9 events \(epsilon 2\.7")
    with Ledger(path, terms()) as ledger, refused:
        ledger.reserve(response(0.3), first=0, rounds=3, source="run", count=9)


def test_another_run_is_no_replay(path):
    """Other noise, or another seed or method: a new release of a round with an old number."""
    with Ledger(path, terms(noise="simulated", budget=None)) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=2, source="run")
        ledger.reserve(response(0.3), first=0, rounds=2, source="another")
        ledger.reserve(response(0.5), first=0, rounds=1, source="run")
        assert ledger.spent == pytest.approx(1.7, abs=1e-4)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert {line["noise"] for line in lines if line["kind"] == "reserve"} == {"simulated"}


def test_noise_of_one_release_is_no_other_s(path):
    """Two releases with the same simulated noise do not add up; other rounds have other noise."""
    with Ledger(path, terms(noise="simulated", budget=None)) as ledger:
        ledger.reserve(response(0.3), first=2, rounds=3, source="run", draws="a")
        assert ledger.reserve(response(0.3), first=2, rounds=4, source="run", draws="a") == 4
        for source, event in (("another", response(0.3)), ("run", response(0.5))):
            with pytest.raises(PrivacyError, match=r"noise of round 2 was already used.*seed"):
                ledger.reserve(event, first=0, rounds=3, source=source, draws="a")
        assert ledger.reserve(response(0.3), first=0, rounds=2, source="another", draws="a") == 2
        assert ledger.reserve(response(0.3), first=0, rounds=3, source="third", draws="b") == 3
        assert ledger.spent == pytest.approx(2.7, abs=1e-3)


def test_a_ledger_of_another_format_is_refused_with_a_remedy(path, monkeypatch):
    monkeypatch.setattr("fedprior.privacy.opening.FORMAT", 2)
    Ledger(path, terms()).close()
    monkeypatch.undo()
    with pytest.raises(PrivacyError, match=r"must be 4, got 2\. .* new run\. What was spent"):
        read(path)


def test_a_budget_below_one_round_is_a_mistake(path):
    refused = pytest.raises(PrivacyError, match=r"cover the cost of one round \(epsilon 2")
    with Ledger(path, terms()) as ledger, refused:
        ledger.reserve(response(2.0), first=0, rounds=1, source="run")


def test_caps_that_use_up_delta_end_the_budget(path):
    """The run ends with its models, where the chance of a cohort above its cap reaches delta."""
    event = replace(gaussian(50.0), sampling="poisson", rate=0.1, overflow=3e-7)
    with Ledger(path, terms(relation="add-remove", view="central", budget=5)) as ledger:
        assert ledger.terms.delta == 1e-6
        assert ledger.reserve(event, first=0, rounds=10, source="run") == 3


def test_a_crash_at_every_byte_loses_no_round_that_ran(path, tmp_path):
    """The file as it may be left when writing stops at any byte: what ran is always counted."""
    ran = {}  # bytes on disk when rounds began to run -> epsilon that was spent by then
    with Ledger(path, terms(budget=10.0)) as ledger:
        for first in range(3):
            ledger.reserve(response(0.3), first=first, rounds=1, source="run")
            ran[path.stat().st_size] = 0.3 * (first + 1)
            ledger.commit()
    content = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    cut = tmp_path / "cut.jsonl"
    for length in range(len(content) + 1):
        cut.write_bytes(content[:length])
        needed = max((spent for size, spent in ran.items() if size <= length), default=0)
        with Ledger(cut, terms(budget=10.0)) as ledger:
            assert ledger.rounds >= needed / 0.3 - 1e-4
            if any(abs(length - end) <= 1 for end in ends):  # accounting takes a while
                assert ledger.spent >= needed - 1e-4
                assert ledger.reserve(response(0.3), first=9, rounds=1, source="run") == 1
        assert read(cut)[0] == terms(budget=10.0)


def test_a_failed_write_grants_nothing(path, monkeypatch):
    with Ledger(path, terms()) as ledger:
        monkeypatch.setattr("fedprior.privacy.held.os.fsync", _fail)
        with pytest.raises(OSError, match="no space left"):
            ledger.reserve(response(0.3), first=0, rounds=1, source="run")


def test_after_a_failed_write_nothing_more_is_granted(path, monkeypatch):
    """What is on disk after it is unknown to the process; the next one reads it."""
    with Ledger(path, terms()) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr("fedprior.privacy.held.os.fsync", _fail)
            with pytest.raises(OSError, match="no space left"):
                ledger.reserve(response(0.3), first=0, rounds=1, source="run")
        with pytest.raises(PrivacyError, match="could not be written"):
            ledger.reserve(response(0.3), first=0, rounds=1, source="run")
    with Ledger(path, terms()) as ledger:
        assert ledger.rounds == 1


def _fail(handle):
    raise OSError("no space left on device")


def test_a_whole_line_without_its_end_is_spent(path):
    with Ledger(path, terms()) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=1, source="run")
    path.write_bytes(path.read_bytes()[:-1])
    found, records = read(path)
    assert total(records, found) == pytest.approx(0.3, abs=1e-4)
    for rounds in (1, 2):
        with Ledger(path, terms()) as ledger:
            assert ledger.rounds == rounds
            ledger.reserve(response(0.3), first=rounds, rounds=1, source="run")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_that_was_taken_away_grants_nothing(path, replaced):
    """The lock stays with the file that was moved: another process may hold one of its name."""
    with Ledger(path, terms()) as ledger:
        assert ledger.reserve(response(0.3), first=0, rounds=1, source="run") == 1
        path.rename(path.with_name("away.jsonl"))
        if replaced:
            Ledger(path, terms()).close()
        with pytest.raises(PrivacyError, match="moved, removed or replaced"):
            ledger.commit()
        with pytest.raises(PrivacyError, match="moved, removed or replaced"):
            ledger.reserve(response(0.3), first=1, rounds=1, source="run")


def test_a_ledger_that_others_wrote_to_grants_nothing(path):
    with Ledger(path, terms()) as ledger:
        with path.open("ab") as other:
            other.write(b"{}\n")
        with pytest.raises(PrivacyError, match="edited or damaged"):
            ledger.reserve(response(0.3), first=0, rounds=1, source="run")


def test_two_threads_cannot_both_spend_the_last_of_a_budget(path, monkeypatch):
    """The second to count waits until the first has recorded."""
    counted = []

    def slowly(*given, **named):
        counted.append(None)
        time.sleep(0.05)  # the other thread would count the same records meanwhile
        return epsilon(*given, **named)

    monkeypatch.setattr("fedprior.privacy.charging.epsilon", slowly)
    granted = []
    with Ledger(path, terms()) as ledger:

        def spend(name):
            granted.append(ledger.reserve(response(0.7), first=0, rounds=1, source=name))

        threads = [threading.Thread(target=spend, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(granted) == [0, 1]
    assert counted


def test_a_fork_is_charged_like_any_other_process(path):
    """It has its parent's records, which by then are not all."""
    script = """
import os, sys
from pathlib import Path
from fedprior.privacy.events import response
from fedprior.privacy.ledger import Ledger, Terms
from fedprior.core.check import PrivacyError
terms = Terms(delta=1e-6, relation="replace-one", view="local", noise="secure", budget=1.0)
with Ledger(Path(sys.argv[1]), terms) as ledger:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    try:
        print(ledger.reserve(response(0.7), first=0, rounds=1, source="run"), flush=True)
    except PrivacyError as error:
        print(error, flush=True)
    if not child:
        os._exit(0)
"""
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    command = [sys.executable, "-c", script, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == ["1", "0"]


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_an_edited_line_is_seen(path, line):
    with Ledger(path, terms()) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=1, source="run")
        ledger.commit()
        ledger.reserve(response(0.3), first=1, rounds=1, source="run")
    lines = path.read_text().splitlines()
    record = json.loads(lines[line])
    record["rounds" if record["kind"] == "reserve" else "note"] = 0
    lines[line] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(PrivacyError, match=f"line {line + 1} of .* edited or damaged"):
        Ledger(path, terms())
    with pytest.raises(PrivacyError, match="edited or damaged"):
        read(path)


def test_a_removed_line_is_seen(path):
    with Ledger(path, terms()) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=1, source="run")
        ledger.commit()
        ledger.reserve(response(0.3), first=1, rounds=1, source="run")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:1] + lines[2:]) + "\n")
    with pytest.raises(PrivacyError, match="line 2"):
        Ledger(path, terms())


def test_a_cut_tail_is_seen_by_the_checkpoint(path):
    with Ledger(path, terms()) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=1, source="run")
        ledger.commit()
        head = ledger.head
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    with Ledger(path, terms()) as ledger, pytest.raises(PrivacyError, match="truncated"):
        ledger.verify(head)
    with Ledger(path, terms()) as ledger:
        ledger.verify(Head(2, json.loads(lines[1])["hash"]))


def test_other_terms_are_refused_and_a_new_budget_is_recorded(path):
    Ledger(path, terms()).close()
    with pytest.raises(PrivacyError, match="original terms"):
        Ledger(path, terms(delta=1e-5))
    with Ledger(path, terms(budget=2.0)) as ledger:
        assert ledger.reserve(response(0.9), first=0, rounds=3, source="run") == 2
    assert read(path)[0].budget == 2.0


def test_two_processes_cannot_both_spend_the_last_of_a_budget(path):
    script = """
import sys
from pathlib import Path
from fedprior.privacy.events import response
from fedprior.privacy.ledger import Ledger, Terms
from fedprior.core.check import PrivacyError
terms = Terms(delta=1e-6, relation="replace-one", view="local", noise="secure", budget=1.0)
try:
    with Ledger(Path(sys.argv[1]), terms) as ledger:
        print(ledger.reserve(response(0.7), first=0, rounds=1, source="run"), flush=True)
        sys.stdin.read()
except PrivacyError as error:
    print(error)
"""
    command = [sys.executable, "-c", script, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as first:
        assert first.stdout.readline().strip() == "1"
        with Ledger(path, terms()) as ledger:  # while the other one has it open
            assert ledger.reserve(response(0.7), first=0, rounds=1, source="run") == 0
            assert ledger.reserve(response(0.2), first=0, rounds=1, source="run") == 1
        first.communicate("")


def test_what_is_no_ledger_is_named(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        read(tmp_path / "none.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(PrivacyError, match="is empty"):
        read(empty)


def test_a_changed_byte_is_refused_or_changes_nothing(path):
    """Also of the last line's end: the line is then damaged, not torn, and stays spent."""
    with Ledger(path, terms()) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=2, source="run")
        ledger.commit()
    content, wanted = path.read_bytes(), read(path)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            assert read(path) == wanted
        except PrivacyError as error:
            assert str(path) in str(error)  # noqa: PT017
    for mask in (1, 2, 64, 128):
        path.write_bytes(content[:-1] + bytes([content[-1] ^ mask]))
        with pytest.raises(PrivacyError, match=r"line 3 of .* does not match its hash"):
            read(path)


def test_a_ledger_without_a_delta_adds_up_randomized_responses(path):
    with Ledger(path, terms(delta=0.0, budget=2.5)) as ledger:
        for number in range(3):
            granted = ledger.reserve(response(1.0), first=0, rounds=1, source=f"question {number}")
            assert granted == (number < 2)
        assert ledger.spent == 2.0
        with pytest.raises(ValueError, match="delta must be a positive number"):
            ledger.reserve(gaussian(9.0), first=0, rounds=1, source="a run")
