"""Private methods with personal models are not worse than local training, however much noise."""

from dataclasses import replace

import numpy as np
import pytest

from fedprior.engines.simulate import simulate
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import METHODS
from fedprior.reporting import federations
from fedprior.reporting.config import Config, Privacy
from fedprior.reporting.training import Study

# Methods whose server needs every message by itself have no private form.
PERSONAL = [
    name
    for name, method in METHODS.items()
    if method.personal and not method.alone and name != "mixture-clustering"
]


def scores(name, epsilon, seeds, rounds):
    """Mean test score for each seed, on the embedded digits."""
    plain = Config()
    config = replace(plain, training=replace(plain.training, rounds=rounds))
    if epsilon is not None:
        config = replace(config, privacy=Privacy(epsilon=epsilon, delta=1e-3))
    means, training = [], None
    for seed in seeds:
        clients = federations.federation(config.data, seed=seed)
        training = training or Study(config, Facts.of(clients)).training(name)
        result = simulate(training.algorithm, clients, **training.arguments, seed=seed)
        means.append(np.nanmean(result.scores))
    return np.array(means)


def test_adamap_keeps_to_local_training_where_all_is_noise():
    """Two seeds, 12 rounds, up to the draws of batches; without caution it is 30 points below."""
    gap = scores("adamap", 3.0, range(2), rounds=12) - scores("local", None, range(2), rounds=12)
    assert (gap > -0.05).all()


@pytest.mark.evidence
@pytest.mark.parametrize("name", PERSONAL)
def test_every_method_keeps_to_local_training(name):
    """20 seeds at the default number of rounds; hours on two cores for all methods."""
    seeds = range(20)
    local = scores("local", None, seeds, rounds=600)
    for epsilon in (1.0, 3.0, 8.0):
        gap = scores(name, epsilon, seeds, rounds=600) - local
        half = 1.96 * gap.std(ddof=1) / np.sqrt(len(seeds))
        assert gap.mean() - half > -0.01, (epsilon, gap)
