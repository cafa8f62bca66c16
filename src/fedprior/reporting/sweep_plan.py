"""What a sweep of a configuration will do, checked before anything is trained or written."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.plain import picked
from fedprior.core.scores import Metric
from fedprior.data import standard_input
from fedprior.data.federation import Federation
from fedprior.engines.evaluate import check_defined
from fedprior.engines.grid import families, points
from fedprior.engines.seeds import Seeds
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import method
from fedprior.learning.method import Method
from fedprior.reporting import federations
from fedprior.reporting.config import Config
from fedprior.reporting.training import Study, Training, rates
from fedprior.reporting.units import fitted

RATE = ("rate", "lr")  # names of one rate for every model that a method trains
_OWNER = "sweep"
_PLACES = ("root", "path", "encoder")  # where data are
_WITHOUT_EFFECT = ("evaluate_every", "store")  # on the scores of a sweep
Values = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One method of a sweep, at the points `over`; every point has been built once.

    `identity` is what decides its scores: not which other methods are swept beside it.
    """

    study: Study
    training: Training
    over: Values
    identity: dict[str, Any]

    @property
    def method(self) -> str:
        return self.training.method.name

    def build(self, **point: Any) -> Algorithm:
        """The method at one point of the grid."""
        options = expanded(self.training.method, point)
        return self.study.training(self.method, options).algorithm


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """A sweep before anything is trained or written; `remarks` are about the data."""

    config: Config
    over: Values
    federations: dict[int, Federation]  # by seed
    grids: tuple[Grid, ...]
    remarks: tuple[str, ...]

    @property
    def metric(self) -> Metric:
        """What validation chooses by."""
        return self.grids[0].training.metric


def read_over(words: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """NAME=VALUE,VALUE,... by name; numbers as numbers, whole ones with a point as fractions.

    >>> read_over(["lr=0.05,0.1", "fine_tuning_steps=5"])
    {'lr': (0.05, 0.1), 'fine_tuning_steps': (5,)}
    """
    values_by_name: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, _, values = word.partition("=")
        texts = [value.strip() for value in values.split(",")]
        rule = "of the form NAME=VALUE,VALUE"
        check.require(bool(name) and all(texts), _OWNER, "--over", rule, word)
        check.require(name not in values_by_name, _OWNER, "--over", "once for each name", name)
        values_by_name[name] = tuple(_value(text) for text in texts)
    both = all(name in values_by_name for name in RATE)
    check.require(not both, _OWNER, "--over", "of rate or of lr", RATE, "They are one.")
    return values_by_name


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def plan(config: Config, *, over: Values, given: Set[str] = frozenset()) -> SweepPlan:
    """Check everything before the sweep begins: data, options, every point of every method.

    On a table, what was not `given` is `fitted` to its rows, as in a run.
    """
    _check(config, over)
    config = _complete(config)
    drawn = {seed: federations.clients_of(config, seed=seed) for seed in config.all_seeds}
    config, said = fitted(config, drawn[config.seed], given)
    remarks = [*drawn[config.seed].remarks, *said]
    study = Study(config, Facts.of(drawn[config.seed]))
    Seeds(tuple(drawn), tuple(drawn.values()), study.cohort)  # refuses unequal ones
    scored = all(federation.valid.size.any() for federation in drawn.values())
    check.expect(scored, _OWNER, "the clients have no validation samples to select on.")
    for each in drawn.values():
        check_defined(_OWNER, study.metric, each)
    grids = tuple(_grid(study, name, over) for name in config.methods)
    if config.privacy.epsilon:
        remarks.append(
            "Noise is simulated, and the choice looks at scores without noise: nothing of this "
            "sweep is private."
        )
    remarks += [f"{name}: {method(name).remark}" for name in config.methods if method(name).remark]
    return SweepPlan(
        config=config, over=over, federations=drawn, grids=grids, remarks=tuple(remarks)
    )


def _check(config: Config, over: Values) -> None:
    if config.privacy.noise == "secure":
        raise check.PrivacyError(
            "sweep: privacy.noise must be 'simulated'. Every training of a sweep would add to what "
            "is spent, and the choice looks at scores that no noise covers."
        )
    if config.privacy.ledger:
        raise check.PrivacyError(
            "sweep: privacy.ledger must be empty. The trainings of a sweep are simulations, which "
            "no ledger records; train with the chosen values to charge it."
        )
    remedy = "A sweep keeps the memories of many trainings on the device."
    store = config.training.store
    check.require(store == "device", _OWNER, "training.store", "'device'", store, remedy)
    alone = "local-converged"
    rule, remedy = f"others than {alone}", "It tunes its number of steps itself: sweep local."
    check.require(alone not in config.methods, _OWNER, "methods", rule, alone, remedy)
    known = {option for name in config.methods for option in method(name).options()}
    for name in over:
        check.choice(_OWNER, "--over", name, sorted({*RATE, *known}))


def _complete(config: Config) -> Config:
    """Places from the root of the disk, and the content of files of one's own."""
    given = picked(config.data, *_PLACES)
    whole: dict[str, Any] = {
        name: standard_input.resolved(place) for name, place in given.items() if place
    }
    content = federations.fingerprint(config.data)
    return replace(config, data=replace(config.data, fingerprint=content, **whole))


def _grid(study: Study, name: str, over: Values) -> Grid:
    training = study.training(name)
    known = _known(training.method, over)
    seeds = [study.config.seed, study.config.seeds]
    identity = {**training.identity, "over": json.loads(json.dumps(known)), "seeds": seeds}
    schedule = identity["training"].items()
    identity["training"] = {key: value for key, value in schedule if key not in _WITHOUT_EFFECT}
    grid = Grid(study=study, training=training, over=known, identity=identity)
    families(grid.build, points(known))  # checks every point
    return grid


def _known(chosen: Method, over: Values) -> dict[str, tuple[Any, ...]]:
    """What the method has of it; it is not repeated for values that do not concern it."""
    names = list(chosen.options())
    if not set(rates(chosen, None)) <= set(over):  # some rate is left that one for all would set
        names += RATE
    return {name: values for name, values in over.items() if name in names}


def expanded(chosen: Method, point: Mapping[str, Any]) -> dict[str, Any]:
    """One rate as the rates of every model; those that have a value of their own keep it."""
    options: dict[str, Any] = {}
    for name in RATE:
        options |= rates(chosen, point[name]) if name in point else {}
    return options | {name: value for name, value in point.items() if name not in RATE}
