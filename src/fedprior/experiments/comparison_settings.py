"""The settings of the comparison: shipped configurations, their titles, the printed figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.data.federation import Federation
from fedprior.experiments.optimizers import PUBLISHED, Optimizer
from fedprior.learning import catalog
from fedprior.learning.method import Method
from fedprior.reporting import federations
from fedprior.reporting.config import Config, read
from fedprior.reporting.tables import as_tables

GRID = (0.05, 0.075, 0.1, 0.125, 0.15, 0.2)  # the paper's
QUICK_GRID = (0.1,)
_CIFAR10_GRID = (0.02, 0.05, 0.1, 0.2)
_QUICK = 5  # a quick run has this part of the rounds


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A configuration under a title, with the figures that the paper prints for it.

    Where the configuration has newcomers, only they are scored. `optimizer` is what all methods
    get; the paper's figures are for their own.
    """

    name: str
    title: str
    config: Config
    paper_says: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    optimizer: Optimizer = PUBLISHED

    @cached_property
    def drawn_from(self) -> dict[str, Any]:
        """What decides the clients and their rounds, beside the seed, as JSON values."""
        tables = as_tables(self.config)
        names = ("cohort", "cohort_size", "newcomers")
        schedule = {name: tables["training"][name] for name in names}
        return {"dataset": tables["data"]["name"], **tables["data"]["options"], **schedule}

    @property
    def rounds(self) -> int:
        return self.config.training.rounds

    @property
    def newcomers(self) -> int:
        return self.config.training.newcomers

    def federation(self, seed: int, root: Path | None) -> Federation:
        """The clients as drawn for one seed."""
        data = replace(self.config.data, root="" if root is None else str(root))
        return federations.federation(data, seed=seed)

    @property
    def quick(self) -> "Setting":
        """The same with a fifth of the rounds."""
        schedule = replace(self.config.training, rounds=max(1, self.rounds // _QUICK))
        title = f"{self.title} (quick: a fifth of the rounds)"
        return replace(self, config=replace(self.config, training=schedule), title=title)

    def method_options(self, name: str) -> dict[str, Any]:
        """The fixed options of a method or of a variant of ours."""
        known, varied = VARIANTS.get(name, (name, {}))
        optimizer = self.optimizer.of(catalog.method(known))
        return {**self.config.options.get(known, {}), **optimizer, **varied}

    def under(self, optimizer: Optimizer) -> "Setting":
        """The same with this optimizer for every method; it is not the one of printed figures."""
        if optimizer == self.optimizer:
            return self
        return replace(self, optimizer=optimizer, paper_says={})


def method(name: str) -> Method:
    """The method called so, or that of a variant."""
    return catalog.method(VARIANTS.get(name, (name, {}))[0])


def _setting(name: str, title: str, **figures: tuple[float, float]) -> Setting:
    """A shipped configuration; `figures` are those of the paper, by method."""
    says = {method.replace("_", "-"): figure for method, figure in figures.items()}
    return Setting(name=name, title=title, config=read(name), paper_says=says)


TABLE1 = (
    _setting(
        "mnist",
        "MNIST, 3 classes per client, K/m = 0.1",
        fedavg=(92.93, 0.09),
        fedavg_fine_tuning=(95.42, 0.25),
        adaped=(98.53, 0.11),
        pfedme=(97.83, 0.04),
        per_fedavg=(95.88, 0.27),
        quped=(98.14, 0.39),
        mutual_learning=(97.93, 0.33),
    ),
    _setting(
        "writers-033",
        "MNIST by writer, K/m = 0.33",
        fedavg=(93.14, 0.15),
        fedavg_fine_tuning=(93.81, 0.30),
        adaped=(96.88, 0.29),
        pfedme=(94.03, 0.61),
        per_fedavg=(93.28, 0.41),
        quped=(96.11, 0.13),
        mutual_learning=(94.83, 0.59),
    ),
    _setting(
        "writers-015",
        "MNIST by writer, K/m = 0.15",
        fedavg=(92.18, 0.13),
        fedavg_fine_tuning=(94.12, 0.26),
        adaped=(96.55, 0.32),
        pfedme=(94.95, 0.55),
        per_fedavg=(93.51, 0.31),
        quped=(95.99, 0.08),
        mutual_learning=(95.12, 0.18),
    ),
)
FEDEM = (
    _setting(
        "mnist-everyone",
        "MNIST, 3 classes per client, everyone in every round",
        adaped=(99.04, 0.11),
        fedem=(98.90, 0.20),
    ),
)
BEYOND = (
    _setting("dirichlet", "MNIST, Dirichlet(0.1) shares of the classes, 50 clients, K/m = 0.1"),
    _setting("small", "MNIST, 3 classes and 120 samples per client, K/m = 0.1"),
    _setting("newcomers", "MNIST by writer, 16 of 66 clients never seen in training, K/m = 0.2"),
)
CIFAR10 = (
    _setting("cifar10-dirichlet-01", "CIFAR-10, Dirichlet(0.1) shares of the classes, K/m = 0.1"),
    _setting("cifar10-dirichlet-05", "CIFAR-10, Dirichlet(0.5) shares of the classes, K/m = 0.1"),
    _setting("cifar10-3-classes", "CIFAR-10, 3 classes per client, K/m = 0.1"),
)
# Rows of the paper's table first, then one or more of each family that it cites, then our own.
METHODS = (
    *("local", "fedavg", "fedavg-fine-tuning", "adaped", "pfedme", "per-fedavg", "quped"),
    *("mutual-learning", "fedem", "ditto", "apfl", "ifca", "fedrep", "mean-regularized", "l2gd"),
    *("fedprox", "fedper", "lg-fedavg", "fedbabu", "fedrod", "pfedvem", "fedmd", "adamap"),
)
# Our own method with one ingredient left out, and with all of them: then it is FedAvg with
# fine-tuning at a rate of its own.
ABLATED: dict[str, tuple[str, dict[str, Any]]] = {
    "without-frequencies": ("adamap", {"class_frequencies": False}),
    "without-momentum": ("adamap", {"momentum": 0.0}),
    "without-cutting": ("adamap", {"gradient_norm": 1e9}),
    "without-average": ("adamap", {"horizon": 1.0}),
    "without-judging": ("adamap", {"judge_every": 0}),
    "without-prior": ("adamap", {"judge_every": 0, "prior_samples": 0.0}),
    "without-last-steps": ("adamap", {"last_steps": 0}),
    "without-all": (
        "adamap",
        {
            "class_frequencies": False,
            "momentum": 0.0,
            "gradient_norm": 1e9,
            "horizon": 1.0,
            "judge_every": 0,
            "prior_samples": 0.0,
        },
    ),
}
SEVERAL = {
    "adamap-3-networks": ("adamap", {"networks": 3}),
    "fine-tuning-3-networks": ("fedavg-fine-tuning", {"networks": 3}),
}
VARIANTS = {**ABLATED, **SEVERAL}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Settings and methods that are compared under one name, over `seeds` seeds from `first`.

    Each method's rate is one of `grid`; of equals the lower one is taken. With the same optimizer
    for all methods, the rates are those of `equal_grid`, where given.
    """

    settings: tuple[Setting, ...]
    methods: tuple[str, ...]
    seeds: int
    first: int = 0
    grid: tuple[float, ...] = GRID
    equal_grid: tuple[float, ...] | None = None

    def under(self, optimizer: Optimizer) -> "Comparison":
        """The same with the usual seeds and rates under this optimizer."""
        if optimizer == PUBLISHED:
            return self
        return replace(self, grid=self.equal_grid or self.grid)

    def chosen_settings(
        self, names: Sequence[str] | None, *, quick: bool, optimizer: Optimizer = PUBLISHED
    ) -> list[Setting]:
        """The settings called so, or all of them."""
        known = {setting.name: setting for setting in self.settings}
        for name in names or ():
            check.choice("reproduce", "--setting", name, known)
        chosen = [
            setting.under(optimizer)
            for name, setting in known.items()
            if not names or name in names
        ]
        return [setting.quick for setting in chosen] if quick else chosen

    def chosen_methods(self, names: Sequence[str] | None) -> list[str]:
        """The methods called so, or all of them."""
        for name in names or ():
            check.choice("reproduce", "--method", name, self.methods)
        return [name for name in self.methods if not names or name in names]


# Seeds that no design has seen: AdaMAP was made on 100 to 102.
_FRESH: dict[str, Any] = {"seeds": 10, "first": 1000}
_FRESH |= {"equal_grid": (0.05, 0.1, 0.2, 0.4)}
COMPARISONS = {
    "table1": Comparison(settings=TABLE1, methods=METHODS, **_FRESH),
    "beyond": Comparison(settings=BEYOND, methods=METHODS, **_FRESH),
    "cifar10": Comparison(
        settings=CIFAR10,
        methods=METHODS,
        grid=_CIFAR10_GRID,
        seeds=3,
        first=1000,
        equal_grid=_CIFAR10_GRID[2:],
    ),
    "ablation": Comparison(
        settings=(*TABLE1, *BEYOND),
        methods=("adamap", *ABLATED, "adamap-3-networks"),
        seeds=5,
        first=2000,
        grid=(0.1, 0.2),
    ),
    "fedem": Comparison(settings=FEDEM, methods=("adaped", "fedem", "adamap"), **_FRESH),
}
