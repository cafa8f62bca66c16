"""`fedprior privacy plan --participation`: the matrix mechanism beside Poisson sampling."""

import math
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.privacy.plans import Plan
    from fedprior.privacy.turns import Alternative


def parse(text: str) -> tuple[int, int]:
    """Return K and B of `K,B`; `K` alone means K participations in any rounds."""
    words = [word.strip() for word in text.split(",")]
    good = 1 <= len(words) <= 2 and all(word.isdecimal() and int(word) > 0 for word in words)
    rule = "K or K,B, two whole numbers of at least 1"
    remedy = "5,100 means: at most 5 times, at least 100 rounds apart."
    check.require(good, "plan", "--participation", rule, text, remedy)
    most, *apart = map(int, words)
    return most, *(apart or [1])  # type: ignore[return-value]


def compare(
    planned: "Plan",
    rule: tuple[int, int],
    *,
    rate: float,
    num_clients: int,
    target: float | None,
) -> list["Alternative"]:
    """Return the alternatives at the plan's rounds, for its budget or else for what it costs."""
    from fedprior.privacy.turns import alternatives

    spent = planned.views[0]
    assert spent.epsilon is not None
    return alternatives(
        target=target or spent.epsilon,
        delta=spent.delta,
        rounds=planned.rounds,
        rate=rate,
        num_clients=num_clients,
        most=rule[0],
        apart=rule[1],
    )


def _figure(value: float) -> str:
    """Three digits without an exponent, for noise of any usual size."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"


def show(compared: list["Alternative"], planned: "Plan", parameters: int | None) -> None:
    """Print the comparison as a table, in norms if the number of parameters is known."""
    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("noise", "cohorts", "adversary\nsees"):
        table.add_column(name, overflow="fold")
    for name in ("multiplier", "on a mean\nupdate", "on what is\nlearned"):
        table.add_column(name, justify="right")
    scale = math.sqrt(parameters or 1)
    for each in compared:
        figures = (each.noise_multiplier, scale * each.update_noise, scale * each.learned_noise)
        shown = [_figure(figure) for figure in figures]
        table.add_row(each.mechanism, each.cohorts, each.sees, *shown)
    console.print(table)
    unit = "norm" if parameters else "standard deviation per parameter"
    text = (
        f"The same epsilon for each row, {planned.rounds} rounds, cohorts of equal expected size. "
        f"Noise is given as a {unit}, divided by the clip of one update; what is learned is the "
        "sum of the mean updates so far (root mean square over the run). Matrix noise is "
        "correlated over rounds (privacy.mechanism=matrix) and needs no secret cohorts unless "
        "they are sampled."
    )
    console.print(text, markup=False, soft_wrap=True)
