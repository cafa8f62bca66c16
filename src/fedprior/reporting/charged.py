"""The ledger that private estimates are charged to: beside the data, unless another is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.data import standard_input
from fedprior.privacy.guarantee import Noise, shown
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.opening import read
from fedprior.privacy.plans import check_delta_below
from fedprior.privacy.terms import Terms
from fedprior.reporting.population import opened
from fedprior.reporting.question import Question

_EMBEDDED, _PLAYER = Path("baseball"), "player"
_SUFFIX = ".ledger.jsonl"


def noise(question: Question) -> Noise:
    """Noise that can be repeated is simulated, and so is Gaussian noise."""
    keyed = question.seed is not None or (question.kind == "means" and bool(question.delta))
    return "simulated" if keyed else "secure"


def path(question: Question) -> Path:
    """The named ledger, or `visits.ledger.jsonl` beside `visits.csv`.

    It belongs to the data, by whatever link they are read and wherever the answer goes: a second
    question adds to the first.
    """
    if question.ledger is not None:
        return question.ledger
    data = _data(question)
    sentence = (
        "--epsilon needs --ledger for several files. Make one with fedprior privacy ledger init."
    )
    check.expect(question.file is None or data.is_file(), "estimate", sentence)
    real = data.resolve()
    return (data if real == data.absolute() else real).with_suffix(_SUFFIX)


def open_ledger(question: Question, num_groups: int) -> Ledger:
    """The question's ledger; one that exists keeps its delta and, unless one is asked for, budget.

    A new one, which is beside the data, has the question's delta: 0 for randomized responses, whose
    epsilons then add up. A ledger that is named must exist.
    """
    file, named = path(question), question.ledger is not None
    who = f"estimate {standard_input.shown(_data(question).name)} ({question.kind})"
    try:
        terms = _terms(question, file)
        check_delta_below(terms.delta, num_groups, allowed=terms.allow_delta)
        ledger = opened(
            file, terms, who=who, num_clients=num_groups, key=question.key, begin=not named
        )
    except OSError as error:
        rule = f"a file that can be written, got {file} ({error.strerror or error})"
        raise ValueError(f"estimate: --ledger must be {rule}. Name another one.") from error
    sentence = "--budget cannot change that of a population."
    check.expect(question.budget in (None, ledger.terms.budget), "estimate", sentence)
    return ledger


def _data(question: Question) -> Path:
    return _EMBEDDED if question.file is None else Path(question.file)


def _unit(question: Question) -> str:
    """What one report protects: all rows of one group, by the names of its columns."""
    names = " and ".join(sorted(question.group)) or _PLAYER
    return "".join(letter if letter.isprintable() else "?" for letter in names)[:200]


def _terms(question: Question, file: Path) -> Terms:
    """Those of a new ledger, or of the one that is there.

    A ledger protects one kind of group: the epsilons of clinics and of their doctors do not add up.
    Who charges a population's ledger says that the groups are its clients.
    """
    gaussian = question.kind == "means" and bool(question.delta)
    if not file.exists():
        return Terms(
            delta=(question.delta or 0.0) if gaussian else 0.0,
            relation="replace-one",
            view="local",
            noise=noise(question),
            unit=_unit(question),
            budget=question.budget,
            allow_delta=question.allow_delta,
        )
    found, records = read(file, question.key)
    shared = bool(records[0]["shared"])
    rule = f"{found.unit}, whose rows {file} protects"
    remedy = "What is spent on other groups does not add up with it: name another --ledger."
    same = shared or found.unit == _unit(question)
    check.require(same, "estimate", "--group", rule, _unit(question), remedy)
    sentence = (
        f"{file} has delta = 0, to which Gaussian reports cannot be charged. Leave out --delta, or "
        "name a --ledger made by fedprior privacy ledger init."
    )
    check.expect(found.delta > 0 or not gaussian, "estimate", sentence)
    budget = found.budget if question.budget is None else question.budget
    return replace(found, view="local", noise=noise(question), budget=budget)


def spent(ledger: Ledger) -> dict[str, Any]:
    """What the population has spent on this ledger, the last question included."""
    terms = ledger.terms
    total = {"epsilon": ledger.spent, "delta": terms.delta, "budget": terms.budget}
    return {"file": str(ledger.path), **total}


def sentence(total: dict[str, Any]) -> str:
    """The total in words."""
    budget = "" if total["budget"] is None else f" of {total['budget']:g}"
    delta = f" at delta {total['delta']:g}" if total["delta"] else ""
    epsilon = shown(total["epsilon"], digits=4)
    return f"epsilon {epsilon}{budget}{delta} spent in total, recorded in {total['file']}"
