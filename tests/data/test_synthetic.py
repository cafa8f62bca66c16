import numpy as np
import pytest
from scipy.stats import norm

from fedprior.data import synthetic
from fedprior.data.synthetic import classification


def test_sizes():
    federation = classification(
        num_clients=40, samples_per_client=(3, 9), valid_samples=2, test_samples=0, seed=1
    )
    assert federation.train.size.min() == 3
    assert federation.train.size.max() == 9
    assert (federation.valid.size == 2).all()
    assert (federation.test.size == 0).all()
    assert federation.train.start[-1] + federation.train.size[-1] == len(federation.train.x)
    assert classification(num_clients=3, samples_per_client=7).train.size.tolist() == [7] * 3


def test_files_hold_the_same_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_CHUNK", 3000)  # several blocks of clients
    in_memory = classification(num_clients=50, seed=2)
    on_disk = classification(num_clients=50, seed=2, folder=tmp_path / "new")
    assert isinstance(on_disk.train.x, np.memmap)
    assert not on_disk.train.x.flags.writeable
    for part in ("train", "valid", "test"):
        one, other = getattr(in_memory, part), getattr(on_disk, part)
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y, other.y)
        assert np.isfinite(one.x).all()
    assert len(np.unique(in_memory.train.x[:, 0])) == len(in_memory.train.x)


FALSE_ALARM = 1e-6


def test_labels_follow_the_softmax():
    """Detects labels drawn from anything but softmax(x theta): z-test of mean log likelihood.

    With spread 0 every client has theta = mu, which is redrawn here from the same stream.
    """
    options = {"num_features": 6, "num_classes": 4, "seed": 7}
    federation = classification(num_clients=400, samples_per_client=50, spread=0.0, **options)
    draws = synthetic.random.stream(7, "partition")
    draws.integers(50, 50, 400, np.int32, endpoint=True)
    mean = draws.standard_normal((6, 4)) * (2 / np.sqrt(6))
    logits = federation.train.x @ mean
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    found = logs[np.arange(len(logs)), federation.train.y]
    expected = (np.exp(logs) * logs).sum(axis=1)
    variance = (np.exp(logs) * logs**2).sum(axis=1) - expected**2
    z = (found - expected).sum() / np.sqrt(variance.sum())
    assert abs(z) < norm.isf(FALSE_ALARM / 2)


def test_spread_sets_clients_apart():
    """With spread, a client's own class shares vary more than the binomial noise of its rows."""

    def overdispersion(spread):
        federation = classification(
            num_clients=300, samples_per_client=200, num_features=3, spread=spread, seed=3
        )
        own = federation.train.x[:, :, None] * np.eye(5)[federation.train.y][:, None, :]
        moments = own.reshape(300, 200, 15).mean(axis=1)  # of x 1(y = c), which follow theta
        return moments.var(axis=0).sum()

    assert overdispersion(1.0) > 3 * overdispersion(0.0)


def test_errors():
    with pytest.raises(ValueError, match="num_classes must be a whole number of at least 2, got 1"):
        classification(num_classes=1)
    with pytest.raises(ValueError, match="spread must be a number of at least 0, got -1"):
        classification(spread=-1)
    with pytest.raises(ValueError, match=r"must be \(low, high\), low first, got \(9, 3\)"):
        classification(samples_per_client=(9, 3))
