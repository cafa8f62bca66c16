"""What the ledgers below a run folder say, computed anew from their events."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.core.files import read_json
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.charging import total
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import shown
from fedprior.privacy.opening import read
from fedprior.privacy.records import Head, merged, reservations, spent_rounds, verify
from fedprior.privacy.terms import Terms

# Whom a client has to trust for what an onlooker of the view does not learn.
TRUSTS = {
    "central": "whoever adds up the messages and draws cohorts and noise",
    "local": "nobody",
    "masked": "nobody with single messages or a sum without noise, provided that no more clients "
    "of a round than planned are absent or tell what they sent, and that the server follows the "
    "protocol",
}
_SHARED = ("delta", "relation", "view", "unit")  # what figures must have in common to be added up


def spent(run: Path) -> list[dict[str, Any]]:
    """One row per ledger: epsilon spent and what it means; each ledger's hashes are checked.

    So are the heads in the checkpoints beside them: a ledger that was cut or is gone is no bill.
    """
    check_heads(run)
    return [_row(path, run) for path in found(run)]


def guarantee(ledger: Path) -> dict[str, Any]:
    """What one ledger says, without where it lies."""
    (row,) = spent(ledger)
    return {name: value for name, value in row.items() if name != "ledger"}


def check_heads(run: Path) -> None:
    """Every ledger of a private run is as long as its folder has seen it, or longer.

    The folder notes the head before each round, and again in its checkpoints.
    """
    for folder in _parts(Path(run)):
        for seen in _heads(folder):
            ledger = _ledger_of(folder)
            if not ledger.is_file():
                raise PrivacyError(
                    f"privacy spent: {ledger} is missing, although its checkpoint refers to it. "
                    "Put it back: what was spent cannot be computed without it."
                )
            verify(read(ledger)[1], Head(**seen), ledger)


def check_purpose(run: Path, purpose: str) -> None:
    """Raise PrivacyError if a ledger of the run was begun for another configuration.

    A budget is for each method and seed: another seed in the configuration would begin another
    budget on the same clients.
    """
    for path in found(run):
        begun = read(path)[1][0]["purpose"]
        if begun != purpose:
            raise PrivacyError(
                f"run: config.toml must be the one that the run began with ({begun} in {path}), "
                f"got {purpose}. Put it back, or start a new run; what was spent still counts."
            )


def _parts(run: Path) -> list[Path]:
    """Folders of checkpoints below a run, or that of a ledger; none if they stayed elsewhere."""
    if run.is_dir():
        return sorted(run.rglob("checkpoint/*/seed-*/"))
    method, _, seed = run.resolve().parent.name.rpartition("-seed-")
    *_, whole = [*run.resolve().parents][:3]
    path = whole / "checkpoint" / method / f"seed-{seed}"
    return [path] if path.is_dir() else []


def _heads(folder: Path) -> Iterator[dict[str, Any]]:
    """The heads of a ledger that a run's folder has seen."""
    note, path = folder / "head.json", folder / "checkpoint.safetensors"
    if note.is_file():
        yield read_json(note)
    if path.is_file():
        from fedprior.exchange.checkpoint import read_checkpoint

        seen = read_checkpoint(path).facts.get("ledger")
        if seen is not None:
            yield seen


def _ledger_of(folder: Path) -> Path:
    """The ledger of a folder of checkpoints."""
    return folder.parents[2] / "privacy" / f"{folder.parent.name}-{folder.name}" / "ledger.jsonl"


def found(run: Path) -> list[Path]:
    """The ledgers of a run, one per private method and seed; or the one file that was named."""
    run = Path(run)
    if not run.is_file():
        return sorted(run.rglob("ledger.jsonl"))
    remedy = "Name a run folder, or a ledger.jsonl below its folder privacy/."
    check.require(_is_ledger(run), "privacy spent", "RUN", "a ledger", str(run), remedy)
    return [run]


def together(run: Path) -> dict[str, Any] | None:
    """All ledgers of a run as one: what they cost a client that was in each of them.

    None where there are fewer than two. `epsilon` is None where they cannot be added up: they
    differ in delta, relation, view or unit, have no proof together, or share their simulated noise
    and cohorts: what is composed must be drawn apart. Those of a run are keyed by its seed, method,
    channel, cohort and configuration, so that methods and seeds of one run are apart; the same run
    in two folders is not.
    """
    ledgers = [read(path) for path in found(run)]
    if len(ledgers) < 2:
        return None
    terms = [each for each, _ in ledgers]
    shared: dict[str, Any] = {
        name: value if len({getattr(each, name) for each in terms}) == 1 else None
        for name in _SHARED
        for value in [getattr(terms[0], name)]
    }
    events = merged([each for _, own in ledgers for each in spent_rounds(own)])
    secure = all(each.noise == "secure" for each in terms)
    proven = _apart(ledgers) and None not in shared.values()
    return {
        "epsilon": _composed(events, terms[0]) if proven else None,
        **shared,
        "sampling": sampling([each for _, own in ledgers for each in reservations(own)]),
        "noise": "secure" if secure else "simulated",
        "valid_for_release": secure,
        "trusts": TRUSTS.get(shared["view"], "unknown"),
        "ledgers": len(ledgers),
    }


def sentence(row: dict[str, Any]) -> str:
    """A row in words."""
    budget = f" of {row['budget']:g}" if row["budget"] is not None else ""
    rounds = "1 round" if row["rounds"] == 1 else f"{row['rounds']} rounds"
    return (
        f"{row['ledger']}: epsilon {shown(row['epsilon'], digits=4)}{budget} at delta "
        f"{row['delta']:g} after {rounds}, for one {row['unit']} ({row['relation']}), "
        f"{row['view']} view, {row['sampling']}; trusts {row['trusts']}. {_release(row['noise'])}"
    )


def sentence_together(row: dict[str, Any]) -> str:
    """All ledgers in words."""
    whole = f"The {row['ledgers']} ledgers together, on the same clients"
    if row["epsilon"] is None:
        reason = "they differ in delta, relation, view or unit, or share their simulated noise"
        return f"{whole}: no epsilon is proven ({reason})."
    return (
        f"{whole}: epsilon {shown(row['epsilon'], digits=4)} at delta {row['delta']:g}, for one "
        f"{row['unit']} ({row['relation']}), {row['view']} view, {row['sampling']}; trusts "
        f"{row['trusts']}. {_release(row['noise'])}"
    )


def _release(noise: str) -> str:
    return "Secure noise." if noise == "secure" else "Simulated noise: not valid for release."


def _row(path: Path, run: Path) -> dict[str, Any]:
    terms, records = read(path)
    return {
        "ledger": str(path if run.is_file() else path.relative_to(run)),
        "epsilon": total(records, terms),
        "delta": terms.delta,
        "relation": terms.relation,
        "view": terms.view,
        "sampling": sampling(reservations(records)),
        "unit": terms.unit,
        "noise": terms.noise,
        "valid_for_release": terms.noise == "secure",
        "trusts": TRUSTS.get(terms.view, "unknown"),
        "budget": terms.budget,
        # Releases: a repeated one counts again.
        "rounds": sum(each["rounds"] for each in reservations(records) if not _is_score(each)),
    }


def sampling(reserved: Iterable[dict[str, Any]]) -> str:
    """Who took part in the rounds, in words."""
    return " and ".join(dict.fromkeys(map(_sampler, reserved))) or "no round yet"


def _sampler(record: dict[str, Any]) -> str:
    event = Event.from_json(record["event"])
    if _is_score(record):
        return "the mean score of everyone"
    if record["count"] != record["rounds"]:  # noise that is correlated over rounds
        if event.sampling == "poisson":
            return f"cyclic Poisson sampling at rate {event.rate:.4g}, all rounds charged at once"
        return "any cohorts that keep the run's rule of participation, all rounds charged at once"
    if event.sampling == "everyone":
        return "everyone in every round"
    if event.sampling == "poisson":
        return f"Poisson sampling at rate {event.rate:.4g}"
    claim = "" if event.amplified else ", nobody hidden by it"
    return f"{event.size} of {event.num_clients} clients a round{claim}"


def _is_score(record: dict[str, Any]) -> bool:
    """Whether what was charged is a mean score (`privacy.scores`), and no round."""
    return record["event"]["mechanism"] == "response" and record["view"] == "central"


def _apart(ledgers: list[tuple[Terms, list[dict[str, Any]]]]) -> bool:
    """Whether no two ledgers have the same simulated draws, and each says which it has."""
    names = [
        name
        for terms, records in ledgers
        if terms.noise == "simulated"
        for name in {record["draws"] for record in reservations(records)}
    ]
    return None not in names and len(set(names)) == len(names)


def _composed(events: list[tuple[Event, int]], terms: Terms) -> float | None:
    try:
        return epsilon(events, delta=terms.delta, relation=terms.relation)
    except PrivacyError:  # mechanisms that the accountant has no common proof for
        return None


def _is_ledger(path: Path) -> bool:
    """By its name, or by its first line; a damaged ledger is told so when it is read."""
    if path.name == "ledger.jsonl":
        return True
    with path.open("rb") as file:
        first = file.readline()
    try:
        return "previous" in json.loads(first)
    except (ValueError, TypeError):
        return False
