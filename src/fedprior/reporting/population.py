"""The ledger of a population: how it is charged, and what its lines say."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.charging import total
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import shown
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.records import Head, Record, head, merged, reservations, spent_rounds
from fedprior.privacy.terms import Terms
from fedprior.reporting.ledgers import TRUSTS, sampling

FORMAT = 1
_LONGEST = 120  # characters of a part of a label
_UNDERSTATED = 1e-3  # a line may state this share less than what its events cost

# Who is kept from learning what, and how.
RELEASED = "sees what was released"
TOOK_PART = "also sees who took part when"
ADDS_UP = "adds up the messages"


def opened(
    path: Path,
    terms: Terms,
    *,
    who: str,
    num_clients: int | None = None,
    key: Path | None = None,
    begin: bool = False,
) -> Ledger:
    """Open a ledger to charge it, for `train` and `estimate` alike.

    `terms` are those of what is charged; in the ledger of a population, delta, relation and budget
    are the ledger's own. `begin` makes a ledger that does not exist. Without it a name with a
    typing error is refused, which would otherwise begin a second budget.
    """
    path = Path(path)
    if not begin and not path.is_file():
        raise PrivacyError(
            f"ledger: --ledger must be an existing ledger, got {path}. Make one with fedprior "
            f"privacy ledger init {path} --epsilon E --delta D."
        )
    return Ledger(path, terms, who=label(who), num_clients=num_clients, key=key, existing=not begin)


def label(*parts: str) -> str:
    """Return a name for who is charged, on one line."""
    clean = ["".join(c if c.isprintable() else "?" for c in part)[:_LONGEST] for part in parts]
    return ", ".join(part for part in clean if part)[:200]


def statement(path: Path, key: Path | None = None) -> dict[str, Any]:
    """What a ledger says: its budget, who spent what, what is left, and against whom it holds."""
    terms, records = read(path, key)
    spent = total(records, terms)
    rows = [_row(lines, terms) for lines in _charged(records)]
    return {
        "format": FORMAT,
        "ledger": str(path),
        "population": records[0]["shared"],
        "keyed": records[0]["key"] is not None,
        "budget": terms.budget,
        "spent": spent,
        "left": None if terms.budget is None else max(0.0, terms.budget - spent),
        "delta": terms.delta,
        "relation": terms.relation,
        "unit": terms.unit,
        "valid_for_release": all(row["noise"] == "secure" for row in rows),
        "charges": rows,
        "views": views(records, terms, spent),
        "head": asdict(head(records)),
    }


def verify(path: Path, key: Path | None = None, head: str | None = None) -> dict[str, Any]:
    """Check every line of a ledger, and that one of them is the `head` that was kept elsewhere.

    Hashes, fields and key are checked by reading, which also recomputes what was spent.
    """
    if head is not None:
        rule = "the 64 hexadecimal digits of a hash"
        good = len(head) == 64 and all(c in "0123456789abcdef" for c in head)
        check.require(good, "ledger verify", "--head", rule, head)
    terms, records = read(path, key)
    if head is not None and all(record["hash"] != head for record in records):
        raise PrivacyError(
            f"ledger: none of the {len(records)} lines of {path} has the hash {head}. Lines were "
            "cut or replaced since that head was noted, or it is the head of another ledger."
        )
    spent = total(records, terms)
    stated = [record["epsilon"] for record in reservations(records)]
    if stated and stated[-1] < spent * (1 - _UNDERSTATED):
        raise PrivacyError(
            f"ledger: the last charge of {path} states epsilon {stated[-1]:.6g}, and all charges "
            f"cost {spent:.6g}."
        )
    last = Head(len(records), records[-1]["hash"])
    keyed = records[0]["key"] is not None
    return {"format": FORMAT, "ledger": str(path), "keyed": keyed, "spent": spent, **asdict(last)}


def sentence(stated: dict[str, Any]) -> str:
    """A statement in words."""
    spent = f"epsilon {figure(stated['spent'])}"
    left = ""
    if stated["budget"] is not None:
        spent += f" of {stated['budget']:g}"
        left = f" Further charges may add {_down(stated['left'])}."
    return (
        f"{stated['ledger']}: {spent} is spent at delta {stated['delta']:g}, for one "
        f"{stated['unit']} ({stated['relation']}).{left}"
    )


def figure(epsilon: float) -> str:
    """Epsilon rounded up to four digits."""
    return shown(epsilon, digits=4) if epsilon else "0"


def _down(left: float) -> str:
    """What is left, rounded down: to promise more than there is would be wrong."""
    return f"{int(left * 1e4) / 1e4:g}"


def details(row: dict[str, Any]) -> str:
    """What a charge was for, in words."""
    rounds = "1 round" if row["rounds"] == 1 else f"{row['rounds']:,} rounds"
    clients = "" if row["clients"] is None else f" of {row['clients']:,} clients"
    return (
        f"{rounds}{clients}: {row['mechanism']}; {row['view']} view; {row['noise']} noise; since "
        f"{row['begun']}"
    )


def described(record: Record) -> str:
    """The event of a reservation in words."""
    event = Event.from_json(record["event"])
    if event.mechanism == "response":
        return f"randomized reports of epsilon {shown(event.noise, digits=6)}"
    return f"{event.mechanism.capitalize()} noise {event.noise:.12g}, {sampling([record])}"


def _charged(records: list[Record]) -> list[list[Record]]:
    """The reservations of each who spent, in order; a question that is asked again begins anew."""
    names = ("who", "source", "view", "noise")
    current: dict[tuple[str, ...], list[Record]] = {}
    found: list[list[Record]] = []
    for record in reservations(records):
        who = tuple(record[name] for name in names)
        if record["first"] == 0 or who not in current:
            current[who] = []
            found.append(current[who])
        current[who].append(record)
    return found


def _row(lines: list[Record], terms: Terms) -> dict[str, Any]:
    events = merged(spent_rounds(lines))
    first = lines[0]
    return {
        "who": first["who"] or "unnamed",
        "source": first["source"],
        "clients": lines[-1]["clients"],
        "rounds": sum(line["rounds"] for line in lines),
        "mechanism": "; ".join(dict.fromkeys(map(described, lines))),
        "view": first["view"],
        "noise": first["noise"],
        "trusts": TRUSTS[first["view"]],
        "epsilon": epsilon(events, delta=terms.delta, relation=terms.relation),
        "begun": first["time"],
        "ended": lines[-1]["time"],
    }


def views(records: list[Record], terms: Terms, spent: float) -> list[dict[str, Any]]:
    """Epsilon against each adversary, None where nothing is proven."""
    central = any(record["view"] == "central" for record in reservations(records))
    known = None
    if terms.relation == "replace-one":  # else who took part shows who is present
        plain = merged([(_unsampled(event), count) for event, count in spent_rounds(records)])
        known = epsilon(plain, delta=terms.delta, relation=terms.relation)
    return [
        {"adversary": RELEASED, "epsilon": spent},
        {"adversary": TOOK_PART, "epsilon": known},
        {"adversary": ADDS_UP, "epsilon": None if central else known},
    ]


def _unsampled(event: Event) -> Event:
    """The event for somebody from whom sampling hides nobody."""
    if event.sampling == "everyone":
        return event
    return replace(event, sampling="everyone", rate=1.0, size=0, num_clients=0, overflow=0.0)
