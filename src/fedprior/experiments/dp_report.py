"""The private figures in rows, in words, as a table and as a file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fedprior.core import check
from fedprior.experiments import compare

METHODS = ("adamap", "adaped", "adaped-fine-tuning", "fedavg", "fedavg-fine-tuning", "fedem")
# With noise that is correlated over rounds, by the matrix mechanism.
CORRELATED = ("adamap+matrix", "adaped+matrix", "fedavg-fine-tuning+matrix")
ERRORS = 2  # standard errors that tell a method from local
COLUMNS = (
    *("setting", "method", "epsilon", "cohorts known", "noise multiplier", "noise to signal"),
    *("trust", "accuracy", "over local", "steps", "verdict"),
)
_FORMAT = 2
_TURN = 1.05  # psi counts as risen again when it ends this many times its least


@dataclass(frozen=True, kw_only=True)
class PrivateRow:
    """One method at one epsilon (None: without privacy, neither clip nor noise).

    `cohorts_known` is epsilon for those who know who took part in which round, `trust` how far
    clients follow the population in the end (`learning.cautious`), both as means over seeds.
    `score` is the mean test accuracy over clients and seeds, `difference` that over local, client
    by client; the standard errors are those of means over seeds where there are three or more
    (`error_over`), over clients and seeds alike elsewhere, where `difference_by_clients_se` always
    is. `above` and `below`: the difference is more than two standard errors from 0. `steps` counts
    the gradient steps of the model that a client uses, `psi` is AdaPeD's spread after each round
    (mean over seeds).
    """

    setting: str
    num_clients: int
    rounds: int
    rate: float
    clip: float
    method: str
    epsilon: float | None
    delta: float | None
    cohorts_known: float | None
    noise_multiplier: float | None
    noise_to_signal: float | None
    trust: float | None
    num_seeds: int
    score: float
    score_se: float
    difference: float
    difference_se: float
    difference_by_clients_se: float
    error_over: Literal["seeds", "clients"]
    above: bool
    below: bool
    steps: float
    psi: tuple[float, ...] | None


def cells(row: PrivateRow) -> list[str]:
    """The row in COLUMNS; accuracies and differences in percent, with one standard error."""
    numbers = (row.cohorts_known, row.noise_multiplier, row.noise_to_signal, row.trust)
    own = row.method == "local"
    return [
        row.setting,
        row.method,
        "none" if row.epsilon is None else f"{row.epsilon:g}",
        *("" if number is None else f"{number:.3g}" for number in numbers),
        f"{100 * row.score:.2f} ± {100 * row.score_se:.2f}",
        "" if own else f"{100 * row.difference:+.2f} ± {100 * row.difference_se:.2f}",
        f"{row.steps:.0f}",
        "above" if row.above else "BELOW" if row.below else "" if own else "as local",
    ]


def markdown(rows: Sequence[PrivateRow]) -> str:
    """A table with one line per row."""
    return compare.markdown_table(COLUMNS, *(cells(row) for row in rows))


def remarks(rows: Sequence[PrivateRow]) -> list[str]:
    """What was measured, which methods beat local and which fall below, and what psi does."""
    lines = [_terms(rows)]
    for setting in dict.fromkeys(row.setting for row in rows):
        own = [row for row in rows if row.setting == setting]
        lines += [_against_local(setting, own), _path(setting, own)]
    for method, name in (
        ("adamap", "DP-AdaMAP"),
        ("adaped", "DP-AdaPeD"),
        ("adaped-fine-tuning", "DP-AdaPeD with local fine-tuning"),
        ("fedavg-fine-tuning", "DP-FedAvg with fine-tuning"),
    ):
        both = (method, f"{method}+matrix")
        own = [row for row in rows if row.method in both and row.epsilon is not None]
        below = [
            f"{row.setting} at epsilon {row.epsilon:g}{' (matrix)' if row.method != method else ''}"
            f" by {-100 * row.difference:.2f} points"
            for row in own
            if row.below
        ]
        where = f"in {'; '.join(below)}" if below else "nowhere"
        if own:
            lines.append(f"{name} falls below local (by more than 2 standard errors) {where}.")
    winners = {(row.setting, row.method) for row in rows if row.above and row.epsilon is not None}
    if not winners:
        lines.append("No private method was found that beats local by 2 standard errors.")
    return [line for line in lines if line]


def _terms(rows: Sequence[PrivateRow]) -> str:
    deltas = {row.setting: row.delta for row in rows if row.delta is not None}
    shown = ", ".join(f"{delta:g} ({setting})" for setting, delta in deltas.items())
    seeds = "1 seed" if rows[0].num_seeds == 1 else f"{rows[0].num_seeds} seeds"
    return (
        "Epsilon: all data of one client, added or removed; central view (whoever sums is "
        f"trusted); delta {shown}. Poisson sampling, with cohorts that nobody else knows, or the "
        "matrix mechanism (+matrix), where clients take turns and all may know it. Personal models "
        "and their scores are outside of it: they stay with the clients. Noise is simulated: not "
        "valid for release. Rates, clip and temperature are the same at every epsilon; choosing "
        f"them is not charged. ± is one standard error over {rows[0].error_over} ({seeds}); `over "
        "local` is paired by client, at equal gradient steps of a client's own model (steps on "
        "copies of a shared one come on top)."
    )


def _against_local(setting: str, rows: Sequence[PrivateRow]) -> str:
    """Private methods above and below local, with their epsilon."""
    local = next(row for row in rows if row.method == "local")
    words = {"above": "above it by 2 standard errors", "below": "below it"}
    parts = [f"{setting}: local has {100 * local.score:.1f}%"]
    for side, phrase in words.items():
        hits_by_method = []
        for method in (*METHODS, *CORRELATED):
            hits = [row for row in rows if row.method == method and getattr(row, side)]
            at = [f"{row.epsilon:g}" for row in hits if row.epsilon is not None]
            if at:
                hits_by_method.append(f"{method} (epsilon {', '.join(at)})")
        parts.append(f"private methods {phrase}: {', '.join(hits_by_method) or 'none'}")
    bare = [row.method for row in rows if row.below and row.epsilon is None]
    if bare:
        parts.append(f"below it without privacy, too: {', '.join(bare)}")
    return "; ".join(parts) + "."


def _path(setting: str, rows: Sequence[PrivateRow]) -> str:
    """Psi at its least and at the end, and whether it rises again."""
    phrases, risen = [], []
    for row in rows:
        if row.method != "adaped" or not row.psi:
            continue
        least = min(row.psi)
        name = "without privacy" if row.epsilon is None else f"at epsilon {row.epsilon:g}"
        phrases.append(
            f"{name}: {least:.2f} after round {row.psi.index(least) + 1}, {row.psi[-1]:.2f}"
        )
        if row.psi[-1] > _TURN * least:
            risen.append(name)
    if not phrases:
        return ""
    verdict = f"It rises again {', '.join(risen)}" if risen else "It does not rise again"
    return (
        f"{setting}: psi of AdaPeD at its least, and at the end: {'; '.join(phrases)}. "
        f"{verdict} (the paper: it falls, then rises as noise accumulates)."
    )


def to_json(rows: Sequence[PrivateRow]) -> dict[str, Any]:
    """Rows and remarks; scores as fractions."""
    return {
        "format": _FORMAT,
        "experiment": "dp-figures",
        "rows": [asdict(row) for row in rows],
        "remarks": remarks(rows),
    }


def save(rows: Sequence[PrivateRow], folder: Path) -> None:
    """rows.json and table.md in `folder`."""
    compare.save(to_json(rows), "\n\n".join([markdown(rows), *remarks(rows)]), folder)


def read(*files: Path) -> list[PrivateRow]:
    """The rows of files that `save` wrote, one after the other; a setting has one file."""
    rows: list[PrivateRow] = []
    for path in files:
        try:
            tables = json.loads(path.read_text())["rows"]
            own = [PrivateRow(**{**row, "psi": row["psi"] and tuple(row["psi"])}) for row in tables]
        except (ValueError, KeyError, TypeError) as error:
            rule = "a rows.json of this experiment"
            raise ValueError(check.message("dp-figures", "--from-json", rule, str(path))) from error
        twice = ", ".join({row.setting for row in own} & {row.setting for row in rows})
        check.require(not twice, "dp-figures", "--from-json", "one file a setting", twice)
        rows += own
    check.require(len(rows) > 0, "dp-figures", "--from-json", "a file with rows", 0)
    return rows
