"""What the cells of a column are (numbers, truth values, dates, text), and the SQL that reads them.

Every command reads tables through these expressions, so that a file has the same columns for all of
them. A column's kind is decided by all of its cells; a missing cell is NULL, NaN, empty, or one of
the words for missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedprior.data.scan import Scan, literal, quoted

Kind = Literal["number", "truth", "date", "text"]
MISSING = ("na", "n/a", "nan", "null", "<na>", "#n/a", ".", "None")
"""Words for missing. A word in lower case stands for any spelling; others match exactly."""

_MARKS = ("-", "--", "?", "none", "nan")  # missing among numbers, truth values or dates, else words
_TRUTH = ("true", "false")  # yes and no stay words: they are often labels
_DATES = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y", "%m/%d/%Y")
_ISO = "iso"
_COMMA = r"[+-]?\d*,\d+([eE][+-]?\d+)?"
_THOUSANDS = r"[+-]?[1-9]\d{0,2},\d{3}"  # 1,234 is 1.234 or 1234
_MOST_LEVELS = 50  # a column mostly of numbers with more distinct cells is no category


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table; `value` is the SQL of its cells, NULL (or NaN) where they are missing.

    `cell` is the same before it is converted. Numbers and dates are DOUBLE, a date as days since
    1970-01-01. `form` says how they are written: "," for decimal commas, "iso" or a format of
    `strptime` for dates.
    """

    name: str
    kind: Kind
    value: str
    cell: str
    form: str = ""
    note: str = ""

    def said(self, num_missing: int) -> str:
        """`age`: number, 3 missing."""
        kind = {"truth": "true or false", "date": "date (in days since 1970-01-01)"}
        gaps = f", {num_missing:,} missing" if num_missing else ""
        note = f", {self.note}" if self.note else ""
        return f"`{self.name}`: {kind.get(self.kind, self.kind)}{gaps}{note}"


def present(cell: str, missing: Sequence[str]) -> str:
    """SQL of a cell of text, NULL where it is empty or a word for missing."""
    exact = [word for word in missing if word != word.lower()]
    any_case = ["", *(word for word in missing if word == word.lower())]
    condition = f"lower(trim({cell})) IN ({_listed(any_case)})"
    if exact:
        condition += f" OR trim({cell}) IN ({_listed(exact)})"
    return f"CASE WHEN {condition} THEN NULL ELSE {cell} END"


def not_nan(number: str) -> str:
    """SQL of a number, NULL where it is NaN.

    DuckDB folds `isnan` to false where the statistics of a Parquet file, which leave NaN out, have
    finite bounds.
    """
    return f"CASE WHEN {is_nan(number)} THEN NULL ELSE {number} END"


def is_nan(number: str) -> str:
    """SQL that is true for NaN, whatever the statistics of a Parquet file say."""
    return f"(NOT isfinite({number}) AND NOT isinf({number}))"


def missing_numbers(missing: Sequence[str]) -> list[float]:
    """The words for missing that are numbers, such as -999."""
    numbers = []
    for word in missing:
        try:
            numbers.append(float(word))
        except ValueError:
            continue
    return [number for number in numbers if number == number]


def label(cell: str, kind: str, missing: Sequence[str]) -> str:
    """SQL of the cell that names a group, of the DuckDB type `kind`: a number, else text."""
    if not Scan.is_number(kind):
        return present(cell if kind == "VARCHAR" else f"CAST({cell} AS VARCHAR)", missing)
    if kind in ("FLOAT", "DOUBLE"):
        cell = not_nan(cell)
    return _without(cell, kind, missing)


def spelled(cell: str, kind: str) -> str:
    """SQL of a label as text: a whole number reads the same whether stored as 3 or as 3.0."""
    text = f"CAST({cell} AS VARCHAR)"
    if kind not in ("FLOAT", "DOUBLE"):
        return text
    whole = f"{cell} = trunc({cell}) AND abs({cell}) < 9007199254740992"
    return f"CASE WHEN {whole} THEN CAST(CAST({cell} AS BIGINT) AS VARCHAR) ELSE {text} END"


def key(types: Mapping[str, str], names: Sequence[str], missing: Sequence[str]) -> str:
    """SQL of a row's group: the cell of one column, or those of several between slashes.

    A slash within a cell is doubled, so that different cells never make the same key; a row
    without one of the cells has no key.
    """
    cells = [label(quoted(name), types[name], missing) for name in names]
    if len(cells) == 1:
        return cells[0]
    parts = [
        f"replace({spelled(cell, types[name])}, '/', '//')"
        for name, cell in zip(names, cells, strict=True)
    ]
    return " || ' / ' || ".join(parts)


def describe(
    source: Scan,
    names: Iterable[str],
    *,
    missing: Sequence[str] = MISSING,
    lenient: bool = False,
) -> dict[str, Column]:
    """Columns with the kinds that all of their cells show.

    A column of text that holds nothing but numbers takes one pass, others a second one. `lenient`
    takes a column of numbers and words for text, however many there are.
    """
    names = list(names)
    plain = _plain_numbers(source, [name for name in names if source.is_text(name)])
    columns = {}
    for name in names:
        if not source.is_text(name):
            columns[name] = _typed(name, source.types[name], missing)
        elif name in plain and not missing_numbers(missing):
            cell = present(source.text(name), (*missing, *_MARKS))
            number = f"TRY_CAST({source.text(name)} AS DOUBLE)"
            columns[name] = Column(name=name, kind="number", value=number, cell=cell)
        else:
            columns[name] = _guessed(source, name, missing, lenient)
    return columns


def as_kind(source: Scan, name: str, kind: Kind, form: str, missing: Sequence[str]) -> Column:
    """A column of a kind that is known beforehand: each cell is read by itself alone."""
    stored = source.types[name]
    if not source.is_text(name):
        column = _typed(name, stored, missing)
        if kind != "text" or column.kind == "text":
            return replace(column, kind=kind, form=form)
        text = spelled(label(quoted(name), stored, missing), stored)
        return Column(name=name, kind=kind, value=text, cell=text)
    cell = present(source.text(name), missing if kind == "text" else (*missing, *_MARKS))
    value = _value(cell, kind, form)
    if kind == "number" and not form:
        clear = f"regexp_full_match(trim({cell}), {literal(_COMMA)})"
        if not source.semicolons:
            clear += f" AND NOT regexp_full_match(trim({cell}), {literal(_THOUSANDS)})"
        value = f"coalesce({value}, CASE WHEN {clear} THEN {_value(cell, kind, ',')} END)"
    return Column(name=name, kind=kind, value=value, cell=cell, form=form)


def _plain_numbers(source: Scan, names: Sequence[str]) -> set[str]:
    """Columns of text with filled cells, all of them numbers as they stand."""
    if not names:
        return set()
    cells = [f"count({quoted(name)})" for name in names]
    numbers = [f"count(TRY_CAST({quoted(name)} AS DOUBLE))" for name in names]
    counts = source.run(f"SELECT {', '.join([*cells, *numbers])} FROM source")[0]
    halves = zip(names, counts[: len(names)], counts[len(names) :], strict=True)
    return {name for name, filled, number in halves if filled == number > 0}


def _typed(name: str, stored: str, missing: Sequence[str]) -> Column:
    """A column whose type the file or frame declares."""
    cell, form = quoted(name), ""
    kind: Kind = "text"
    value = f"CAST({cell} AS VARCHAR)"
    if stored == "BOOLEAN":
        kind, value = "truth", cell
    elif stored == "DATE" or stored.startswith("TIMESTAMP"):
        kind, value, form = "date", f"epoch({cell}) / 86400", _ISO
    elif Scan.is_number(stored):
        kind, value = "number", _without(f"CAST({cell} AS DOUBLE)", stored, missing)
        cell = label(cell, stored, missing)
    return Column(name=name, kind=kind, value=value, cell=cell, form=form)


def _guessed(source: Scan, name: str, missing: Sequence[str], lenient: bool) -> Column:
    """A column of text, by what all of its cells have in common."""
    cell = present(source.text(name), missing)
    rows = f"(SELECT {cell} AS c FROM source)"
    facts = _facts(source, rows)
    words = facts["words"]
    numbers = facts["plain"] + facts["comma"]
    kind: Kind = "text"
    form = ""
    forms = [form for form in (_ISO, *_DATES) if facts[form] == words]
    if words == 0:
        pass
    elif numbers == words:
        kind, form = "number", "," if facts["comma"] else ""
        if facts["comma"] == facts["thousands"] > 0 and not source.semicolons:
            _refuse_unclear(source, name, rows, _THOUSANDS, "1.234 or 1234 where it says 1,234")
    elif facts["truth"] == words:
        kind = "truth"
    elif forms:
        kind, form = "date", forms[0]
        if len(forms) > 1 and _differ(source, rows, forms):
            _refuse_unclear(source, name, rows, ".+", "day/month or month/day")
    note = ""
    if kind == "text" and numbers and not lenient:
        note = _mixed(source, name, rows, numbers, facts["cells"])
    text = cell if kind == "text" else present(source.text(name), (*missing, *_MARKS))
    value = _value(cell, kind, form)
    return Column(name=name, kind=kind, value=value, cell=text, form=form, note=note)


def _facts(source: Scan, rows: str) -> dict[str, int]:
    """How many cells `c` there are, how many words `w` but for marks, and of which kinds."""
    matching = {
        "comma": f"regexp_full_match(trim(w), {literal(_COMMA)})",
        "thousands": f"regexp_full_match(trim(w), {literal(_THOUSANDS)})",
        "truth": f"lower(trim(w)) IN ({_listed(_TRUTH)})",
    }
    counted = {
        "cells": "count(c)",
        "words": "count(w)",
        "plain": "count(TRY_CAST(w AS DOUBLE))",
        **{kind: f"count(*) FILTER (WHERE {matches})" for kind, matches in matching.items()},
        **{form: f"count({_timestamp('w', form)})" for form in (_ISO, *_DATES)},
    }
    words = f"(SELECT c, {present('c', _MARKS)} AS w FROM {rows})"
    counts = source.run(f"SELECT {', '.join(counted.values())} FROM {words}")[0]
    return dict(zip(counted, counts, strict=True))


def _mixed(source: Scan, name: str, rows: str, numbers: int, words: int) -> str:
    """What to say of numbers and words in one column; an error where they are no categories."""
    number = f"coalesce(TRY_CAST(c AS DOUBLE), {_value('c', 'number', ',')})"
    distinct, odd = source.run(
        f"SELECT count(DISTINCT c), first(c) FILTER (WHERE {number} IS NULL) FROM {rows}"
    )[0]
    if distinct > _MOST_LEVELS and numbers > words / 2:
        place = f"SELECT row_number() OVER () AS place, c FROM {rows}"
        row = source.run(f"SELECT min(place) FROM ({place}) WHERE c = {literal(odd)}")[0][0]
        raise ValueError(
            f"{source.path}: column {name!r} must hold numbers, or at most {_MOST_LEVELS} distinct "
            f"words, got {odd!r} in row {row} beside {numbers:,} numbers. If it means missing, add "
            "it to the words for missing (--missing)."
        )
    return f"{distinct} distinct, numbers and words such as {odd!r}"


def _refuse_unclear(source: Scan, name: str, rows: str, pattern: str, choice: str) -> None:
    matching = f"regexp_full_match(trim(c), {literal(pattern)})"
    shown = source.run(f"SELECT first(c) FILTER (WHERE {matching}) FROM {rows}")[0][0]
    raise ValueError(
        f"{source.path}: column {name!r} can be read in two ways, {choice}: {shown!r}. Write it "
        "unambiguously (1234.5, 2021-12-31), or leave the column out."
    )


def _differ(source: Scan, rows: str, forms: list[str]) -> bool:
    """Whether the formats give different dates."""
    one, other = (_timestamp("c", form) for form in forms[:2])
    return bool(source.run(f"SELECT count(*) FILTER (WHERE {one} <> {other}) FROM {rows}")[0][0])


def _value(cell: str, kind: Kind, form: str) -> str:
    """SQL of a present cell of text as a value of its kind; NULL where it is none."""
    if kind == "number":
        return f"TRY_CAST({_pointed(cell) if form == ',' else cell} AS DOUBLE)"
    if kind == "truth":
        known = f"lower(trim({cell})) IN ({_listed(_TRUTH)})"
        return f"CASE WHEN {known} THEN lower(trim({cell})) = 'true' END"
    if kind == "date":
        return f"epoch({_timestamp(cell, form or _ISO)}) / 86400"
    return cell


def _pointed(cell: str) -> str:
    return f"replace({cell}, ',', '.')"


def _timestamp(cell: str, form: str) -> str:
    """SQL of a date; DuckDB would take the words infinity and epoch for one, too."""
    begun = f"CASE WHEN regexp_matches({cell}, '^\\s*\\d') THEN trim({cell}) END"
    if form == _ISO:
        return f"TRY_CAST({begun} AS TIMESTAMP)"
    return f"try_strptime({begun}, {literal(form)})"


def _without(number: str, stored: str, missing: Sequence[str]) -> str:
    """A number, NULL where it is a number for missing."""
    gone = missing_numbers(missing) if Scan.is_number(stored) else []
    if not gone:
        return number
    return f"CASE WHEN {number} IN ({', '.join(map(repr, gone))}) THEN NULL ELSE {number} END"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(literal(word) for word in words)
