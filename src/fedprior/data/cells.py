"""What the cells of a column are (numbers, truth values, dates, text), and the SQL that reads them.

Every command reads tables through these expressions, so that a file has the same columns for all of
them. A column's kind is decided by all of its cells; a missing cell is NULL, NaN, empty, or one of
the words for missing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from fedprior.data.scan import Scan, literal, quoted

T = TypeVar("T")
Kind = Literal["number", "truth", "date", "text"]
MISSING = ("na", "n/a", "nan", "null", "<na>", "#n/a", ".", "None")
"""Words for missing. A word in lower case stands for any spelling; others match exactly."""

_MARKS = ("-", "--", "?", "none", "nan")  # missing among numbers, truth values or dates, else words
_EXPONENT = r"([eE][+-]?\d+)?"
_COMMAS = {  # numbers with commas: how they are written, and what is deleted from them
    ",": (rf"[+-]?(\d*|\d{{1,3}}(\.\d{{3}})+)(,\d+)?{_EXPONENT}", "."),
    "1,000": (rf"[+-]?(\d*|\d{{1,3}}(,\d{{3}})+)(\.\d*)?{_EXPONENT}", ","),
}
_FORMS: dict[Kind, tuple[str, ...]] = {
    "number": ("", *_COMMAS),
    "truth": ("",),  # true and false; yes and no stay words, since they are often labels
    "date": (
        "iso",
        *("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y", "%m/%d/%Y"),
    ),
}
_SAMPLE = 2000  # words that tell which kinds are not worth trying on all of them
_AT_ONCE = 32  # columns in a query: each takes up to 20 MB, however few rows there are
_MOST_LEVELS = 50  # a column mostly of numbers with more distinct cells is no category


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table; `value` is the SQL of its cells, NULL (or NaN) where they are missing.

    `cell` is the same before it is converted. Numbers and dates are DOUBLE, a date as days since
    1970-01-01. `form` says how they are written: "," for decimal commas, "1,000" for commas
    between thousands; "iso" or a format of `strptime` for dates.
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
    source: Scan, names: Iterable[str], *, missing: Sequence[str] = MISSING
) -> dict[str, Column]:
    """Columns with the kinds that all of their cells show.

    Columns of text that hold nothing but numbers take one pass together, those that also have words
    for missing another one, and every other column its own.
    """
    names = list(names)
    text = [name for name in names if source.is_text(name)]
    plain = set[str]() if missing_numbers(missing) else _numbers(source, text, source.text)
    rest = [name for name in text if name not in plain]
    filled = _numbers(source, rest, lambda name: _word(source, name, missing))
    columns = {}
    for name in names:
        if not source.is_text(name):
            columns[name] = _typed(name, source.types[name], missing)
        elif name in plain or name in filled:
            cell = _word(source, name, missing)
            number = _value(source.text(name) if name in plain else cell, "number", "")
            columns[name] = Column(name=name, kind="number", value=number, cell=cell)
        else:
            columns[name] = _guessed(source, name, missing)
    return columns


def in_turn(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items, as many as may be in one query: thousands of expressions need gigabytes."""
    return (items[first : first + _AT_ONCE] for first in range(0, len(items), _AT_ONCE))


def as_kind(
    source: Scan, name: str, kind: Kind, form: str, missing: Sequence[str], *, commas: bool = True
) -> Column:
    """A column of a kind that is known beforehand: each cell is read by itself alone.

    Without `commas`, numbers that have one are NULL, and the SQL is far shorter.
    """
    stored = source.types[name]
    if not source.is_text(name):
        column = _typed(name, stored, missing)
        if kind != "text" or column.kind == "text":
            return replace(column, kind=kind, form=form)
        text = spelled(label(quoted(name), stored, missing), stored)
        return Column(name=name, kind=kind, value=text, cell=text)
    cell = present(source.text(name), missing if kind == "text" else (*missing, *_MARKS))
    value = _value(cell, kind, form)
    if kind == "number" and not form and commas:
        comma, thousands = (_value(cell, kind, each) for each in _COMMAS)
        if not source.semicolons:
            same = f"coalesce({comma} = {thousands}, true)"
            comma = f"CASE WHEN {same} THEN coalesce({comma}, {thousands}) END"
        value = f"coalesce({value}, {comma})"
    return Column(name=name, kind=kind, value=value, cell=cell, form=form)


def _numbers(source: Scan, names: Sequence[str], cell: Callable[[str], str]) -> set[str]:
    """Columns with filled cells, by the SQL of each, all of them numbers as they stand."""
    found = set[str]()
    for some in in_turn(names):
        cells = [f"count({cell(name)})" for name in some]
        numbers = [f"count({_value(cell(name), 'number', '')})" for name in some]
        counts = source.run(f"SELECT {', '.join([*cells, *numbers])} FROM source")[0]
        halves = zip(some, counts[: len(some)], counts[len(some) :], strict=True)
        found |= {name for name, filled, number in halves if filled == number > 0}
    return found


def _word(source: Scan, name: str, missing: Sequence[str]) -> str:
    """SQL of a cell of text that is no category, for which more words mean missing."""
    return present(source.text(name), (*missing, *_MARKS))


def _typed(name: str, stored: str, missing: Sequence[str]) -> Column:
    """A column whose type the file or frame declares."""
    cell, form = quoted(name), ""
    kind: Kind = "text"
    value = f"CAST({cell} AS VARCHAR)"
    if stored == "BOOLEAN":
        kind, value = "truth", cell
    elif stored == "DATE" or stored.startswith("TIMESTAMP"):
        kind, value, form = "date", f"epoch({cell}) / 86400", "iso"
    elif Scan.is_number(stored):
        kind, value = "number", _without(f"CAST({cell} AS DOUBLE)", stored, missing)
        cell = label(cell, stored, missing)
    return Column(name=name, kind=kind, value=value, cell=cell, form=form)


def _guessed(source: Scan, name: str, missing: Sequence[str]) -> Column:
    """A column of text, by what all of its cells `w` (but for marks) have in common."""
    cell, word = present(source.text(name), missing), _word(source, name, missing)
    rows = f"(SELECT {cell} AS c, {word} AS w FROM source)"
    fits = [(kind, form) for kind, forms in _FORMS.items() for form in forms]
    for some in (f"(SELECT * FROM {rows} WHERE w IS NOT NULL LIMIT {_SAMPLE})", rows):
        fits = _fitting(source, some, fits)
    if not fits:
        note = _mixed(source, name, rows)
        return Column(name=name, kind="text", value=cell, cell=cell, note=note)
    kind, form = fits[0]
    if form == "," and source.semicolons:
        fits = fits[:1]
    for other in fits[1:] if form else ():
        _check_alike(source, name, rows, fits[0], other)
    return Column(name=name, kind=kind, value=_value(word, kind, form), cell=word, form=form)


def _fitting(source: Scan, rows: str, options: list[tuple[Kind, str]]) -> list[tuple[Kind, str]]:
    """Kinds and forms in which every word of the rows can be read."""
    if not options:
        return []
    counts = ", ".join(f"count({each})" for each in ("w", *(_value("w", *o) for o in options)))
    words, *readable = source.run(f"SELECT {counts} FROM {rows}")[0]
    return [option for option, count in zip(options, readable, strict=True) if count == words > 0]


def _check_alike(
    source: Scan, name: str, rows: str, one: tuple[Kind, str], other: tuple[Kind, str]
) -> None:
    """Two forms in which all cells can be read give the same values."""
    differ = f"{_value('w', *one)} <> {_value('w', *other)}"
    shown = source.run(f"SELECT first(w) FILTER (WHERE {differ}) FROM {rows}")[0][0]
    if shown is not None:
        ways = "1.234 or 1234 for 1,234" if one[0] == "number" else "day/month or month/day"
        raise ValueError(
            f"{source.path}: column {name!r} can be read in two ways ({ways}), as in {shown!r}. "
            "Write it unambiguously (1234.5, 2021-12-31), or leave the column out."
        )


def _mixed(source: Scan, name: str, rows: str) -> str:
    """What to say of numbers and words in one column; an error where they are no categories."""
    plain, comma, thousands = (_value("w", "number", form) for form in _FORMS["number"])
    number = f"coalesce({plain}, {comma}, {thousands})"
    numbers = source.run(f"SELECT count({number}) FROM {rows}")[0][0]
    if not numbers:
        return ""
    cells, distinct, odd, with_comma, with_point = source.run(
        f"SELECT count(c), count(DISTINCT c), first(c) FILTER (WHERE {number} IS NULL), "
        f"first(w) FILTER (WHERE {plain} IS NULL), first(w) FILTER (WHERE {comma} IS NULL) "
        f"FROM {rows}"
    )[0]
    if odd is None:
        raise ValueError(
            f"{source.path}: column {name!r} has decimal commas and decimal points, as in "
            f"{with_comma!r} and {with_point!r}. Write all of its numbers in one way."
        )
    if distinct > _MOST_LEVELS and numbers > cells / 2:
        place = f"SELECT row_number() OVER () AS place, c FROM {rows}"
        row = source.run(f"SELECT min(place) FROM ({place}) WHERE c = {literal(odd)}")[0][0]
        raise ValueError(
            f"{source.path}: column {name!r} must hold numbers, or at most {_MOST_LEVELS} distinct "
            f"words, got {odd!r} in row {row} beside {numbers:,} numbers. If it means missing, add "
            "it to the words for missing (--missing)."
        )
    return f"{distinct} distinct, numbers and words such as {odd!r}"


def _value(cell: str, kind: Kind, form: str) -> str:
    """SQL of a present cell of text as a value of its kind; NULL where it is none."""
    trimmed = f"trim({cell})"
    if kind == "number" and form:
        pattern, deleted = _COMMAS[form]
        digits = f"replace(replace({trimmed}, '{deleted}', ''), ',', '.')"
        matches = f"regexp_full_match({trimmed}, {literal(pattern)})"
        return f"CASE WHEN {matches} THEN TRY_CAST({digits} AS DOUBLE) END"
    if kind == "number":
        return f"TRY_CAST({cell} AS DOUBLE)"
    if kind == "truth":
        return f"CASE lower({trimmed}) WHEN 'true' THEN true WHEN 'false' THEN false END"
    if kind == "date":  # DuckDB would take the words infinity and epoch for dates, too
        begun = f"CASE WHEN regexp_matches({trimmed}, '^\\d') THEN {trimmed} END"
        iso = f"TRY_CAST({begun} AS TIMESTAMP)"
        date = iso if form == "iso" else f"try_strptime({begun}, {literal(form)})"
        return f"epoch({date}) / 86400"
    return cell


def _without(number: str, stored: str, missing: Sequence[str]) -> str:
    """A number, NULL where it is a number for missing."""
    gone = missing_numbers(missing) if Scan.is_number(stored) else []
    if not gone:
        return number
    return f"CASE WHEN {number} IN ({', '.join(map(repr, gone))}) THEN NULL ELSE {number} END"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(literal(word) for word in words)
