"""What was assumed and what was checked, in plain words."""

from fedprior.estimation.notes import drops, is_allowed_for, warns
from fedprior.estimation.page.answer import Summarized
from fedprior.pages.page import Note, Notes

_LAWS = {
    "gaussian": "a bell-shaped (Gaussian) population",
    "beta": "a Beta population, a smooth hump between 0% and 100%",
    "gamma": "a Gamma population, a smooth hump above 0",
    "dirichlet": "a Dirichlet population of shares",
    "scale-mixture": "a population with one middle and several widths, which allows for outliers",
    "spike-and-slab": "a population in which some groups share one value exactly",
    "nonparametric": "a population of any shape, learned from the data",
    "point": "one value that all groups share",
}
# Title; if nothing was found; why that matters, if something was; if it was not tested.
_CHECKS = {
    "shape": (
        "Shape of the population",
        "Tested: the groups look as they would if they came from such a population.",
        "The assumed shape decides how far unusual groups are pulled to the middle.",
        "Not tested: this takes at least 100 groups with equal noise, and a population whose shape "
        "is not fixed by an option.",
    ),
    "size": (
        "Small and large groups",
        "Tested: large groups do not differ from small ones, apart from chance.",
        "Small groups are pulled to the common mean. If they differ from large ones, that mean is "
        "the wrong place for them.",
        "Not tested: all groups have about the same size, there are too few of them, or an option "
        "decides it.",
    ),
    "noise": (
        "Equal noise",
        "Tested: values vary equally within all groups, apart from chance.",
        "Groups with noisier values should lean more on the others.",
        "Not tested: the noise is known, an option decides it, or the data do not show it.",
    ),
    "rows": (
        "Rows of one group",
        "Tested: the rows of a group vary no more than counts of one rate do.",
        "Intervals that allow for too little chance are too short.",
        "Not tested: each group has a single row, or each row is one outcome.",
    ),
}
_PRECISE = (
    "Precise and imprecise groups",
    "Tested: groups with small standard errors do not differ from the others, apart from chance.",
    "Imprecise groups are pulled to the common mean. If they differ from precise ones, as they do "
    "where small studies without an effect are not published, it is the wrong place for them.",
    "Not tested: all standard errors are about the same, or an option decides it.",
)
_OF_KIND = {
    "means": ("shape", "size", "noise"),
    "rates": ("shape", "size", "rows"),
    "events": ("shape", "size", "rows"),
}


def checked(answer: Summarized) -> Notes:
    """The assumptions, the checks that were made, and every other note."""
    notes = [*_assumed(answer), *_checks(answer), *_others(answer)]
    return Notes(tuple(notes))


def _assumed(answer: Summarized) -> list[Note]:
    found, notes = answer.population, []
    if found.get("kind") == "mixture":
        text = "Each group is of one of a few kinds, and each kind has a mean of its own."
        notes.append(Note("Assumed: several kinds of groups", text))
    elif found.get("kind"):
        law = _LAWS.get(found["kind"], f"a {found['kind']} population")
        varies = " whose middle depends on the size of a group" * bool(found.get("by_size"))
        varies += " whose middle depends on the covariates" * ("coefficients" in found)
        notes.append(Note("Assumed: one population", f"The groups come from {law}{varies}."))
    if answer.table is not None:
        text = (
            f"About {answer.percent} of all intervals hold the true value. This is an average over "
            "groups: it says less about a group that was picked because it is extreme."
        )
        notes.append(Note("Intervals", text))
    return notes


def _checks(answer: Summarized) -> list[Note]:
    made = answer.summary.get("checks")
    if made is None:
        return []
    if answer.summary.get("privacy"):
        text = "Private reports say too little for tests of the population's shape."
        return [Note("Nothing was tested", text)]
    notes = []
    for name in _OF_KIND.get(answer.kind, ()) if "levels" not in answer.summary else ():
        precise = name == "size" and bool(answer.summary.get("meta_analysis"))
        title, good, why, untested = _PRECISE if precise else _CHECKS[name]
        if name not in made:
            notes.append(Note(title, untested))
        elif is_allowed_for(made[name]):
            notes.append(Note(title, made[name]))
        elif made[name]:
            notes.append(Note(title, f"{made[name]} {why}", "warning"))
        else:
            notes.append(Note(title, good, "good"))
    return notes


def _others(answer: Summarized) -> list[Note]:
    """What was dropped, and notes that no check has made."""
    checks = {note for note in (answer.summary.get("checks") or {}).values() if note}
    others = [note for note in answer.summary.get("notes") or [] if note not in checks]
    return [*map(told, others), *alone(answer, "what sharing gains")]


def told(note: str) -> Note:
    """A note under its title, as a warning where it calls for something."""
    return Note("Left out" if drops(note) else "Note", note, "warning" if warns(note) else "plain")


def alone(answer: Summarized, unknown: str) -> list[Note]:
    """What the page of a table without its summary does not know."""
    if not answer.summary.get("alone"):
        return []
    text = (
        "This page was made from the table alone, without its summary. So it does not know the "
        f"population, {unknown}, what was tested, or the command."
    )
    return [Note("Not known", text, "warning")]
