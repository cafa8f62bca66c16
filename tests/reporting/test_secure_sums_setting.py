"""Secure sums in a configuration: shares of the noise for a budget, their ledger, refusals."""

import math

import pytest

import fedprior
from fedprior.channels import DistributedGaussian
from fedprior.cli.ledger import _notes as notes
from fedprior.core.check import PrivacyError
from fedprior.exchange.facts import Facts
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import Everyone, FixedSize
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import begin_ledger
from fedprior.reporting import ledgers, noise, population
from fedprior.reporting.config import read
from fedprior.reporting.train import check_run
from fedprior.reporting.training import Study

FACTS = Facts(num_clients=60, shape=(2,), num_classes=3, most_samples=5)
SUMS = [
    "privacy.epsilon=4",
    "privacy.delta=1e-3",
    "privacy.relation=replace-one",
    "privacy.secure_sums=true",
    "model.name=logistic",
    "training.rounds=20",
]


def setting(*changes, method="fedavg-fine-tuning", facts=FACTS):
    return Study(read(None, [*SUMS, *changes]), facts).training(method)


def test_noise_is_shared_by_a_third_of_the_clients_for_the_budget():
    found = setting("privacy.clip=0.5")
    assert found.cohort == FixedSize(size=20)
    channel = found.channel
    assert isinstance(channel, DistributedGaussian)
    assert (channel.clip, channel.size, channel.missing) == (0.5, 20, 6)  # a third may be absent
    event, count = channel.charge(found.cohort, 60, 1)
    assert count is None
    assert 3.9 < epsilon([(event, 20)], delta=1e-3, relation="replace-one") <= 4
    found.check_affordable(60)
    assert (found.terms.view, found.terms.relation) == ("masked", "replace-one")
    # Nobody is hidden by sampling, even if no client remembers earlier rounds.
    assert not setting(method="fedavg").cohort.amplifies
    assert setting(method="local").terms is None


def test_everyone_and_other_numbers_of_absent_clients():
    found = setting("training.cohort=everyone", "privacy.missing=50")
    assert found.cohort == Everyone()
    assert (found.channel.size, found.channel.missing) == (60, 50)
    assert found.channel.noise_multiplier == setting().channel.noise_multiplier
    assert setting("training.cohort_size=7").channel.missing == 2
    among = setting("training.newcomers=30")
    assert (among.channel.size, among.cohort.capacity(60)) == (10, 10)
    among.check_affordable(60)


def test_clients_are_cautious_about_the_noise_of_everybody():
    """What is there if nobody is absent, more than what is claimed."""
    channel, privacy = setting().channel, read(None, SUMS).privacy
    more = math.sqrt(20 / 14)
    assert noise.equivalent_noise(channel, privacy) == pytest.approx(
        more * channel.noise_multiplier
    )
    assert noise.deviations(channel) == pytest.approx([channel.total_scale])
    assert channel.total_scale == pytest.approx(more * channel.noise_multiplier * channel.clip)
    assert noise.coefficients(channel) == ()
    assert setting().algorithm.discounts_noise
    assert setting().noise.noise_multiplier == pytest.approx(more * channel.noise_multiplier)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("privacy.mechanism=matrix", "mechanism must be gaussian with secure_sums, got matrix"),
        ("privacy.adaptive_clip=0.5", "adaptive_clip must be 0 with secure_sums, got 0.5"),
        ("privacy.relation=add-remove", "relation must be replace-one with secure_sums.*Set priv"),
        ("training.cohort=poisson", "cohort must be fixed or everyone .* got poisson.*cohort_size"),
        ("training.cohort=cyclic", "cohort must be fixed or everyone .* got cyclic"),
        ("training.sampling_rate=0.2", "cohort must be fixed or everyone .* sampling_rate of 0.2"),
        ("training.cohort_size=2", "secure_sums must be of at least 3 clients in a cohort, got 2"),
    ],
)
def test_what_has_no_proof_is_refused(change, words):
    with pytest.raises(PrivacyError, match=words):
        setting(change)


def test_scores_are_not_released_beside_secure_sums():
    scored = ("privacy.release_scores=true", "privacy.score_epsilon=1")
    with pytest.raises(PrivacyError, match="release_scores must be false with secure_sums"):
        setting(*scored)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["privacy.secure_sums=true"], "epsilon must be given"),
        (["privacy.missing=2"], "epsilon must be given"),
        ([*SUMS, "privacy.secure_sums=false", "privacy.missing=2"], "missing must be 0 without"),
        ([*SUMS, "privacy.missing=-1"], "missing must be a whole number of at least 0"),
    ],
)
def test_keys_without_effect_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        read(None, changes)


def test_more_absent_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"missing must be below size \(20\), got 20"):
        setting("privacy.missing=20")


def test_methods_that_need_every_message_are_refused():
    with pytest.raises(PrivacyError, match=r"channel must be Identity\(\) for mixture-clustering"):
        setting(method="mixture-clustering")


def test_secure_shares_are_not_drawn_on_one_machine():
    """Before a folder is made; `simulate` would refuse it, too."""
    pytest.importorskip("opendp")
    secure = [*SUMS, "privacy.noise=secure", 'methods=["fedavg"]', "privacy.allow_delta=true"]
    with pytest.raises(PrivacyError, match="noise must be simulated to rehearse secure sums"):
        check_run(read(None, secure))


def test_a_rehearsal_is_charged_in_its_own_view(federation, tmp_path):
    small = ("training.cohort_size=3", "training.rounds=2", "privacy.allow_delta=true")
    found = setting(*small, facts=Facts.of(federation), method="fedavg")
    budget, path = tmp_path / "population.jsonl", tmp_path / "ledger.jsonl"
    begin_ledger(budget, epsilon=9, delta=1e-3)
    shared = population.opened(budget, found.terms, who="train fedavg")
    with Ledger(path, found.terms, within=shared) as ledger:
        result = fedprior.simulate(found.algorithm, federation, **found.arguments, ledger=ledger)
    assert result.rounds == 2
    (row,) = ledgers.spent(path)
    assert 3.9 < row["epsilon"] <= 4
    said = ledgers.sentence(row)
    assert "masked view, 3 of 5 clients a round, nobody hidden by it; trusts nobody with" in said
    stated = population.statement(budget)
    assert [row["view"] for row in stated["charges"]] == ["masked"]
    views = {each["adversary"]: each["epsilon"] for each in stated["views"]}
    # Whoever adds up the uploads sees the noisy sum and nothing else.
    assert "Charges of the masked view trust that enough clients add their noise." in notes(stated)
    assert views[population.ADDS_UP] == views[population.RELEASED] == pytest.approx(row["epsilon"])


def test_a_population_under_add_remove_refuses_secure_sums(tmp_path):
    budget = tmp_path / "population.jsonl"
    begin_ledger(budget, epsilon=9, delta=1e-3, relation="add-remove")
    with pytest.raises(PrivacyError, match="must be replace-one for secure sums"):
        population.opened(budget, setting().terms, who="train")
