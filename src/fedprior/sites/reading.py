"""A site's own rows as samples, in the shape that its app asks for."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.data.federation import Federation
from fedprior.data.partition import split_rows
from fedprior.data.standard_input import is_standard_input, shown
from fedprior.reporting import federations
from fedprior.reporting.config import Config

ENCODER = "encoder.json"  # in an app, where its sites have tables
SITES = "sites"  # the name of data that are at the sites alone
_SHARES = {"valid_share": 0.15, "test_share": 0.25}


def read_clients(app: Path, config: Config, data: Path, *, name: str | None = None) -> Federation:
    """The clients in a site's table or folder; with `name`, all rows are that one client's.

    Columns, classes and words for missing are those of the app's public encoder: a table that does
    not have them is refused.
    """
    there = data.exists() or is_standard_input(data)
    check.require(there, "site", "--data", "a file or folder that exists", str(data))
    encoder = app / ENCODER
    if not data.is_dir() and not encoder.is_file():
        raise ValueError(
            f"site: {app} has no {ENCODER}, which says how columns become inputs. The coordinator "
            "makes it from public rows with fedprior encoder, and names it in data.encoder."
        )
    if name is None or data.is_dir():
        sentence = "--name is for one table. In a folder, the files name the clients."
        check.expect(name is None, "site", sentence)
        given = str(encoder) if encoder.is_file() and not data.is_dir() else ""
        own = replace(config.data, path=str(data), encoder=given)
        clients = federations.clients_of(replace(config, data=own))
    else:
        clients = _one_client(encoder, config, data, name)
    most = config.data.most_samples
    if config.privacy.epsilon and clients.fitted:
        raise PrivacyError(f"site: {'; '.join(clients.fitted)}.")
    return replace(clients, most_samples=most or None)


def _one_client(encoder: Path, config: Config, data: Path, name: str) -> Federation:
    """A table without a column for clients."""
    from fedprior.data.table import encode_rows

    known = federations.read_encoder(encoder)
    x, y, _ = encode_rows(known, data, named=False)
    sentence = f"{shown(data)} has no column {known.label!r}, which is to be predicted."
    if y is None:
        raise ValueError(f"site: {sentence}")
    labeled = np.flatnonzero(~np.isnan(y) if y.dtype.kind == "f" else y >= 0)
    check.require(len(labeled) > 0, "site", "number of rows with a label", "at least 1", 0)
    shares = {each: config.data.options.get(each, _SHARES[each]) for each in _SHARES}
    parts = split_rows(labeled, *shares.values(), seed=config.seed, client=0)
    return Federation.gather(
        x, y, [parts], clients=np.array([name]), classes=known.classes, name=name, encoder=known
    )
