import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def real_data():
    """`real_data(name)` is a folder of real data, or a skip that says why."""
    given = os.environ.get("FEDPRIOR_DATA")
    root = Path(given) if given else ROOT.parent / "shared" / "data"

    def folder(name):
        if not (root / name).is_dir():
            pytest.skip(f"real data ({name}): set FEDPRIOR_DATA, or put it in ../shared/data")
        return root / name

    return folder
