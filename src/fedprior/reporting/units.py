"""What follows from a table's rows without a choice: units, the width of a network, batches.

`train` and `sweep` take them alike, so that rates found by one are rates for the other.
"""

from collections.abc import Set
from dataclasses import replace

import numpy as np

from fedprior.data.federation import Federation
from fedprior.models.tabular import width
from fedprior.reporting.config import Config

_BATCH = (10, 128)  # least and most rows of a batch


def fitted(config: Config, clients: Federation, given: Set[str]) -> tuple[Config, list[str]]:
    """The configuration in proportion to a table's training rows, but for the keys `given`.

    A quantity gets its mean and its standard deviation as units. A private run stays as it is, as
    no noise would cover what these reveal, and what to do about it is said.
    """
    if clients.encoder is None:
        return config, []
    if config.privacy.epsilon:
        return config, raw_target(config, quantity=clients.classes is None)
    y, model, training = clients.train.y, config.model, config.training
    if clients.classes is None and not {"model.center", "model.scale"} & given:
        model = replace(model, center=float(y.mean()), scale=float(y.std()) or 1.0)
    if model.name == "auto" and "model.hidden" not in given:
        model = replace(model, hidden=(width(len(y)),))
    if "training.batch_size" not in given:
        # Batches grow with the clients, so that 600 rounds show them their rows 40 times.
        size = int(np.clip(len(y) // (50 * clients.num_clients), *_BATCH))
        training = replace(training, batch_size=size)
    return replace(config, model=model, training=training), []


def raw_target(config: Config, *, quantity: bool) -> list[str]:
    """What to say where the target of a table is learned in its raw units."""
    if not quantity or (config.model.center, config.model.scale) != (0.0, 1.0):
        return []
    return [
        "Set model.center and model.scale to public values: the target is learned in its raw units."
    ]
