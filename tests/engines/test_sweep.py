"""A sweep is the trainings that it stands for; it chooses on validation and can be resumed."""

from dataclasses import replace

import numpy as np
import pytest
from toys import averaging, points

import fedprior
from fedprior.core import check
from fedprior.engines import grid
from fedprior.engines import sweep as module
from fedprior.engines.book import Book

RUN = {"rounds": 3, "cohort": fedprior.FixedSize(size=3)}
OVER = {"rate": [0.02, 0.5]}


def build(*, rate, weight="uniform", **ignored):
    check.fraction("averaging", rate=rate)
    return averaging(rate=rate, weight=weight)


def drawn(seed):
    clients = points()
    return replace(clients, train=replace(clients.train, x=clients.train.x + seed))


@pytest.fixture(scope="module")
def found():
    """All trainings side by side, as on an accelerator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "together", lambda *_: (2, 2))
        return fedprior.sweep(build, drawn, over=OVER, seeds=2, **RUN)


def test_every_training_is_the_one_that_simulate_runs(found):
    for seed in (0, 1):
        alone = fedprior.simulate(build(rate=0.5), drawn(seed), seed=seed, **RUN)
        np.testing.assert_allclose(found.valid[1, seed], alone.valid_scores, atol=1e-6)


def test_test_scores_are_those_of_the_point_with_the_best_validation(found):
    means = found.valid.mean(axis=(1, 2))
    assert found.best == np.argmax(means)
    assert found.chosen == {"rate": OVER["rate"][found.best]}
    alone = fedprior.simulate(build(**found.chosen), drawn(1), seed=1, **RUN)
    np.testing.assert_allclose(found.scores[1], alone.scores, atol=1e-6)


def test_rows_hold_a_test_score_only_where_it_was_chosen(found):
    rows = found.rows()
    assert [(row["rate"], row["seed"]) for row in rows] == [
        (r, s) for r in OVER["rate"] for s in (0, 1)
    ]
    assert all((row["test"] is not None) == row["chosen"] for row in rows)
    assert sum(row["chosen"] for row in rows) == 2


def test_a_sweep_has_the_histories_of_its_trainings(found):
    alone = fedprior.simulate(build(rate=0.5), drawn(1), seed=1, **RUN)
    assert set(found.history) == set(alone.history[0])
    for name, values in found.history.items():
        assert values.shape == (2, 2, RUN["rounds"])
        expected = [entry[name] for entry in alone.history]
        np.testing.assert_allclose(values[1, 1], expected, rtol=1e-5)


def test_a_sweep_has_channels_whose_noise_differs_between_points(tmp_path):
    """Each training is that of `simulate` under the same identity, noise and cohorts included."""
    channel = fedprior.channels.CentralGaussian(clip=0.5, noise_multiplier=2.0)
    run = {"rounds": 2, "cohort": fedprior.Poisson(rate=0.5), "channel": channel}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "together", lambda *_: (2, 2))
        swept = fedprior.sweep(build, drawn, over=OVER, seeds=2, identity="study", **run)
    for place, rate in enumerate(OVER["rate"]):
        saving = fedprior.Saving(folder=tmp_path / str(rate), identity=["study", {"rate": rate}])
        alone = fedprior.simulate(build(rate=rate), drawn(1), seed=1, saving=saving, **run)
        np.testing.assert_allclose(swept.valid[place, 1], alone.valid_scores, atol=1e-6)
        levels = [entry["level"] for entry in alone.history]
        np.testing.assert_allclose(swept.history["level"][place, 1], levels, rtol=1e-5)
    secure = {**run, "channel": replace(channel, noise="secure")}
    with pytest.raises(fedprior.PrivacyError, match="noise must be simulated"):
        fedprior.sweep(build, drawn, over=OVER, **secure)


def test_trainings_one_at_a_time_are_the_same(found, monkeypatch):
    monkeypatch.setattr(module, "together", lambda *_: (1, 1))  # as on a CPU
    single = fedprior.sweep(build, drawn, over=OVER, seeds=2, **RUN)
    np.testing.assert_allclose(single.valid, found.valid, atol=1e-6)
    np.testing.assert_allclose(single.scores, found.scores, atol=1e-6)


def test_a_chunk_that_is_too_large_for_the_device_is_halved(found, monkeypatch):
    whole, sizes = module.train, []

    def small(family, numbers, group, **rest):
        sizes.append((len(numbers), len(group.numbers)))
        if len(numbers) * len(group.numbers) > 1:
            raise module.jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return whole(family, numbers, group, **rest)

    monkeypatch.setattr(module, "train", small)
    monkeypatch.setattr(module, "together", lambda *_: (2, 2))
    single = fedprior.sweep(build, drawn, over=OVER, seeds=2, **RUN)
    assert sizes[:3] == [(2, 2), (1, 2), (1, 1)]
    np.testing.assert_allclose(single.valid, found.valid, atol=1e-6)


def test_a_sweep_goes_on_from_its_finished_points(found, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "together", lambda *_: (1, 1))
    whole, trained = module.train, []

    def cut(family, numbers, group, **rest):
        trained.append((numbers[0]["rate"], group.numbers[0]))
        if len(trained) == 4:
            raise KeyboardInterrupt
        return whole(family, numbers, group, **rest)

    monkeypatch.setattr(module, "train", cut)
    arguments = {"over": OVER, "seeds": 2, "folder": tmp_path, **RUN}
    with pytest.raises(KeyboardInterrupt):
        fedprior.sweep(build, drawn, **arguments)
    again = fedprior.sweep(build, drawn, **arguments)
    assert trained[:4] == [(0.02, 0), (0.02, 1), (0.5, 0), (0.5, 1)]
    assert trained[4:6] == [(0.5, 0), (0.5, 1)]
    np.testing.assert_allclose(again.valid, found.valid, atol=1e-6)
    np.testing.assert_allclose(again.scores, found.scores, atol=1e-6)
    number = len(trained)
    np.testing.assert_array_equal(fedprior.sweep(build, drawn, **arguments).scores, again.scores)
    assert len(trained) == number  # all of it was read back
    with pytest.raises(ValueError, match="configuration must be the one"):
        fedprior.sweep(build, drawn, **{**arguments, "rounds": 4})


def test_the_choice_stands_when_its_models_are_trained_again(found, monkeypatch, tmp_path):
    """A sweep cut short after its last point: other rounding must not choose another point."""
    arguments = {"over": OVER, "seeds": 2, "folder": tmp_path, **RUN}
    monkeypatch.setattr(module, "_tested", cut := _Cut())
    with pytest.raises(KeyboardInterrupt):
        fedprior.sweep(build, drawn, **arguments)
    monkeypatch.setattr(module, "_tested", cut.whole)
    whole = module.scores

    def worse(family, point, thetas, seeds, part, metric):
        return whole(family, point, thetas, seeds, part, metric) - 1 * (part == "valid")

    monkeypatch.setattr(module, "scores", worse)
    again = fedprior.sweep(build, drawn, **arguments)
    np.testing.assert_allclose(again.valid, found.valid, atol=1e-6)
    np.testing.assert_allclose(again.scores, found.scores, atol=1e-6)


class _Cut:
    whole = staticmethod(module._tested)

    def __call__(self, *_):
        raise KeyboardInterrupt


@pytest.mark.parametrize("part", ["train", "valid"])
def test_other_data_of_the_same_shape_are_refused(tmp_path, part):
    arguments = {"over": OVER, "folder": tmp_path, **RUN}
    clients = drawn(0)
    fedprior.sweep(build, clients, **arguments)
    split = getattr(clients, part)
    other = replace(clients, **{part: replace(split, x=split.x + 1)})
    with pytest.raises(ValueError, match="configuration must be the one"):
        fedprior.sweep(build, other, **arguments)


def test_other_judges_who_choose_another_point_get_its_test_scores(tmp_path):
    clients = drawn(0)
    turned = np.array([2, 1, 0, 3, 4, 5])  # the first client is judged by samples of the third
    valid = replace(
        clients.valid, start=clients.valid.start[turned], size=clients.valid.size[turned]
    )
    clients = replace(clients, valid=valid)
    everybody = fedprior.sweep(build, clients, over=OVER, folder=tmp_path, **RUN)
    resumed = fedprior.sweep(build, clients, over=OVER, folder=tmp_path, judges=1, **RUN)
    first = fedprior.sweep(build, clients, over=OVER, judges=1, **RUN)
    assert resumed.best == first.best != everybody.best
    np.testing.assert_array_equal(resumed.scores, first.scores)


def test_equal_means_are_a_tie_however_they_are_added():
    book = Book.__new__(Book)
    book.done, book.judges = np.ones(2, bool), None
    book.valid = np.array([[[0.1, 0.2, 0.3]], [[0.3, 0.2, 0.1]]])
    book.valid[1, 0, 0] += 1e-16
    assert book.best == 0


def test_a_tie_goes_to_the_point_that_was_named_first():
    tied = fedprior.sweep(
        build, drawn, over={"rate": [0.1], "nothing": [0.0, 1.0]}, test=False, **RUN
    )
    assert tied.valid[0].mean() == tied.valid[1].mean()
    assert tied.best == 0
    assert tied.scores.size == 0


def test_a_sweep_is_blind_to_the_test_samples():
    clients = drawn(0)
    blind = replace(clients, test=replace(clients.test, x=np.full_like(clients.test.x, np.nan)))
    seen = [fedprior.sweep(build, each, over=OVER, **RUN) for each in (clients, blind)]
    np.testing.assert_array_equal(seen[0].valid, seen[1].valid)
    assert seen[0].best == seen[1].best
    assert not np.array_equal(seen[0].scores, seen[1].scores)


def test_numbers_share_a_program_and_whole_numbers_do_not():
    chosen = {"rate": [0.1, 0.2], "weight": ["uniform", "samples"], "nothing": [1]}
    split = grid.families(build, grid.points(chosen))
    assert [dict(family.fixed) for family in split] == [
        {"weight": "uniform", "nothing": 1},
        {"weight": "samples", "nothing": 1},
    ]
    assert [[place for place, _ in members] for members in split.values()] == [[0, 2], [1, 3]]


def test_progress_counts_trainings(monkeypatch):
    heard = []
    fedprior.sweep(
        build, drawn, over=OVER, test=False, progress=lambda *told: heard.append(told), **RUN
    )
    assert heard[-1] == (2.0, 2)
    assert heard == sorted(heard)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"over": {"rate": []}}, "rate must be a list of at least one value"),
        ({"over": {"rate": [0.1, 0.1]}}, "rate must be a list of distinct values"),
        ({"over": {"rate": [-0.1]}}, "rate must be in"),
        ({"seeds": []}, "seeds must be at least one"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"cohort": fedprior.FixedSize(size=9)}, "at most"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        fedprior.sweep(build, drawn, **{"over": OVER, **RUN, **change})


@pytest.mark.parametrize("size", [1, 3])
def test_options_that_change_the_parts_of_a_state_can_be_swept(monkeypatch, size):
    clients = fedprior.load_dataset("synthetic", num_clients=4, seed=0)
    network = fedprior.models.logistic(clients.shape[0], clients.num_classes)

    def method(momentum):
        return fedprior.learning.optimized(
            fedprior.learning.fedavg, network, momentum=momentum, horizon=2.0
        )

    monkeypatch.setattr(module, "together", lambda *_: (size, 1))
    swept = fedprior.sweep(method, clients, over={"momentum": [0.0, 0.5, 0.9]}, rounds=2)
    for place, point in enumerate(swept.points):
        alone = fedprior.simulate(method(**point), clients, rounds=2)
        np.testing.assert_allclose(swept.valid[place, 0], alone.valid_scores, atol=1e-6)
