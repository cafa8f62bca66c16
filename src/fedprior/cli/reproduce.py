"""`fedprior reproduce`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedprior.cli import asked
from fedprior.cli.comparison import ablation, beyond, cifar10, fedem, table1
from fedprior.cli.dp_figures import dp_figures
from fedprior.cli.everything import everything
from fedprior.cli.experiment import Data, ExperimentRequest, data_of, show, table_of
from fedprior.cli.framework import few_samples, framework
from fedprior.cli.optimizer import optimizer
from fedprior.core import check
from fedprior.experiments.catalog import EXPERIMENTS

Seed = Annotated[int, typer.Option(help="Seed of all draws.")]
NoSeed = Annotated[int, typer.Option("--seed", help="Has no effect: nothing is drawn.")]
Runs = Annotated[int, typer.Option("--runs", "--seeds", help="How many runs.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the figure: .png, .pdf or .svg.")]

app = typer.Typer(rich_markup_mode="markdown")
app.command("all")(everything)
app.command("dp-figures")(dp_figures)
app.command("table1")(table1)
app.command("ablation")(ablation)
app.command("beyond")(beyond)
app.command("cifar10")(cifar10)
app.command("fedem")(fedem)
app.command("optimizer")(optimizer)
app.command()(framework)
app.command("few-samples")(few_samples)


@app.callback(invoke_without_command=True)
def reproduce(context: typer.Context, as_json: asked.AsJson = False) -> None:
    """Run an experiment of the paper and print our figures next to the printed ones.

    Without a name: the list of experiments.

    Example: `fedprior reproduce bernoulli --runs 20 --seed 0`
    """
    if context.invoked_subcommand is not None:
        name = context.invoked_subcommand
        remedy = f"Write: fedprior reproduce {name} --json"
        check.require(not as_json, "reproduce", "--json", "behind the name", "it before", remedy)
        return
    if as_json:
        typer.echo(json.dumps({"format": 1, "experiments": EXPERIMENTS}))
        return
    show(table_of("", [list(EXPERIMENTS[0]), *(list(row.values()) for row in EXPERIMENTS)]))


@app.command()
def linear(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the clients.")] = False,
    runs: Annotated[int, typer.Option("--runs", "--seeds", help="How many seeds.")] = 1,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Errors of personal linear regressions with more features than rows (m = 10,000, n = 10).

    `known` has the true population, `default` learns it by marginal likelihood, `paper` by the
    printed algorithm on log-variances with floors; `local` is least squares by client, `pooled`
    over all, which is what FedAvg converges to.

    Example: `fedprior reproduce linear --json`
    """
    from fedprior.experiments.linear import remarks, run

    asked_for = ExperimentRequest("linear", report, as_json, quiet)
    check.count("linear", runs=runs)
    check.seed("linear", seed)
    rows = asked_for.run(run, seeds=range(seed, seed + runs), quick=quick)
    clients = "1,000" if quick else "10,000"
    title = f"Squared error of theta, {clients} clients of 10 rows, {runs} runs"
    lines = [("d", "method", "error", "the paper says")]
    lines += [(str(row.d), row.method, f"{row.mse:.4f}", row.paper_says or "") for row in rows]
    asked_for.tell(rows, remarks(rows), title, lines, quick=quick, seed=seed, runs=runs)


@app.command()
def logistic(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the groups.")] = False,
    seed: Seed = 0,
    plot: Plot = None,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Held-out log-loss of personal, local and pooled logistic regressions (m = 10,000).

    Groups have 5 to 40 rows and thetas of a small, a middle and a large spread. `known` has the
    true population; `laplace` and `paper` are other ways to learn it.

    Example: `fedprior reproduce logistic --plot losses.png`
    """
    from fedprior.experiments.logistic import draw_losses, remarks
    from fedprior.experiments.logistic import logistic as run

    _check_plot("logistic", plot)
    asked_for = ExperimentRequest("logistic", report, as_json, quiet)
    rows = asked_for.run(run, seed=seed, quick=quick)
    if plot is not None:
        draw_losses(rows, plot)
    groups = "1,000" if quick else "10,000"
    title = f"Held-out log-loss, {groups} groups of 5 to 40 rows, 5 features"
    lines = [("scale", "method", "log-loss", "behind personal", "variance")]
    for row in rows:
        behind = "" if row.method == "personal" else f"{row.behind:.4f} ± {row.behind_se:.4f}"
        variance = "" if row.variance is None else f"{row.variance:.4f}"
        name = row.method + (f" ({row.note})" if row.note else "")
        lines.append((f"{row.scale:g}", name, f"{row.log_loss:.4f}", behind, variance))
    asked_for.tell(rows, remarks(rows), title, lines, quick=quick, seed=seed)


@app.command()
def bernoulli(
    runs: Runs = 20,
    seed: Seed = 0,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Gains over raw means for rates drawn from four populations (m = 10,000, n = 14).

    `paper` is the formula of the main text, `default` the Beta population by marginal likelihood,
    `nonparametric` a population of any shape.

    Example: `fedprior reproduce bernoulli --runs 20 --seed 0`
    """
    from fedprior.experiments.bernoulli import bernoulli as run

    asked_for = ExperimentRequest("bernoulli", report, as_json, quiet)
    rows = asked_for.run(run, runs=runs, seed=seed)
    title = f"Gain over raw means in percent, m = 10,000, n = 14, {runs} runs"
    lines = [("population", "method", "gain", "the paper says")]
    for row in rows:
        shown = f"{row.gain:.2f} ± {row.gain_sd:.2f}"
        lines.append((row.population, row.method, shown, f"{row.paper_says:.1f}"))
    asked_for.tell(rows, [], title, lines, seed=seed, runs=runs)


@app.command()
def elections(
    data: Data = None,
    seed: NoSeed = 0,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """County elections, one left out at a time: gains over raw means on the one left out.

    Remarks below the table say why the gains are small and differ from the paper's.

    Example: `fedprior reproduce elections --data DIR`
    """
    from fedprior.experiments.elections import elections as run
    from fedprior.experiments.elections import read_votes, reasons

    asked_for = ExperimentRequest("elections", report, as_json, quiet)
    votes = read_votes(data_of("elections", data))
    rows = asked_for.run(run, votes)
    lines = [("outcome", "method", "gain", "the paper says", "expected")]
    by_year = [["outcome", "method", *map(str, votes.years)]]
    for row in rows:
        says = f"{row.paper_says} ± {row.paper_says_sd}" if row.paper_says is not None else ""
        digits = 3 if row.outcome == "votes" else 1
        mean = f"{row.gain:.{digits}f} ± {row.gain_sd:.{digits}f}"
        expected = "" if row.expected is None else f"{row.expected:.{digits}f}"
        lines.append((row.outcome, row.method, mean, says, expected))
        shown = (f"{value:.1f}" for value in row.by_election.values())
        by_year.append([row.outcome, row.method, *shown])
    title = f"Gain over raw means in percent on the election left out, {len(votes.won):,} counties"
    beside = table_of("The same by the election left out", by_year)
    facts: dict[str, Any] = {"num_counties": len(votes.won), "num_left_out": votes.left_out}
    asked_for.tell(rows, reasons(votes, rows), title, lines, beside, **facts)


@app.command("gaussian-dp")
def gaussian_dp(
    runs: Runs = 50,
    seed: Seed = 0,
    plot: Plot = None,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Error of locally private Gaussian means against epsilon (m = 10,000, n = 15).

    `paper` is the printed noise, which claims (epsilon, 1e-4) for each client; `default` the
    analytic Gaussian mechanism, which has it. `risk` is exact, `simulated` a mean over runs.

    Example: `fedprior reproduce gaussian-dp --plot privacy.png`
    """
    from fedprior.experiments.gaussian_dp import draw, remarks
    from fedprior.experiments.gaussian_dp import gaussian_dp as run

    _check_plot("gaussian-dp", plot)
    asked_for = ExperimentRequest("gaussian-dp", report, as_json, quiet)
    rows = asked_for.run(run, runs=runs, seed=seed)
    if plot is not None:
        draw(rows, plot)
    title = f"Squared error of private means, 10,000 clients of 15 samples, {runs} runs"
    lines = [["method", "epsilon", "true\nepsilon", "risk", "simulated", "gain"]]
    for row in rows:
        budget = (
            "" if value is None else f"{value:.3g}" for value in (row.epsilon, row.true_epsilon)
        )
        risk = "" if row.risk is None else f"{row.risk:.5f}"
        simulated = f"{row.simulated:.5f} ± {row.simulated_se:.5f}"
        lines.append([row.method, *budget, risk, simulated, f"{row.gain:.1f}"])
    asked_for.tell(rows, remarks(rows), title, lines, seed=seed, runs=runs)


@app.command("private-rates")
def private_rates(
    runs: Runs = 100,
    seed: Seed = 0,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Gains that private rates promise, and those they realize, for 19 populations.

    Each run draws its sizes (1 to 100), number of groups (50 to 20,000), epsilon (0.25 to 8) and
    scheme. Medians are over the runs that share; the other columns are shares of all runs.

    Example: `fedprior reproduce private-rates --runs 100 --seed 0`
    """
    from fedprior.experiments.private_rates import private_rates as run

    asked_for = ExperimentRequest("private-rates", report, as_json, quiet)
    rows = asked_for.run(run, runs=runs, seed=seed)
    title = f"Gain over raw rates in percent, {runs} settings for each population"
    lines = [
        ["population", "promised", "realized", "broken", "worse\nthan raw", "shared", "coverage"]
    ]
    for row in rows:
        shares = (row.broken, row.worse, row.shared, row.coverage)
        gains = (f"{row.promised:.1f}", f"{row.realized:.1f}")
        lines.append([row.population, *gains, *(f"{100 * each:.1f}%" for each in shares)])
    asked_for.tell(rows, [], title, lines, seed=seed, runs=runs)


@app.command()
def batting(
    data: Data = None,
    seed: NoSeed = 0,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """A player's later batting average predicted from his first season (Lahman database).

    Errors are those of predicting the later rate itself: the part due to chance in the later
    record is subtracted.

    Example: `fedprior reproduce batting --data DIR`
    """
    from fedprior.experiments.batting import batting as run
    from fedprior.experiments.batting import read_careers, remarks

    asked_for = ExperimentRequest("batting", report, as_json, quiet)
    careers = read_careers(data_of("empirical_bayes", data))
    rows = asked_for.run(run, careers)
    number = len(careers.first.n)
    title = f"Later batting averages from the first season, {number:,} players"
    lines = [["players", "method", "error", "gain\nover raw", "over\npooled"]]
    lines[0] += ["at-bats:\nover raw", "over\npooled "]
    for row in rows:
        gains = [row.gain, row.gain_over_pooled]
        gains += [row.gain_by_at_bats, row.gain_over_pooled_by_at_bats]
        words = (f"{gain:.1f}" for gain in gains)
        lines.append([row.players, row.method, f"{row.rmse:.4f}", *words])
    asked_for.tell(rows, remarks(careers, rows), title, lines, num_players=number)


def _check_plot(name: str, plot: Path | None) -> None:
    from fedprior.reporting.outputs import PLOT_SUFFIXES, check_output

    check_output(name, "--plot", plot, PLOT_SUFFIXES, source=None, force=True)
