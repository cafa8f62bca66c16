"""`fedprior reproduce table1`, `beyond`, `cifar10`, `ablation` and `fedem`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprior.cli import asked
from fedprior.cli.experiment import Data, Names, Settings, check_out, data_root, show, table_of
from fedprior.cli.pages import check_report, write_report
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.experiments.comparison_settings import Setting

Quick = Annotated[bool, typer.Option("--quick", help="One seed, one rate, a fifth of the rounds.")]
Equal = Annotated[
    bool,
    typer.Option(
        "--equal",
        help="The same optimizer for all methods: momentum at the server, gradients clipped, an "
        "average over rounds. Kept in OUT/equal, beside the published ones.",
    ),
]
Frequencies = Annotated[
    bool,
    typer.Option(
        "--frequencies",
        help="--equal, and each client's class frequencies for all methods, in OUT/frequencies.",
    ),
]
Rates = Annotated[
    str | None,
    typer.Option(help="Rates to choose from, such as 0.05,0.1 (default: those of the comparison)."),
]
Seeds = Annotated[
    int | None,
    typer.Option(help="How many seeds (default: 10; ablation 5, cifar10 3)."),
]
First = Annotated[int | None, typer.Option(help="The first seed.")]
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
        setting: Settings = None,
        equal: Equal = False,
        frequencies: Frequencies = False,
        rates: Rates = None,
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
        from fedprior.experiments.comparison_beside import found_in
        from fedprior.experiments.comparison_plan import ComparisonPlan
        from fedprior.experiments.optimizers import EQUAL, FREQUENCIES, PUBLISHED
        from fedprior.experiments.page import document_page
        from fedprior.reporting.figures import check_drawing

        check_report(name, report)
        check.count(name, workers=workers)
        check_drawing(name)
        plan = ComparisonPlan(
            name=name,
            out=out or Path(name),
            optimizer=FREQUENCIES if frequencies else EQUAL if equal else PUBLISHED,
            quick=quick,
            setting_names=setting,
            method_names=method,
            rates=None if rates is None else _numbers(name, rates),
            num_seeds=seeds,
            first_seed=seed,
        )
        check_out(name, plan.out)
        check_out(name, plan.folder)
        missing, root = plan.missing(), data_root(name, data)
        for each in {own.name: own for own, _ in missing}.values():
            each.federation(plan.seeds[0], root)  # raises for missing data before any work
        total = len(plan.grid) * len(plan.seeds) * len(missing)
        with Trainings(quiet=quiet, total=total) as bar:
            document = plan.made(root, workers, bar.part)
            bar.say(f"Written to {plan.folder}")
            beside = found_in(plan.out)
            shown = {**document, "beside": beside}
            write_report(name, report, lambda: document_page(shown), bar.say)
        if as_json:
            typer.echo(json.dumps(document))
        else:
            _print(document, plan.every, beside)

    command.__doc__ = words
    return command


table1 = _command(
    "table1",
    """Every method of the paper's Table 1 and those it cites, tuned alike.

    MNIST and, in place of FEMNIST, MNIST by writer. Each method gets the same rates and the same
    number of gradient steps; its rate is chosen on validation scores, test samples are read once.
    Finished methods are kept in the folder, so it can be run in pieces or continued. With --equal
    all methods have the same optimizer.

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
    """AdaMAP against every other method in settings that Table 1 lacks, on fresh splits.

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


def _numbers(owner: str, text: str) -> tuple[float, ...]:
    """Numbers between commas."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        rule, remedy = "numbers with commas between them", "Write: --rates 0.05,0.1"
        raise ValueError(check.message(owner, "--rates", rule, text, remedy)) from None


def _print(document: dict[str, Any], settings: "Sequence[Setting]", beside: dict[str, Any]) -> None:
    """One table per setting, with the columns that fit 80 characters, then the remarks.

    Where there are rows under other optimizers, who leads under which.
    """
    from fedprior.experiments.comparison_beside import verdicts
    from fedprior.experiments.comparison_report import Row, cells, columns

    rows = [Row(**row) for row in document["rows"]]
    tables = []
    for setting in settings:
        own = [row for row in rows if row.setting == setting.name]
        if own:
            kept = [name for name in columns(own) if name != "worst decile"]
            lines = [kept, *(cells(row, kept) for row in own)]
            tables.append(table_of(f"{setting.title}: test accuracy in percent", lines))
    words = verdicts(beside, settings) if len(beside) > 1 else []
    show(*tables, *document["remarks"], *words, f"Again: {document['command']}")
