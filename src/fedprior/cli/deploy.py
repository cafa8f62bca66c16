"""`fedprior deploy`: a run on real machines, through Flower."""

import json
import shutil
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedprior.cli import asked
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.reporting.config import Config

app = typer.Typer(
    no_args_is_help=True,
    help="Run a method on real machines through Flower: prepare, rehearse, watch, leave.",
)
# A first rehearsal takes minutes, not hours: few rounds, of many steps each.
_FIRST = ["training.rounds=10", "training.cohort='everyone'", "training.local_steps=40"]
App = Annotated[
    Path, typer.Argument(metavar="APP", help="An app folder of `fedprior deploy init`.")
]
Deadline = Annotated[
    float, typer.Option(help="Seconds that a round waits for its clients at most.")
]


@app.callback()
def require_flower() -> None:
    """Run a method on real machines through Flower: prepare, rehearse, watch, leave."""
    if find_spec("flwr") is None or find_spec("cryptography") is None:
        raise ValueError("deploy: Flower is not installed. pip install 'fedprior[flower]'.")


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write the app: a new folder.")
    ],
    config: asked.File = None,
    algorithm: Annotated[str | None, typer.Option(help="The method.")] = None,
    encoder: asked.Encoder = None,
    changes: asked.Changes = None,
    secure_sums: Annotated[
        bool,
        typer.Option(
            "--secure-sums", help="Clients mask their messages: the server sees only noisy sums."
        ),
    ] = False,
    quiet: asked.Quiet = False,
) -> None:
    """Write an app folder that `flwr run` takes as it is.

    Without a configuration: AdaMAP on the embedded digits, ten rounds. A configuration for tables
    names a public encoder, from `fedprior encoder`; the tables stay at the sites.

    Example: `fedprior deploy init app config.toml && fedprior deploy rehearse app`
    """
    from fedprior.cli.progress import say
    from fedprior.deploy.app_folder import write_app
    from fedprior.reporting.config import read
    from fedprior.sites.reading import ENCODER, SITES

    method = algorithm or ("adamap" if config is None else None)
    own = [] if method is None else [f"methods=[{json.dumps(method)}]"]
    own += _FIRST if config is None else []
    if secure_sums:
        own += ["privacy.secure_sums=true", "privacy.relation='replace-one'"]
    if encoder is not None:
        own.append(f"data.encoder={json.dumps(str(encoder))}")
    settings = read(config, [*own, *(changes or [])])
    public = settings.data.encoder
    if settings.data.path or public:
        at_sites = replace(settings.data, path="", root="", encoder="", name=SITES, fingerprint="")
        settings = replace(settings, data=at_sites)
    if public:
        check.require(Path(public).is_file(), "deploy init", "encoder", "a file", public)
    write_app(folder, settings)
    if public:
        shutil.copy(public, folder / ENCODER)
    rows = " --data FILE" if settings.data.name == SITES else ""
    say(f"Written to {folder}. Try it: fedprior deploy rehearse {folder}{rows}", quiet=quiet)


@app.command()
def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The site's folder.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The site's rows: a CSV or Parquet file, or a folder of .npz files."),
    ] = None,
    app_folder: Annotated[
        Path | None, typer.Option("--app", help="The app, as the coordinator sent it.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the client, if the table has no column for it.")
    ] = None,
    accept: Annotated[
        Path | None, typer.Option(help="An agreement.json to accept, and to print.")
    ] = None,
    leave: Annotated[
        bool, typer.Option("--leave", help="Delete all that the site holds of its clients.")
    ] = False,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Make and check the folder of a node, accept an agreement there, or leave for good.

    With --data, rows are checked against the app and become samples in DIR; DIR/card.json is what
    the coordinator needs. Nothing is sent anywhere.

    Example: `fedprior deploy site clinic --app app --data visits.csv --name "clinic 7"`
    """
    from fedprior.cli.progress import busy, say
    from fedprior.sites import folder as folders
    from fedprior.sites.guarantee import counted

    chosen = [
        word for word, on in (("--data", data), ("--accept", accept), ("--leave", leave)) if on
    ]
    one = "give one of --data, --accept and --leave."
    check.expect(len(chosen) == 1, "deploy site", one)
    if data is not None:
        sentence = "--data needs --app: the app says what rows must look like."
        if app_folder is None:
            raise ValueError(f"deploy site: {sentence}")
        with busy("reading", quiet=quiet):
            answer = _make_site(folder, app_folder, data, name)
        card = f"{folder / 'card.json'}"
        names = ", ".join(answer["clients"][:3]) + (", ..." if len(answer["clients"]) > 3 else "")
        number = counted(len(answer["clients"]))
        lines = [f"{number} ({names}). Send {card} to the coordinator."]
    elif accept is not None:
        from fedprior.sites.guarantee import guarantee, sentences

        document = folders.accept(folder, accept)
        answer = {"token": document.token, "guarantee": guarantee(document)}
        lines = [*sentences(document), f"Accepted by {folder}."]
    else:
        answer = {"left": folders.leave(folder)}
        lines = [
            f"Deleted from {folder}: samples, memories and models of {', '.join(answer['left'])}. "
            "Ask the coordinator for: fedprior deploy forget RUN CLIENT. What was learned from "
            "them stays in the shared model."
        ]
    _tell(answer, lines, as_json=as_json, quiet=quiet, say=say)


@app.command()
def roster(
    app_folder: App,
    cards: Annotated[list[Path], typer.Argument(help="The sites' card.json files.")],
    deadline: Deadline = 600.0,
    force: asked.Force = False,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Enter the sites into the app: writes agreement.json, which each site has to accept.

    Each call makes another agreement, for another run.

    Example: `fedprior deploy roster app clinic-1/card.json clinic-2/card.json`
    """
    from fedprior.cli.progress import busy, say
    from fedprior.deploy.app_folder import write_agreement
    from fedprior.reporting.units import raw_target
    from fedprior.sites.folder import read_card
    from fedprior.sites.guarantee import guarantee, sentences

    settings, path = _settings(app_folder), app_folder / "agreement.json"
    sentence = f"{path} exists, and sites may have accepted it. --force makes another agreement."
    check.expect(force or not path.exists(), "deploy roster", sentence)
    found = {str(card): read_card(card) for card in cards}
    with busy("writing the agreement", quiet=quiet):
        document, listed = write_agreement(app_folder, settings, found, deadline=deadline)
        shown = guarantee(document)
    answer = {"token": document.token, "clients": listed.active, "guarantee": shown}
    raw = raw_target(settings, quantity=bool(document.encoder) and document.classes is None)
    lines = [*sentences(document), *raw, f"Send {path} to the sites, to be accepted."]
    _tell(answer, lines, as_json=as_json, quiet=quiet, say=say)


@app.command()
def rehearse(
    app_folder: App,
    nodes: Annotated[int, typer.Option(help="How many nodes share the clients.")] = 4,
    data: asked.Data = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds, if not the app's.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Run without TLS.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder (default: runs/rehearsal-TIME).")] = None,
    deadline: Deadline = 300.0,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Run the app on this machine, with real processes, keys and certificates of its own.

    The clients of the app's dataset, or of --data, are shared among the nodes.

    Example: `fedprior deploy rehearse app --nodes 4`
    """
    from fedprior.cli.progress import Rehearsing, busy
    from fedprior.cli.scores import tables
    from fedprior.deploy.rehearsal import prepare
    from fedprior.reporting import federations
    from fedprior.reporting.units import raw_target
    from fedprior.sites.guarantee import sentences
    from fedprior.sites.reading import SITES, read_clients

    settings = _settings(app_folder, [] if rounds is None else [f"training.rounds={rounds}"])
    if settings.data.name == SITES:
        sentence = "the app's data are at its sites. Give rows to try it with: --data FILE."
        check.expect(data is not None, "rehearse", sentence)
        clients = read_clients(app_folder, settings, data or Path())
    else:
        if data is not None:
            settings = replace(settings, data=replace(settings.data, root=str(data)))
        clients = federations.clients_of(settings)
    folder = out or Path("runs") / time.strftime("rehearsal-%Y%m%d-%H%M%S")
    free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    check.require(free, "rehearse", "--out", "a new or empty folder", str(folder))
    with busy("preparing", quiet=quiet):
        begun = prepare(app_folder, settings, clients, nodes=nodes, out=folder, deadline=deadline)
    watch = Rehearsing(quiet=quiet, rounds=begun.document.training.rounds)
    quantity = clients.encoder is not None and clients.classes is None
    for line in [*sentences(begun.document), *raw_target(settings, quantity=quantity)]:
        watch.say(line)
    with watch:
        begun.play(watch.seen, tls=not insecure)
    summary = json.loads((begun.run / "summary.json").read_text())
    if as_json:
        typer.echo(json.dumps(summary))
        return
    if summary["methods"]:
        console = Console(highlight=False)
        console.print(tables(settings, summary, console))
    watch.say(f"Run folder: {begun.run}. Sites: {folder}/site-0 and so on.")


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a site's.")],
    as_json: asked.AsJson = False,
) -> None:
    """Show how far a run is, what it has spent and who failed last, or what a site has agreed to.

    Example: `fedprior deploy status runs/hospitals`
    """
    from fedprior.sites import standing

    found = (
        standing.of_site(folder) if (folder / "card.json").is_file() else standing.of_run(folder)
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    for line in standing.sentences(found):
        typer.echo(line)


@app.command()
def forget(
    run: Annotated[Path, typer.Argument(help="The run folder at the server.")],
    client: Annotated[str, typer.Argument(help="The client that has left for good.")],
    quiet: asked.Quiet = False,
) -> None:
    """Stop asking a client that has left, and forget its key.

    What was learned from its messages stays in the shared model and cannot be removed.

    Example: `fedprior deploy forget runs/hospitals "clinic 7"`
    """
    from fedprior.cli.progress import say
    from fedprior.sites.roster import Roster

    path = run / "roster.json"
    check.require(path.is_file(), "deploy forget", "RUN", "a run folder", str(run))
    Roster.read(path).forget(client).write(path)
    say(f"{client} is not asked again, from the next round on.", quiet=quiet)


def _settings(folder: Path, changes: list[str] | None = None) -> "Config":
    from fedprior.reporting.config import read

    path = folder / "config.toml"
    rule = "an app folder of fedprior deploy init"
    check.require(path.is_file(), "deploy", "APP", rule, str(folder))
    return read(path, changes or [])


def _make_site(folder: Path, app_folder: Path, data: Path, name: str | None) -> dict[str, Any]:
    from fedprior.sites.folder import make_site
    from fedprior.sites.reading import read_clients

    settings = _settings(app_folder)
    clients = read_clients(app_folder, settings, data, name=name)
    return make_site(folder, clients, private=settings.privacy.epsilon > 0)


def _tell(
    answer: dict[str, Any], lines: list[str], *, as_json: bool, quiet: bool, say: Any
) -> None:
    if as_json:
        typer.echo(json.dumps({"format": 1, **answer}))
    else:
        for line in lines:
            say(line, quiet=quiet)
