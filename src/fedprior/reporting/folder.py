"""Where a run lies on disk."""

from dataclasses import dataclass, replace
from pathlib import Path

import tomli_w

from fedprior.core import check, formats, lock
from fedprior.core.files import (
    TEMPORARY,
    make_folder,
    may_be_folder,
    read_sealed,
    seal,
    write_atomically,
)
from fedprior.data import standard_input
from fedprior.exchange import checkpoint
from fedprior.reporting import federations
from fedprior.reporting.config import Config, file_tables, read
from fedprior.reporting.tables import as_tables


def inside(name: str) -> property:
    """The file of this name in the folder `path` of an object."""
    return property(lambda self: self.path / name)


@dataclass(frozen=True)
class Folder:
    """config.toml, metrics.jsonl, clients.parquet, summary.json, privacy/, checkpoint/, model/.

    evaluation.json and progress.jsonl are what `record` notes, for the run's page; choice.json has
    the models and rates that `settle` tried on validation rows.
    privacy/METHOD-seed-S/ledger.jsonl is what was spent; checkpoint/METHOD/seed-S/ holds models and
    scores of single clients, which no noise covers, and so does clients/ in model/METHOD/seed-S/.
    """

    path: Path

    config = inside("config.toml")
    metrics = inside("metrics.jsonl")
    clients = inside("clients.parquet")
    summary = inside("summary.json")
    evaluation = inside("evaluation.json")
    progress = inside("progress.jsonl")
    choice = inside("choice.json")

    def part(self, method: str, seed: int) -> Path:
        """The checkpoint folder of one method and seed."""
        return self.path / "checkpoint" / method / f"seed-{seed}"

    def model(self, method: str, seed: int) -> Path:
        """The model that stands alone; the clients' own are in `clients/` beside it."""
        return self.path / "model" / method / f"seed-{seed}" / "model.safetensors"

    def ledger(self, method: str, seed: int) -> Path:
        """What a private method has spent."""
        return self.path / "privacy" / f"{method}-seed-{seed}" / "ledger.jsonl"

    @property
    def purpose(self) -> str:
        """What the run's ledgers are for: its configuration, as it began."""
        return checkpoint.fingerprint(read_sealed(self.config))

    @property
    def fingerprint(self) -> Path:
        """Of the data of a run with secure noise: with the models, not in what may be shown."""
        return self.path / "checkpoint" / "fingerprint"

    def scores(self, method: str, seed: int) -> Path:
        """The scores of a method and seed that are finished."""
        return self.part(method, seed) / "scores.safetensors"

    def check_free(self) -> None:
        """A place that holds anything is refused, but for what a run left that never began."""
        free = may_be_folder(self.path)
        if self.path.is_dir():
            remains = {self.path / lock.NAME, self.fingerprint.parent, self.fingerprint}
            inside = self.path.rglob("*")
            free = all(path in remains or path.match(TEMPORARY) for path in inside)
        if not free:
            remedy = "Choose another folder, or continue the run there with --resume."
            rule = "a new or empty folder"
            raise ValueError(check.message("train", "--out", rule, str(self.path), remedy))

    def create(self, config: Config) -> Config:
        """A new folder with its complete configuration."""
        self.check_free()
        if config.data.root:
            root = str(Path(config.data.root).resolve())
            config = replace(config, data=replace(config.data, root=root))
        secure, fingerprint = config.privacy.noise == "secure", federations.fingerprint(config.data)
        if config.data.path:
            path = standard_input.resolved(config.data.path)
            encoder = config.data.encoder and str(Path(config.data.encoder).resolve())
            shown = "" if secure else fingerprint
            data = replace(config.data, path=path, encoder=encoder, fingerprint=shown)
            config = replace(config, data=data)
        ledger, key = (
            place and str(Path(place).resolve())
            for place in (config.privacy.ledger, config.privacy.key)
        )
        config = replace(config, privacy=replace(config.privacy, ledger=ledger, key=key))
        make_folder(self.path)
        if secure:
            make_folder(self.fingerprint.parent)
            write_atomically(self.fingerprint, seal(fingerprint).encode())
        write_atomically(self.config, seal(tomli_w.dumps(as_tables(config))).encode())
        return config

    def check_format(self, kind: str) -> None:
        """Raise if another version of fedprior, with another format, began what is here."""
        read_sealed(self.config)  # checked; its last line is a comment
        formats.check(kind, file_tables(self.config).get("format"), source=self.path)

    def read(self) -> Config:
        """The configuration of a run that was begun here."""
        if not self.config.exists():
            reason = "contains no config.toml" if self.path.is_dir() else "does not exist"
            raise ValueError(f"run: {self.path} is not the folder of a run: it {reason}.")
        if any(self.path.glob("checkpoint/*/sweep.*")):
            raise ValueError(
                f"run: {self.path} is the folder of a sweep, not of a run. "
                "Train with the chosen values: fedprior train --out."
            )
        self.check_format("run")
        config = read(self.config)
        for path in sorted(self.path.glob("checkpoint/*/*/ledger.jsonl")):
            raise check.PrivacyError(
                f"run: ledgers must be in privacy/, got {path} of an earlier version of fedprior. "
                "Continue with that version, or start a new run; what was spent still counts."
            )
        return config

    def open(self) -> Config:
        """The configuration of a run that was begun here and whose data have not changed."""
        config = self.read()
        if (self.path / "agreement.json").is_file():
            raise ValueError(
                f"run: {self.path} is the run of a deployment. Continue it with flwr run, and "
                "run-folder set to it."
            )
        noted, current = config.data.fingerprint, federations.fingerprint(config.data)
        if config.privacy.noise == "secure":
            sentence = f"{self.path} has no checkpoint/, which stays with the owner of the data."
            check.expect(self.fingerprint.is_file(), "run", sentence)
            noted = read_sealed(self.fingerprint).strip()
        if noted != current:
            reason = "has changed since the run started" if current else "does not exist"
            data = standard_input.shown(config.data.path)
            raise ValueError(f"run: the data of the run, {data}, {reason}.")
        return config
