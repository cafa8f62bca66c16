"""The result of a simulation."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, State, Theta
from fedprior.core.scores import OWN, Metric
from fedprior.data.federation import Federation, network_input
from fedprior.engines.evaluate import own_scores, personal_models
from fedprior.engines.metrics import Metrics, metrics_of_models
from fedprior.engines.pools import Source
from fedprior.engines.store import Store
from fedprior.exchange.agreement import Agreement
from fedprior.pages.report import ShownPage, report

EndedBy = Literal["rounds", "patience", "budget"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run: the server's state, the clients' memories and the clients' scores.

    `scores` (test) and `valid_scores` hold one score per client by the run's `metric`: its value,
    or minus its value where lower values are better (a log loss, an RMSE), so that a higher score
    is better. A score is NaN where it is not defined, as without samples, and `scores` is empty if
    the test samples were not used; `metrics` has the values of all metrics. `history` has one entry
    per round: the scalars of the state (`psi`), the number of clients that took part, the number
    left out because their update was not finite, and, if it was computed, the mean validation score
    (`valid`).
    `ended_by` states whether all rounds ran, patience ran out, or the privacy budget allowed no
    further round.
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
    metric: Metric = OWN

    @property
    def algorithm(self) -> Algorithm:
        return self.agreement.algorithm

    @property
    def seed(self) -> int:
        return self.agreement.seed

    @property
    def left_out(self) -> int:
        """The number of updates that were left out because they were not finite."""
        return int(sum(entry["left_out"] for entry in self.history))

    @cached_property
    def thetas(self) -> Theta:
        """The personal parameters of all clients, with a leading client axis."""
        return self.models(np.arange(self.federation.num_clients))

    def metrics(self) -> Metrics:
        """Return every metric of the clients' models on test samples, by client and overall."""
        return metrics_of_models(self.agreement.rules, self.federation, self.models)

    def own_scores(self) -> np.ndarray:
        """Return test scores by the algorithm's own `score`, for a release that is charged.

        A client's score depends on the state and its own data, to the bit.
        """
        return own_scores(
            self.agreement.rules,
            state=self.state,
            store=self.store,
            federation=self.federation,
            root=self.agreement.keys().root,
        )

    def theta(self, client: int) -> Theta:
        """Return one client's personal parameters."""
        check.count("Result", least=0, client=client)
        rule = f"below the number of clients ({self.federation.num_clients})"
        check.require(client < self.federation.num_clients, "Result", "client", rule, client)
        return jax.tree.map(lambda leaf: leaf[0], self.models(np.array([client])))

    def predict(self, client: int, x: Any) -> Any:
        """Return the outputs of one client's personal model: logits, or the predicted value."""
        return self.algorithm.predict(self.theta(client), network_input(jnp.asarray(x)))

    @cached_property
    def _train(self) -> Source:
        mapped = isinstance(self.federation.train.x, np.memmap)
        return Source(self.federation.train, pooled=not mapped)

    def report(self, path: str | Path | None = None) -> ShownPage:
        """Return a page about the run; with secure noise, nothing of clients is on it.

        With `path`, an .html file, it is written there.
        """
        from fedprior.engines.page import result_page

        return report(result_page(self), path)

    def _repr_html_(self) -> str:
        from fedprior.engines.page import result_page
        from fedprior.pages.render import small

        return small(result_page(self, whole=False))

    def models(self, clients: np.ndarray) -> Theta:
        """The personal parameters of the given clients, with a leading client axis."""
        return personal_models(
            self.agreement.rules,
            state=self.state,
            store=self.store,
            source=self._train,
            clients=clients,
            root=self.agreement.keys().root,
        )
