"""What a sweep of 6 rates x 5 seeds costs, beside 30 separate trainings of the same work.

    python benchmarks/sweep.py --data DIR [--setting writers-033] [--quick] [--json FILE]

Both are timed with compiled programs in hand, and again from nothing, without a cache of programs.
Separate trainings compile once a rate (a rate is part of an algorithm) and share that program over
seeds; all seeds train on one split of the data, so that none of them compiles for another shape.
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import numpy as np

import fedprior
from fedprior.exchange.facts import Facts
from fedprior.experiments import comparison_settings as known
from fedprior.reporting.training import Study


def separate(setting, method, grid, seeds, federation):
    """Seconds of all trainings compiled, of all of them from nothing, and mean scores."""
    study = Study(setting.config, Facts.of(federation))
    spent, compiling, means = 0.0, 0.0, []
    for rate in grid:
        training = study.training(method, rate=rate)
        for number, seed in enumerate((seeds[0], *seeds)):
            start = time.perf_counter()
            result = fedprior.simulate(
                training.algorithm, federation, **training.arguments, seed=seed, test=False
            )
            taken = time.perf_counter() - start
            if number == 0:
                compiling += taken
                continue
            spent += taken
            compiling -= taken * (number == 1)  # the same training, compiled
            means.append(float(np.nanmean(result.valid_scores)))
    return spent, spent + compiling, means


def together(setting, method, grid, seeds, federation):
    """Seconds of the sweep, and of the one before it (compiling), and mean scores."""
    study = Study(setting.config, Facts.of(federation))
    training = study.training(method)

    def build(rate):
        return study.training(method, rate=rate).algorithm

    times = []
    for _ in range(2):
        start = time.perf_counter()
        found = fedprior.sweep(
            build,
            federation,
            over={"rate": [float(rate) for rate in grid]},
            seeds=seeds,
            rounds=training.rounds,
            cohort=training.cohort,
            test=False,
        )
        times.append(time.perf_counter() - start)
    return times[1], times[0], np.nanmean(found.valid, axis=2).ravel().tolist()


def main():
    """Times both ways and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="root folder of MNIST")
    parser.add_argument("--setting", default="writers-033")
    parser.add_argument("--method", default="adaped")
    parser.add_argument("--quick", action="store_true", help="2 rates, 2 seeds, a few rounds")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ["FEDPRIOR_CACHE"] = ""
    setting = next(each for each in known.TABLE1 if each.name == given.setting)
    grid, seeds = known.GRID, (0, 1, 2, 3, 4)
    if given.quick:
        setting, grid, seeds = setting.quick.quick, grid[:2], seeds[:2]
    federation = setting.federation(0, given.data)
    alone, alone_first, scores = separate(setting, given.method, grid, seeds, federation)
    swept, swept_first, same = together(setting, given.method, grid, seeds, federation)
    found = {
        "device": jax.devices()[0].device_kind,
        "setting": setting.name,
        "method": given.method,
        "trainings": len(grid) * len(seeds),
        "separate_s": alone,
        "sweep_s": swept,
        "ratio": swept / alone,
        "separate_from_nothing_s": alone_first,
        "sweep_from_nothing_s": swept_first,
        "ratio_from_nothing": swept_first / alone_first,
        "largest_difference_of_mean_scores": float(np.abs(np.subtract(scores, same)).max()),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
