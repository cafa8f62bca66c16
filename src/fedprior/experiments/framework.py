"""What a learned prior is worth: on clients drawn from the framework, and with few samples.

Accuracy, log loss and calibration error of AdaMAP, of its mean alone and of other methods. On data
drawn from the framework `PersonalClassifier`, which integrates theta out, is beside them.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import check
from fedprior.core.algorithm import Theta
from fedprior.core.files import make_folder, read_json, write_json
from fedprior.data.federation import Federation, Split
from fedprior.engines import cache
from fedprior.engines.device import Models
from fedprior.engines.grid import Family
from fedprior.engines.metrics import Meter, Metrics
from fedprior.engines.seeds import Seeds
from fedprior.engines.trained import personal, scores
from fedprior.engines.trainings import train
from fedprior.exchange.agreement import Rules
from fedprior.exchange.facts import Facts
from fedprior.experiments.compare import markdown_table
from fedprior.experiments.comparison_report import interval
from fedprior.experiments.comparison_settings import SEVERAL, Setting
from fedprior.experiments.comparison_settings import method as method_of
from fedprior.experiments.optimizers import FREQUENCIES
from fedprior.learning.judging import ENTIRELY
from fedprior.reporting.config import Config, Data, ModelChoice, read
from fedprior.reporting.training import Study

OWN, MEAN, INTEGRATED = "adamap", "adamap-mean", "personal-classifier"
SPREADS = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0)
SAMPLES = (10, 30, 120, 1200)
FRAMEWORK_METHODS = (
    *(OWN, MEAN, INTEGRATED, "fedavg", "fedavg-fine-tuning", "gaussian-em", "local"),
)
FEW_METHODS = (OWN, MEAN, "fedavg", "fedavg-fine-tuning", "local", *SEVERAL)
SMOOTHING = (1.0, 0.1, 0.01)  # of the class frequencies of methods that do not learn it
METRICS = ("accuracy", "log_loss", "calibration_error")
Values = dict[str, list[float]]  # of each metric, by seed


@dataclass(frozen=True, kw_only=True)
class PriorRow:
    """One method in one setting, mean over seeds.

    `ahead` is AdaMAP's accuracy minus this one's in points, `less` by how many percent its log loss
    is lower, both paired by seed and with 95% intervals.
    """

    setting: str
    method: str
    accuracy: float
    log_loss: float
    calibration_error: float
    ahead: float
    ahead_low: float | None
    ahead_high: float | None
    less: float
    less_low: float | None
    less_high: float | None
    by_seed: Values


def framework_settings() -> list[Setting]:
    """200 clients of 20 to 50 samples at every spread, with the softmax regressions they come from.

    Rounds, cohorts and rates are those of `fedprior train`.
    """
    return [
        Setting(
            name=f"spread-{spread:g}",
            title=f"theta_i ~ N(mu, {spread:g}² I), 200 clients of 20 to 50 samples",
            config=Config(
                data=Data(name="synthetic", options={"num_clients": 200, "spread": spread}),
                model=ModelChoice(name="logistic"),
            ),
        )
        for spread in SPREADS
    ]


def few_settings() -> list[Setting]:
    """MNIST with 10 to 1,200 samples per client, and writers never seen in training."""
    mnist = read("mnist")
    given = [
        Setting(
            name=f"samples-{number}",
            title=f"MNIST, 3 classes and {number:,} samples per client, K/m = 0.1",
            config=replace(mnist, data=replace(mnist.data, options=options)),
            optimizer=FREQUENCIES,
        )
        for number in SAMPLES
        for options in [{**mnist.data.options, "train_samples": number}]
    ]
    title = "MNIST by writer, 16 of 66 clients never seen in training, K/m = 0.2"
    return [
        *given,
        Setting(name="newcomers", title=title, config=read("newcomers"), optimizer=FREQUENCIES),
    ]


def measured(
    setting: Setting,
    methods: Sequence[str],
    *,
    seeds: Sequence[int],
    folder: Path,
    root: Path | None = None,
    workers: int = 1,
    tell: Callable[[str, str], None] = lambda setting, method: None,
) -> dict[str, Values]:
    """Metrics by method and seed; each method is a file of `folder`, read if it exists."""
    known: dict[str, Values] = {}
    drawn: dict[int, Federation] = {}
    facts = {"seeds": list(seeds), "rounds": setting.config.training.rounds}
    for method in methods:
        file = folder / setting.name / f"{method}.json"
        if not file.exists():
            drawn = drawn or {seed: setting.federation(seed, root) for seed in seeds}
            tell(setting.name, method)
            make_folder(file.parent)
            for name, values in _metrics(setting, method, drawn, workers).items():
                write_json(file.with_name(f"{name}.json"), {**facts, "values": values})
        content, remedy = read_json(file), "Choose another folder for another study."
        for name, value in facts.items():
            kept = content.get(name)
            check.require(kept == value, str(file), name, f"{value}", kept, remedy)
        known[method] = content["values"]
    return known


def _metrics(
    setting: Setting, method: str, drawn: dict[int, Federation], workers: int
) -> dict[str, Values]:
    """Those of a method; AdaMAP and its mean come from one training.

    A method that does not learn the smoothing of class frequencies has the one of `SMOOTHING` with
    the highest mean validation score.
    """
    if method == INTEGRATED:
        return {method: _values(_integrated(drawn, workers))}
    cache.enable()
    name = OWN if method == MEAN else method
    study = Study(setting.config, Facts.of(next(iter(drawn.values()))))
    known, options = method_of(name), setting.method_options(name)
    training = study.training(known.name, options)
    family = Family(lambda **own: study.training(known.name, {**options, **own}).algorithm, ())
    learned = "judge_every" in known.options() or not options.get("class_frequencies")
    points = [{}] if learned else [{"smoothing": value} for value in SMOOTHING]
    seeds = Seeds(tuple(drawn), tuple(drawn.values()), training.cohort)
    trained = train(family, points, seeds, rounds=training.rounds)[0]

    def at(place: int) -> Models:
        models: Models = jax.tree.map(lambda leaf: leaf[place], trained)
        return models

    def valid(place: int) -> float:
        thetas = personal(family, points[place], at(place), seeds)
        own = scores(family, points[place], thetas, seeds, "valid", training.metric)
        return float(np.nanmean(own[:, : study.veterans]))

    chosen = max(range(len(points)), key=valid) if len(points) > 1 else 0
    point, models = points[chosen], at(chosen)
    first = study.veterans if setting.config.training.newcomers else 0
    found = {name: models}
    if name == OWN:
        alone = {**models.state, "prior_samples": 0 * models.state["prior_samples"] + ENTIRELY}
        found[MEAN] = models._replace(state=alone)
    rules = Rules(family.at(point), Identity(), 0.0)

    def tested(models: Models) -> Iterator[Metrics]:
        thetas: Theta = personal(family, point, models, seeds)
        for place, federation in enumerate(seeds.federations):
            judged = federation.part(range(first, federation.num_clients))
            meter = Meter(judged)
            own = jax.tree.map(lambda leaf: leaf[place, first:], thetas)  # noqa: B023
            meter.keep(rules)(judged.num_clients, own)
            yield meter.metrics()

    return {each: _values(tested(own)) for each, own in found.items()}


def _values(found: Iterator[Metrics]) -> Values:
    """Means over clients by seed; the calibration error is that of all samples together."""
    values: Values = {name: [] for name in METRICS}
    for each in found:
        for name in METRICS:
            whole = name == "calibration_error"  # a client has too few samples for one
            value = each.overall[name] if whole else each.mean[name]
            values[name].append(np.nan if value is None else float(value))
    return values


def _integrated(drawn: dict[int, Federation], workers: int) -> Iterator[Metrics]:
    """Theta integrated out, a process for each seed."""
    pairs = [(each.train, each.test) for each in drawn.values()]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for federation, outputs in zip(drawn.values(), pool.map(_fitted, pairs), strict=True):
            meter = Meter(federation)
            place = np.repeat(np.arange(federation.num_clients), federation.test.size)
            meter.add((outputs, federation.test.y, place), federation.num_clients)
            yield meter.metrics()


def _fitted(pair: tuple[Split, Split]) -> np.ndarray:
    """Log probabilities of the test samples by the model of `PersonalClassifier`.

    Without standard errors of the population, which take ten times as long as all the rest.
    """
    from fedprior.regression.logistic import fit_logistic, predictive
    from fedprior.regression.rows import GroupedRows

    (x, y, own), (test, _, whose) = (
        (
            np.column_stack([np.ones(len(part.y)), part.x]),
            part.y,
            np.repeat(np.arange(part.num_clients), part.size),
        )
        for part in pair
    )
    rows = GroupedRows.of(x, y, own, pair[0].num_clients)
    fit = fit_logistic(rows, num_classes=int(y.max()) + 1, errors=False)
    return np.log(predictive(fit, test, whose))


def rows(found: dict[str, dict[str, Values]]) -> list[PriorRow]:
    """One row a method, from values by setting, method and seed."""
    return [
        _row(setting, method, values, methods[OWN])
        for setting, methods in found.items()
        for method, values in methods.items()
    ]


def _row(setting: str, method: str, values: Values, own: Values) -> PriorRow:
    arrays = {name: np.array(values[name]) for name in METRICS}
    ahead = interval(100 * (np.array(own["accuracy"]) - arrays["accuracy"]))
    less = interval(100 * (1 - np.array(own["log_loss"]) / arrays["log_loss"]))
    gaps: dict[str, Any] = {}
    for name, parts in {"ahead": ahead, "less": less}.items():
        gaps |= dict(zip((name, f"{name}_low", f"{name}_high"), parts, strict=True))
    means = {name: float(each.mean()) for name, each in arrays.items()}
    return PriorRow(setting=setting, method=method, by_seed=values, **means, **gaps)


def table(made: Sequence[PriorRow]) -> list[list[str]]:
    """The head, then a line a row."""
    head = ["setting", "method", "accuracy", "log\nloss", "calib.\nerror"]
    lines = [[*head, "AdaMAP\nahead", "its log loss\nlower, %"]]
    for row in made:
        numbers = [f"{100 * row.accuracy:.2f}", f"{row.log_loss:.4f}"]
        numbers += [f"{100 * row.calibration_error:.1f}"]
        gaps = [_gap(row.ahead, row.ahead_low, row.ahead_high)]
        gaps += [_gap(row.less, row.less_low, row.less_high)]
        lines.append(
            [row.setting, row.method, *numbers, *("" if row.method == OWN else g for g in gaps)]
        )
    return lines


def _gap(middle: float, low: float | None, high: float | None) -> str:
    half = "" if low is None or high is None else f" ± {(high - low) / 2:.2f}"
    return f"{middle:.2f}{half}"


def markdown(made: Sequence[PriorRow]) -> str:
    """The table as Markdown."""
    return markdown_table(*([cell.replace("\n", " ") for cell in line] for line in table(made)))


def document(name: str, made: Sequence[PriorRow], seeds: Sequence[int]) -> dict[str, Any]:
    """What rows.json holds."""
    return {
        "format": 1,
        "experiment": name,
        "seeds": list(seeds),
        "rows": [asdict(row) for row in made],
        "remarks": [*remarks(made)],
    }


def remarks(made: Sequence[PriorRow]) -> Iterator[str]:
    """Whether AdaMAP keeps up with the integrated model, and loses to its own mean."""
    for setting in dict.fromkeys(row.setting for row in made):
        own = {row.method: row for row in made if row.setting == setting}
        words = []
        if INTEGRATED in own:
            words.append(f"{own[INTEGRATED].ahead:+.2f} points beside {INTEGRATED}")
        if MEAN in own:
            words.append(f"{own[MEAN].ahead:+.2f} beside its mean alone")
        if "fedavg-fine-tuning" in own:
            tuned = own["fedavg-fine-tuning"]
            words.append(f"{tuned.ahead:+.2f} beside fine-tuning, log loss {tuned.less:.1f}% lower")
        if words:
            yield f"{setting}: AdaMAP has {', '.join(words)}."
