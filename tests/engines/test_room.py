"""Work is cut until it fits into the memory that is there, and its results stay the same."""

import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import averaging, points

import fedprior
from fedprior.engines import device, evaluate, room, trainings
from fedprior.engines import sweep as sweeps

RUN = {"rounds": 3, "cohort": fedprior.FixedSize(size=4)}


def full(*_, **__):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")


def test_there_is_some_memory_and_a_program_needs_what_it_makes():
    assert room.there() > 2**20
    program = jax.jit(lambda x: jnp.sort(x) @ x.T)
    x = np.ones((300, 200), np.float32)
    assert room.needed(program, x) >= 300 * 300 * 4


def test_a_limit_of_the_process_is_kept_to(monkeypatch):
    resource = pytest.importorskip("resource")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    taken = pages * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (taken + 2**28, resource.RLIM_INFINITY))
    assert 0 < room.there() <= 2**28


def test_compiled_programs_are_released_after_many(monkeypatch):
    monkeypatch.setattr(room, "_KEPT", 3)
    monkeypatch.setattr(room, "_known", {})
    traced = []

    def double(x):
        traced.append(x.shape)
        return 2 * x

    program = jax.jit(double)
    for length in (1, 2, 3, 1, 4, 1):
        np.testing.assert_array_equal(room.call(program, np.ones(length)), np.full(length, 2.0))
    assert traced == [(1,), (2,), (3,), (4,), (1,)]  # the fourth program released the first
    assert len(room._known) == 2


def test_a_program_that_does_not_fit_is_refused_before_it_runs(monkeypatch):
    monkeypatch.setattr(room, "there", lambda: 1000)
    with pytest.raises(room.TooLarge, match="Use smaller batches") as caught:
        room.call(jax.jit(lambda x: x + 1), np.ones(1000, np.float32))
    assert caught.value.ratio == pytest.approx(1 / 4)


def test_a_thread_waits_until_another_has_finished(monkeypatch):
    monkeypatch.setattr(room, "there", lambda: 1000)
    order, second = [], threading.Event()

    def later():
        second.set()
        with room.holding(600):
            order.append("second")

    with room.holding(600):
        thread = threading.Thread(target=later)
        thread.start()
        second.wait()
        with room.holding(300):  # fits beside the first
            order.append("first")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    ("number", "error", "next_"),
    [
        (8, room.TooLarge(800, 300), 3),
        (8, room.TooLarge(800, 700), 4),
        (8, room.TooLarge(800, -5), 1),
        (5, jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: full"), 2),
    ],
)
def test_the_next_attempt_is_what_fits_and_at_most_half(number, error, next_):
    assert room.smaller(number, error) == next_


@pytest.mark.parametrize(
    ("number", "error"),
    [(1, room.TooLarge(2, 1)), (8, jax.errors.JaxRuntimeError("INTERNAL: else"))],
)
def test_what_cannot_be_mended_is_raised(number, error):
    with pytest.raises(type(error), match=str(error)[:8]):
        room.smaller(number, error)


def test_chunks_shrink_and_every_client_is_done_once():
    lengths = []

    def work(clients):
        lengths.append(len(clients))
        return clients if len(clients) < 5 else full()

    done = list(room.in_chunks(10, 8, work))
    assert lengths == [8, 4, 4, 4]
    np.testing.assert_array_equal(np.concatenate([own for own, _ in done]), np.arange(10))
    assert all(len(part) == 4 for _, part in done)  # padded: one shape, one program


@pytest.mark.parametrize("size", [4, 5])
def test_a_run_that_does_not_fit_trains_fewer_clients_together(size, monkeypatch):
    run = {"rounds": 3, "cohort": fedprior.FixedSize(size=size)}
    whole = fedprior.simulate(averaging(), points(), **run)
    monkeypatch.setattr(room, "there", lambda: 10**9)
    rules, attempts = [], device._compiled

    class Large:  # which fits with 2 clients together
        lower = attempts.lower

        def __call__(self, *given, **named):
            rules.append(named["rules"].at_once)
            return full() if named["rules"].at_once not in (1, 2) else attempts(*given, **named)

    monkeypatch.setattr(device, "_compiled", Large())
    cut = fedprior.simulate(averaging(), points(), **run)
    assert rules[:2] == [None, 2]
    assert set(rules[1:]) == {2}
    np.testing.assert_allclose(cut.scores, whole.scores, atol=1e-6)


def test_evaluation_that_does_not_fit_takes_fewer_clients(monkeypatch):
    whole = fedprior.simulate(averaging(), points(), **RUN)
    seen, program = [], evaluate._score

    class Large:
        lower = program.lower

        def __call__(self, thetas, *given, **named):
            seen.append(len(thetas["own"]))
            return full() if seen[-1] > 3 else program(thetas, *given, **named)

    monkeypatch.setattr(evaluate, "_score", Large())
    kept = []
    cut = fedprior.simulate(
        averaging(), points(), keep=lambda count, thetas: kept.append(count), **RUN
    )
    assert (max(seen), kept) == (6, [3, 3])
    np.testing.assert_allclose(cut.scores, whole.scores, atol=1e-6)


def test_a_sweep_that_does_not_fit_trains_fewer_points_then_seeds_then_clients(monkeypatch):
    sought = {"over": {"rate": [0.1, 0.2, 0.5]}, "seeds": 2, **RUN}

    def build(rate):
        return averaging(rate=rate)

    whole = fedprior.sweep(build, points(), **sought)
    tried, program = [], trainings._advance

    class Large:
        lower = program.lower

        def __call__(self, models, *given, **named):
            tried.append((*models.enrolled.shape[:2], named["at_once"]))
            return full() if tried[-1] > (1, 1, 2) else program(models, *given, **named)

    monkeypatch.setattr(sweeps, "together", lambda *_: (3, 2))
    monkeypatch.setattr(trainings, "_advance", Large())
    cut = fedprior.sweep(build, points(), **sought)
    assert list(dict.fromkeys(tried)) == [(3, 2, 4), (1, 2, 4), (1, 1, 4), (1, 1, 2)]
    np.testing.assert_allclose(cut.valid, whole.valid, atol=1e-6)
    np.testing.assert_allclose(cut.scores, whole.scores, atol=1e-6)


def test_samples_leave_the_device_once_seeds_are_grouped_anew(monkeypatch):
    largest, program = [], trainings._advance

    class Large:  # which fits with the samples of one seed
        lower = program.lower

        def __call__(self, models, numbers, data, *given, **named):
            alike = [each for each in jax.live_arrays() if each.shape[1:] == data.x.shape[1:]]
            largest.append(max(len(each) for each in alike))
            return full() if len(data.x) > 1 else program(models, numbers, data, *given, **named)

    monkeypatch.setattr(sweeps, "together", lambda *_: (1, 2))
    monkeypatch.setattr(trainings, "_advance", Large())
    found = fedprior.sweep(
        lambda rate: averaging(rate=rate), points(5), over={"rate": [0.1]}, seeds=2, **RUN
    )
    assert largest[0] == 2
    assert set(largest[1:]) == {1}
    assert found.valid.shape == (1, 2, 5)


def test_the_compilers_figures_decide_before_anything_runs(monkeypatch):
    whole = fedprior.simulate(averaging(), points(), **RUN)
    seen, program = [], evaluate._personalize

    class Counted:
        lower = program.lower

        def __call__(self, *given, **named):
            seen.append(len(given[4]))
            return program(*given, **named)

    def needed(program, *given, **static):
        return 100 * len(given[4]) if isinstance(program, Counted) else 0

    monkeypatch.setattr(evaluate, "_personalize", Counted())
    monkeypatch.setattr(room, "needed", needed)
    monkeypatch.setattr(room, "there", lambda: 250)
    cut = fedprior.simulate(averaging(), points(), **RUN)
    assert seen == [2, 2, 2]  # 6 clients would need 600 bytes
    np.testing.assert_allclose(cut.scores, whole.scores, atol=1e-6)


@pytest.mark.parametrize("every", [None, 2])
def test_a_run_whose_models_are_lost_goes_on(every, monkeypatch, tmp_path):
    """Memory runs out once round 3 is running: then XLA has taken over what was donated."""
    run = {"rounds": 5, "cohort": fedprior.FixedSize(size=4)}
    whole = fedprior.simulate(averaging(), points(), **run)
    rounds, program = [], device._compiled

    class Large:
        lower = program.lower

        def __call__(self, models, *given, **named):
            first, count = given[3:5]
            rounds.append((first, count, named["rules"].at_once))
            if first + count > 3 and named["rules"].at_once != 2:
                jax.tree.map(lambda leaf: leaf.delete(), models)
                full()
            return program(models, *given, **named)

    monkeypatch.setattr(device, "_compiled", Large())
    saving = every and fedprior.Saving(folder=tmp_path, every=every)
    cut = fedprior.simulate(averaging(), points(), evaluate_every=1, saving=saving, **run)
    again = rounds[rounds.index((3, 1, None)) + 1 :]
    assert again[0] == ((2, 1, 2) if every else (0, 3, 2))
    assert [len(cut.history), *("valid" in entry for entry in cut.history[:4])] == [5, *4 * [True]]
    np.testing.assert_allclose(cut.scores, whole.scores, atol=1e-6)
    np.testing.assert_allclose(cut.state["gamma"], whole.state["gamma"], atol=1e-6)


@pytest.mark.parametrize(
    "error", [ValueError("RESOURCE_EXHAUSTED: Out of memory"), np.exceptions.AxisError("else")]
)
def test_memory_runs_out_in_many_words(error):
    """JAX raises a ValueError where it makes slices; NumPy has an error of its own."""
    assert room.is_exhausted(error) == ("RESOURCE" in str(error))
    assert room.is_exhausted(MemoryError("Unable to allocate 2 GiB"))
