"""`fedprior privacy plan --secure-sums`: noise that clients add, beside the central plan."""

from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.core import check
from fedprior.core.plain import picked

if TYPE_CHECKING:
    from fedprior.privacy.deployments import DistributedNoise
    from fedprior.privacy.plans import Plan

_FEWEST = 3


class Shared(NamedTuple):
    """Secure sums over cohorts of `size` clients, of whom at most `missing` are absent."""

    noise: "DistributedNoise"
    size: int
    missing: int

    def describe(self) -> dict[str, Any]:
        """Return a JSON object; noise is in clips of one update."""
        own = ("noise_multiplier", "epsilon")
        return {
            "cohort_size": self.size,
            "missing": self.missing,
            "relation": "replace-one",
            "share": self.noise.scale,
            **picked(self.noise, *own, *(f"complete_{name}" for name in own)),
            "trusts": _trusts(),
        }


def compare(
    planned: "Plan",
    missing: int | None,
    *,
    rate: float,
    num_clients: int,
    target: float | None,
    noise_multiplier: float | None,
) -> Shared:
    """Return secure sums for as many clients and rounds, with the noise given or for the budget.

    Who takes part is known, so that sampling hides nobody.
    """
    from fedprior.privacy import planning
    from fedprior.privacy.deployments import distributed_noise
    from fedprior.privacy.events import gaussian

    owner, size, delta = "plan", round(rate * num_clients), planned.views[0].delta
    rule = f"of at least {_FEWEST} clients in a round"
    check.require(size >= _FEWEST, owner, "--secure-sums", rule, size, "Use --cohort-size.")
    absent = size // 3 if missing is None else missing
    rule = f"from 0 to {size - 1}, below the cohort's size"
    check.require(0 <= absent < size, owner, "--missing", rule, absent)
    rounds = planned.rounds
    if noise_multiplier is None:
        assert target is not None
        noise_multiplier = planning.noise_multiplier(
            gaussian(1.0), target=target, delta=delta, rounds=rounds, relation="replace-one"
        )
    noise = distributed_noise(
        noise_multiplier=noise_multiplier,
        clip=1.0,
        cohort_size=size,
        missing=absent,
        rounds=rounds,
        delta=delta,
    )
    return Shared(noise, size, absent)


def show(shared: Shared, planned: "Plan") -> None:
    """Print what secure sums cost as a table, beside the central plan."""
    from fedprior.privacy.guarantee import shown

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("sums", "relation"):
        table.add_column(name, overflow="fold")
    for name in ("noise on\nthe sum", "each client\nadds", "epsilon"):
        table.add_column(name, justify="right")
    noise, central = shared.noise, planned.views[0]
    assert central.epsilon is not None
    share = shown(noise.scale, digits=4)
    rows = (
        ("central", central.relation, planned.noise_multiplier, "", central.epsilon),
        ("secure, nobody absent", "replace-one", noise.complete_noise_multiplier, share,
         noise.complete_epsilon),
        (f"secure, {shared.missing} absent", "replace-one", noise.noise_multiplier, share,
         noise.epsilon),
    )  # fmt: skip
    for name, relation, multiplier, adds, cost in rows:
        figures = (f"{multiplier:.4g}", adds, shown(cost, digits=3))
        table.add_row(name, relation, *figures)
    console.print(table)
    text = (
        f"Secure sums of {shared.size} known clients in each of {planned.rounds} rounds: sampling "
        "hides nobody. Noise is a standard deviation per parameter, divided by the clip of one "
        f"update. They trust {_trusts()}. (privacy.secure_sums=true, privacy.missing)"
    )
    console.print(text, markup=False, soft_wrap=True)


def _trusts() -> str:
    from fedprior.reporting.ledgers import TRUSTS

    return TRUSTS["masked"]
