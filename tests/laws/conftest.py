"""Every method, one after the other: all laws of a method share its compiled programs."""

import pytest
from law_cases import NAMES, algorithm_of, small_federation


@pytest.fixture(scope="session", params=NAMES)
def algorithm(request):
    return algorithm_of(request.param)


@pytest.fixture(scope="session")
def small():
    return small_federation()
