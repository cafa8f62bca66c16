"""A client and a server that share nothing but bytes, and what a server does not let in."""

from dataclasses import replace

import numpy as np
import pytest

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.identity import Identity
from fedprior.channels.randomized_response import OneBit
from fedprior.core import tree
from fedprior.core.check import PrivacyError
from fedprior.engines.debug import debug
from fedprior.engines.run import Run
from fedprior.exchange import client, server
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic
from fedprior.privacy.cohort import FixedSize, Poisson
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms

CHANNEL = CentralGaussian(clip=0.5, noise_multiplier=1.0)


@pytest.fixture(scope="module")
def algorithm():
    return fedavg(logistic(4, 3), steps=Steps(local_steps=2))


@pytest.fixture(scope="module")
def private(algorithm, federation):
    return Agreement.of(algorithm, federation, channel=CHANNEL, cohort=Poisson(rate=0.5))


def own(federation, number):
    """One client's samples, padded to the public bound."""
    rows = federation.train.client(number)
    return Facts.of(federation).client_data(rows.x, rows.y)


def test_facts_are_json_and_refuse_what_does_not_fit(federation):
    facts = Facts.of(federation)
    assert Facts.from_json(facts.as_json()) == facts
    with pytest.raises(ValueError, match="Did you mean num_clients"):
        Facts.from_json({**facts.as_json(), "num_client": 3})
    x, y = np.zeros((facts.most_samples + 1, 4)), np.zeros(facts.most_samples + 1)
    with pytest.raises(ValueError, match=f"between 1 and {facts.most_samples} training samples"):
        facts.client_data(x, y)
    with pytest.raises(ValueError, match="x must be of shape"):
        facts.client_data(x[:2, :3], y[:2])
    for label in (3, -1, 0.5):
        with pytest.raises(ValueError, match=r"y must be whole numbers from 0 to 2, got \["):
            facts.client_data(x[:2], np.array([0, label]))


def test_bytes_of_a_client_are_what_was_agreed():
    pixels, y = np.full((2, 4, 4, 1), 255, np.uint8), np.array([0, 1])
    known = {"num_clients": 3, "shape": (4, 4, 1), "num_classes": 2, "most_samples": 2}
    numbers = Facts(**known).client_data(pixels, y)  # others have numbers in [0, 1]
    assert (numbers.x.dtype, numbers.x.max()) == (np.float32, 1)
    agreed = Facts(**known, inputs="uint8")
    assert agreed.client_data(pixels, y).x.dtype == np.uint8
    with pytest.raises(ValueError, match=r"x must be pixels of type uint8, .* got 'float32'"):
        agreed.client_data(numbers.x, y)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_clients": "3"}, "num_clients must be a whole number"),
        ({"shape": 4}, "shape must be a sequence of sizes, got 4"),
        ({"shape": [4, 0]}, r"shape\[1\] must be a whole number of at least 1, got 0"),
        ({"inputs": "object"}, "inputs must be one of float16"),
    ],
)
def test_facts_from_elsewhere_are_checked(federation, change, reason):
    facts = Facts.of(federation).as_json()
    with pytest.raises((TypeError, ValueError), match=f"^Facts: {reason}"):
        Facts.from_json({**facts, **change})
    with pytest.raises(ValueError, match=r"^Facts: num_classes, most_samples must be given"):
        Facts.from_json({name: facts[name] for name in ("num_clients", "shape")})
    with pytest.raises(ValueError, match=r"^Facts: they must be a JSON object"):
        Facts.from_json([])


def test_an_agreement_needs_facts_alone(private):
    """Neither the cost of a round nor its keys and shapes ask for anybody's data."""
    again = Agreement(
        algorithm=private.algorithm,
        facts=Facts.from_json(private.facts.as_json()),
        channel=CHANNEL,
        cohort=private.cohort,
    )
    assert again.event == private.event
    assert again.fingerprint == private.fingerprint
    assert again.length == tree.size(private.message.value)


def test_an_upload_depends_on_nobody_else(private, federation):
    """The same bits from padded rows of one client as inside a round of `debug`."""
    state = private.initial_state()
    upload, memory = client.take_part(private, state, None, own(federation, 2), 2, 0)
    assert upload.dtype == np.float32
    again, _ = client.take_part(private, state, memory, own(federation, 2), 2, 0)
    np.testing.assert_array_equal(upload, again)
    assert np.linalg.norm(upload) <= CHANNEL.longest(len(upload))


def test_a_client_that_is_not_finite_sends_a_zero_and_keeps_its_memory(algorithm, federation):
    data = own(federation, 0)
    data.x[0] = np.nan
    clear = Agreement.of(algorithm, federation)
    state = clear.initial_state()
    upload, memory = client.take_part(clear, state, None, data, 0, 0)
    assert memory is None
    np.testing.assert_array_equal(upload, 0)
    admitted = server.admit(clear, upload)
    after = server.close_round(clear, state, {0: admitted}, 0)
    for name, leaf in tree.names(after["gamma"]).items():
        np.testing.assert_array_equal(leaf, tree.names(state["gamma"])[name])


def forged(length, change):
    upload = np.zeros(length, np.float32)
    upload[0] = 0.1
    return change(upload)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda upload: upload[:-1], "must have shape"),
        (lambda upload: np.tile(upload, 100), "must have shape"),
        (lambda upload: upload.astype(np.float64), "must be a float32 array, got float64"),
        (lambda upload: upload.tobytes(), "must be a float32 array, got bytes"),
        (lambda upload: upload * np.nan, "must be finite"),
        (lambda upload: np.full_like(upload, np.inf), "must be finite"),
    ],
)
def test_what_is_not_an_upload_is_refused(private, change, reason):
    with pytest.raises(server.RefusedUpload, match=reason):
        server.admit(private, forged(private.length, change))


@pytest.mark.parametrize("weight", [-1.0, 2.0, 1e9])
def test_a_client_cannot_weigh_more_than_it_is(algorithm, federation, weight):
    clear = Agreement.of(algorithm, federation)
    upload = np.zeros(clear.length, np.float32)
    np.testing.assert_array_equal(server.admit(clear, upload), upload)
    upload[-1] = weight
    with pytest.raises(server.RefusedUpload, match=r"a weight must be in \[0, 1\]"):
        server.admit(clear, upload)


@pytest.mark.parametrize("clip", [0.5, 1e-3, 1e-5])
def test_an_upload_of_the_largest_floats_is_clipped(private, clip):
    """The factor is then below the smallest normal float32, where it would be badly rounded."""
    agreement = replace(private, channel=replace(CHANNEL, clip=clip))
    length = agreement.length
    for share in np.linspace(0.5, 1, 50):
        huge = np.full(length, share * np.finfo(np.float32).max, np.float32)
        admitted = server.admit(agreement, huge).astype(np.float64)
        assert np.linalg.norm(admitted) <= agreement.channel.longest(length)


@pytest.mark.parametrize("factor", [1.0001, 100.0, 2.3e5, 1e37])
def test_the_server_clips_again(private, factor):
    """An honest upload passes to the bit; a longer one is cut to the bound."""
    length = private.length
    honest = np.full(length, CHANNEL.clip / np.sqrt(length), np.float32)
    np.testing.assert_array_equal(server.admit(private, honest), honest)
    admitted = server.admit(private, (honest * np.float32(factor)))
    longest = CHANNEL.longest(length)
    assert np.linalg.norm(admitted.astype(np.float64)) <= longest
    assert np.linalg.norm(admitted.astype(np.float64)) > 0.99 * longest
    random_one = OneBit(epsilon=1.0, low=-1.0, high=1.0)
    local = replace(private, channel=random_one)
    honest = random_one.encode(np.zeros(length, np.float32), np.random.default_rng(0))
    honest = honest.astype(np.float32)
    np.testing.assert_array_equal(server.admit(local, honest), honest)
    assert np.linalg.norm(server.admit(local, honest * 9)) <= random_one.longest(length)


def test_uploads_are_added_in_client_order(private):
    """In whatever order they arrive: floating-point sums depend on it."""
    draws = np.random.default_rng(0)
    length = private.length
    uploads = {n: draws.normal(size=length).astype(np.float32) * 10.0**n for n in range(4)}
    state = private.initial_state()
    first = server.close_round(private, state, uploads, 0)
    second = server.close_round(private, state, dict(reversed(uploads.items())), 0)
    for name, leaf in tree.names(first).items():
        np.testing.assert_array_equal(leaf, tree.names(second)[name])


def test_a_round_has_no_more_uploads_than_clients(algorithm, federation):
    two = Agreement.of(algorithm, federation, cohort=FixedSize(size=2))
    state, upload = two.initial_state(), np.zeros(two.length, np.float32)
    for members in ((0, 1, 2), (0, federation.num_clients), (-1,)):
        with pytest.raises(ValueError, match="uploads must be of at most 2 clients with numbers"):
            server.close_round(two, state, dict.fromkeys(members, upload), 0)


def test_a_round_is_charged_before_it_is_drawn(private, tmp_path, monkeypatch):
    terms = Terms(delta=1e-3, relation="add-remove", view="central", noise="simulated", budget=4.0)
    with Ledger(tmp_path / "ledger.jsonl", terms) as ledger:

        def fail(*_):
            raise RuntimeError("stopped")

        monkeypatch.setattr(Poisson, "draw", fail)
        with pytest.raises(RuntimeError, match="stopped"):
            server.open_round(private, 0, ledger=ledger, source="a")
        monkeypatch.undo()
        lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
        assert any('"rounds": 1' in line or '"rounds":1' in line for line in lines)
        rounds = 1
        while server.open_round(private, rounds, ledger=ledger, source="a") is not None:
            ledger.commit()
            rounds += 1
        assert 1 < rounds < 100  # and then the budget is used up


@pytest.mark.parametrize(
    ("terms", "channel", "reason"),
    [
        ({"noise": "simulated"}, replace(CHANNEL, noise="secure"), "noise must be the channel's"),
        ({"view": "local"}, CHANNEL, "view must be the channel's, central, got local"),
        ({"view": "local"}, OneBit(epsilon=1.0), "relation must be replace-one"),
        ({"delta": 0.5}, CHANNEL, "delta must be below"),
        ({}, Identity(), "the channel must be private"),
        ({}, CHANNEL, "a round must name the run it belongs to"),
    ],
)
def test_a_server_opens_no_round_that_its_ledger_would_misstate(
    private, tmp_path, terms, channel, reason
):
    """A secure round on a ledger of simulated noise could be repeated for free."""
    usual = {"delta": 1e-3, "relation": "add-remove", "view": "central", "noise": "simulated"}
    agreement = replace(private, channel=channel)
    with (
        Ledger(tmp_path / "ledger.jsonl", Terms(**{**usual, **terms})) as ledger,
        pytest.raises(PrivacyError, match=reason),
    ):
        server.open_round(agreement, 0, ledger=ledger)
    with pytest.raises(PrivacyError, match="secure noise must be recorded"):
        server.open_round(replace(private, channel=replace(CHANNEL, noise="secure")), 0)


def test_secure_draws_cannot_be_derived_from_the_agreement(algorithm, federation):
    """Cohorts differ between two calls, and so does a client's local noise."""
    channel = replace(CHANNEL, noise="secure")
    many = replace(Facts.of(federation), num_clients=1000)
    secure = Agreement(
        algorithm=algorithm, facts=many, channel=channel, cohort=Poisson(rate=0.5, cap=1000)
    )
    assert secure.draws is None
    assert secure.draw(0).tolist() != secure.draw(0).tolist()
    local = replace(secure, channel=OneBit(epsilon=1.0, low=-1.0, high=1.0, noise="secure"))
    state, data = local.initial_state(), own(federation, 0)
    sent = [client.take_part(local, state, None, data, 0, 0)[0].tobytes() for _ in range(20)]
    assert len(set(sent)) > 1
    honest = np.frombuffer(sent[0], np.float32)
    np.testing.assert_array_equal(server.admit(local, honest), honest)
    simulated = replace(local, channel=replace(local.channel, noise="simulated"))
    sent = [client.take_part(simulated, state, None, data, 0, 0)[0].tobytes() for _ in range(3)]
    assert len(set(sent)) == 1
    with pytest.raises(PrivacyError, match="a local channel must have simulated noise"):
        Run(agreement=replace(local, facts=Facts.of(federation)), federation=federation, rounds=1)


@pytest.mark.parametrize("channel", [Identity(), CHANNEL])
def test_the_exchange_by_hand_is_debug_to_the_bit(algorithm, federation, channel):
    agreement = Agreement.of(algorithm, federation, channel=channel, cohort=FixedSize(size=3))
    state, memories = agreement.initial_state(), {}
    for number in range(2):
        uploads = {}
        for member in server.open_round(agreement, number).tolist():
            data = own(federation, member)
            upload, memories[member] = client.take_part(
                agreement, state, memories.get(member), data, member, number
            )
            uploads[member] = server.admit(agreement, upload)
        state = server.close_round(agreement, state, uploads, number)
    twin = debug(algorithm, federation, rounds=2, channel=channel, cohort=FixedSize(size=3))
    for name, leaf in tree.names(state).items():
        np.testing.assert_array_equal(leaf, tree.names(twin.state)[name])
    theta = client.personal_model(agreement, state, memories.get(0), own(federation, 0), 0)
    assert client.score(agreement, theta, own(federation, 0)) > 0
