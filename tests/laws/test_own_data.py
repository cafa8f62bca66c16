"""A message depends on public facts, the state and its own client's data, on nothing else.

In every private run: whoever takes the place of one client, all other uploads are the same to the
bit. Without that, more than one clipped message would differ between neighboring populations, and
no claimed epsilon would hold.
"""

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from law_cases import FORMS, NAMES, SIZES, Turns, algorithm_of, same, small_federation

import fedprior
from fedprior import channels
from fedprior.core.check import PrivacyError
from fedprior.engines.device import DeviceEngine
from fedprior.engines.disk import DiskEngine
from fedprior.engines.run import Run
from fedprior.exchange import client as client_side
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts
from fedprior.learning import catalog
from fedprior.privacy.ledger import Ledger, Terms

ROUNDS, PLACE, BOUND = 2, 1, 700
OTHERS = [client for client in range(len(SIZES)) if client != PLACE]
SLOWER = {"decay": 0.5, "steps_per_epoch": 2}
# What follows the largest client where nothing stops it: the clock of the rates, the number of
# steps, and the width of a batch, with which sums are rounded differently.
EPOCHS = fedprior.Steps(local_epochs=1, batches=fedprior.Batches(size=3), **SLOWER)
LARGE = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=50), **SLOWER)
WHOLE = fedprior.Steps(local_steps=2, batches=fedprior.Batches(steps_per_epoch=1), **SLOWER)
SENT = []  # rows that the engines have added up, one array per round


class Seen:
    """A channel whose total is nothing, and known: no state tells of the client that differs."""

    def add(self, rows):
        jax.debug.callback(lambda rows: SENT.append(np.array(rows)), rows, ordered=True)
        return 0 * rows.sum(axis=0)

    def decode(self, total, key):
        return 0 * total


@dataclass(frozen=True, kw_only=True)
class Central(Seen, channels.CentralGaussian):
    """Clipped uploads."""


@dataclass(frozen=True, kw_only=True)
class Local(Seen, channels.LocalGaussian):
    """Clipped uploads with noise of their own."""


@dataclass(frozen=True, kw_only=True)
class Masked(Seen, channels.DistributedGaussian):
    """Clipped uploads with their share of the noise."""


@dataclass(frozen=True, kw_only=True)
class Bit(Seen, channels.OneBit):
    """One randomized bit."""


CENTRAL = Central(clip=1.0, noise_multiplier=1.0)
CHANNELS = {
    "central": CENTRAL,
    "local": Local(clip=1.0, scale=0.5),
    "masked": Masked(clip=1.0, noise_multiplier=1.0, size=4, missing=1),
    "one bit": Bit(epsilon=2.0, low=-1.0, high=1.0),
}


def private_form(name, steps):
    """The method as a private run has it; skips where private runs refuse it."""
    method = catalog.METHODS.get(FORMS.get(name, name))
    needed = {"weight": "uniform", "judge_every": 0}
    known = method.options() if method else ()
    options = {option: value for option, value in needed.items() if option in known}
    algorithm = algorithm_of(name, steps, **options)
    apart = algorithm.pools == "gather" or not algorithm.bears_noise
    if apart or (method and method.alone):
        pytest.skip("The method has no private runs.")
    return algorithm


def in_place(size, **public):
    """The four clients with one of another size in the place of the second."""
    return small_federation((*SIZES[:PLACE], size, *SIZES[PLACE + 1 :]), **public)


def populations(**public):
    """The usual clients, and others in the place of one: smaller, the largest, not finite."""
    usual = small_federation(**public)
    train = replace(usual.train, x=usual.train.x.copy())
    broken = replace(usual, train=train)
    first = train.start[PLACE]
    train.x[first : first + SIZES[PLACE]] = np.inf  # after the federation's own check
    return [usual, in_place(2, **public), in_place(40, **public), broken]


def uploads(algorithm, federation, channel=CENTRAL, engine=DeviceEngine, **more):
    """What every client sent in each round, (rounds, clients, size), as the engine computed it."""
    everybody = Turns(((0, 1, 2, 3),) * ROUNDS, places=4)
    if channel.view == "masked":  # whose cohorts must state their size
        everybody = fedprior.Everyone()
    agreement = Agreement.of(algorithm, federation, channel=channel, cohort=everybody)
    SENT.clear()
    run = Run(agreement=agreement, federation=federation, rounds=ROUNDS, **more)
    engine(run).advance(ROUNDS)
    jax.effects_barrier()
    assert len(SENT) == ROUNDS
    return np.stack(SENT)


def check_others(found):
    """All clients but one sent the same in all populations, and something."""
    usual, *rest = found
    assert np.isfinite(usual).all()
    assert np.abs(usual[:, OTHERS]).max(axis=-1).min() > 0
    for other in rest:
        assert not np.array_equal(usual[:, PLACE], other[:, PLACE])
        same(usual[:, OTHERS], other[:, OTHERS])


@pytest.mark.parametrize("name", NAMES)
def test_no_upload_tells_of_another_client(name):
    """Epochs of its own samples where the method has them, else batches larger than anybody."""
    try:
        algorithm = private_form(name, EPOCHS)
    except ValueError:  # local_epochs is not supported
        algorithm = private_form(name, LARGE)
    check_others([uploads(algorithm, clients) for clients in populations()])


WHOLE_METHODS = ["adamap", "adaped", "fedem", "gaussian-em", "ifca", "per-fedavg"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in WHOLE_METHODS else pytest.mark.evidence)
        for name in NAMES
    ],
)
def test_no_upload_tells_of_another_client_where_all_samples_are_read_at_once(name):
    algorithm = private_form(name, WHOLE)
    check_others([uploads(algorithm, clients) for clients in populations(most_samples=BOUND)])


def test_no_upload_tells_of_another_client_in_large_batches_of_a_method_with_epochs():
    algorithm = private_form("adaped", LARGE)
    check_others([uploads(algorithm, clients) for clients in populations()])


def test_no_trial_tells_of_another_client():
    """As clients would send them if noise did not choose."""
    algorithm = replace(algorithm_of("adamap", LARGE), bears_noise=True)
    check_others([uploads(algorithm, clients) for clients in populations()])


@pytest.mark.parametrize("channel", [CHANNELS["central"], CHANNELS["local"]])
def test_trials_are_refused_where_noise_would_choose(channel):
    refused = r"Agreement: channel must be clear for adamap as it is set.* adamap judge_every=0"
    with pytest.raises(PrivacyError, match=refused):
        fedprior.simulate(
            algorithm_of("adamap", LARGE), small_federation(), rounds=1, channel=channel
        )


@pytest.mark.parametrize("name", ["local", "one bit"])
def test_no_upload_through_a_local_channel_tells_of_another_client(name):
    algorithm = private_form("adamap", LARGE)
    found = [uploads(algorithm, clients, CHANNELS[name]) for clients in populations()]
    if name == "one bit":  # which may happen to be the same
        found = [found[0], *(rows for rows in found if (rows != found[0])[:, PLACE].any())]
    check_others(found)


def test_no_upload_tells_of_another_client_with_secure_noise(tmp_path):
    """Which is added to the sum: uploads are the same in a run that releases it."""
    terms = Terms(delta=1e-5, relation="add-remove", view="central", noise="secure", budget=1e3)
    algorithm, found = private_form("adamap", LARGE), []
    for number, clients in enumerate(populations()):
        ledger = Ledger(tmp_path / f"{number}.jsonl", terms)
        found.append(uploads(algorithm, clients, replace(CENTRAL, noise="secure"), ledger=ledger))
    check_others(found)


def test_no_upload_tells_of_another_client_with_memories_on_disk():
    """Here rows are padded to the largest client of all."""
    algorithm = private_form("adaped", EPOCHS)
    found = [uploads(algorithm, clients, engine=DiskEngine) for clients in populations()]
    check_others(found)


@pytest.mark.parametrize("name", ["adamap", "fedem"])
def test_a_longer_pool_of_samples_changes_no_upload(name):
    """One client of 600 samples: the array that all share has more than 512 rows."""
    algorithm = private_form(name, LARGE)
    check_others([uploads(algorithm, clients) for clients in (small_federation(), in_place(600))])


def test_no_upload_of_the_exchange_tells_of_another_client():
    """One client at a time, from nothing but the agreement and its own rows."""
    algorithm, found = private_form("gaussian-em", LARGE), []
    for federation in populations()[:3]:
        agreement = Agreement.of(algorithm, federation, channel=CENTRAL)
        rows = federation.train.client(0)
        data = agreement.facts.client_data(rows.x, rows.y)
        state = agreement.initial_state()
        found.append(client_side.take_part(agreement, state, None, data, 0, 0)[0])
    same(found[0], found[1])
    same(found[0], found[2])


@pytest.mark.parametrize("name", ["adamap", "fedem", "per-fedavg"])
def test_no_score_for_a_release_tells_of_another_client(name):
    """Of a client's own model, to the bit, given the state."""
    algorithm, found = private_form(name, LARGE), []
    # One number per sample that any change of the model shows in, in place of right or wrong.
    shown = replace(algorithm, score=lambda outputs, y: -algorithm.loss(outputs, y))
    for clients in populations()[:3]:
        result = fedprior.simulate(shown, clients, rounds=ROUNDS, channel=CENTRAL)
        found.append(result.own_scores())
        np.testing.assert_allclose(found[-1], result.scores, rtol=1e-5)
    for other in found[1:]:
        assert found[0][PLACE] != other[PLACE]
        same(found[0][OTHERS], other[OTHERS])


def test_a_private_run_that_needs_a_bound_is_refused_without_one():
    algorithm = private_form("adaped", WHOLE)
    agreement = Agreement.of(algorithm, small_federation(), channel=CENTRAL)
    with pytest.raises(PrivacyError, match=r"most_samples must be given under a private channel"):
        uploads(algorithm, small_federation())
    with pytest.raises(PrivacyError, match=r"most_samples must be given under a private channel"):
        _ = agreement.event


def test_the_largest_size_at_hand_is_no_public_bound():
    """Facts that were read from the data are refused by the engine."""
    federation = small_federation()
    agreement = Agreement(
        algorithm=private_form("adamap", LARGE), facts=Facts.of(federation), channel=CENTRAL
    )
    with pytest.raises(PrivacyError, match=r"must be the federation's public bound, None, got 7"):
        Run(agreement=agreement, federation=federation, rounds=1)


def test_a_client_above_the_bound_is_refused():
    with pytest.raises(ValueError, match=r"most_samples must be at least the size of the largest"):
        in_place(40, most_samples=39)
    in_place(40, most_samples=40)
    with pytest.raises(ValueError, match="most_samples must be a whole number of at least 1"):
        small_federation(most_samples=0)


def test_a_clear_agreement_knows_how_large_clients_are():
    facts = replace(Facts.of(small_federation()), most_samples=None)
    with pytest.raises(ValueError, match="Agreement: most_samples must be a number, got None"):
        Agreement(algorithm=private_form("adamap", LARGE), facts=facts)
