"""Costs of deployments that the simulator does not run, against the errata and closed forms."""

import math

import numpy as np
import pytest

from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.deployments import (
    distributed_noise,
    hidden_steps,
    seen_uploads,
    step_noise,
)
from fedprior.privacy.events import gaussian


def test_distributed_noise_adds_up_to_the_central_one():
    found = distributed_noise(
        noise_multiplier=2.0, clip=0.5, cohort_size=25, missing=9, rounds=3, delta=1e-5
    )
    assert math.sqrt(16) * found.scale == pytest.approx(2.0 * 0.5)
    central = epsilon([(gaussian(2.0), 3)], delta=1e-5, relation="replace-one")
    assert found.epsilon == pytest.approx(central)
    with pytest.raises(PrivacyError, match="Somebody has to add the noise"):
        distributed_noise(
            noise_multiplier=2.0, clip=0.5, cohort_size=5, missing=5, rounds=3, delta=1e-5
        )


@pytest.mark.parametrize(
    ("claimed", "noise", "once", "often"),
    [(1, 13.38, 1.6, 23.9), (3, 5.07, 5.0, 103), (10, 1.85, 17.8, 578)],
)
def test_the_server_that_sees_uploads(claimed, noise, once, often):
    """ERRATA 51 and 3.4: tau = 10 noises of sigma_q on a step of clip C_1, all of one upload."""
    upload = {"scale": math.sqrt(10) * noise, "clip": 10.0, "delta": 1e-4}
    assert seen_uploads(**upload, participations=1) == pytest.approx(once, rel=0.03)
    assert seen_uploads(**upload, participations=80) == pytest.approx(often, rel=0.02)
    assert seen_uploads(**upload, participations=1) > claimed


def test_noise_inside_the_trajectory_hides_less():
    assert hidden_steps(10, 22) == pytest.approx(100 / 22)
    assert hidden_steps(10, 1) == pytest.approx(10)  # one upload: every step by itself
    setting = {"scale": 13.38, "clip": 1.0, "local_steps": 10, "rounds": 240, "delta": 1e-4}
    whole = step_noise(**setting, cohort_size=22)
    alone = step_noise(**setting, cohort_size=1)
    assert 1 < whole < alone
    rho = 240 * 4 / (2 * 13.38**2) * 100 / 22
    best = min(
        rho * a + math.log1p(-1 / a) - (math.log(1e-4) + math.log(a)) / (a - 1)
        for a in np.linspace(1.001, 20, 20_000)
    )
    assert whole == pytest.approx(best, rel=1e-3)
    one_sided = step_noise(**setting, cohort_size=22, zero_out=True)
    assert one_sided < whole
