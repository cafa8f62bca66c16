"""Private methods against local: pairing, equal steps, noise files, words, pictures, command."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedprior.cli.main import main
from fedprior.experiments import dp_drawing, dp_settings
from fedprior.experiments import dp_figures as experiment
from fedprior.experiments.dp_drawing import draw
from fedprior.experiments.dp_figures import Simulated, dp_figures
from fedprior.experiments.dp_report import METHODS, cells, markdown, read, remarks, save
from fedprior.experiments.dp_settings import (
    EPSILONS,
    PANELS,
    QUICK,
    Planned,
    chosen,
    plan_noise,
    read_noise,
    write_noise,
)

CONFIG = QUICK[0].config
SIZES = {"num_clients": 12, "samples_per_client": 6, "test_samples": 5}


def tiny_of(rounds):
    data = replace(CONFIG.data, options={**CONFIG.data.options, **SIZES})
    schedule = replace(CONFIG.training, rounds=rounds, local_steps=2)
    config = replace(CONFIG, data=data, training=schedule)
    return replace(QUICK[0], config=config, tuning_steps=1, delta=1e-3)


TINY = tiny_of(4)
NOISE = {
    "synthetic": Planned(
        poisson={1.0: 2.0, 3.0: 1.5, 8.0: 1.0},
        known={1.0: 4.0, 3.0: 6.0, 8.0: 9.0},
        matrix={1.0: 4.0, 3.0: 3.0, 8.0: 2.0},
        coefficients=(0.5, 0.25),
    )
}


@pytest.fixture(scope="module")
def tiny():
    """AdaPeD with and without privacy, and local, for 4 rounds of 12 clients."""
    seen = []
    rows = dp_figures(
        [TINY],
        epsilons=(1.0,),
        seeds=(0,),
        methods=("adaped",),
        noise=NOISE,
        watch=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    return rows


@pytest.fixture
def made():
    """Rows of all methods from made-up scores: `made(setting, {method: (clear, private)})`."""

    def rows(setting=TINY, levels=None, psi=(4.0, 1.0, 2.0), seeds=3):
        draws = np.random.default_rng(3)
        local = 0.5 + 0.01 * draws.standard_normal((seeds, 40))
        noise = draws.standard_normal((len(METHODS), 2, seeds, 40))
        noise -= noise.mean(axis=-1, keepdims=True)  # of itself no row is above or below local
        noise = 0.001 * (noise + (np.arange(seeds) - (seeds - 1) / 2)[:, None])
        found = [_made_row(setting, ("local", None), local, local, None)]
        for number, method in enumerate(METHODS):
            for place, budget in enumerate((None, 1.0)):
                level = (levels or {}).get(method, (0.0, 0.0))[place]
                own = local + level + noise[number, place]
                path = psi if method.startswith("adaped") else None
                found.append(_made_row(setting, (method, budget), own, local, path))
        return found

    return rows


def _made_row(setting, case, scores, local, psi):
    outcomes = [Simulated(one, psi and np.array(psi), 10.0) for one in scores]
    return experiment._row(setting, case, outcomes, local, NOISE["synthetic"])


def test_rows_of_a_run(tiny):
    local, clear, private = tiny
    assert [(row.method, row.epsilon) for row in tiny] == [
        ("local", None),
        ("adaped", None),
        ("adaped", 1.0),
    ]
    assert (local.difference, local.difference_se, local.above, local.below) == (0, 0, False, False)
    assert local.psi is None
    assert local.steps == TINY.steps == 4
    assert private.noise_multiplier == 2.0
    assert private.noise_to_signal == pytest.approx(
        2.0 * np.sqrt((20 * 5 + 5 + 1) / TINY.rounds) / 6
    )
    assert (private.delta, clear.delta, clear.noise_to_signal) == (1e-3, None, None)
    assert (private.cohorts_known, clear.cohorts_known) == (4.0, None)
    assert 0 <= private.trust <= 1
    assert clear.trust is None
    assert len(clear.psi) == len(private.psi) == 4
    assert clear.psi != private.psi
    assert 1 < private.steps < 8
    assert private.error_over == "clients"
    assert private.difference == pytest.approx(private.score - local.score)


def test_differences_are_paired_and_errors_are_over_seeds_where_there_are_three():
    local = np.array([[0.1, 0.9, 0.5], [0.2, 0.4, 0.9], [0.3, 0.8, 0.1]])
    own = local + np.array([[0.1, 0.2, 0.3], [0.1, 0.1, 0.1], [0.3, np.nan, 0.5]])
    row = _made_row(TINY, ("fedavg", 1.0), own, local, None)
    by_seed = np.array([0.2, 0.1, 0.4])
    assert row.difference == pytest.approx(by_seed.mean())
    assert row.difference_se == pytest.approx(by_seed.std(ddof=1) / np.sqrt(3))
    assert row.error_over == "seeds"
    assert row.above == (by_seed.mean() > 2 * row.difference_se)
    two = _made_row(TINY, ("fedavg", 1.0), own[:2], local[:2], None)
    known = np.array([0.1, 0.2, 0.3, 0.1, 0.1, 0.1])
    assert two.difference_se == pytest.approx(known.std(ddof=1) / np.sqrt(6))
    assert two.difference_se == two.difference_by_clients_se
    assert two.error_over == "clients"
    assert two.above
    worse = _made_row(TINY, ("fedavg", 1.0), 2 * local[:2] - own[:2], local[:2], None)
    assert worse.below
    assert not worse.above


@pytest.mark.parametrize("setting", [*PANELS, *QUICK], ids=lambda one: f"{one.name}{one.rounds}")
def test_every_personal_model_expects_the_same_steps(setting):
    """Algorithm 6 trains between rounds, too: its steps are cut so that the sum is the others'."""
    assert setting.steps == setting.rounds * setting.rate * setting.config.training.local_steps
    assert setting.delta < 1 / setting.num_clients
    draws = np.random.default_rng(0)
    steps, last = np.zeros(20_000), np.zeros(20_000, int)
    for place in range(setting.rounds):
        here = draws.random(len(steps)) < setting.rate
        missed = (place - last) * setting.tuning_steps
        steps += here * (setting.tuning_steps + np.minimum(missed, setting.catch_up))
        last[here] = place + 1
    steps += np.minimum((setting.rounds - last) * setting.tuning_steps, setting.catch_up)
    steps[last == 0] = setting.steps
    assert steps.mean() == pytest.approx(setting.steps, rel=0.05)


def test_settings_are_chosen_by_name():
    assert [one.name for one in chosen(None, quick=False)] == [one.name for one in PANELS]
    names = [one.name for one in chosen("writers", quick=False)]
    assert names == ["writers-logistic", "writers-mlp"]
    assert [one.name for one in chosen(None, quick=True)] == ["synthetic"]
    assert [one.name for one in chosen("writers", quick=True)] == ["writers-logistic"]
    with pytest.raises(ValueError, match="--setting must be one of synthetic, writers"):
        chosen("writer", quick=False)
    with pytest.raises(ValueError, match="--setting must be without --quick"):
        chosen("writers-mlp", quick=True)
    with pytest.raises(ValueError, match=r"rounds \* sampling_rate must be a whole number of"):
        tiny_of(3)


def test_a_noise_file_belongs_to_its_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(dp_settings, "plan_noise", lambda panels: NOISE)
    path = tmp_path / "noise.json"
    write_noise(path, [TINY])
    assert read_noise(path, [TINY]) == NOISE
    with pytest.raises(ValueError, match=r"--noise must be planned for synthetic with .*rounds"):
        read_noise(path, [tiny_of(8)])
    with pytest.raises(ValueError, match="--noise must be planned for writers-mlp"):
        read_noise(path, [PANELS[2]])
    path.write_text("[]")
    with pytest.raises(ValueError, match="--noise must be a file of --write-noise"):
        read_noise(path, [TINY])


def test_remarks_name_winners_and_losers(made):
    levels = {"adaped": (0.02, -0.02), "fedavg": (-0.1, -0.1), "fedem": (0.1, 0.1)}
    text = " ".join(remarks(made(levels=levels)))
    assert "above it by 2 standard errors: fedem (epsilon 1)" in text
    assert "private methods below it: adaped (epsilon 1), fedavg (epsilon 1)" in text
    assert "below it without privacy, too: fedavg." in text
    assert "DP-AdaPeD falls below local (by more than 2 standard errors) in synthetic at" in text
    assert "fine-tuning falls below local (by more than 2 standard errors) nowhere" in text
    assert "1.00 after round 2, 2.00" in text
    assert "It rises again without privacy, at epsilon 1 (the paper" in text
    assert "not valid for release" in text
    assert "3 seeds" in text
    even = " ".join(remarks(made(psi=(4.0, 2.0, 1.0))))
    assert "does not rise again" in even
    assert "delta 0.001 (synthetic)" in even
    lower = " ".join(remarks(made(levels=dict.fromkeys(METHODS, (-0.1, -0.1)))))
    assert "No private method was found that beats local" in lower


def test_table_and_file_are_read_back(made, tmp_path):
    rows = made(levels={"fedem": (0.1, -0.1)})
    save(rows, tmp_path / "a")
    assert read(tmp_path / "a" / "rows.json") == rows
    answer = json.loads((tmp_path / "a" / "rows.json").read_text())
    assert (answer["format"], answer["experiment"]) == (2, "dp-figures")
    assert (tmp_path / "a" / "table.md").read_text().startswith(markdown(rows))
    verdicts = {(row.method, row.epsilon): cells(row)[-1] for row in rows}
    assert (verdicts["fedem", None], verdicts["fedem", 1.0]) == ("above", "BELOW")
    assert verdicts["local", None] == ""
    other = made(replace(TINY, name="writers-mlp"))
    save(other, tmp_path / "b")
    files = [tmp_path / folder / "rows.json" for folder in "ab"]
    assert read(*files) == rows + other
    with pytest.raises(ValueError, match="--from-json must be one file a setting, got 'synthetic'"):
        read(files[0], files[0])
    files[0].write_text('{"rows": [{"setting": "synthetic"}]}')
    with pytest.raises(ValueError, match=r"--from-json must be a rows\.json of this experiment"):
        read(files[0])


def test_pictures_of_one_and_of_two_settings(made, tmp_path):
    rows = made()
    more = made(replace(TINY, name="writers-logistic"))
    paths = draw(rows + more, tmp_path / "two")
    assert [path.name for path in paths] == ["accuracy.png", "psi.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)
    bare = [row for row in rows if not row.method.startswith("adaped")]
    assert [path.name for path in draw(bare, tmp_path / "bare")] == ["accuracy.png"]


def test_bad_input():
    with pytest.raises(ValueError, match="noise must be given for synthetic at epsilon 2"):
        dp_figures([TINY], epsilons=(2.0,), noise=NOISE)
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        dp_figures([TINY], epsilons=(0.0,), noise=NOISE)
    with pytest.raises(ValueError, match="seeds must be at least one"):
        dp_figures([TINY], seeds=(), noise=NOISE)
    with pytest.raises(ValueError, match="methods must be one of adamap"):
        dp_figures([TINY], methods=("adapted",), noise=NOISE)


@pytest.fixture
def command(capsys, monkeypatch):
    """`command(...)` -> exit code, standard output, standard error of `fedprior reproduce ...`."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FEDPRIOR_TRACEBACK", raising=False)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["fedprior", "reproduce", "dp-figures", *map(str, words)])
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0, *capsys.readouterr()
        return 0, *capsys.readouterr()

    return run


def test_command_draws_saved_rows_again(command, made, tmp_path):
    save(made(levels={"fedem": (0.1, 0.1)}), tmp_path)
    words = ("--from-json", tmp_path / "rows.json", "--out", tmp_path / "new")
    code, shown, told = command(*words)
    assert code == 0
    assert f"Written to {tmp_path / 'new'}" in told
    assert "fedem (epsilon 1)" in shown
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"accuracy.png", "psi.png", "rows.json", "table.md"}
    code, shown, told = command(*words, "--json", "--quiet")
    assert (code, told) == (0, "")
    assert json.loads(shown) == json.loads((tmp_path / "new" / "rows.json").read_text())


def test_command_runs_what_it_is_told(command, tiny, monkeypatch, tmp_path):
    asked = []

    def run(settings, **options):
        asked.append(([one.name for one in settings], list(options["seeds"]), options["noise"]))
        return tiny

    monkeypatch.setattr(experiment, "dp_figures", run)
    monkeypatch.setattr(dp_drawing, "draw", lambda rows, folder: [])
    out = tmp_path / "out"
    assert command("--quick", "--seed", "4", "--out", out, "--quiet")[0] == 0
    assert command("--setting", "writers", "--seeds", "2", "--out", out)[0] == 0
    writers = ["writers-logistic", "writers-mlp"]
    assert asked == [(["synthetic"], [4], None), (writers, [0, 1], None)]


def test_command_refuses_bad_input(command, tmp_path):
    file = tmp_path / "file"
    file.write_text("{}")
    for words, wanted in (
        (("--seeds", "0"), "seeds must be a whole number of at least 1"),
        (("--seed", "-1"), "seed must be a whole number of at least 0"),
        (("--setting", "writer"), "--setting must be one of"),
        (("--quick", "--noise", file), "--noise must be a file of --write-noise"),
        (("--quick", "--noise", tmp_path / "none"), "No such file"),
        (("--quick", "--out", file), "--out must be a folder"),
        (("--from-json", file), "--from-json must be a rows.json"),
    ):
        code, shown, told = command(*words)
        assert (code, shown) == (2, "")
        assert wanted in told
        assert len(told.strip().splitlines()) == 1


def test_module_needs_neither_the_command_line_nor_the_accountant():
    """It runs where only NumPy, SciPy, JAX, optax and safetensors are installed."""
    absent = ["typer", "rich", "duckdb", "dp_accounting", "matplotlib", "sklearn", "pandas"]
    code = (
        f"import sys\nfor name in {absent}: sys.modules[name] = None\n"
        "from fedprior.experiments.dp_figures import main\nmain(['--help'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "--write-noise" in found.stdout


@pytest.mark.evidence
def test_planned_noise():
    """Measured at the time of writing; the accountant checks itself at a finer grid."""
    found = plan_noise(PANELS[:2])
    known = {
        "synthetic": (2.1426, 1.0789, 0.63501),
        "writers-logistic": (7.5547, 3.0224, 1.26929),
    }
    for name, values in known.items():
        for epsilon, value in zip(EPSILONS, values, strict=True):
            assert found[name][epsilon] == pytest.approx(value, rel=1e-3)


def test_a_matrix_case_takes_turns_and_its_epsilon_holds_for_known_cohorts():
    config = TINY.budget("adamap+matrix", 3.0, NOISE["synthetic"])
    assert (config.privacy.mechanism, config.privacy.noise_multiplier) == ("matrix", 3.0)
    assert (config.training.cohort, config.training.parts) == ("cyclic", 2)
    assert config.training.sampling_rate == 1.0
    local = np.full((3, 4), 0.5)
    row = _made_row(TINY, ("adamap+matrix", 3.0), local, local, None)
    assert (row.epsilon, row.cohorts_known, row.noise_multiplier) == (3.0, 3.0, 3.0)
