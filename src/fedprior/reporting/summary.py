"""Scores of methods as tables: means, deciles, gains."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.data.writing import write_table


@dataclass(frozen=True)
class Scores:
    """One method's scores: seed -> (num_clients,) on test and on validation samples."""

    test: dict[int, np.ndarray] = field(default_factory=dict)
    valid: dict[int, np.ndarray] = field(default_factory=dict)


def summarize(scores: dict[str, Scores]) -> dict[str, dict[str, Any]]:
    """Per method: scores as fractions, gain over local in points, share of clients gaining.

    Deciles are means of the lowest and highest tenth of the clients, at least one of them. Each
    figure is computed per seed and averaged, and None where a model diverged; `mean_sd` is the
    standard deviation of the mean over seeds, `gain_se` the standard error of the gain. Clients
    without test samples do not count.
    """
    local = scores.get("local")
    return {name: _summary(own, local) for name, own in scores.items()}


def _summary(own: Scores, local: Scores | None) -> dict[str, Any]:
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
            with np.errstate(invalid="ignore"):  # both diverged
                difference = (all_values - local.test[seed])[known]
            gains.append(100 * difference.mean())
            gaining.append((difference > 0).mean())
    return {
        "mean": _mean(means),
        "worst_decile": _mean(worst),
        "best_decile": _mean(best),
        "gain_over_local": _mean(gains),
        "share_gaining": _mean(gaining),
        "mean_sd": float(np.std(means, ddof=1)) if len(means) > 1 else None,
        "gain_se": float(np.std(gains, ddof=1) / len(gains) ** 0.5) if len(gains) > 1 else None,
        "seeds": len(own.test),
    }


def deciles(scores: np.ndarray) -> tuple[float, float]:
    """Means of the lowest and of the highest tenth of the clients, at least one; NaN is left out.

    >>> deciles(np.array([0.5, np.nan, 0.25, 1.0]))
    (0.25, 1.0)
    """
    values = np.sort(scores[~np.isnan(scores)])
    tenth = max(1, round(len(values) / 10))
    return float(values[:tenth].mean()), float(values[-tenth:].mean())


def _mean(values: list[Any]) -> float | None:
    return float(np.mean(values)) if values and np.isfinite(values).all() else None


def write_clients(
    path: Path,
    clients: dict[int, np.ndarray],
    scores: dict[str, Scores],
    columns: dict[str, np.ndarray],
) -> None:
    """One row per seed and client: its name, further `columns`, and its test score by method."""
    seeds = list(clients)
    table = {
        "seed": np.concatenate([np.full(len(clients[s]), s, np.int32) for s in seeds]),
        "client": np.concatenate([clients[s].astype(object) for s in seeds]),
        **columns,
    }
    for name, own in scores.items():
        table[name.replace("-", "_")] = np.concatenate([own.test[s] for s in seeds])
    write_table(table, path, owner="train")
