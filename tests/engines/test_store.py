"""DiskStore against a dictionary, with crashes at every point of a checkpoint."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.engines.store import DeviceStore, DiskStore

NUM_CLIENTS = 7
SHAPE = {
    "w": jax.ShapeDtypeStruct((3,), jnp.float32),
    "step": jax.ShapeDtypeStruct((), jnp.int32),
    "rule": (jax.ShapeDtypeStruct((2, 1), jnp.bfloat16), jax.ShapeDtypeStruct((), jnp.bool_)),
}


def rows(values):
    """Memories that are a function of one number a client."""
    values = np.asarray(values)
    return {
        "w": np.stack([values, -values, values / 3], axis=1).astype(np.float32),
        "step": values.astype(np.int32),
        "rule": (
            np.asarray(jnp.asarray(values)[:, None, None] * jnp.ones((1, 2, 1)), jnp.bfloat16),
            values % 2 == 1,
        ),
    }


def check_against(store, oracle):
    """Every client's memory is what the oracle says; the others are not enrolled."""
    everyone = np.arange(NUM_CLIENTS)[::-1]
    memories, enrolled = store.read(everyone)
    np.testing.assert_array_equal(enrolled, [client in oracle for client in everyone])
    wanted = rows([oracle.get(client, 0) for client in everyone])
    for found, leaf in zip(jax.tree.leaves(memories), jax.tree.leaves(wanted), strict=True):
        assert found.dtype == leaf.dtype
        np.testing.assert_array_equal(found[enrolled], leaf[enrolled])


class Crashing(DiskStore):
    """Copies its folder at each point of `settle`: what a crash there would leave behind."""

    copies = None  # where the copies go, while somebody wants them

    def _copy(self):
        if self.copies is not None:
            target = self.copies[0] / f"crash-{len(self.copies)}"
            self.copies.append(shutil.copytree(self.folder, target))

    def _apply(self, journal, length):
        self._copy()
        record = 8 + self._row
        super()._apply(journal, length // record // 2 * record)
        self._copy()
        super()._apply(journal, length)
        self._copy()

    def _begin(self, generation):
        super()._begin(generation)
        self._copy()


def checkpoint_with_crashes(store, checkpoint, saved, oracle, scratch):
    """seal, write the checkpoint, settle; what a crash at each point leaves is what was saved."""
    names = {"shape": SHAPE, "num_clients": NUM_CLIENTS}
    sealed = store.seal()
    if checkpoint is not None:
        before = shutil.copytree(store.folder, scratch / "sealed")
        check_against(DiskStore.restore(before, **names, **checkpoint), saved)
    store.copies = [scratch]
    store.settle()
    store._copy()
    copies, store.copies = store.copies[1:], None
    for folder in copies:
        for _ in range(2):  # and a second crash right after the first resume
            check_against(DiskStore.restore(folder, **names, **sealed), oracle)
        assert len(list(folder.glob("journal-*.bin"))) == 1
    assert len(copies) == 5
    return sealed


OPERATIONS = st.lists(
    st.one_of(
        st.sets(st.integers(0, NUM_CLIENTS - 1), min_size=1),
        st.sampled_from(["checkpoint", "crash"]),
    ),
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(operations=OPERATIONS)
def test_a_disk_store_is_a_dictionary(tmp_path_factory, operations):
    """Writes, checkpoints and crashes in any order."""
    root = tmp_path_factory.mktemp("store")
    store = Crashing.create(root / "memory", SHAPE, NUM_CLIENTS)
    oracle, saved, checkpoint = {}, {}, None
    for number, operation in enumerate(operations):
        if operation == "checkpoint":
            scratch = root / str(number)
            scratch.mkdir()
            checkpoint = checkpoint_with_crashes(store, checkpoint, saved, oracle, scratch)
            saved = dict(oracle)
        elif operation == "crash":
            if checkpoint is None:
                store = Crashing.create(root / "memory", SHAPE, NUM_CLIENTS)
            else:
                store = Crashing.restore(root / "memory", SHAPE, NUM_CLIENTS, **checkpoint)
            oracle = dict(saved)
        else:
            clients = np.array(sorted(operation), np.int32)
            values = clients + 10 * number + 1
            store.write(clients, rows(values))
            oracle.update(zip(clients.tolist(), values.tolist(), strict=True))
        check_against(store, oracle)


def test_a_row_takes_space_from_its_first_participation(tmp_path):
    """A million clients of 4 KB each, three of whom came."""
    shape = {"w": jax.ShapeDtypeStruct((1024,), jnp.float32)}
    store = DiskStore.create(tmp_path, shape, 1_000_000)
    clients = np.array([0, 500_000, 999_999], np.int32)
    store.write(clients, {"w": np.ones((3, 1024), np.float32)})
    store.seal()
    store.settle()
    status = (tmp_path / "rows.bin").stat()
    assert status.st_size > 4_000_000_000
    assert status.st_blocks * 512 < 1_000_000
    memories, enrolled = store.read(np.array([1, 500_000], np.int32))
    np.testing.assert_array_equal(enrolled, [False, True])
    np.testing.assert_array_equal(memories["w"][1], 1)


def test_leftovers_are_discarded(tmp_path):
    """Journals after the checkpoint, and all that stood in the folder of a new store."""
    store = DiskStore.create(tmp_path, SHAPE, NUM_CLIENTS)
    one = np.array([2], np.int32)
    store.write(one, rows([5]))
    sealed = store.seal()
    store.settle()
    store.write(one, rows([6]))  # after the checkpoint: lost with the crash
    (tmp_path / "journal-99.bin").write_bytes(b"left over")
    store = DiskStore.restore(tmp_path, SHAPE, NUM_CLIENTS, **sealed)
    check_against(store, {2: 5})
    (left,) = tmp_path.glob("journal-*.bin")
    assert left.stat().st_size == 0
    check_against(DiskStore.create(tmp_path, SHAPE, NUM_CLIENTS), {})


def test_without_a_folder_nothing_stays_behind():
    store = DiskStore.create(None, SHAPE, NUM_CLIENTS)
    folder = store.folder
    store.write(np.array([0], np.int32), rows([1]))
    check_against(store, {0: 1})
    del store
    assert not folder.exists()


def test_a_store_of_other_memories_is_refused(tmp_path):
    store = DiskStore.create(tmp_path, SHAPE, NUM_CLIENTS)
    store.write(np.array([0], np.int32), rows([1]))
    sealed = store.seal()
    store.settle()
    with pytest.raises(ValueError, match=r"rows.bin must hold \d+ bytes, got \d+"):
        DiskStore.restore(tmp_path, SHAPE, NUM_CLIENTS + 1, **sealed)
    check_against(DiskStore.restore(tmp_path, SHAPE, NUM_CLIENTS, **sealed), {0: 1})


def test_rows_that_vanished_are_refused(tmp_path):
    """A row file of the right size with nothing in it, where clients had come."""
    store = DiskStore.create(tmp_path, SHAPE, NUM_CLIENTS)
    store.write(np.array([0], np.int32), rows([1]))
    sealed = store.seal()
    store.settle()
    size = (tmp_path / "rows.bin").stat().st_size
    with (tmp_path / "rows.bin").open("wb") as file:
        file.truncate(size)
    with pytest.raises(
        ValueError, match=r"rows.bin must contain the clients' memories, got an empty"
    ):
        DiskStore.restore(tmp_path, SHAPE, NUM_CLIENTS, **sealed)


def test_both_stores_read_alike(tmp_path):
    disk = DiskStore.create(tmp_path, SHAPE, NUM_CLIENTS)
    clients = np.array([1, 4], np.int32)
    disk.write(clients, rows([3, 8]))
    memories, enrolled = disk.read(np.arange(NUM_CLIENTS))
    device = DeviceStore(jax.tree.map(jnp.asarray, memories), jnp.asarray(enrolled))
    check_against(device, {1: 3, 4: 8})
    assert not DeviceStore.empty(SHAPE, NUM_CLIENTS).enrolled.any()


def flip(path, place, mask=16):
    content = bytearray(path.read_bytes())
    content[place] ^= mask
    path.write_bytes(content)


def test_a_changed_byte_of_a_row_is_refused_when_the_row_is_read(tmp_path):
    """Of the row that has it, and of no other; holes of the file take no part."""
    store = DiskStore.create(tmp_path, SHAPE, NUM_CLIENTS)
    store.write(np.array([1, 2], np.int32), rows([5, 6]))
    store.seal()
    store.settle()
    for place in range(store._row, 2 * store._row):
        flip(tmp_path / "rows.bin", place)
        with pytest.raises(ValueError, match=r"rows.bin is damaged: the checksum of .* client 1"):
            store.read(np.array([1]))
        assert store.read(np.array([0, 2]))[1].tolist() == [False, True]
        flip(tmp_path / "rows.bin", place)
    check_against(store, {1: 5, 2: 6})


def test_a_row_of_another_client_is_refused(tmp_path):
    store = DiskStore.create(tmp_path, SHAPE, NUM_CLIENTS)
    store.write(np.array([1, 2], np.int32), rows([5, 6]))
    store.seal()
    store.settle()
    content, size = bytearray((tmp_path / "rows.bin").read_bytes()), store._row
    content[size : 2 * size] = content[2 * size : 3 * size]
    (tmp_path / "rows.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"rows.bin is damaged: .* client 1"):
        store.read(np.array([1]))


def test_a_changed_byte_of_a_journal_is_refused(tmp_path):
    """When a run is resumed from it; all bytes of it count."""
    store = DiskStore.create(tmp_path / "whole", SHAPE, NUM_CLIENTS)
    store.write(np.array([3], np.int32), rows([7]))
    sealed = store.seal()
    for place in range(sealed["length"]):
        copy = shutil.copytree(tmp_path / "whole", tmp_path / "copy")
        flip(copy / "journal-0.bin", place)
        with pytest.raises(ValueError, match=r"journal-0.bin is damaged"):
            DiskStore.restore(copy, SHAPE, NUM_CLIENTS, **sealed)
        shutil.rmtree(copy)
