import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprior.privacy.guarantee import Guarantee, shown

FACTS = {
    "epsilon": 1.5,
    "delta": 0.0,
    "unit": "one group",
    "neighbors": "replace one",
    "trust": "nobody",
    "mechanism": "one randomized bit",
}


def test_says_everything_that_it_rests_on():
    found = Guarantee(**FACTS, noise="secure", bits=1.0)
    text = str(found)
    for part in ("epsilon = 1.5", "one group", "replace one", "trusts nobody", "1 bit per client"):
        assert part in text
    assert "delta" not in text
    assert "operating system" in text
    told = json.loads(json.dumps(found.describe()))
    assert told["valid_for_release"] is True
    assert told["bits"] == 1.0


def test_simulated_noise_is_never_valid_for_release():
    found = Guarantee(**{**FACTS, "delta": 1e-5}, noise="simulated")
    assert "not valid for release" in str(found)
    assert "delta = 1e-05" in str(found)
    assert found.describe()["valid_for_release"] is False
    assert "bits" not in str(found)
    assert "64 bits per client" in str(Guarantee(**FACTS, noise="simulated", bits=64.0))


def test_refusals():
    with pytest.raises(ValueError, match="epsilon must be a positive"):
        Guarantee(**{**FACTS, "epsilon": 0.0}, noise="secure")
    with pytest.raises(ValueError, match="delta must be in"):
        Guarantee(**{**FACTS, "delta": 1.0}, noise="secure")
    with pytest.raises(ValueError, match="noise must be one of"):
        Guarantee(**FACTS, noise="secret")


@given(st.floats(1e-6, 1e6), st.integers(3, 6))
def test_a_figure_that_is_shown_holds(epsilon, digits):
    """Never below what it shows, and no further above than its last digit."""
    figure = float(shown(epsilon, digits=digits))
    assert epsilon * (1 - 1e-11) <= figure <= epsilon * (1 + 10.0 ** (1 - digits))
