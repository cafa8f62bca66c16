"""A private run learns nothing from everybody's rows before its first round."""

from dataclasses import replace

import numpy as np
import pytest

from fedprior.core.check import PrivacyError
from fedprior.data.table import fit_encoder
from fedprior.reporting.config import Config, Data, Privacy, read
from fedprior.reporting.federations import federation, fingerprint
from fedprior.reporting.folder import Folder

ROWS = "shop,size,bought\na,1,yes\na,2,no\nb,3,yes\nb,4,no\nb,5,\n"
SIMULATED = Privacy(epsilon=1.0, delta=1e-5)
SECURE = replace(SIMULATED, noise="secure")


@pytest.fixture
def data(tmp_path):
    """A table, and an encoder of other rows."""
    path, public = tmp_path / "shops.csv", tmp_path / "public.csv"
    path.write_text(ROWS)
    public.write_text("size,bought\n0,yes\n9,no\n,perhaps\n")
    encoder = tmp_path / "encoder.json"
    encoder.write_text(fit_encoder(public, client="shop", label="bought").to_json())
    return Data(path=str(path), encoder=str(encoder))


@pytest.mark.parametrize("privacy", [SIMULATED, SECURE])
def test_a_private_table_needs_a_public_encoder(data, privacy):
    bare = replace(data, encoder="", client="shop", label="bought")
    federation(bare, seed=0)
    with pytest.raises(PrivacyError, match=r"encoder must be given .* fedprior encoder"):
        federation(bare, seed=0, privacy=privacy)
    found = federation(data, seed=0, privacy=privacy)
    assert found.classes == found.encoder.classes == ("no", "perhaps", "yes")
    assert found.num_clients == 2


def test_remarks_stay_with_secure_noise(data):
    assert "1 of 5 rows dropped: no label." in federation(data, seed=0, privacy=SIMULATED).remarks
    assert federation(data, seed=0, privacy=SECURE).remarks == ()


def test_who_takes_part_does_not_depend_on_labels(data, tmp_path):
    (tmp_path / "shops.csv").write_text(ROWS + "c,6,\n")
    assert federation(data, seed=0).num_clients == 2
    with pytest.raises(PrivacyError, match=r"who takes part \(every client must have a row"):
        federation(data, seed=0, privacy=SIMULATED)


def test_a_public_bound_on_samples_comes_with_the_clients(data):
    bounded = replace(data, most_samples=3)
    assert federation(bounded, seed=0, privacy=SIMULATED).most_samples == 3
    assert federation(data, seed=0, privacy=SIMULATED).most_samples is None
    with pytest.raises(ValueError, match=r"most_samples must be at least the size of the largest"):
        federation(replace(data, most_samples=1), seed=0)
    with pytest.raises(ValueError, match=r"^config data: most_samples must be a whole number"):
        Config(data=replace(data, most_samples=-1))


def test_a_private_folder_needs_public_classes(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((6, 2)), y=np.arange(6) % 2)
    data = Data(path=str(tmp_path))
    assert federation(data, seed=0).classes == ("0", "1")
    with pytest.raises(PrivacyError, match=r"needs options.classes.*regression=true"):
        federation(data, seed=0, privacy=SIMULATED)
    told = replace(data, options={"classes": ["0", "1", "2"]})
    assert federation(told, seed=0, privacy=SIMULATED).classes == ("0", "1", "2")
    quantity = replace(data, options={"regression": True})
    assert federation(quantity, seed=0, privacy=SIMULATED).classes is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": "nowhere.json"}, "encoder must be a file that exists"),
        ({"path": ""}, "encoder must be none without a table"),
        ({"label": "size"}, "label must be the encoder's, 'bought'"),
        ({"options": {"classes": ["a"]}}, "key must be one of regression"),
    ],
)
def test_encoders_that_do_not_fit_are_refused(data, change, message):
    with pytest.raises(ValueError, match=message):
        federation(replace(data, **change), seed=0)


def test_a_folder_has_no_encoder(data, tmp_path):
    with pytest.raises(ValueError, match="encoder must be none for a folder"):
        federation(replace(data, path=str(tmp_path)), seed=0)


def test_the_fingerprint_covers_the_encoder(data, tmp_path):
    before = fingerprint(data)
    text = (tmp_path / "encoder.json").read_text()
    (tmp_path / "encoder.json").write_text(text.replace("perhaps", "maybe"))
    assert fingerprint(data) != before


def test_with_secure_noise_the_fingerprint_stays_with_the_models(data, tmp_path):
    config = Config(methods=("fedavg",), data=data, privacy=SECURE)
    folder = Folder(tmp_path / "run")
    made = folder.create(config)
    assert made.data.fingerprint == ""
    assert fingerprint(data) not in folder.config.read_text()
    assert read(folder.config) == made == folder.open()
    (tmp_path / "shops.csv").write_text(ROWS + "b,7,no\n")
    with pytest.raises(ValueError, match="has changed since the run started"):
        folder.open()
    folder.fingerprint.unlink()
    with pytest.raises(ValueError, match="stays with the owner of the data"):
        folder.open()
    simulated = replace(config, privacy=SIMULATED)
    assert Folder(tmp_path / "other").create(simulated).data.fingerprint == fingerprint(data)
