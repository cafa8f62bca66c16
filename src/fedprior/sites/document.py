"""The agreement as a document: what a site reads and accepts before it joins, and nothing else.

From it both sides build the same `Agreement`. Its hash names the run: whoever wants another run on
the same sites needs another document, and every site has to accept that one as well.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import fedprior
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.core import check, formats
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import is_private
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.checkpoint import fingerprint
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import METHODS
from fedprior.privacy.participation import Participation
from fedprior.privacy.terms import Terms
from fedprior.reporting.config import Config
from fedprior.reporting.model_file import public_tables
from fedprior.reporting.tables import build
from fedprior.reporting.training import Study, Training

FORMAT = formats.NUMBERS["agreement"]
_OWNER = "agreement"


@dataclass(frozen=True, kw_only=True)
class Document:
    """All that a site agrees to: method, model, schedule, privacy, public facts, and the code.

    `config` are the tables that build the algorithm and its channel, `classes` and `encoder` say
    how rows become samples, `deadline` is the length of a round in seconds. `rehearsal` allows
    noise that is not valid for release. `code` is the hash of fedprior's own source.
    """

    method: str
    seed: int
    config: Mapping[str, Any]
    facts: Facts
    classes: tuple[str, ...] | None
    encoder: str | None
    deadline: float
    rehearsal: bool
    code: str
    run: str  # random: every document is of one run
    format: int = FORMAT

    def __post_init__(self) -> None:
        check.positive(_OWNER, deadline=self.deadline)
        check.choice(_OWNER, "method", self.method, METHODS)
        channel = self.training.channel
        if channel.private and channel.noise != "secure" and not self.rehearsal:
            raise PrivacyError(
                f"{_OWNER}: privacy.noise must be secure, got {channel.noise}. Simulated noise "
                "can be computed by anybody who knows the seed: it is for rehearsals."
            )
        if isinstance(channel, DistributedGaussian):
            _check_sum(channel)
        if self.config["privacy"]["score_epsilon"] and self.config["privacy"]["secure_sums"]:
            raise PrivacyError(
                f"{_OWNER}: release_scores must be false with secure sums: the server, which is "
                "not trusted with single messages, would see every score."
            )

    @classmethod
    def of(
        cls,
        config: Config,
        facts: Facts,
        *,
        classes: tuple[str, ...] | None,
        encoder: str | None = None,
        deadline: float = 600.0,
        rehearsal: bool = False,
    ) -> "Document":
        """A new document for the one method of a configuration that sends anything."""
        method = deployed_method(config)
        training = Study(config, facts).training(method)
        return cls(
            method=method,
            seed=config.seed,
            config=public_tables(config, training),
            facts=facts,
            classes=classes,
            encoder=encoder,
            deadline=float(deadline),
            rehearsal=rehearsal,
            code=code_hash(),
            run=secrets.token_hex(16),
        )

    @classmethod
    def from_json(cls, text: str | bytes, *, source: object = "the agreement") -> "Document":
        """The document that `to_json` wrote; raises ValueError for anything else."""
        try:
            given = json.loads(text)
            number = given.get("format", FORMAT)
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{_OWNER}: this is not an agreement of fedprior: {error}.") from None
        formats.check("agreement", number, source=source)
        try:
            known = {each.name for each in fields(cls)}
            if set(given) != known:
                raise ValueError(f"its entries must be {', '.join(sorted(known))}")
            given["facts"] = Facts.from_json(given["facts"])
            given["classes"] = None if given["classes"] is None else tuple(given["classes"])
            return cls(**given)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{_OWNER}: this is not an agreement of fedprior: {error}.") from None

    @classmethod
    def read(cls, path: Path) -> "Document":
        """The document in a file."""
        check.require(path.is_file(), _OWNER, "file", "a file that exists", str(path))
        return cls.from_json(path.read_bytes(), source=path)

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "facts": self.facts.as_json()}, indent=1, sort_keys=True)

    @cached_property
    def token(self) -> str:
        """The hash of the document, which names its run in files and messages."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @cached_property
    def _study(self) -> Study:
        return Study(build(Config, {**self.config, "seed": self.seed}, _OWNER), self.facts)

    @cached_property
    def training(self) -> Training:
        """The method as it is configured here."""
        return self._study.training(self.method)

    @cached_property
    def agreement(self) -> Agreement:
        """What the exchange runs on; `vet` has been called before the document was accepted."""
        training = self.training
        return Agreement(
            algorithm=training.algorithm,
            facts=self.facts,
            channel=training.channel,
            cohort=training.cohort,
            seed=self.seed,
            identity=fingerprint(training.identity),
            vetted=True,
        )

    def vet(self) -> None:
        """Raise unless code, network, channel and cohort are such as a site can run."""
        self.check_code()
        replace(self.agreement, vetted=False)

    def alone(self) -> tuple[Agreement, int]:
        """Local training with as many steps, for a site that wants to know what joining gained."""
        facts = replace(self.facts, most_samples=self.facts.most_samples or 1)
        training = self._study.training("local")
        return Agreement(algorithm=training.algorithm, facts=facts, seed=self.seed), training.rounds

    @property
    def model_facts(self) -> dict[str, Any]:
        """What the file of a model says of its run, as far as it was agreed on."""
        return {
            "method": self.method,
            "seed": self.seed,
            "num_clients": self.facts.num_clients,
            "shape": list(self.facts.shape),
            "classes": None if self.classes is None else list(self.classes),
            "config": dict(self.config),
            "encoder": self.encoder,
        }

    def turns(self, agreement: Agreement) -> Participation:
        """How often a client takes part at most, which it enforces itself."""
        return agreement.rule or Participation(rounds=self.training.rounds)

    def terms(self, agreement: Agreement) -> Terms | None:
        """Those of the server's ledger; None for a clear channel."""
        channel = agreement.channel
        if not is_private(channel):
            return None
        return self._study.config.privacy.terms(channel.view, channel.noise)

    def check_code(self) -> None:
        """Raise ValueError unless this machine runs the code that was agreed on."""
        if self.code != code_hash():
            raise ValueError(
                f"{_OWNER}: it is for another version of fedprior than {fedprior.__version__} as "
                "installed here. Install the version that the coordinator has."
            )


def _check_sum(channel: DistributedGaussian) -> None:
    """Raise unless masks can hide single messages in sums of this many clients.

    If half of the clients could unmask a sum, a server could open two sums of different clients.
    """
    fits = 2 <= channel.fewest <= channel.size < 256 and 2 * channel.fewest > channel.size
    if not fits:
        raise PrivacyError(
            f"{_OWNER}: a secure sum must be of 2 to 255 clients, more than half of its cohort, "
            f"got {channel.fewest} of {channel.size}. Change training.cohort_size or "
            "privacy.missing."
        )


def deployed_method(config: Config) -> str:
    """The one method of a configuration that sends anything."""
    sending = [name for name in config.methods if not METHODS[name].alone]
    rule = "one method that sends anything"
    remedy = 'Say which: methods = ["adamap"].'
    check.require(len(sending) == 1, "deploy", "methods", rule, list(config.methods), remedy)
    check.require(config.seeds == 1, "deploy", "seeds", "1", config.seeds)
    every = config.training.evaluate_every
    remedy = "Validation scores stay at the sites."
    check.require(not every, "deploy", "training.evaluate_every", "0", every, remedy)
    return sending[0]


@lru_cache
def code_hash() -> str:
    """A hash of the installed source of fedprior."""
    root = Path(fedprior.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]
