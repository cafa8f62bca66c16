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
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import tree
from fedprior.data.balance import class_counts, largest_shares
from fedprior.data.federation import Federation
from fedprior.engines.calibration import Calibration, collector
from fedprior.engines.simulate import Progress
from fedprior.exchange.agreement import Agreement
from fedprior.reporting.config import Privacy

Follow = Callable[[Progress], Any]


def shown_entry(entry: dict[str, float], privacy: Privacy) -> dict[str, float]:
    """What a round may tell: with secure noise nothing about its cohort, and scores if released."""
    hidden = ["clients", "left_out"] if privacy.noise == "secure" else []
    hidden += ["valid"] if scores_stay(privacy) else []
    return {name: value for name, value in entry.items() if name not in hidden}


def scores_stay(privacy: Privacy) -> bool:
    """Scores are not private: with noise that is valid for release they leave only if asked to."""
    return privacy.noise == "secure" and not privacy.unprotected_scores


def following(path: Path, follow: Follow, privacy: Privacy, **which: Any) -> Follow:
    """`follow`, which also appends to the file at `path` how far a training is.

    A line is written at once: of a run that is killed, at most the last one is cut short.
    """
    begun = time.perf_counter()

    def note(progress: Progress) -> None:
        line = {**which, "round": progress.round, "rounds": progress.rounds}
        if privacy.noise != "secure":
            line["seconds"] = round(time.perf_counter() - begun, 4)
        append(path, {**line, **shown_entry(dict(progress.entry), privacy)})
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
    """What is noted of one training at its end; of a quantity, or with secure noise, only bytes."""

    def __init__(
        self, agreement: Agreement, clients: Federation, privacy: Privacy, *, alone: bool
    ) -> None:
        self.bytes = bytes_of(agreement, alone=alone)
        shown = clients.classes is not None and privacy.noise != "secure"
        self.calibration = Calibration() if shown else None
        self._rules, self._clients = agreement.rules, clients

    def keeping(self, keep: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        """`keep`, which also looks at the confidence of the models it is given."""
        if self.calibration is None:
            return keep
        add = collector(self._rules, self._clients, self.calibration)

        def both(count: int, thetas: Any) -> None:
            keep(count, thetas)
            add(count, thetas)

        return both

    def describe(self) -> dict[str, Any]:
        """As JSON values."""
        known = self.calibration
        return self.bytes | ({} if known is None else {"calibration": known.describe()})


def bytes_of(agreement: Agreement, *, alone: bool) -> dict[str, int]:
    """Bytes that a client sends and receives in a round; what a method alone needs is none."""
    if alone:
        return {"upload_bytes": 0, "download_bytes": 0}
    width = 8 if getattr(agreement.channel, "view", "") == "masked" else 4  # whole units, or floats
    return {
        "upload_bytes": width * agreement.length,
        "download_bytes": int(tree.nbytes(agreement.shapes[0])),
    }


def classes_of(clients: Federation) -> tuple[dict[str, int] | None, np.ndarray | None]:
    """Training samples by class, and the share of each client's largest class; None of numbers."""
    if clients.classes is None:
        return None, None
    counts = class_counts(clients.train, len(clients.classes))
    whole = counts.sum(axis=0).tolist()
    names = [str(name) for name in clients.classes]
    return dict(zip(names, whole, strict=True)), largest_shares(counts)
