"""What a round costs and asks of a client: bytes in both directions, and what it must trust."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import random, tree
from fedprior.core.algorithm import Algorithm, Array, PyTree, State
from fedprior.data.federation import ClientData
from fedprior.models.network import Network


class Traffic(NamedTuple):
    """Bytes of one client in one round through a clear channel, as numbers stand in memory.

    `upload` is the message, with its weight where clients differ in that; `download` what a client
    reads of the state when it first takes part: a server need not send the rest. Both are 0 for a
    method without a server.
    """

    upload: int
    download: int


def traffic(algorithm: Algorithm, shape: Sequence[int], *, regression: bool = False) -> Traffic:
    """Found by tracing one round for inputs of `shape`: nothing is computed."""
    key = random.root(0)

    def one_round(state: State, data: ClientData) -> PyTree:
        memory = algorithm.enroll(state, jnp.zeros((), jnp.int32), key)
        message, _ = algorithm.local(state, memory, data, key)
        return message.value if algorithm.unit_weight else message

    state = jax.eval_shape(algorithm.init, key)
    trace = jax.make_jaxpr(one_round, return_shape=True)
    program, sent = trace(state, sketch(shape, regression=regression))
    upload = tree.nbytes(sent)
    read = _read(program.jaxpr, jax.tree.leaves(state))
    return Traffic(upload, tree.nbytes(read) if upload else 0)


def trusted_with(algorithm: Algorithm, upload: int) -> str:
    """What the server learns of a client: nothing, sums that it is a part of, its own model.

    Sums can be added up by secure aggregation, so that nobody sees one client's part.
    """
    if upload == 0:
        return "nothing"
    if algorithm.pools == "sum":
        return "sums only"
    return (
        "every client's model" if algorithm.num_clients is None else "every client's model, named"
    )


def outline(model: Network, shape: Sequence[int]) -> Network:
    """The same parameters and outputs under a function that takes no time to trace.

    What is sent depends on the parameters alone.
    """
    samples = sketch(shape).x
    outputs = jax.eval_shape(lambda x: model.apply(model.init(random.root(0)), x), samples)

    def apply(parameters: PyTree, x: Array) -> Array:
        mark = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(parameters))
        return mark + jnp.zeros((x.shape[0], *outputs.shape[1:]))

    return replace(model, apply=apply, shape=tuple(shape))


def sketch(shape: Sequence[int], *, regression: bool = False) -> ClientData:
    """A client of two samples, for `jax.eval_shape`, which looks at shapes and types alone."""
    y = np.zeros(2, np.float32 if regression else np.int32)
    return ClientData(np.zeros((2, *shape), np.float32), y, np.int32(0), np.int32(2), np.arange(2))


def _read(program: Any, leaves: list[Any]) -> list[Any]:
    """Those of the first arguments of a traced program that one of its steps takes."""
    taken = {id(each) for step in program.eqns for each in step.invars}
    taken |= {id(each) for each in program.outvars}
    first = zip(program.invars, leaves, strict=False)
    return [leaf for variable, leaf in first if id(variable) in taken]
