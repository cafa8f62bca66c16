"""The mean test score of a private run, released under an epsilon of its own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import random
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import is_private
from fedprior.core.scores import ACCURACY
from fedprior.data.federation import Federation
from fedprior.engines import source as sources
from fedprior.engines.result import Result
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.checkpoint import fingerprint
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Relation
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.scores import MeanScore
from fedprior.privacy.terms import Terms
from fedprior.reporting.config import Config, Privacy
from fedprior.reporting.training import Training


def mechanism(privacy: Privacy, ledger: Ledger | None = None) -> MeanScore:
    """The release that the configuration asks for, at its epsilon on every ledger that it charges.

    A population's ledger has a relation of its own; noise for replace-one serves both.
    """
    others = [each for each in (ledger, ledger and ledger.within) if each is not None]
    relations = {privacy.relation, *(each.terms.relation for each in others)}
    relation: Relation = "replace-one" if "replace-one" in relations else "add-remove"
    return MeanScore(epsilon=privacy.score_epsilon, relation=relation, noise=privacy.noise)


def terms(training: Training, privacy: Privacy) -> Terms:
    """Those of the training's ledger with a budget that has room for the scores as well.

    A method that works alone sends nothing, and its scores are all that it may spend.
    """
    if training.terms is not None:
        budget = (training.terms.budget or 0.0) + privacy.score_epsilon
        return replace(training.terms, budget=budget)
    return privacy.terms("central", privacy.noise, budget=privacy.score_epsilon)


def check_release(training: Training, config: Config, clients: Federation) -> None:
    """Raise what would keep the scores of a training from being released in the end."""
    if not config.privacy.score_epsilon:
        return
    name, owner = training.method.name, "config privacy"
    if clients.classes is None:
        raise PrivacyError(
            f"{owner}: release_scores must be false for a quantity: its scores have no bound that "
            "noise could be scaled to."
        )
    if training.metric != ACCURACY:
        raise PrivacyError(
            f"{owner}: release_scores must be false with training.metric={training.metric.name}: "
            "noise is scaled to a mean accuracy. Leave the metric out."
        )
    if training.patience:
        raise PrivacyError(
            f"{owner}: release_scores must be false for {name}: when it stops depends on the "
            "scores of everybody."
        )
    if not config.training.batch_size and clients.most_samples is None:
        raise PrivacyError(
            f"{owner}: release_scores needs data.most_samples with training.batch_size=0, got "
            "none. It is a public bound on the training samples of one client."
        )
    if not clients.test.size.any():
        raise ValueError(f"{owner}: release_scores must be false without test samples.")
    if is_private(training.channel):
        event, count = training.channel.charge(training.cohort, clients.num_clients, 1)
        spent = [(event, count or 1), (mechanism(config.privacy).event, 1)]
        epsilon(spent, delta=config.privacy.delta, relation=config.privacy.relation)


def release(result: Result, privacy: Privacy, ledger: Ledger, folder: Path) -> dict[str, Any]:
    """Charge the ledger, then draw the mean score; its value is None where the budget ends.

    `folder` is the checkpoint folder of the training. With simulated noise, the same release is
    repeated when a run is resumed; with secure noise, each one is charged.
    """
    federation, agreement = result.federation, result.agreement
    parts = ["score", sources.token(folder / "token", resume=True), agreement.fingerprint]
    if privacy.noise == "simulated":
        parts.append(sources.content(federation.train, federation.test))
    return charged_mean(
        agreement, privacy, ledger, source=fingerprint(parts), scores=result.own_scores
    )


def charged_mean(
    agreement: Agreement,
    privacy: Privacy,
    ledger: Ledger,
    *,
    source: str,
    scores: Callable[[], np.ndarray],
) -> dict[str, Any]:
    """Charge the ledger for `source`, and only then compute the scores and draw their mean."""
    mean, stream = mechanism(privacy, ledger), agreement.stream_id
    simulated = privacy.noise == "simulated"
    granted = ledger.reserve(
        mean.event,
        first=0,
        rounds=1,
        source=source,
        draws=f"{stream}-{agreement.seed}-score" if simulated else None,
    )
    value = None
    if granted:
        key = random.stream(agreement.seed, "score", int(stream, 16)) if simulated else None
        value = mean.release(scores(), key)
        ledger.commit()
    return {
        "mean": value,
        "standard_error": mean.standard_error(agreement.num_clients),
        "epsilon": privacy.score_epsilon,
        "relation": mean.relation,
        "noise": privacy.noise,
    }


def sentence(row: dict[str, Any]) -> str:
    """A released score in words."""
    whose = f"{row['method']}, seed {row['seed']}"
    if row["mean"] is None:
        return f"{whose}: the budget leaves nothing for the mean score, which is not released."
    return (
        f"{whose}: the mean test accuracy is {100 * row['mean']:.1f}% with noise of standard error "
        f"{100 * row['standard_error']:.1f} points, released at an epsilon of "
        f"{row['epsilon']:g} of its own."
    )
