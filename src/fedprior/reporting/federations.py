"""The clients of a configuration: a dataset by name, a table, or a folder of arrays."""

import hashlib
from dataclasses import replace
from glob import has_magic
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.data import datasets
from fedprior.data.encoder import Encoder
from fedprior.data.federation import Federation
from fedprior.data.scan import find_files
from fedprior.data.standard_input import is_standard_input
from fedprior.exchange.facts import check_public
from fedprior.reporting.config import Config, Data, Privacy


def federation(data: Data, *, seed: int, privacy: Privacy | None = None) -> Federation:
    """The clients of a configuration for one seed.

    With `privacy`, what is learned from everybody's rows before the first round (the encoding of a
    table, the classes of a folder) must be given: no noise covers it. With secure noise the
    federation carries no remarks, since they describe those rows.
    """
    private = privacy is not None and privacy.epsilon > 0
    clients = _read(data, seed, private)
    if private:
        check_public(clients)
    if data.most_samples:
        clients = replace(clients, most_samples=data.most_samples)
    secure = privacy is not None and privacy.noise == "secure"
    return replace(clients, remarks=()) if secure and data.path else clients


def clients_of(config: Config, *, seed: int | None = None) -> Federation:
    """The clients of a run, for its first seed unless another is given."""
    return federation(
        config.data, seed=config.seed if seed is None else seed, privacy=config.privacy
    )


def _read(data: Data, seed: int, private: bool) -> Federation:
    """The clients, from where the configuration says."""
    if not data.path:
        check.require(not data.encoder, "data", "encoder", "none without a table", data.encoder)
        root = data.root or None
        options = {"seed": seed, **data.options}
        return datasets.load_dataset(data.name, root=root, **options)
    path = Path(data.path)
    known = ("regression", "valid_share", "test_share", *["classes"] * path.is_dir())
    for option in data.options:
        check.choice("config data options", "key", option, known)
    if path.is_dir():
        check.require(not data.encoder, "data", "encoder", "none for a folder", data.encoder)
        if private:
            _check_target(data)  # before files are read
        from fedprior.data.folder import from_folder

        return from_folder(path, seed=seed, **data.options)
    return _table(data, seed, private)


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
    return from_table(
        data.path,
        client=_column(data, encoder, "client"),
        label=_column(data, encoder, "label"),
        features=data.features or None,
        exclude=data.exclude,
        missing=data.missing or None,
        encoder=encoder,
        bins=data.bins,
        most_inputs=data.most_inputs,
        seed=seed,
        **data.options,
    )


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
        "data: a private run on a folder needs options.classes. Classes collected from all labels "
        "would reveal information about each client: name all possible ones, --set "
        """'data.options.classes=["no", "yes"]', or use --set data.options.regression=true."""
    )


def read_encoder(path: str | Path) -> Encoder:
    """The encoder in a JSON file that `fedprior encoder` wrote."""
    file = Path(path)
    check.require(file.is_file(), "data", "encoder", "a file that exists", str(path))
    try:
        return Encoder.from_json(file.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def fingerprint(data: Data) -> str:
    """The content of a file of one's own, so that a resumed run reads the same one.

    It lets anybody who guesses the rows confirm the guess.
    """
    path = Path(data.path)
    there = is_standard_input(path) or path.exists() or has_magic(data.path)
    if not data.path or not there:
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
