"""The settings of the comparison: federations, budgets, and each method's fixed options."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Cohort, Model
from fedprior.data.datasets import load
from fedprior.data.federation import Federation
from fedprior.learning import catalog
from fedprior.learning.batches import Batches
from fedprior.learning.budget import Budget, rates
from fedprior.learning.method import Method
from fedprior.learning.steps import Steps
from fedprior.models.lenet import lenet5
from fedprior.privacy.cohort import Everyone, FixedSize

GRID = (0.05, 0.075, 0.1, 0.125, 0.15, 0.2)  # the paper's; of equals the lower rate is taken
QUICK_GRID = (0.1,)
_QUICK = 5  # a quick run has this part of the rounds
_STEPS_PER_EPOCH = 60
_LOCAL_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A federation by seed and a budget: `size` of the clients a round (0: everyone).

    With `newcomers`, that many clients never take part in training and only they are scored.
    `options` replace a method's where the printed ones are unstable here.
    """

    name: str
    title: str
    dataset: str
    num_clients: int
    size: int
    rounds: int
    data: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper_says: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    newcomers: int = 0
    model: Model = field(default_factory=lenet5)

    @property
    def drawn_from(self) -> dict[str, Any]:
        """What decides the clients and their rounds, beside the seed (JSON values)."""
        decides = {
            "dataset": self.dataset,
            "num_clients": self.num_clients,
            "newcomers": self.newcomers,
            "cohort": self.size,
            **self.data,
        }
        found: dict[str, Any] = json.loads(json.dumps(decides))  # as a file gives it back
        return found

    def federation(self, seed: int, root: Path | None) -> Federation:
        """The clients as drawn for one seed."""
        return load(self.dataset, root=root, seed=seed, num_clients=self.num_clients, **self.data)

    @property
    def budget(self) -> Budget:
        """Steps of the clients that train."""
        return Budget(
            rounds=self.rounds,
            cohort=FixedSize(size=self.size) if self.size else Everyone(),
            num_clients=self.num_clients - self.newcomers,
            steps=Steps(
                local_steps=_LOCAL_STEPS,
                batches=Batches(steps_per_epoch=_STEPS_PER_EPOCH),
                decay=0.99,
                steps_per_epoch=_STEPS_PER_EPOCH,
                weight_decay=1e-4,
            ),
        )

    @property
    def quick(self) -> "Setting":
        """A fifth of the rounds, and says so."""
        title = f"{self.title} (quick: a fifth of the rounds)"
        return replace(self, rounds=max(1, self.rounds // _QUICK), title=title)

    def algorithm(self, method: str, *, rate: Any) -> Algorithm:
        """The method at one rate for all its models, at the budget's steps."""
        known = _known(method)
        own = self.method_options(method)
        return self.budget.build(known, self.model, own, **rates(known, rate))

    def method_options(self, method: str) -> dict[str, Any]:
        """The method's fixed options here."""
        name, varied = VARIANTS.get(method, (method, {}))
        return {**OPTIONS.get(name, {}), **self.options.get(name, {}), **varied}

    def plan(self, method: str) -> tuple[int, Cohort]:
        """The method's rounds, and who takes part in them."""
        known = _known(method)
        rounds, cohort = self.budget.plan(known)
        veterans = self.newcomers and not known.alone
        return rounds, Veterans(cohort, self.newcomers) if veterans else cohort

    @property
    def judges(self) -> int:
        """How many clients, the first ones, decide on a rate by their validation scores."""
        return self.num_clients - self.newcomers

    def scored(self, scores: np.ndarray) -> np.ndarray:
        """The clients that the comparison is about, along the last axis."""
        return scores[..., self.judges :] if self.newcomers else scores


def _known(name: str) -> Method:
    return catalog.method(VARIANTS.get(name, (name, {}))[0])


@dataclass(frozen=True)
class Veterans(Cohort):
    """`inner` among all but the last `newcomers` clients."""

    inner: Cohort
    newcomers: int

    def expected_size(self, num_clients: int) -> float:
        return self.inner.expected_size(num_clients - self.newcomers)

    def capacity(self, num_clients: int) -> int:
        return self.inner.capacity(num_clients - self.newcomers)

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        drawn: np.ndarray = self.inner.draw(seed, round, num_clients - self.newcomers)
        return drawn

    def amplify(self, event: Any, num_clients: int) -> Any:
        return self.inner.amplify(event, num_clients - self.newcomers)


_MNIST: dict[str, Any] = {
    "dataset": "mnist",
    "num_clients": 50,
    # As printed, all methods that distill start at the initial model.
    "options": {"quped": {"start": "initial"}, "mutual-learning": {"start": "initial"}},
}
_WRITERS: dict[str, Any] = {
    "dataset": "mnist-writers",
    "num_clients": 66,
    "data": {"writers_per_client": 3},
    # As printed (KL, start at the initial model) AdaPeD breaks down on the writers.
    "options": {
        "adaped": {"direction": "squared", "start": "population", "initial_psi": 1.0},
        "fedavg-fine-tuning": {"fine_tuning_rate": 0.02},
        "mean-regularized": {"penalty": 3.0},
    },
}


def _says(**figures: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return {name.replace("_", "-"): figure for name, figure in figures.items()}


TABLE1 = (
    Setting(
        name="mnist",
        title="MNIST, 3 classes a client, K/m = 0.1",
        size=5,
        rounds=300,
        paper_says=_says(
            fedavg=(92.93, 0.09),
            fedavg_fine_tuning=(95.42, 0.25),
            adaped=(98.53, 0.11),
            pfedme=(97.83, 0.04),
            per_fedavg=(95.88, 0.27),
            quped=(98.14, 0.39),
            mutual_learning=(97.93, 0.33),
        ),
        **_MNIST,
    ),
    Setting(
        name="writers-033",
        title="MNIST by writer, K/m = 0.33",
        size=22,
        rounds=240,
        paper_says=_says(
            fedavg=(93.14, 0.15),
            fedavg_fine_tuning=(93.81, 0.30),
            adaped=(96.88, 0.29),
            pfedme=(94.03, 0.61),
            per_fedavg=(93.28, 0.41),
            quped=(96.11, 0.13),
            mutual_learning=(94.83, 0.59),
        ),
        **_WRITERS,
    ),
    Setting(
        name="writers-015",
        title="MNIST by writer, K/m = 0.15",
        size=10,
        rounds=480,
        paper_says=_says(
            fedavg=(92.18, 0.13),
            fedavg_fine_tuning=(94.12, 0.26),
            adaped=(96.55, 0.32),
            pfedme=(94.95, 0.55),
            per_fedavg=(93.51, 0.31),
            quped=(95.99, 0.08),
            mutual_learning=(95.12, 0.18),
        ),
        **_WRITERS,
    ),
)
FEDEM = (
    Setting(
        name="mnist-everyone",
        title="MNIST, 3 classes a client, everyone in every round",
        size=0,
        rounds=300,
        paper_says=_says(adaped=(99.04, 0.11), fedem=(98.90, 0.20)),
        **_MNIST,
    ),
)

BEYOND = (
    Setting(
        name="dirichlet",
        title="MNIST, Dirichlet(0.1) shares of the classes, 50 clients, K/m = 0.1",
        dataset="mnist-dirichlet",
        num_clients=50,
        size=5,
        rounds=300,
        data={"concentration": 0.1},
    ),
    Setting(
        name="small",
        title="MNIST, 3 classes and 120 samples a client, K/m = 0.1",
        size=5,
        rounds=300,
        data={"train_samples": 120, "valid_samples": 60},
        **_MNIST,
    ),
    Setting(
        name="newcomers",
        title="MNIST by writer, 16 of 66 clients never seen in training, K/m = 0.2",
        size=10,
        rounds=240,
        newcomers=16,
        **_WRITERS,
    ),
)
# Rows of the paper's table first, then one or more of each family that it cites, then our own.
METHODS = (
    *("local", "fedavg", "fedavg-fine-tuning", "adaped", "pfedme", "per-fedavg", "quped"),
    *("mutual-learning", "fedem", "ditto", "apfl", "ifca", "fedrep", "mean-regularized", "l2gd"),
    *("fedprox", "adamap"),
)
# What the paper fixes (appendix, "Federated Setting"); then penalties, shares and second rates that
# it does not, chosen as AdaMAP's options were: validation scores of the seeds 100 to 102
# (docs/reproduction.md).
OPTIONS: dict[str, dict[str, Any]] = {
    "fedavg-fine-tuning": {"fine_tuning_rate": 0.05},
    "adaped": {"initial_psi": 4.0, "psi_rate": 0.03, "psi_floor": 0.5, "start": "initial"},
    "pfedme": {"penalty": 0.5, "gamma_rate": 0.2, "inner_steps": 3},
    "per-fedavg": {"theta_rate": 0.001},
    "quped": {"penalty": 0.25},
    "mutual-learning": {"theta_share": 0.25, "gamma_share": 0.25},
    "fedem": {"num_components": 2},
    "ditto": {"penalty": 0.1},
    "apfl": {"mixing": 0.25},
    "ifca": {"num_components": 2},
    "mean-regularized": {"penalty": 0.01},
    "l2gd": {"penalty": 3.0},
    "fedprox": {"penalty": 0.01},
    "adamap": {"theta_rate": 0.05},
}

# Our own method with one ingredient left out, and with all of them: then it is FedAvg with
# fine-tuning at a rate of its own.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "without-frequencies": ("adamap", {"class_frequencies": False}),
    "without-momentum": ("adamap", {"momentum": 0.0}),
    "without-cutting": ("adamap", {"gradient_norm": 1e9}),
    "without-average": ("adamap", {"horizon": 1.0}),
    "without-prior": ("adamap", {"precision": 0.0}),
    "without-last-steps": ("adamap", {"newcomer_steps": 0}),
    "without-step-average": ("adamap", {"average_steps": False}),
    "without-all": (
        "adamap",
        {
            "class_frequencies": False,
            "momentum": 0.0,
            "gradient_norm": 1e9,
            "horizon": 1.0,
            "precision": 0.0,
            "average_steps": False,
        },
    ),
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Settings and methods that are compared under one name, over `seeds` seeds from `first`."""

    settings: tuple[Setting, ...]
    methods: tuple[str, ...]
    seeds: int
    first: int = 0

    def chosen_settings(self, names: Sequence[str] | None, *, quick: bool) -> list[Setting]:
        """The settings called so, or all of them."""
        known = {setting.name: setting for setting in self.settings}
        for name in names or ():
            check.choice("reproduce", "--setting", name, known)
        found = [setting for name, setting in known.items() if not names or name in names]
        return [setting.quick for setting in found] if quick else found

    def chosen_methods(self, names: Sequence[str] | None) -> list[str]:
        """The methods called so, or all of them."""
        for name in names or ():
            check.choice("reproduce", "--method", name, self.methods)
        return [name for name in self.methods if not names or name in names]


# Seeds that no design has seen: AdaMAP was made on 100 to 102.
_FRESH: dict[str, int] = {"seeds": 10, "first": 1000}
COMPARISONS = {
    "table1": Comparison(settings=TABLE1, methods=METHODS, **_FRESH),
    "beyond": Comparison(settings=BEYOND, methods=METHODS, **_FRESH),
    "ablation": Comparison(
        settings=(*TABLE1, *BEYOND), methods=("adamap", *VARIANTS), seeds=10, first=2000
    ),
    "fedem": Comparison(settings=FEDEM, methods=("adaped", "fedem", "adamap"), **_FRESH),
}
