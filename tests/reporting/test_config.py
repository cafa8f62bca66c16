"""The configuration: tables in, tables out."""

import tomllib

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from fedprior.exchange.facts import Facts
from fedprior.privacy.cohort import Poisson
from fedprior.reporting.config import Config, read
from fedprior.reporting.tables import as_tables, build
from fedprior.reporting.training import Study


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


def test_a_file_begins_from_the_one_that_it_extends(tmp_path):
    (tmp_path / "base.toml").write_text("seed = 3\n[training]\nrounds = 7\nlocal_steps = 2\n")
    (tmp_path / "own.toml").write_text('extends = "base.toml"\n[training]\nrounds = 9\n')
    config = read(tmp_path / "own.toml", ["training.local_steps=4"])
    assert (config.seed, config.training.rounds, config.training.local_steps) == (3, 9, 4)
    (tmp_path / "mine.toml").write_text(
        'extends = "writers-033"\n[options.adaped]\npsi_rate = 0.1\n'
    )
    options = read(tmp_path / "mine.toml").options["adaped"]
    assert (options["psi_rate"], options["direction"], options["psi_floor"]) == (
        0.1,
        "squared",
        0.5,
    )
    (tmp_path / "base.toml").write_text('extends = "own.toml"\n')
    with pytest.raises(ValueError, match=r"^config: extends must be free of cycles, got"):
        read(tmp_path / "own.toml")


def test_a_folder_of_data_does_not_hide_a_configuration_of_its_name(tmp_path, monkeypatch):
    known = read("writers-033")
    for name in ("writers-033", "writers", "comparison"):  # the first extends the others
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert read("writers-033") == known
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    for folder in ("data", "data/mnist"):
        with pytest.raises(ValueError, match=f"{folder} is a folder, not a TOML file"):
            read(folder)


def test_a_configuration_of_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"^config: name must be one of .*Did you mean mnist"):
        read("mnits")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["training.rounds=1e20"], "rounds must be a whole number, got 1e"),
        (["training.rounds=100000000000000000000"], r"rounds must be below 2\*\*31, got 1000"),
        (["training.cohort_size=5000000000"], r"cohort_size must be below 2\*\*31"),
        (["seed=2147483647", "seeds=2"], r"the last seed, .* = 2147483648, must be below 2\*\*31"),
        (["seed=2147483648"], r"seed must be below 2\*\*31"),
        (
            ["training.sampling_rate=0.1", "training.cohort_size=3"],
            "sampling_rate replaces",
        ),
    ],
)
def test_values_out_of_range_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        read(None, changes)


def test_seeds_up_to_the_last_one_are_accepted():
    assert list(read(None, ["seed=2147483646", "seeds=2"]).all_seeds) == [2**31 - 2, 2**31 - 1]


def test_more_steps_than_the_clock_can_count_are_refused(federation):
    study = Study(
        read(None, ["training.rounds=300000000", "training.cohort_size=2"]), Facts.of(federation)
    )
    with pytest.raises(ValueError, match=r"300000000 rounds of 10 local steps are more than 2"):
        study.training("fedavg")
    with pytest.raises(ValueError, match=r"^adaped: newcomer_steps must be below 2\*\*31, got"):
        Study(read(None), Facts.of(federation)).training("adaped", {"newcomer_steps": 2**31})


def test_a_sampling_rate_makes_poisson_cohorts(federation):
    study = Study(read(None, ["training.sampling_rate=0.4"]), Facts.of(federation))
    assert study.training("fedavg").cohort == Poisson(rate=0.4)
    assert study.share == pytest.approx(0.4)


def test_what_decides_the_bits_is_in_the_identity(federation):
    """And what does not is left out: where data are, other methods, when a run is saved."""
    facts = Facts.of(federation)

    def identity(*changes, **more):
        return Study(read(None, changes), facts).training("adaped", **more).identity

    plain = identity()
    for same in (
        "training.checkpoint_every=7",
        "data.root=elsewhere",
        "options.adamap.momentum=0.1",
    ):
        assert identity(same) == plain
    for other in ("training.rounds=7", "training.newcomers=1", "options.adaped.psi_rate=0.1"):
        assert identity(other) != plain
    assert identity(rate=0.3) != plain
    assert identity(options={"decay": 0.5}) != plain
