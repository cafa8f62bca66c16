"""`fedprior train`."""

import json
import time
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.table import Table

from fedprior.cli import asked
from fedprior.cli.bars import Bar, add_bars
from fedprior.cli.columns import keep_numbers
from fedprior.cli.pages import check_report, write_report
from fedprior.core import lock
from fedprior.core.check import PrivacyError
from fedprior.core.files import write_json
from fedprior.data.standard_input import shown as shown_path

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
    changes: asked.Changes = None,
    seed: asked.First = None,
    seeds: asked.Seeds = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/TIME).")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    allow_delta: asked.AllowDelta = False,
    release_scores: Annotated[
        bool,
        typer.Option(
            "--release-scores",
            help="Private runs: release the mean test score with noise, at --score-epsilon.",
        ),
    ] = False,
    score_epsilon: Annotated[
        float | None, typer.Option(help="What the release of the mean score may cost.")
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
        typer.Option(help="Charge this ledger of a population, by `fedprior privacy ledger init`."),
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
    quiet: Annotated[bool, typer.Option(help="Print nothing to standard error.")] = False,
) -> None:
    """Train a personal model for every client and compare methods at equal steps.

    Without arguments: AdaMAP, AdaPeD, FedAvg + fine-tuning and local training on the embedded
    digits.

    On a table, validation rows choose the model and every method's rates, unless model.name,
    training.theta_rate or training.gamma_rate is set; a private run takes them as they are.
    --baseline boosting trains scikit-learn's gradient boosting on the same rows.

    --plot draws each client's gain over local, the scores by method and, by round, the validation
    scores; --report writes a page with more. A new run then computes validation scores 20 times,
    unless training.evaluate_every says otherwise.

    Example: `fedprior train --data visits.csv --client hospital --label recovered --out runs/a`
    """
    from fedprior.cli.progress import Trainings, Watcher, busy

    with busy("loading", quiet=quiet):
        from fedprior.reporting.config import given_keys
        from fedprior.reporting.folder import Folder
        from fedprior.reporting.outputs import save_plot
        from fedprior.reporting.pages.run import page_of
        from fedprior.reporting.record import scores_stay
        from fedprior.reporting.settle import settle
        from fedprior.reporting.train import check_run
        from fedprior.reporting.train import train as run

    remarks: list[str] = []
    settled = None
    check_report("train", report, force=force)
    if resume is not None:
        of_table = (data, client, label, features, exclude, missing, encoder)
        others = (config, *of_table, algorithm, changes, seed, seeds, out, ledger, key)
        switches = allow_delta or release_scores or unprotected_scores
        if switches or any(each is not None for each in (*others, score_epsilon)):
            raise ValueError(
                "train: --resume must stand alone (with --baseline, --plot, --report, --force, "
                "--json and --quiet), got other options. A resumed run keeps its configuration."
            )
        folder = Folder(resume)
        settings = folder.open()
        _check_plot(plot, settings, force=force)
        _check_baseline(baseline, settings)
    else:
        switches_on = {
            "allow_delta": allow_delta,
            "release_scores": release_scores,
            "unprotected_scores": unprotected_scores,
        }
        switched = [f"privacy.{name}=true" for name, on in switches_on.items() if on]
        if score_epsilon is not None:
            switched.append(f"privacy.score_epsilon={score_epsilon!r}")
        places = {"ledger": ledger, "key": key}
        switched += [
            f"privacy.{name}={json.dumps(str(place))}" for name, place in places.items() if place
        ]
        settings = asked.configured(
            "train",
            config,
            data=data,
            client=client,
            label=label,
            features=features,
            exclude=exclude,
            missing=missing,
            encoder=encoder,
            algorithm=algorithm,
            seed=seed,
            seeds=seeds,
            changes=[*switched, *(changes or [])],
        )
        drawn = plot or (report and settings.privacy.noise != "secure")
        settings = asked.scored_on_the_way(settings) if drawn else settings
        folder = Folder(out or Path("runs") / time.strftime("%Y%m%d-%H%M%S"))
        folder.check_free()
        _check_plot(plot, settings, force=force)
        _check_baseline(baseline, settings)
        with busy("preparing", quiet=quiet):
            clients, remarks = check_run(settings)
        given = given_keys(config, changes or [])
        with Trainings(quiet=quiet) as shown:
            settled = settle(settings, clients, given, watch=shown.part)
        settings, remarks = settled.config, [*remarks, *settled.remarks]
    secure = settings.privacy.noise == "secure"
    watcher = Watcher(quiet=quiet, scores=not scores_stay(settings.privacy), speed=not secure)
    for remark in remarks:
        watcher.say(remark)
    with lock.owned(folder.path):
        if resume is None:
            settings = folder.create(settings)
        if settled is not None and settled.tried:
            write_json(folder.choice, {"tried": settled.tried}, indent=2)
        try:
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

            save_plot("train", plot, partial(draw_run, folder, settings.methods))
    if as_json:
        typer.echo(json.dumps(summary))
    elif summary["methods"]:
        console = Console(highlight=False)
        console.print(with_bars(table(settings, summary["methods"]), summary["methods"], console))
    lost = secure and settings.privacy.mechanism == "matrix"
    for line in _told(summary, as_json=as_json, secure=secure, lost=_LOST if lost else ""):
        watcher.say(line)
    if plot is not None:
        watcher.say(f"Written to {plot}")
    write_report("train", report, lambda: page_of(folder.path), watcher.say)


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


def with_bars(shown: Table, methods: dict[str, dict[str, Any]], console: Console) -> Group:
    """The table with bars from the worst decile to the best, if the console has room for them."""
    unit = 1 if _is_error(methods) else 100
    names = ("worst_decile", "mean", "best_decile")
    known = [[row[name] for name in names] for row in methods.values()]
    bars = [
        None if None in row else Bar(*(unit * value for value in row if value is not None))
        for row in known
    ]
    return keep_numbers(add_bars(shown, console, bars, names=("mean", "")), console.width)


def _is_error(methods: dict[str, dict[str, Any]]) -> bool:
    """Whether scores are minus a mean squared error, which is no share: they are not in percent."""
    from fedprior.core.scores import are_errors

    return are_errors([row["mean"] for row in methods.values()])


def table(config: "Config", methods: dict[str, dict[str, Any]]) -> Table:
    """One row per method: scores in percent, gains in points."""
    read = shown_path(config.data.path) or config.data.name
    title = f"Test scores of the clients' own models, {read}"
    if config.seeds > 1:
        title += f", {config.seeds} seeds"
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("method", no_wrap=True)
    for column in ("mean", "worst\ndecile", "best\ndecile", "gain over\nlocal", "clients\ngaining"):
        shown.add_column(column, justify="right", no_wrap=True)
    unit, digits = (1, 4) if _is_error(methods) else (100, 1)

    def show(value: float | None, sign: str = "") -> str:
        return "" if value is None else f"{value:{sign}.{digits}f}"

    def scaled(value: float | None, factor: float = unit) -> float | None:
        return None if value is None else factor * value

    for name, row in methods.items():
        spread = f" ± {show(scaled(row['mean_sd']))}" if row["mean_sd"] is not None else ""
        error = f" ± {show(scaled(row['gain_se'], unit / 100))}" if row["gain_se"] else ""
        alone = name == "local" or row["gain_over_local"] is None
        shown.add_row(
            name,
            show(scaled(row["mean"])) + spread,
            show(scaled(row["worst_decile"])),
            show(scaled(row["best_decile"])),
            "" if alone else show(scaled(row["gain_over_local"], unit / 100), "+") + error,
            "" if alone else f"{100 * row['share_gaining']:.1f}",
        )
    return shown
