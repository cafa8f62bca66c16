"""Files that are whole, owned, and refused by name when they changed."""

import errno
import json
import os
import subprocess
import sys

import pytest

from fedprior.core import files, lock


def test_a_sealed_text_is_read_back_or_refused(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(files.seal("a = 1\nb = 'ä'"))
    assert files.read_sealed(path) == "a = 1\nb = 'ä'\n"
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 8
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"config.toml is damaged or was edited"):
            files.read_sealed(path)
    for changed in (b"", content[:-1], content[:10], content + b"\n"):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"config.toml is damaged or was edited"):
            files.read_sealed(path)


def test_a_json_document_is_read_back_or_refused(tmp_path):
    path, document = tmp_path / "part.json", {"b": [1, None, 0.1], "a": {"ä": True}, "c": 10**20}
    files.write_json(path, document, indent=1)
    assert files.read_json(path) == document
    content, refusals = path.read_bytes(), 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            assert files.read_json(path) == document  # a blank that became another
        except ValueError as error:
            assert "part.json is damaged or was edited" in str(error)  # noqa: PT017
            refusals += 1
    assert refusals > 0.8 * len(content)
    for text in ("[]", "3", "{}", json.dumps(document)):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"part.json is damaged or was edited"):
            files.read_json(path)


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"cannot write: No space left on device: '{path}'"):
        files.write_atomically(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["a.bin"]
    assert path.read_bytes() == b"old"


def test_a_folder_where_a_file_should_be(tmp_path):
    (tmp_path / "a.bin").mkdir()
    with pytest.raises(OSError, match=r"cannot write: Is a directory: '.*a.bin'"):
        files.write_atomically(tmp_path / "a.bin", b"new")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"cannot write: Not a directory: '.*b.bin'"):
        files.write_atomically(tmp_path / "file" / "b.bin", b"new")
    with pytest.raises(OSError, match=r"cannot write: File exists: '.*/file'"):
        files.make_folder(tmp_path / "file" / "folder")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.bin", "file"]


def test_an_owner_is_alone(tmp_path):
    folder = tmp_path / "runs" / "x"
    with lock.owned(folder):
        with (
            pytest.raises(ValueError, match=rf"runs/x is in use by process {os.getpid()}\. Wait"),
            lock.owned(folder),
        ):
            pass
        assert [each.name for each in folder.iterdir()] == [lock.NAME]
    assert list(folder.iterdir()) == []
    with lock.owned(folder):
        pass


def test_a_killed_owner_leaves_the_folder_free(tmp_path):
    """Its lock file stays behind, and is taken over; so are its temporary files."""
    script = (
        "import sys; from pathlib import Path; from fedprior.core import lock\n"
        "with lock.owned(Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(ValueError, match=rf"is in use by process {process.pid}\."),
            lock.owned(tmp_path),
        ):
            pass
        process.kill()
    (tmp_path / "metrics.jsonl.123-456.tmp").write_bytes(b"half")
    (tmp_path / "mine.tmp").write_bytes(b"")
    with lock.owned(tmp_path):
        assert sorted(each.name for each in tmp_path.iterdir()) == [lock.NAME, "mine.tmp"]
    assert [each.name for each in tmp_path.iterdir()] == ["mine.tmp"]
