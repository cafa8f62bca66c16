"""Equal steps: what every method of a comparison is given, so that none trains for longer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Cohort, Model
from fedprior.learning.method import Method
from fedprior.learning.steps import Steps
from fedprior.privacy.cohort import Everyone

RATES = ("theta_rate", "gamma_rate", "fine_tuning_rate")  # what one rate for a method sets


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Each personal model gets the same number of gradient steps, whatever the method.

    A method with cohorts gives a client rounds * K / m * local_steps steps in expectation; one that
    works alone takes as many, with everyone in every round, and so do fine-tuning and newcomers.
    `cohort` draws among `num_clients`.
    """

    rounds: int
    cohort: Cohort
    num_clients: int
    steps: Steps

    @property
    def share(self) -> float:
        """Of the clients, the part that a round expects."""
        return self.cohort.expected_size(self.num_clients) / self.num_clients

    @property
    def alone_rounds(self) -> int:
        """Rounds with everyone that give a client as many steps."""
        return max(1, round(self.rounds * self.share))

    @property
    def personal_steps(self) -> int:
        """Gradient steps of a personal model (expected)."""
        return self.alone_rounds * self.steps.local_steps

    def plan(self, method: Method) -> tuple[int, Cohort]:
        """The method's rounds, and who takes part in them."""
        return (self.alone_rounds, Everyone()) if method.alone else (self.rounds, self.cohort)

    def build(
        self, method: Method, model: Model, options: Mapping[str, Any], **rates: Any
    ) -> Algorithm:
        """The method at these steps; its own `options` win."""
        tuned = {"newcomer_steps": self.personal_steps, "fine_tuning_steps": self.personal_steps}
        return method.build(model, options, steps=self.steps, **tuned, **rates)


def rates(method: Method, rate: Any) -> dict[str, Any]:
    """One rate for every model that the method trains."""
    return {name: rate for name in RATES if name in method.options()}
