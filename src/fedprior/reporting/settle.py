"""What a run on a table leaves open, settled before its folder is made: units, model and rates.

Everything that is settled goes into the configuration, which the folder keeps: a resumed run, and a
run of that configuration, train the same models to the bit. Validation rows decide. That would cost
privacy which nobody accounts for, so nothing is settled for a private run.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedprior.core.algorithm import Algorithm, Array
from fedprior.data.federation import Federation
from fedprior.engines.sweep import Progress, sweep
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import METHODS
from fedprior.models.tabular import BINS, width
from fedprior.reporting import federations, mixed
from fedprior.reporting.boosting import by_client, row_losses
from fedprior.reporting.config import Config
from fedprior.reporting.training import Study, rates

RATES = (0.001, 0.005, 0.02, 0.1)  # that are tried, each for every model of a method
_RATE_KEYS = frozenset({"training.theta_rate", "training.gamma_rate"})
_LINEAR = ("logistic", "linear")  # model of a class, and of a quantity
_TUNED = "local-converged"  # chooses its number of steps itself
_WORST = -1e6  # the score of a row whose prediction is no number
Watch = Callable[[str], Progress]


@dataclass(frozen=True)
class Settled:
    """A configuration with nothing left open, what to say of it, and what was tried.

    `tried` has a row for each training: method, model, bins, rate and the mean loss of its
    validation rows.
    """

    config: Config
    remarks: list[str] = field(default_factory=list)
    tried: list[dict[str, Any]] = field(default_factory=list)


def settle(
    config: Config,
    clients: Federation,
    given: Set[str],
    *,
    watch: Watch = lambda name: lambda done, total: None,
) -> Settled:
    """The configuration for the clients of its first seed, but for the keys that were `given`.

    It concerns tables without privacy. A quantity gets its mean and its standard deviation as
    units. If there are validation rows, the first method tries a network at four rates, then bins
    and a linear model at the best of them; the other methods try the rates. `watch(NAME)` gives
    what is told how many trainings of how many are done.
    """
    if clients.encoder is None or config.privacy.epsilon:
        return Settled(config)
    config = _in_units(config, clients, given)
    names = [name for name in config.methods if name != _TUNED]
    if not clients.valid.size.any() or config.training.store != "device" or not names:
        return Settled(config)
    trials = _Trials(config, clients, given, watch)
    for name in names:
        trials.choose_rate(name)
        if name == names[0]:
            trials.choose_model(name)
    return Settled(trials.config, _remarks(trials), trials.tried)


def criterion(algorithm: Algorithm) -> Callable[[Array, Array], Array]:
    """What validation rows are scored by, one value a row, higher being better: minus the loss."""

    def score(outputs: Array, y: Array) -> Array:
        return jnp.nan_to_num(-algorithm.loss(outputs, y), nan=_WORST, neginf=_WORST)

    return score


def _in_units(config: Config, clients: Federation, given: Set[str]) -> Config:
    y = clients.train.y
    if clients.classes is not None or {"model.center", "model.scale"} & given:
        return config
    scale = float(y.std()) or 1.0
    return replace(config, model=replace(config.model, center=float(y.mean()), scale=scale))


class _Trials:
    """The configuration so far, the clients as it encodes them, and what was tried."""

    def __init__(self, config: Config, clients: Federation, given: Set[str], watch: Watch) -> None:
        self.config, self.clients, self.watch = config, clients, watch
        self.open_model = config.model.name == "auto" and "model.hidden" not in given
        self.open_rates = not given & _RATE_KEYS
        self.open_bins = not (config.data.encoder or "data.bins" in given)
        self.tried: list[dict[str, Any]] = []
        if self.open_model:
            hidden = (width(len(clients.train.y)),)
            self.config = replace(config, model=replace(config.model, name="mlp", hidden=hidden))

    def choose_rate(self, name: str) -> None:
        """Set those rates of a method that were left open to the best of `RATES`."""
        if self.open_rates and self._rates(name, 0.0):
            losses = self._losses(self.config, self.clients, name, RATES)
            best = RATES[int(np.argmin(losses))]
            own = {**self.config.options.get(name, {}), **self._rates(name, best)}
            self.config = replace(self.config, options={**self.config.options, name: own})

    def choose_model(self, name: str) -> None:
        """Replace the model where another one, at the same rates, does better."""
        if not self.open_model:
            return
        if not self.tried:  # rates were given
            self._losses(self.config, self.clients, name)
        least = min(row["loss"] for row in self.tried)
        for config, clients in list(self._others()):
            loss = self._losses(config, clients, name)[0]
            if loss < least:
                least, self.config, self.clients = loss, config, clients

    def _others(self) -> Iterator[tuple[Config, Federation]]:
        if self.open_bins:
            config = replace(self.config, data=replace(self.config.data, bins=BINS))
            binned = federations.federation(config.data, seed=config.seed)
            if binned.shape != self.clients.shape:
                yield config, binned
        linear = replace(self.config.model, name=_LINEAR[self.clients.classes is None])
        yield replace(self.config, model=linear), self.clients

    def _rates(self, name: str, rate: float) -> dict[str, Any]:
        """The rates of a method that its options do not set."""
        own = self.config.options.get(name, {})
        return {key: value for key, value in rates(METHODS[name], rate).items() if key not in own}

    def _losses(
        self, config: Config, clients: Federation, name: str, tried: Sequence[float] = ()
    ) -> list[float]:
        """Mean loss of the validation rows, over clients, at every rate, or at the configured."""
        study = Study(config, Facts.of(clients))
        training = study.training(name)

        def build(**point: float) -> Algorithm:
            own = dict.fromkeys(self._rates(name, 0.0), point["rate"]) if point else {}
            algorithm = study.training(name, own).algorithm
            return replace(algorithm, score=criterion(algorithm))

        swept = sweep(
            build,
            clients,
            over={"rate": tried} if tried else {},
            rounds=training.rounds,
            seeds=(config.seed,),
            cohort=training.cohort,
            test=False,
            progress=self.watch(f"choosing: {name}, {_named(config)}"),
        )
        losses = [-float(np.nanmean(valid)) for valid in swept.valid]
        for rate, loss in zip(tried or (None,), losses, strict=True):
            row = {"method": name, "model": _named(config), "rate": rate, "loss": loss}
            self.tried.append(row)
        return losses


def _named(config: Config) -> str:
    """The model in words: mlp (64), 8 bins."""
    model = config.model
    name = f"mlp ({', '.join(map(str, model.hidden))})" if model.name == "mlp" else model.name
    return f"{name}, {config.data.bins} bins" if config.data.bins else name


def _remarks(trials: _Trials) -> list[str]:
    """The chosen model and rates, and whether a mixed model would do better."""
    config, said = trials.config, []
    for name in dict.fromkeys(row["method"] for row in trials.tried):
        own = [row for row in trials.tried if row["method"] == name]
        known = [row for row in own if row["rate"] is not None]
        if known:
            best = min(known, key=lambda row: row["loss"])
            losses = ", ".join(f"{row['loss']:.4g} at {row['rate']:g}" for row in known)
            said.append(
                f"{name}: rate {best['rate']:g}, by the loss of validation rows ({losses})."
            )
    models = {
        row["model"]: row["loss"]
        for row in sorted(trials.tried, key=_loss, reverse=True)
        if row["method"] == config.methods[0]
    }
    if len(models) > 1:
        losses = ", ".join(f"{loss:.4g} by {model}" for model, loss in models.items())
        said.append(f"Model: {_named(config)}, by the loss of validation rows ({losses}).")
    return [*said, *_mixed(trials, min(models.values(), default=np.inf))]


def _loss(row: dict[str, Any]) -> float:
    return float(row["loss"])


def _mixed(trials: _Trials, least: float) -> Iterator[str]:
    """What to use instead, where a mixed model predicts validation rows better than any network."""
    clients = trials.clients
    if not np.isfinite(least) or not mixed.fits(clients):
        return
    losses = row_losses(mixed.predictions(clients, clients.valid), clients.valid.y)
    unit = trials.config.model.scale**2 if clients.classes is None else 1.0
    loss = float(np.nanmean(by_client(losses, clients.valid))) / unit
    trials.tried.append({"method": "mixed", "model": "mixed", "rate": None, "loss": loss})
    if loss < least:
        face = "PersonalRegression" if clients.classes is None else "PersonalClassifier"
        yield (
            f"A mixed model predicts the validation rows better (a loss of {loss:.4g} against "
            f"{least:.4g}): fedprior regress, or {face} in Python, is likely the better tool."
        )
