"""Nested and crossed groups by size.

    python benchmarks/levels.py [--groups N ...] [--states N ...] [--items N ...] [--part NAME]

`nested`: counties in states, values, rates and events, from the groups' sums to estimates and
intervals of both levels. `crossed`: users by items, three rows per user. Seconds are those of the
processor, of one thread; `fit` is the likelihood's maximum, `all` includes posteriors and intervals
averaged over the standard deviations that the data allow.
"""

import argparse
import json
import os
import platform
import time

import numpy as np

from fedprior.estimation.levels.collapse import collapsed
from fedprior.estimation.levels.design import Data, design
from fedprior.estimation.levels.estimate import fit_levels
from fedprior.estimation.levels.fit import maximize

NAMES = ("state", "county")


def nested(family, counties, states, seed=0):
    """Effects of 0.5 (state) and 0.7 (county); sizes 2 to 40; noise 1 of a row."""
    draws = np.random.default_rng(seed)
    state = draws.integers(0, states, counties)
    theta = 0.5 * draws.normal(size=states)[state] + 0.7 * draws.normal(size=counties) - 1
    n = draws.integers(2, 41, counties)
    places = [state, np.arange(counties)]
    if family == "gaussian":
        mean = theta + draws.normal(size=counties) / np.sqrt(n)
        within = float(draws.chisquare(int(n.sum()) - counties))
        return Data(family, NAMES, places, mean, n.astype(float), within, int(n.sum()))
    if family == "binomial":
        y = draws.binomial(n, 1 / (1 + np.exp(-theta)))
    else:
        y = draws.poisson(n * np.exp(theta))
    return Data(family, NAMES, places, y.astype(float), n.astype(float))


def crossed(users, items, seed=0):
    """Effects of 0.7 (user) and 0.5 (item), noise 1, three rows per user."""
    draws = np.random.default_rng(seed)
    user, item = np.repeat(np.arange(users), 3), draws.integers(0, items, 3 * users)
    y = 0.7 * draws.normal(size=users)[user] + 0.5 * draws.normal(size=items)[item]
    y = y + draws.normal(size=len(y))
    rows = np.ones(len(y))
    return Data("gaussian", ("user", "item"), [user, item], y, rows, 0.0, len(y), counts=rows)


def measured(data, structure):
    """Processor seconds of the fit alone and of all, and the standard deviations."""
    begun = time.process_time()
    maximize(design("bench", data, nested=structure == "nested", restricted=True).problem)
    fit = time.process_time() - begun
    begun = time.process_time()
    found = fit_levels("bench", data, structure=structure)
    scales = {part.name: round(part.deviation, 4) for part in found.levels.parts}
    return {"fit": round(fit, 2), "all": round(time.process_time() - begun, 2), "sd": scales}


def main():
    """Print a line of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--states", type=int, nargs="+", default=[50])
    parser.add_argument("--items", type=int, nargs="+", default=[100])
    parser.add_argument("--part", choices=("nested", "crossed"))
    asked = parser.parse_args()
    print(
        json.dumps({"machine": platform.processor() or platform.machine(), "cpus": os.cpu_count()})
    )
    for groups in asked.groups:
        for states in asked.states if asked.part != "crossed" else ():
            for family in ("gaussian", "binomial", "poisson"):
                data = nested(family, groups, states)
                line = {"family": family, "groups": groups, "states": states}
                print(json.dumps(line | measured(data, "nested")), flush=True)
        for items in asked.items if asked.part != "nested" else ():
            data = collapsed(crossed(groups, items))
            line = {"users": groups, "items": items, "cells": len(data.y)}
            print(json.dumps(line | measured(data, "crossed")), flush=True)


if __name__ == "__main__":
    main()
