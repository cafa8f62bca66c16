"""The ledgers of a run: one for each method and seed, within that of the population."""

from pathlib import Path

from fedprior.core.check import PrivacyError
from fedprior.core.protocols import is_private
from fedprior.privacy.guarantee import shown
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.terms import Terms
from fedprior.reporting import population
from fedprior.reporting.config import Privacy
from fedprior.reporting.folder import Folder
from fedprior.reporting.training import Training


def open_ledger(
    what: str,
    folder: Folder,
    method: str,
    seed: int,
    terms: Terms,
    privacy: Privacy,
    *,
    num_clients: int,
) -> Ledger:
    """The ledger of a run's method and seed, within the population's where there is one."""
    who = population.label(f"{what} {method}", f"seed {seed}", folder.path.name)
    return Ledger(
        folder.ledger(method, seed),
        terms,
        who=who,
        num_clients=num_clients,
        purpose=folder.purpose,
        within=charged(privacy, terms, who=who, num_clients=num_clients),
    )


def places(privacy: Privacy) -> tuple[Path, Path | None]:
    """The population's ledger and its key, as the configuration names them."""
    return Path(privacy.ledger), Path(privacy.key) if privacy.key else None


def charged(privacy: Privacy, terms: Terms, *, who: str, num_clients: int) -> Ledger | None:
    """The population's ledger that the configuration names, to be charged, or None."""
    if not privacy.ledger:
        return None
    path, key = places(privacy)
    if path.is_file() and not read(path, key)[1][0]["shared"]:
        raise PrivacyError(
            f"ledger: --ledger must be the ledger of a population, got {path}. Make one with "
            "fedprior privacy ledger init FILE --epsilon E --delta D."
        )
    return population.opened(path, terms, who=who, num_clients=num_clients, key=key)


def room(training: Training, privacy: Privacy, num_clients: int) -> list[str]:
    """What the population's budget leaves for a training; raises where it is not even a round."""
    if training.terms is None or not is_private(training.channel):
        return []
    ledger = charged(privacy, training.terms, who="", num_clients=num_clients)
    if ledger is None:
        return []
    event, count = training.channel.charge(training.cohort, num_clients, 1)
    rounds = ledger.affords(event, training.rounds, count=count)
    name = training.method.name
    if not rounds:
        raise PrivacyError(
            f"ledger: the budget of {ledger.path} does not cover one round of {name} "
            f"({shown(ledger.spent, digits=4)} of {ledger.terms.budget:g} are spent). Nothing was "
            "charged."
        )
    if rounds < training.rounds:
        relation = f", under {ledger.terms.relation} at delta {ledger.terms.delta:g}"
        return [f"{name}: {ledger.path} covers {rounds} of {training.rounds} rounds{relation}."]
    return []
