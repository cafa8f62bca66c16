"""How a deployment stands: a run at its server, or a site."""

from pathlib import Path
from typing import Any

from fedprior.core.files import read_json
from fedprior.core.scores import METRICS, OWN
from fedprior.reporting import ledgers
from fedprior.reporting.record import read_lines
from fedprior.sites.document import Document
from fedprior.sites.folder import open_site
from fedprior.sites.guarantee import counted, guarantee
from fedprior.sites.guarantee import sentences as promised
from fedprior.sites.roster import Roster

_LAST = 5  # faults that are shown


def of_run(folder: Path) -> dict[str, Any]:
    """Rounds, budget, who failed last; with secure noise nothing of single rounds."""
    path = Path(folder) / "agreement.json"
    if (Path(folder) / "site.toml").is_file():
        raise ValueError(f"status: {folder} is a site without data: it has left, or is not made.")
    if not path.is_file() or not (Path(folder) / "checkpoint").is_dir():
        raise ValueError(f"status: {folder} is neither a run of a deployment nor a site.")
    document = Document.read(path)
    progress = Path(folder) / "progress.json"
    found: dict[str, Any] = {
        "format": 1,
        "kind": "run",
        "agreement": document.token,
        "method": document.method,
        "clients": len(Roster.read(Path(folder) / "roster.json").active),
        "rounds": document.training.rounds,
        "round": 0,
        "finished": (Path(folder) / "summary.json").is_file(),
        "privacy": ledgers.spent(Path(folder)),
        "guarantee": guarantee(document),
    }
    if progress.is_file():
        found |= read_json(progress)
    if not document.agreement.secure:
        lines = [
            line
            for file in Path(folder).glob("checkpoint/*/*/faults.jsonl")
            for line in read_lines(file)
        ]
        found["faults"] = lines[-_LAST:]
    return found


def of_site(folder: Path) -> dict[str, Any]:
    """What the site has accepted, and how often each of its clients took part."""
    site = open_site(folder)
    found: dict[str, Any] = {"format": 1, "kind": "site", "clients": list(site.clients)}
    document = site.accepted
    found |= {"agreement": None, "turns": {}}
    if document is None:
        return found
    found |= {"agreement": document.token, "promised": promised(document)}
    memory = site.folder / "memory" / document.token
    seats = read_json(memory / "seats.json") if (memory / "seats.json").is_file() else {}
    for name, number in seats.items():
        found["turns"][name] = _turns(memory / f"{number}.memory")
    scores = site.folder / "scores.json"
    noted = read_json(scores) if scores.is_file() else {}
    found["scores"] = noted if noted.pop("agreement", None) == document.token else None
    return found


def sentences(found: dict[str, Any]) -> list[str]:
    """The same in words."""
    if found["kind"] == "site":
        return _site(found)
    state = "finished" if found["finished"] else "not finished"
    lines = [
        f"{found['method']}: {found['round']} of {found['rounds']} rounds, {state}; "
        f"{counted(found['clients'])}. Agreement {found['agreement']}."
    ]
    if not found["finished"] and "present" in found:
        lines.append(f"Connected in the last round: {counted(found['present'])}.")
    if not found["finished"] and found.get("seconds"):
        left = (found["rounds"] - found["round"]) * found["seconds"]
        lines.append(f"The last round took {found['seconds']:.0f} s; about {left:.0f} s are left.")
    lines += [ledgers.sentence(row) for row in found["privacy"]]
    lines += [
        f"Round {fault['round'] + 1}: {fault['who']}: {fault['reason']}."
        for fault in found.get("faults", ())
    ]
    return lines


def _site(found: dict[str, Any]) -> list[str]:
    lines = [f"{counted(len(found['clients']))}: {', '.join(found['clients'][:10])}."]
    if found["agreement"] is None:
        return [*lines, "No agreement is accepted: the node answers nobody."]
    lines += found["promised"]
    lines += [f"{name} took part in {turns} rounds." for name, turns in found["turns"].items()]
    if found["scores"]:
        metric = METRICS.get(found["scores"].get("metric", ""), OWN)
        for method, own in found["scores"].items():
            if method in ("metric", "metrics"):
                continue
            values = [value for value in own.values() if value == value]
            if values:
                mean = metric.words(sum(values) / len(values))
                lines.append(f"Mean test {metric.label} of {method}: {mean}.")
    return lines


def _turns(path: Path) -> int:
    from fedprior.exchange import memory, trees

    if not path.is_file():
        return 0
    facts = trees.read(path, kind="memory", format=memory.FORMAT).facts
    return int(facts.get("turns", {}).get("taken", 0))
