"""A private configuration: noise for the budget, clients that do not follow noise, refusals."""

import pytest

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core.check import PrivacyError
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts
from fedprior.learning.adaped import adaped
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.models.network import logistic
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import FixedSize, Poisson
from fedprior.privacy.events import Event
from fedprior.reporting.config import read
from fedprior.reporting.training import Study
from fedprior.reporting.veterans import Veterans

PRIVATE = [
    "privacy.epsilon=4",
    "privacy.delta=1e-3",
    "training.cohort=poisson",
    "training.cohort_size=2",
    "training.rounds=20",
]


def setting(config, name, federation):
    return Study(config, Facts.of(federation)).training(name)


def test_noise_is_found_for_the_budget(federation):
    config = read(None, [*PRIVATE, "privacy.clip=0.5"])
    found = setting(config, "fedavg-fine-tuning", federation)
    assert isinstance(found.channel, CentralGaussian)
    assert found.channel.clip == 0.5
    event = found.cohort.amplify(found.channel.event(1), federation.num_clients)
    assert isinstance(event, Event)
    spent = epsilon([(event, 20)], delta=1e-3)
    assert 3.9 < spent <= 4.0
    assert found.terms.budget == 4.0
    assert setting(config, "local", federation).terms is None  # sends nothing


def test_methods_with_personal_models_are_cautious(federation):
    config = read(None, PRIVATE)
    for name in ("adamap", "adaped", "fedavg-fine-tuning", "clustered"):
        assert setting(config, name, federation).algorithm.discounts_noise
    for name in ("fedavg", "fedprox"):
        assert not setting(config, name, federation).algorithm.discounts_noise
    clear = read(None, ["training.rounds=20"])
    assert not setting(clear, "adamap", federation).algorithm.discounts_noise


def test_a_prior_that_noise_would_choose_is_refused(federation):
    for judged in (0, 30):
        config = read(None, [*PRIVATE, f"options.adamap.judge_every={judged}"])
        if judged:
            with pytest.raises(ValueError, match="judge_every must be 0 in a private run, got 30"):
                setting(config, "adamap", federation)
        else:
            assert setting(config, "adamap", federation).algorithm.bears_noise


@pytest.mark.parametrize("name", ["adamap", "ditto", "clustered"])
def test_momentum_falls_with_the_noise(name):
    from fedprior.learning.catalog import method
    from fedprior.learning.method import ChannelNoise

    model = logistic(2, 3)  # 9 parameters
    quiet = ChannelNoise(1.0, clip=1.0, rate=0.1, num_clients=10**6, rounds=100)
    loud = ChannelNoise(1.0, clip=1.0, rate=1.0, num_clients=15, rounds=1)  # a ratio of 0.2
    for noise, momentum in ((quiet, 0.9), (loud, 0.45)):
        options = method(name).under_noise(model, {"momentum": 0.9}, noise)
        assert options["momentum"] == pytest.approx(momentum)
    assert ("momentum" in method(name).under_noise(model, {}, loud)) == (name == "adamap")


def test_the_verdict_of_a_training_counts_its_rounds(federation):
    def verdict(changes, name):
        found = setting(read(None, changes), name, federation)
        rest = {"channel": found.channel, "cohort": found.cohort}
        return found.verdict(Agreement.of(found.algorithm, federation, **rest).length)

    noise = ["privacy.noise_multiplier=4", "privacy.epsilon=1000"]
    said = {
        rounds: verdict([*PRIVATE, *noise, f"training.rounds={rounds}"], "fedavg")
        for rounds in (1, 10_000_000)
    }
    assert said[1].startswith("Pure noise")
    assert said[10_000_000].startswith("Workable")
    assert "no other model" in said[1]
    assert "Clients follow the shared model only as far" in verdict(PRIVATE, "adamap")
    assert verdict([], "adamap") is None


def test_shares_do_not_fall_below_the_noise(federation):
    import jax

    from fedprior.core.algorithm import Message

    config = read(None, [*PRIVATE, "privacy.noise_multiplier=50", "model.name=logistic"])
    algorithm = setting(config, "clustered", federation).algorithm

    @jax.jit
    def shares():
        state = algorithm.init(jax.random.key(0))
        moves = jax.tree.map(jax.numpy.zeros_like, state["gamma"]["centers"])
        noisy = {"share": jax.numpy.array([50.0, -50.0]), "moves": moves, "noise": {}}
        after = algorithm.update(state, Message(noisy, jax.numpy.ones(())))
        return jax.nn.softmax(after["gamma"]["log_shares"])

    assert float(shares().min()) == pytest.approx(0.3 / 50.8, rel=1e-3)


def test_a_fixed_size_hides_clients_of_memoryless_methods_only(federation):
    fixed = [*PRIVATE, "training.cohort=fixed", "privacy.relation=replace-one"]
    found = setting(read(None, fixed), "fedavg", federation)
    assert found.cohort.amplifies
    assert found.terms.relation == "replace-one"
    event = found.cohort.amplify(found.channel.event(1), federation.num_clients)
    assert event.sampling == "fixed"
    spent = epsilon([(event, 20)], delta=1e-3, relation="replace-one")
    assert 3.9 < spent <= 4.0
    assert not setting(read(None, fixed), "adaped", federation).cohort.amplifies
    scored = [*fixed, "privacy.release_scores=true", "privacy.score_epsilon=1"]
    assert not setting(read(None, scored), "ditto", federation).cohort.amplifies


def test_cohorts_are_poisson_by_default_with_privacy(federation):
    own = [change for change in PRIVATE if "cohort=" not in change]
    private = setting(read(None, own), "fedavg", federation)
    assert private.cohort == Poisson(rate=2 / federation.num_clients)
    plain = setting(read(None, ["training.cohort_size=2"]), "fedavg", federation)
    assert plain.cohort == FixedSize(size=2)


def test_a_fixed_size_without_a_proof_is_refused():
    with pytest.raises(PrivacyError, match=r"relation must be replace-one .*cohort=poisson"):
        read(None, [*PRIVATE, "training.cohort=fixed"])
    read(None, ["training.cohort=fixed"])  # nothing to prove


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["privacy.epsilon=1"], "delta must be in .0, 1."),
        (["privacy.delta=1e-5"], "epsilon must be given"),
        (
            ["privacy.epsilon=1", "privacy.delta=1e-5", "privacy.clip=0"],
            "got 0.0. It is the l2 norm",
        ),
        (["privacy.epsilon=-1", "privacy.delta=1e-5"], "at least 0, got -1.0. 1 is strong"),
        (["privacy.epsilon=inf", "privacy.delta=1e-5"], "at least 0, got inf. 1 is strong"),
        (
            ["privacy.epsilon=1", "privacy.delta=1e-5", "privacy.noise=secure"],
            "one method that sends anything",
        ),
    ],
)
def test_a_mis_set_privacy_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        read(None, changes)


@pytest.mark.parametrize(
    ("method", "option", "words"),
    [
        ("mixture-clustering", [], r"channel must be Identity\(\) for mixture-clustering"),
        ("fedavg", ["options.fedavg.weight=samples"], "weight must be 'uniform'.* for fedavg"),
    ],
)
@pytest.mark.filterwarnings("ignore:mixture-clustering")
def test_what_a_private_channel_does_not_take_is_refused(federation, method, option, words):
    """Here, before a run's folder is made; the noise is not searched for either."""
    with pytest.raises(PrivacyError, match=words):
        setting(read(None, [*PRIVATE, *option]), method, federation)


def test_a_large_delta_is_refused_unless_allowed(federation):
    changes = ["privacy.epsilon=4", "privacy.delta=0.5", "privacy.noise_multiplier=2"]
    with pytest.raises(PrivacyError, match="below 1 / clients"):
        setting(read(None, changes), "adaped", federation)
    allowed = read(None, [*changes, "privacy.allow_delta=true"])
    terms = setting(allowed, "adaped", federation).terms
    assert (terms.delta, terms.allow_delta) == (0.5, True)


def test_leaving_newcomers_out_does_not_hide_what_a_cohort_claims(federation):
    """Amplification of a fixed size is for methods without memory, among veterans as well."""
    cohort = Veterans(FixedSize(size=2, amplifies=True), 1)
    channel = CentralGaussian(clip=1.0, noise_multiplier=1.0)
    agreed = {"facts": Facts.of(federation), "channel": channel, "cohort": cohort}
    with pytest.raises(PrivacyError, match="must claim no amplification for adaped"):
        Agreement(algorithm=adaped(logistic(4, 3)), **agreed)
    event = Agreement(algorithm=fedavg(logistic(4, 3)), **agreed).event
    assert (event.amplified, event.num_clients) == (True, federation.num_clients - 1)
