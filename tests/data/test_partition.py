import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.data import partition

labels = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(np.array)
seeds = st.integers(0, 1000)


@given(
    y=labels,
    num_clients=st.integers(1, 15),
    concentration=st.sampled_from([1e-300, 1e-6, 0.01, 0.5, 100.0]),
    min_samples=st.integers(0, 4),
    seed=seeds,
)
@settings(max_examples=150, deadline=None)
def test_dirichlet_uses_every_row_once(y, num_clients, concentration, min_samples, seed):
    options = {"num_clients": num_clients, "concentration": concentration, "seed": seed}
    if num_clients * min_samples > len(y):
        with pytest.raises(ValueError, match=r"num_clients \* min_samples must be at most"):
            partition.dirichlet(y, **options, min_samples=min_samples)
        return
    rows = partition.dirichlet(y, **options, min_samples=min_samples)
    assert len(rows) == num_clients
    assert sorted(np.concatenate(rows)) == list(range(len(y)))
    assert min(map(len, rows)) >= min_samples


def test_dirichlet_concentration_is_evenness():
    y = np.repeat(np.arange(10), 200)
    shares = {}
    for concentration in (0.05, 1000.0):
        rows = partition.dirichlet(y, num_clients=10, concentration=concentration, seed=1)
        counts = np.array([np.bincount(y[own], minlength=10) for own in rows])
        shares[concentration] = (counts / counts.sum(axis=1, keepdims=True)).max(axis=1).mean()
    assert shares[1000.0] < 0.2  # near 1/10 each
    assert shares[0.05] > 0.5  # most clients live on one class


@given(seed=seeds, classes_per_client=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_by_classes_draws_few_classes_without_replacement(seed, classes_per_client):
    y = np.arange(300) % 5
    options = {"num_clients": 6, "classes_per_client": classes_per_client, "seed": seed}
    rows, classes = partition.by_classes(y, **options, samples_per_client=40)
    more = partition.of_classes(y, classes=classes, samples_per_client=10, seed=seed)
    for own, kept, extra in zip(rows, classes, more, strict=True):
        assert len(set(own.tolist())) == 40
        assert len(set(kept.tolist())) == classes_per_client
        assert set(y[own]) <= set(kept.tolist())
        assert set(y[extra]) <= set(kept.tolist())
    again, _ = partition.by_classes(y, **options, samples_per_client=40)
    assert all(np.array_equal(*pair) for pair in zip(rows, again, strict=True))


def test_a_client_is_drawn_by_its_own_stream():
    y = np.arange(300) % 5
    few = partition.by_classes(y, num_clients=2, classes_per_client=2, samples_per_client=9, seed=3)
    many = partition.by_classes(
        y, num_clients=7, classes_per_client=2, samples_per_client=9, seed=3
    )
    assert all(np.array_equal(few[0][i], many[0][i]) for i in range(2))


def test_by_classes_errors():
    y = np.arange(20) % 4
    with pytest.raises(ValueError, match="classes_per_client must be at most the 4 classes, got 5"):
        partition.by_classes(y, num_clients=2, classes_per_client=5, samples_per_client=1, seed=0)
    with pytest.raises(ValueError, match="samples_per_client must be at most the 5 rows"):
        partition.by_classes(y, num_clients=2, classes_per_client=1, samples_per_client=6, seed=0)
    with pytest.raises(TypeError, match="num_clients must be a whole number of at least 1"):
        partition.by_classes(y, num_clients=2.0, classes_per_client=1, samples_per_client=6, seed=0)


@given(num_clients=st.integers(1, 40), classes_per_client=st.integers(1, 7), seed=seeds)
@settings(max_examples=50, deadline=None)
def test_balanced_classes(num_clients, classes_per_client, seed):
    sets = partition.balanced_classes(
        7, num_clients=num_clients, classes_per_client=classes_per_client, seed=seed
    )
    assert all(len(set(own.tolist())) == classes_per_client for own in sets)
    held = np.bincount(np.concatenate(sets), minlength=7)
    assert held.max() - held.min() <= 1


@given(num_clients=st.integers(7, 30), classes_per_client=st.integers(1, 7), seed=seeds)
@settings(max_examples=30, deadline=None)
def test_deal_classes_shares_every_row_among_those_who_hold_its_class(
    num_clients, classes_per_client, seed
):
    y = np.arange(7 * 60) % 7
    sets = partition.balanced_classes(
        7, num_clients=num_clients, classes_per_client=classes_per_client, seed=seed
    )
    rows = partition.deal_classes(y, classes=sets, seed=seed)
    assert sorted(np.concatenate(rows)) == list(range(len(y)))
    for own, classes in zip(rows, sets, strict=True):
        assert set(y[own].tolist()) == set(classes.tolist())
    counts = np.array([np.bincount(y[own], minlength=7) for own in rows])
    for label in range(7):
        shares = counts[counts[:, label] > 0, label]
        assert shares.max() - shares.min() <= 1


def test_deal_classes_without_rows_for_everybody():
    sets = [np.array([0])] * 3
    with pytest.raises(ValueError, match="num_clients must be small enough for each client"):
        partition.deal_classes(np.array([0, 0, 1]), classes=sets, seed=0)
    assert len(partition.deal_classes(np.array([0, 0, 0, 1]), classes=sets, seed=0)) == 3


@given(
    num_clients=st.integers(1, 30),
    concentration=st.sampled_from([1e-300, 0.01, 0.1, 1.0, 100.0]),
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_dirichlet_clients_are_of_equal_size_and_disjoint(num_clients, concentration, seed):
    y = np.arange(200) % 5
    rows = partition.dirichlet_clients(
        y, num_clients=num_clients, concentration=concentration, seed=seed
    )
    assert {len(own) for own in rows} == {200 // num_clients}
    together = np.concatenate(rows)
    assert len(set(together.tolist())) == len(together)


def test_dirichlet_clients_have_the_shares_that_they_draw():
    """The largest share, on average; the last clients to draw take what is left."""
    y = np.arange(20_000) % 10
    rows = partition.dirichlet_clients(y, num_clients=40, concentration=0.1, seed=0)
    largest = np.mean([np.bincount(y[own]).max() / len(own) for own in rows])
    draws = np.random.default_rng(0).dirichlet(np.full(10, 0.1), 4000).max(axis=1)
    assert abs(largest - draws.mean()) < 5 * draws.std() / np.sqrt(40)
    even = partition.dirichlet_clients(y, num_clients=40, concentration=1e6, seed=0)
    assert np.median([np.bincount(y[own]).max() for own in even]) < 80  # of 500; expected: 50


@given(ids=st.lists(st.integers(0, 9), min_size=1, max_size=60).map(np.array))
def test_natural_is_one_client_an_id(ids):
    rows = partition.natural(ids)
    assert [set(ids[own]) for own in rows] == [{each} for each in sorted(set(ids.tolist()))]
    assert sorted(np.concatenate(rows)) == list(range(len(ids)))


@given(
    ids=st.lists(st.integers(0, 20), min_size=1, max_size=80).map(np.array),
    ids_per_client=st.integers(1, 5),
    seed=seeds,
)
def test_grouped_natural_keeps_ids_together(ids, ids_per_client, seed):
    rows = partition.grouped_natural(ids, ids_per_client=ids_per_client, seed=seed)
    owners = [set(ids[own].tolist()) for own in rows]
    assert all(len(own) == ids_per_client for own in owners[:-1])
    assert sum(map(len, owners)) == len(set(ids.tolist()))
    assert sorted(np.concatenate(rows)) == list(range(len(ids)))


def test_grouped_natural_takes_some_ids():
    ids = np.arange(100) // 5
    rows = partition.grouped_natural(ids, ids_per_client=3, num_ids=6, seed=0)
    assert [len(own) for own in rows] == [15, 15]
    with pytest.raises(ValueError, match="num_ids must be at most the 20 ids, got 21"):
        partition.grouped_natural(ids, ids_per_client=3, num_ids=21, seed=0)
