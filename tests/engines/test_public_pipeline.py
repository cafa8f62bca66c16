"""A private run begins with what is public: the engines refuse what was fitted to clients' rows."""

from dataclasses import replace

import numpy as np
import pytest

import fedprior
from fedprior import channels
from fedprior.core.check import PrivacyError
from fedprior.data.encoder import Encoder
from fedprior.data.folder import from_folder
from fedprior.data.table import fit_encoder, from_table
from fedprior.engines.grid import Family
from fedprior.engines.run import Run
from fedprior.engines.seeds import Seeds
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts

COLUMNS = {
    "shop": np.array(["a", "a", "b", "b", "c", "c"]),
    "size": np.arange(6.0),
    "bought": np.array(["yes", "no"] * 3),
}
PUBLIC = {"size": np.array([0.0, 9.0]), "bought": np.array(["no", "yes"])}
NAMES = {"client": "shop", "label": "bought"}
CENTRAL = channels.CentralGaussian(clip=1.0, noise_multiplier=1.0)
LOCAL = channels.LocalGaussian(clip=1.0, scale=1.0)
X, Y, OWN = np.ones((4, 1)), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])


def saved(encoder):
    return Encoder.from_json(encoder.to_json())


def of_private_rows():
    return from_table(COLUMNS, **NAMES)


def folder(path):
    for name in "ab":
        np.savez(path / f"{name}.npz", x=np.ones((4, 1)), y=np.arange(4) % 2)
    return path


def unsound(tmp_path):
    """Federations that were read by learning from their own rows."""
    private = of_private_rows()
    without = COLUMNS | {"bought": np.ma.masked_equal(["yes", "no", "yes", "no", "", ""], "")}
    public = fit_encoder(PUBLIC, **NAMES)
    return {
        "its own encoder": private,
        "the encoder of its rows, given": from_table(COLUMNS, **NAMES, encoder=private.encoder),
        "from a file": from_table(COLUMNS, **NAMES, encoder=saved(private.encoder)),
        "by hand": replace(private, fitted=()),
        "who has labels": from_table(without, **NAMES, encoder=public),
        "classes of a folder": from_folder(folder(tmp_path)),
        "classes of arrays": fedprior.Federation.from_arrays(X, Y, OWN),
    }


def sound(tmp_path):
    public = fit_encoder(PUBLIC, **NAMES)
    return {
        "a public encoder": from_table(COLUMNS, **NAMES, encoder=public),
        "from a file": from_table(COLUMNS, **NAMES, encoder=saved(public)),
        "a folder": from_folder(folder(tmp_path), classes=["0", "1"]),
        "a quantity": from_folder(tmp_path, regression=True),
        "arrays": fedprior.Federation.from_arrays(X, Y, OWN, classes=["0", "1"]),
    }


def algorithm_for(federation):
    shape = federation.shape[0]
    model = fedprior.models.linear(shape)
    if federation.classes is not None:
        model = fedprior.models.logistic(shape, len(federation.classes))
    return fedprior.learning.fedavg(model)


@pytest.mark.parametrize("channel", [CENTRAL, LOCAL, replace(CENTRAL, noise="secure")])
def test_private_runs_refuse_what_was_fitted_to_private_rows(tmp_path, channel):
    for federation in unsound(tmp_path).values():
        algorithm = algorithm_for(federation)
        for engine in (fedprior.simulate, fedprior.debug):
            with pytest.raises(PrivacyError, match=r"must begin with what is public"):
                engine(algorithm, federation, rounds=1, channel=channel)
        stated = Agreement(
            algorithm=algorithm,
            facts=replace(Facts.of(federation), most_samples=None),
            channel=channel,
        )
        with pytest.raises(PrivacyError, match=r"must begin with what is public"):
            Run(agreement=stated, federation=federation, rounds=1)


def test_sweeps_refuse_it_too():
    federation = of_private_rows()
    family = Family(lambda: algorithm_for(federation), ())
    seeds = Seeds((0,), (federation,), fedprior.Everyone(), CENTRAL)
    with pytest.raises(PrivacyError, match=r"fitted to the clients' own rows.*the encoder"):
        seeds.agreement(family, {}, 0)


def test_private_runs_take_what_is_public(tmp_path):
    for federation in sound(tmp_path).values():
        agreement = Agreement.of(algorithm_for(federation), federation, channel=CENTRAL)
        Run(agreement=agreement, federation=federation, rounds=1)


def test_clear_runs_take_both(tmp_path):
    for federation in (unsound(tmp_path) | sound(tmp_path)).values():
        agreement = Agreement.of(algorithm_for(federation), federation)
        Run(agreement=agreement, federation=federation, rounds=1)


def test_an_encoder_that_does_not_say_is_not_taken_for_public():
    text = fit_encoder(PUBLIC, **NAMES).to_json().replace('"rows": "public", ', "")
    assert Encoder.from_json(text).rows == "private"
    with pytest.raises(ValueError, match=r"rows must be one of public, private, got 'mine'"):
        replace(fit_encoder(PUBLIC, **NAMES), rows="mine")
