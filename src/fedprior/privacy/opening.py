"""The first line of a ledger, its terms, and ledgers that are read but not charged."""

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.core.files import make_folder, naming, sync_folder
from fedprior.core.plain import picked
from fedprior.privacy import keys
from fedprior.privacy.events import Relation
from fedprior.privacy.held import HeldFile
from fedprior.privacy.records import (
    FORMAT,
    Record,
    encoded,
    key_name,
    line,
    parse,
    reservations,
    split,
)
from fedprior.privacy.terms import Terms

_TERMS = ("delta", "relation", "unit", "budget", "allow_delta")


def first_line(
    terms: Terms, *, key: bytes | None = None, purpose: str = "", shared: bool = False
) -> Record:
    """Return the fields of the first line; a population's ledger leaves view and noise open.

    The id is random: a ledger that is begun anew under the same terms has another hash.
    """
    return {
        "kind": "open",
        "format": FORMAT,
        "id": secrets.token_hex(16),
        "shared": shared,
        "key": key_name(key),
        "purpose": purpose,
        **picked(terms, *_TERMS),
        "view": None if shared else terms.view,
        "noise": None if shared else terms.noise,
    }


def begin_ledger(
    path: Path,
    *,
    epsilon: float,
    delta: float,
    relation: Relation = "replace-one",
    key: Path | None = None,
    allow_delta: bool = False,
) -> None:
    """Make the ledger of a population, with a budget that all who charge it share.

    Under replace-one, every mechanism of the package has a proof; under add-remove, local reports,
    secure sums and cohorts of fixed size are refused. `key` is the file of a key by which its lines
    are hashed; a new key is written there if the file does not exist.
    """
    path = Path(path)
    terms = Terms(
        delta=delta,
        relation=relation,
        view="central",
        noise="secure",
        budget=epsilon,
        allow_delta=allow_delta,
    )
    check.require(not path.is_dir(), "ledger", "FILE", "a new file", str(path))
    if path.exists() or path.is_symlink():
        remedy = "What was spent on it still counts."
        check.require(False, "ledger", "FILE", "a file that does not exist", str(path), remedy)
    if key is not None and Path(key).exists():
        keys.read(key)  # a bad key is refused before anything is made
    make_folder(path.parent)
    with naming(path), path.open("xb"):
        pass
    try:
        secret = None if key is None else keys.read_or_make(key)
        file = HeldFile(path, existing=True)
        with file.locked():
            file.append(encoded(line(first_line(terms, key=secret, shared=True), [], secret)))
    except BaseException:
        path.unlink()
        raise
    sync_folder(path.parent)


def read(path: Path, key: Path | None = None) -> tuple[Terms, list[Record]]:
    """Return the terms and the verified lines of a ledger, without an incomplete last line."""
    path = Path(path)
    check.expect(path.exists(), "ledger", f"{path} does not exist.")
    check.expect(not path.is_dir(), "ledger", f"{path} is a folder, not a ledger.")
    secret = None if key is None else keys.read(key)
    records = parse(split(path.read_bytes())[0], path, key=secret)
    if not records:
        raise PrivacyError(f"ledger: {path} is empty; a ledger begins with its terms.")
    return Terms(**stated(records), **_seen(records)), records


def stated(records: list[Record]) -> dict[str, Any]:
    """Return the terms that hold for all lines, with the latest budget."""
    terms = {name: records[0][name] for name in _TERMS}
    for record in records:
        if record["kind"] == "budget":
            terms["budget"] = record["budget"]
    return terms


def adopted(terms: Terms, first: Record, path: Path) -> Terms:
    """Return the terms under which a population's ledger is charged: its own, and who asks."""
    if terms.view != "central" and first["relation"] != "replace-one":
        what = "local reports" if terms.view == "local" else "secure sums"
        raise PrivacyError(
            f"ledger: relation of {path} must be replace-one for {what}, got "
            f"{first['relation']}. Whoever collects them sees which clients take part."
        )
    if terms.unit != first["unit"]:
        raise PrivacyError(
            f"ledger: {path} protects one {first['unit']}, which must also be the unit of what "
            f"is charged, got {terms.unit}."
        )
    same = {name: first[name] for name in ("delta", "relation", "budget")}
    return replace(terms, **same, allow_delta=terms.allow_delta or first["allow_delta"])


def _seen(records: list[Record]) -> dict[str, Any]:
    """The views and the weakest noise of what was charged; before that, those at the opening."""
    charged = list(reservations(records)) or records[:1]
    views = {record["view"] for record in charged} - {None}
    noises = {record["noise"] for record in charged}
    return {
        "view": " and ".join(sorted(views)),
        "noise": "secure" if noises == {"secure"} else "simulated",
    }
