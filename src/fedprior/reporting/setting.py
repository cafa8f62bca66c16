"""From a configuration to what a simulation takes: federation, model, algorithm, cohort."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from glob import has_magic
from math import prod
from pathlib import Path
from typing import Any

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.identity import Identity
from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Channel, Cohort
from fedprior.data import datasets
from fedprior.data.encoder import Encoder
from fedprior.data.federation import Federation
from fedprior.data.scan import find_files
from fedprior.exchange.agreement import check_fits
from fedprior.learning.batches import Batches
from fedprior.learning.budget import Budget, rates
from fedprior.learning.catalog import method
from fedprior.learning.method import ChannelNoise, Method
from fedprior.learning.steps import Steps
from fedprior.models.lenet import lenet5
from fedprior.models.network import Network, linear, logistic, mlp
from fedprior.privacy import events
from fedprior.privacy.cohort import Everyone, FixedSize, Poisson
from fedprior.privacy.ledger import Terms, check_budget
from fedprior.privacy.plan import check_delta_below
from fedprior.privacy.planning import noise_multiplier
from fedprior.reporting.config import Config, Data, ModelChoice, Privacy, Training

_CONVERGED = 20  # most times the fair number of steps that local-converged takes
_PATIENCE = 3  # evaluations without a better validation score after which it stops


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One method's simulation: the algorithm, and how many rounds of which cohort."""

    algorithm: Algorithm
    cohort: Cohort
    rounds: int
    evaluate_every: int | None
    patience: int | None = None
    channel: Channel = field(default_factory=Identity)
    terms: Terms | None = None  # of the ledger, where the channel is private


def federation(
    data: Data, *, seed: int, privacy: Privacy | None = None
) -> tuple[Federation, Encoder | None, list[str]]:
    """The clients for one seed, the encoder of a table, and remarks on what was read.

    With `privacy`, what is learned from everybody's rows before the first round (the encoding of a
    table, the classes of a folder) must be given: no noise covers it.
    """
    private = privacy is not None and privacy.epsilon > 0
    if not data.path:
        check.require(not data.encoder, "data", "encoder", "none without a table", data.encoder)
        root = data.root or None
        options = {"seed": seed, **data.options}
        return datasets.load(data.name, root=root, **options), None, []
    path = Path(data.path)
    known = ("regression", "valid_share", "test_share", *["classes"] * path.is_dir())
    for option in data.options:
        check.choice("config data options", "key", option, known)
    if path.is_dir():
        check.require(not data.encoder, "data", "encoder", "none for a folder", data.encoder)
        if private:
            _check_target(data)
        from fedprior.data.folder import from_folder

        return from_folder(path, seed=seed, **data.options), None, []
    clients = _table(data, seed, private)
    secure = privacy is not None and privacy.noise == "secure"
    return clients, clients.encoder, [] if secure else list(clients.remarks)


def _table(data: Data, seed: int, private: bool) -> Federation:
    """A table's clients, with the encoder that was given or one of all training rows."""
    from fedprior.data.table import from_table

    encoder = read_encoder(data.encoder) if data.encoder else None
    if private and encoder is None:
        raise check.PrivacyError(
            f"data: encoder must be given for a private run on a table, got {data.encoder!r}. "
            "Fitted on everybody's rows it would tell of each client: write one from public rows "
            "with fedprior encoder, then --encoder FILE."
        )
    clients = from_table(
        data.path,
        client=_column(data, encoder, "client"),
        label=_column(data, encoder, "label"),
        features=data.features or None,
        exclude=data.exclude,
        missing=data.missing or None,
        encoder=encoder,
        seed=seed,
        **data.options,
    )
    if private and clients.counts["clients_without_label"]:
        raise check.PrivacyError(
            "data: every client must have a row with a label in a private run, got some without. "
            "Who takes part is public and must not depend on labels: leave such clients out."
        )
    return clients


def _column(data: Data, encoder: Encoder | None, name: str) -> Any:
    """The column that was named, or the encoder's."""
    given = getattr(data, name) or (getattr(encoder, name) if encoder else "")
    remedy = f"Say which column it is: --{name} COLUMN."
    check.require(bool(given), "data", name, "given for a table", given, remedy)
    return given


def _check_target(data: Data) -> None:
    """Whether labels are a quantity, and if not which classes there are, is public."""
    if data.options.get("regression") or data.options.get("classes"):
        return
    raise check.PrivacyError(
        "data: options.classes must be given for a private run on a folder, got none. Collected "
        "from everybody's labels they would tell of each client: name all that are possible, --set "
        """'data.options.classes=["no", "yes"]', or --set data.options.regression=true."""
    )


def read_encoder(path: str | Path) -> Encoder:
    """The encoder in a JSON file that `fedprior encoder` wrote."""
    file = Path(path)
    check.require(file.is_file(), "data", "encoder", "a file that exists", str(path))
    return Encoder.from_json(file.read_text())


def fingerprint(data: Data) -> str:
    """The content of a file of one's own, so that a resumed run reads the same one.

    It lets anybody who guesses the rows confirm the guess.
    """
    path = Path(data.path)
    if not data.path or not (path.exists() or has_magic(data.path)):
        return ""
    files = (
        sorted(path.glob("*.npz")) if path.is_dir() else [Path(n) for n in find_files(data.path)]
    )
    if data.encoder and Path(data.encoder).is_file():
        files.append(Path(data.encoder))
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def model(choice: ModelChoice, clients: Federation) -> Network:
    """The clients' model; `auto` is LeNet-5 on 28 x 28 images, else an mlp."""
    name, shape, classes = choice.name, clients.shape, clients.num_classes
    if name == "auto":
        name = "lenet5" if shape == (28, 28, 1) and classes else "mlp"
    if name in ("lenet5", "logistic") and classes is None:
        remedy = "Its target is a quantity: choose linear or mlp."
        raise ValueError(check.message("model", "name", "a regression model", name, remedy))
    if name == "lenet5":
        rule = "lenet5 only for 28 x 28 x 1 images"
        check.require(shape == (28, 28, 1), "model", "name", rule, shape)
        return lenet5(classes or 0)
    if name == "logistic":
        return logistic(prod(shape), classes or 0)
    if name == "linear":
        remedy = "Its target is a class: choose logistic or mlp."
        check.require(classes is None, "model", "name", "a classifier", name, remedy)
        return linear(prod(shape))
    return mlp(shape, classes or 1, hidden=choice.hidden, regression=classes is None)


def setting(config: Config, name: str, clients: Federation) -> Setting:
    """A method with the fair budget: each personal model gets the same number of gradient steps."""
    training, chosen = config.training, method(name)
    fair = budget(config, clients)
    cohort = fair.cohort
    network = model(config.model, clients)
    own = dict(config.options.get(name, {}))

    def build(options: dict[str, Any]) -> Algorithm:
        return fair.build(chosen, network, options, **rates_of(config, chosen))

    algorithm = build(own)
    private = bool(config.privacy.epsilon) and not chosen.alone
    if private:  # before the noise is searched for: whatever it will be
        any_noise = CentralGaussian(clip=config.privacy.clip, noise_multiplier=1.0)
        check_fits(algorithm, any_noise, "config privacy")
    if private and isinstance(cohort, FixedSize):
        cohort = replace(cohort, amplifies=algorithm.memoryless)
    noise = _noise(config.privacy, cohort, training.rounds, clients.num_clients) if private else 0.0
    if private:
        facts = ChannelNoise(noise, config.privacy.clip, fair.share, clients.num_clients)
        own = chosen.under_noise(network, own, facts)
        algorithm = build(own)
    every = training.evaluate_every or None
    if name == "local-converged":
        remedy = "It stops when validation scores stop rising."
        scored = bool(clients.valid.size.any())
        check.require(scored, name, "number of validation samples", "at least 1", 0, remedy)
        return Setting(
            algorithm=algorithm,
            cohort=Everyone(),
            rounds=fair.alone_rounds * _CONVERGED,
            evaluate_every=fair.alone_rounds,
            patience=_PATIENCE,
        )
    if chosen.alone:
        return Setting(
            algorithm=algorithm, cohort=Everyone(), rounds=fair.alone_rounds, evaluate_every=every
        )
    plain = Setting(
        algorithm=algorithm, cohort=cohort, rounds=training.rounds, evaluate_every=every
    )
    return _private(plain, config.privacy, noise, clients.num_clients) if private else plain


def budget(config: Config, clients: Federation) -> Budget:
    """What every method of the configuration is given."""
    training = config.training
    return Budget(
        rounds=training.rounds,
        cohort=_cohort(config, clients.num_clients),
        num_clients=clients.num_clients,
        steps=Steps(
            local_steps=training.local_steps,
            batches=_batches(training),
            decay=training.decay,
            steps_per_epoch=training.steps_per_epoch,
            weight_decay=training.weight_decay,
            clip=training.clip or None,
        ),
    )


def rates_of(config: Config, chosen: Method) -> dict[str, Any]:
    """The configured rates of a method's models."""
    training = config.training
    own = rates(chosen, training.theta_rate)
    return {**own, "theta_rate": training.theta_rate, "gamma_rate": training.gamma_rate}


def _noise(privacy: Privacy, cohort: Cohort, rounds: int, num_clients: int) -> float:
    """The noise multiplier that was given, or the least for the budget."""
    check_delta_below(privacy.delta, num_clients, allowed=privacy.allow_delta)
    if privacy.noise_multiplier:
        return privacy.noise_multiplier
    event = cohort.amplify(events.gaussian(1.0), num_clients)
    return _least_noise(event, privacy.epsilon, privacy.delta, rounds, privacy.relation)


@lru_cache
def _least_noise(
    event: events.Event, target: float, delta: float, rounds: int, relation: events.Relation
) -> float:
    return noise_multiplier(event, target=target, delta=delta, rounds=rounds, relation=relation)


def _private(plain: Setting, privacy: Privacy, noise: float, num_clients: int) -> Setting:
    """The method on the central Gaussian channel, with the terms of its ledger."""
    terms = Terms(
        delta=privacy.delta,
        relation=privacy.relation,
        view="central",
        noise=privacy.noise,
        budget=privacy.epsilon,
        allow_delta=privacy.allow_delta,
    )
    check_budget(plain.cohort.amplify(events.gaussian(noise), num_clients), terms)
    channel = CentralGaussian(clip=privacy.clip, noise_multiplier=noise, noise=privacy.noise)
    return replace(plain, channel=channel, terms=terms)


def _cohort(config: Config, num_clients: int) -> Cohort:
    """Who takes part; by default Poisson with privacy, where a fixed size proves less."""
    training = config.training
    kind = training.cohort
    if kind == "auto":
        kind = "poisson" if config.privacy.epsilon else "fixed"
    if kind == "everyone":
        return Everyone()
    rule = f"at most the number of clients ({num_clients})"
    size = training.cohort_size or max(1, round(num_clients / 3))
    check.require(size <= num_clients, "config training", "cohort_size", rule, size)
    if kind == "fixed":
        return FixedSize(size=size)
    return Poisson(rate=size / num_clients)


def _batches(training: Training) -> Batches:
    if training.batch_size:
        return Batches(size=training.batch_size)
    return Batches(steps_per_epoch=training.steps_per_epoch)
