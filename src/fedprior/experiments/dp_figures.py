"""Accuracy against epsilon, and psi's path: the paper's DP figures with sound accounting.

Runs without the command line's libraries, too: `python -m fedprior.experiments.dp_figures --help`.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fedprior.core import check, tree
from fedprior.data.federation import Federation
from fedprior.engines.result import Result
from fedprior.engines.simulate import simulate
from fedprior.exchange.facts import Facts
from fedprior.experiments.compare import Watch, unwatched
from fedprior.experiments.dp_report import CORRELATED, ERRORS, METHODS, PrivateRow, save
from fedprior.experiments.dp_settings import (
    EPSILONS,
    GROUPS,
    MATRIX,
    Noise,
    Panel,
    Planned,
    chosen,
    plan_noise,
    read_noise,
    write_noise,
)
from fedprior.reporting.training import Training

_FEWEST_SEEDS = 3  # fewer give no standard error over seeds to speak of

Case = tuple[str, float | None]


class Simulated(NamedTuple):
    """What one simulation leaves: test scores by client, psi by round, steps, noise and trust."""

    scores: np.ndarray
    psi: np.ndarray | None
    steps: float
    noise_to_signal: float | None = None
    trust: float | None = None


def dp_figures(
    panels: Sequence[Panel],
    *,
    epsilons: Sequence[float] = EPSILONS,
    seeds: Sequence[int] = (0, 1, 2),
    methods: Sequence[str] = METHODS,
    noise: Noise | None = None,
    root: Path | None = None,
    watch: Watch = unwatched,
) -> list[PrivateRow]:
    """Every method at every epsilon and without privacy, against local at equal gradient steps.

    `noise` gives the noise multipliers (else they are planned here, which takes dp-accounting);
    `root` is the data's folder. A seed draws the federation, the cohorts, the noise and the start.
    """
    _check(epsilons, seeds, methods)
    matrix = any(method.endswith(MATRIX) for method in methods)
    planned = plan_noise(panels, epsilons, matrix=matrix) if noise is None else noise
    cases: list[Case] = [("local", None)]
    for method in methods:
        clear = () if method.endswith(MATRIX) else (None,)
        cases += [(method, epsilon) for epsilon in (*clear, *epsilons)]
    total, done = len(panels) * len(cases) * len(seeds), 0

    def step() -> None:
        nonlocal done
        done += 1
        watch(done, total)

    rows: list[PrivateRow] = []
    for panel in panels:
        own = planned.get(panel.name, Planned({}, {}))
        for epsilon in epsilons:
            rule = f"given for {panel.name} at epsilon {epsilon:g}"
            check.require(epsilon in own.poisson, "dp_figures", "noise", rule, own)
        outcomes = _simulate(panel, cases, seeds, own, root, step)
        baseline = np.stack([outcome.scores for outcome in outcomes[0]])
        rows += [
            _row(panel, case, each, baseline, own)
            for case, each in zip(cases, outcomes, strict=True)
        ]
    return rows


def _check(epsilons: Sequence[float], seeds: Sequence[int], methods: Sequence[str]) -> None:
    check.require(len(seeds) > 0, "dp_figures", "seeds", "at least one", len(seeds))
    for seed in seeds:
        check.seed("dp_figures", seed)
    for epsilon in epsilons:
        check.positive("dp_figures", epsilon=epsilon)
    for method in methods:
        check.choice("dp_figures", "methods", method, (*METHODS, *CORRELATED))


def _simulate(
    panel: Panel,
    cases: Sequence[Case],
    seeds: Sequence[int],
    planned: Planned,
    root: Path | None,
    step: Callable[[], None],
) -> list[list[Simulated]]:
    """Outcomes by case, then by seed. Trainings are built once: seeds share compiled programs."""
    trainings: list[Training] = []
    outcomes: list[list[Simulated]] = [[] for _ in cases]
    for seed in seeds:
        federation = panel.federation(seed, root)
        facts = Facts.of(federation)
        trainings = trainings or [
            panel.training(method, facts, at, planned) for method, at in cases
        ]
        for training, own in zip(trainings, outcomes, strict=True):
            own.append(_outcome(panel, training, federation, seed))
            step()
    return outcomes


def _outcome(panel: Panel, training: Training, federation: Federation, seed: int) -> Simulated:
    result = simulate(training.algorithm, federation, **training.arguments, seed=seed)
    path = [entry["psi"] for entry in result.history if "psi" in entry]
    return Simulated(
        result.scores,
        np.array(path) if path else None,
        _steps(panel, result),
        training.noise and training.noise.to_signal(tree.size(result.state["gamma"])),
        result.history[-1].get("trust") if result.history else None,
    )


def _steps(panel: Panel, result: Result) -> float:
    """Mean number of gradient steps of the model that a client uses at the end."""
    if result.algorithm.name in ("fedavg-fine-tuning", "adamap"):
        return float(panel.steps)
    memories, enrolled = result.store.read(np.arange(result.federation.num_clients))
    steps = np.asarray(memories["step"], np.float64)
    if result.algorithm.name == "adaped-fine-tuning":
        missed = (panel.rounds - np.asarray(memories["round"])) * panel.tuning_steps
        steps = steps + np.minimum(missed, panel.catch_up)
    if result.algorithm.name.startswith("adaped"):
        steps = np.where(np.asarray(enrolled), steps, panel.steps)
    return float(steps.mean())


def _row(
    panel: Panel,
    case: Case,
    outcomes: Sequence[Simulated],
    baseline: np.ndarray,
    planned: Planned,
) -> PrivateRow:
    method, epsilon = case
    scores = np.stack([outcome.scores for outcome in outcomes])
    score, score_se, over = _mean(scores)
    difference, error, _ = _mean(scores - baseline)
    correlated = method.endswith(MATRIX)
    noises = planned.matrix if correlated else planned.poisson
    trusts = [outcome.trust for outcome in outcomes if outcome.trust is not None]
    paths = [outcome.psi for outcome in outcomes if outcome.psi is not None]
    psi = tuple(round(float(value), 6) for value in np.mean(paths, axis=0)) if paths else None
    return PrivateRow(
        setting=panel.name,
        num_clients=panel.num_clients,
        rounds=panel.rounds,
        rate=panel.rate,
        clip=panel.clip,
        method=method,
        epsilon=epsilon,
        delta=None if epsilon is None else panel.delta,
        cohorts_known=epsilon if correlated or epsilon is None else planned.known[epsilon],
        noise_multiplier=None if epsilon is None else noises[epsilon],
        noise_to_signal=outcomes[0].noise_to_signal,
        trust=float(np.mean(trusts)) if trusts else None,
        num_seeds=len(outcomes),
        score=score,
        score_se=score_se,
        difference=difference,
        difference_se=error,
        difference_by_clients_se=_by_clients(scores - baseline),
        error_over=over,
        above=difference > ERRORS * error,
        below=difference < -ERRORS * error,
        steps=float(np.mean([outcome.steps for outcome in outcomes])),
        psi=psi,
    )


def _mean(values: np.ndarray) -> tuple[float, float, Literal["seeds", "clients"]]:
    """Mean over (seeds, clients), its standard error, and what that is over."""
    by_seed = np.nanmean(values, axis=1)
    mean = float(by_seed.mean())
    if len(values) < _FEWEST_SEEDS:
        return mean, _by_clients(values), "clients"
    return mean, float(by_seed.std(ddof=1) / np.sqrt(len(values))), "seeds"


def _by_clients(values: np.ndarray) -> float:
    """Standard error of the mean over all clients of all seeds, as if each were drawn alone."""
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else 0.0


def main(words: Sequence[str] | None = None) -> None:
    """Run the panels one after the other; write rows.json and table.md after each."""
    parser = argparse.ArgumentParser(prog="python -m fedprior.experiments.dp_figures")
    parser.add_argument("--out", type=Path, default=Path("dp-figures"), help="folder to write")
    parser.add_argument("--setting", choices=GROUPS)
    parser.add_argument("--noise", type=Path, help="noise multipliers (else dp-accounting plans)")
    parser.add_argument("--write-noise", type=Path, help="write them to this file, and stop")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--data", type=Path, help="root folder of the data")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--methods", nargs="+", default=[*METHODS, *CORRELATED])
    given = parser.parse_args(words)
    panels = chosen(given.setting, quick=given.quick)
    if given.write_noise is not None:
        write_noise(given.write_noise, panels)
        return
    noise = None if given.noise is None else read_noise(given.noise, panels)
    seeds = range(given.seed, given.seed + given.seeds)
    start = time.perf_counter()
    rows: list[PrivateRow] = []
    for panel in panels:

        def watch(done: int, total: int, name: str = panel.name) -> None:
            spent = time.perf_counter() - start
            sys.stderr.write(f"{name}: {done} of {total} runs, {spent:.0f} s\n")

        chosen_ones = {"seeds": seeds, "methods": given.methods}
        rows += dp_figures([panel], **chosen_ones, noise=noise, root=given.data, watch=watch)
        save(rows, given.out)


if __name__ == "__main__":
    main()
