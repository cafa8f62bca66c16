"""One toy algorithm and one small federation for all tests of the engines."""

import pytest
from toys import averaging, points


@pytest.fixture(scope="session")
def toy():
    return averaging()


@pytest.fixture(scope="session")
def plane():
    return points()
