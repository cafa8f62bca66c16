"""What a run on a table leaves open, settled before its folder is made: units, model and rates.

Everything that is settled goes into the configuration, which the folder keeps: a resumed run, and a
run of that configuration, train the same models to the bit. Validation rows decide. That would cost
privacy which nobody accounts for, so nothing is settled for a private run.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from fedprior.core import random, tree
from fedprior.core.algorithm import Algorithm
from fedprior.core.scores import METRICS, Metric
from fedprior.data.federation import Federation
from fedprior.engines.sweep import Progress, sweep
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import METHODS
from fedprior.models.tabular import BINS, deeper, width
from fedprior.reporting import federations, mixed
from fedprior.reporting.boosting import measured
from fedprior.reporting.config import Config
from fedprior.reporting.training import Study, rates
from fedprior.reporting.units import fitted

RATES = (0.001, 0.005, 0.02, 0.1)  # that are tried, each for every model of a method
HIGHER = 0.3  # where the highest of them is chosen
_DECAYS = (0.0001, 0.01)  # of weights, beside that of the configuration
_MORE_DECAY = (0.1, 1.0)  # where the highest of them is chosen, as long as more is better
_CLEAR = 0.5  # of a standard error: what another model or option has to gain
_FEW_ROWS = 5  # training rows to an input, below which fewer inputs are tried
_MOST_LINEAR = 10_000  # rows beyond which a linear model is not tried
_MOST_NUMBERS = 10**7  # parameters of all models in a round, beyond which none deeper is tried
_LOWER = (0.1, 0.0)  # shares of the best one that are tried for a client's own models
_RATE_KEYS = frozenset({"training.theta_rate", "training.gamma_rate"})
_CLOSE = 0.05  # of the best score: what a lower rate may lose, also where clients are few
_ABOUT = 10  # trainings of a method, until it is known how many there are
_LINEAR: Any = ("logistic", "linear")  # model of a class, and of a quantity
_TUNED = "local-converged"  # chooses its number of steps itself
_CRITERIA = ("log-loss", "rmse")  # of a class, and of a quantity
Watch = Callable[[str], Callable[[float, int, str], Any]]


@dataclass(frozen=True)
class Settled:
    """A configuration with nothing left open, what to say of it, and what was tried.

    `tried` has a row for each training: method, model, options and the value of the metric on
    validation rows, a mean over clients, which count by their numbers of rows.
    """

    config: Config
    remarks: list[str] = field(default_factory=list)
    tried: list[dict[str, Any]] = field(default_factory=list)


def settle(
    config: Config,
    clients: Federation,
    given: Set[str],
    *,
    watch: Watch = lambda name: lambda done, total, best: None,
) -> Settled:
    """The configuration for the clients of its first seed, but for the keys that were `given`.

    It concerns tables without privacy, and begins with what is `fitted` to their rows. If there
    are validation rows, every method tries four rates, and a higher one if it takes the highest,
    then other weight decays, lower rates for a client's own steps (unless it learns its prior), and
    means weighted by numbers of rows; the first method also tries fewer columns of a wide table,
    and with its rates and weight decay a linear model, if all of them take it, a deeper network,
    and bins, then other weight decays again where one of these is taken.
    `watch(NAME)` gives what is told how many trainings of how many are done, and the best value so
    far in words.
    """
    config, remarks = fitted(config, clients, given)
    if clients.encoder is None or config.privacy.epsilon:
        return Settled(config, remarks)
    names = [name for name in config.methods if name != _TUNED]
    if not clients.valid.size.any():
        return Settled(config, ["No client has validation rows: model and rates are not chosen."])
    if config.training.store != "device" or not names:
        return Settled(config)
    trials = _Trials(config, clients, given, watch)
    for name in names:
        trials.choose_rate(name)
        trials.choose_decay(name)
        if name == names[0] and trials.choose_model(name):
            trials.choose_decay(name)
        trials.choose_options(name)
        trials.end(name)
    return Settled(trials.config, [*trials.remarks(), *_mixed(trials, names[0])], trials.tried)


def criterion(config: Config, clients: Federation) -> Metric:
    """What validation rows choose by: the metric that was asked for, else log loss or RMSE.

    Few rows tell models apart by their log loss long before they do by their accuracy.
    """
    name = config.training.metric
    return METRICS[_CRITERIA[clients.classes is None] if name == "auto" else name]


class _Trials:
    """The configuration so far, the clients as it encodes them, and what was tried."""

    def __init__(self, config: Config, clients: Federation, given: Set[str], watch: Watch) -> None:
        self.begun = self.config = config
        self.clients, self.watch = clients, watch
        self.rows = clients.valid.size
        self.metric = criterion(config, clients)
        self.open_model = config.model.name == "auto" and "model.hidden" not in given
        self.open_rates = not given & _RATE_KEYS
        self.open_bins = not (config.data.encoder or "data.bins" in given)
        self.open_inputs = not (config.data.encoder or "data.most_inputs" in given)
        self.set_by_user = {
            name: {key for key in METHODS[name].options() if f"options.{name}.{key}" in given}
            for name in config.methods
        }
        self.tried: list[dict[str, Any]] = []
        self.scores: dict[str, np.ndarray] = {}  # of each client, with what was chosen
        self._builds: dict[Any, Callable[..., Algorithm]] = {}
        self._told: dict[str, Callable[[float, int, str], Any]] = {}
        if self.open_model:
            self.config = replace(config, model=replace(config.model, name="mlp"))

    def choose_rate(self, name: str) -> None:
        """The lowest of `RATES` that is about the best, for all rates that were left open.

        The first method also chooses between all columns of a wide table and fewer of them.
        """
        points = [dict.fromkeys(self._open(name), rate) for rate in RATES if self._open(name)]
        if points:
            tables = [(self.config, self.clients)]
            tables = [*([] if self.tried else self._narrower()), *tables]
            cases = [(*table, point) for table in tables for point in points]
            found = [self._scores(config, own, name, point) for config, own, point in cases]
            lowest = _first_of_the_best(found, self.rows)
            self.config, self.clients, point = cases[lowest]
            self.config, self.scores[name] = self._with(name, point), found[lowest]
            if point == points[-1]:
                self._try(name, dict.fromkeys(point, HIGHER))

    def choose_decay(self, name: str) -> None:
        """Another weight decay where it does better, before models are compared and after that.

        Bins and wider networks overfit without it, and would be judged by that.
        """
        key = "weight_decay"
        free = self.open_rates and key not in self.set_by_user[name]
        if not free or key not in METHODS[name].options():
            return
        self._begin(name)
        now = self.config.options.get(name, {}).get(key, self.config.training.weight_decay)
        for decay in (each for each in _DECAYS if each != now):
            if self._try(name, {key: decay}) and decay == _DECAYS[-1]:
                more = (self._try(name, {key: each}) for each in _MORE_DECAY)
                all(more)  # up to the first that is no better

    def choose_model(self, name: str) -> bool:
        """Whether another model does better with the same rates; it is taken then."""
        before = self.config
        if self.open_model:
            self._begin(name)  # rates may be given
        for config, clients in self._others() if self.open_model else ():
            if self._takes(name, self._scores(config, clients, name, {})):
                self.config, self.clients = config, clients
        return self.config is not before

    def choose_options(self, name: str) -> None:
        """Lower rates for a client's own steps, and other options, each where it does better."""
        for point in self._points(name) if self.open_rates else ():
            self._begin(name)
            self._try(name, point)

    def _begin(self, name: str) -> None:
        """The scores of what others are compared with, where its rates were given."""
        if name not in self.scores:
            self.scores[name] = self._scores(self.config, self.clients, name, {})

    def end(self, name: str) -> None:
        """Say that a method has nothing left to try."""
        if name in self._told:
            self._tell(name, self._number(name), self._number(name))

    def _try(self, name: str, point: Mapping[str, Any]) -> bool:
        """These options of a method, kept where they do better."""
        better = self._takes(name, self._scores(self.config, self.clients, name, point))
        if better:
            self.config = self._with(name, point)
        return better

    def _takes(self, name: str, found: np.ndarray) -> bool:
        """Whether these scores of the clients are better by more than half a standard error."""
        gain, error = _gain(found, self.scores[name], self.rows)
        better = bool(gain > _CLEAR * error)
        if better:
            self.scores[name] = found
        return better

    def best(self, name: str) -> float:
        """The score of a method with what was chosen, or the best one before that."""
        if name in self.scores:
            return _mean(self.scores[name], self.rows)
        key = self.metric.key
        scores = [self.metric.signed(row[key]) for row in self.tried if row["method"] == name]
        return max(scores, default=-np.inf)

    def value(self, score: float) -> str:
        """A score in a sentence."""
        return f"{self.metric.label} {self.metric.words(self.metric.signed(score))}"

    def remarks(self) -> Iterator[str]:
        """What was chosen, by method, and for all of them."""
        for name in dict.fromkeys(row["method"] for row in self.tried):
            own, before = (each.options.get(name, {}) for each in (self.config, self.begun))
            shown = ", ".join(f"{key} {own[key]}" for key in own if own[key] != before.get(key))
            if shown:
                reached = f"of {self._number(name)} trainings, {self.value(self.best(name))}"
                yield f"{name}: {shown}, chosen on validation rows ({reached})."
        models = list(dict.fromkeys(row["model"] for row in self.tried))
        chosen = _named(self.config)
        others = "; ".join(model for model in models if model != chosen)
        if others:
            yield f"Model: {chosen} (also tried on validation rows: {others})."
        encoder = self.clients.encoder
        if encoder is not None and self.config.data.most_inputs:
            yield f"Columns that are used: {', '.join(encoder.features)}."

    def _narrower(self) -> Iterator[tuple[Config, Federation]]:
        """A wide table with about as many inputs as the root of the number of training rows."""
        number = len(self.clients.train.y)
        most = width(number)
        if self.open_inputs and self.clients.shape[0] > max(most, number // _FEW_ROWS):
            config = replace(self.config, data=replace(self.config.data, most_inputs=most))
            yield config, federations.federation(config.data, seed=config.seed)

    def _others(self) -> Iterator[tuple[Config, Federation]]:
        """Models that every method takes: one with a head of its own refuses a linear model."""
        return ((config, own) for config, own in self._further() if _all_build(config, own))

    def _further(self) -> Iterator[tuple[Config, Federation]]:
        """A linear model, a deeper network, and bins for the better one."""
        mlp = self.config.model
        if len(self.clients.train.y) <= _MOST_LINEAR:
            linear = replace(mlp, name=_LINEAR[self.clients.classes is None])
            yield replace(self.config, model=linear), self.clients
        deep = replace(mlp, hidden=deeper(*mlp.hidden))
        deeper_one = replace(self.config, model=deep)
        if _numbers(deeper_one, self.clients) <= _MOST_NUMBERS:
            yield deeper_one, self.clients
        if self.open_bins:
            config = replace(self.config, data=replace(self.config.data, bins=BINS))
            binned = federations.federation(config.data, seed=config.seed)
            if binned.shape != self.clients.shape:
                yield config, binned

    def _points(self, name: str) -> Iterator[dict[str, Any]]:
        """Options to try, each by itself; numbers, which need no program of their own, first.

        A method that judges its prior learns how far clients should follow their own steps.
        """
        keys, known = self._open(name), self.set_by_user[name]
        own = [key for key in keys if key != "gamma_rate"]
        if own and len(own) < len(keys) and "judge_every" not in METHODS[name].options():
            best = self.config.options[name]["gamma_rate"]
            yield from (dict.fromkeys(own, share * best) for share in _LOWER)
        options = set(METHODS[name].options()) - known
        size = self.clients.train.size
        if "weight" in options and size.max() > 2 * np.median(size):
            yield {"weight": "samples"}

    def _open(self, name: str) -> list[str]:
        """The rates of a method that the user did not set."""
        keys = rates(METHODS[name], None) if self.open_rates else {}
        return [key for key in keys if key not in self.set_by_user[name]]

    def _with(self, name: str, point: Mapping[str, Any]) -> Config:
        """The configuration with these options of a method."""
        own = {**self.config.options.get(name, {}), **point}
        return replace(self.config, options={**self.config.options, name: own})

    def _scores(
        self, config: Config, clients: Federation, name: str, point: Mapping[str, Any]
    ) -> np.ndarray:
        """Scores of the clients' validation rows, of a method with further options."""
        study = Study(config, Facts.of(clients))
        options = {**study.options(name), **point}
        numbers = {key: value for key, value in options.items() if isinstance(value, float)}
        words = tuple(item for item in options.items() if item[0] not in numbers)
        training = study.training(name, options)

        def build(**numbers: float) -> Algorithm:
            return study.training(name, {**dict(words), **numbers}).algorithm

        metric: Any = self.metric.name
        # One function for each shape of program: a sweep compiles it once for all its numbers.
        build = self._builds.setdefault((name, _named(config), words, tuple(numbers)), build)
        swept = sweep(
            build,
            clients,
            over={key: [value] for key, value in numbers.items()},
            rounds=training.rounds,
            seeds=(config.seed,),
            cohort=training.cohort,
            metric=metric,
            test=False,
            progress=self._progress(name),
        )
        value = self.metric.signed(_mean(swept.valid[0, 0], self.rows))
        self.tried.append(
            {"method": name, "model": _named(config), **options, self.metric.key: value}
        )
        self._tell(name, self._number(name), max(_ABOUT, self._number(name) + 1))
        return swept.valid[0, 0]

    def _progress(self, name: str) -> Progress:
        """What is told of the next training: one line stands for all of a method."""
        if name not in self._told:
            self._told[name] = self.watch(f"choosing: {name}")
        before = self._number(name)
        return lambda done, total: self._tell(name, before + done, max(_ABOUT, before + 2))

    def _tell(self, name: str, done: float, total: int) -> None:
        best = self.best(name)
        self._told[name](done, total, self.value(best) if np.isfinite(best) else "")

    def _number(self, name: str) -> int:
        """How many trainings of a method are done."""
        return sum(row["method"] == name for row in self.tried)


def _all_build(config: Config, clients: Federation) -> bool:
    """Whether every method of the configuration takes its model."""
    study = Study(config, Facts.of(clients))
    try:
        for name in config.methods:
            study.training(name)
    except ValueError:
        return False
    return True


def _numbers(config: Config, clients: Federation) -> float:
    """How many parameters the models of a round have together."""
    study = Study(config, Facts.of(clients))
    size = tree.size(jax.eval_shape(study.model.init, random.root(0)))
    return size * study.share * clients.num_clients


def _named(config: Config) -> str:
    """The model in words: mlp (64) with 8 bins on at most 64 inputs."""
    model, data = config.model, config.data
    name = f"mlp ({', '.join(map(str, model.hidden))})" if model.name == "mlp" else model.name
    name += f" with {data.bins} bins" if data.bins else ""
    return f"{name} on at most {data.most_inputs} inputs" if data.most_inputs else name


def _mixed(trials: _Trials, name: str) -> Iterator[str]:
    """What to use instead, where a mixed model predicts validation rows clearly better."""
    clients, metric, best = trials.clients, trials.metric, trials.best(name)
    key = metric.key
    narrowed = trials.config.data.most_inputs  # to columns that `fedprior regress` would not know
    if narrowed or not np.isfinite(best) or not mixed.fits(clients):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing of the fit is shown
            predictions = mixed.predictions(clients, clients.valid)
    except ValueError:  # a table that it does not take, such as one of collinear columns
        return
    scores = metric.signed(measured(replace(clients, test=clients.valid), predictions).clients[key])
    value = _mean(scores, trials.rows)
    trials.tried.append(
        {"method": "mixed model", "model": "mixed model", key: metric.signed(value)}
    )
    gain, error = _gain(scores, trials.scores[name], trials.rows)
    if error > 0 and gain >= 2 * error:
        face = "PersonalRegression" if clients.classes is None else "PersonalClassifier"
        reached = f"{trials.value(value)} against {metric.words(metric.signed(best))}"
        yield (
            f"A mixed model predicts the validation rows better ({reached}): fedprior regress, or "
            f"{face} in Python, is likely the better tool."
        )


def _first_of_the_best(found: Sequence[np.ndarray], rows: np.ndarray) -> int:
    """The first that the best one leads by a standard error, and by 5%, at most."""
    means = [_mean(each, rows) for each in found]
    best = int(np.argmax(means))
    most = _CLOSE * abs(means[best])
    gains = [_gain(found[best], each, rows) for each in found]
    return next(place for place, (gain, error) in enumerate(gains) if gain <= min(error, most))


def _mean(scores: np.ndarray, rows: np.ndarray) -> float:
    """The mean of the scores of clients that have one, weighted by their numbers of rows."""
    known = ~np.isnan(scores)
    return float(np.average(scores[known], weights=rows[known])) if known.any() else -np.inf


def _gain(new: np.ndarray, old: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """The mean gain of clients that have both scores, and its standard error over clients."""
    with np.errstate(invalid="ignore"):  # minus infinity from itself is no gain
        gains = new - old
        known = ~np.isnan(gains)
        if not known.any():
            return 0.0, 0.0
        gains, share = gains[known], rows[known] / rows[known].sum()
        mean = float(share @ gains)
    if share.max() == 1 or not np.isfinite(mean):
        return mean, 0.0
    # Unbiased for independent rows, however many of them a client has.
    return mean, float(np.sqrt(share**2 @ (gains - mean) ** 2 / (1 - share @ share)))
