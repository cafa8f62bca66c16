"""What a user of `fedprior estimate` asks for, checked before anything is read."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.core.plain import picked
from fedprior.data import standard_input
from fedprior.estimation.choices import FITS, INTERVALS, METHODS, NOISES, populations
from fedprior.estimation.shapes import SHAPES
from fedprior.reporting.database import check_database
from fedprior.reporting.outputs import OUT_SUFFIXES, check_files, require
from fedprior.reporting.table_question import TableQuestion

POPULATIONS = {
    "rates": populations("beta"),
    "means": populations("gaussian"),
    "events": populations("gamma"),
    "shares": ("dirichlet",),
}
SCHEMES = ("auto", "split", "two-round", "k-ary", "paper")
# The columns of numbers.
COLUMNS = ("value", "stderr", "successes", "trials", "outcome", "events", "exposure")
_OWNER = "estimate"


@dataclass(frozen=True, kw_only=True)
class Question(TableQuestion):
    """The options of `fedprior estimate`, one field each.

    Without `file` or `table` (of a database) it is about the embedded table.
    """

    owner = _OWNER
    connect: str | None = None
    connect_file: Path | None = None
    table: str | None = None
    out_table: str | None = None
    value: str | None = None
    stderr: str | None = None
    successes: str | None = None
    trials: str | None = None
    outcome: str | None = None
    covariates: tuple[str, ...] = ()
    leave_one_out: bool = False
    events: str | None = None
    exposure: str | None = None
    category: str | None = None
    population: str | None = None
    by_size: bool = False
    fit: str = "likelihood"
    method: str = "default"
    intervals: str = "default"
    above: float | None = None
    ranks: bool = False
    noise_scale: float | None = None
    noise: str = "auto"
    epsilon: float | None = None
    delta: float | None = None
    scheme: str | None = None
    low: float | None = None
    high: float | None = None
    release_groups: bool = False
    ledger: Path | None = None
    key: Path | None = None
    budget: float | None = None
    allow_delta: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        check_database(self)
        self._check_columns()
        self._check_choices()
        self._check_together()
        self._check_numbers()
        self._check_privacy()
        if self.structure is not None:
            self._check_structure()
            self._check_levels()
        self._check_files()

    @property
    def kind(self) -> str:
        """`means` of values, `rates` of outcomes, of `events`, or `shares` of categories."""
        if self.category is not None:
            return "shares"
        if self.events is not None:
            return "events"
        return "means" if self.value is not None else "rates"

    @property
    def asked(self) -> dict[str, Any]:
        """What is estimated, by which groups, in the words of the table."""
        if self.file is None and self.table is None:
            return {"group": ["player"], "of": "hits / at_bats"}
        of = self.value or self.outcome or self.category or self.events
        if of is None:
            of = f"{self.successes} / {self.trials}"
        elif self.exposure is not None:
            of = f"{of} / {self.exposure}"
        return {"group": list(self.group), "of": of}

    @property
    def options(self) -> dict[str, Any]:
        """What an estimate of one level of groups takes, by its names there."""
        found = picked(self, "fit", "by_size", "level", "intervals", "above", "ranks")
        found["population"] = self.population or POPULATIONS[self.kind][0]
        if self.kind != "events":
            found["method"] = self.method
        if self.kind == "means":
            variance = None if self.noise_scale is None else self.noise_scale**2
            found |= {"noise": self.noise, "noise_variance": variance}
        return found

    @property
    def private(self) -> bool:
        return self.epsilon is not None

    @property
    def shows_groups(self) -> bool:
        """Whether single groups may be printed, written and drawn."""
        return not self.private or self.release_groups

    def _check_columns(self) -> None:
        given = [
            option
            for option, column in {
                "--value": self.value,
                "--outcome": self.outcome,
                "--successes": self.successes or self.trials,
                "--events": self.events or self.exposure,
                "--category": self.category,
            }.items()
            if column is not None
        ]
        one_of = "one of --value, --outcome, --successes with --trials, --events, --category"
        together = " and ".join(given)
        _require(len(given) <= 1, "columns", f"{one_of}, not several", together)
        whole = (self.successes is None) == (self.trials is None)
        alone = "--successes" if self.trials is None else "--trials"
        _require(whole, "--successes and --trials", "given together", f"only {alone}")
        fits = self.exposure is None or self.events is not None
        _require(fits, "--exposure", "given with --events", "no --events")
        for option, column in {"--stderr": self.stderr, "--noise-sd": self.noise_scale}.items():
            fits = column is None or self.value is not None
            _require(fits, option, "given with --value", "no --value")
        both = self.stderr is not None and self.noise_scale is not None
        _require(not both, "--noise-sd", "left out where --stderr is given", self.noise_scale)
        self._check_covariates()
        if self.file is None and self.table is None:
            remedy = "Its columns are player, hits and at_bats; name a FILE for your own."
            own = (self.group, self.successes, self.trials)
            known = (((), None, None), (("player",), "hits", "at_bats"))
            fits = own in known and self.value is None
            fits = fits and self.outcome is None and self.events is None
            fits = fits and self.category is None
            _require(fits, "FILE", "given with columns of your own", "the embedded table", remedy)
            return
        _require(bool(given), "columns", one_of, "none of them")
        sentence = "--group is required with a FILE or --table: the column with a row's group."
        check.expect(bool(self.group), _OWNER, sentence)
        once = len(set(self.group)) == len(self.group)
        _require(once, "--group", "different columns", ", ".join(self.group))

    def _check_covariates(self) -> None:
        owned = self.file is not None or not self.covariates
        _require(owned, "--covariates", "given with a FILE", "the embedded table")
        shared = self.category is not None and self.covariates != ()
        _require(not shared, "--covariates", "left out with --category", ", ".join(self.covariates))
        once = len(set(self.covariates)) == len(self.covariates)
        _require(once, "--covariates", "different columns", ", ".join(self.covariates))
        used = {self.value, self.stderr, self.successes, self.trials, self.outcome}
        used |= {self.events, self.exposure, *(self.group if len(self.group) == 1 else ())}
        for name in self.covariates:
            rule = "other columns than those of groups and numbers"
            _require(name not in used, "--covariates", rule, name)
        lonely = self.leave_one_out and self.stderr is None
        _require(not lonely, "--leave-one-out", "given with --stderr", "no --stderr")

    def _check_choices(self) -> None:
        known = POPULATIONS[self.kind]
        if self.population is not None:
            check.choice(_OWNER, "--population", self.population, known)
        check.choice(_OWNER, "--fit", self.fit, FITS)
        check.choice(_OWNER, "--method", self.method, METHODS)
        check.choice(_OWNER, "--noise", self.noise, NOISES)
        check.choice(_OWNER, "--intervals", self.intervals, INTERVALS)
        if self.scheme is not None:
            check.choice(_OWNER, "--scheme", self.scheme, SCHEMES)

    def _check_together(self) -> None:
        """What the estimators refuse or would ignore, in the words of the command line."""
        shape = self.population if self.population in (*SHAPES, "point", "auto") else None
        special = {
            "--by-size": self.by_size,
            "--method paper": self.method == "paper",
            f"--population {shape}": shape is not None,
            "--fit moments": self.fit == "moments",
        }
        # Means by size may have any shape; moments may be among what `auto` picks from.
        fits = shape == "auto" and self.fit == "moments"
        fits = fits or (shape in SHAPES and self.by_size and self.kind == "means")
        if self.covariates:
            excluded = {f"--population {shape}": shape == "auto"}
            excluded["--method paper"] = self.method == "paper"
            if self.kind != "means":
                excluded[f"--population {shape}"] = shape in (*SHAPES, "auto")
                excluded["--fit moments"] = self.fit == "moments"
                excluded["--intervals robust"] = self.intervals == "robust"
            for other, given in excluded.items():
                listed = ", ".join(self.covariates)
                _require(not given, "--covariates", f"left out with {other}", listed)
        chosen = [option for option, given in special.items() if given]
        alone = len(chosen) <= 1 or (fits and len(chosen) == 2)
        _require(alone, "options", "given one at a time", " and ".join(chosen))
        self._check_noise(chosen)
        smooth = self.intervals == "robust" and self.kind != "means"
        for option in {"--by-size", "--population point"} & {*chosen}:
            _require(not smooth, "--intervals", f"default for rates with {option}", "robust")
        if self.kind == "shares":
            more = {"--intervals": self.intervals != "default", "--above": self.above is not None}
            more |= {"--ranks": self.ranks, "--epsilon": self.private}
            chosen += [option for option, given in more.items() if given]
            for option in chosen:
                check.expect(False, _OWNER, f"{option} cannot be combined with --category.")
        printed = self.method == "paper" and self.kind == "events"
        _require(not printed, "--method", "default with --events", "paper")

    def _check_noise(self, chosen: list[str]) -> None:
        """What a noise of its own for every group cannot be combined with."""
        fits = self.noise == "auto" or self.value is not None
        _require(fits, "--noise", "given with --value", "no --value")
        known = {"--stderr": self.stderr, "--noise-sd": self.noise_scale}
        others = [*chosen, *(option for option, given in known.items() if given is not None)]
        others += ["--intervals robust"] if self.intervals == "robust" else []
        for option in others:
            fits = self.noise != "moderated"
            _require(fits, "--noise", f"auto or common with {option}", "moderated")

    def _check_numbers(self) -> None:
        _require(0 < self.level < 1, "--level", "above 0 and below 1", self.level)
        finite = {"--above": self.above, "--low": self.low, "--high": self.high}
        for option, number in finite.items():
            fits = number is None or abs(number) < float("inf")
            _require(fits, option, "a finite number", number)
        most = {"rates": 1.0, "events": float("inf")}.get(self.kind)
        fits = self.above is None or most is None or 0 <= self.above <= most
        rule = "a rate in [0, 1]" if self.kind == "rates" else "a rate of at least 0"
        _require(fits, "--above", rule, self.above)
        positive = {"--noise-sd": self.noise_scale, "--epsilon": self.epsilon}
        for option, number in {**positive, "--budget": self.budget}.items():
            fits = number is None or 0 < number < float("inf")
            _require(fits, option, "a positive number", number)
        fits = self.budget is None or self.epsilon is None or self.budget >= self.epsilon
        _require(fits, "--budget", f"at least --epsilon ({self.epsilon})", self.budget)
        fits = self.noise_scale is None or 0 < self.noise_scale * self.noise_scale < float("inf")
        _require(fits, "--noise-sd", "a number whose square is above 0", self.noise_scale)
        fits = self.delta is None or 0 <= self.delta < 1
        _require(fits, "--delta", "in [0, 1)", self.delta)
        rule = "a whole number of at least 0" if (self.seed or 0) < 0 else "below 2**31"
        _require(self.seed is None or 0 <= self.seed < 2**31, "--seed", rule, self.seed)

    def _check_levels(self) -> None:
        """What several levels of groups cannot be combined with."""
        others = {"--category": self.category is not None, "--epsilon": self.private}
        self._refuse(others | self._choices)

    @property
    def _choices(self) -> dict[str, bool]:
        """Which options of one level of open groups are given."""
        return {
            "--population": self.population is not None,
            "--by-size": self.by_size,
            "--covariates": self.covariates != (),
            "--leave-one-out": self.leave_one_out,
            "--fit": self.fit != "likelihood",
            "--method": self.method != "default",
            "--noise": self.noise != "auto",
            "--intervals": self.intervals != "default",
            "--above": self.above is not None,
            "--ranks": self.ranks,
        }

    def _check_privacy(self) -> None:
        private = {
            "--delta": self.delta,
            "--scheme": self.scheme,
            "--low": self.low,
            "--high": self.high,
            "--release-groups": self.release_groups or None,
            "--ledger": self.ledger,
            "--key": self.key,
            "--budget": self.budget,
            "--allow-delta": self.allow_delta or None,
        }
        if not self.private:
            for option, given in private.items():
                _require(given is None, option, "given with --epsilon", "no --epsilon")
            return
        for option, given in self._choices.items():
            check.expect(not given, _OWNER, f"{option} cannot be combined with --epsilon.")
        sentence = (
            "--epsilon needs --ledger with standard input, which has no place beside it for a "
            "ledger. Make one with fedprior privacy ledger init."
        )
        nowhere = self.ledger is None and standard_input.is_standard_input(self.file)
        check.expect(not nowhere, _OWNER, sentence)
        if self.kind == "means":
            remedy = "They bound the values and are public: take them from elsewhere than the data."
            if self.low is None or self.high is None:
                raise ValueError(
                    f"{_OWNER}: --value with --epsilon needs --low and --high. {remedy}"
                )
            _require(self.low < self.high, "--low", "below --high", self.low)
            _require(self.scheme is None, "--scheme", "left out with --value", self.scheme)
        elif self.kind == "events":
            self._check_private_events()
        else:
            fits = self.low is None and self.high is None
            rule = "given with --value only (--high also with --events)"
            _require(fits, "--low and --high", rule, "rates")

    def _check_private_events(self) -> None:
        if self.high is None:
            raise ValueError(
                f"{_OWNER}: --events with --epsilon needs --high, the largest rate per unit of "
                "exposure. It is public: take it from elsewhere than the data."
            )
        _require(self.high > 0, "--high", "above 0 with --events", self.high)
        _require(self.low is None, "--low", "left out with --events", self.low)
        printed = self.scheme == "paper"
        _require(not printed, "--scheme", "another one than paper with --events", "paper")

    def _check_files(self) -> None:
        known = OUT_SUFFIXES if self.shows_groups else (*OUT_SUFFIXES, ".json")
        check_files(_OWNER, self, known)
        alone = self.key is not None and self.ledger is None
        _require(not alone, "--key", "given with --ledger", "no --ledger")
        folder = self.ledger is not None and self.ledger.is_dir()
        _require(not folder, "--ledger", "a file", f"the folder {self.ledger}")
        sentence = "--plot with --epsilon needs --release-groups: groups in a plot are not private."
        check.expect(self.plot is None or self.shows_groups, _OWNER, sentence)


_require = partial(require, _OWNER)
