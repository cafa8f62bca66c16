"""`fedprior reproduce table1`, `beyond`, `cifar10`, `ablation` and `fedem`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprior.cli import asked
from fedprior.cli.experiment import check_out, data_root, new_table, show
from fedprior.cli.pages import check_report, write_report
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.experiments.comparison import Part
    from fedprior.experiments.comparison_settings import Comparison, Setting

Quick = Annotated[bool, typer.Option("--quick", help="One seed, one rate, a fifth of the rounds.")]
Names = Annotated[
    list[str] | None, typer.Option("--method", help="A method to run; may be repeated.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--setting", help="A setting to run; may be repeated.")
]
Seeds = Annotated[
    int | None, typer.Option(help="How many seeds (default: 10; cifar10: 3; with --quick 1).")
]
First = Annotated[int | None, typer.Option(help="The first seed.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Root folder of the data (default: FEDPRIOR_DATA, then ../shared/data)."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for table, figure and rows (default: the name); an existing one is continued."
    ),
]
Workers = Annotated[
    int, typer.Option(help="Number of methods at a time: one compiles while another trains.")
]


def _command(name: str, words: str) -> Callable[..., None]:
    """The command that compares methods in the settings called `name`; `words` are its help."""

    def command(
        quick: Quick = False,
        method: Names = None,
        setting: Columns = None,
        seeds: Seeds = None,
        seed: First = None,
        data: Data = None,
        out: Out = None,
        workers: Workers = 2,
        report: asked.Report = None,
        as_json: asked.AsJson = False,
        quiet: asked.Quiet = False,
    ) -> None:
        from fedprior.cli.progress import Trainings
        from fedprior.experiments.comparison import compare, read_all
        from fedprior.experiments.comparison_settings import COMPARISONS, QUICK_GRID
        from fedprior.experiments.page import document_page
        from fedprior.reporting.figures import check_drawing

        check_report(name, report)
        known = COMPARISONS[name]
        count = (1 if quick else known.seeds) if seeds is None else seeds
        check.count(name, seeds=count, workers=workers)
        first = check.seed(name, known.first if seed is None else seed)
        check.seed(name, first + count - 1)
        check_drawing(name)
        folder = out or Path(name)
        check_out(name, folder)
        chosen = known.chosen_settings(setting, quick=quick)
        every = known.chosen_settings(None, quick=quick)
        methods = known.chosen_methods(method)
        grid = QUICK_GRID if quick else known.grid
        alike: dict[str, Any] = {"grid": grid, "seeds": tuple(range(first, first + count))}
        _check_own(folder, name)
        before = read_all(folder, every, known.methods, **alike)
        done = {(part.setting, part.method) for part in before}
        waiting = [each for each in chosen for own in methods if (each.name, own) not in done]
        root = data_root(name, data)
        for each in chosen:
            if each in waiting:
                each.federation(first, root)  # raises for missing data before any work
        line = ["fedprior reproduce", name, *(["--quick"] if quick else [])]
        line += [] if seeds is None else [f"--seeds {count}"]
        line += [] if seed is None else [f"--seed {first}"]
        document: dict[str, Any] = {}
        with Trainings(quiet=quiet, total=len(grid) * count * len(waiting)) as bar:
            for each in chosen:
                asked: dict[str, Any] = {"folder": folder, "root": root, "workers": workers}
                compare(each, methods, progress=bar.part, **asked, **alike)
                parts = read_all(folder, every, known.methods, **alike)
                made_by = " ".join([*line, *_pieces(parts, known)])
                document = _report(parts, every, folder, name, made_by, quick)
            bar.say(f"Written to {folder}")
            write_report(name, report, lambda: document_page(document), bar.say)
        if as_json:
            typer.echo(json.dumps(document))
        else:
            _print(document, every)

    command.__doc__ = words
    return command


table1 = _command(
    "table1",
    """Every method of the paper's Table 1 and those it cites, tuned alike.

    MNIST and, in place of FEMNIST, MNIST by writer. Each method gets the same rates and the same
    number of gradient steps; its rate is chosen on validation scores, test samples are read once.
    Finished methods are kept in the folder, so it can be run in pieces or continued.

    Example: `fedprior reproduce table1 --quick --data DIR --out table1`
    """,
)
ablation = _command(
    "ablation",
    """What each ingredient of AdaMAP is worth: the method with one of them left out.

    Example: `fedprior reproduce ablation --setting mnist --data DIR`
    """,
)
beyond = _command(
    "beyond",
    """AdaMAP against every other method in settings that Table 1 lacks, over ten fresh splits.

    Dirichlet(0.1) shares of the classes, 120 samples per client, clients never seen in training.
    Gaps to AdaMAP are paired by split, with 95% intervals, as in `table1`.

    Example: `fedprior reproduce beyond --setting newcomers --data DIR`
    """,
)
cifar10 = _command(
    "cifar10",
    """Every method with a CNN on CIFAR-10: 100 clients of 600 images, 10 of them in a round.

    Class shares drawn from Dirichlet(0.1) and Dirichlet(0.5), and 3 classes per client. A network
    of 0.9 million parameters: meant for a GPU, in pieces by --setting and --method.

    Example: `fedprior reproduce cifar10 --setting cifar10-3-classes --method adamap --data DIR`
    """,
)
fedem = _command(
    "fedem",
    """AdaPeD and FedEM with every client in every round (MNIST, 50 clients, 2 components).

    Example: `fedprior reproduce fedem --quick --data DIR`
    """,
)


def _check_own(folder: Path, name: str) -> None:
    """Raise if the folder holds another comparison."""
    file = folder / "rows.json"
    if not file.exists():
        return
    try:
        owner = json.loads(file.read_text())["experiment"]
    except (ValueError, TypeError, KeyError, OSError):
        owner = "another file"
    rule, remedy = f"of {name}", "Choose another --out."
    check.require(owner == name, name, str(file), rule, owner, remedy)


def _pieces(parts: "Sequence[Part]", known: "Comparison") -> list[str]:
    """The options that name what is there, where it is not all there is."""
    settings = [each.name for each in known.settings]
    words = []
    for option, all_of_them, there in (
        ("--setting", settings, {part.setting for part in parts}),
        ("--method", known.methods, {part.method for part in parts}),
    ):
        if there < set(all_of_them):
            words += [f"{option} {each}" for each in all_of_them if each in there]
    return words


def _report(
    parts: "Sequence[Part]",
    settings: "Sequence[Setting]",
    folder: Path,
    name: str,
    command: str,
    quick: bool,
) -> dict[str, Any]:
    """Table, picture and JSON of every part in the folder."""
    from fedprior.experiments import comparison_report as report
    from fedprior.experiments.compare import save
    from fedprior.experiments.comparison_drawing import draw

    rows = report.rows(parts, settings)
    document = report.to_json(rows, settings, parts, experiment=name, command=command, quick=quick)
    text = "\n\n".join([report.markdown(rows, settings), *document["remarks"]])
    save(document, text, folder)
    draw(parts, settings, folder / "clients.png")
    return document


def _print(document: dict[str, Any], settings: "Sequence[Setting]") -> None:
    """One table per setting, with the columns that fit 80 characters, then the remarks."""
    from fedprior.experiments.comparison_report import Row, cells, columns

    rows = [Row(**row) for row in document["rows"]]
    tables = []
    for setting in settings:
        own = [row for row in rows if row.setting == setting.name]
        if own:
            kept = [name for name in columns(own) if name != "worst decile"]
            table = new_table(f"{setting.title}: test accuracy in percent", *kept)
            for row in own:
                table.add_row(*cells(row, kept))
            tables.append(table)
    show(*tables, *document["remarks"], f"Again: {document['command']}")
