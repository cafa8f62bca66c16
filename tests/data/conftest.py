import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data_root():
    """The folder of real data, or a skip that says why."""
    given = os.environ.get("FEDPRIOR_DATA")
    root = Path(given) if given else ROOT.parent / "shared" / "data"
    if not (root / "mnist").is_dir():
        pytest.skip("real data: set FEDPRIOR_DATA, or put it in ../shared/data")
    return root
