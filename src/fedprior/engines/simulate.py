"""The vectorized simulator: clients as a batch axis, rounds in compiled loops."""

import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedprior.core import check, lock
from fedprior.core.algorithm import Algorithm, Theta
from fedprior.core.protocols import Channel, Cohort, is_private
from fedprior.core.scores import MetricName
from fedprior.data.federation import Federation
from fedprior.engines import cache
from fedprior.engines.device import DeviceEngine
from fedprior.engines.disk import DiskEngine
from fedprior.engines.evaluate import check_defined, metric_of, scores
from fedprior.engines.mesh import Devices, mesh_of
from fedprior.engines.pace import Pace
from fedprior.engines.pools import Source
from fedprior.engines.result import EndedBy, Result
from fedprior.engines.run import History, Run, Saving
from fedprior.exchange.agreement import Agreement
from fedprior.privacy.events import Event
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.planning import noise_to_signal
from fedprior.privacy.plans import HARD, verdict

StoreKind = Literal["device", "disk"]
Engine = DeviceEngine | DiskEngine


class Progress(NamedTuple):
    """The progress of a run."""

    round: int
    rounds: int
    score: float  # latest mean validation score; NaN before the first
    clients_per_second: float
    entry: Mapping[str, float] = MappingProxyType({})  # of the history, for the latest round
    test: float = math.nan  # mean test score, once the models have been tested


def simulate(
    algorithm: Algorithm,
    federation: Federation,
    *,
    rounds: int,
    cohort: Cohort | None = None,
    channel: Channel | None = None,
    seed: int = 0,
    evaluate_every: int | None = None,
    patience: int | None = None,
    metric: MetricName | None = None,
    test: bool = True,
    store: StoreKind = "device",
    saving: Saving | None = None,
    ledger: Ledger | None = None,
    progress: Callable[[Progress], Any] | None = None,
    keep: Callable[[int, Theta], Any] | None = None,
    devices: Devices = None,
) -> Result:
    """Run `rounds` rounds and score every client's personal model.

    Validation scores are computed every `evaluate_every` rounds and at the end; `patience` ends the
    run when the best of them is that many evaluations old. Test samples are read once, after the
    last round, and not at all with `test=False`. `metric` is what models are scored by (default:
    accuracy, or RMSE where a quantity is predicted); a score is minus its value where lower values
    are better.

    With `store="device"`, memories are part of the compiled loop over rounds. With `store="disk"`,
    they are rows of a file, each round reads and writes the rows of its cohort, and memory use does
    not grow with the number of clients. `saving` makes the run resumable, with bit-for-bit the same
    results on the CPU; an interrupt (SIGINT) then saves before the run ends.

    `ledger` records the privacy loss of a private channel before it is incurred. When the budget
    allows no further round, the run ends with its current models, and `ended_by` of the result is
    "budget".

    `keep(count, thetas)` is called at the end with the personal models of all clients, in order,
    `count` of them at a time.

    `devices` is how many of the local devices share the clients, a number or "all"; by default all
    GPUs, or one CPU. After `jax.distributed.initialize`, all processes make the same call and share
    the clients; process 0 alone writes files, charges the ledger and tells how far it is.
    """
    check.choice("simulate", "store", store, get_args(StoreKind))
    for name, value in {"evaluate_every": evaluate_every, "patience": patience}.items():
        if value is not None:
            check.count("simulate", least=1, **{name: value})
    if patience is not None:
        rule = "None without evaluate_every and validation samples"
        scored = evaluate_every is not None and bool(federation.valid.size.any())
        check.require(scored, "simulate", "patience", rule, patience)
        if channel is not None and channel.private:
            raise check.PrivacyError(
                f"simulate: patience must be None under a private channel, got {patience}. "
                "The time at which a run ends would reveal scores that no noise covers."
            )
    judged = metric_of("simulate", metric, algorithm, federation)
    if evaluate_every is not None:
        check_defined("simulate", judged, federation)
    identity = saving.identity if saving else ""
    agreement = Agreement.of(
        algorithm, federation, channel=channel, cohort=cohort, seed=seed, identity=identity
    )
    run = Run(
        agreement=agreement,
        federation=federation,
        rounds=rounds,
        saving=saving,
        ledger=ledger,
        store=store,
        metric=judged,
        mesh=mesh_of(devices, alone=agreement.secure),
    )
    _warn_of_noise(run)
    cache.enable()
    with lock.owned(saving.folder) if saving and run.mesh.lead else nullcontext():
        run.mesh.all_of([0])  # nobody touches the folder before process 0 owns it
        engine: Engine = DeviceEngine(run) if store == "device" else DiskEngine(run)
        with _interruptible(saving is not None) as interrupted:
            ended_by = _advance(run, engine, evaluate_every, patience, progress, interrupted)
        evaluated = _evaluate(run, engine, ("valid", "test") if test else ("valid",), keep)
        whole = engine.whole()
    return Result(
        agreement=agreement,
        federation=federation,
        state=run.mesh.here(engine.state),
        store=whole,
        rounds=len(engine.history),
        history=engine.history,
        scores=evaluated.get("test", np.empty(0)),
        valid_scores=evaluated["valid"],
        ended_by=ended_by,
        metric=judged,
    )


def _warn_of_noise(run: Run) -> None:
    """Log the verdict of a private run's plan where its clients would follow noise."""
    agreement = run.agreement
    channel, number = agreement.channel, agreement.num_clients
    summed = is_private(channel) and channel.view != "local" and agreement.rule is None
    if not summed or not run.rounds or agreement.algorithm.discounts_noise:
        return
    event, size = agreement.event, agreement.length
    if not isinstance(event, Event) or event.mechanism != "gaussian":
        return
    ratio = noise_to_signal(
        noise=event.noise,
        num_parameters=size,
        rate=agreement.cohort.expected_size(number) / number,
        num_clients=number,
        rounds=run.rounds,
    )
    if ratio > HARD:
        said = verdict(ratio, num_parameters=size, num_clients=number)
        remedy = "Where clients have models of their own, use fedprior.learning.cautious."
        logging.getLogger("fedprior").warning("simulate: %s %s", said, remedy)


def _advance(
    run: Run,
    engine: Engine,
    evaluate_every: int | None,
    patience: int | None,
    progress: Callable[[Progress], Any] | None,
    interrupted: Callable[[], bool],
) -> EndedBy:
    """Run all rounds, pausing to evaluate, save, report progress and check for an interrupt."""
    pace = Pace()
    while len(engine.history) < run.rounds and not _stale(engine.history, patience):
        at = len(engine.history)
        periods = [evaluate_every, run.saving.every if run.saving else None]
        stops = [(at // every + 1) * every for every in periods if every]
        count = min(at + pace.rounds(), run.rounds, *stops) - at
        count = run.reserve(at, run.mesh.agree(count))
        if count == 0:
            if run.saving:
                engine.save()
            return "budget"
        with pace.timed(count):
            engine.advance(count)
        if run.ledger and run.mesh.lead:
            run.ledger.commit()
        at = len(engine.history)
        if evaluate_every and at % evaluate_every == 0 and at < run.rounds:
            valid = _evaluate(run, engine, ("valid",))["valid"]
            if not np.isnan(valid).all():
                engine.history[-1]["valid"] = float(np.nanmean(valid))
        # Read once, so that the run is saved before it raises below.
        stop = bool(run.mesh.all_of([interrupted()]).any())
        done = stop or at == run.rounds or _stale(engine.history, patience)
        if run.saving and (done or at % run.saving.every == 0 or run.unrepeatable):
            engine.save()
        if progress and run.mesh.lead:
            clients = sum(entry["clients"] for entry in engine.history[-pace.last :])
            speed, entry = clients / pace.seconds, engine.history[-1]
            progress(Progress(at, run.rounds, _newest(engine.history), speed, entry))
        if stop:
            raise KeyboardInterrupt
    if run.mesh.all_of([interrupted()]).any():
        raise KeyboardInterrupt
    return "rounds" if len(engine.history) == run.rounds else "patience"


def _evaluate(
    run: Run,
    engine: Engine,
    names: tuple[str, ...],
    keep: Callable[[int, Theta], Any] | None = None,
) -> dict[str, np.ndarray]:
    splits = {
        name: Source(getattr(run.federation, name), pooled=engine.pooled, mesh=run.mesh)
        for name in names
    }
    return scores(
        run.agreement.rules,
        state=engine.state,
        store=engine.store,
        train=engine.train,
        splits=splits,
        root=run.agreement.keys().root,
        keep=keep,
        metric=run.metric,
    )


def _stale(history: History, patience: int | None) -> bool:
    """Return whether the best validation score is more than `patience` evaluations old."""
    valid = [entry["valid"] for entry in history if "valid" in entry]
    return patience is not None and len(valid) - int(np.argmax(valid or [0])) > patience


def _newest(history: History) -> float:
    return next((entry["valid"] for entry in reversed(history) if "valid" in entry), math.nan)


@contextmanager
def _interruptible(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT into a flag, so that a run can save first; a second one kills it."""
    flag = threading.Event()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield flag.is_set
        return

    def note(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        flag.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield flag.is_set
    finally:
        signal.signal(signal.SIGINT, before)
