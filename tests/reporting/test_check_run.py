"""What is said before a run begins."""

import pytest

from fedprior.core.check import PrivacyError
from fedprior.reporting.config import read
from fedprior.reporting.train import check_run


def test_a_method_that_python_warns_of_is_told_in_one_plain_line():
    changes = ['methods=["mixture-clustering", "fedavg"]', "model.name=logistic"]
    _, remarks = check_run(read(None, changes))
    assert len(remarks) == 1
    assert remarks[0].startswith("mixture-clustering: clusters thetas that are already shrunk")
    assert "\n" not in remarks[0]


def test_a_channel_that_does_not_fit_is_refused_before_a_folder_is_made():
    private = ["privacy.epsilon=10", "privacy.delta=1e-3", "privacy.noise_multiplier=2"]
    plain = [*private, "model.name=logistic"]
    with pytest.raises(PrivacyError, match=r"must be Identity\(\) for mixture-clustering"):
        check_run(read(None, [*plain, 'methods=["mixture-clustering"]']))
    full = ['methods=["clustered"]', 'options.clustered.curvature="full"']
    with pytest.raises(PrivacyError, match="must be clear for clustered as it is set"):
        check_run(read(None, [*plain, *full]))


def test_a_cohort_that_secure_sums_cannot_hold_is_refused_before_a_folder_is_made(monkeypatch):
    monkeypatch.setattr("fedprior.privacy.secure._MOST_CLIENTS", 29)  # of 30 at most in a round
    changes = ["privacy.epsilon=10", "privacy.delta=1e-3", "privacy.noise_multiplier=2"]
    changes += ["privacy.noise=secure", "model.name=logistic", 'methods=["fedavg"]']
    with pytest.raises(ValueError, match=r"cohort size must be at most 29, .* got 30. Lower"):
        check_run(read(None, changes))
