"""The slow, readable counterpart of `simulate`: one client at a time in plain Python."""

from typing import Any

import jax
import numpy as np

from fedprior.core.algorithm import Algorithm, Memory, State
from fedprior.core.protocols import Channel, Cohort
from fedprior.data.federation import ClientData, Federation, Split
from fedprior.engines.result import Result
from fedprior.engines.round import scalars
from fedprior.engines.run import History, Run
from fedprior.engines.store import DeviceStore
from fedprior.exchange import client as client_side
from fedprior.exchange import server as server_side
from fedprior.exchange.agreement import Agreement


class ClientError(RuntimeError):
    """A client failed in `round`; `inputs` holds the arguments of the failed call."""

    def __init__(self, client: str, round: int, inputs: dict[str, Any], reason: str) -> None:
        super().__init__(f"client {client} failed in round {round}: {reason}")
        self.client, self.round, self.inputs = client, round, inputs


def debug(
    algorithm: Algorithm,
    federation: Federation,
    *,
    rounds: int,
    cohort: Cohort | None = None,
    channel: Channel | None = None,
    seed: int = 0,
    identity: Any = "",
    test: bool = True,
    compiled: bool = True,
) -> Result:
    """Run `simulate` as a plain loop over rounds and clients, and stop at the first fault.

    A client that raises, or whose update is not finite, ends the run with a `ClientError` that
    contains its name and inputs. The draws are those of `simulate` (in a private run they also
    depend on `identity`, as given to `Saving`), and the results agree up to rounding. A deployment
    on the exchange gives bit-for-bit the results of this function. With `compiled=False`, the
    algorithm's functions run operation by operation, so that breakpoints and prints inside them
    work.
    """
    agreement = Agreement.of(
        algorithm, federation, channel=channel, cohort=cohort, seed=seed, identity=identity
    )
    run = Run(agreement=agreement, federation=federation, rounds=rounds)
    state = agreement.initial_state()
    secrets, attendance = agreement.secrets(), agreement.attendance()
    memories: dict[int, Memory] = {}
    history: History = []
    for number in range(rounds):
        uploads = {}
        for client in attendance.admit(number, agreement.draw(number)).tolist():
            upload = _take_part(run, state, memories, client, number, compiled=compiled)
            try:
                uploads[client] = server_side.admit(agreement, upload)
            except server_side.RefusedUpload as error:
                name = str(federation.clients[client])
                raise ClientError(name, number, {"upload": upload}, str(error)) from error
        state, secrets = server_side.release_round(
            agreement, state, secrets, uploads, number, compiled=compiled
        )
        entry = {name: float(value) for name, value in scalars(state).items()}
        history.append({**entry, "clients": float(len(uploads)), "left_out": 0.0})

    scores: dict[str, list[float]] = {"valid": [], "test": []}
    for client in range(run.num_clients):
        own = _data(federation.train, client)
        theta = client_side.personal_model(
            agreement, state, memories.get(client), own, client, compiled=compiled
        )
        for name in ("valid", "test") if test else ("valid",):
            held_out = _data(getattr(federation, name), client)
            scores[name].append(client_side.score(agreement, theta, held_out, compiled=compiled))
    return Result(
        agreement=agreement,
        federation=federation,
        state=state,
        store=_store(agreement, memories),
        rounds=rounds,
        history=history,
        scores=np.array(scores["test"]),
        valid_scores=np.array(scores["valid"]),
    )


def _take_part(
    run: Run,
    state: State,
    memories: dict[int, Memory],
    client: int,
    round: int,
    *,
    compiled: bool,
) -> np.ndarray:
    """Run one client's part of a round: update its memory and return its upload."""
    name, memory = str(run.federation.clients[client]), memories.get(client)
    data = _data(run.federation.train, client)
    given = (run.agreement, state, memory, data, client, round)
    try:
        learned = client_side.attempt(*given, compiled=compiled)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ClientError(name, round, client_side.local_inputs(*given), reason) from error
    if not bool(learned.finite):
        reason = "its update is not finite"
        raise ClientError(name, round, client_side.local_inputs(*given), reason)
    memories[client] = learned.memory
    return client_side.encode(run.agreement, learned, client, round, compiled=compiled)


def _data(split: Split, client: int) -> ClientData:
    """One client's rows, padded to the size of the largest client so that all shapes agree."""
    padded = split.padded(np.array([client]))
    return padded._replace(x=padded.x[0], y=padded.y[0], start=padded.start[0], size=padded.size[0])


def _store(agreement: Agreement, memories: dict[int, Memory]) -> DeviceStore:
    store = DeviceStore.empty(agreement.shapes[1], agreement.num_clients)
    for client, memory in memories.items():
        rows = jax.tree.map(lambda rows, row: rows.at[client].set(row), store.memories, memory)  # noqa: B023
        store = DeviceStore(rows, store.enrolled.at[client].set(True))
    return store
