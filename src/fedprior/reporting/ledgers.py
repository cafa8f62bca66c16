"""What the ledgers below a run folder say, computed anew from their events."""

from pathlib import Path
from typing import Any

from fedprior.privacy.ledger import read, total


def spent(run: Path) -> list[dict[str, Any]]:
    """One row a ledger: epsilon spent and what it means; each ledger's hashes are checked."""
    return [_row(path, run) for path in ([run] if run.is_file() else found(run))]


def found(run: Path) -> list[Path]:
    """The ledgers of a run, one a private method and seed."""
    return sorted(Path(run).rglob("ledger.jsonl"))


def sentence(row: dict[str, Any]) -> str:
    """A row in words."""
    budget = f" of {row['budget']:g}" if row["budget"] is not None else ""
    kind = "" if row["noise"] == "secure" else " Simulated noise: not valid for release."
    meaning = f"for one {row['unit']} ({row['relation']}), {row['view']} view"
    return (
        f"{row['ledger']}: epsilon {row['epsilon']:.4g}{budget} at delta {row['delta']:g} after "
        f"{row['rounds']} rounds, {meaning}.{kind}"
    )


def _row(path: Path, run: Path) -> dict[str, Any]:
    terms, records = read(path)
    rounds = {
        number
        for record in records
        if record["kind"] == "reserve"
        for number in range(record["first"], record["first"] + record["rounds"])
    }
    return {
        "ledger": str(path if run.is_file() else path.relative_to(run)),
        "epsilon": total(records, terms),
        "delta": terms.delta,
        "relation": terms.relation,
        "view": terms.view,
        "unit": terms.unit,
        "noise": terms.noise,
        "budget": terms.budget,
        "rounds": len(rounds),
    }
