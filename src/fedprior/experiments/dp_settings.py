"""The settings of the private figures: configurations, and the noise that their budgets need."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.data.federation import Federation, Split
from fedprior.exchange.facts import Facts
from fedprior.privacy.cohort import Poisson
from fedprior.privacy.events import Event, gaussian
from fedprior.reporting import federations
from fedprior.reporting.config import Config, Data, ModelChoice, Privacy, Schedule
from fedprior.reporting.noise import coefficients, private_channel
from fedprior.reporting.training import Study, Training

EPSILONS = (1.0, 3.0, 8.0)
FORMAT = 2
_ROWS = 8192  # the sizes of 10,000 clients sum to 150,000 with a standard deviation of 320
_TUNED = "adaped-fine-tuning"
_FACTS = ("num_clients", "rate", "rounds", "delta")  # what a noise multiplier depends on
MATRIX = "+matrix"  # after a method's name: with noise that is correlated over rounds
_ADAMAP = {"momentum": 0.9, "weight_decay": 0.001}


class Planned(NamedTuple):
    """The noise of a panel by epsilon.

    `poisson` are noise multipliers of independent noise with Poisson sampling, `known` what such a
    run costs if the cohorts are known, `matrix` multipliers of the matrix mechanism with the
    strategy `coefficients`, whose epsilon holds whether the cohorts are known or not.
    """

    poisson: Mapping[float, float]
    known: Mapping[float, float]
    matrix: Mapping[float, float] = {}
    coefficients: tuple[float, ...] = ()


Noise = Mapping[str, Planned]  # by the panel's name


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One setting of the figures: a configuration with Poisson cohorts, and a budget's delta.

    Every personal model takes `steps` gradient steps (expected). AdaPeD with local fine-tuning also
    trains in the rounds between, so it takes fewer steps at a time: `tuning_steps` where it takes
    part, and at most `catch_up` in each gap.
    """

    name: str
    config: Config
    delta: float
    tuning_steps: int
    clip: float = 1.0

    def __post_init__(self) -> None:
        times = self.rounds * self.rate
        whole = round(times) > 0 and abs(round(times) - times) < 1e-9
        rule = "a whole number of times that a client takes part"
        check.require(whole, "Panel", "rounds * sampling_rate", rule, times)

    @property
    def num_clients(self) -> int:
        number: int = self.config.data.options["num_clients"]
        return number

    @property
    def rounds(self) -> int:
        return self.config.training.rounds

    @property
    def rate(self) -> float:
        return self.config.training.sampling_rate

    @property
    def catch_up(self) -> int:
        number: int = self.config.options[_TUNED]["catch_up"]
        return number

    @property
    def steps(self) -> int:
        return round(self.rounds * self.rate) * self.config.training.local_steps

    def federation(self, seed: int, root: Path | None) -> Federation:
        data = replace(self.config.data, root="" if root is None else str(root))
        drawn = federations.federation(data, seed=seed)
        return replace(drawn, train=_filled(drawn.train))

    def event(self, noise_multiplier: float) -> Event:
        """The cost of one round: the Gaussian sum of a Poisson cohort."""
        return Poisson(rate=self.rate).amplify(gaussian(noise_multiplier), self.num_clients)

    @property
    def turns(self) -> Schedule:
        """The schedule with as many clients in a round, who take turns."""
        parts = max(1, round(1 / self.rate))
        return replace(
            self.config.training, cohort="cyclic", parts=parts, sampling_rate=self.rate * parts
        )

    def budget(self, method: str, epsilon: float, planned: Planned) -> Config:
        """The configuration of a private method."""
        privacy = Privacy(epsilon=epsilon, delta=self.delta, clip=self.clip)
        if not method.endswith(MATRIX):
            privacy = replace(privacy, noise_multiplier=planned.poisson[epsilon])
            return replace(self.config, privacy=privacy)
        privacy = replace(
            privacy,
            mechanism="matrix",
            strategy="buffered",
            coefficients=planned.coefficients,
            noise_multiplier=planned.matrix.get(epsilon, 0.0),
        )
        return replace(self.config, privacy=privacy, training=self.turns)

    def training(
        self, method: str, facts: Facts, epsilon: float | None, planned: Planned
    ) -> Training:
        """A method at a budget, or without privacy."""
        config, options = self.config, {}
        if epsilon is not None:
            config = self.budget(method, epsilon, planned)
        name = method.removesuffix(MATRIX)
        if name == _TUNED:
            schedule = replace(config.training, local_steps=self.tuning_steps)
            config, options = replace(config, training=schedule), {"newcomer_steps": self.steps}
        return Study(config, facts).training(name, options)


def _filled(split: Split) -> Split:
    """The split with rows that nobody owns, up to a round number: all seeds share programs."""
    spare = -len(split.x) % _ROWS
    x = np.concatenate([split.x, np.zeros((spare, *split.x.shape[1:]), split.x.dtype)])
    y = np.concatenate([split.y, np.zeros(spare, split.y.dtype)])
    return replace(split, x=x, y=y)


def _panel(
    name: str,
    data: Data,
    *,
    start: str,
    temperature: float,
    rounds: int,
    rate: float,
    catch_up: int,
    tuning_steps: int,
    delta: float,
    model: str = "logistic",
    psi_rate: float = 0.03,
    psi_scale: float = 0.1,
) -> Panel:
    trust = {"psi_floor": 0.1, "initial_psi": 4.0, "psi_scale": psi_scale}
    schedule = Schedule(rounds=rounds, cohort="poisson", sampling_rate=rate)
    common: dict[str, Any] = {"temperature": temperature, **trust}
    # Fewer steps in a round, and psi as fast per round as AdaPeD's without fine-tuning.
    pace = psi_rate * schedule.local_steps / tuning_steps
    options = {
        "adaped": {**common, "psi_rate": psi_rate, "start": start},
        _TUNED: {**common, "psi_rate": pace, "catch_up": catch_up},
        "adamap": _ADAMAP,
    }
    tables: dict[str, Any] = {"name": model, "hidden": (16,)}
    config = Config(data=data, model=ModelChoice(**tables), training=schedule, options=options)
    return Panel(name=name, config=config, delta=delta, tuning_steps=tuning_steps)


def _synthetic(num_clients: int) -> dict[str, Any]:
    sizes = {"samples_per_client": (10, 20), "num_features": 20, "num_classes": 5, "spread": 0.3}
    data = Data(name="synthetic", options={"num_clients": num_clients, **sizes})
    # A mean of 500 updates is worth starting at, noise and all.
    return {"data": data, "start": "population", "temperature": 1.0, "delta": 1e-5}


_WRITERS: dict[str, Any] = {
    "data": Data(name="mnist-writers", options={"num_clients": 539, "writers_per_client": 1}),
    "start": "initial",  # the population's model carries noise that a client need not begin at
    "temperature": 3.0,
    "delta": 1e-4,
}
# One client in 20 takes part in a round: with 4 steps in a gap and 5 where it takes part a client
# of AdaPeD with fine-tuning expects 48 steps, the others 50. Three steps in every round are 180.
_LONG: dict[str, Any] = {"rounds": 100, "rate": 0.05, "tuning_steps": 5, "catch_up": 4}
_FULL: dict[str, Any] = {"rounds": 60, "rate": 0.3, "tuning_steps": 3, "catch_up": 180}
PANELS = (
    _panel("synthetic", **_LONG, **_synthetic(10_000)),
    _panel("writers-logistic", **_FULL, **_WRITERS),
    _panel("writers-mlp", model="mlp", **_FULL, **_WRITERS),
)
# A tenth of the clients with the same cohort size; fewer rounds, since noise to signal grows as
# sqrt(rounds) / clients for clients that take part equally often; psi ten times as fast, so that it
# falls within a tenth of the rounds.
_BRIEF: dict[str, Any] = {
    **{"rounds": 10, "rate": 0.5, "tuning_steps": 5, "catch_up": 50},
    **{"psi_rate": 0.3, "psi_scale": 1.0},
}
QUICK = (
    _panel("synthetic", **_BRIEF, **_synthetic(1_000)),
    _panel("writers-logistic", **_BRIEF, **_WRITERS),
)
GROUPS = ("synthetic", "writers", "writers-logistic", "writers-mlp")


def chosen(name: str | None, *, quick: bool) -> list[Panel]:
    """The panels called `name` (a whole name, or the word before its dash).

    Without a name all of them, or with `quick` the one that needs no data.
    """
    if name is not None:
        check.choice("dp-figures", "--setting", name, GROUPS)
    elif quick:
        name = "synthetic"
    known = QUICK if quick else PANELS
    panels = [one for one in known if name in (None, one.name, one.name.split("-")[0])]
    check.require(len(panels) > 0, "dp-figures", "--setting", "without --quick", name)
    return panels


def plan_noise(
    panels: Sequence[Panel], epsilons: Sequence[float] = EPSILONS, *, matrix: bool = True
) -> dict[str, Planned]:
    """The least noise whose epsilon over all rounds is within each target.

    Central view, one client added or removed. `matrix`, which takes jax-privacy, plans the matrix
    mechanism, too.
    """
    return {one.name: _planned(one, epsilons, matrix) for one in panels}


def _planned(panel: Panel, epsilons: Sequence[float], matrix: bool) -> Planned:
    from fedprior.privacy.accounting import epsilon
    from fedprior.privacy.planning import noise_multiplier

    facts: dict[str, Any] = {"delta": panel.delta, "rounds": panel.rounds}
    poisson = {each: noise_multiplier(panel.event(1.0), target=each, **facts) for each in epsilons}
    plain = {each: [(gaussian(noise), panel.rounds)] for each, noise in poisson.items()}
    known = {each: epsilon(spent, delta=panel.delta) for each, spent in plain.items()}
    if not matrix:
        return Planned(poisson, known)
    study = Study(panel.budget(MATRIX, 1.0, Planned({}, {})), _facts(panel))
    channels = {
        each: private_channel(
            replace(study.config.privacy, epsilon=each),
            study.cohort,
            rounds=panel.rounds,
            num_clients=panel.num_clients,
        )
        for each in epsilons
    }
    noises = {each: channel.noise_multiplier for each, channel in channels.items()}
    return Planned(poisson, known, noises, coefficients(next(iter(channels.values()))))


def _facts(panel: Panel) -> Facts:
    """Facts that noise depends on; the others are of no account to it."""
    return Facts(num_clients=panel.num_clients, shape=(1,), num_classes=2, most_samples=1)


def write_noise(path: Path, panels: Sequence[Panel]) -> None:
    """A file for `read_noise`: what was planned, and what for."""
    planned = plan_noise(panels)
    content = {
        one.name: {
            **{fact: getattr(one, fact) for fact in _FACTS},
            **{name: _by_text(part) for name, part in planned[one.name]._asdict().items()},
        }
        for one in panels
    }
    path.write_text(json.dumps({"format": FORMAT, "settings": content}, indent=1) + "\n")


def _by_text(part: Any) -> Any:
    return {f"{at:g}": value for at, value in part.items()} if isinstance(part, Mapping) else part


def read_noise(path: Path, panels: Sequence[Panel]) -> dict[str, Planned]:
    """The noise of each panel; raises where it was planned for another budget."""
    try:
        content = json.loads(path.read_text())["settings"]
    except (ValueError, KeyError, TypeError) as error:
        rule = "a file of --write-noise"
        raise ValueError(check.message("dp-figures", "--noise", rule, str(path))) from error
    noise = {}
    for one in panels:
        known = content.get(one.name, {})
        facts = {fact: getattr(one, fact) for fact in _FACTS}
        rule = f"planned for {one.name} with {facts}"
        got = {fact: known.get(fact) for fact in _FACTS}
        remedy = "Write it anew with --write-noise (and --quick or not, as here)."
        check.require(got == facts, "dp-figures", "--noise", rule, got, remedy)
        parts = {
            name: {float(target): value for target, value in known[name].items()}
            for name in ("poisson", "known", "matrix")
        }
        noise[one.name] = Planned(**parts, coefficients=tuple(known["coefficients"]))
    return noise
