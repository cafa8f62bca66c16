"""Estimates of the groups of a lazy frame: the engine sums and joins, small tables are fitted.

Rates depend on the distinct pairs (n, successes), events on (exposure, events), and means on the
distinct n. These tables leave the engine; what was estimated for their rows goes back as a lookup,
and a join gives every group its numbers. What needs each group's mean reads the sums of all groups
(without their names) or, for tests, of a sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.warehouse.engine import narwhals
from fedprior.data.warehouse.roles import Roles
from fedprior.data.warehouse.sums import PLACE, GroupSums, sum_groups
from fedprior.estimation.groups import warn_of
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Counts, Events, Means

READ = 10_000  # sums of so many groups are simply read; of more, so many are the sample for tests
_PAIRS = {"n": "successes", "exposure": "events"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """Every group's numbers, in the engine: `frame` has the keys of `sums`, then the numbers."""

    sums: GroupSums
    frame: Any

    def named(self) -> Any:
        """The frame with the key as `group`, or several keys under their own names."""
        names = self.sums.roles.group
        names = ("group",) if len(names) == 1 else names
        return self.frame.rename(dict(zip(self.sums.keys, names, strict=True)))

    def of(self, labels: Sequence[Any], *columns: str) -> dict[str, np.ndarray]:
        """The numbers of labels without missing ones, NaN where a label is not known."""
        sums, nw = self.sums, narwhals(self.sums.owner)
        sentence = "labels are looked up one column at a time. Use encode(frame)."
        check.expect(len(sums.keys) == 1, sums.owner, sentence)
        asked = sums.engine.upload({PLACE: np.arange(len(labels)), "label": np.array(labels)})
        small = asked.join(
            self.frame.select("key_0", *columns), left_on="label", right_on="key_0", how="left"
        )
        found = sums.engine.read(small.select(PLACE, *(nw.col(name) for name in columns)))
        order = np.argsort(found[PLACE])
        return {name: np.asarray(found[name], np.float64)[order] for name in columns}


def fit_frame(model: Any, frame: Any, roles: Roles, *, owner: str | None = None) -> Any:
    """The model, fitted to the rows of a native lazy frame, which errors call `owner`."""
    model._check()
    owner = owner or model._owner
    reserved = {"n", "exposure", "raw", "personal", "weight", "lower", "upper", "above"}
    reserved |= {"rank", "rank_lower", "rank_upper"}
    if len(roles.group) > 1:
        for name in roles.group:
            rule = "another name than those of the answers"
            check.require(name not in reserved, owner, "group", rule, name)
    return fit_sums(model, sum_groups(owner, frame, roles, strict=model.strict))


def fit_sums(model: Any, sums: GroupSums) -> Any:
    """The model, fitted to the sums of the groups, with all answers in the engine."""
    model._dropped, model._lacking, model._reader = sums.dropped, 0, None
    names = sums.frame.collect_schema().names()
    size = "exposure" if "exposure" in names else "n"
    if "mean" in names:
        frame = _fit_means(model, sums)
    else:
        frame = _fit_pairs(model, sums, size, _PAIRS[size])
    model.notes_ = (*sums.notes, *model.notes_[bool(sums.dropped) :])
    model._answers, model._roles = Answers(sums=sums, frame=frame), sums.roles
    return model


def _fit_pairs(model: Any, sums: GroupSums, size: str, number: str) -> Any:
    """Rates, from the distinct pairs and the number of groups that share each."""
    nw = narwhals(sums.owner)
    pairs = sums.tally(size, number)
    kind: Any = Events if size == "exposure" else Counts
    statistics = kind(**{size: pairs[size], number: pairs[number]}, count=pairs["count"])
    model._learn(statistics, np.arange(len(pairs["count"])), None)
    numbers = model._columns()
    lookup = {size: pairs[size], number: pairs[number]}
    lookup |= {name: values for name, values in numbers.items() if name not in ("group", size)}
    joined = sums.frame.join(sums.engine.upload(lookup), on=[size, number], how="left")
    raw = nw.when(nw.col(size) > 0).then(nw.col("raw"))
    return joined.with_columns(raw=raw).select(*sums.keys, *list(numbers)[1:])


def _fit_means(model: Any, sums: GroupSums) -> Any:
    """Means, from the distinct n where that is enough, else from the sums of all groups."""
    reason = _needs_groups(model, sums)
    sample: Estimates | None = None
    if reason is None and sums.groups > READ:
        sample = model._estimate(Means(**sums.statistics(every=-(-sums.groups // READ))))
        if "noise_freedom" in sample.population.parameters:
            reason = "the noise differs between groups (noise='common' takes it to be equal)"
    if sample is None or reason is not None:
        told = sums.groups > READ and reason is not None
        return _fit_all(model, sums, f"The sums of all groups were read: {reason}." * told)
    found = sums.bins()
    count, shift = found["count"], found["shift"] / found["count"]
    statistics = Means(
        n=found["n"],
        mean=sums.center + shift,
        within=found["within"],
        count=count,
        scatter=np.maximum(found["square"] - count * shift**2, 0.0),
    )
    model._learn(statistics, np.arange(len(count)), None)
    _tell(model, [f"In a sample of {len(sample.n):,} groups: {note}" for note in sample.notes])
    return _by_size(sums, found["n"], model.estimates_)


def _by_size(sums: GroupSums, n: np.ndarray, estimates: Estimates) -> Any:
    """Each group's numbers from its own mean and the row of its n."""
    nw = narwhals(sums.owner)
    lookup = estimates.lookup
    if lookup is None:
        raise AssertionError("estimates by size have a lookup")
    joined = sums.frame.join(sums.engine.upload({"n": n} | lookup.columns()), on="n", how="left")
    away = joined.with_columns(away=nw.col("mean") - lookup.center)
    square = (nw.col("square") * nw.col("away") + nw.col("slant")) * nw.col("away")
    square = square + nw.col("constant")
    middle = nw.col("weight") * nw.col("away") + nw.col("offset") + lookup.center
    wide = away.with_columns(personal=middle, half=square)
    # Rounding may leave a square below 0.
    half = nw.when(nw.col("half") > 0).then(nw.col("half")).otherwise(nw.lit(0.0)).sqrt()
    return (
        wide.with_columns(half=half)
        .select(
            *sums.keys,
            "n",
            "personal",
            "weight",
            raw=nw.col("mean"),
            lower=nw.col("personal") - nw.col("half"),
            upper=nw.col("personal") + nw.col("half"),
        )
        .select(*sums.keys, "n", "raw", "personal", "weight", "lower", "upper")
    )


def _fit_all(model: Any, sums: GroupSums, note: str) -> Any:
    """Means from the sums of every group; the answers go back by the group's place."""
    placed = sums.placed()
    statistics = Means(**placed.statistics())
    model._learn(statistics, np.arange(len(statistics.n)), None)
    _tell(model, [note] if note else [])
    numbers = model._columns()
    lookup = {PLACE: numbers.pop("group")} | numbers
    frame = placed.frame.select(*sums.keys, PLACE)
    joined = frame.join(sums.engine.upload(lookup), on=PLACE, how="left")
    return joined.select(*sums.keys, *numbers)


def _needs_groups(model: Any, sums: GroupSums) -> str | None:
    """Why sums by size are not enough for what is asked of the model, or None."""
    if sums.roles.stderr is not None:
        return "each has a standard error of its own"
    asked = {
        f"population={model.population!r}": model.population in ("nonparametric", "auto"),
        "intervals='robust'": model.intervals == "robust",
        "noise='moderated'": model.noise == "moderated",
        "above": model.above is not None,
        "ranks": model.ranks,
    }
    needing = [name for name, needs in asked.items() if needs]
    return f"{needing[0]} needs each group's mean" if needing else None


def _tell(model: Any, notes: list[str]) -> None:
    """Add notes to those of a fitted model; one that recommends something is a warning."""
    found = replace(model.estimates_, notes=(*model.estimates_.notes, *notes))
    model.estimates_, model.notes_ = found, (*model.notes_, *notes)
    warn_of(notes, stacklevel=2)
