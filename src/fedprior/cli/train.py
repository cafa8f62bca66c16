"""`fedprior train`."""

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedprior.cli import asked
from fedprior.cli.pages import check_report, write_report
from fedprior.cli.scores import remarks as score_remarks
from fedprior.cli.scores import tables
from fedprior.core import lock
from fedprior.core.check import PrivacyError
from fedprior.core.files import write_json
from fedprior.core.plain import plain
from fedprior.core.scores import ACCURACY, METRICS

if TYPE_CHECKING:
    from fedprior.reporting.config import Config


class Baseline(StrEnum):
    """What a run may be compared with."""

    boosting = "boosting"


def train(
    config: asked.File = None,
    data: asked.Data = None,
    client: asked.Client = None,
    label: asked.Label = None,
    features: asked.Features = None,
    exclude: asked.Exclude = None,
    missing: asked.Missing = None,
    encoder: asked.Encoder = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="A method to run; may be repeated.")
    ] = None,
    metric: asked.MetricChoice = None,
    changes: asked.Changes = None,
    seed: asked.First = None,
    seeds: asked.Seeds = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/TIME).")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    devices: Annotated[
        str | None,
        typer.Option(help="Devices that share the clients: a number, or all. [default: all GPUs]"),
    ] = None,
    processes: Annotated[
        str | None,
        typer.Option(help="Processes that share the clients: a number, or auto (as in Slurm)."),
    ] = None,
    process: Annotated[
        int | None, typer.Option(help="Which of the processes this is: 0, 1, ...")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="HOST:PORT at which all processes reach process 0.")
    ] = None,
    allow_delta: asked.AllowDelta = False,
    release_scores: Annotated[
        bool,
        typer.Option(
            "--release-scores",
            help="Private runs: release the mean test score with noise, at --score-epsilon.",
        ),
    ] = False,
    score_epsilon: Annotated[
        float | None, typer.Option(help="Epsilon that the release of the mean score costs.")
    ] = None,
    unprotected_scores: Annotated[
        bool,
        typer.Option(
            "--unprotected-scores",
            help="With secure noise: write every client's scores. Nothing protects them.",
        ),
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger of a population to charge, from `fedprior privacy ledger init`."),
    ] = None,
    key: asked.Key = None,
    baseline: Annotated[
        Baseline | None,
        typer.Option(help="Compare with boosting alone, pooled, and pooled with the client's id."),
    ] = None,
    plot: asked.Plot = None,
    report: asked.Report = None,
    force: asked.Force = False,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Train a personal model for every client and compare methods at equal numbers of steps.

    Without arguments: AdaMAP, AdaPeD, FedAvg + fine-tuning and local training on the embedded
    digits.

    On a table, the model and every method's rates are chosen on validation rows, unless model.name,
    training.theta_rate or training.gamma_rate is set; a private run uses those of the
    configuration. --baseline boosting trains scikit-learn's gradient boosting on the same rows.

    --plot draws each client's gain over local, the scores by method and, by round, the validation
    scores; --report writes a page with more. A new run then computes validation scores 20 times,
    unless training.evaluate_every says otherwise.

    Example: `fedprior train --data visits.csv --client hospital --label recovered --out runs/a`
    """
    given = locals()
    from fedprior.cli.progress import Trainings, Watcher, busy, diverted

    with busy("loading", quiet=quiet):
        from fedprior.engines.processes import leads, settled
        from fedprior.reporting.config import given_keys
        from fedprior.reporting.folder import Folder
        from fedprior.reporting.outputs import save_plot
        from fedprior.reporting.pages.run import page_of
        from fedprior.reporting.record import scores_stay
        from fedprior.reporting.settle import settle
        from fedprior.reporting.train import check_run, follow, judged
        from fedprior.reporting.train import train as run
        from fedprior.reporting.units import fitted

    remarks: list[str] = []
    chosen = None
    check_report("train", report, force=force)
    if resume is not None:
        of_table = (data, client, label, features, exclude, missing, encoder)
        others = (config, *of_table, algorithm, metric, changes, seed, seeds, out, ledger, key)
        switches = allow_delta or release_scores or unprotected_scores
        if switches or any(each is not None for each in (*others, score_epsilon)):
            raise ValueError(
                "train: --resume must stand alone (with --baseline, --devices, --processes, "
                "--plot, --report, --force, --json and --quiet), got other options. A resumed run "
                "keeps its configuration."
            )
        folder = Folder(resume)
        settings = folder.open()
    else:
        names = ("allow_delta", "release_scores", "unprotected_scores")
        switched = [f"privacy.{name}=true" for name in names if given[name]]
        if score_epsilon is not None:
            switched.append(f"privacy.score_epsilon={score_epsilon!r}")
        places = {name: given[name] for name in ("ledger", "key") if given[name]}
        switched += [f"privacy.{name}={json.dumps(str(each))}" for name, each in places.items()]
        settings = asked.configured("train", config, given, [*switched, *(changes or [])])
        shown = plot or (report and settings.privacy.noise != "secure")
        settings = asked.scored_on_the_way(settings) if shown else settings
        if processes is not None and out is None:
            raise ValueError("train: --out must be given with --processes, the same in each.")
        folder = Folder(out or Path("runs") / time.strftime("%Y%m%d-%H%M%S"))
        folder.check_free()
    _check_plot(plot, settings, force=force)
    _check_baseline(baseline, settings)
    settings = _shared(settings, devices, processes, process, coordinator)
    if resume is None:
        with busy("preparing", quiet=quiet):
            clients, remarks = check_run(settings)
        keys = given_keys(config, changes or [])
        if processes is not None:
            settings, said = fitted(settings, clients, keys)
            remarks += said
        else:
            with Trainings(quiet=quiet) as bars:
                chosen = settle(settings, clients, keys, watch=bars.part)
            settings, remarks = chosen.config, [*remarks, *chosen.remarks]
        settings = judged(settings, clients)
    if processes is not None and not leads():
        with diverted():
            settled()  # process 0 has made the folder
            shared = settings.training.devices
            settings = folder.open()
            settings = replace(settings, training=replace(settings.training, devices=shared))
            return follow(settings, folder, resume=resume is not None)
    secure = settings.privacy.noise == "secure"
    watcher = Watcher(
        quiet=quiet,
        scores=not scores_stay(settings.privacy),
        speed=not secure,
        metric=METRICS.get(settings.training.metric, ACCURACY),
    )
    for remark in remarks:
        watcher.say(remark)
    with lock.owned(folder.path):
        if resume is None:
            settings = folder.create(settings)
        if chosen is not None and chosen.tried:
            write_json(folder.choice, {"tried": plain(chosen.tried)}, indent=2)
        try:
            with nullcontext() if processes is None else diverted():
                settled()
                summary = run(
                    settings,
                    folder,
                    resume=resume is not None,
                    watch=watcher.watch,
                    baseline=baseline is not None,
                )
        except KeyboardInterrupt:
            watcher.say(f"Saved. Continue with: fedprior train --resume {folder.path}")
            raise
        if plot is not None:
            from fedprior.reporting.run_plot import draw_run

            drawn = partial(draw_run, folder, settings.methods, METRICS[summary["metric"]])
            save_plot("train", plot, drawn)
    if as_json:
        typer.echo(json.dumps(summary))
    elif summary["methods"]:
        console = Console(highlight=False)
        console.print(tables(settings, summary, console))
        for line in score_remarks(summary):
            watcher.say(line)
    lost = secure and settings.privacy.mechanism == "matrix"
    for line in _told(summary, as_json=as_json, secure=secure, lost=_LOST if lost else ""):
        watcher.say(line)
    watcher.written(plot)
    write_report("train", report, lambda: page_of(folder.path), watcher.say)


def _shared(
    settings: "Config",
    devices: str | None,
    processes: str | None,
    process: int | None,
    coordinator: str | None,
) -> "Config":
    """The configuration with the devices of --devices, after this process has joined the others."""
    from fedprior.cli.progress import diverted
    from fedprior.engines import processes as together

    if processes is not None:
        with diverted():
            together.join(processes, process, coordinator)
    elif process is not None or coordinator is not None:
        raise ValueError("train: --process and --coordinator need --processes N.")
    if devices is None:
        return settings
    return replace(
        settings, training=replace(settings.training, devices=together.number_of(devices))
    )


def _check_plot(plot: Path | None, config: "Config", *, force: bool) -> None:
    """Raise before anything is trained if the picture could not be drawn."""
    from fedprior.reporting.outputs import PLOT_SUFFIXES, check_output
    from fedprior.reporting.record import scores_stay

    check_output("train", "--plot", plot, PLOT_SUFFIXES, source=None, force=force)
    if plot is not None and scores_stay(config.privacy):
        raise ValueError(
            "train: --plot must be of a run that shows its clients' scores, got secure noise, "
            "under which they stay here. Leave it out, or show them with --unprotected-scores."
        )


def _check_baseline(baseline: Baseline | None, config: "Config") -> None:
    """Raise where every client's scores stay with the owner of the data."""
    from fedprior.reporting.record import scores_stay

    if baseline is not None and scores_stay(config.privacy):
        raise PrivacyError(
            f"train: --baseline must be left out with secure noise, got {baseline}. It pools the "
            "clients' rows and shows scores that no noise covers."
        )


_LOST = (
    " All rounds are paid for together. If a run is killed after the noise of a round was drawn, "
    "they must all be paid for once more."
)


def _told(summary: dict[str, Any], *, as_json: bool, secure: bool, lost: str = "") -> Iterator[str]:
    """What is said on standard error after a run; with --json only what must not be missed."""
    from fedprior.reporting.ledgers import sentence, sentence_together
    from fedprior.reporting.population import sentence as population_sentence
    from fedprior.reporting.released import sentence as score_sentence

    whose = "its budget or the population's" if "population" in summary else "its budget"
    for end in summary["runs"]:
        if end["ended_by"] == "budget":
            yield (
                f"{end['method']}, seed {end['seed']}: stopped by {whose} after {end['rounds']} "
                f"of {end['planned']} rounds.{lost}"
            )
        if end["trust"] is not None and not as_json:
            yield f"{end['method']}, seed {end['seed']}: {_trusted(end['trust'])}"
    if secure:
        yield (
            "checkpoint/ and model/ hold models and scores of single clients: they stay with "
            "whoever holds the data. fedprior export writes what may be published."
        )
    if as_json:
        return
    for row in summary.get("released_scores", ()):
        yield score_sentence(row)
    if summary["scores_withheld"]:
        hint = " --release-scores --score-epsilon E releases their mean, with noise."
        hint = "" if "released_scores" in summary else hint
        yield f"Scores of single clients are not private and stay here.{hint}"
    for bill in summary.get("privacy", ()):
        yield sentence(bill)
    if summary.get("together"):
        yield sentence_together(summary["together"])
    if "population" in summary:
        yield population_sentence(summary["population"])
    yield f"Run folder: {summary['run']}"


def _trusted(trust: float) -> str:
    """How far clients followed the population of a private run, in words."""
    if trust == 0:
        return "the shared model did not stand out from its noise; clients kept to their own data."
    return f"trust in the shared model is {trust:.2f}, between 0 (all noise) and 1 (no noise)."
