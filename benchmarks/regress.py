"""Linear regressions of many groups beside the mixed models of other packages, and by size.

    python benchmarks/regress.py [--groups N ...] [--repeats N] [--part peers|size] [--json FILE]

Two parts. `peers`: fits of a random intercept and slopes, 10 rows a group, from rows to
population and group predictions: seconds, the ratio to ours, and how far the estimates are apart,
all in the same run. `size`: the isotropic fit of the paper's setting (n = 10, d = 50) at 10,000 and
100,000 groups.
"""

import argparse
import importlib
import json
import os
import platform
import time
import warnings

import numpy as np

import fedprior
from fedprior.experiments.linear import draw
from fedprior.regression.linear import fit_linear
from fedprior.regression.rows import GroupedRows

SIZE = 10  # rows a group
ENOUGH = 300  # seconds after which a peer gets no larger problem


def grouped(groups, slopes, seed=0):
    """Intercept and slopes ~ N(1, covariance with correlations 0.3), a fixed column, noise 1."""
    draws = np.random.default_rng(seed)
    width = slopes + 1
    scale = np.linspace(1.0, 0.5, width)
    covariance = np.outer(scale, scale) * (0.3 + 0.7 * np.eye(width))
    theta = 1 + draws.multivariate_normal(np.zeros(width), covariance, groups)
    place = np.repeat(np.arange(groups), SIZE)
    x = np.column_stack([np.ones(len(place)), draws.normal(size=(len(place), slopes))])
    fixed = draws.normal(size=(len(place), 1))
    y = (x * theta[place]).sum(axis=1) + 0.5 * fixed[:, 0] + draws.normal(size=len(place))
    return x, fixed, y, place


def ours(x, fixed, y, place, covariance, criterion):
    """Coefficients, covariance, noise and theta by `fit_linear`."""
    rows = GroupedRows.of(x, y, place, place[-1] + 1, fixed=fixed)
    fit = fit_linear(rows, covariance=covariance, criterion=criterion)
    found = fit.population
    coefficients = np.concatenate([found.mean, found.fixed])
    return coefficients, found.covariance, found.noise_variance, fit.theta


def statsmodels_mixed(x, fixed, y, place):
    """The same by MixedLM, which has the full covariance."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    fit = MixedLM(y, np.column_stack([x, fixed]), groups=place, exog_re=x).fit(reml=True)
    effects = fit.random_effects
    theta = fit.fe_params[: x.shape[1]] + np.array([effects[i] for i in range(place[-1] + 1)])
    return fit.fe_params, fit.cov_re, fit.scale, theta


def gpboost_mixed(x, fixed, y, place):
    """The same by GPBoost, whose random coefficients are independent; it has no REML."""
    import gpboost

    model = gpboost.GPModel(
        group_data=place,
        group_rand_coef_data=x[:, 1:],
        ind_effect_group_rand_coef=[1] * (x.shape[1] - 1),
    )
    design = np.column_stack([x, fixed])
    model.fit(y=y, X=design, params={"optimizer_cov": "lbfgs"})
    variances = np.ravel(model.get_cov_pars())
    coefficients = np.ravel(model.get_coef())
    first = np.arange(place[-1] + 1) * SIZE
    effects = np.asarray(model.predict_training_data_random_effects())[first, : x.shape[1]]
    return coefficients, np.diag(variances[1:]), variances[0], coefficients[: x.shape[1]] + effects


PEERS = (
    ("statsmodels MixedLM", "statsmodels", statsmodels_mixed, ("full", "reml")),
    ("GPBoost", "gpboost", gpboost_mixed, ("diagonal", "ml")),
)


def apart(found, wanted):
    """Largest differences, each in units of the largest number of its kind."""
    return [
        float(np.abs(np.asarray(one) - np.asarray(two)).max() / np.abs(two).max())
        for one, two in zip(found, wanted, strict=True)
    ]


def fastest(method, repeats, *arguments):
    """The answer and the seconds of the fastest of `repeats`."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs
            answer = method(*arguments)
        times.append(time.perf_counter() - start)
    return answer, min(times)


def compare_peers(sizes, repeats):
    """One line a problem and peer: seconds, ratio, and how far apart the answers are."""
    found, spent = [], {}
    print(f"{SIZE} rows a group; the last four are largest relative differences")
    head = f"{'groups':>7}{'slopes':>7}  {'peer':22}{'theirs s':>9}{'ours s':>8}{'ratio':>7}"
    print(head + f"{'coef.':>9}{'cov.':>9}{'noise':>9}{'theta':>9}")
    for groups in sizes:
        for slopes in (1, 3):
            table = grouped(groups, slopes)
            for name, module, peer, settings in PEERS:
                try:
                    importlib.import_module(module)
                except ImportError:
                    print(f"{groups:7}{slopes:7}  {name:22} not installed")
                    continue
                if spent.get(name, 0) > ENOUGH:
                    print(f"{groups:7}{slopes:7}  {name:22} not run")
                    continue
                own, seconds = fastest(ours, repeats, *table, *settings)
                other, theirs = fastest(peer, 1, *table)
                spent[name] = theirs
                far = apart(own, other)
                found.append(
                    {"groups": groups, "slopes": slopes, "peer": name, "apart": far}
                    | {"seconds": seconds, "peer_seconds": theirs, "ratio": theirs / seconds}
                )
                line = f"{groups:7}{slopes:7}  {name:22}{theirs:9.2f}{seconds:8.3f}"
                print(line + f"{theirs / seconds:7.0f}", end="")
                print("".join(f"{value:9.1e}" for value in far), flush=True)
    return {"peers": found}


def compare_sizes(repeats):
    """Wall and CPU seconds of the isotropic fit, d = 50."""
    found = []
    print(f"{'groups':>8}{'seconds':>9}{'CPU s':>8}{'us a group':>12}")
    for groups in (10_000, 100_000):
        rows, _, _ = draw(0, groups, 10, 50)
        times = []
        for _ in range(repeats):
            start, cpu = time.perf_counter(), time.process_time()
            fit_linear(rows)
            times.append((time.perf_counter() - start, time.process_time() - cpu))
        wall, cpu = min(times)
        found.append({"groups": groups, "seconds": wall, "cpu": cpu})
        print(f"{groups:8}{wall:9.2f}{cpu:8.2f}{1e6 * wall / groups:12.1f}", flush=True)
    return {"size": found}


def main():
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part", choices=("peers", "size"), action="append")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    parts = arguments.part or ["peers", "size"]
    print(f"{platform.machine()}, {os.cpu_count()} cores, fedprior {fedprior.__version__}")
    figures = {}
    if "peers" in parts:
        figures |= compare_peers(arguments.groups, arguments.repeats)
    if "size" in parts:
        figures |= compare_sizes(arguments.repeats)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
