"""Lines that fedprior would not write, with hashes that fit them: a forger computes those, too."""

import json

import pytest

from fedprior.core.check import PrivacyError
from fedprior.privacy import opening
from fedprior.privacy.events import response
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.records import digest
from fedprior.privacy.terms import Terms

TERMS = Terms(delta=1e-6, relation="replace-one", view="local", noise="secure", budget=1.0)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, TERMS) as ledger:
        ledger.reserve(response(0.3), first=0, rounds=2, source="run")
        ledger.commit()
    return path


def forge(path, change):
    """Change the records and chain them again."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    previous, lines = "0" * 64, []
    for number, record in enumerate(records):
        record = {**record, "number": number, "previous": previous}
        record.pop("hash", None)
        previous = record["hash"] = digest(record)
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n")


def refused(path):
    with pytest.raises(PrivacyError, match=r"forged or damaged|format of .* must be"):
        read(path)
    with pytest.raises(PrivacyError, match=r"forged or damaged|format of .* must be"):
        Ledger(path, TERMS)


NUMBERS = [-3, 0, 2.0, 2.5, True, "2", None, [], 2**60, 1e300, float("nan"), float("inf")]
NOT_NUMBERS = [True, "0.3", None, [], {}, float("nan"), float("inf"), -float("inf"), -1]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize("name", ["rounds", "count"])
def test_forged_counts(path, name, value):
    forge(path, lambda records: records[1].update({name: value}))
    refused(path)


@pytest.mark.parametrize(
    ("line", "name", "values"),
    [
        (0, "delta", [*NOT_NUMBERS, 1, 2.0]),
        (0, "budget", [True, "9", [], -1, 0, float("nan"), float("inf")]),
        (0, "relation", ["any", None, 3, ["replace-one"], {}]),
        (0, "shared", [None, 0, "no"]),
        (0, "allow_delta", [None, 1, "yes"]),
        (0, "format", [3, 5, None, "4", 4.5]),
        (0, "id", [None, 3, ""]),
        (0, "unit", [None, "a\nb"]),
        (1, "first", [-1, 0.5, None, "0", True]),
        (1, "epsilon", NOT_NUMBERS),
        (1, "noise", [None, "none", ["secure"], 1]),
        (1, "view", [None, "all", "", 1]),
        (1, "source", [None, 3, ["run"]]),
        (1, "draws", [3, [], False]),
        (1, "who", [None, 3, "a\nb", "a\x1b[2J", "x" * 300]),
        (1, "clients", [0, -1, 1.5, "9", True]),
        (1, "within", [3, "x", {}, {"lines": 0, "hash": "0" * 64}, {"lines": 1, "hash": "z"}]),
        (1, "event", [None, {}, "gaussian", []]),
        (1, "kind", ["refund", "Reserve", None, 3, ["reserve"], "open", "commit"]),
        (2, "reserves", [None, [], [0], [5], [-1], [True], "1", 1, [1, 2]]),
    ],
)
def test_forged_fields(path, line, name, values):
    content = path.read_bytes()
    for value in values:
        path.write_bytes(content)
        forge(path, lambda records: records[line].update({name: value}))  # noqa: B023
        refused(path)


@pytest.mark.parametrize(
    "change",
    [
        {"noise": -0.3},
        {"noise": 0},
        {"noise": True},
        {"noise": "0.3"},
        {"noise": float("nan")},
        {"mechanism": "nothing"},
        {"sampling": "poisson", "rate": 0},
        {"sampling": "poisson", "rate": 2.0},
        {"sampling": "fixed", "size": 3, "num_clients": 2},
        {"overflow": -0.5},
        {"amplified": "yes"},
        {"size": "3"},
        {"num_clients": 2.5},
        {"another": 1},
    ],
    ids=repr,
)
def test_forged_events(path, change):
    forge(path, lambda records: records[1]["event"].update(change))
    refused(path)


def test_fields_more_or_less(path):
    content = path.read_bytes()
    for line, name in [(0, "key"), (0, "delta"), (1, "count"), (1, "noise"), (2, "reserves")]:
        path.write_bytes(content)
        forge(path, lambda records: records[line].pop(name))  # noqa: B023
        refused(path)
    for line in (0, 1, 2):
        path.write_bytes(content)
        forge(path, lambda records: records[line].update(refund=1))  # noqa: B023
        refused(path)


def test_lines_out_of_place(path):
    content = path.read_bytes()
    for change in (
        lambda records: records.reverse(),
        lambda records: records.append(dict(records[0])),
        lambda records: records.pop(0),
        lambda records: records.insert(1, dict(records[2])),
    ):
        path.write_bytes(content)
        forge(path, change)
        refused(path)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"null", b"3", b"[" * 100_000, b"\xff\xfe"])
def test_lines_that_are_no_records(path, text):
    whole = path.read_bytes()
    for content in (whole + text + b"\n", text + b"\n" + whole):
        path.write_bytes(content)
        with pytest.raises(PrivacyError, match="edited or damaged"):
            read(path)
        with pytest.raises(PrivacyError, match="edited or damaged"):
            Ledger(path, TERMS)
        assert path.read_bytes() == content  # nothing is cut from what is not understood


def test_the_budget_of_a_population_does_not_change(tmp_path):
    path = tmp_path / "population.jsonl"
    opening.begin_ledger(path, epsilon=1.0, delta=1e-6)
    forge(path, lambda records: records.append({"kind": "budget", "budget": 100.0}))
    refused(path)


def test_windows_newlines_change_nothing(path):
    wanted = read(path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(path) == wanted
    with Ledger(path, TERMS) as ledger:
        assert ledger.reserve(response(0.3), first=2, rounds=2, source="run") == 1
    assert len(read(path)[1]) == 4
