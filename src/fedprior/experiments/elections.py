"""County elections 2000-2020, one left out at a time: the paper's case, and why it gains little."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate.estimate import estimate_rates
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Counts, means_of
from fedprior.experiments.columns import read_columns
from fedprior.experiments.compare import RATE_METHODS, Watch, gain, spread, unwatched

FILE = "us_county_presidential_2000_2020.csv"
PAPER_SAYS = (10.7, 1.9)  # gain over raw means in percent and its +-, section 5
# `appendix` leaves out the -1 of the main text's weight (ERRATA 14).
METHODS = {**RATE_METHODS, "appendix": {"method": "paper", "minus_one": False}}


@dataclass(frozen=True, kw_only=True, eq=False)
class Votes:
    """Republican and Democratic votes, (counties, elections); `left_out` lacked an election."""

    years: tuple[int, ...]
    republican: np.ndarray
    democratic: np.ndarray
    left_out: int = 0

    def __post_init__(self) -> None:
        check.require(len(self.years) >= 3, "elections", "years", "3 or more", self.years)
        both = self.republican + self.democratic
        good = (self.republican >= 0).all() and (self.democratic >= 0).all() and (both > 0).all()
        check.require(bool(good), "elections", "votes", "at least 0, above 0 in all", both.min())

    @property
    def won(self) -> np.ndarray:
        """1 where the Republican candidate has more votes than the Democratic one."""
        return (self.republican > self.democratic).astype(np.int64)

    @property
    def share(self) -> np.ndarray:
        """Republican part of the two parties' votes."""
        return self.republican / (self.republican + self.democratic)


@dataclass(frozen=True, kw_only=True)
class ElectionGain:
    """Gain over raw means on the election left out, in percent: by fold, and over the folds.

    `outcome` is what is predicted: `won` (0/1, the paper's), `share` (of the vote), `share less
    tide` (the year's own mean subtracted), `votes` (share, with every vote a trial). `expected` is
    what the fitted model promises for an election that is one more draw of the same kind (None for
    `votes`: the election left out has other trials); `weight` a county's mean weight on its own.
    """

    outcome: str
    method: str
    gain: float
    gain_sd: float
    expected: float | None
    weight: float
    by_election: dict[str, float]
    paper_says: float | None = None
    paper_says_sd: float | None = None


def read_votes(folder: str | Path) -> Votes:
    """The counties of FILE in `folder` that report every election."""
    numbers = ("year", "rep_votes", "dem_votes")
    names, table = read_columns("elections", Path(folder) / FILE, "fips", numbers)
    counties, county = np.unique(names, return_inverse=True)
    years, year = np.unique(table["year"], return_inverse=True)
    cell = county * len(years) + year
    once = len(np.unique(cell)) == len(cell)
    check.expect(once, "elections", "a county has two rows for the same year.")
    grids = []
    for name in ("rep_votes", "dem_votes"):
        grid = np.full(len(counties) * len(years), -1)
        grid[cell] = table[name]
        grids.append(grid.reshape(len(counties), len(years)))
    held = np.zeros(len(counties) * len(years), bool)
    held[cell] = True
    whole = held.reshape(len(counties), len(years)).all(axis=1)
    check.expect(bool(whole.any()), "elections", "no county reports every election.")
    return Votes(
        years=tuple(int(each) for each in years),
        republican=grids[0][whole],
        democratic=grids[1][whole],
        left_out=int((~whole).sum()),
    )


def elections(votes: Votes, *, watch: Watch = unwatched) -> list[ElectionGain]:
    """Estimate each county from all elections but one, score on that one, in turn (ERRATA 54)."""
    cases = [("won", method) for method in METHODS]
    cases += [("share", "default"), ("share less tide", "default"), ("votes", "default")]
    rows = []
    for place, (outcome, method) in enumerate(cases):
        folds = [_fold(votes, outcome, method, fold) for fold in range(len(votes.years))]
        mean, sd = spread(fold[0] for fold in folds)
        printed = outcome == "won"
        rows.append(
            ElectionGain(
                outcome=outcome,
                method=method,
                gain=mean,
                gain_sd=sd,
                expected=None if outcome == "votes" else spread(fold[1] for fold in folds).mean,
                weight=spread(fold[2] for fold in folds).mean,
                by_election={
                    str(year): fold[0] for year, fold in zip(votes.years, folds, strict=True)
                },
                paper_says=PAPER_SAYS[0] if printed else None,
                paper_says_sd=PAPER_SAYS[1] if printed else None,
            )
        )
        watch(place + 1, len(cases))
    return rows


def _fold(votes: Votes, outcome: str, method: str, fold: int) -> tuple[float, float, float]:
    """Gain on election `fold`, the gain that the model expects there, and the mean own weight."""
    kept = [place for place in range(len(votes.years)) if place != fold]
    truth = votes.share[:, fold]
    if outcome == "won":
        truth = votes.won[:, fold].astype(np.float64)
        found = _rates(votes.won[:, kept].sum(axis=1), len(kept), method)
    elif outcome == "votes":
        trials = (votes.republican + votes.democratic)[:, kept].sum(axis=1)
        found = _rates(votes.republican[:, kept].sum(axis=1), trials, method)
    else:
        values = votes.share
        if outcome == "share less tide":
            values = values - values.mean(axis=0)
            truth = values[:, fold]
        place = np.repeat(np.arange(len(values)), len(kept))
        found = estimate_means(
            means_of(values[:, kept].ravel(), place, len(values)), noise="common"
        )
    # The raw mean of n draws has error v / n, and the draw that it is scored on adds v.
    expected = found.gain_over_raw / (len(kept) + 1)
    measured = gain(found.personal, raw=found.raw, truth=truth)
    return measured, expected, float(found.weight.mean())


def _rates(successes: np.ndarray, trials: np.ndarray | int, method: str) -> Estimates:
    sizes = np.broadcast_to(np.asarray(trials), successes.shape).copy()
    return estimate_rates(Counts(n=sizes, successes=successes), **METHODS[method])


def reasons(votes: Votes, rows: list[ElectionGain]) -> list[str]:
    """In words, with the data's own figures: why the gain is small, and not the paper's."""
    by_case = {(row.outcome, row.method): row for row in rows}
    default, printed = by_case["won", "default"], by_case["won", "paper"]
    train = len(votes.years) - 1
    won, share = votes.won, votes.share
    same = float(np.mean(won.min(axis=1) == won.max(axis=1)))
    taken = 100 * won.mean(axis=0)
    least, most = int(taken.argmin()), int(taken.argmax())
    turns = np.abs(np.diff(won, axis=1)).sum(axis=1)
    links = np.corrcoef(share.T)
    near = float(np.mean(np.diagonal(links, 1)))
    ceiling = 100 / (train + 1)
    needed = 1 - (train + 1) * PAPER_SAYS[0] / 100
    return [
        f"Scored on a 0/1 outcome, no estimate from {train} elections can be expected to gain more "
        f"than 1/(n+1) = {ceiling:.1f}%: the chance in the outcome itself remains (ERRATA 54).",
        f"Here far less can be gained: {100 * same:.0f}% of the counties voted the same way in all "
        f"{train + 1} elections, so the population has its mass near 0 and 1, a county keeps "
        f"weight {default.weight:.2f} on its own record, and the model promises "
        f"{default.expected:.1f}%. We measure {printed.gain:.1f}% by the printed formula, "
        f"{default.gain:.1f}% by the default. {PAPER_SAYS[0]}% would need a weight of "
        f"{needed:.2f}; we found no reading of the paper that gives it.",
        "The elections of a county are not independent draws at one rate. There is a common tide "
        f"(Republicans took {taken[least]:.0f}% of the counties in {votes.years[least]}, "
        f"{taken[most]:.0f}% in {votes.years[most]}), so the gain changes sign with the year left "
        f"out; and there is a trend: vote shares {votes.years[1] - votes.years[0]} years apart "
        f"correlate {near:.2f}, {votes.years[-1] - votes.years[0]} years apart {links[0, -1]:.2f}, "
        f"and of {int((turns > 0).sum())} counties that changed sides {int((turns == 1).sum())} "
        "did so once, for good. Shrinking toward a common rate accounts for neither.",
        "Vote shares instead of 0/1 say more about a county, and leave less to borrow: gain "
        f"{by_case['share', 'default'].gain:.1f}%, with each year's mean subtracted "
        f"{by_case['share less tide', 'default'].gain:.1f}%.",
        "With every vote a trial the gain is "
        f"{by_case['votes', 'default'].gain:.3f}%: with tens of thousands of votes, a county has "
        "hardly any sampling error. What makes one election differ from the next is something "
        "else, which a binomial model of votes does not know.",
    ]
