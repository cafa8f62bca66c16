"""The private figures as pictures: accuracy against epsilon, and psi by round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedprior.experiments.dp_report import CORRELATED, ERRORS, METHODS, PrivateRow
from fedprior.experiments.dp_settings import MATRIX
from fedprior.reporting.figures import (
    AMBER,
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    SKY,
    label_ends,
    side_by_side,
)

_STYLES = {
    "adamap": (PINK, "P", "DP-AdaMAP"),
    "adaped": (BLUE, "o", "DP-AdaPeD"),
    "adaped-fine-tuning": (SKY, "s", "DP-AdaPeD, local fine-tuning"),
    "fedavg": (ORANGE, "^", "DP-FedAvg"),
    "fedavg-fine-tuning": (AMBER, "v", "DP-FedAvg, fine-tuning"),
    "fedem": (GREEN, "D", "DP-FedEM"),
}
# Of psi's paths, which may lie on each other: broad lines below, narrow dashed ones above.
_PATHS = (
    (GRAY, "-", 1.8, ""),
    (SKY, "-", 7.0, ""),
    (BLUE, (0, (4, 2)), 3.0, "o"),
    (ORANGE, (0, (2, 3)), 1.4, "^"),
    (AMBER, (0, (6, 2, 1, 2)), 1.2, "D"),
    (GREEN, (0, (2, 6)), 1.0, "v"),
)
_GAP = 0.04  # between methods at one epsilon, so that their bars can be told apart
_TICKS = (0.1, 0.2, 0.5, 1, 2, 4, 10, 20, 50)  # of psi


def draw(rows: Sequence[PrivateRow], folder: Path) -> list[Path]:
    """accuracy.png and, where AdaPeD ran, psi.png: one panel per setting."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = list(dict.fromkeys(row.setting for row in rows))
    panels = {name: [row for row in rows if row.setting == name] for name in settings}
    figure, axes = side_by_side(len(panels))
    for place, own in zip(axes, panels.values(), strict=True):
        _accuracy(place, own)
    axes[0].set_ylabel("test accuracy, mean over clients (%)")
    handles, labels = axes[0].get_legend_handles_labels()
    title = f"Bars: {ERRORS} standard errors of the difference to local; band: of local itself"
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        title=title,
        ncols=2 if len(panels) == 1 else 3,
        frameon=False,
        fontsize="small",
        title_fontsize="small",
    )
    paths = [folder / "accuracy.png"]
    figure.savefig(paths[0], dpi=150)
    learned = {
        name: [row for row in own if row.method == "adaped" and row.psi]
        for name, own in panels.items()
    }
    learned = {name: own for name, own in learned.items() if own}
    if learned:
        figure, axes = side_by_side(len(learned))
        for place, own in zip(axes, learned.values(), strict=True):
            _psi(place, own)
        axes[0].set_ylabel("psi of DP-AdaPeD (log scale)")
        paths.append(folder / "psi.png")
        figure.savefig(paths[1], dpi=150)
    return paths


def _accuracy(axes: Any, rows: Sequence[PrivateRow]) -> None:
    """Lines over the private points, without privacy at the right; local as a band."""
    budgets = sorted({row.epsilon for row in rows if row.epsilon is not None})
    ticks = [*budgets, None]
    methods = (*METHODS, *CORRELATED)
    for number, method in enumerate(methods):
        own = {row.epsilon: row for row in rows if row.method == method}
        shown = [(place, own[budget]) for place, budget in enumerate(ticks) if budget in own]
        if not shown:
            continue
        color, marker, label = _STYLES[method.removesuffix(MATRIX)]
        correlated = method.endswith(MATRIX)
        label += ", matrix mechanism" if correlated else ""
        x = [place + _GAP * (number - (len(methods) - 1) / 2) for place, _ in shown]
        y = [100 * row.score for _, row in shown]
        bars = [100 * ERRORS * row.difference_se for _, row in shown]
        face = "none" if correlated else color
        look = {"fmt": marker, "color": color, "mfc": face, "ms": 5, "capsize": 2}
        axes.errorbar(x, y, yerr=bars, label=label, **look)
        private = [place for place, (_, row) in enumerate(shown) if row.epsilon is not None]
        line = "--" if correlated else "-"
        axes.plot([x[at] for at in private], [y[at] for at in private], line, color=color)
        axes.plot(x, y, color=color, linestyle=":", linewidth=1)
    local = next(row for row in rows if row.method == "local")
    level, half = 100 * local.score, 100 * ERRORS * local.score_se
    axes.axhline(level, color="0.35", linestyle="--", linewidth=1, zorder=0)
    axes.axhspan(level - half, level + half, color="0.8", zorder=0, label="local, nothing sent")
    axes.set_xticks(range(len(ticks)), [*(f"{budget:g}" for budget in budgets), "none"])
    delta = next((row.delta for row in rows if row.delta is not None), None)
    unit = "" if delta is None else f" (delta = {delta:g})"
    axes.set_xlabel(f"epsilon of one client, central{unit}")
    axes.set_title(f"{local.setting}: {local.num_clients:,} clients", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)


def _psi(axes: Any, rows: Sequence[PrivateRow]) -> None:
    """Psi by round: each path has its own width, dashes and places of its markers."""
    ends = []
    for number, (row, (color, dash, width, marker)) in enumerate(zip(rows, _PATHS, strict=False)):
        label = "without privacy" if row.epsilon is None else f"epsilon {row.epsilon:g}"
        psi = row.psi or ()
        look: dict[str, Any] = {"linestyle": dash, "linewidth": width, "color": color}
        every = max(1, len(psi) // 8)
        where = (every * (1 + number) // (1 + len(rows)), every)
        axes.plot(range(1, len(psi) + 1), psi, marker=marker, markevery=where, **look)
        ends.append((len(psi), psi[-1], label, color))
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(low, high)
    axes.set_xlabel("round")
    axes.set_title(f"{rows[0].setting}: {rows[0].num_clients:,} clients", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    label_ends(axes, ends)
