"""What a site keeps of a finished run: personal models that stand alone, and their scores."""

import time
from typing import Any

import jax
import numpy as np

from fedprior.core.files import write_json
from fedprior.core.scores import Metric
from fedprior.core.tallies import values_by_client
from fedprior.data.federation import ClientData
from fedprior.engines.metrics import finite
from fedprior.exchange import client as client_side
from fedprior.exchange.agreement import Agreement
from fedprior.reporting import model_file
from fedprior.reporting.model import SITE_MODEL
from fedprior.sites.asked import Asked

Samples = tuple[np.ndarray, np.ndarray]  # x, y
_COMPARING = 0.4  # share of the deadline that local training, for comparison, may take


def finish(asked: Asked) -> dict[str, dict[str, float]]:
    """Write model/ and scores.json, and return the scores: method -> client -> test score.

    scores.json stays at the site. It has the values of the run's metric by method and client, and
    under `metrics` those of every metric of the clients' own models. Clients that the server does
    not name, because it has forgotten them, get no model.
    """
    site, document, agreement = asked.site, asked.document, asked.agreement
    state, facts = asked.state, asked.facts
    names = [name for name in site.clients if name in facts["clients"]]
    file = site.folder / SITE_MODEL
    scores: dict[str, dict[str, float]] = {document.method: {}, "local": {}}
    metrics: dict[str, dict[str, float | None]] = {}
    metric = document.training.metric
    kept: list[tuple[int, Any, np.ndarray]] = []
    with model_file.keeping_thetas(file) as keep:
        for name in names:
            number, own = asked.seat(name), asked.training(name)
            with asked.memory(number) as before:
                accepted = facts["clients"][name]["accepted"]
                memory = before.read(agreement.shapes[1], accepted=accepted)
            theta = client_side.personal_model(agreement, state, memory, own, number)
            keep(1, _row(theta))
            blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), agreement.shapes[1])
            row = blank if memory is None else memory
            kept.append((1, _row(row), np.array([memory is not None])))
            samples = site.samples(name)["test"]
            scores[document.method][name] = score(agreement, theta, samples, metric)
            found = every_metric(agreement, theta, samples, metric)
            metrics[name] = {key: finite(value) for key, value in found.items()}
    told = {name: facts["model"].get(name) for name in ("rounds", "guarantee")}
    model_file.write_clients(file, names, kept)
    model_file.write_state(file, state, **document.model_facts, **told)
    end = time.monotonic() + _COMPARING * float(facts["deadline"])
    alone = document.alone()
    for name in names:
        compared = _local(alone, asked, name, end)
        if compared is None:  # a comparison with some of the clients would mislead
            del scores["local"]
            break
        scores["local"][name] = compared
    noted: dict[str, Any] = {"agreement": document.token, "metric": metric.name, "metrics": metrics}
    for method, by_client in scores.items():
        noted[method] = {name: metric.signed(value) for name, value in by_client.items()}
    write_json(site.folder / "scores.json", noted, indent=1)
    return scores


def score(agreement: Agreement, theta: Any, samples: Samples, metric: Metric) -> float:
    """The score on a client's held-out samples; NaN where it is not defined."""
    if not len(samples[0]):
        return float("nan")
    if metric.per_sample:
        return client_side.score(agreement, theta, _data(samples), metric=metric)
    return float(metric.signed(every_metric(agreement, theta, samples, metric)[metric.key]))


def every_metric(
    agreement: Agreement, theta: Any, samples: Samples, metric: Metric
) -> dict[str, float]:
    """Every metric on a client's held-out samples; NaN where it is not defined."""
    if not len(samples[0]) or metric.target is None:
        return {}
    outputs = client_side.outputs(agreement, theta, _data(samples))
    nobody_else = np.zeros(len(outputs), int)
    found = values_by_client(outputs, samples[1], nobody_else, 1, metric.target)
    return {name: float(values[0]) for name, values in found.items()}


def _data(samples: Samples) -> ClientData:
    x, y = samples
    rows, zero = np.arange(len(x), dtype=np.int32), np.zeros((), np.int32)
    return ClientData(x, y, zero, np.int32(len(x)), rows)


def _local(alone: tuple[Agreement, int], asked: Asked, name: str, end: float) -> float | None:
    """The score of a model that the client trains by itself, with as many steps; None if too slow.

    It tells the site what taking part has gained.
    """
    agreement, rounds = alone
    number, own = asked.facts["clients"][name]["number"], asked.training(name)
    state, memory = agreement.initial_state(), None
    for round in range(rounds):
        if time.monotonic() > end:
            return None
        memory = client_side.take_part(agreement, state, memory, own, number, round)[1]
    theta = client_side.personal_model(agreement, state, memory, own, number)
    metric = asked.document.training.metric
    return score(agreement, theta, asked.site.samples(name)["test"], metric)


def _row(leaves: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], leaves)
