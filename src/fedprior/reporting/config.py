"""The configuration of a training run: TOML <-> frozen dataclasses."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedprior.core import check, formats
from fedprior.core.plain import picked
from fedprior.core.scores import MetricName
from fedprior.learning.catalog import METHODS
from fedprior.privacy.events import Relation
from fedprior.privacy.guarantee import Noise
from fedprior.privacy.terms import Terms
from fedprior.reporting.tables import as_tables, build, merged, put

FORMAT = formats.NUMBERS["config"]
_SCORES = ("release_scores", "score_epsilon", "unprotected_scores")  # of [privacy]
_SUMS = ("secure_sums", "missing")
SHIPPED = Path(__file__).parent / "configs"  # configurations by name


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the clients come from: a dataset by name, or a file or folder of one's own."""

    name: str = "digits"  # a dataset of `fedprior datasets`; of no use with a path
    root: str = ""  # folder of the dataset's files; empty: the variable FEDPRIOR_DATA
    path: str = ""  # a CSV or Parquet file, a glob, - (standard input), or a folder of .npz files
    client: tuple[str, ...] = ()  # column that names a row's client; several make one key
    label: str = ""  # column to predict
    features: tuple[str, ...] = ()  # columns to predict from; empty: all others
    exclude: tuple[str, ...] = ()  # columns that are no features
    missing: tuple[str, ...] = ()  # words for missing; empty: NA, N/A, NaN, null, None and .
    most_samples: int = 0  # public bound on a client's training samples, for private runs; 0: none
    encoder: str = ""  # a public encoder by `fedprior encoder`; empty: fitted on everybody's rows
    bins: int = 0  # of each number's piecewise-linear encoding, without an encoder; 0: none
    most_inputs: int = 0  # of the columns that say most about the label, not counting bins; 0: all
    options: Mapping[str, Any] = field(default_factory=dict)  # for the dataset's loader
    fingerprint: str = ""  # of the path's content, noted when a run begins, unless noise is secure


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """The clients' model."""

    name: Literal["auto", "linear", "logistic", "mlp", "lenet5", "cnn", "resnet"] = "auto"
    hidden: tuple[int, ...] = (64,)  # widths of an mlp's hidden layers
    center: float = 0.0  # of a quantity: what an output of 0 stands for
    scale: float = 1.0  # of a quantity: the unit of the outputs
    depth: int = 8  # layers of a resnet: 8, 14, 20, ...
    # of matrix products: bfloat16 is faster on a GPU, and adds up in 32 bits
    precision: Literal["default", "float32", "bfloat16"] = "default"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Rounds, cohorts and gradient steps, the same for all methods."""

    rounds: int = 600
    # auto: fixed; poisson with privacy; cyclic with the matrix mechanism; fixed with secure sums
    cohort: Literal["auto", "everyone", "fixed", "poisson", "cyclic"] = "auto"  # who takes part
    cohort_size: int = 0  # clients per round (poisson: expected); 0: a third of them
    sampling_rate: float = 0.0  # poisson: share of the clients; cyclic: of those whose turn it is
    parts: int = 0  # cyclic: groups of clients that take turns; 0: by cohort_size
    newcomers: int = 0  # clients, the last ones, that never take part in a round
    local_steps: int = 10
    batch_size: int = 10  # 0: n_i / steps_per_epoch, as in the paper's experiments
    augment: Literal["none", "crop-flip"] = "none"  # of training images: shifts and flips
    steps_per_epoch: int = 60  # global steps after which rates decay
    theta_rate: float = 0.1
    gamma_rate: float = 0.1
    decay: float = 1.0
    weight_decay: float = 0.0
    clip: float = 0.0  # 0: none
    # auto: accuracy, or rmse of a quantity
    metric: Literal["auto", MetricName] = "auto"  # that models are scored by, and chosen
    evaluate_every: int = 0  # rounds between validation scores; 0: only at the end
    checkpoint_every: int = 100
    store: Literal["device", "disk"] = "device"
    devices: int = 0  # that share the clients, of each process; 0: all GPUs, or one CPU


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy of every client's whole contribution: clipped uploads, noised sums."""

    epsilon: float = 0.0  # budget of each method and seed; 0: no privacy
    delta: float = 0.0  # no default: to be given with epsilon
    clip: float = 1.0  # l2 bound of one upload; with adaptive_clip, the first one
    adaptive_clip: float = 0.0  # quantile of the norms of uploads that the clip follows; 0: fixed
    noise_multiplier: float = 0.0  # 0: the least that keeps all rounds within the budget
    noise: Literal["simulated", "secure"] = "simulated"  # secure: by OpenDP, valid for release
    relation: Relation = "add-remove"  # neighbors: a client more or less, or replace-one
    mechanism: Literal["gaussian", "matrix"] = "gaussian"  # matrix: noise correlated over rounds
    strategy: Literal["banded", "buffered"] = "banded"  # matrix: how the noise is correlated
    bands: int = 0  # banded: rounds that share noise; 0: as many as separation
    separation: int = 0  # matrix: least rounds between a client's turns; 0: parts of the cohort
    participations: int = 0  # matrix: most turns of a client; 0: as many as fit
    coefficients: tuple[float, ...] = ()  # matrix: of the strategy; empty: by jax-privacy
    secure_sums: bool = False  # clients add the noise, and nobody sees a sum without it
    missing: int = 0  # secure_sums: most clients of a cohort that may be absent; 0: a third of it
    allow_delta: bool = False  # accept a delta of 1 / clients or more
    release_scores: bool = False  # release the mean test score, with noise of score_epsilon
    score_epsilon: float = 0.0  # what that release costs each method and seed, besides epsilon
    unprotected_scores: bool = False  # write all clients' scores in secure mode, without noise
    ledger: str = ""  # a population's ledger to charge, too, by `fedprior privacy ledger init`
    key: str = ""  # file with the key of that ledger, if it has one

    def terms(self, view: str, noise: Noise, *, budget: float | None = None) -> Terms:
        """The terms of a training's ledger; its budget is `epsilon` unless another is given."""
        return Terms(
            **picked(self, "delta", "relation", "allow_delta"),
            view=view,
            noise=noise,
            budget=self.epsilon if budget is None else budget,
        )


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. Under `options`, a table a method holds that method's own options."""

    format: int = FORMAT
    methods: tuple[str, ...] = ("adamap", "adaped", "fedavg-fine-tuning", "local")
    seed: int = 0
    seeds: int = 1  # seeds seed, seed + 1, ...: data split, initial model and cohorts drawn anew
    data: Data = field(default_factory=Data)
    model: ModelChoice = field(default_factory=ModelChoice)
    training: Schedule = field(default_factory=Schedule)
    privacy: Privacy = field(default_factory=Privacy)
    options: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {
            "adamap": {"momentum": 0.9, "weight_decay": 0.001},
            "adaped": {"temperature": 3.0, "psi_floor": 0.1},
        }
    )

    @property
    def all_seeds(self) -> range:
        """The seeds of the run, in order."""
        return range(self.seed, self.seed + self.seeds)

    def __post_init__(self) -> None:
        owner = "config"
        formats.check("config", self.format, source="the configuration")
        check.require(len(self.methods) > 0, owner, "methods", "at least one name", [])
        twice = [name for name in self.methods if self.methods.count(name) > 1]
        check.require(not twice, owner, "methods", "named once each", twice)
        for name in self.methods:
            check.choice(owner, "methods", name, METHODS)
        check.seed(owner, self.seed)
        check.count(owner, seeds=self.seeds)
        if self.seed + self.seeds > 2**31:
            raise ValueError(
                f"config: the last seed, seed + seeds - 1 = {self.seed + self.seeds - 1}, must be "
                "below 2**31."
            )
        for name, options in self.options.items():
            check.choice(owner, "options", name, METHODS)
            for option in options:
                METHODS[name].check_option(f"config options.{name}", "key", option)
        counts = ("most_samples", "bins", "most_inputs")
        check.count("config data", least=0, **picked(self.data, *counts))
        check.positive("config model", scale=self.model.scale)
        rule, center = "a finite number", self.model.center
        check.require(math.isfinite(center), "config model", "center", rule, center)
        for width in self.model.hidden:
            check.require(width < 2**31, "config model", "hidden", "below 2**31", width)
        self._check_training()
        self._check_privacy()

    def _check_privacy(self) -> None:
        owner, privacy = "config privacy", self.privacy
        check.nonnegative(owner, noise_multiplier=privacy.noise_multiplier)
        remedy = "1 is strong, 10 is weak, 0 is no privacy."
        fine = math.isfinite(privacy.epsilon) and privacy.epsilon >= 0
        rule = "a number of at least 0"
        check.require(fine, owner, "epsilon", rule, privacy.epsilon, remedy)
        check.share(owner, adaptive_clip=privacy.adaptive_clip)
        remedy = "It is the l2 norm that a longer upload is cut to."
        fine = math.isfinite(privacy.clip) and privacy.clip > 0
        check.require(fine, owner, "clip", "a positive number", privacy.clip, remedy)
        if not privacy.epsilon:
            flags = ("delta", "noise_multiplier", "adaptive_clip", *_SUMS, *_SCORES)
            given = any(getattr(privacy, name) for name in (*flags, "ledger", "key"))
            given = given or privacy.noise == "secure" or privacy.mechanism == "matrix"
            remedy = "The other keys of [privacy] have no effect without it."
            check.require(not given, owner, "epsilon", "given", privacy.epsilon, remedy)
            return
        remedy = "There is no default; it must be well below 1 / clients."
        inside = 0 < privacy.delta < 1
        check.require(inside, owner, "delta", "in (0, 1)", privacy.delta, remedy)
        self._check_matrix()
        self._check_scores()
        self._check_secure_sums()
        if self.training.cohort == "fixed" and privacy.relation != "replace-one":
            raise check.PrivacyError(
                f"{owner}: relation must be replace-one for cohorts of fixed size, got "
                f"{privacy.relation}: whoever is left out is replaced by another. Use "
                "training.cohort=poisson, or privacy.relation=replace-one."
            )
        remedy = "It is the key of privacy.ledger."
        paired = bool(privacy.ledger) or not privacy.key
        check.require(paired, owner, "key", "empty without a ledger", privacy.key, remedy)
        sending = [name for name in self.methods if not METHODS[name].alone]
        if privacy.noise == "secure" and (len(sending) > 1 or self.seeds > 1):
            rule = "one method that sends anything, and one seed, with secure noise"
            remedy = "Each further run on the same clients would add to what is spent."
            check.require(False, owner, "methods and seeds", rule, (sending, self.seeds), remedy)

    def _check_scores(self) -> None:
        owner, privacy = "config privacy", self.privacy
        check.nonnegative(owner, score_epsilon=privacy.score_epsilon)
        if privacy.release_scores and not privacy.score_epsilon:
            raise check.PrivacyError(
                f"{owner}: score_epsilon must be positive with release_scores, got 0. Scores tell "
                "of every client: say what the release of their mean may cost, such as 0.5."
            )
        remedy = "Set release_scores=true to release the mean score."
        unused = not privacy.score_epsilon or privacy.release_scores
        given = privacy.score_epsilon
        check.require(unused, owner, "score_epsilon", "0 without release_scores", given, remedy)
        if privacy.release_scores and privacy.unprotected_scores:
            raise check.PrivacyError(
                f"{owner}: unprotected_scores must be false with release_scores, got true. What is "
                "written without noise needs no release with noise."
            )

    def _check_secure_sums(self) -> None:
        owner, privacy, training = "config privacy", self.privacy, self.training
        check.count(owner, least=0, missing=privacy.missing)
        if not privacy.secure_sums:
            remedy = "It is how many clients of a cohort may be absent from privacy.secure_sums."
            rule, given = "0 without secure_sums", privacy.missing
            check.require(not given, owner, "missing", rule, given, remedy)
            return
        wanted = (
            ("mechanism", "gaussian", "Noise that is correlated over rounds needs one owner."),
            ("adaptive_clip", "0", "Clients must know the grid of their units beforehand."),
            ("relation", "replace-one", "A client that is absent takes its noise with it."),
            ("release_scores", "false", "Whoever forms the mean would see every client's score."),
        )
        for name, value, reason in wanted:
            got = getattr(privacy, name)
            shown = f"{got:g}" if isinstance(got, float) else str(got).lower()
            if shown != value:
                raise check.PrivacyError(
                    f"{owner}: {name} must be {value} with secure_sums, got {shown}. {reason} Set "
                    f"privacy.{name}={value}."
                )
        if training.cohort in ("poisson", "cyclic") or training.sampling_rate:
            raise check.PrivacyError(
                "config training: cohort must be fixed or everyone with privacy.secure_sums, got "
                f"{training.cohort} and a sampling_rate of {training.sampling_rate:g}. The noise "
                "of a round must come from a known number of clients: set training.cohort_size."
            )

    def _check_matrix(self) -> None:
        owner, privacy = "config privacy", self.privacy
        names = ("bands", "separation", "participations")
        check.count(owner, least=0, **picked(privacy, *names))
        given = [name for name in (*names, "coefficients") if getattr(privacy, name)]
        given += ["strategy"] if privacy.strategy != "banded" else []
        if privacy.mechanism != "matrix":
            rule, remedy = "left out", "They need privacy.mechanism=matrix."
            check.require(not given, owner, ", ".join(given), rule, "a value", remedy)
        elif privacy.adaptive_clip:
            raise check.PrivacyError(
                f"{owner}: adaptive_clip must be 0 for the matrix mechanism, got "
                f"{privacy.adaptive_clip:g}. Noise of different rounds would not cancel."
            )
        elif privacy.noise == "secure" and privacy.strategy != "banded":
            raise check.PrivacyError(
                f"{owner}: strategy must be banded for secure noise, got {privacy.strategy}. The "
                "sums of a buffered one cannot be formed exactly."
            )

    def _check_training(self) -> None:
        owner, training = "config training", self.training
        check.count(
            owner,
            **picked(training, "rounds", "local_steps", "steps_per_epoch", "checkpoint_every"),
        )
        names = ("cohort_size", "newcomers", "parts", "batch_size", "devices", "evaluate_every")
        check.count(owner, least=0, **picked(training, *names))
        rates = ("theta_rate", "gamma_rate", "weight_decay", "clip")
        check.nonnegative(owner, **picked(training, *rates))
        check.fraction(owner, decay=training.decay)
        for name, value in as_tables(training).items():
            whole = isinstance(value, int) and not isinstance(value, bool)
            check.require(not whole or value < 2**31, owner, name, "below 2**31", value)
        check.unit(owner, sampling_rate=training.sampling_rate)
        matrix = training.cohort == "auto" and self.privacy.mechanism == "matrix"
        cyclic = training.cohort == "cyclic" or matrix
        if training.parts and (training.cohort_size or not cyclic):
            remedy = "Cyclic cohorts have parts, instead of cohort_size: set cohort = 'cyclic'."
            check.require(False, owner, "parts", "left out", training.parts, remedy)
        taken = training.cohort_size and not cyclic
        if training.sampling_rate and (taken or training.cohort == "fixed"):
            raise ValueError(
                f"{owner}: sampling_rate replaces cohort_size in poisson cohorts. Set one of them, "
                "and cohort = 'poisson'."
            )


def read(path: str | Path | None, changes: Sequence[str] = ()) -> Config:
    """The configuration in a TOML file (or the default one) with `key=value` changes on top.

    A name without an ending, such as `mnist`, is a configuration that comes with fedprior. A file
    may begin from another one: `extends = NAME`, or a path relative to the file.
    """
    tables: dict[str, Any] = {}
    if path is None:
        tables["options"] = as_tables(Config())["options"]  # changes add to the defaults
    else:
        tables = file_tables(Path(path))
        tables["format"] = _current(tables.get("format", FORMAT), path)
    for change in changes:
        put(tables, change)
    return build(Config, tables, "config")


def given_keys(path: str | Path | None, changes: Sequence[str] = ()) -> frozenset[str]:
    """The keys, such as training.rounds, that a file and `key=value` changes set themselves."""
    tables: dict[str, Any] = {} if path is None else file_tables(Path(path))
    for change in changes:
        put(tables, change)
    return frozenset(_keys(tables))


def _keys(tables: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in tables.items():
        yield above + name
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")


def file_tables(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tables of a file, on those of the file that it extends."""
    known = path.parent == Path() and (SHIPPED / f"{path.name}.toml").is_file()
    if not path.suffix and (not path.exists() or (known and path.is_dir())):
        path = _shipped(path.name)  # also where a folder of data has the same name
    check.require(path not in above, "config", "extends", "free of cycles", str(path))
    try:
        tables = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"config: there is no TOML file {path}.") from None
    except IsADirectoryError:
        raise ValueError(f"config: {path} is a folder, not a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config: {path} is not a TOML file: {error}.") from None
    parent = tables.pop("extends", None)
    if parent is None:
        return tables
    file = path.parent / parent if Path(parent).suffix else _shipped(parent)
    return merged(file_tables(file, (*above, path)), tables)


def _shipped(name: str) -> Path:
    """The configuration of that name that comes with fedprior."""
    check.choice("config", "name", name, sorted(each.stem for each in SHIPPED.iterdir()))
    return SHIPPED / f"{name}.toml"


def _current(number: Any, path: str | Path) -> int:
    """The current format, for a file of this one or of 1, which had the same keys."""
    if number != 1:
        formats.check("config", number, source=path)
    return FORMAT
