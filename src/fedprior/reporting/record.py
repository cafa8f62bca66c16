"""What a run notes beside its scores: how far it is, how long rounds take, what its page needs.

    progress.jsonl    a line after each call of the engine: method, seed, round, seconds, scalars
    evaluation.json   classes; for each method and seed its calibration and the bytes of a round

With secure noise neither holds anything that the guarantee does not cover: no time, which depends
on the cohorts, no class and no calibration.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import tree
from fedprior.core.scores import OWN, Metric
from fedprior.data.balance import class_counts, largest_shares
from fedprior.data.federation import Federation
from fedprior.engines.metrics import Meter, Metrics, describe_bins
from fedprior.engines.simulate import Progress
from fedprior.exchange.agreement import Agreement
from fedprior.reporting.config import Privacy

Follow = Callable[[Progress], Any]


def shown_entry(
    entry: dict[str, float], privacy: Privacy, metric: Metric = OWN
) -> dict[str, float]:
    """What a round may tell: with secure noise nothing about its cohort, and scores if released.

    What is validated has the value of the metric.
    """
    entry = metric.entry(entry)
    hidden = ["clients", "left_out"] if privacy.noise == "secure" else []
    hidden += ["valid"] if scores_stay(privacy) else []
    return {name: value for name, value in entry.items() if name not in hidden}


def scores_stay(privacy: Privacy) -> bool:
    """Scores are not private: with noise that is valid for release they leave only if asked to."""
    return privacy.noise == "secure" and not privacy.unprotected_scores


def following(path: Path, follow: Follow, privacy: Privacy, metric: Metric, **which: Any) -> Follow:
    """`follow`, which also appends to the file at `path` how far a training is.

    A line is written at once: of a run that is killed, at most the last one is cut short.
    """
    begun = time.perf_counter()

    def note(progress: Progress) -> None:
        line = {**which, "round": progress.round, "rounds": progress.rounds}
        if privacy.noise != "secure":
            line["seconds"] = round(time.perf_counter() - begun, 4)
        append(path, {**line, **shown_entry(dict(progress.entry), privacy, metric)})
        follow(progress)

    return note


def append(path: Path, line: dict[str, Any]) -> None:
    """Append a line of JSON in one write, behind what a killed process may have left."""
    text = json.dumps(line) + "\n"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        os.write(descriptor, (text if whole else f"\n{text}").encode())
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file of JSON lines that are whole; none if there is no such file."""
    if not path.is_file():
        return
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:  # cut short, or being written
            continue
        if isinstance(line, dict):
            yield line


class Evaluation:
    """What is noted of one training at its end: bytes, and every metric unless scores stay."""

    def __init__(
        self, agreement: Agreement, clients: Federation, privacy: Privacy, *, alone: bool
    ) -> None:
        self.bytes = bytes_of(agreement, alone=alone)
        self._meter = None if scores_stay(privacy) else Meter(clients)
        self._rules, self._secure = agreement.rules, privacy.noise == "secure"

    def keeping(self, keep: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        """`keep`, which also measures the models it is given."""
        if self._meter is None:
            return keep
        add = self._meter.keep(self._rules)

        def both(count: int, thetas: Any) -> None:
            keep(count, thetas)
            add(count, thetas)

        return both

    @cached_property
    def metrics(self) -> Metrics | None:
        """Every metric of the models; None where scores stay."""
        return None if self._meter is None else self._meter.metrics()

    def describe(self) -> dict[str, Any]:
        """As JSON values: bytes, and of classes the calibration, unless noise is secure."""
        bins = None if self.metrics is None or self._secure else self.metrics.bins
        return self.bytes | ({} if bins is None else {"calibration": describe_bins(bins)})


def bytes_of(agreement: Agreement, *, alone: bool) -> dict[str, int]:
    """Bytes that a client sends and receives in a round; what a method alone needs is none."""
    if alone:
        return {"upload_bytes": 0, "download_bytes": 0}
    width = 8 if getattr(agreement.channel, "view", "") == "masked" else 4  # whole units, or floats
    return {
        "upload_bytes": width * agreement.length,
        "download_bytes": int(tree.nbytes(agreement.shapes[0])),
    }


def largest_class(clients: Federation) -> dict[str, Any] | None:
    """The most common class of all training samples, its share, and how many classes there are.

    None of a quantity.
    """
    counts, _ = classes_of(clients)
    if counts is None:
        return None
    name = max(counts, key=lambda each: counts[each])
    share = counts[name] / sum(counts.values())
    return {"name": name, "share": share, "classes": len(counts)}


def classes_of(clients: Federation) -> tuple[dict[str, int] | None, np.ndarray | None]:
    """Training samples by class, and the share of each client's largest class; None of numbers."""
    if clients.classes is None:
        return None, None
    counts = class_counts(clients.train, len(clients.classes))
    whole = counts.sum(axis=0).tolist()
    names = [str(name) for name in clients.classes]
    return dict(zip(names, whole, strict=True)), largest_shares(counts)
