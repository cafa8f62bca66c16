"""Words that may be meant otherwise: one word spelled twice, numbers beside a unit."""

import re
from collections.abc import Iterator

import numpy as np

_UNIT = re.compile(r"(\D*?)[-+]?\d[\d., ]*(?<=\d)(\D*)")


def of_words(owner: str, values: np.ma.MaskedArray) -> Iterator[str]:
    """What to say where two words of a column, or two names of clients, may be one."""
    pair = alike(_distinct(values))
    if pair:
        yield (
            f"{owner} has words that differ only in spaces or capitals, {pair[0]!r} and "
            f"{pair[1]!r}: they are taken as different. Spell them alike if they are one."
        )


def of_numbers(owner: str, values: np.ma.MaskedArray) -> Iterator[str]:
    """What to say of a column of words that are numbers with a unit."""
    words = _distinct(values)
    beside = unit(words)
    if beside:
        yield (
            f"{owner} is read as {len(words)} words, because its numbers stand beside {beside!r}, "
            f"as in {words[0]!r}. Remove it to have them read as numbers."
        )


def _distinct(values: np.ma.MaskedArray) -> list[str]:
    words: list[str] = np.unique(values.data[~np.ma.getmaskarray(values)].astype(str)).tolist()
    return words


def alike(words: list[str]) -> tuple[str, str] | None:
    """The first two words that differ only in spaces at their ends, or in capitals.

    >>> alike(["No", "no ", "yes"]), alike(["no", "nowhere"])
    (('No', 'no '), None)
    """
    seen: dict[str, str] = {}
    for word in words:
        other = seen.setdefault(word.strip().lower(), word)
        if other != word:
            return other, word
    return None


def unit(words: list[str]) -> str | None:
    """What stands before or after the number of every word, where it is the same for all of them.

    A word such as c1 or Q3 is a name: there are at least ten different numbers, some with fractions
    or thousands, or else a sign that only numbers have.

    >>> unit([f"{n / 10}%" for n in range(20)]), unit([f"c{n}" for n in range(20)])
    ('%', None)
    """
    found = [_UNIT.fullmatch(word.strip()) for word in words]
    beside = {(each[1].strip(), each[2].strip()) for each in found if each}
    if len(words) < 10 or not all(found) or len(beside) != 1:
        return None
    before, after = beside.pop()
    marked = (before + after).strip("%$€£¥°") == ""
    fractions = any(re.search(r"\d[.,]\d", word) for word in words)
    return f"{before}{after}" if (before + after) and (marked or fractions) else None
