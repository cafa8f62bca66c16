"""One description of a training: a configuration and public facts of the clients, built once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.identity import Identity
from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.plain import picked
from fedprior.core.protocols import Channel, Cohort, is_private
from fedprior.core.scores import ACCURACY, Metric, target_of
from fedprior.core.scores import chosen as chosen_metric
from fedprior.exchange.facts import Facts
from fedprior.exchange.fits import check_fits
from fedprior.learning.adaptive_clip import adaptive_clip
from fedprior.learning.augmentation import check_images
from fedprior.learning.batches import Batches
from fedprior.learning.catalog import method
from fedprior.learning.cautious import cautious
from fedprior.learning.method import ChannelNoise, Method
from fedprior.learning.steps import Steps
from fedprior.models.images import cnn, resnet
from fedprior.models.lenet import lenet5
from fedprior.models.network import Network, linear, logistic, mlp
from fedprior.models.precision import in_precision
from fedprior.models.tabular import in_units
from fedprior.privacy.cohort import Cyclic, Everyone, FixedSize, Poisson
from fedprior.privacy.plans import verdict
from fedprior.privacy.terms import Terms, check_budget
from fedprior.reporting.config import Config, ModelChoice
from fedprior.reporting.noise import deviations, equivalent_noise, private_channel
from fedprior.reporting.tables import as_tables
from fedprior.reporting.veterans import Veterans

RATES = ("theta_rate", "gamma_rate", "fine_tuning_rate")  # of the models that a method trains
_CONVERGED = 20  # most times the fair number of steps that local-converged takes
_PATIENCE = 3  # evaluations without a better validation score after which it stops
_PLACES = ("root", "path", "encoder")  # where data are; of a user's own files the content counts
# On the bits of a training; how many devices there are, its checkpoints know.
_WITHOUT_EFFECT = ("checkpoint_every", "devices", "ledger", "key")


@dataclass(frozen=True, kw_only=True)
class Training:
    """One method's training: what `simulate` runs, and the terms of its ledger.

    `identity` is what decides its bits beside the seed, as JSON values: neither where data are, nor
    which other methods and seeds run beside it.
    """

    method: Method
    algorithm: Algorithm
    rounds: int
    cohort: Cohort
    identity: Mapping[str, Any]
    evaluate_every: int | None = None
    patience: int | None = None
    channel: Channel = field(default_factory=Identity)
    metric: Metric = ACCURACY
    terms: Terms | None = None  # where the channel is private
    noise: ChannelNoise | None = None  # of such a channel

    def check_affordable(self, num_clients: int) -> None:
        """Raise where the budget does not allow a single round."""
        if self.terms is not None and is_private(self.channel):
            event, count = self.channel.charge(self.cohort, num_clients, 1)
            check_budget(event, self.terms, count=count or 1)

    def verdict(self, num_parameters: int) -> str | None:
        """What noise leaves of messages of this length, from public facts; None without noise."""
        if self.noise is None:
            return None
        ratio, number = self.noise.to_signal(num_parameters), self.noise.num_clients
        said = verdict(ratio, num_parameters=num_parameters, num_clients=number)
        if self.method.personal:
            return (
                f"{said} Clients follow the shared model only as far as it stands out from noise."
            )
        return f"{said} The method has no other model than the shared one."

    @property
    def arguments(self) -> dict[str, Any]:
        """What `simulate` takes beside the algorithm, the clients and the seed."""
        names = ("rounds", "cohort", "channel", "evaluate_every", "patience")
        return picked(self, *names) | {"metric": self.metric.name}


@dataclass(frozen=True)
class Study:
    """Every method of a configuration on the same clients, at equal numbers of gradient steps.

    A method with cohorts gives a client rounds * K / m * local_steps steps in expectation; one that
    works alone takes as many, with everyone in every round, and so do fine-tuning and newcomers.
    """

    config: Config
    facts: Facts

    @cached_property
    def model(self) -> Network:
        """The clients' model, for inputs of their shape and in the units of a quantity."""
        choice = self.config.model
        chosen = in_precision(network(choice, self.facts), choice.precision)
        chosen = replace(chosen, shape=self.facts.shape)
        if (choice.center, choice.scale) == (0.0, 1.0):
            return chosen
        return in_units(chosen, center=choice.center, scale=choice.scale)

    @cached_property
    def metric(self) -> Metric:
        """What models are scored by."""
        target = target_of(self.facts.num_classes)
        return chosen_metric("config training", self.config.training.metric, target)

    @cached_property
    def steps(self) -> Steps:
        """The gradient steps of every method."""
        schedule = self.config.training
        augment = None if schedule.augment == "none" else schedule.augment
        check_images("config training", augment, self.facts.shape)
        return Steps(
            local_steps=schedule.local_steps,
            batches=Batches(
                size=schedule.batch_size or None,
                steps_per_epoch=None if schedule.batch_size else schedule.steps_per_epoch,
                augment=augment,
            ),
            decay=schedule.decay,
            steps_per_epoch=schedule.steps_per_epoch,
            weight_decay=schedule.weight_decay,
            clip=schedule.clip or None,
        )

    @cached_property
    def veterans(self) -> int:
        """How many clients, the first ones, may take part in a round."""
        number = self.facts.num_clients - self.config.training.newcomers
        rule = f"below the number of clients ({self.facts.num_clients})"
        given = self.config.training.newcomers
        check.require(number > 0, "config training", "newcomers", rule, given)
        return number

    @cached_property
    def cohort(self) -> Cohort:
        """Who takes part in a round; by default Poisson with privacy: a fixed size proves less.

        With the matrix mechanism, clients take turns: the further apart, the less noise. Secure
        sums need a known number of clients.
        """
        schedule, number, privacy = self.config.training, self.veterans, self.config.privacy
        kind: str = schedule.cohort
        if kind == "auto":
            private = "cyclic" if privacy.mechanism == "matrix" else "poisson"
            sampled = "poisson" if schedule.sampling_rate else "fixed"
            kind = private if privacy.epsilon and not privacy.secure_sums else sampled
        if kind == "everyone":
            return Everyone()
        size = schedule.cohort_size or max(1, round(number / 3))
        rule = f"at most the number of clients ({number})"
        check.require(size <= number, "config training", "cohort_size", rule, size)
        if kind == "cyclic":
            parts = schedule.parts or number // size
            return Cyclic(parts=parts, rate=schedule.sampling_rate or 1.0)
        if kind == "fixed":
            return FixedSize(size=size)
        return Poisson(rate=schedule.sampling_rate or size / number)

    @property
    def share(self) -> float:
        """Expected share of the clients in a round."""
        return self.cohort.expected_size(self.veterans) / self.veterans

    @property
    def alone_rounds(self) -> int:
        """Rounds with everyone that give a client as many steps as the cohorts do (expected)."""
        return max(1, round(self.config.training.rounds * self.share))

    @property
    def personal_steps(self) -> int:
        """Gradient steps of a personal model (expected)."""
        return self.alone_rounds * self.steps.local_steps

    def options(self, name: str) -> dict[str, Any]:
        """The options that the configuration sets for a method."""
        return dict(self.config.options.get(name, {}))

    def training(
        self, name: str, options: Mapping[str, Any] | None = None, *, rate: Any = None
    ) -> Training:
        """The training of one method, with more `options` than the configuration has.

        `rate` replaces the configured rates of all models, but for those among its options.
        """
        chosen, own = method(name), {**self.options(name), **(options or {})}
        schedule, privacy = self.config.training, self.config.privacy
        algorithm = self._build(chosen, own, rate)
        plain = Training(
            method=chosen,
            algorithm=algorithm,
            rounds=self.alone_rounds if chosen.alone else schedule.rounds,
            cohort=Everyone() if chosen.alone else self.cohort,
            identity=self._identity(chosen, own, rate),
            evaluate_every=schedule.evaluate_every or None,
            metric=self.metric,
        )
        if name == "local-converged":
            plain = replace(
                plain,
                rounds=plain.rounds * _CONVERGED,
                evaluate_every=plain.rounds,
                patience=_PATIENCE,
            )
        if plain.rounds * self.steps.local_steps >= 2**31:
            raise ValueError(
                f"config training: {plain.rounds} rounds of {self.steps.local_steps} local steps "
                "are more than 2**31 steps, the most that the clock of the rates can count."
            )
        if privacy.epsilon and not chosen.alone:
            plain = self._private(plain, own, rate)
        if schedule.newcomers and not chosen.alone:
            return replace(plain, cohort=Veterans(plain.cohort, schedule.newcomers))
        return plain

    def _build(self, chosen: Method, options: Mapping[str, Any], rate: Any) -> Algorithm:
        schedule = self.config.training
        theta, gamma = (schedule.theta_rate, schedule.gamma_rate) if rate is None else (rate, rate)
        shared: dict[str, Any] = dict(zip(RATES, (theta, gamma, theta), strict=True))
        for tuned in ("newcomer_steps", "fine_tuning_steps"):
            shared[tuned] = self.personal_steps
        return chosen.build(self.model, options, steps=self.steps, **shared)

    def _private(self, plain: Training, options: Mapping[str, Any], rate: Any) -> Training:
        """The method on its private channel, adapted to the noise."""
        privacy, number = self.config.privacy, self.veterans
        # Before the noise is searched for: whatever it will be.
        any_noise = CentralGaussian(clip=privacy.clip, noise_multiplier=1.0)
        facts = ChannelNoise(1.0, privacy.clip, self.share, number, plain.rounds)
        adapted = plain.method.under_noise(self.model, options, facts)
        check_fits(self._build(plain.method, adapted, rate), any_noise, "config privacy")
        cohort = plain.cohort
        if isinstance(cohort, FixedSize):
            # A mean score that is released tells of models that clients keep, and so of who took
            # part in earlier rounds, even where no message does. Masks show who takes part.
            shown = bool(privacy.score_epsilon) or privacy.secure_sums
            cohort = replace(cohort, amplifies=plain.algorithm.memoryless and not shown)
        channel = private_channel(privacy, cohort, rounds=plain.rounds, num_clients=number)
        facts = facts._replace(noise_multiplier=equivalent_noise(channel, privacy))
        own = plain.method.under_noise(self.model, options, facts)
        algorithm = self._build(plain.method, own, rate)
        if privacy.adaptive_clip:
            followed = {"quantile": privacy.adaptive_clip, "initial": privacy.clip}
            algorithm = adaptive_clip(algorithm, **followed)
        if plain.method.personal:
            options_alone = self.options("local")
            if "newcomer_steps" in own:  # as many steps as the method takes
                options_alone["newcomer_steps"] = own["newcomer_steps"]
            alone = self._build(method("local"), options_alone, rate)
            algorithm = cautious(algorithm, alone, deviation=deviations(channel))
        return replace(
            plain,
            algorithm=algorithm,
            cohort=cohort,
            channel=channel,
            terms=privacy.terms(channel.view, privacy.noise),
            noise=facts,
        )

    def _identity(self, chosen: Method, options: Mapping[str, Any], rate: Any) -> dict[str, Any]:
        tables = as_tables(self.config)
        schedule, privacy = tables["training"].items(), tables["privacy"].items()
        parts = {
            "method": chosen.name,
            "data": {key: value for key, value in tables["data"].items() if key not in _PLACES},
            "model": tables["model"],
            "training": {key: value for key, value in schedule if key not in _WITHOUT_EFFECT},
            "options": options,
            "rate": rate,
            "privacy": {key: value for key, value in privacy if key not in _WITHOUT_EFFECT}
            if self.config.privacy.epsilon
            else None,
        }
        identity: dict[str, Any] = json.loads(json.dumps(parts, default=str))  # as read from a file
        return identity


def rates(chosen: Method, rate: Any) -> dict[str, Any]:
    """One rate for every model that the method trains."""
    return {name: rate for name in RATES if name in chosen.options()}


def network(choice: ModelChoice, facts: Facts) -> Network:
    """The clients' model; `auto` is LeNet-5 on 28 x 28 images, cnn on others, else an mlp."""
    name, shape, classes = str(choice.name), facts.shape, facts.num_classes
    if name == "auto":
        name = _by_shape(shape) if classes else "mlp"
    if name in ("lenet5", "logistic", "cnn", "resnet") and classes is None:
        remedy = "The target is a quantity: choose linear or mlp."
        raise ValueError(check.message("model", "name", "a regression model", name, remedy))
    if name == "lenet5":
        rule = "lenet5 only for 28 x 28 x 1 images"
        check.require(shape == (28, 28, 1), "model", "name", rule, shape)
        return lenet5(classes or 0)
    if name == "cnn":
        return cnn(shape, classes or 0)
    if name == "resnet":
        return resnet(shape, classes or 0, depth=choice.depth)
    if name == "logistic":
        return logistic(prod(shape), classes or 0)
    if name == "linear":
        remedy = "The target is a class: choose logistic or mlp."
        check.require(classes is None, "model", "name", "a classifier", name, remedy)
        return linear(prod(shape))
    return mlp(shape, classes or 1, hidden=choice.hidden, regression=classes is None)


def _by_shape(shape: tuple[int, ...]) -> str:
    """The classifier for inputs of this shape; the CNN's dense layer bounds the sides."""
    if shape == (28, 28, 1):
        return "lenet5"
    is_image = len(shape) == 3 and shape[-1] in (1, 3)
    return "cnn" if is_image and all(16 <= side <= 64 for side in shape[:2]) else "mlp"
