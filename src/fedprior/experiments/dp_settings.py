"""The settings of the private figures: federation, model, budget, and the noise that it needs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.data.datasets import load
from fedprior.data.federation import Federation, Split
from fedprior.learning.adaped import adaped, adaped_fine_tuning, trust_under_noise
from fedprior.learning.alternating import Start
from fedprior.learning.baselines.fedavg import fedavg, fedavg_fine_tuning
from fedprior.learning.baselines.fedem import fedem
from fedprior.learning.baselines.local import local
from fedprior.learning.batches import Batches
from fedprior.learning.method import ChannelNoise
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic, mlp
from fedprior.privacy.cohort import Poisson
from fedprior.privacy.events import Event, gaussian

EPSILONS = (1.0, 3.0, 10.0)
FORMAT = 1
_RATE = 0.1  # of every model, own or shared, in every method
_BATCH = 10
_ROWS = 8192  # the sizes of 10,000 clients sum to 150,000 with a standard deviation of 320
_FACTS = ("num_clients", "rate", "rounds", "delta")  # what a noise multiplier depends on

# Noise multipliers by the setting's name and epsilon.
Noise = Mapping[str, Mapping[float, float]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A federation and a budget: Poisson cohorts of `rate` for `rounds` rounds, at `delta`.

    Every personal model takes `rounds * rate * local_steps` gradient steps (expected). AdaPeD with
    local fine-tuning also trains in the rounds between, so it takes fewer steps at a time:
    `tuning_steps` where it takes part, and at most `catch_up` in each gap.
    """

    name: str
    dataset: str
    shape: tuple[int, ...]
    num_classes: int
    num_clients: int
    rounds: int
    rate: float
    delta: float
    tuning_steps: int
    catch_up: int
    temperature: float
    options: Mapping[str, Any] = field(default_factory=dict)
    network: Literal["logistic", "mlp"] = "logistic"
    local_steps: int = 10
    clip: float = 1.0
    psi_rate: float = 0.03
    psi_scale: float = 0.1
    start: Start = "initial"  # the population's model carries noise that a client need not begin at

    def __post_init__(self) -> None:
        whole = abs(self.alone_rounds - self.rounds * self.rate) < 1e-9
        rule = "a whole number of times that a client takes part"
        got = self.rounds * self.rate
        check.require(self.alone_rounds > 0 and whole, "Setting", "rounds * rate", rule, got)

    @property
    def alone_rounds(self) -> int:
        """Rounds with everyone that give a client as many steps as the cohorts do (expected)."""
        return round(self.rounds * self.rate)

    @property
    def steps(self) -> int:
        return self.alone_rounds * self.local_steps

    def model(self) -> Model:
        """The clients' network."""
        if self.network == "mlp":
            return mlp(self.shape, self.num_classes, hidden=(16,))
        return logistic(int(np.prod(self.shape)), self.num_classes)

    def federation(self, seed: int, root: Path | None) -> Federation:
        options = {"num_clients": self.num_clients, "seed": seed, **self.options}
        found = load(self.dataset, root=root, **options)
        return replace(found, train=_filled(found.train))

    def event(self, noise_multiplier: float) -> Event:
        """What one round costs: the Gaussian sum of a Poisson cohort."""
        return Poisson(rate=self.rate).amplify(gaussian(noise_multiplier), self.num_clients)


def _filled(split: Split) -> Split:
    """Rows that nobody owns, up to a round number: every seed then has the same programs."""
    spare = -len(split.x) % _ROWS
    x = np.concatenate([split.x, np.zeros((spare, *split.x.shape[1:]), split.x.dtype)])
    y = np.concatenate([split.y, np.zeros(spare, split.y.dtype)])
    return replace(split, x=x, y=y)


_WRITERS: dict[str, Any] = {
    "dataset": "mnist-writers",
    "shape": (28, 28, 1),
    "num_classes": 10,
    "num_clients": 539,
    "options": {"writers_per_client": 1},
    "temperature": 3.0,
    "delta": 1e-4,
}
_SYNTHETIC: dict[str, Any] = {
    "name": "synthetic",
    "dataset": "synthetic",
    "shape": (20,),
    "num_classes": 5,
    "options": {
        "samples_per_client": (10, 20),
        "num_features": 20,
        "num_classes": 5,
        "spread": 0.3,
    },
    "temperature": 1.0,
    "start": "population",  # a mean of 500 updates is worth starting at, noise and all
    "delta": 1e-5,
}
# One client in 20 takes part in a round: with 4 steps in a gap and 5 where it takes part a client
# of AdaPeD with fine-tuning expects 48 steps, the others 50. Three steps in every round are 180.
_FULL: dict[str, Any] = {"rounds": 60, "rate": 0.3, "tuning_steps": 3, "catch_up": 180}
SETTINGS = (
    Setting(num_clients=10_000, rounds=100, rate=0.05, tuning_steps=5, catch_up=4, **_SYNTHETIC),
    Setting(name="writers-logistic", **_FULL, **_WRITERS),
    Setting(name="writers-mlp", network="mlp", **_FULL, **_WRITERS),
)
# A tenth of the clients with the same cohort size; fewer rounds, since noise to signal grows as
# sqrt(rounds) / clients for clients that take part equally often; psi ten times as fast, so that it
# falls within a tenth of the rounds.
_BRIEF: dict[str, Any] = {
    **{"rounds": 10, "rate": 0.5, "tuning_steps": 5, "catch_up": 50},
    **{"psi_rate": 0.3, "psi_scale": 1.0},
}
QUICK = (
    Setting(num_clients=1_000, **_BRIEF, **_SYNTHETIC),
    Setting(name="writers-logistic", **_BRIEF, **_WRITERS),
)
GROUPS = ("synthetic", "writers", "writers-logistic", "writers-mlp")


def chosen(name: str | None, *, quick: bool) -> list[Setting]:
    """The settings called `name` (a whole one, or the word before its dash).

    Without a name all of them, or with `quick` the one that needs no data.
    """
    if name is not None:
        check.choice("dp-figures", "--setting", name, GROUPS)
    elif quick:
        name = "synthetic"
    known = QUICK if quick else SETTINGS
    found = [one for one in known if name in (None, one.name, one.name.split("-")[0])]
    check.require(len(found) > 0, "dp-figures", "--setting", "without --quick", name)
    return found


def algorithms(setting: Setting, noise: float | None = None) -> dict[str, Algorithm]:
    """The methods by name, each with the steps that the setting allows.

    Under a noise multiplier of `noise` AdaPeD trusts the mean no more than the noise leaves of it.
    """
    model = setting.model()
    floors: dict[str, Any] = {"psi_floor": 0.1, "initial_psi": 4.0}
    if noise is not None:
        floors = trust_under_noise(
            model,
            ChannelNoise(noise, setting.clip, setting.rate, setting.num_clients),
            **floors,
        )
    steps = Steps(local_steps=setting.local_steps, batches=Batches(size=_BATCH))
    common: dict[str, Any] = {"steps": steps}
    personal: dict[str, Any] = {
        **{"theta_rate": _RATE, "gamma_rate": _RATE, "start": setting.start},
        **{"temperature": setting.temperature, **floors},
        **{"psi_rate": setting.psi_rate, "psi_scale": setting.psi_scale},
        "newcomer_steps": setting.steps,
    }
    # Fewer steps in a round, and psi as fast by round as AdaPeD's without fine-tuning.
    pace = setting.psi_rate * setting.local_steps / setting.tuning_steps
    tuned: dict[str, Any] = {**personal, "psi_rate": pace}
    tuned.pop("start", None)
    tuned["steps"] = replace(steps, local_steps=setting.tuning_steps)
    tuned["catch_up"] = setting.catch_up
    tuning: dict[str, Any] = {"fine_tuning_steps": setting.steps, "fine_tuning_rate": _RATE}
    return {
        "local": local(model, theta_rate=_RATE, **common),
        "adaped": adaped(model, **personal, **common),
        "adaped-fine-tuning": adaped_fine_tuning(model, **tuned),
        "fedavg": fedavg(model, gamma_rate=_RATE, **common),
        "fedavg-fine-tuning": fedavg_fine_tuning(model, gamma_rate=_RATE, **tuning, **common),
        "fedem": fedem(model, gamma_rate=_RATE, **common),
    }


def plan_noise(
    settings: Sequence[Setting], epsilons: Sequence[float] = EPSILONS
) -> dict[str, dict[float, float]]:
    """The least noise whose epsilon over all rounds is within each target.

    Central view, one client added or removed, Poisson sampling, privacy loss distributions.
    """
    from fedprior.privacy.planning import noise_multiplier

    return {
        one.name: {
            target: noise_multiplier(
                one.event(1.0), target=target, delta=one.delta, rounds=one.rounds
            )
            for target in epsilons
        }
        for one in settings
    }


def write_noise(
    path: Path, settings: Sequence[Setting], epsilons: Sequence[float] = EPSILONS
) -> None:
    """A file for `read_noise`: what was planned, and what for."""
    planned = plan_noise(settings, epsilons)
    content = {
        one.name: {
            **{fact: getattr(one, fact) for fact in _FACTS},
            "noise_multiplier": {f"{target:g}": z for target, z in planned[one.name].items()},
        }
        for one in settings
    }
    path.write_text(json.dumps({"format": FORMAT, "settings": content}, indent=1) + "\n")


def read_noise(path: Path, settings: Sequence[Setting]) -> dict[str, dict[float, float]]:
    """The noise of each setting; refused where it was planned for another budget."""
    try:
        content = json.loads(path.read_text())["settings"]
    except (ValueError, KeyError, TypeError) as error:
        rule = "a file of --write-noise"
        raise ValueError(check.message("dp-figures", "--noise", rule, str(path))) from error
    found = {}
    for one in settings:
        known = content.get(one.name, {})
        facts = {fact: getattr(one, fact) for fact in _FACTS}
        rule = f"planned for {one.name} with {facts}"
        got = {fact: known.get(fact) for fact in _FACTS}
        remedy = "Write it anew with --write-noise (and --quick or not, as here)."
        check.require(got == facts, "dp-figures", "--noise", rule, got, remedy)
        found[one.name] = {float(target): z for target, z in known["noise_multiplier"].items()}
    return found
