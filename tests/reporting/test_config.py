"""The configuration: tables in, tables out."""

import tomllib

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from fedprior.reporting.config import Config, as_tables, build, read


def test_a_configuration_is_its_toml():
    config = read(None, ["options.adaped.psi_rate=0.1", "data.features=['a', 'b']", "seeds=3"])
    text = tomli_w.dumps(as_tables(config))
    assert build(Config, tomllib.loads(text), "config") == config
    assert read(None) == Config()


@given(
    rounds=st.integers(1, 10**6),
    rate=st.floats(0, 10),
    hidden=st.lists(st.integers(1, 99), max_size=3),
    name=st.text(st.characters(exclude_categories=["C"]), max_size=8),
)
def test_any_values_survive_the_file(rounds, rate, hidden, name):
    tables = {
        "training": {"rounds": rounds, "theta_rate": rate},
        "model": {"hidden": hidden},
        "data": {"client": name},
    }
    config = build(Config, tables, "config")
    assert config.training.rounds == rounds
    assert config.model.hidden == tuple(hidden)
    written = tomllib.loads(tomli_w.dumps(as_tables(config)))
    assert build(Config, written, "config") == config


def test_changes_come_on_top_of_the_file(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('seed = 3\n[training]\nrounds = 7\ncohort = "poisson"\n')
    config = read(file, ["training.rounds=9", "data.client=shop no. 1", "training.theta_rate=1"])
    assert (config.seed, config.training.rounds, config.training.cohort) == (3, 9, "poisson")
    assert config.data.client == ("shop no. 1",)  # not TOML: taken as text
    assert config.training.theta_rate == 1.0
    assert isinstance(config.training.theta_rate, float)


def test_a_name_that_looks_like_a_number_can_be_quoted():
    assert read(None, ['data.client="2020"']).data.client == ("2020",)
    with pytest.raises(ValueError, match="config data: client must be text, got 2020"):
        read(None, ["data.client=2020"])
