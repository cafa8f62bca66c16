"""What a note calls for: notes are plain sentences, in files too, so that their words tell."""

UNEVEN = "Counts vary more"  # how the note on the dispersion of a regression's counts begins
_GRAVE = ("fallback", "Center them", UNEVEN)


def recommends(note: str) -> bool:
    """Whether it recommends an alternative, which means poor estimates."""
    return " Use " in note


def drops(note: str) -> bool:
    """Whether it says what was left out: rows or groups."""
    return "ropped" in note


def warns(note: str) -> bool:
    """Whether whoever reads a page should act on it, or trust the answer less."""
    return drops(note) or recommends(note) or any(words in note for words in _GRAVE)


def is_allowed_for(note: str) -> bool:
    """Whether the estimates allow for what a check has found."""
    return "therefore" in note
