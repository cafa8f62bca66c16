"""Methods side by side: equal steps, one sweep and one file each, read back and never mixed up."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fedprior
from fedprior.exchange.facts import Facts
from fedprior.experiments import (
    compare,
    comparison,
    comparison_beside,
    comparison_drawing,
    comparison_report,
    optimizer_choice,
)
from fedprior.experiments import comparison_settings as settings
from fedprior.experiments.optimizers import EQUAL, FREQUENCIES, OPTIMIZERS
from fedprior.reporting import client_drawing
from fedprior.reporting.config import Config, Data, ModelChoice, Schedule
from fedprior.reporting.training import Study

TINY = settings.Setting(
    name="tiny",
    title="Tiny",
    config=Config(
        data=Data(
            name="synthetic",
            options={
                "num_clients": 6,
                "samples_per_client": (8, 12),
                "num_features": 3,
                "num_classes": 3,
            },
        ),
        model=ModelChoice(name="logistic"),
        training=Schedule(rounds=3, cohort="fixed", cohort_size=2, batch_size=0, decay=0.99),
        options={},
    ),
    paper_says={"fedavg": (90.0, 1.0), "local": (50.0, 1.0)},
)


def changed(**options):
    """TINY with another schedule."""
    return replace(TINY, config=replace(TINY.config, training=replace(SCHEDULE, **options)))


def study(setting):
    return Study(setting.config, Facts.of(setting.federation(0, None)))


SCHEDULE = TINY.config.training
ASKED = {"grid": (0.01, 0.5), "seeds": (0, 1)}
BOTH = ("fedavg", "local")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parts")


@pytest.fixture(scope="module")
def parts(folder):
    return comparison.compare(TINY, ("fedavg", "local"), folder=folder, **ASKED)


def test_a_part_holds_the_choice_and_the_clients(parts):
    fedavg = parts[0]
    assert (fedavg.setting, fedavg.method, fedavg.seeds) == ("tiny", "fedavg", (0, 1))
    means = np.mean(fedavg.valid, axis=1)
    assert fedavg.rate == ASKED["grid"][int(np.argmax(means))]
    assert fedavg.clients.shape == (2, 6)
    training = study(TINY).training("fedavg", rate=fedavg.rate)
    clients = TINY.federation(1, None)
    alone = fedprior.simulate(training.algorithm, clients, **training.arguments, seed=1)
    np.testing.assert_allclose(fedavg.clients[1], alone.scores, atol=1e-6)


def test_parts_are_read_back(parts, folder, monkeypatch):
    monkeypatch.setattr(comparison, "sweep", None)  # nothing is trained
    again = comparison.compare(TINY, ("fedavg", "local"), folder=folder, **ASKED)
    assert again == parts
    assert sorted(part.method for part in comparison.read_all(folder, [TINY], BOTH, **ASKED)) == [
        "fedavg",
        "local",
    ]
    row = comparison_report.rows(parts, [TINY])[0]
    best = max(range(2), key=lambda place: row.valid_by_rate[place])
    assert ASKED["grid"][best] == row.tuned["rate"]


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"grid": (0.1,)}, TINY),
        ({"seeds": (0, 2)}, TINY),
        ({}, changed(rounds=4)),
        ({}, replace(TINY, config=replace(TINY.config, options={"fedavg": {"decay": 0.5}}))),
        ({}, changed(cohort_size=3)),
    ],
)
def test_a_part_of_another_comparison_is_refused(parts, folder, change, setting):
    with pytest.raises(ValueError, match="Choose another folder"):
        comparison.compare(setting, ("fedavg",), folder=folder, **{**ASKED, **change})


@pytest.mark.parametrize(
    "damage", [{"scores": "x"}, {"scores": []}, {"valid": []}, {"format": 2}, {"more": 1}, None]
)
def test_a_damaged_part_is_refused_by_its_name(parts, folder, tmp_path, damage):
    whole = json.loads((folder / "tiny" / "fedavg.json").read_text())
    (tmp_path / "tiny").mkdir()
    file = tmp_path / "tiny" / "fedavg.json"
    file.write_text("{" if damage is None else json.dumps(whole | damage))
    with pytest.raises(ValueError, match=r"fedavg\.json is not a part of a comparison, format 1"):
        comparison.read_all(tmp_path, [TINY], BOTH, **ASKED)


def test_a_part_under_another_name_is_refused(parts, folder, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "local.json").write_bytes((folder / "tiny/fedavg.json").read_bytes())
    with pytest.raises(ValueError, match=r"local\.json: method must be"):
        comparison.read_all(tmp_path, [TINY], BOTH, **ASKED)


def part(method, scores, *, grid=(0.1,), rate=0.1):
    scores = tuple(map(tuple, scores))
    return comparison.Part(
        setting="tiny",
        method=method,
        grid=grid,
        seeds=tuple(range(len(scores))),
        rounds=3,
        options={},
        valid=((0.5,) * len(scores),) * len(grid),
        rate=rate,
        scores=scores,
        seconds=1.0,
        federation={},
    )


def test_rows_pair_by_seed_and_say_how_large_the_gap_is():
    """Differences 0.1, 0.2, 0.3: mean 20 points, t interval 20 +- 4.303 * 10 / sqrt(3)."""
    best = part("fedavg", [[0.6, 0.8], [0.7, 0.9], [0.8, 1.0]])
    other = part("local", [[0.5, 0.7], [0.5, 0.7], [0.5, 0.7]])
    first, second = comparison_report.rows([other, best], [TINY])
    assert (first.method, first.gap) == ("fedavg", 0)
    assert first.mean == pytest.approx(80)
    assert first.sd == pytest.approx(10)
    assert first.worst_decile == pytest.approx(70)
    assert (first.paper_says, first.paper_says_sd) == (90.0, 1.0)
    assert second.gap == pytest.approx(20)
    assert second.by_seed == [60.0, 60.0, 60.0]
    half = 4.30265 * 10 / np.sqrt(3)
    assert second.gap_low == pytest.approx(20 - half, rel=1e-4)
    assert second.gap_high == pytest.approx(20 + half, rel=1e-4)


def test_gaps_are_those_of_our_own_method_where_it_was_run():
    """Ahead of one for certain, behind another, and with a third in between."""
    ours = part("adamap", [[0.8], [0.8], [0.8]])
    rivals = [
        part("local", [[0.5], [0.51], [0.5]]),
        part("fedavg", [[0.9], [0.91], [0.9]]),
        part("ditto", [[0.9], [0.7], [0.79]]),
    ]
    found = {row.method: row for row in comparison_report.rows([*rivals, ours], [TINY])}
    assert found["adamap"].gap == 0
    assert found["fedavg"].gap < 0 < found["local"].gap
    words = comparison_report.remarks(list(found.values()), [TINY])
    told = "significantly ahead of 1 of 3 others; not told apart from ditto; behind fedavg."
    assert any(told in line for line in words)


def test_a_client_without_test_samples_does_not_count():
    row = comparison_report.rows([part("fedavg", [[0.5, None]])], [TINY])[0]
    assert row.mean == 50
    assert row.sd is None


def test_words_say_what_differs_from_the_paper():
    found = comparison_report.rows(
        [part("fedavg", [[0.5, 0.5]]), part("local", [[0.7, 0.7]], grid=(0.1, 0.2), rate=0.2)],
        [TINY],
    )
    words = " ".join(comparison_report.remarks(found, [TINY]))
    assert "local +20.0, fedavg -40.0" in words
    assert "The paper has fedavg ahead of its methods; here local is, by 20.00 points." in words
    assert "chosen at an end of the grid" in words
    assert comparison_report.cells(found[0], ["rate"]) == ["0.2*"]


def test_newcomers_take_no_part_and_are_the_only_ones_scored(tmp_path):
    setting = changed(newcomers=2)
    training = study(setting).training("fedavg")
    drawn = [training.cohort.draw(0, round, 6) for round in range(50)]
    assert max(map(max, drawn)) == 3
    assert study(setting).training("local").cohort == fedprior.Everyone()
    assert training.rounds == 3
    (part,) = comparison.compare(setting, ("fedavg",), folder=tmp_path, grid=(0.1,), seeds=(0,))
    assert part.clients.shape == (1, 2)


def images(num_clients):
    """Facts of MNIST, without its data."""
    return Facts(num_clients=num_clients, shape=(28, 28, 1), num_classes=10, most_samples=60)


def test_every_method_builds_in_every_setting():
    for each in settings.COMPARISONS.values():
        for setting in each.settings:
            whole = Study(setting.config, images(setting.config.data.options["num_clients"]))
            for name in each.methods:
                options, method = setting.method_options(name), settings.method(name)
                training = whole.training(method.name, options, rate=0.1)
                assert training.method is method
                alone = whole.alone_rounds if method.alone else setting.config.training.rounds
                assert training.rounds == alone, (setting.name, name)


def test_cifar10_is_compared_on_a_grid_and_seeds_of_its_own():
    known = settings.COMPARISONS["cifar10"]
    assert (known.grid, known.seeds, known.first) == ((0.02, 0.05, 0.1, 0.2), 3, 1000)
    assert known.equal_grid == (0.1, 0.2)
    assert all(
        each.grid == settings.GRID
        for name, each in settings.COMPARISONS.items()
        if name not in ("cifar10", "ablation")
    )
    options = {each.name: each.config.data for each in known.settings}
    assert options["cifar10-dirichlet-05"].options["concentration"] == 0.5
    shape = Facts(num_clients=100, shape=(32, 32, 3), num_classes=10, most_samples=450)
    for each in known.settings:
        study = Study(each.config, shape)
        assert (study.model.name, study.share, study.alone_rounds) == ("cnn", 0.1, 30)


def test_the_same_steps_for_every_method():
    whole = Study(settings.TABLE1[0].config, images(50))
    assert whole.personal_steps == 300
    assert whole.training("local").rounds == whole.alone_rounds == 30
    assert whole.training("fedavg").rounds == 300


def test_an_optimizer_for_all_gives_each_method_what_it_has():
    """AdaMAP keeps its class frequencies, whatever the others have; a variant keeps its own."""
    mnist = settings.TABLE1[0].under(EQUAL)
    assert mnist.paper_says == {}
    given = dict(EQUAL.options)
    assert mnist.method_options("fedrep") == given
    assert mnist.method_options("local") == {"clip": given["clip"]}
    own = mnist.method_options("adamap")
    assert own.items() >= {"momentum": given["momentum"], "gradient_norm": given["clip"]}.items()
    assert "class_frequencies" not in own
    assert mnist.method_options("without-momentum")["momentum"] == 0.0
    whole = settings.TABLE1[0].under(FREQUENCIES)
    assert whole.method_options("local") == {"clip": given["clip"], "class_frequencies": True}
    for each in settings.COMPARISONS.values():
        for setting in (each.settings[0].under(optimizer) for optimizer in OPTIMIZERS.values()):
            study = Study(setting.config, images(setting.config.data.options["num_clients"]))
            for name in each.methods:
                options = setting.method_options(name)
                study.training(settings.method(name).name, options, rate=0.1)


def test_parts_of_two_optimizers_are_not_mixed(parts, folder):
    assert {part.optimizer for part in parts} == {"published"}
    with pytest.raises(ValueError, match=r"fedavg\.json: options must be .*Choose another folder"):
        comparison.compare(TINY.under(EQUAL), ("fedavg",), folder=folder, **ASKED)


def documents(means):
    """Rows of two seeds under each optimizer, from each method's score."""
    made = {}
    for name, scores in means.items():
        setting = TINY.under(OPTIMIZERS[name])
        own = [
            replace(
                part(method, [[score], [score + wobble]]), optimizer=name, valid=((score, score),)
            )
            for method, (score, wobble) in scores.items()
        ]
        found = comparison_report.rows(own, [setting])
        made[name] = comparison_report.to_json(found, [setting], own, experiment="tiny")
    return made


def test_words_say_who_leads_under_which_optimizer():
    both = documents(
        {
            "published": {"adamap": (0.8, 0.0), "fedavg": (0.5, 0.01)},
            "equal": {"adamap": (0.8, 0.0), "fedavg": (0.9, 0.01), "local": (0.7, 0.01)},
            "frequencies": {"adamap": (0.8, 0.0), "fedavg": (0.7, 0.3)},
        }
    )
    (line,) = comparison_beside.verdicts(both, [TINY])
    assert line == (
        "Tiny: with published optimizers, adamap leads with 80.00%, significantly ahead of all 1 "
        "others; with the same optimizer for all, fedavg leads with 90.50%, 10.50 points ahead of "
        "adamap; with the same optimizer and class frequencies for all, fedavg leads with 85.00%, "
        "5.00 points ahead of adamap, which the seeds do not tell apart; with the better of these "
        "for each method, fedavg leads with 90.50%, 10.50 points ahead of adamap."
    )
    table = comparison_beside.markdown(both, [TINY]).splitlines()
    assert table[2].startswith("| method | published optimizers | gap | the same optimizer")
    assert [line.split(" | ")[0] for line in table[4:]] == ["| fedavg", "| adamap", "| local"]
    assert table[-1].startswith("| local |  |  | 70.50 ± 0.71 | 9.50 [3.15, 15.85] |  |")


def test_quick_rows_are_not_mixed_with_full_ones():
    """A fifth of the rounds under one optimizer does not say which of two is the better one."""
    scores = {"adamap": (0.8, 0.0), "fedavg": (0.5, 0.01)}
    both = documents({"published": scores, "equal": scores})
    assert comparison_beside.BETTER in comparison_beside.rows_of(both, "tiny")
    both["equal"]["quick"] = True
    assert comparison_beside.BETTER not in comparison_beside.rows_of(both, "tiny")


def test_unknown_names_are_refused():
    table = settings.COMPARISONS["table1"]
    with pytest.raises(ValueError, match="Did you mean fedavg"):
        table.chosen_methods(["fedavk"])
    with pytest.raises(ValueError, match="Did you mean mnist"):
        table.chosen_settings(["mnits"], quick=True)


def test_a_picture_and_the_files(parts, tmp_path):
    found = comparison_report.rows(parts, [TINY])
    document = comparison_report.to_json(found, [TINY], parts, experiment="tiny")
    compare.save(document, comparison_report.markdown(found, [TINY]), tmp_path)
    assert json.loads((tmp_path / "rows.json").read_text())["rows"][0]["setting"] == "tiny"
    assert "### Tiny" in (tmp_path / "table.md").read_text()
    comparison_drawing.draw(parts, [TINY], tmp_path / "clients.png")
    assert (tmp_path / "clients.png").read_bytes().startswith(b"\x89PNG")


def test_what_the_paper_prints_is_a_column_where_it_prints_anything(parts):
    found = comparison_report.rows(parts, [TINY])
    assert "printed" in comparison_report.columns(found)
    unprinted = comparison_report.rows(parts, [replace(TINY, paper_says={})])
    named = comparison_report.columns(unprinted)
    assert named == ["method", "accuracy", "worst decile", "rate", "gap"]
    assert len(comparison_report.cells(unprinted[0], named)) == 5
    assert "printed" not in comparison_report.markdown(unprinted, [TINY])


def test_a_panel_begins_at_the_lowest_whisker_unless_it_lies_far_below():
    near = [np.full(10, 98.0), np.full(10, 97.0), np.full(10, 95.0)]
    assert client_drawing._left(near, 100) == 94.5
    far = [np.full(10, 98.0), np.full(10, 97.0), np.full(10, 30.0)]
    assert client_drawing._left(far, 100) == 90.5


def test_quick_is_a_fifth():
    assert settings.TABLE1[0].quick.rounds == 60
    assert len(settings.GRID) == 6


def test_a_diverged_model_counts_as_never_right():
    """And is not taken for a client without samples."""
    assert comparison._rows(np.array([[0.5, -np.inf, np.nan]])) == ((0.5, 0.0, None),)


def test_an_optimizer_is_chosen_on_validation_scores(tmp_path, monkeypatch):
    """Every method at the best of its rates; what is finished is read, not trained again."""
    asked = {"seeds": (100,), "rates": (0.1, 0.5), "folder": tmp_path}
    trials = optimizer_choice.try_all([TINY], ("fedavg", "local"), **asked)
    grid = optimizer_choice.optimizers()
    assert [len(trial.valid) for trial in trials] == [len(grid)] * 2
    options = {"momentum": 0.95, "clip": 1.0, "horizon": 30.0}
    best = []
    for rate in asked["rates"]:
        training = study(TINY).training("fedavg", options, rate=rate)
        clients = TINY.federation(100, None)
        run = fedprior.simulate(training.algorithm, clients, **training.arguments, seed=100)
        best.append(np.nanmean(run.valid_scores))
    assert trials[0].valid[grid.index(options)] == pytest.approx(max(best), abs=1e-6)
    # A method without a server has the same score whatever the momentum.
    assert len(set(trials[1].valid)) <= len(optimizer_choice.GRID["clip"])
    rows = optimizer_choice.rows(trials)
    assert rows[0].chosen
    assert rows[0].valid == max(row.valid for row in rows)
    assert sum(row.frozen for row in rows) == 1
    assert "on average" in optimizer_choice.remarks(rows)[0]
    monkeypatch.setattr("fedprior.engines.sweep.train", None)
    assert optimizer_choice.try_all([TINY], ("fedavg", "local"), **asked) == trials
