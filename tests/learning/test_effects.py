"""Every option that a method lists changes something: a message, a state or a theta."""

import jax
import numpy as np
import pytest
from test_catalog import VALUES

import fedprior
from fedprior.core import check, random, tree
from fedprior.data.federation import PADDED_AXES
from fedprior.learning import catalog

LAYERS, SMALL = fedprior.mlp((4,), 3, hidden=(5,)), fedprior.models.logistic(4, 3)
LAYERED = {"fedbabu", "fedper", "fedrep", "fedrod", "lg-fedavg", "pfedvem"}
ALWAYS = {"local-converged"}  # `local`, for as long as validation scores rise
BASE = {"decay": 0.8, "horizon": 2.0}
ALL = {"class_frequencies": True}  # without them, smoothing has no effect
SERVER = ("momentum", "horizon")  # refused where a server solves instead of adding up
COUNTS = {"steps_per_epoch": 1, "newcomer_steps": 4, "personal_steps": 0, "fine_tuning_steps": 2}
# Numbers that stand for None, or beside which others have an effect.
IN_PLACE = {"clip": 100.0, "scale": 1.0, "probability": 0.5}
IN_PLACE |= {"gamma_rate": 0.1, "jitter": 0.5, "mixing_rate": 0.05}
VARIED = VALUES | {
    "class_frequencies": False,
    "clip": 0.01,
    "decay": 0.5,
    "gradient_norm": 0.01,
    "horizon": 1.0,
    "jitter": 1.0,
    "steps_per_epoch": 2,
    "weight_decay": 0.5,
    "smoothing": 3.0,
    "catch_up": 1,
    "head": "0",
    "head_steps": 3,
    "num_components": 4,
    "penalty": 0.7,
    "share_floor": 0.3,
    "scale_floor": 5.0,
    "psi_floor": 6.0,
    "psi_scale": 0.5,
}
GIVEN = {"steps": fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))}
THREE_KINDS = {"clustered", "discrete-mixture", "mixture-em"}  # of two clients a round, one rests
UNTOUCHED = {"noise_variance"}  # for quantities alone


def numbers(method):
    """The method's options that a program can take as arguments, at their defaults."""
    taken = [name for name in method.options() if isinstance(VARIED[name], float)]
    usual = {name: BASE.get(name, IN_PLACE.get(name, method.default(name))) for name in taken}
    usual |= {name: value for name, value in COUNTS.items() if name in method.options()}
    return {name: value for name, value in usual.items() if value is not None}


def played(method, federation, options):
    """`play(numbers)`: messages and states of two rounds, and thetas of four clients.

    The first one is absent from the second round, the third begins there, the last never does.
    """
    layered = method.name in LAYERED or "networks" in options  # a linear model starts at zero
    model, clients = LAYERS if layered else SMALL, np.arange(4, dtype=np.int32)
    axes = {"in_axes": (None, 0, PADDED_AXES, None)}

    @jax.jit
    def program(numbers, key, keys, data):
        algorithm = method.build(model, {**numbers, **options}, **GIVEN)
        state = algorithm.init(key)
        enroll = jax.vmap(algorithm.enroll, in_axes=(None, 0, 0))

        def one_round(carry, first):
            """Of two clients; those that come after them are enrolled anew."""
            state, memories = carry
            memories = _kept(enroll(state, clients, keys), memories, clients >= first + (first > 0))
            messages, after = jax.vmap(algorithm.local, **axes)(state, memories, data, key)
            messages = jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, 2), messages
            )
            total = messages
            if algorithm.pools == "sum":
                total = jax.tree.map(lambda leaf: leaf.sum(axis=0), messages)
            present = (clients >= first) & (clients < first + 2)
            state, memories = algorithm.update(state, total), _kept(after, memories, present)
            return (state, memories), (messages.value, state)

        begun = state, enroll(state, clients, keys)
        (state, memories), seen = jax.lax.scan(one_round, begun, np.arange(2))
        memories = _kept(enroll(state, clients, keys), memories, clients == 3)
        return seen, jax.vmap(algorithm.personalize, **axes)(state, memories, data, key)

    key = random.root(7)
    keys = jax.vmap(lambda client: random.fold(key, "enroll", client))(clients)
    data = federation.train.padded(clients)

    def play(numbers):
        given = {name: np.float32(value) for name, value in numbers.items() if name not in COUNTS}
        given |= {name: np.int32(numbers[name]) for name in COUNTS if name in numbers}
        return [np.asarray(leaf) for leaf in jax.tree.leaves(program(given, key, keys, data))]

    return play


def _kept(new, old, chosen):
    return jax.vmap(tree.where)(chosen, new, old)


def differ(first, second):
    if [leaf.shape for leaf in first] != [leaf.shape for leaf in second]:
        return True
    return any(np.abs(a - b).max(initial=0) > 1e-6 for a, b in zip(first, second, strict=True))


@pytest.fixture
def traced_counts(monkeypatch):
    """Counts of steps may be arguments of a program: one less to compile for each of them."""
    usual = check.count

    def count(owner, *, least=1, **values):
        known = {name: value for name, value in values.items() if not check.is_traced(value)}
        usual(owner, least=least, **known)

    monkeypatch.setattr(check, "count", count)


@pytest.mark.usefixtures("traced_counts")
@pytest.mark.filterwarnings("ignore::fedprior.learning.paper.CollapseWarning")
@pytest.mark.parametrize("name", sorted(catalog.METHODS.keys() - ALWAYS))
def test_every_option_has_an_effect(federation, name):
    method, usual = catalog.method(name), dict(ALL)
    plain = numbers(method)
    if name in THREE_KINDS:
        usual["num_components"] = 3
    play = played(method, federation, usual)
    idle = []
    for option in method.options():
        value = VARIED[option]
        if option in UNTOUCHED:
            continue
        before = play(plain)
        if option in plain:
            after = play(plain | {option: value})
        elif option == "networks":
            before = played(method, federation, usual | {option: 1})(plain)
            after = played(method, federation, usual | {option: value})(plain)
        elif option == "curvature":
            few = {name: value for name, value in plain.items() if name not in SERVER}
            before = play(few)
            after = played(method, federation, usual | {option: value})(few)
        else:
            after = played(method, federation, usual | {option: value})(plain)
        if not differ(before, after):
            idle.append(option)
    assert not idle
