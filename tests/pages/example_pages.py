"""Pages with every kind of block, for tests of the kit."""

import numpy as np

from fedprior.pages import page as parts
from fedprior.pages.page import Curve, Fact, Note, Number, Page, PageColumn, Party, Rows, Section

NASTY = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    'a & "b"\n\u2028',
    "long" * 100,
    "",
    "\u0645\u0633\u062a\u0634\u0641\u0649",
    "\x00",
)


def groups(number, names=()):
    """Rows with intervals; the first have the given names, the last lacks its raw value."""
    draws = np.random.default_rng(7)
    size = draws.integers(3, 120, number)
    raw = draws.normal(0.3, 0.1, number)
    personal, half = 0.3 + 0.6 * (raw - 0.3), 0.4 / np.sqrt(size)
    raw[-1] = np.nan
    named = [*names, *(f"county {place:06d}" for place in range(len(names), number))]
    return Rows(
        columns={
            "name": PageColumn(label="county", values=named, style="text"),
            "n": PageColumn(label="n", values=size, style="whole"),
            "raw": PageColumn(label="raw", values=raw, near="personal"),
            "personal": PageColumn(label="personal", values=personal),
            "lower": PageColumn(label="lower", values=personal - half, near="personal"),
            "upper": PageColumn(label="upper", values=personal + half, near="personal"),
            "weight": PageColumn(label="weight", values=size / (size + 30), style="percent"),
        }
    )


def example(number, names=()):
    """A page with every kind of block, over so many groups."""
    rows = groups(number, names)
    x = np.linspace(0, 0.6, 50)
    word = names[0] if names else "plain"
    interval = parts.Intervals(
        title="Intervals", rows=rows, value="personal", lower="lower", upper="upper", other="raw",
        line=0.3,
    )  # fmt: skip
    scatter = parts.Scatter(
        title="Raw against personal", rows=rows, x="raw", y="personal", shade="weight",
        diagonal=True, line=0.3, margin=Curve(name="population", x=x, y=np.exp(-((x - 0.3) ** 2))),
    )  # fmt: skip
    rounds = (
        Curve(name="AdaMAP", x=[1, 2, 3], y=[0.5, np.nan, 0.8], lower=[0.4] * 3, upper=[0.9] * 3),
        Curve(name=word, x=[1, 2, 3], y=[0.4, 0.5, 0.6], dashed=True),
    )
    blocks = (
        interval,
        scatter,
        parts.Intervals(title="Gains", rows=rows, value="raw"),
        parts.Distributions(title="Scores", rows=rows, columns=("raw", "personal")),
        parts.Curves(title="Rounds", curves=rounds, x_label="round", y_label="score"),
        parts.Stacked(title="Budget", labels=(word,), parts={"spent": (2.0,), "left": (1.0,)}),
        parts.SmallTable(title="Changes", head=("group", "raw"), cells=((word, Number(0.1234)),)),
        parts.Flow(title="Trust", parties=(Party(word, "rows", True), Party("b", "sums", False)),
                   passes=("noise",)),
        parts.Notes((Note("Shape", word, "good"), Note("Size", "grows", "warning"))),
        parts.Text(word),
        parts.Code(word),
        parts.Tiles((Fact(word, Number(0.5, "percent", 1)),)),
        parts.Listing(title="All groups", rows=rows, order="-personal"),
    )  # fmt: skip
    return Page(
        title=f"Estimates {word}",
        lead=f"Collaboration helps {word}.",
        about=word,
        facts=(Fact("groups", Number(number, "whole")), Fact("gain", Number(1234.5, digits=1))),
        sections=(Section("Everything", blocks, text=word),),
        folded=(parts.SmallTable(title="Settings", head=("name", "value"), cells=((word, None),)),),
        command=f"fedprior estimate {word}",
    )
