"""Scores of methods as tables: means, deciles, gains, and every metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.scores import Metric
from fedprior.data.writing import write_table
from fedprior.engines.metrics import Metrics


@dataclass(frozen=True)
class Scores:
    """One method's scores by the run's metric: seed -> (num_clients,), test and validation.

    `metrics` has every metric by seed, where they were computed.
    """

    test: dict[int, np.ndarray] = field(default_factory=dict)
    valid: dict[int, np.ndarray] = field(default_factory=dict)
    metrics: dict[int, Metrics] = field(default_factory=dict)

    @classmethod
    def measured(cls, metrics: Mapping[int, Metrics], metric: Metric) -> "Scores":
        """The scores of what was measured by seed."""
        test = {seed: metric.signed(own.clients[metric.key]) for seed, own in metrics.items()}
        return cls(test, {}, dict(metrics))


def over_seeds(
    values: Mapping[str, np.ndarray], names: Any
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The means of each client's values, NaN apart, and the clients in the order they come in."""
    unique, first, place = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    found = {}
    for name, each in values.items():
        known = ~np.isnan(each)
        sums = np.bincount(place[known], weights=each[known], minlength=len(unique))
        counts = np.bincount(place[known], minlength=len(unique))
        found[name] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)[order]
    return found, unique[order]


def summarize(scores: Mapping[str, Scores], metric: Metric) -> dict[str, dict[str, Any]]:
    """Per method: values of the metric, gain over local, share of clients gaining, every metric.

    Values are fractions, or losses and errors as they are. A gain is a difference of scores, in
    points for fractions: more is better. Deciles are means of the tenth of the clients with the
    lowest and with the highest scores, at least one of them. Each figure is computed per seed and
    averaged, and None where a model diverged; `mean_sd` is the standard deviation of the mean over
    seeds, `gain_se` the standard error of the gain. Clients without a score do not count, and those
    whose model diverged are not among the ones that could gain.
    """
    local = scores.get("local")
    return {name: _summary(own, local, metric) for name, own in scores.items()}


def _summary(own: Scores, local: Scores | None, metric: Metric) -> dict[str, Any]:
    means, worst, best, gains, gaining = [], [], [], [], []
    for seed, all_values in own.test.items():
        known = ~np.isnan(all_values)
        if not known.any():
            continue
        means.append(all_values[known].mean())
        low, high = deciles(all_values)
        worst.append(low)
        best.append(high)
        if local is not None:
            with np.errstate(invalid="ignore"):  # some diverged
                difference = (all_values - local.test[seed])[known]
                gains.append(metric.unit * difference.mean())
            finite = difference[np.isfinite(difference)]
            gaining.append((finite > 0).mean() if len(finite) else np.nan)
    summary = {
        "mean": metric.signed(_mean(means)),
        "worst_decile": metric.signed(_mean(worst)),
        "best_decile": metric.signed(_mean(best)),
        "gain_over_local": _mean(gains),
        "share_gaining": _mean(gaining),
        "mean_sd": _spread(means),
        "gain_se": None if (spread := _spread(gains)) is None else spread / len(gains) ** 0.5,
        "seeds": len(own.test),
    }
    if own.metrics:
        summary["metrics"] = _metrics([each.describe() for each in own.metrics.values()])
    return summary


def _metrics(described: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The means over seeds of `overall` and `mean`, and the least number of clients."""
    return {
        name: {
            "overall": _mean([own[name]["overall"] for own in described]),
            "mean": _mean([own[name]["mean"] for own in described]),
            "clients": min(own[name]["clients"] for own in described),
        }
        for name in described[0]
    }


def deciles(scores: np.ndarray) -> tuple[float, float]:
    """Means of the lowest and of the highest tenth of the clients, at least one; NaN is left out.

    >>> deciles(np.array([0.5, np.nan, 0.25, 1.0]))
    (0.25, 1.0)
    """
    values = np.sort(scores[~np.isnan(scores)])
    tenth = max(1, round(len(values) / 10))
    return float(values[:tenth].mean()), float(values[-tenth:].mean())


def _mean(values: Sequence[Any]) -> float | None:
    known = np.array(values, float)  # None is NaN
    return float(known.mean()) if len(known) and np.isfinite(known).all() else None


def _spread(values: Sequence[Any]) -> float | None:
    several = len(values) > 1 and np.isfinite(values).all()
    return float(np.std(values, ddof=1)) if several else None


def read_clients(path: Path) -> dict[str, np.ndarray]:
    """The columns that `write_clients` wrote: numbers with NaN in gaps, and words."""
    import duckdb

    with duckdb.connect() as connection:
        found = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchnumpy()
    return {
        name: np.ma.filled(cells.astype(float), np.nan) if cells.dtype.kind in "fiu" else cells
        for name, cells in found.items()
    }


def write_clients(
    path: Path,
    clients: dict[int, np.ndarray],
    scores: dict[str, Scores],
    columns: dict[str, np.ndarray],
    metric: Metric,
) -> None:
    """One row per seed and client: its name, further `columns`, and its values by method.

    The run's metric is in the column of the method, every other one in METHOD_METRIC.
    """
    seeds = list(clients)
    table = {
        "seed": np.concatenate([np.full(len(clients[s]), s, np.int32) for s in seeds]),
        "client": np.concatenate([clients[s].astype(object) for s in seeds]),
        **columns,
    }
    for name, own in scores.items():
        key = name.replace("-", "_")
        table[key] = metric.signed(np.concatenate([own.test[s] for s in seeds]))
        for other in own.metrics[seeds[0]].clients if own.metrics else ():
            if other != metric.key:
                values = [own.metrics[s].clients[other] for s in seeds]
                table[f"{key}_{other}"] = np.concatenate(values)
    write_table(table, path, owner="train")
