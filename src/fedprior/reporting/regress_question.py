"""What a user of `fedprior regress` asks for, checked before anything is read."""

from dataclasses import dataclass
from functools import partial
from typing import cast

from fedprior.core import check
from fedprior.regression.result import Family
from fedprior.reporting.outputs import OUT_SUFFIXES, check_files, require
from fedprior.reporting.table_question import TableQuestion

FAMILIES = ("auto", "gaussian", "binomial", "multinomial", "poisson")
_OWNER = "regress"


@dataclass(frozen=True, kw_only=True)
class RegressQuestion(TableQuestion):
    """The options of `fedprior regress`, one field each; `file` None is the simulated example."""

    owner = _OWNER
    target: str | None = None
    features: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    family: str = "auto"
    exposure: str | None = None
    population: str = "gaussian"
    components: str = "bic"
    covariance: str = "auto"
    criterion: str = "auto"
    method: str = "default"
    center: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.structure is not None:
            self._check_structure()
            self._check_levels()
        self._check_columns()
        self._check_choices()
        _require(0 < self.level < 1, "--level", "above 0 and below 1", self.level)
        rule = "a whole number of at least 0, below 2**31"
        _require(0 <= self.seed < 2**31, "--seed", rule, self.seed)
        check_files(_OWNER, self, OUT_SUFFIXES)

    @property
    def columns(self) -> list[str]:
        """All features, those of --fixed behind the others."""
        return [*self.features, *self.fixed]

    @property
    def num_components(self) -> int | str:
        return self.components if self.components == "bic" else int(self.components)

    def asked_family(self) -> Family | None:
        """The family where one was named."""
        return None if self.family == "auto" else cast("Family", self.family)

    def _check_levels(self) -> None:
        """What effects of several columns of groups cannot be combined with."""
        sentence = (
            f"--features cannot be combined with --{self.structure}: coefficients of their own are "
            "for groups of one column. Name the columns in --fixed."
        )
        check.expect(not self.features, _OWNER, sentence)
        others = {
            "--population": self.population != "gaussian",
            "--components": self.components != "bic",
            "--covariance": self.covariance != "auto",
            "--method": self.method != "default",
            "--center": self.center,
            "--plot": self.plot is not None,
        }
        self._refuse(others)

    def _check_columns(self) -> None:
        if self.file is None:
            given = (*self.group, *self.columns, self.target or "", self.exposure or "")
            remedy = "Name a FILE for columns of your own."
            rule = "given with columns of your own"
            _require(not any(given), "FILE", rule, "the simulated example", remedy)
            return
        for option, name in {"--group": self.group, "--target": self.target}.items():
            check.expect(bool(name), _OWNER, f"{option} is required with a FILE.")
        once = len(set(self.group)) == len(self.group)
        _require(once, "--group", "different columns", ", ".join(self.group))
        sentence = (
            "a FILE needs --features or --fixed. Name columns, separated by commas; for a mean or "
            "rate of each group alone, use fedprior estimate."
        )
        check.expect(bool(self.columns) or self.structure is not None, _OWNER, sentence)
        for option, names in {"--features": self.features, "--fixed": self.fixed}.items():
            twice = list(dict.fromkeys(name for name in names if names.count(name) > 1))
            _require(not twice, option, "different columns", ", ".join(twice))
            for name in names:
                rule = "other columns than the group and the target"
                _require(name not in (*self.group, self.target), option, rule, name)
        both = [name for name in self.features if name in self.fixed]
        if both:
            raise ValueError(
                f"{_OWNER}: {', '.join(both)} cannot have both a coefficient for each group "
                "(--features) and one for all groups (--fixed). Name it in one of them."
            )
        target = str(self.target)
        _require(target not in self.group, "--target", "another column than the group", target)
        self._check_exposure()

    def _check_exposure(self) -> None:
        if self.exposure is None:
            return
        counts = self.family == "poisson"
        _require(counts, "--exposure", "given with --family poisson", f"--family {self.family}")
        used = (*self.group, self.target, *self.columns)
        rule = "another column than the group, the target and the features"
        _require(self.exposure not in used, "--exposure", rule, self.exposure)

    def _check_choices(self) -> None:
        from fedprior.regression.face.specification import COVARIANCES, CRITERIA, POPULATIONS

        check.choice(_OWNER, "--family", self.family, FAMILIES)
        fits = self.file is not None or self.family in ("auto", "gaussian")
        rule, remedy = "auto or gaussian for the simulated example", "Name a FILE for classes."
        _require(fits, "--family", rule, self.family, remedy)
        check.choice(_OWNER, "--population", self.population, POPULATIONS)
        if self.family == "poisson":
            rule = "gaussian with --family poisson"
            _require(self.population == "gaussian", "--population", rule, self.population)
            rule = "default with --family poisson"
            _require(self.method == "default", "--method", rule, self.method)
        check.choice(_OWNER, "--covariance", self.covariance, COVARIANCES)
        check.choice(_OWNER, "--criterion", self.criterion, CRITERIA)
        check.choice(_OWNER, "--method", self.method, ("default", "paper"))
        whole = self.components.isdecimal() and int(self.components) > 0
        fits = self.components == "bic" or whole
        _require(fits, "--components", "bic or a whole number of at least 1", self.components)
        mixed = self.population != "gaussian"
        fits = self.components == "bic" or mixed
        rule = "given with --population mixture or discrete"
        _require(fits, "--components", rule, f"--population {self.population}")


_require = partial(require, _OWNER)
