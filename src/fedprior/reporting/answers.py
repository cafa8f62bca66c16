"""Answers that can be opened again: a table of `estimate` or `regress`, and the summary beside it.

`rates.csv` has its summary in `rates.summary.json`: what `--json` prints, with the command, the
version, the settings and a checksum of the table. Both together make the page that `--report` made.
"""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check, formats
from fedprior.core.files import write_atomically
from fedprior.core.plain import plain
from fedprior.core.version import __version__
from fedprior.data.scan import literal, quoted
from fedprior.data.writing import writing
from fedprior.pages.page import Page
from fedprior.reporting import outputs
from fedprior.reporting.outputs import OUT_SUFFIXES, summary_path

WHAT = "a table of `fedprior estimate --out` or `regress --out`, or its .summary.json"
_SILENT = ("--force", "--json", "--quiet")  # words that do not change the answer
_MASKED = {"--key": "FILE", "--connect": "URL", "--connect-file": "FILE"}  # as in _UNSAID
_UNSAID = ("file", "group", "out", "plot", "report", "force", "connect", "connect_file", "key")
_OPTIONS = {"noise_scale": "--noise-sd"}
_ESTIMATES = {"raw", "personal", "weight", "lower", "upper"}
_OWNER = "report"


def document(
    what: str, summary: Mapping[str, Any], question: Any, *, source: str, labels: int, **more: Any
) -> dict[str, Any]:
    """The summary of an answer with all that its page needs; `labels` columns name the rows."""
    made = {
        "what": what,
        "version": __version__,
        "command": command_line(),
        "source": source,
        "settings": _settings(question),
        "labels": labels,
    }
    return plain({**summary, **made, **more})


def command_line() -> str:
    """The command that is running, without the words that do not change its answer.

    Where a key is and how to reach a database are not said: a page may go to anybody.
    """
    words, before = ["fedprior"], ""
    for word in sys.argv[1:]:
        option, equals, _ = word.partition("=")
        if before in _MASKED:
            words.append(_MASKED[before])
        elif equals and option in _MASKED:
            words.append(f"{option}={_MASKED[option]}")
        elif word not in _SILENT:
            words.append(word)
        before = "" if before in _MASKED else word
    return shlex.join(words)


def _settings(question: Any) -> dict[str, Any]:
    """The options that differ from their defaults."""
    found = {}
    for field in fields(question):
        value = getattr(question, field.name)
        if field.name not in _UNSAID and value != field.default:
            option = _OPTIONS.get(field.name, f"--{field.name.replace('_', '-')}")
            found[option] = str(value) if isinstance(value, Path) else value
    return found


def save(
    question: Any,
    document: Callable[[], Mapping[str, Any]],
    rows: Callable[[], Mapping[str, np.ndarray] | None],
    *,
    write: Callable[[Path], None],
    draw: Callable[[Path], Path] | None = None,
) -> None:
    """The files that a question asks for: a table with its summary, a picture, and a page.

    `write` writes the table, of which the page has the `rows`; both say what `document` returns.
    """
    if question.out is None and question.plot is None and question.report is None:
        return
    told = document()

    def write_both(path: Path) -> None:
        write(path)
        if path.suffix != ".json":
            write_summary(told, path, owner=question.owner)

    outputs.save(
        question.owner,
        out=question.out,
        write=write_both,
        plot=question.plot,
        draw=draw,
        report=question.report,
        page=lambda: page(told, rows()),
    )


def write_summary(found: Mapping[str, Any], out: Path, *, owner: str) -> None:
    """Write the summary beside the table, which it names by its checksum."""
    path = summary_path(out)
    tied = {**found, "table": {"file": out.name, "sha256": _checksum(out)}}
    with writing(path, "--out", owner=owner):
        write_atomically(path, (json.dumps(tied, indent=1) + "\n").encode())


def page(found: Mapping[str, Any], table: Mapping[str, np.ndarray] | None) -> Page:
    """The page of a document and its table, which is None if no group may be shown."""
    if found.get("what") == "regress" and not found.get("levels"):
        from fedprior.regression.page import regression_page

        return regression_page(found, table)
    from fedprior.estimation.page.whole import estimates_page

    return estimates_page(found, table)


def owns(path: Path) -> bool:
    """Whether `path` is a table of estimates or of a regression, or a summary."""
    if path.suffix == ".json" and path.is_file():
        return _document(path) is not None
    if path.suffix not in OUT_SUFFIXES or not path.is_file():
        return False
    return summary_path(path).is_file() or _kind(_head(path)) is not None


def page_of(path: Path) -> Page:
    """The page of a table, of its summary, or of both."""
    found = _document(path) if path.suffix == ".json" else None
    if found is None:
        beside = summary_path(path)
        found = _document(beside) if beside.is_file() else None
        check.expect(
            found is not None or not beside.is_file(), str(beside), "this is not a summary."
        )
    elif "table" in found:
        path = path.with_name(found["table"]["file"])
        sentence = "the table of this summary is not beside it. Keep both in one folder."
        check.expect(path.is_file(), str(path), sentence)
    if found is None:
        return _alone(path)
    formats.check("answer", found.get("format"), source=path)
    if not found["labels"]:
        return page(found, None)
    same = found["table"]["sha256"] == _checksum(path)
    told, of = summary_path(path).name, found["table"]["file"]
    why = f"the table has changed since {told} was written."
    if of != path.name:
        why = f"{told} is the summary of another table, {of}."
    remedy = "Estimate again, or remove the summary for a page of the table alone."
    check.expect(same, str(path), f"{why} {remedy}")
    return page(found, read_table(path, found["labels"]))


def _alone(path: Path) -> Page:
    """The page of a table without its summary."""
    head = _head(path)
    labels = next(place for place, name in enumerate(head) if name in ("n", "exposure"))
    found: dict[str, Any] = {"what": _kind(head), "size_name": head[labels], "labels": labels}
    found |= {"source": path.name, "alone": True}
    if labels == 2 and head[1] == "category":
        found["kind"] = "shares"
    elif head[0] == "level":
        raise ValueError(
            f"{path}: a table of several levels needs its summary, {summary_path(path).name}, "
            "which is not there. Estimate again with --out."
        )
    return page(found, read_table(path, labels))


def _kind(head: list[str]) -> str | None:
    """Estimate or regress by the names of the columns, None for any other table."""
    if not {"n", "exposure"} & {*head}:
        return None
    if {*head} >= _ESTIMATES:
        return "estimate"
    limits = [name for name in head if name.endswith("_lower")]
    whole = bool(limits) and "group" in head
    ends = ("_error", "_lower", "_upper", "")
    names = {name.removesuffix("_lower") for name in limits}
    return "regress" if whole and all(f"{a}{b}" in head for a in names for b in ends) else None


def read_table(path: Path, labels: int) -> dict[str, np.ndarray]:
    """The columns of a table that was written: text in the first `labels`, then numbers."""
    import duckdb

    head = _head(path)
    texts = (f"CAST({quoted(name)} AS VARCHAR) AS {quoted(name)}" for name in head[:labels])
    numbers = (f"CAST({quoted(name)} AS DOUBLE) AS {quoted(name)}" for name in head[labels:])
    with duckdb.connect() as connection:
        query = f"SELECT {', '.join([*texts, *numbers])} FROM {_scan(path)}"
        found = connection.execute(query).fetchnumpy()
    columns = {}
    for place, name in enumerate(head):
        cells = found[name]
        if place >= labels:
            columns[name] = np.ma.filled(np.ma.asarray(cells, np.float64), np.nan)
        else:
            columns[name] = _texts(cells)
    return columns


def _texts(cells: Any) -> np.ndarray:
    """Labels, None for empty ones; 3.0 reads 3, as it does where it is printed."""
    gone = np.ma.getmaskarray(cells)
    words = [
        None if none else re.sub(r"^(-?\d+)\.0$", r"\1", str(cell))
        for cell, none in zip(np.ma.getdata(cells).tolist(), gone, strict=True)
    ]
    found = np.empty(len(words), object)
    found[:] = words
    return found


def _scan(path: Path) -> str:
    if path.suffix == ".parquet":
        return f"read_parquet({literal(str(path))})"
    return f"read_csv({literal(str(path))}, header = true, all_varchar = true, delim = ',')"


def _head(path: Path) -> list[str]:
    import duckdb

    with duckdb.connect() as connection:
        try:
            rows = connection.execute(f"DESCRIBE SELECT * FROM {_scan(path)}").fetchall()
        except duckdb.Error:
            return []
    return [row[0] for row in rows]


def _document(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("what") in _KINDS else None


_KINDS = ("estimate", "regress")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
