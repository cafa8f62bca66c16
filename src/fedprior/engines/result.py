"""What a simulation gives back."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax
import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, State, Theta
from fedprior.data.federation import Federation
from fedprior.engines.evaluate import Source, personal_models
from fedprior.engines.store import Store
from fedprior.exchange.agreement import Agreement

EndedBy = Literal["rounds", "patience", "budget"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run: the server's state, the clients' memories, and how the clients score.

    `scores` and `valid_scores` hold one mean score a client (NaN without samples); `scores` is
    empty where the test samples were not asked for. `history` has one entry a round: the state's
    scalars (`psi`), how many clients took part, how many were left out because their update was not
    finite, and the mean validation score (`valid`) where it was computed. `ended_by` says whether
    all rounds ran, patience ended, or the privacy budget allowed no further round.
    """

    agreement: Agreement
    federation: Federation
    state: State
    store: Store
    rounds: int
    history: list[dict[str, float]]
    scores: np.ndarray
    valid_scores: np.ndarray
    ended_by: EndedBy = "rounds"

    @property
    def algorithm(self) -> Algorithm:
        return self.agreement.algorithm

    @property
    def seed(self) -> int:
        return self.agreement.seed

    @property
    def left_out(self) -> int:
        """Updates that were not finite and so not added, over all rounds."""
        return int(sum(entry["left_out"] for entry in self.history))

    @cached_property
    def thetas(self) -> Theta:
        """Every client's own parameters, with a leading client axis."""
        return self._personalize(np.arange(self.federation.num_clients))

    def theta(self, client: int) -> Theta:
        """One client's own parameters."""
        check.count("Result", least=0, client=client)
        rule = f"below the number of clients ({self.federation.num_clients})"
        check.require(client < self.federation.num_clients, "Result", "client", rule, client)
        return jax.tree.map(lambda leaf: leaf[0], self._personalize(np.array([client])))

    def predict(self, client: int, x: Any) -> Any:
        """Outputs of one client's own model: logits, or the predicted value."""
        return self.algorithm.predict(self.theta(client), x)

    @cached_property
    def _train(self) -> Source:
        mapped = isinstance(self.federation.train.x, np.memmap)
        return Source(self.federation.train, pooled=not mapped)

    def _personalize(self, clients: np.ndarray) -> Theta:
        return personal_models(
            self.agreement.rules,
            state=self.state,
            store=self.store,
            source=self._train,
            clients=clients,
            root=self.agreement.keys().root,
        )
