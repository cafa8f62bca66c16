"""The noise of each client under secure aggregation, against the central mechanism."""

import math

import pytest

from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.deployments import distributed_noise
from fedprior.privacy.events import gaussian


def test_distributed_noise_adds_up_to_the_central_one():
    found = distributed_noise(
        noise_multiplier=2.0, clip=0.5, cohort_size=25, missing=9, rounds=3, delta=1e-5
    )
    assert math.sqrt(16) * found.scale == pytest.approx(2.0 * 0.5)
    central = epsilon([(gaussian(2.0), 3)], delta=1e-5, relation="replace-one")
    assert found.epsilon == pytest.approx(central)
    # If nobody is missing, all 25 shares are in the sum.
    assert math.sqrt(25) * found.scale == pytest.approx(found.complete_noise_multiplier * 0.5)
    complete = epsilon([(gaussian(2.5), 3)], delta=1e-5, relation="replace-one")
    assert found.complete_epsilon == pytest.approx(complete)
    with pytest.raises(PrivacyError, match="At least one client has to add noise"):
        distributed_noise(
            noise_multiplier=2.0, clip=0.5, cohort_size=5, missing=5, rounds=3, delta=1e-5
        )
