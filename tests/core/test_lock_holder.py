"""Who owns a folder, asked without touching its lock."""

import os
import subprocess
import sys

from fedprior.core import lock


def test_the_owner_is_named_while_it_owns(tmp_path):
    folder = tmp_path / "run"
    assert lock.holder(folder) is None
    with lock.owned(folder):
        assert lock.holder(folder) == os.getpid()
    assert lock.holder(folder) is None


def test_a_killed_owner_is_none(tmp_path):
    script = (
        "import os, signal, sys; from pathlib import Path; from fedprior.core import lock\n"
        "with lock.owned(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    folder = tmp_path / "run"
    subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    assert (folder / lock.NAME).is_file()
    assert lock.holder(folder) is None


def test_what_is_not_a_process_is_none(tmp_path):
    (tmp_path / lock.NAME).write_text("")
    assert lock.holder(tmp_path) is None
