"""What a group sends depends on public facts, the state and its own data, and is charged before."""

import contextlib

import numpy as np
import pytest

from fedprior.core.check import PrivacyError
from fedprior.estimation import (
    Counts,
    Events,
    Means,
    estimate_events_privately,
    estimate_means_privately,
    estimate_mixture_privately,
    estimate_rates_privately,
)
from fedprior.exchange.batch import Batch, Rounds
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms
from fedprior.regression import fit_mixture_privately
from fedprior.regression.private_em import private_messages
from fedprior.regression.rows import GroupedRows

KNOWN = {"noise_variance": 0.5, "theta_variance": 0.1}
SIZES = np.random.default_rng(5).integers(2, 9, 60)
SIZES[7] = 6


def means(replaced):
    draws = np.random.default_rng(0)
    mean, within = draws.normal(size=60), draws.chisquare(SIZES - 1)
    if replaced:
        mean[7], within[7] = -40.0, 9.0
    return Means(n=SIZES, mean=mean, within=within)


def counts(replaced):
    successes = np.random.default_rng(0).binomial(SIZES, 0.4)
    if replaced:
        successes[7] = 6 - successes[7]
    return Counts(n=SIZES, successes=successes)


def ask_means(replaced, **options):
    options = {"epsilon": 2.0, "low": -2, "high": 2, "seed": 0} | options
    return estimate_means_privately(means(replaced), **options)


def ask_rates(replaced, **options):
    return estimate_rates_privately(counts(replaced), **{"epsilon": 2.0, "seed": 0} | options)


def ask_events(replaced, **options):
    happened = np.random.default_rng(0).poisson(SIZES * 0.7)
    if replaced:
        happened[7] = 10**9
    events = Events(exposure=SIZES * 0.7, events=happened)
    return estimate_events_privately(events, **{"epsilon": 2.0, "high": 3.0, "seed": 0} | options)


def ask_mixture(replaced, **options):
    options = {"num_components": 2, "radius": 1.5, "noise_variance": 1.0} | options
    options = {"epsilon": 2.0, "delta": 1e-4} | options
    return estimate_mixture_privately(means(replaced), **options)


QUESTIONS = {
    "means, bits": ask_means,
    "means, vectors": lambda replaced: ask_means(replaced, delta=1e-4),
    "means, variances known": lambda replaced: ask_means(replaced, **KNOWN),
    "means, as printed": lambda replaced: ask_means(
        replaced, delta=1e-4, method="paper", bounds="population", **KNOWN
    ),
    "rates, k-ary": lambda replaced: ask_rates(replaced, scheme="k-ary"),
    "rates, split": lambda replaced: ask_rates(replaced, scheme="split"),
    "events, k-ary": lambda replaced: ask_events(replaced, scheme="k-ary"),
    "events, split": lambda replaced: ask_events(replaced, scheme="split"),
    "rates, as printed": lambda replaced: ask_rates(replaced, scheme="paper"),
    "mixture": ask_mixture,
}


class Enough(Exception):
    """The first total is known; what follows depends on it, which is the state."""


def sent(monkeypatch, question, replaced):
    """What leaves the groups before anything is learned from it, in order."""
    seen = []

    def watch(name):
        whole = getattr(Rounds, name)

        def record(self, *words, **more):
            seen.append(whole(self, *words, **more))
            return seen[-1]

        monkeypatch.setattr(Rounds, name, record)

    with monkeypatch.context() as monkeypatch:
        for name in ("gather", "respond"):
            watch(name)

        def add(self, channel, parts, key, *, dimension):
            seen.extend(channel.encode(rows, key) for rows in parts)
            raise Enough

        monkeypatch.setattr(Rounds, "add", add)
        with contextlib.suppress(Enough):
            question(replaced)
    return np.concatenate([np.ravel(each) for each in seen])


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_replacing_one_group_leaves_every_other_report_as_it_was(monkeypatch, name):
    first, second = (sent(monkeypatch, QUESTIONS[name], replaced) for replaced in (False, True))
    assert first.shape == second.shape
    changed = np.flatnonzero(first != second)
    width = 4 if name == "mixture" else 3  # numbers of one report, at most
    assert len(changed) <= width
    assert len(changed) == 0 or changed.max() - changed.min() < width
    if "vectors" in name or name == "mixture":
        assert len(changed)  # the test sees a report that changed


@pytest.mark.parametrize("rows", [1, 4, 90])
def test_a_larger_group_leaves_every_other_message_as_it_was(rows):
    """Also where it moves to another block of groups of one size."""
    draws = np.random.default_rng(1)
    size = np.full(30, 4)
    place = np.repeat(np.arange(30), size)
    x, y = draws.normal(size=(120, 3)), draws.normal(size=120)
    keep = place != 7
    more = np.random.default_rng(2)
    other = GroupedRows.of(
        np.concatenate([x[keep], more.normal(size=(rows, 3))]),
        np.concatenate([y[keep], 9 * more.normal(size=rows)]),
        np.concatenate([place[keep], np.full(rows, 7)]),
        30,
    )
    found = []
    for each in (GroupedRows.of(x, y, place, 30), other):
        messages = np.zeros((30, 2 * 10 + 1))
        for block in each.blocks():
            centers = np.array([[1.0, 0, 0], [0, -1, 1]])
            messages[block.groups] = private_messages(block, np.array([0.3, 0.7]), centers, 0.8)
        found.append(messages)
    others = np.arange(30) != 7
    np.testing.assert_array_equal(found[0][others], found[1][others])
    assert not np.array_equal(found[0][7], found[1][7])


def test_nothing_is_drawn_before_it_is_charged(monkeypatch, tmp_path):
    """Every question on a ledger whose budget is used up: no key is handed out."""
    terms = {"delta": 1e-4, "relation": "replace-one", "noise": "simulated", "budget": 1e-3}
    monkeypatch.setattr(Rounds, "key", lambda *words: pytest.fail("a key before the charge"))
    rows = GroupedRows.of(np.ones((120, 1)), np.ones(120), np.repeat(np.arange(60), 2), 60)

    def ask_regression(replaced, **options):
        options = {"num_components": 1, "radius": 1.0, "epsilon": 1.0, "delta": 1e-4} | options
        return fit_mixture_privately(rows, **options)

    cases = {
        "local": (
            ask_means,
            ask_rates,
            ask_mixture,
            lambda *_, **more: ask_means(0, **KNOWN, **more),
        ),
        "central": (ask_regression,),
    }
    for view, questions in cases.items():
        with Ledger(tmp_path / view, Terms(view=view, **terms)) as ledger:
            for question in questions:
                with pytest.raises(PrivacyError, match="budget"):
                    question(False, ledger=ledger)
            assert ledger.spent == 0


def test_every_private_estimate_is_a_batch(monkeypatch):
    """There is one way to a report, which a ledger and the accountant stand at."""
    charged = []
    whole = Batch.charged

    def watch(self, ledger, *, content):
        charged.append(self.owner)
        return whole(self, ledger, content=content)

    monkeypatch.setattr(Batch, "charged", watch)
    for question in QUESTIONS.values():
        question(False)
    assert len(charged) == len(QUESTIONS)
