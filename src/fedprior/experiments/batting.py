"""Batting averages: a player's later seasons predicted from his first (Lahman database; ours)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate.estimate import estimate_rates
from fedprior.estimation.statistics import Counts
from fedprior.experiments.columns import read_columns
from fedprior.experiments.compare import Watch, unwatched

FILE = "lahman_batting_by_year.csv.gz"
METHODS: dict[str, dict[str, Any] | None] = {
    "raw": None,
    "pooled": {"population": "point"},
    "default": {},
    "nonparametric": {"population": "nonparametric"},
    "by size": {"by_size": True},
}
# Who counts: (at-bats in the first season at least, at-bats later at least). Two later at-bats are
# the least that allow the chance in the later rate to be taken off.
PLAYERS = {"all": (1, 2), "100 later": (1, 100), "100 both": (100, 100)}
_FEW, _MANY = 5, 200  # at-bats of a short and of a full first season


@dataclass(frozen=True, kw_only=True, eq=False)
class Careers:
    """At-bats and hits of each player: in his first season, and in all later ones together."""

    first: Counts
    later: Counts


@dataclass(frozen=True, kw_only=True)
class Score:
    """Error about the true later rate: the part due to chance in the later record is subtracted.

    `rmse` counts each player once, `rmse_by_at_bats` each later at-bat; gains in percent of the
    mean squared error, over the raw rate of the first season and over one rate for all.
    """

    players: str
    num_players: int
    method: str
    rmse: float
    gain: float
    gain_over_pooled: float
    rmse_by_at_bats: float
    gain_by_at_bats: float
    gain_over_pooled_by_at_bats: float


def read_careers(folder: str | Path) -> Careers:
    """First and later seasons of every player of FILE in `folder`."""
    path = Path(folder) / FILE
    names, table = read_columns("batting", path, "playerID", ("yearID", "AB", "H"))
    _, player = np.unique(names, return_inverse=True)
    order = np.lexsort((table["yearID"], player))
    player = player[order]
    seasons = np.stack([table["AB"][order], table["H"][order]])
    debut = np.flatnonzero(np.diff(player, prepend=-1))
    first = seasons[:, debut]
    later = np.add.reduceat(seasons, debut, axis=1) - first
    return Careers(
        first=Counts(n=first[0], successes=first[1]), later=Counts(n=later[0], successes=later[1])
    )


def batting(careers: Careers, *, watch: Watch = unwatched) -> list[Score]:
    """Fit to first seasons, score on later ones: sum w ((p^ - y)^2 - y (1 - y) / (N - 1)) / sum w.

    y is the rate over the N later at-bats; y (1 - y) / (N - 1) is an unbiased estimate of its
    variance, so that what is left is the error about the later rate itself. The population is
    fitted to every player whose first season counts: who will bat again is not known by then.
    """
    rows: list[Score] = []
    for place, (players, (least, least_later)) in enumerate(PLAYERS.items()):
        known = careers.first.n >= least
        first = Counts(n=careers.first.n[known], successes=careers.first.successes[known])
        at_bats, hits = careers.later.n[known], careers.later.successes[known]
        scored = at_bats >= least_later
        check.require(bool(scored.any()), "batting", "players", f"some with {players}", 0)
        errors = {}
        for count, (method, options) in enumerate(METHODS.items(), start=1):
            rate = _predict(first, options)[scored]
            errors[method] = _errors(rate, at_bats[scored], hits[scored])
            watch(place * len(METHODS) + count, len(PLAYERS) * len(METHODS))
        rows += [_score(players, int(scored.sum()), method, errors) for method in METHODS]
    return rows


def _predict(first: Counts, options: dict[str, Any] | None) -> np.ndarray:
    if options is None:
        return first.successes / first.n
    return estimate_rates(first, **options).personal


def _errors(rate: np.ndarray, at_bats: np.ndarray, hits: np.ndarray) -> tuple[float, float]:
    """Mean squared error about the later rate, by player and by at-bat."""
    later = hits / at_bats
    error = (rate - later) ** 2 - later * (1 - later) / (at_bats - 1)
    return float(error.mean()), float(np.average(error, weights=at_bats))


def _score(
    players: str, num_players: int, method: str, errors: dict[str, tuple[float, float]]
) -> Score:
    own, by_at_bats = errors[method]
    raw, raw_by = errors["raw"]
    pooled, pooled_by = errors["pooled"]
    return Score(
        players=players,
        num_players=num_players,
        method=method,
        rmse=float(np.sqrt(max(own, 0))),
        gain=100 * (1 - own / raw),
        gain_over_pooled=100 * (1 - own / pooled),
        rmse_by_at_bats=float(np.sqrt(max(by_at_bats, 0))),
        gain_by_at_bats=100 * (1 - by_at_bats / raw_by),
        gain_over_pooled_by_at_bats=100 * (1 - by_at_bats / pooled_by),
    )


def remarks(careers: Careers, rows: list[Score]) -> list[str]:
    """What the table shows, in words, with the data's own figures."""
    everyone, later, both = PLAYERS
    found = {(row.players, row.method): row for row in rows}
    first = careers.first
    few, many = first.n <= _FEW, first.n >= _MANY
    lines = [
        f"The players are `{everyone}`, {found[everyone, 'raw'].num_players:,} who batted again "
        "at least twice; "
        f"`{later}`, the {found[later, 'raw'].num_players:,} with 100 at-bats or more after the "
        f"first season; and `{both}`, the {found[both, 'raw'].num_players:,} who also had 100 in "
        "the first. Errors are root mean squared errors of predicting the later rate itself; gains "
        "are in percent of the mean squared error, in which each player counts once, or (at-bats) "
        "in proportion to his later at-bats. The population is fitted to all first seasons, also "
        "of players who never batted again.",
        *estimate_rates(first).notes,
    ]
    if few.any() and many.any():
        low, high = (first.successes[part].sum() / first.n[part].sum() for part in (few, many))
        lines.append(
            f"At-bats carry information: first seasons of at most {_FEW} at-bats hit {low:.3f}, "
            f"those of {_MANY} or more {high:.3f} (pitchers and short trials against regulars)."
        )
    size, default = found[everyone, "by size"], found[everyone, "default"]
    size_later, default_later = found[later, "by size"], found[later, "default"]
    lines += [
        f"Who is scored matters. Over all players the population by size gains {size.gain:.1f}%, "
        f"the default {default.gain:.1f}%; over those with 100 at-bats later "
        f"{size_later.gain:.1f}% and {default_later.gain:.1f}%. A player with few at-bats who "
        "nevertheless goes on to bat is better than others with few, which the first season alone "
        "does not show.",
        "Weighted by later at-bats, the default gains "
        f"{default_later.gain_over_pooled_by_at_bats:.1f}% over the pooled rate among those with "
        f"100 at-bats later, {found[both, 'default'].gain_over_pooled_by_at_bats:.1f}% among those "
        "who also had 100 in the first season: the players who bat most later are the best ones, "
        "and the pooled rate, itself weighted by at-bats, is close to theirs.",
    ]
    return lines
